"""The histogram of a set union, in parts: exact integer sums, and their cut into hash ranges."""

import functools
from collections.abc import Iterable, Iterator

import numpy as np
import pyarrow as pa

from beam_dpne.elements.ragged import bounded_parts, group_places
from beam_dpne.elements.words import merge_hashes, merge_words
from beam_dpne.set_union.elements import ItemSums, UserItems


def sum_by_item(items: UserItems, weights: np.ndarray) -> ItemSums:
    """Sums weights over users.

    Args:
      items: a batch.
      weights: (m, width) int64, what each (user, item) entry adds to each column.

    Returns:
      The sums of items that some user has.
    """
    held = np.zeros(len(items.words), dtype=bool)
    held[items.items] = True
    kept = np.flatnonzero(held)
    table = np.zeros((held.size, weights.shape[1]), dtype=np.int64)
    np.add.at(table, items.items, weights)
    return ItemSums(
        words=items.words.take(pa.array(kept)),
        word_hashes=items.word_hashes[kept],
        width=weights.shape[1],
        sums=table[kept].reshape(-1),
    )


def merge_sums(parts: Iterable[ItemSums]) -> ItemSums:
    """Adds up parts of one width; of none, there are no items."""
    parts = list(parts)
    if len(parts) == 1:
        return parts[0]
    if not parts:
        none = np.zeros(0, np.int64)
        hashes = np.zeros((0, 2), np.uint64)
        return ItemSums(words=pa.array([], pa.string()), word_hashes=hashes, width=1, sums=none)
    words, codes = merge_words(part.words for part in parts)
    table = np.zeros((len(words), parts[0].width), dtype=np.int64)
    np.add.at(table, codes, np.concatenate([part.table for part in parts]))
    return ItemSums(
        words=words,
        word_hashes=merge_hashes([part.word_hashes for part in parts], codes, len(words)),
        width=parts[0].width,
        sums=table.reshape(-1),
    )


def cut_by_hash_range(whole: ItemSums, ranges: int) -> Iterator[tuple[int, ItemSums]]:
    """Yields the part of each hash range that is not empty, small enough for an element.

    The range is a part of the item's keyed hash.
    """
    number = (whole.word_hashes[:, 1] % np.uint64(ranges)).astype(np.int64)
    for place, inside in group_places(number, ranges):
        for part in bounded_parts(inside, functools.partial(_take, whole)):
            yield place, part


def zero_sums(whole: ItemSums, places: np.ndarray) -> ItemSums:
    """Returns some items, with one zero for each: their names are all that matters."""
    return ItemSums(
        words=whole.words.take(pa.array(places)),
        word_hashes=whole.word_hashes[places],
        width=1,
        sums=np.zeros(places.size, np.int64),
    )


def hash_order(word_hashes: np.ndarray) -> np.ndarray:
    """Returns the order that sorts items by keyed hash, the same among any other items."""
    return np.lexsort((word_hashes[:, 1], word_hashes[:, 0]))


def _take(whole: ItemSums, places: np.ndarray) -> ItemSums:
    return ItemSums(
        words=whole.words.take(pa.array(places)),
        word_hashes=whole.word_hashes[places],
        width=whole.width,
        sums=whole.table[places].reshape(-1),
    )
