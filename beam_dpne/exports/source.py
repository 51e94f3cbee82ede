"""The release that an export is made from: its ledger, the hash of the ledger, and all rows."""

import functools
import unicodedata
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from beam_dpne.elements.rows import split_ngram
from beam_dpne.errors import ExportError
from beam_dpne.release.reading import Contents

Floats = npt.NDArray[np.float64]

# Estimated numbers of users have one unit at all lengths; releases without them have scores.
_WEIGHTS = ("users", "score", "probability")


def is_unbroken(word: str) -> bool:
    r"""Returns whether a word has no white space and no control character of Unicode.

    >>> is_unbroken("naïve"), is_unbroken("New York"), is_unbroken("a\x00")
    (True, False, False)
    """
    return not any(sign.isspace() or unicodedata.category(sign) == "Cc" for sign in word)


class Source(Contents):
    """A release from which exports are made."""

    @property
    def title(self) -> str:
        """Title that the operator gave the release, or else a name of its program."""
        return self.ledger.get("notes", {}).get("title") or f"A private release of {self.noun}"

    @functools.cached_property
    def texts(self) -> list[str]:
        """The n-gram of each row as `join_tokens` writes it, or its item as it is."""
        return self.rows.column(self.text_column).to_pylist()

    @functools.cached_property
    def tokens(self) -> list[tuple[str, ...]]:
        """The words of each row; an item is one word.

        Raises:
          ExportError: An n-gram is not written as `join_tokens` writes it.
        """
        if self.program == "set-union":
            return [(item,) for item in self.texts]
        try:
            return [split_ngram(text) for text in self.texts]
        except ValueError:
            raise ExportError(
                "The release is damaged: an n-gram has an escape that beam_dpne does not write."
            ) from None

    @functools.cached_property
    def lengths(self) -> npt.NDArray[np.int64]:
        """Number of words of each row, (rows,) int64."""
        return np.fromiter(map(len, self.tokens), np.int64, count=len(self.tokens))

    @property
    def weight_name(self) -> str:
        """Name of the column by which the rows of one length can be compared."""
        return next(name for name in _WEIGHTS if name in self.rows.column_names)

    @functools.cached_property
    def weights(self) -> Floats:
        """A number > 0 for each row, (rows,) float64: users if the release estimates them, else scores.

        An estimate of at most 0 counts as the smallest number > 0 of the release, or as 1.
        """
        column = self.rows.column(self.weight_name).to_pylist()
        values = np.array([0.0 if value is None else value for value in column], np.float64)
        positive = values[values > 0]
        return np.maximum(values, positive.min() if positive.size else 1.0)


class Rendered(NamedTuple):
    """An export.

    Attributes:
      data: The whole file.
      source: The release.
      left_out: Number of rows that the format cannot hold, by the reason.
    """

    data: bytes
    source: Source
    left_out: Mapping[str, int] = {}
