"""The elements of a set union: users' items, parts of a histogram, and released items.

Each element has arrays for many users or many items.
"""

import dataclasses
from collections.abc import Iterable, Iterator, Sequence

import numpy as np
import pyarrow as pa

from beam_dpne.elements import arrays
from beam_dpne.elements.arrays import merge_hashes, merge_words, places_in
from beam_dpne.elements.batches import UserBatch
from beam_dpne.elements.coders import bounded_parts, register_batches
from beam_dpne.elements.rows import COUNTED_ITEM_SCHEMA, ITEM_SCHEMA, in_order, with_rounded_scores


@dataclasses.dataclass(frozen=True, eq=False, kw_only=True)
class UserItems:
    """The distinct items of each user (CSR).

    Attributes:
      users: (n, 2) uint64, 128-bit keyed hashes; a user is in one batch only.
      offsets: (n + 1,) int64, where each user's entries begin in `items`.
      items: (m,) int32, indices into `words`, distinct within a user.
      words: the batch's distinct items, Arrow strings.
      word_hashes: (words, 2) uint64, the keyed hash of each item.
    """

    users: np.ndarray
    offsets: np.ndarray
    items: np.ndarray
    words: pa.Array
    word_hashes: np.ndarray


@dataclasses.dataclass(frozen=True, eq=False, kw_only=True)
class ItemSums:
    """A part of the histogram: sums over users for each item that some user has.

    Attributes:
      words: distinct items, Arrow strings.
      word_hashes: (words, 2) uint64, the keyed hash of each item.
      sums: (words,) int64, weights in units of 2^-50 in policies with a cutoff, whose weights are
        at most 2^13, and of 2^-32 in others.
    """

    words: pa.Array
    word_hashes: np.ndarray
    sums: np.ndarray

    def __len__(self) -> int:
        return len(self.words)


@dataclasses.dataclass(frozen=True, eq=False, kw_only=True)
class ItemSet:
    """A released set of items, sorted by bytes.

    Attributes:
      items: (n,) Arrow strings.
      scores: (n,) float64, noisy weights in units of weight, rounded to the middle of a cell.
      users: (n, 3) int64, the estimated number of users who have each item, and the ends of its 95 %
        interval; None if they are not measured, and before.
    """

    items: pa.Array
    scores: np.ndarray
    users: np.ndarray | None = None

    def __len__(self) -> int:
        return len(self.items)


register_batches(UserItems, ItemSums, ItemSet)


def items_of_users(batch: UserBatch) -> UserItems:
    """Returns each user's distinct items.

    Raises:
      ValueError: if the batch's positions are not of length 0.
    """
    if batch.words is None or batch.word_hashes is None:
        raise ValueError(f"Positions must be of length 0, got length {batch.length}.")
    inside = np.flatnonzero(batch.ids >= 0)
    # A pair (user, word) for each position.
    pairs = (arrays.rows_of_entries(batch.offsets)[inside], batch.ids[inside])
    (user, items), _ = arrays.distinct(pairs, (len(batch.users), batch.size))
    return UserItems(
        users=batch.users,
        offsets=arrays.offsets_of(np.bincount(user, minlength=len(batch.users))),
        items=items.astype(np.int32),
        words=batch.words,
        word_hashes=batch.word_hashes,
    )


def left_open(items: UserItems, known: pa.Array, *, is_open: bool) -> UserItems:
    """Keeps what a round leaves open of users' items, and drops users who have none of it.

    Args:
      items: a batch of users.
      known: the open items, or those that the round has found.
      is_open: whether `known` are the open ones.
    """
    chosen = (places_in(items.words, known) >= 0) == is_open
    kept = chosen[items.items]
    user = arrays.rows_of_entries(items.offsets)
    sizes = np.bincount(user[kept], minlength=len(items.users))
    return take_users(take_entries(items, kept, sizes), np.flatnonzero(sizes))


def join_items(parts: Iterable[UserItems]) -> UserItems:
    """Joins batches over one dictionary of words.

    Raises:
      ValueError: if there is no batch.
    """
    parts = list(parts)
    if len(parts) == 1:
        return parts[0]
    # `codes` are the indices in the joined dictionary of each part's words, part by part.
    words, codes = merge_words(part.words for part in parts)
    first = np.cumsum([0, *(len(part.words) for part in parts)])
    shifts = np.cumsum([0, *(part.items.size for part in parts)])
    offsets = [part.offsets[1:] + shift for part, shift in zip(parts, shifts, strict=False)]
    return UserItems(
        users=np.concatenate([part.users for part in parts]),
        offsets=np.concatenate(([0], *offsets)),
        items=np.concatenate(
            [codes[base + part.items] for part, base in zip(parts, first, strict=False)]
        ),
        words=words,
        word_hashes=merge_hashes([part.word_hashes for part in parts], codes, len(words)),
    )


def take_users(items: UserItems, users: np.ndarray) -> UserItems:
    """Selects users, in ascending order, and only the words that they use."""
    sizes = np.diff(items.offsets)
    chosen = np.zeros(sizes.size, dtype=bool)
    chosen[users] = True
    part = take_entries(items, np.repeat(chosen, sizes), np.where(chosen, sizes, 0))
    kept, codes = arrays.used_words(len(items.words), part.items)
    return UserItems(
        users=items.users[users],
        offsets=arrays.offsets_of(sizes[users]),
        items=codes,
        words=items.words.take(pa.array(kept)),
        word_hashes=items.word_hashes[kept],
    )


def take_entries(items: UserItems, kept: np.ndarray, sizes: np.ndarray) -> UserItems:
    """Selects (user, item) entries; `sizes`, (n,), are the numbers of entries that users keep."""
    return UserItems(
        users=items.users,
        offsets=arrays.offsets_of(sizes),
        items=items.items[kept],
        words=items.words,
        word_hashes=items.word_hashes,
    )


def sum_by_item(items: UserItems, weights: np.ndarray) -> ItemSums:
    """Sums weights over users.

    Args:
      items: a batch.
      weights: (m,) int64, the amount that each (user, item) entry adds.

    Returns:
      The sums of the items that some user has.
    """
    is_present = np.zeros(len(items.words), dtype=bool)
    is_present[items.items] = True
    present = np.flatnonzero(is_present)
    # (words,) also for words of the batch that no entry names.
    sums = np.zeros(is_present.size, dtype=np.int64)
    np.add.at(sums, items.items, weights)
    return _rows_of(items, present, sums[present])


def merge_sums(parts: Iterable[ItemSums]) -> ItemSums:
    """Adds up parts; without parts the result has no items."""
    parts = list(parts)
    if len(parts) == 1:
        return parts[0]
    if not parts:
        zeros = np.zeros(0, np.int64)
        hashes = np.zeros((0, 2), np.uint64)
        return ItemSums(words=pa.array([], pa.string()), word_hashes=hashes, sums=zeros)
    words, codes = merge_words(part.words for part in parts)
    sums = np.zeros(len(words), dtype=np.int64)
    np.add.at(sums, codes, np.concatenate([part.sums for part in parts]))
    return ItemSums(
        words=words,
        word_hashes=merge_hashes([part.word_hashes for part in parts], codes, len(words)),
        sums=sums,
    )


def cut_by_hash_range(whole: ItemSums, ranges: int) -> Iterator[tuple[int, ItemSums]]:
    """Yields the non-empty hash ranges in parts that are small enough for an element.

    The range of an item follows from its keyed hash alone.
    """
    number = (whole.word_hashes[:, 1] % np.uint64(ranges)).astype(np.int64)

    def take(rows: np.ndarray) -> ItemSums:
        return _rows_of(whole, rows, whole.sums[rows])

    for label, inside in arrays.group_places(number, ranges):
        for part in bounded_parts(inside, take):
            yield label, part


def item_table(released: Sequence[ItemSet]) -> pa.Table:
    """Returns the rows of one set union, in the order of a release (see `in_order`)."""
    (found,) = released
    rows = pa.table([found.items, pa.array(found.scores)], schema=ITEM_SCHEMA)
    if found.users is not None:
        users = [pa.array(column) for column in found.users.T]
        rows = pa.table([*rows.columns, *users], schema=COUNTED_ITEM_SCHEMA)
    return in_order(with_rounded_scores(rows))


def _rows_of(whole: UserItems | ItemSums, rows: np.ndarray, sums: np.ndarray) -> ItemSums:
    """Returns sums for some words of an element."""
    return ItemSums(
        words=whole.words.take(pa.array(rows)),
        word_hashes=whole.word_hashes[rows],
        sums=sums,
    )
