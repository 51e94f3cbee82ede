"""Public counts: their order, where their n-grams are in a text, and what is no such file."""

import collections
import gzip
import itertools
import random

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from beam_dpne.documents.tokenizers import words
from beam_dpne.elements.coders import BatchCoder
from beam_dpne.errors import InputError, PublicCountsError, ReleaseError
from beam_dpne.lists.public_counts import PublicCounts, count_text, read_public_counts
from tests.support.arguments import not_refused

ODD = ["", " ", "a b", "\t", "\\", "é", "🙂", "a", "b"]


def as_rows(public: PublicCounts) -> list[tuple[str, int]]:
    return list(zip(public.texts().to_pylist(), public.counts.tolist(), strict=True))


def test_the_most_frequent_come_first_and_ties_by_bytes():
    public = PublicCounts.of([("é",), ("b",), ("a",), ("z",)], [2, 2, 2, 9])
    assert as_rows(public) == [("z", 9), ("a", 2), ("b", 2), ("é", 2)]
    assert public.words.to_pylist() == ["a", "b", "z", "é"]
    assert public.grams.tolist() == [[2], [0], [1], [3]]
    assert public.grams.dtype == np.int32
    assert public.counts.dtype == np.int64


@given(st.integers(0, 2**32), st.integers(1, 5), st.integers(1, 30))
@settings(max_examples=60)
def test_any_order_of_the_same_counts_gives_the_same_object(seed, length, size):
    rng = random.Random(seed)
    grams = {tuple(rng.choices(ODD, k=length)) for _ in range(20)}
    counts = {gram: rng.randrange(1, 4) for gram in grams}
    one = PublicCounts.of(counts.keys(), counts.values(), vocabulary_size=size)
    shuffled = rng.sample(sorted(counts), len(counts))
    other = PublicCounts.of(shuffled, [counts[gram] for gram in shuffled]).most_frequent(size)
    assert as_rows(one) == as_rows(other)
    assert one.fingerprint() == other.fingerprint()
    assert one.words.equals(other.words)


def test_fingerprints_tell_grams_and_counts_apart():
    given_counts = [
        ([("a", "b")], [1]),
        ([("a", "b")], [2]),
        ([("a b", "c")], [1]),
        ([("a", "b c")], [1]),
        ([("b", "a")], [1]),
    ]
    prints = {PublicCounts.of(grams, counts).fingerprint() for grams, counts in given_counts}
    assert len(prints) == len(given_counts)


def test_the_coder_keeps_everything():
    public = PublicCounts.of([("a", "b"), ("é", "")], [3, 2**53])
    decoded = BatchCoder(PublicCounts).decode(BatchCoder(PublicCounts).encode(public))
    assert as_rows(decoded) == as_rows(public)
    assert decoded.fingerprint() == public.fingerprint()


@given(st.integers(0, 2**32), st.integers(1, 5))
@settings(max_examples=60)
def test_rows_are_those_of_a_dictionary(seed, length):
    rng = random.Random(seed)
    every = [g for size in range(1, length + 1) for g in itertools.product("abc", repeat=size)]
    chosen = [rng.choice(every), *rng.sample(every, min(len(every), 9))]
    chosen = list(dict.fromkeys([*chosen, "abcab"[:length]]))
    chosen = list(dict.fromkeys(map(tuple, chosen)))
    public = PublicCounts.of(chosen, [rng.randrange(5) + 1 for _ in chosen])
    row = {text: place for place, text in enumerate(public.texts().to_pylist())}
    known = public.words.to_pylist()
    text = [rng.choice([*"abc", None, None]) for _ in range(rng.randrange(60))]
    ids = np.array([known.index(w) if w in known else -1 for w in text], np.int32)
    expected = set()
    for start, size in itertools.product(range(len(text)), range(1, length + 1)):
        gram = text[start : start + size]
        if None not in gram and len(gram) == size and " ".join(gram) in row:
            expected.add((start, row[" ".join(gram)]))
    found = list(zip(*(part.tolist() for part in public.find(ids)), strict=True))
    assert len(found) == len(expected)
    assert set(found) == expected


def test_rows_of_many_grams_are_found():
    rng = np.random.default_rng(1)
    names = [f"w{i}" for i in range(70)]
    codes = np.unique(rng.integers(0, 70, size=(4000, 3)), axis=0)
    public = PublicCounts.of(([names[c] for c in row] for row in codes.tolist()), [1] * len(codes))
    row = {tuple(gram): place for place, gram in enumerate(public.grams.tolist())}
    ids = rng.integers(-1, 70, size=20_000).astype(np.int32)
    windows = zip(ids.tolist(), ids[1:].tolist(), ids[2:].tolist(), strict=False)
    expected = [row.get(window, -1) for window in windows] + [-1, -1]
    starts, rows = public.find(ids)
    assert dict(zip(starts.tolist(), rows.tolist(), strict=True)) == {
        start: place for start, place in enumerate(expected) if place >= 0
    }
    assert len(row) > max(expected) > 0


@given(st.integers(0, 2**32), st.integers(1, 4), st.integers(1, 40))
@settings(max_examples=30)
def test_counting_a_text_is_counting_with_a_dictionary(seed, length, size):
    rng = random.Random(seed)
    texts = [" ".join(rng.choices("aB😀é'", k=rng.randrange(9))) for _ in range(30)]
    counted = collections.Counter()
    for tokens in words(pa.array(texts)).to_pylist():
        counted.update(zip(*(tokens[i:] for i in range(length)), strict=False))
    blocks = [pa.array(texts[i : i + 7], pa.string()) for i in range(0, 30, 7)]
    if not counted:
        with pytest.raises(PublicCountsError):
            count_text(blocks, length=length)
        return
    expected = sorted(counted, key=lambda g: (-counted[g], " ".join(g).encode()))[:size]
    public = count_text(blocks, length=length, vocabulary_size=size)
    assert as_rows(public) == [(" ".join(g), counted[g]) for g in expected]


BAD = [
    ([], [], "1 to 5 words each"),
    ([tuple("abcdef")], [1], "1 to 5 words each"),
    ([()], [1], "1 to 5 words each"),
    ([("a",)], [-1], "from 0 to 2\\^53"),
    ([("a",)], [2**53 + 1], "from 0 to 2\\^53"),
    ([("a",)], [1.5], "whole numbers"),
    ([("a",)], [True], "whole numbers"),
    ([("a",), ("b",)], [0, 0], "must not all be 0"),
    ([(str(i),) for i in range(600)], [2**53] * 600, "sum to at most 2\\^62"),
    ([("a",), ("b",), ("a",)], [1, 2, 3], "distinct, got 1 repeated"),
    ([("a",), ("b",)], [1], "as many as n-grams, got 1 for 2"),
    ([(3,)], [1], "words that are text"),
]


def test_bad_counts_are_refused():
    cases = [({"ngrams": grams, "counts": counts}, message) for grams, counts, message in BAD]
    assert not_refused(PublicCounts.of, cases, PublicCountsError) == []


# Files


@pytest.fixture
def file(tmp_path):
    def write(content: bytes, name="public.txt") -> str:
        path = tmp_path / name
        path.write_bytes(gzip.compress(content) if name.endswith(".gz") else content)
        return str(path)

    return write


@pytest.mark.parametrize("name", ["public.txt", "public.txt.gz"])
def test_a_text_is_counted_line_by_line(file, name):
    content = "\ufeffTo be or\r\nnot to be\n\nto be".encode()
    public = read_public_counts(file(content, name), length=2)
    assert as_rows(public) == [("to be", 3), ("be or", 1), ("not to", 1)]


def test_a_text_is_split_by_the_tokenizer_that_is_named(file):
    public = read_public_counts(file(b"To-be x\n"), length=1, tokenizer="whitespace")
    assert as_rows(public) == [("To-be", 1), ("x", 1)]


def test_lines_across_blocks_are_whole(file, monkeypatch):
    monkeypatch.setattr("beam_dpne.reading.files._BLOCK_SIZE", 5)
    public = read_public_counts(file("naïve naïve\nb b\nno newline".encode()), length=2)
    assert as_rows(public) == [("b b", 1), ("naïve naïve", 1), ("no newline", 1)]


def test_a_file_of_counts_may_have_several_lengths(file):
    content = b"tea\t7\ngreen tea\t9\n\nmilk\t0\ncup of tea\t3\n"
    path = file(content, "counts.tsv")
    public = read_public_counts(path, length=3)
    assert as_rows(public) == [("green tea", 9), ("tea", 7), ("cup of tea", 3), ("milk", 0)]
    assert as_rows(read_public_counts(path, length=3, vocabulary_size=2)) == as_rows(public)[:2]
    decoded = BatchCoder(PublicCounts).decode(BatchCoder(PublicCounts).encode(public))
    assert decoded.fingerprint() == public.fingerprint()


BAD_FILES = [
    (b"", "at least 2 words, got none"),
    (b"one\nword\n", "at least 2 words, got none"),
    (b"a b\t1\nc d\t-2\n", "whole number >= 0 as count, got .*, whose line 2 is none"),
    (b"a b\t1\nc d e\t2\n", "longest n-gram of public, 3, got `length=2`"),
    (b"a b\t1\na b\t2\n", "distinct, got 1 repeated"),
    (b"a b\t1.0\n", "line 1 is none"),
    (b"a b\t1\t2\n", "line 1 is none"),
    (b"a \\q\t1\n", "malformed line 1"),
    (b"a b\t" + b"9" * 30 + b"\n", "from 0 to 2"),
    (b"a b\t0\n", "must not all be 0"),
    ("a b\t\u0663\n".encode(), "line 1 is none"),
]


def test_a_malformed_file_is_refused_by_its_line(file):
    for content, message in BAD_FILES:
        with pytest.raises((InputError, PublicCountsError), match=message):
            read_public_counts(file(content), length=2)


def test_files_that_cannot_be_read_are_refused(file, tmp_path):
    damaged = tmp_path / "damaged.gz"
    damaged.write_bytes(b"no gzip")
    with pytest.raises(InputError, match="cannot be read"):
        read_public_counts(str(damaged), length=1)
    with pytest.raises(FileNotFoundError, match="existing file or directory"):
        read_public_counts(str(tmp_path / "none"), length=1)
    with pytest.raises(ReleaseError, match="no release"):
        read_public_counts(str(tmp_path), length=1)
