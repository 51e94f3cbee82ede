"""A set of very many words through the lengths that follow: memory grows with it, once.

The words are public, so that a few users suffice. The set is above `--side_input_limit`, so it
travels as a file, as it would on an engine.
"""

import json
import pathlib

import numpy as np
import pytest

from tests.benchmarks.measure import run

USERS = 300
WORDS_OF_A_USER = 40
PARTITIONS = 32
# Bytes for each word, some 225 measured: 65 in the launcher's list, 28 in the set and again in the
# file that is mapped, 30 for sorting, the rest for classes and publishing. A copy of the set for each
# of the 32 partitions would take 900 more.
BYTES_OF_A_WORD = 280
# What a run's peak differs by without any cause.
SLACK = 32 * 2**20
PROGRAM = ("-c", "import sys; from beam_dpne.cli.main import main; sys.exit(main(sys.argv[1:]))")


def word(number: int) -> str:
    return f"w{number:07d}"


def write_words(path: pathlib.Path, count: int) -> pathlib.Path:
    with open(path, "w", encoding="utf-8") as file:
        file.writelines(f"{word(number)}\n" for number in range(count))
    return path


def write_users(path: pathlib.Path, count: int) -> pathlib.Path:
    """Users who all say the first, the middle and the last word, and words of their own."""
    draws = np.random.default_rng(1)
    shared = " ".join(map(word, (0, count // 2, count - 1)))
    with open(path, "w", encoding="utf-8") as file:
        for user in range(USERS):
            own = " ".join(map(word, draws.integers(0, count, WORDS_OF_A_USER).tolist()))
            text = f"{shared} {own}"
            file.write(json.dumps({"user": f"u{user}", "text": text}) + "\n")
    return path


@pytest.mark.parametrize("workers", ["0", "1"])
@pytest.mark.parametrize("words", [100_000, pytest.param(10_000_000, marks=pytest.mark.slow)])
def test_a_large_set_of_words_is_in_memory_a_bounded_number_of_times(words, workers, tmp_path):
    users = write_users(tmp_path / "users.jsonl", words)
    common = [*PROGRAM, "ngrams", "--input", str(users), "--workers", workers]
    common += ["--epsilon", "8", "--delta", "1e-6", "--max_length", "3"]
    common += ["--partitions", str(PARTITIONS), "--side_input_limit", "100000"]
    common += ["--vocabulary_policy", "public", "--vocabulary"]
    few = run([*common, str(write_words(tmp_path / "few.txt", 1_000))])
    output = tmp_path / "release"
    many = run([*common, str(write_words(tmp_path / "many.txt", words))], output=output)
    shared = [word(number) for number in (0, words // 2, words - 1)]
    assert {" ".join(shared[:2]), " ".join(shared[1:]), " ".join(shared)} <= released(output)
    assert many.peak - few.peak < BYTES_OF_A_WORD * words + SLACK


def released(output: pathlib.Path) -> set[str]:
    files = output.parent.glob(f"{output.name}/**/*.jsonl")
    return {json.loads(line)["ngram"] for file in files for line in file.open(encoding="utf-8")}
