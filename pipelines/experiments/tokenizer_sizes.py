"""python -m pipelines.experiments.tokenizer_sizes RELEASE PRIVATE PUBLIC

Tokenizers of several sizes, trained on the words of a release, on public text, and on the private text
of the release. Of both texts the words count that occur at least three times. The tables have tokens
per word and the part of words with something unknown, on a fifth of the public titles, which no
tokenizer was trained on. NOT private: for public data only.
"""

import argparse
import collections
import gzip
import json
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence

import numpy as np
import pyarrow as pa
from tokenizers import Tokenizer

from beam_dpne import read_release
from beam_dpne.cli.display import print_table
from beam_dpne.documents.tokenizers import words as split_words
from beam_dpne.exports.language import splitting
from beam_dpne.exports.trained import MODELS, trained_on
from beam_dpne.release.reading import Release

SIZES = (4_000, 8_000)
LEAST = 3
_HELD_OUT = 5
_BATCH = 20_000


def _titles(path: str) -> Iterator[str]:
    with gzip.open(path, "rt", encoding="utf-8") as lines:
        for line in lines:
            yield json.loads(line)["text"] if ".jsonl" in path else line.rstrip("\n")


def _words_of(titles: Sequence[str]) -> list[list[str]]:
    parts = (titles[start : start + _BATCH] for start in range(0, len(titles), _BATCH))
    return [words for part in parts for words in split_words(pa.array(part)).to_pylist()]


def _counted(titles: Iterable[list[str]]) -> Mapping[str, float]:
    return collections.Counter(word for words in titles for word in words)


def _frequent(titles: Iterable[list[str]]) -> Mapping[str, float]:
    return {word: count for word, count in _counted(titles).items() if count >= LEAST}


def _released(release: Release) -> Mapping[str, float]:
    rows = release.ranked()[1]
    return dict(zip(release.texts(rows), release.weights(rows).tolist(), strict=True))


def _judged(tokenizer: Tokenizer, words: Mapping[str, float]) -> dict[str, str]:
    """Returns tokens per word, and the part of words with something unknown, each word by its count."""
    names = list(words)
    counts = np.array(list(words.values()))
    found = tokenizer.encode_batch(names)
    tokens = np.array([len(each.ids) for each in found])
    unknown = np.array([0 in each.ids for each in found])
    return {
        "tokens per word": f"{(tokens * counts).sum() / counts.sum():.3f}",
        "unknown": f"{(unknown * counts).sum() / counts.sum():.2%}",
    }


def main(arguments: Sequence[str] | None = None) -> int:
    """Prints the tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    for name in ("release", "private", "public"):
        parser.add_argument(name)
    given = parser.parse_args(arguments)
    public: dict[bool, list[str]] = {True: [], False: []}
    for title in _titles(given.public):
        public[zlib.crc32(title.encode()) % _HELD_OUT == 0].append(title)
    held_out = _counted(_words_of(public[True]))
    sources = {
        "release": _released(read_release(given.release)),
        "public text": _frequent(_words_of(public[False])),
        "private text": _frequent(_words_of(list(_titles(given.private)))),
    }
    print(f"Held out: {len(public[True]):,} titles, {sum(held_out.values()):,.0f} words.")
    for size in SIZES:
        rows = []
        for model in MODELS:
            for name, words in sources.items():
                trained = trained_on(
                    list(words),
                    np.array(list(words.values()), np.float64),
                    splitting=splitting("words"),
                    model=model,
                    vocabulary_size=size,
                )
                tokenizer = Tokenizer.from_str(trained)
                row = {"model": model, "trained on": name, "words": len(words)}
                rows.append(
                    {**row, "tokens": tokenizer.get_vocab_size(), **_judged(tokenizer, held_out)}
                )
        print_table(f"Vocabularies of at most {size:,} tokens", rows)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
