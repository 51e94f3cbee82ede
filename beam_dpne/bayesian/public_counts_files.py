"""Reading public counts from a text, from a file of counts, or from the directory of a release."""

import itertools
import os
import re
from collections.abc import Iterable, Iterator

import numpy as np
import pyarrow as pa

from beam_dpne.bayesian.public_counts import PublicCounts, count_text
from beam_dpne.documents.tokenizers import Tokenizer
from beam_dpne.elements.rows import split_ngram
from beam_dpne.errors import InputError, PublicCountsError
from beam_dpne.reading.files import TextFile, guarded, size_of
from beam_dpne.release.reading import LEDGER_NAME, has_ledger, is_local, read_release

_BLOCK_SIZE = 16 * 2**20


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
        another length; or the file is a language model or JSON, which would be read as a text.
      InputError, FileNotFoundError, ReleaseError: The path cannot be read.
    """
    if path.endswith(LEDGER_NAME) or (
        has_ledger(path) if not is_local(path) else os.path.isdir(path)
    ):
        return _from_release(path, length, vocabulary_size)
    if is_local(path) and not os.path.isfile(path):
        raise FileNotFoundError(f"public must name an existing file or directory, got {path}.")
    blocks = _blocks(path)
    first = next(blocks)
    blocks = itertools.chain([first], blocks)
    beginning = next(filter(None, first), "")
    if "\t" in beginning:
        return _from_counts(blocks, length, vocabulary_size)
    if beginning.startswith(('{"', "[{", "\\data\\")):
        raise PublicCountsError(
            f"public must be a text, one document a line, got JSON or a language model: {path}."
        )
    if tokenizer == "tokens":
        raise PublicCountsError(
            "public must be a file of counts or a release with tokenizer='tokens', got the text "
            f"{path}, whose lines do not say where such tokens end."
        )
    texts = (pa.array(lines, pa.string()) for lines in blocks)
    return count_text(texts, length=length, tokenizer=tokenizer, vocabulary_size=vocabulary_size)


def _blocks(path: str) -> Iterator[list[str]]:
    """Yields the lines of successive blocks of a file, at least one block."""
    rest = ""
    with guarded(path), TextFile(path) as text:
        while data := text.read(_BLOCK_SIZE):
            if size_of(data)[1]:
                raise InputError(f"{path} is not UTF-8; convert it.")
            whole, _, rest = (rest + data).rpartition("\n")
            yield [line.removesuffix("\r") for line in whole.split("\n")]
        yield [rest]


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
    blocks: Iterable[list[str]], length: int, vocabulary_size: int | None
) -> PublicCounts:
    lines = enumerate(itertools.chain.from_iterable(blocks), start=1)
    pairs = [_counted(line, number, length) for number, line in lines if line]
    return PublicCounts.of(*zip(*pairs, strict=True), vocabulary_size=vocabulary_size)


def _counted(line: str, number: int, length: int) -> tuple[tuple[str, ...], int]:
    """Returns one line's n-gram and count; errors have the line's number and not its text."""
    text, _, digits = line.partition("\t")
    if not re.fullmatch("[0-9]+", digits):
        raise PublicCountsError(
            "public must have lines `ngram<TAB>count`, with a whole number >= 0 as count; line "
            f"{number} is none. (A text must not have a tab in its first line.)"
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
    return gram, int(digits)
