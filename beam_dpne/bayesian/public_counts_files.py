"""Reading public counts from a text, from a file of counts, or from the directory of a release."""

import os
import re
from collections.abc import Iterator

import numpy as np
import pyarrow as pa
from apache_beam.io.filesystems import FileSystems

from beam_dpne.bayesian import arpa
from beam_dpne.bayesian.public_counts import PublicCounts
from beam_dpne.bayesian.text_counts import count_text
from beam_dpne.documents.tokenizers import Tokenizer
from beam_dpne.elements.rows import split_ngram
from beam_dpne.errors import InputError, PublicCountsError
from beam_dpne.reading.files import TextFile, guarded, size_of
from beam_dpne.release.parts import PART_NAME
from beam_dpne.release.reading import (
    LEDGER_NAME,
    is_local,
    ledger_path,
    read_release,
    real_path,
)

_BLOCK_SIZE = 16 * 2**20
_COMPARED_AT_ONCE = 2**20
_BLANKS = "\r\n\t "


def read_public_counts(
    path: str,
    *,
    length: int,
    tokenizer: str | Tokenizer = "words",
    vocabulary_size: int | None = None,
) -> PublicCounts:
    """Reads public counts, which must not come from the private data.

    Args:
      path: Local path or one on any Beam file system; files may be compressed, by extension. One of
        - a text in UTF-8 with one document per line;
        - a file of counts, whose first line that is not empty has a tab: lines `ngram<TAB>count`,
          with n-grams as `join_tokens` writes them;
        - the directory of a release of `PrivateNgrams`: a count is the number of users or, in a
          release without such numbers, max(score, 0), rounded to the nearest whole number.
      length: n, number of words in an n-gram.
      tokenizer: Tokenizer of the private texts; it splits a public text too.
      vocabulary_size: Number of n-grams that are kept, the most frequent ones, ties by the bytes of
        their text; None keeps all.

    Raises:
      PublicCountsError: A line is malformed; the counts are empty, negative, doubled, or of n-grams of
        another length; or the file is part of a release, a language model, or JSON, which would be
        read as a text.
      InputError, FileNotFoundError, ReleaseError: The path cannot be read.
    """
    if _is_release(path):
        return _from_release(path, length, vocabulary_size)
    if is_local(path) and not os.path.isfile(path):
        raise FileNotFoundError(f"public must name an existing file or directory, got {path}.")
    with guarded(path):
        stream = TextFile(path)
    with stream:
        with guarded(path):
            beginning = _beginning(stream)
        has_counts = _has_counts(beginning)
        _refuse_other_files(path, beginning, has_counts)
        lines = _lines(stream, path)
        if has_counts:
            return _from_counts(lines, length, vocabulary_size)
        _check_tokenizer(tokenizer, path)
        blocks = (pa.array(block, pa.string()) for block in lines)
        return count_text(
            blocks, length=length, tokenizer=tokenizer, vocabulary_size=vocabulary_size
        )


def read_shorter_counts(
    path: str, *, length: int, tokenizer: str | Tokenizer = "words"
) -> tuple[list[PublicCounts], bool]:
    """Reads the public counts of all n-grams that are shorter than `length`, as far as there are some.

    Args:
      path: what `read_public_counts` takes.
      length: n.
      tokenizer: Tokenizer of the private texts.

    Returns:
      The counts of each length from 1 to n − 1 (a text has all of them, a release some, and a file of
      counts none), and whether it was a text.

    Raises:
      PublicCountsError, InputError, FileNotFoundError, ReleaseError: As `read_public_counts` does.
    """
    sizes = range(1, length)
    if _is_release(path):
        present = set(read_release(path).table()["length"].to_pylist())
        return [_from_release(path, size, None) for size in sizes if size in present], False
    with guarded(path):
        stream = TextFile(path)
    with stream, guarded(path):
        if _has_counts(_beginning(stream)):
            return [], False
    return [read_public_counts(path, length=size, tokenizer=tokenizer) for size in sizes], True


def same_file(public: str, private: str) -> bool:
    """Returns whether two paths lead to one file, or to files with the same text, compressed or not.

    The files are read up to their first difference; blank lines at their ends do not count.
    """
    if _is_release(public):
        return False
    if is_local(public) and not os.path.isfile(public):
        return False
    if real_path(public) == real_path(private):
        return True
    with guarded(public):
        first = TextFile(public)
    with first:
        with guarded(private):
            second = TextFile(private)
        with second, guarded(private):
            return _same_text(first, second)


def _same_text(first: TextFile, second: TextFile) -> bool:
    # What has been read of each file and are not compared yet.
    one = other = ""
    while True:
        one = one or first.read(_COMPARED_AT_ONCE)
        other = other or second.read(_COMPARED_AT_ONCE)
        size = min(len(one), len(other))
        if size == 0:
            return not (one + other).strip(_BLANKS)
        if one[:size] != other[:size]:
            return False
        one, other = one[size:], other[size:]


def _beginning(stream: TextFile) -> str:
    return stream.head.lstrip("\r\n")


def _has_counts(beginning: str) -> bool:
    return "\t" in beginning.split("\n", 1)[0]


def _refuse_other_files(path: str, beginning: str, has_counts: bool) -> None:
    """Raises PublicCountsError if a file has another format that would be misread as a text."""
    name = path.rpartition("/")[2]
    if PART_NAME.fullmatch(name):
        raise PublicCountsError(
            f"public must name the directory of a release instead of one of its files, got {path}."
        )
    if beginning.startswith(arpa.FIRST_LINE):
        raise PublicCountsError(f"public must not be a language model, got {path}.")
    if beginning.startswith(('{"', "[{")):
        raise PublicCountsError(
            f"public must be a text without records, one document a line, got JSON: {path}."
        )
    lines = beginning.split("\n")
    counted = sum(re.search(r"\t[0-9]+$", line) is not None for line in lines)
    if not has_counts and 2 * counted > len(lines):
        raise PublicCountsError(
            "public must have lines `ngram<TAB>count` from the first one on, without a heading, got "
            f"{path}."
        )


def _is_release(path: str) -> bool:
    if path.endswith(LEDGER_NAME):
        return True
    return os.path.isdir(path) if is_local(path) else FileSystems.exists(ledger_path(path))


def _from_release(path: str, length: int, vocabulary_size: int | None) -> PublicCounts:
    rows = read_release(path).table()
    if "length" not in rows.schema.names:
        raise PublicCountsError(
            f"public must be a release of `beam-dpne ngrams`, got {path}, which is of another program."
        )
    chosen = rows.filter(pa.array(rows["length"].to_numpy() == length))
    if len(chosen) == 0:
        raise PublicCountsError(
            f"public must have n-grams of length={length}, got the release {path}, which has none."
        )
    counts = chosen["users" if "users" in rows.schema.names else "score"].to_numpy()
    whole = np.rint(np.maximum(counts, 0.0)).astype(np.int64)
    grams = [split_ngram(text) for text in chosen["ngram"].to_pylist()]
    return PublicCounts.of(grams, whole.tolist(), vocabulary_size=vocabulary_size)


def _from_counts(
    blocks: Iterator[list[str]], length: int, vocabulary_size: int | None
) -> PublicCounts:
    grams: list[tuple[str, ...]] = []
    counts: list[int] = []
    number = 0
    for block in blocks:
        for line in block:
            number += 1
            if line:
                gram, count = _counted(line, number, length)
                grams.append(gram)
                counts.append(count)
    return PublicCounts.of(grams, counts, vocabulary_size=vocabulary_size)


def _counted(line: str, number: int, length: int) -> tuple[tuple[str, ...], int]:
    """Returns one line's n-gram and count; errors have the line's number and not its text."""
    text, tab, digits = line.partition("\t")
    is_negative = digits.startswith("-") and digits[1:].isdecimal()
    if not tab or not digits.isascii() or not (digits.isdecimal() or is_negative):
        raise PublicCountsError(
            f"public must have lines `ngram<TAB>count`, with a whole number as count; line {number} is "
            "none. (A text must not have a tab in its first line.)"
        )
    if is_negative:
        raise PublicCountsError(
            f"public counts must be at least 0; the count in line {number} is negative."
        )
    try:
        gram = split_ngram(text)
    except ValueError as error:
        raise PublicCountsError(
            f"public has a malformed n-gram in line {number}: {error}"
        ) from None
    if len(gram) != length:
        raise PublicCountsError(
            f"public must have n-grams of length={length}; line {number} has {len(gram)} words."
        )
    return gram, int(digits.lstrip("0")[:20] or "0")


def _lines(stream: TextFile, path: str) -> Iterator[list[str]]:
    """Yields the lines of successive blocks of a file."""
    rest = ""
    while data := _read(stream, path):
        whole, newline, rest = (rest + data).rpartition("\n")
        if newline:
            yield _split(whole)
    if rest:
        yield _split(rest)


def _read(stream: TextFile, path: str) -> str:
    with guarded(path):
        data = stream.read(_BLOCK_SIZE)
    if size_of(data)[1]:
        raise InputError(f"{path} is not UTF-8; convert it.")
    return data


def _split(text: str) -> list[str]:
    return [line.removesuffix("\r") for line in text.split("\n")]


def _check_tokenizer(tokenizer: str | Tokenizer, path: str) -> None:
    if tokenizer == "tokens":
        raise PublicCountsError(
            "public must be a file of counts or a release with tokenizer='tokens', got the text "
            f"{path}, whose lines do not say where such tokens end."
        )
