"""Public n-grams of all lengths up to n, as a tree: each gram follows its first words.

A back-off language model needs shorter n-grams too. A text has them all; a file of counts has those of
one length, and a release some of each length. What is missing is filled in: a shorter gram has at least
the count that the longer grams have together which begin with it, or which end with it.
"""

import dataclasses
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from beam_dpne.bayesian.public_counts import PublicCounts

_Ids = npt.NDArray[np.int64]


@dataclasses.dataclass(frozen=True, eq=False, kw_only=True)
class PublicOrder:
    """All k-grams, sorted by the ids of their words.

    Attributes:
      begins: (m,) int64, the row of the first k − 1 words among the (k−1)-grams; 0 for single words.
      ends: (m,) int64, the row of the last k − 1 words among the (k−1)-grams; 0 for single words.
      last: (m,) int64, the id of the last word.
      counts: (m,) int64 ≥ 0.
    """

    begins: _Ids
    ends: _Ids
    last: _Ids
    counts: _Ids

    def __len__(self) -> int:
        return len(self.counts)


@dataclasses.dataclass(frozen=True, eq=False, kw_only=True)
class PublicOrders:
    """Public n-grams of the lengths 1 to n; the beginning and the end of each gram is a gram too.

    Attributes:
      words: (W,) Arrow strings, the distinct words sorted by bytes; every word is a gram of length 1.
      orders: the k-grams for k = 1 to n.
      is_whole: whether every gram of the public data is here, as in a text; else those with small
        counts are missing.

    Example:
      >>> pairs = PublicCounts.of([("to", "be"), ("be", "or")], [3, 7])
      >>> orders = PublicOrders.of([pairs], is_whole=True)
      >>> orders.words.to_pylist(), orders.orders[0].counts.tolist()
      (['be', 'or', 'to'], [7, 7, 3])
      >>> orders.grams(2).tolist(), orders.rows_of(pairs).tolist()
      ([[0, 1], [2, 0]], [0, 1])
    """

    words: pa.Array
    orders: Sequence[PublicOrder]
    is_whole: bool

    @classmethod
    def of(cls, counted: Sequence[PublicCounts], *, is_whole: bool) -> "PublicOrders":
        """Returns the tree of public counts of one or several lengths.

        Args:
          counted: public counts of distinct lengths, some of the length n.
          is_whole: whether they have every gram of the public data.
        """
        words = pa.concat_arrays([each.words for each in counted]).unique()
        words = words.take(pc.call_function("array_sort_indices", [words]))
        tables = {each.length: _ids_in(each, words) for each in counted}
        listed = {each.length: each.counts for each in counted}
        # The row of each part of length k of each gram, by the gram's length and the part's start.
        rows = {
            (length, start): ids[:, start].astype(np.int64)
            for length, ids in tables.items()
            for start in range(length)
        }
        every = np.arange(len(words))
        nothing = np.zeros(len(words), np.int64)
        levels = [(nothing, nothing, every)]
        counts = [_at(rows, listed, 1, len(words))]
        ends = np.zeros(len(words), np.int64)
        for size in range(2, max(tables) + 1):
            parts = {
                (length, start): rows[length, start] * len(words)
                + tables[length][:, start + size - 1]
                for length, start in rows
                if start + size <= length
            }
            keys = np.unique(np.concatenate(list(parts.values())))
            rows = {place: np.searchsorted(keys, each) for place, each in parts.items()}
            begins, last = np.divmod(keys, len(words))
            if size == 2:
                ends = last
            else:
                before = levels[-1][0] * len(words) + levels[-1][2]
                ends = np.searchsorted(before, ends[begins] * len(words) + last)
            levels.append((begins, ends, last))
            counts.append(_at(rows, listed, size, len(keys)))
        for size in range(len(levels) - 1, 0, -1):
            begins, ends, _ = levels[size]
            for parts in (begins, ends):
                sums = _summed(parts, counts[size], len(counts[size - 1]))
                counts[size - 1] = np.maximum(counts[size - 1], sums)
        orders = [
            PublicOrder(begins=begins, ends=ends, last=last, counts=each)
            for (begins, ends, last), each in zip(levels, counts, strict=True)
        ]
        return cls(words=words, orders=orders, is_whole=is_whole)

    def grams(self, length: int) -> _Ids:
        """Returns the ids of the words of all grams of a length: (m, length) int64."""
        columns, rows = [], np.arange(len(self.orders[length - 1]))
        for order in reversed(self.orders[:length]):
            columns.append(order.last[rows])
            rows = order.begins[rows]
        return np.stack(columns[::-1], axis=1)

    def rows_of(self, public: PublicCounts) -> _Ids:
        """Returns the row of each public gram among those of its length, all of which are here."""
        ids = _ids_in(public, self.words)
        rows = ids[:, 0]
        for order, column in zip(self.orders[1:], ids.T[1:], strict=False):
            keys = order.begins * len(self.words) + order.last
            rows = np.searchsorted(keys, rows * len(self.words) + column)
        return rows


def _ids_in(public: PublicCounts, words: pa.Array) -> _Ids:
    places = pc.call_function("index_in", [public.words], pc.SetLookupOptions(value_set=words))
    return places.to_numpy().astype(np.int64)[public.grams]


def _at(rows: dict[tuple[int, int], _Ids], listed: dict[int, _Ids], size: int, number: int) -> _Ids:
    """Returns the listed counts of the grams of a length by their rows, 0 for those without one."""
    counts = np.zeros(number, np.int64)
    if size in listed:
        counts[rows[size, 0]] = listed[size]
    return counts


def _summed(rows: _Ids, counts: _Ids, number: int) -> _Ids:
    # Sums of public counts are at most 2^62, where float64 would not be exact.
    sums = np.zeros(number, np.int64)
    np.add.at(sums, rows, counts)
    return sums
