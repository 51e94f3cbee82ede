"""The floor of `beam-dpne bayesian`: the same counts with noise in one numpy process.

    python -m tests.benchmarks.bayesian_floor --input titles.jsonl.gz --public public.txt \
        --output /tmp/floor --epsilon 0.1 --delta 1e-7 --vocabulary_size 50000 --max_contributions 30

The same vocabulary, limits and Gaussian mechanism, and a `probabilities.jsonl` of as many rows, but
numpy's ordinary generator, and no Bayesian step: what is negative is cut off, the rest normalised.
"""

import argparse
import json
import math
import pathlib

import numpy as np
import pyarrow as pa

from tests.benchmarks.floor import (
    Clock,
    beyond_limit,
    changes,
    encode,
    gaussian_stddev,
    lay_out,
    read_jsonl,
    tokenize_words,
)

_LENGTH = 3


def read_texts(path: str) -> pa.Table:
    texts = pathlib.Path(path).read_text(encoding="utf-8").splitlines()
    return pa.table({"user": [""] * len(texts), "text": texts})


def trigram_keys(ids: np.ndarray, words: int) -> tuple[np.ndarray, np.ndarray]:
    """Keys of all trigrams, and where they begin; ids of −1 end a document or are of no interest."""
    inside = (ids[:-2] >= 0) & (ids[1:-1] >= 0) & (ids[2:] >= 0)
    at = np.flatnonzero(inside)
    wide = ids.astype(np.int64)
    return (wide[at] * words + wide[at + 1]) * words + wide[at + 2], at


def most_frequent(keys: np.ndarray, size: int) -> np.ndarray:
    keys.sort()
    starts = np.flatnonzero(changes(keys))
    counts = np.diff(starts, append=keys.size)
    order = np.argsort(-counts, kind="stable")[:size]
    return np.sort(keys[starts[order]])


def limited_counts(
    rows: np.ndarray, users: np.ndarray, size: int, limit: int, rng: np.random.Generator
) -> np.ndarray:
    """Users of each gram, each user in at most `limit` of them."""
    pairs = users.astype(np.int64) * size + rows
    pairs.sort()
    pairs = pairs[np.flatnonzero(changes(pairs))]
    holders, rows = np.divmod(pairs, size)
    sizes = np.bincount(holders)
    kept = np.ones(rows.size, bool)
    if sizes.max(initial=0) > limit:
        kept[beyond_limit(holders, sizes, limit, rng)] = False
    return np.bincount(rows[kept], minlength=size)


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    for name in ("input", "public"):
        parser.add_argument(f"--{name}", required=True)
    parser.add_argument("--output", type=pathlib.Path, required=True)
    for name in ("epsilon", "delta"):
        parser.add_argument(f"--{name}", type=float, required=True)
    for name in ("vocabulary_size", "max_contributions"):
        parser.add_argument(f"--{name}", type=int, required=True)
    options, clock, rng = parser.parse_args(arguments), Clock(), np.random.default_rng()
    with clock.phase("read"):
        public, private = read_texts(options.public), read_jsonl(options.input)
    with clock.phase("tokenize"):
        found = [tokenize_words(table) for table in (public, private)]
        tokens = [array for own, _, _ in found for array in own]
        codes, words = encode(pa.chunked_array(tokens, pa.string()))
        cut = int(found[0][1].sum())
        holders = encode(found[1][2])[0]
    with clock.phase("vocabulary"):
        own = lay_out(codes[:cut], found[0][1], np.zeros(len(found[0][1]), np.int64), words)
        keys, _ = trigram_keys(own.ids, len(words))
        vocabulary = most_frequent(keys, options.vocabulary_size)
    with clock.phase("count"):
        corpus = lay_out(codes[cut:], found[1][1], holders, words)
        used = np.zeros(len(words) + 1, bool)
        for divisor in (1, len(words), len(words) ** 2):
            used[vocabulary // divisor % len(words)] = True
        keys, at = trigram_keys(np.where(used[corpus.ids], corpus.ids, -1), len(words))
        rows = np.minimum(np.searchsorted(vocabulary, keys), vocabulary.size - 1)
        hit = vocabulary[rows] == keys
        limit = options.max_contributions
        counts = limited_counts(rows[hit], corpus.users[at[hit]], vocabulary.size, limit, rng)
    with clock.phase("noise"):
        stddev = gaussian_stddev(options.epsilon, options.delta) * math.sqrt(limit)
        noisy = counts + np.rint(stddev * rng.standard_normal(counts.size))
        kept = np.maximum(noisy, 0) / np.maximum(noisy, 0).sum()
    with clock.phase("write"):
        write(vocabulary, kept, words, options.output)
    for name, seconds in clock.seconds.items():
        print(f"{name:>14}: {seconds:7.3f} s")


def write(keys: np.ndarray, found: np.ndarray, words: list[str], output: pathlib.Path) -> None:
    output.mkdir(parents=True, exist_ok=True)
    size = len(words)
    encoder = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"))
    with open(output / "probabilities.jsonl", "w", encoding="utf-8") as file:
        for key, share in zip(keys.tolist(), found.tolist(), strict=True):
            text = " ".join(words[key // size**place % size] for place in (2, 1, 0))
            file.write(encoder.encode({"ngram": text, "probability": share}) + "\n")


if __name__ == "__main__":
    main()
