"""A public vocabulary as the first length: words that are given, and cost nothing."""

import hashlib
from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from beam_dpne.ngrams.elements import GramSet


def public_vocabulary(words: Sequence[str]) -> GramSet:
    """Returns a public vocabulary as S_1: distinct words, sorted by bytes; none is released.

    Raises:
      ValueError: if there are none.
    """
    distinct = sorted({word.encode() for word in words})
    if not distinct:
        raise ValueError("vocabulary must have at least one word, got none.")
    return GramSet(
        length=1,
        keys=np.arange(len(distinct)),
        scores=np.ones(len(distinct)),
        words=pa.array(distinct, pa.binary()).cast(pa.string()),
        parent_size=1,
        vocabulary_size=len(distinct),
        given=True,
    )


def vocabulary_digest(words: Sequence[str]) -> str:
    """Returns the SHA-256 of a public vocabulary, whatever its order; hexadecimal."""
    lengths_and_words = (
        len(word).to_bytes(8, "little") + word for word in sorted({word.encode() for word in words})
    )
    return hashlib.sha256(b"".join(lengths_and_words)).hexdigest()
