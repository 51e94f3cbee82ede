"""The elements of a set union: users' items, parts of a histogram, and released items.

Each element has arrays for many users or many items.
"""

import dataclasses
from collections.abc import Iterable, Iterator, Sequence

import numpy as np
import pyarrow as pa

from beam_dpne.elements import arrays
from beam_dpne.elements.arrays import hash_words, places_in
from beam_dpne.elements.batches import DocumentBlock, UserBatch
from beam_dpne.elements.dictionaries import merge_words
from beam_dpne.elements.encoding import bounded_parts
from beam_dpne.elements.rows import COUNTED_ITEM_SCHEMA, ITEM_SCHEMA, in_order, with_rounded_scores
from beam_dpne.elements.sums import sums_at
from beam_dpne.lists.known import KnownItems
from beam_dpne.mechanism.randomness import RunKey


@dataclasses.dataclass(frozen=True, eq=False, kw_only=True)
class ItemSums:
    """A part of the histogram: sums over users for each item that some user has.

    Attributes:
      words: distinct items, Arrow strings.
      word_hashes: (words, 2) uint64, the keyed hash of each item.
      sums: (words,) int64, weights in units of 2^-50 in policies with a cutoff, whose weights are
        at most 2^13, and of 2^-32 in others.
      known: (words,) uint8, 1 for known items; None if there are none.
    """

    words: pa.Array
    word_hashes: np.ndarray
    sums: np.ndarray
    known: np.ndarray | None = None

    def __len__(self) -> int:
        return len(self.words)

    @property
    def is_known(self) -> np.ndarray:
        """Which of the items are known: (words,) bool."""
        return np.zeros(len(self.words), bool) if self.known is None else self.known > 0

    def take(self, rows: np.ndarray) -> "ItemSums":
        """Returns the sums of some items."""
        return ItemSums(
            words=self.words.take(pa.array(rows)),
            word_hashes=self.word_hashes[rows],
            sums=self.sums[rows],
            known=None if self.known is None else self.known[rows],
        )


@dataclasses.dataclass(frozen=True, eq=False, kw_only=True)
class ItemSet:
    """A released set of items, sorted by bytes.

    Attributes:
      items: (n,) Arrow strings.
      scores: (n,) float64, noisy weights in units of weight, rounded to the middle of a cell.
      users: (n, 3) int64, the estimated number of users who have each item, and the ends of its 95 %
        interval; None if they are not measured, and before.
      known_thresholds: (rounds,) float64, ρ of known items; None if the run knew none, and before.
    """

    items: pa.Array
    scores: np.ndarray
    users: np.ndarray | None = None
    known_thresholds: np.ndarray | None = None

    def __len__(self) -> int:
        return len(self.items)


def known_sums(known: KnownItems, run_key: RunKey) -> ItemSums:
    """Returns known items with weight 0, as if somebody had them."""
    return ItemSums(
        words=known.words,
        word_hashes=hash_words(run_key.sub_key("word"), known.words),
        sums=np.zeros(len(known), np.int64),
        known=np.ones(len(known), np.uint8),
    )


def items_of_users(batch: UserBatch) -> DocumentBlock:
    """Returns each user's distinct items, as one document of each.

    Raises:
      ValueError: if the batch's positions are not of length 0.
    """
    if batch.words is None or batch.word_hashes is None:
        raise ValueError(f"Positions must be of length 0, got length {batch.length}.")
    inside = np.flatnonzero(batch.ids >= 0)
    # A pair (user, word) for each position.
    pairs = (arrays.rows_of_entries(batch.offsets)[inside], batch.ids[inside])
    (user, items), _ = arrays.distinct(pairs, (len(batch.users), batch.size))
    return DocumentBlock(
        users=batch.users,
        offsets=arrays.offsets_of(np.bincount(user, minlength=len(batch.users))),
        codes=items.astype(np.int32),
        words=batch.words,
        word_hashes=batch.word_hashes,
    )


def left_open(items: DocumentBlock, known: pa.Array, *, is_open: bool) -> DocumentBlock:
    """Keeps what a round leaves open of users' items, and drops users who have none of it.

    Args:
      items: a batch of users.
      known: the open items, or those that the round has found.
      is_open: whether `known` are the open ones.
    """
    chosen = (places_in(items.words, known) >= 0) == is_open
    kept = chosen[items.codes]
    user = arrays.rows_of_entries(items.offsets)
    sizes = np.bincount(user[kept], minlength=len(items.users))
    return take_entries(items, kept, sizes).take(np.flatnonzero(sizes))


def take_entries(items: DocumentBlock, kept: np.ndarray, sizes: np.ndarray) -> DocumentBlock:
    """Selects (user, item) entries; `sizes`, (n,), are the numbers of entries that users keep."""
    return DocumentBlock(
        users=items.users,
        offsets=arrays.offsets_of(sizes),
        codes=items.codes[kept],
        words=items.words,
        word_hashes=items.word_hashes,
    )


def sum_by_item(items: DocumentBlock, weights: np.ndarray) -> ItemSums:
    """Sums weights over users.

    Args:
      items: a batch.
      weights: (m,) int64, the amount that each (user, item) entry adds.

    Returns:
      The sums of the items that some user has.
    """
    # The batch may have words that no entry names.
    present, codes = arrays.used_words(len(items.words), items.codes)
    return ItemSums(
        words=items.words.take(pa.array(present)),
        word_hashes=items.word_hashes[present],
        sums=sums_at(codes, weights, present.size),
    )


def merge_sums(parts: Iterable[ItemSums]) -> ItemSums:
    """Adds up parts; without parts the result has no items."""
    parts = list(parts)
    if len(parts) == 1:
        return parts[0]
    if not parts:
        zeros = np.zeros(0, np.int64)
        hashes = np.zeros((0, 2), np.uint64)
        return ItemSums(words=pa.array([], pa.string()), word_hashes=hashes, sums=zeros)
    merged = merge_words(part.words for part in parts)
    size = len(merged.words)
    sums = sums_at(merged.places, np.concatenate([part.sums for part in parts]), size)
    is_known = np.concatenate([part.is_known for part in parts])
    known = np.zeros(size, np.uint8)
    known[merged.places[is_known]] = 1
    return ItemSums(
        words=merged.words,
        word_hashes=merged.hashes([part.word_hashes for part in parts]),
        sums=sums,
        known=known if known.any() else None,
    )


def cut_by_hash_range(whole: ItemSums, ranges: int) -> Iterator[tuple[int, ItemSums]]:
    """Yields the non-empty hash ranges in parts that are small enough for an element.

    The range of an item follows from its keyed hash alone.
    """
    number = (whole.word_hashes[:, 1] % np.uint64(ranges)).astype(np.int64)
    for label, inside in arrays.group_places(number, ranges):
        for part in bounded_parts(inside, whole.take):
            yield label, part


def item_table(released: Sequence[ItemSet]) -> pa.Table:
    """Returns the rows of one set union, in the order of a release (see `in_order`)."""
    (found,) = released
    rows = pa.table([found.items, pa.array(found.scores)], schema=ITEM_SCHEMA)
    if found.users is not None:
        users = [pa.array(column) for column in found.users.T]
        rows = pa.table([*rows.columns, *users], schema=COUNTED_ITEM_SCHEMA)
    return in_order(with_rounded_scores(rows))
