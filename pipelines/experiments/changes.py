"""python -m pipelines.experiments.changes TITLES [--worlds equal …] [--epsilons 2 8] [--repeats 3]

How right `beam-dpne compare` is: public titles, one a line, are dealt to two halves of made-up people.
Half of the words are thinned, each in one of the halves and by a known factor, so that true numbers of
users rise and fall. The table says how many true ratios the intervals contain, how many changes are
called and how many of these went in the other direction, how many true changes beyond a factor of 2 are
called, and what the private data of these halves say of n-grams that are gone or new.
"""

import argparse
import collections
import gzip
import hashlib
import json
import pathlib
import random
import tempfile
from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import pyarrow as pa

from beam_dpne.cli.display import print_table
from beam_dpne.cli.main import main as beam_dpne
from beam_dpne.evaluation.corpus import index_corpus, read_corpus
from beam_dpne.evaluation.judging import rows_of_table
from beam_dpne.reading.files import match_inputs
from beam_dpne.reading.options import ReadOptions
from beam_dpne.release.changes import compare_releases
from beam_dpne.release.reading import read_release

# Half of the words keep their numbers, and others keep these parts in one of the halves.
FACTORS = (*[1.0] * 5, 0.2, 0.35, 0.5, 0.7, 0.85)
WORLDS = {
    "equal": "3 titles each",
    "single": "1 title each",
    "unequal": "unequal users",
    "mixed": "3 titles each, then unequal users",
    "topics": "3 titles of a topic each",
    "communities": "1 or 20 titles, by topic",
    "still": "3 titles each, nothing thinned",
}
SIDES = ("old", "new")
LENGTHS = 3
SHARES = ("covered", "gone, still held", "as many", "new, held before", "as many before")
NOTICE = "NOT PRIVATE, for public data only."


def topic_of(words: Sequence[str], counts: Mapping[str, int]) -> str:
    """Returns the rarest word of a title that is neither rare nor common; "" if it has none."""
    own = [word for word in words if 30 <= counts[word] <= 1500]
    return min(own, key=lambda word: (counts[word], word), default="")


def sizes(world: str, side: int, topic: str, chance: random.Random) -> int:
    """Returns how many titles the next person of a half has, whose first title has this topic."""
    if world == "unequal" or (world == "mixed" and side == 1):
        return min(200, int(chance.paretovariate(0.9)))
    if world == "communities":
        return 20 if hashlib.sha256(topic.encode()).digest()[0] % 4 == 0 else 1
    return 1 if world == "single" else 3


def halves(titles: Sequence[str], world: str) -> Iterator[list[str]]:
    """Yields the input of the old half, then that of the new one: lines of JSON."""
    chance = random.Random(world)
    texts = [title.lower().split() for title in titles]
    chance.shuffle(texts)
    counts = collections.Counter(word for text in texts for word in text)
    kept = {word: chance.choice(FACTORS) for word in sorted(counts)}
    thinned = {word: chance.randrange(2) for word in sorted(counts)}
    for side in range(2):
        own = texts[side::2]
        if world in ("topics", "communities"):
            own.sort(key=lambda text: topic_of(text, counts))
        lines: list[str] = []
        person = 0
        while own:
            person += 1
            for _ in range(min(len(own), sizes(world, side, topic_of(own[-1], counts), chance))):
                text = own.pop()
                if world != "still":
                    text = [
                        word
                        for word in text
                        if thinned[word] != side or chance.random() < kept[word]
                    ]
                lines.append(json.dumps({"user": f"person {person}", "text": " ".join(text)}))
        yield lines


def true_numbers(path: str, rows: pa.Table) -> np.ndarray:
    """Returns how many users of a file have each n-gram of a comparison."""
    corpus = read_corpus(match_inputs([path]), ReadOptions(), "words")
    asked = rows.select(["length", "ngram"])
    asked = asked.append_column("score", pa.array(np.zeros(len(rows))))
    lengths = rows["length"].to_numpy()
    found = np.zeros(len(rows), np.int64)
    for length, judged in rows_of_table(index_corpus(corpus, LENGTHS), asked).items():
        found[lengths == length] = judged.truth
    return found


def judged(rows: pa.Table, old: np.ndarray, new: np.ndarray) -> dict[str, float]:
    """Returns how right a comparison is, given the true numbers of users of its rows."""
    change = np.array(rows["change"].to_pylist())
    is_called = (change == "risen") | (change == "fallen")
    in_both = is_called | (change == "unchanged")
    ratio = np.maximum(new, 0.5) / np.maximum(old, 0.5)
    low, high = (rows[name].fill_null(1).to_numpy() for name in ("ratio_low", "ratio_high"))
    is_wrong = ((change == "risen") & (ratio <= 1)) | ((change == "fallen") & (ratio >= 1))
    is_large = in_both & ((ratio > 2) | (ratio < 0.5))
    is_gone = change == "gone"
    is_new = change == "new"
    found = {
        "in both": in_both.sum(),
        "covered": np.mean((low <= ratio)[in_both] & (ratio <= high)[in_both]),
        "called": is_called.sum(),
        "wrong": is_wrong.sum(),
        "beyond 2": is_large.sum(),
        "of them called": (is_large & is_called & ~is_wrong).sum(),
        "gone, still held": np.mean(new[is_gone] > 0),
        "as many": np.mean(new[is_gone] >= old[is_gone]),
        "new, held before": np.mean(old[is_new] > 0),
        "as many before": np.mean(old[is_new] >= new[is_new]),
    }
    return {name: float(value) for name, value in found.items()}


def main(argv: Sequence[str] | None = None) -> None:
    """Prints a table of all worlds."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("titles", type=pathlib.Path)
    parser.add_argument("--worlds", nargs="*", choices=[*WORLDS], default=[*WORLDS])
    parser.add_argument("--epsilons", type=float, nargs="+", default=[2, 8])
    parser.add_argument("--repeats", type=int, default=3)
    given = parser.parse_args(argv)
    with gzip.open(given.titles, "rt", encoding="utf-8") as lines:
        titles = [line.strip() for line in lines]
    table = []
    for world in given.worlds:
        with tempfile.TemporaryDirectory() as folder:
            files = [f"{folder}/{side}.jsonl" for side in SIDES]
            for path, lines in zip(files, halves(titles, world), strict=True):
                pathlib.Path(path).write_text("\n".join(lines) + "\n", encoding="utf-8")
            for epsilon in given.epsilons:
                found = [compared(folder, files, epsilon) for _ in range(given.repeats)]
                mean = {name: np.mean([each[name] for each in found]) for name in found[0]}
                shown = {
                    name: f"{value:.3f}" if name in SHARES else f"{value:,.1f}"
                    for name, value in mean.items()
                }
                table.append({"people": WORLDS[world], "ε": f"{epsilon:g}"} | shown)
    print_table(f"{NOTICE} Comparisons of two halves, means of {given.repeats} runs", table)


def compared(folder: str, files: Sequence[str], epsilon: float) -> dict[str, float]:
    """Releases both halves with fresh keys, and returns how right their comparison is."""
    budget = ["--epsilon", str(epsilon), "--delta", "1e-6", "--max_length", str(LENGTHS)]
    releases = []
    for side, path in zip(SIDES, files, strict=True):
        output = f"{folder}/release {side}"
        given = ["--input", path, "--output", output, "--overwrite", "--quiet"]
        if status := beam_dpne(["ngrams", *given, *budget]):
            raise SystemExit(status)
        releases.append(read_release(output))
    rows = compare_releases(*releases)
    return judged(rows, *(true_numbers(path, rows) for path in files))


if __name__ == "__main__":
    main()
