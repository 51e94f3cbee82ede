"""Public counts from a public text, a file of counts, or a release."""

import itertools
import re
from collections.abc import Iterable

import numpy as np
import pyarrow as pa

from beam_dpne.bayesian.public_counts import PublicCounts, count_text
from beam_dpne.documents import tokenizers
from beam_dpne.elements.rows import split_ngram
from beam_dpne.errors import PublicCountsError
from beam_dpne.reading.files import line_blocks
from beam_dpne.release.places import is_release
from beam_dpne.release.reading import read_release


def read_public_counts(
    path: str,
    *,
    length: int,
    tokenizer: str | tokenizers.Tokenizer = "words",
    vocabulary_size: int | None = None,
) -> PublicCounts:
    """Reads public counts, which must not come from the private data.

    Args:
      path: Local path or one on any Beam file system; files may be compressed, by extension. A text in
        UTF-8 with one document per line, a file with a tab in its first line and lines
        `ngram<TAB>count`, or the directory of a release of `PrivateNgrams`: a count is the number of
        users or, in a release without such numbers, max(score, 0), rounded.
      length: n, number of words in an n-gram; lines of counts may have fewer, and one has as many.
      tokenizer: Tokenizer of the private texts; it splits a public text too. N-grams that its rules
        leave out are not used.
      vocabulary_size: As in `PublicCounts.of`.

    Raises:
      PublicCountsError: A line is malformed; the counts are empty, negative, doubled, or of n-grams of
        another length; or the file is a language model or JSON, which would be read as a text.
      InputError, FileNotFoundError, ReleaseError: The path cannot be read.
    """
    if is_release("public", path):
        return _used(_from_release(path, length), tokenizer, vocabulary_size)
    blocks = line_blocks(path)
    first = next(blocks)
    blocks = itertools.chain([first], blocks)
    beginning = next(filter(None, first), "")
    if "\t" in beginning:
        return _used(_from_counts(blocks, length), tokenizer, vocabulary_size)
    if beginning.startswith(('{"', "[{", "\\data\\")):
        raise PublicCountsError(
            f"public must be a text, one document a line, got JSON or a language model: {path}."
        )
    if tokenizers.tokenizer_name(tokenizer) == "tokens":
        raise PublicCountsError(
            "public must be a file of counts or a release with tokenizer='tokens', got the text "
            f"{path}, whose lines do not say where such tokens end."
        )
    texts = (pa.array(lines, pa.string()) for lines in blocks)
    return count_text(texts, length=length, tokenizer=tokenizer, vocabulary_size=vocabulary_size)


def _used(
    public: PublicCounts, tokenizer: str | tokenizers.Tokenizer, vocabulary_size: int | None
) -> PublicCounts:
    """Returns the most frequent n-grams of those that a tokenizer's rules do not leave out."""
    possible = public.without_left_out(tokenizer)
    return possible if vocabulary_size is None else possible.most_frequent(vocabulary_size)


def _from_release(path: str, length: int) -> PublicCounts:
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
    return PublicCounts.of(grams, whole.tolist())


def _from_counts(blocks: Iterable[list[str]], length: int) -> PublicCounts:
    lines = enumerate(itertools.chain.from_iterable(blocks), start=1)
    pairs = [_parsed(line, number) for number, line in lines if line]
    public = PublicCounts.of(*zip(*pairs, strict=True))
    public.require_length(length)
    return public


def _parsed(line: str, number: int) -> tuple[tuple[str, ...], int]:
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
        raise PublicCountsError(f"public has a malformed line {number}: {error}") from None
    return gram, int(digits)
