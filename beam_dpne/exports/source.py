"""The release from which an export is made, as formats of words and numbers need it."""

import dataclasses
import functools
import unicodedata

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from beam_dpne.elements.rows import split_ngram
from beam_dpne.errors import ExportError
from beam_dpne.release.reading import Release


@dataclasses.dataclass(frozen=True, eq=False)
class Source(Release):
    """A release from which exports are made.

    Attributes:
      group: The group to which its rows belong, or None for all rows.
    """

    group: str | None = None

    @functools.cached_property
    def rows(self) -> pa.Table:
        """The rows, of one group if it is named."""
        rows = self.table()
        return rows if self.group is None else rows.filter(pc.field("group") == self.group)

    @property
    def title(self) -> str:
        """Title that the operator gave the release, or else a name of its program."""
        return self.ledger.get("notes", {}).get("title") or f"A private release of {self.noun}"

    def of_group(self, group: str | None) -> "Source":
        """Returns the rows of one group; None stands for a release without groups.

        Raises:
          ExportError: The release has groups and none of them is named, or it has none.
        """
        if group is None and not self.has_groups:
            return self
        if group is not None and self.has_groups:
            chosen = dataclasses.replace(self, group=group)
            if len(chosen.rows):
                return chosen
        raise ExportError(
            "group must name a group of a release with groups, and be left out for others, got "
            f"group={group}."
        )

    @functools.cached_property
    def texts(self) -> list[str]:
        """The n-gram of each row as `join_tokens` writes it, or its item as it is."""
        return self.rows.column(self.text_column).to_pylist()

    @functools.cached_property
    def tokens(self) -> list[tuple[str, ...]]:
        """The words of each row; an item is one word."""
        if self.program == "set-union":
            return [(item,) for item in self.texts]
        return [split_ngram(text) for text in self.texts]

    @functools.cached_property
    def lengths(self) -> npt.NDArray[np.int64]:
        """Number of words of each row, (rows,) int64."""
        return np.fromiter(map(len, self.tokens), np.int64, count=len(self.tokens))

    @functools.cached_property
    def weights(self) -> npt.NDArray[np.float64]:
        """A number > 0 for each row, (rows,) float64: users if the release estimates them, else scores.

        An estimate of at most 0 counts as the smallest number > 0 of the release, or as 1.
        """
        values = self.rows.column(self.value_column).to_numpy().astype(np.float64)
        positive = values[values > 0]
        return np.maximum(values, positive.min() if positive.size else 1.0)


def is_unbroken(word: str) -> bool:
    r"""Returns whether a word has no white space and no control character of Unicode.

    >>> is_unbroken("naïve"), is_unbroken("New York"), is_unbroken("a\x00")
    (True, False, False)
    """
    return not any(sign.isspace() or unicodedata.category(sign) == "Cc" for sign in word)
