"""A set of very many released bigrams through length 3 and counts: what a run holds of each.

The words are public and drawn evenly, so that hardly any bigram is in two texts. Each text is that of
three users, who find most of its bigrams and trigrams with a large budget.
"""

import json
import pathlib

import numpy as np
import pytest

from tests.benchmarks.measure import run
from tests.ngrams.test_large_vocabulary import PROGRAM, write_words

WORDS = 100_000
WORDS_OF_A_TEXT = 11
USERS_OF_A_TEXT = 3
# Bytes for each of a text's ten bigrams, some 660 measured with 10^7 of them: mostly the positions and
# sums of the three users, in the rounds of length 2. A table of all rows would take some 400 more.
BYTES_OF_A_BIGRAM = 750
# What does not grow with the bigrams: blocks of rows, and the Python objects of one part of the
# release. It also covers the difference between the peaks of two equal runs.
SLACK = 128 * 2**20


def write_users(path: pathlib.Path, texts: int) -> pathlib.Path:
    draws = np.random.default_rng(1)
    with open(path, "w", encoding="utf-8") as file:
        for text in range(texts):
            numbers = draws.integers(0, WORDS, WORDS_OF_A_TEXT).tolist()
            words = " ".join(f"w{number:07d}" for number in numbers)
            for user in range(USERS_OF_A_TEXT):
                file.write(json.dumps({"user": f"{text}-{user}", "text": words}) + "\n")
    return path


@pytest.mark.parametrize("texts", [20_000, pytest.param(1_430_000, marks=pytest.mark.slow)])
def test_many_released_bigrams_take_bounded_memory_through_length_3_and_counts(texts, tmp_path):
    common = [*PROGRAM, "ngrams", "--max_length", "3", "--epsilon", "29", "--delta", "0.1"]
    common += ["--spurious_fraction", "0.5", "--vocabulary_policy", "public", "--vocabulary"]
    common += [str(write_words(tmp_path / "words.txt", WORDS)), "--input"]
    few = run([*common, str(write_users(tmp_path / "few.jsonl", 100))])
    output = tmp_path / "release"
    many = run([*common, str(write_users(tmp_path / "many.jsonl", texts))], output=output)
    ledger = json.loads((output / "ledger.json").read_text())
    bigrams = (WORDS_OF_A_TEXT - 1) * texts
    released = [length["released"] for length in ledger["lengths"]]
    assert min(released[1:]) > 0.6 * bigrams
    assert "users" in ledger["columns"]
    assert many.peak - few.peak < BYTES_OF_A_BIGRAM * bigrams + SLACK
