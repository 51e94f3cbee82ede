"""Blocks of tokenized documents: cut by user, joined, limited for each user, and cut into elements."""

import functools
from collections.abc import Iterator

import numpy as np
import pyarrow as pa

from beam_dpne.elements.arrays import (
    group_places,
    merge_words,
    offsets_of,
    ranges,
    used_words,
)
from beam_dpne.elements.batches import DocumentBlock, UserBatch
from beam_dpne.elements.coders import bounded_parts
from beam_dpne.mechanism import randomness

# A hash of 64 bits, shifted by this number, keeps its first 16 bits.
_SPARE_BITS = 64 - 16


def split_by_user(block: DocumentBlock, partitions: int) -> Iterator[tuple[int, DocumentBlock]]:
    """Cuts a block by the users' partitions, and drops documents without tokens."""
    filled = np.flatnonzero(np.diff(block.offsets))
    partition = (block.users[filled, 0] % np.uint64(partitions)).astype(np.int64)
    for number, places in group_places(partition, partitions):
        yield number, _take_documents(block, filled[places])


def bounded_blocks(block: DocumentBlock) -> Iterator[DocumentBlock]:
    """Cuts a block between documents into parts that are small enough for an element."""
    take = functools.partial(_take_documents, block)
    return bounded_parts(np.arange(len(block.users)), take, block)


def bounded_batches(batch: UserBatch) -> Iterator[UserBatch]:
    """Cuts a batch of positions between users into parts that are small enough for an element."""
    return bounded_parts(np.arange(len(batch.users)), functools.partial(_take_users, batch), batch)


def limit_documents(
    blocks: list[DocumentBlock], max_tokens: int, sub_key: bytes, *, final: bool
) -> DocumentBlock:
    """Joins blocks; users above the limit keep their first documents in a keyed random order.

    Documents are ordered by a keyed hash of their tokens. The document that reaches the limit is cut in
    the final call only, because its hash needs all of its tokens. The first documents of several blocks
    are among the first of each block, so that blocks may be limited one by one.

    Args:
      blocks: At least one block.
      max_tokens: Largest number of tokens of a user.
      sub_key: Key of the hash.
      final: Whether no further documents of these users will come.
    """
    block = _join_blocks(blocks)
    lengths = np.diff(block.offsets)
    # Users fall into 2^16 buckets by their hash. If no bucket is above the limit, no user is, and the
    # users need not be sorted.
    bucket = (block.users[:, 0] >> np.uint64(_SPARE_BITS)).astype(np.int64)
    if np.bincount(bucket, weights=lengths).max(initial=0) <= max_tokens:
        return block
    order = user_order(block.users)
    # In this order user i has the documents starts[i] … stops[i] − 1, with totals[i] tokens. allowed[d]
    # is the number of tokens that document d keeps.
    starts = np.flatnonzero(changes(block.users[order]))
    totals = np.add.reduceat(lengths[order], starts)
    allowed = lengths.copy()
    stops = np.append(starts[1:], order.size)
    for giant in np.flatnonzero(totals > max_tokens).tolist():
        documents = order[starts[giant] : stops[giant]]
        _limit_giant(block, documents, allowed, max_tokens, sub_key)
    kept = np.flatnonzero(allowed > 0)
    return _take_documents(block, kept, allowed[kept] if final else lengths[kept])


def _limit_giant(
    block: DocumentBlock,
    documents: np.ndarray,
    allowed: np.ndarray,
    max_tokens: int,
    sub_key: bytes,
) -> None:
    """Writes into `allowed` how many tokens of each document of one user are kept."""
    draws = randomness.keyed_hashes(sub_key, (_content(block, d) for d in documents.tolist()))
    by_draw = documents[np.lexsort((draws[:, 1], draws[:, 0]))]
    before = np.cumsum(allowed[by_draw]) - allowed[by_draw]
    allowed[by_draw] = np.clip(max_tokens - before, 0, allowed[by_draw])


def _content(block: DocumentBlock, document: int) -> bytes:
    """Returns a document's tokens as one injective byte string."""
    codes = block.codes[block.offsets[document] : block.offsets[document + 1]]
    tokens = block.words.take(pa.array(codes)).cast(pa.binary()).to_pylist()
    return b"".join(len(token).to_bytes(8, "little") + token for token in tokens)


def _join_blocks(blocks: list[DocumentBlock]) -> DocumentBlock:
    """Concatenates blocks and merges their dictionaries of words."""
    if len(blocks) == 1:
        return blocks[0]
    # new_codes[first[b] + c] is the code in the merged dictionary of code c in block b.
    words, new_codes = merge_words(block.words for block in blocks)
    first = np.cumsum([0, *(len(block.words) for block in blocks)])
    codes = [new_codes[base:][block.codes] for base, block in zip(first[:-1], blocks, strict=True)]
    return DocumentBlock(
        users=np.concatenate([block.users for block in blocks]),
        offsets=offsets_of(np.concatenate([np.diff(block.offsets) for block in blocks])),
        codes=np.concatenate(codes),
        words=words,
    )


def _take_documents(
    block: DocumentBlock, documents: np.ndarray, lengths: np.ndarray | None = None
) -> DocumentBlock:
    """Selects documents, or their first tokens if lengths are given, and the words that they hold."""
    starts = block.offsets[:-1][documents]
    if lengths is None:
        lengths = block.offsets[1:][documents] - starts
    kept, codes = used_words(len(block.words), block.codes[ranges(starts, lengths)])
    return DocumentBlock(
        users=block.users[documents],
        offsets=offsets_of(lengths),
        codes=codes,
        words=block.words.take(pa.array(kept)),
    )


def _take_users(batch: UserBatch, users: np.ndarray) -> UserBatch:
    """Selects neighbouring users, and the words that they hold."""
    start, stop = users[0], users[-1] + 1
    first, last = batch.offsets[start], batch.offsets[stop]
    kept, ids = used_words(batch.size, batch.ids[first:last])
    if batch.words is None or batch.word_hashes is None:
        raise ValueError(f"Positions must be of length 0, got length {batch.length}.")
    return UserBatch(
        length=0,
        size=kept.size,
        users=batch.users[start:stop],
        offsets=batch.offsets[start : stop + 1] - first,
        ids=ids,
        words=batch.words.take(pa.array(kept)),
        word_hashes=batch.word_hashes[kept],
    )


def user_order(users: np.ndarray) -> np.ndarray:
    """Returns an order that brings each user's rows together, ascending by the first 64 bits."""
    order = np.argsort(users[:, 0])
    first, last = users[order, 0], users[order, 1]
    collision = (first[1:] == first[:-1]) & (last[1:] != last[:-1])
    return np.lexsort((users[:, 1], users[:, 0])) if collision.any() else order


def changes(users: np.ndarray) -> np.ndarray:
    """Marks the first row, and the rows that differ from the row before: (n,) bool."""
    fresh = np.ones(len(users), dtype=bool)
    fresh[1:] = (users[1:] != users[:-1]).any(axis=1)
    return fresh
