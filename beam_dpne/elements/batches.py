"""Users' documents as batches of arrays, and sums over batches.

Programs define the elements of their later steps beside those steps (`ngrams.elements`,
`set_union.elements`, `bayesian.grams`). All of them have the coder of `elements.coders`.
"""

import dataclasses
import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence, Sized
from typing import Any, Generic, TypeVar

import numpy as np
import pyarrow as pa

from beam_dpne.elements.arrays import (
    offsets_of,
    ranges,
    run_ends,
    run_starts,
    used_words,
)
from beam_dpne.elements.dictionaries import merge_words
from beam_dpne.elements.sums import add_at, sums_of_runs

NO_GRAM = -1
MAX_WAITING = 4_000_000
# Rows whose sums travel in one element, 2 MB.
_ROWS_OF_A_PIECE = 2**17
_Part = TypeVar("_Part")


@dataclasses.dataclass(frozen=True, eq=False, kw_only=True)
class DocumentBlock:
    """Tokenized documents, or the distinct items of each user as one document.

    Attributes:
      users: (d, 2) uint64, the 128-bit keyed hash of each document's user.
      offsets: (d + 1,) int64, where each document's tokens begin in `codes`.
      codes: (t,) int32, tokens as indices into `words`.
      words: the block's distinct tokens, Arrow strings.
      word_hashes: (words, 2) uint64, the keyed hash of each item; (0, 2) of documents.
      texts: (2,) uint64, in a series the digest of the documents of the same partition that were cut
        with this block, which one of their blocks has; the digests of all blocks add up. Else 0.
    """

    users: np.ndarray
    offsets: np.ndarray
    codes: np.ndarray
    words: pa.Array
    word_hashes: np.ndarray = dataclasses.field(default_factory=lambda: np.zeros((0, 2), np.uint64))
    texts: np.ndarray = dataclasses.field(default_factory=lambda: np.zeros(2, np.uint64))

    def take(self, documents: np.ndarray, lengths: np.ndarray | None = None) -> "DocumentBlock":
        """Selects documents, or their first tokens if lengths are given, and the words in them."""
        starts = self.offsets[:-1][documents]
        if lengths is None:
            lengths = self.offsets[1:][documents] - starts
        kept, codes = used_words(len(self.words), self.codes[ranges(starts, lengths)])
        return DocumentBlock(
            users=self.users[documents],
            offsets=offsets_of(lengths),
            codes=codes,
            words=self.words.take(pa.array(kept)),
            word_hashes=self.word_hashes[kept] if len(self.word_hashes) else self.word_hashes,
        )

    @classmethod
    def joined(cls, blocks: Iterable["DocumentBlock"]) -> "DocumentBlock":
        """Concatenates blocks, of which there is at least one, over one dictionary of words."""
        blocks = list(blocks)
        if len(blocks) == 1:
            return blocks[0]
        merged = merge_words(block.words for block in blocks)
        hashes = [block.word_hashes for block in blocks]
        has_hashes = any(map(len, hashes))
        return cls(
            users=np.concatenate([block.users for block in blocks]),
            offsets=offsets_of(np.concatenate([np.diff(block.offsets) for block in blocks])),
            codes=np.concatenate(merged.codes([block.codes for block in blocks])),
            words=merged.words,
            word_hashes=merged.hashes(hashes) if has_hashes else hashes[0],
        )


@dataclasses.dataclass(frozen=True, eq=False, kw_only=True)
class UserBatch:
    """Many users' positions (CSR), each with the released n-gram that starts there.

    Attributes:
      length: the length of the n-grams that the ids stand for; at 0 the ids are indices into `words`.
      round: 0 where ids are ranks in S_length; r ≥ 1 where they are rows of the set of n-grams that
        are open or found after round r of that length (`PresentGrams`).
      size: the number of such n-grams: ids are in range(size).
      users: (n, 2) uint64, 128-bit keyed hashes; a user is in one batch only.
      offsets: (n + 1,) int64, where each user's positions begin.
      ids: (p,) int32, the id of the n-gram that starts here, −1 where there is none; each document
        ends with a −1, so that no n-gram crosses a border.
      word_ids: (p,) int32, the id in S_1 of the word here (pruning "single" only, length ≥ 1).
      vocabulary_size: |S_1| (length ≥ 1).
      words: the batch's distinct words (length 0 only).
      word_hashes: (words, 2) uint64, their keyed hashes (length 0 only, before the first round).
      left: (n,) int64, each user's remaining budget in units of 2^-56; None before the first round.
    """

    length: int
    size: int
    users: np.ndarray
    offsets: np.ndarray
    ids: np.ndarray
    round: int = 0
    word_ids: np.ndarray | None = None
    vocabulary_size: int = 0
    words: pa.Array | None = None
    word_hashes: np.ndarray | None = None
    left: np.ndarray | None = None


@dataclasses.dataclass(frozen=True, eq=False, kw_only=True)
class RowSums:
    """Sums over some users for rows that are numbered, or a part of them; as private as the data.

    Attributes:
      rows: (m,) int64, the rows that some of the users add to; a row may be there several times.
      sums: (m,) int64, the sum of each of these rows.
    """

    rows: np.ndarray
    sums: np.ndarray

    def __len__(self) -> int:
        return len(self.rows)


class RowTable:
    """Sums of numbered rows, added up in place; it has 8 bytes for each row up to the last."""

    def __init__(self, first: int = 0):
        """Starts without sums; no row has a number below the first one."""
        self._first = first
        self._sums = np.zeros(0, np.int64)

    def add(self, part: RowSums) -> None:
        """Adds sums in exact integers, so that their order does not matter."""
        places = part.rows - self._first
        size = int(places.max(initial=-1)) + 1
        if size > self._sums.size:
            longer = np.zeros(max(size, 2 * self._sums.size), np.int64)
            longer[: self._sums.size] = self._sums
            self._sums = longer
        add_at(self._sums, places, part.sums)

    def total(self) -> RowSums:
        """Returns the sums that are not 0, of ascending rows."""
        found = np.flatnonzero(self._sums)
        return RowSums(rows=found + self._first, sums=self._sums[found])


def add_rows(part: RowSums) -> RowSums:
    """Adds up the sums of equal rows, for few rows of very many; then rows ascend."""
    order = np.argsort(part.rows)
    rows = part.rows.take(order)
    last = run_ends(rows)
    return RowSums(rows=rows.take(last), sums=sums_of_runs(part.sums.take(order), last))


def cut_rows(sums: RowSums) -> Iterator[tuple[int, RowSums]]:
    """Cuts sums of ascending rows into pieces, so that no element is large; each has its number."""
    numbers = sums.rows // _ROWS_OF_A_PIECE
    starts = run_starts(numbers)
    for start, end in itertools.pairwise((*starts.tolist(), len(sums))):
        piece = RowSums(rows=sums.rows[start:end], sums=sums.sums[start:end])
        yield int(numbers[start]), piece


def merge_piece(number: int, parts: Iterable[RowSums]) -> RowSums:
    """Adds up what there is of one piece of rows, by its number from `cut_rows`."""
    table = RowTable(number * _ROWS_OF_A_PIECE)
    for part in parts:
        table.add(part)
    return table.total()


def table_of_sums(parts: Iterable[RowSums], size: int) -> np.ndarray:
    """Returns the sums of all rows, added up over parts: (size,) int64."""
    table = np.zeros(size, np.int64)
    for part in parts:
        add_at(table, part.rows, part.sums)
    return table


def add_range(parts: Sequence[RowSums], number: int, ranges: int) -> RowSums:
    """Adds up the sums of one range of rows.

    Args:
      parts: sums whose rows ascend.
      number: the number of the range.
      ranges: how many ranges all rows are cut into, nearly equal ones.
    """
    size = max((int(part.rows[-1]) + 1 for part in parts if len(part)), default=0)
    first, end = (size * border // ranges for border in (number, number + 1))
    inside = []
    for part in parts:
        own = slice(*np.searchsorted(part.rows, (first, end)))
        inside.append(RowSums(rows=part.rows[own] - first, sums=part.sums[own]))
    table = table_of_sums(inside, end - first)
    found = np.flatnonzero(table)
    return RowSums(rows=found + first, sums=table[found])


class WaitingParts(Generic[_Part]):
    """Parts that wait to be joined: many at a time, but never much more than the limit.

    They are joined when they are larger than the limit together. If the joined part is more than half
    as large as the limit, the limit is raised to its double, so that it is not joined again with each
    part that is added.
    """

    def __init__(
        self, join: Callable[[list[_Part]], _Part], size_of: Callable[[_Part], int], limit: int
    ):
        """Starts without parts.

        Args:
          join: returns one part for several.
          size_of: the size of a part.
          limit: the size of all parts above which they are joined.
        """
        self._join = join
        self._size_of = size_of
        self._least_limit = limit
        self._limit = limit
        self.parts: list[_Part] = []
        self.size = 0

    def add(self, part: _Part) -> bool:
        """Adds a part; returns whether all parts were joined."""
        self.parts.append(part)
        self.size += self._size_of(part)
        if self.size <= self._limit:
            return False
        joined = self._join(self.parts)
        self.parts = [joined]
        self.size = self._size_of(joined)
        self._limit = max(self._least_limit, 2 * self.size)
        return True


def add_up(parts: Iterable[Sized], merge: Callable[[list[Any]], Any]) -> Any:
    """Returns the sums of all batches, of which few wait; None if there are no batches."""
    waiting = WaitingParts[Any](merge, len, MAX_WAITING)
    for part in parts:
        waiting.add(part)
    if not waiting.parts:
        return None
    return merge(waiting.parts)
