"""Blocks of tokenized documents: encoded, cut by user, limited for each user, laid out as positions."""

import functools
from collections.abc import Iterable, Iterator
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from beam_dpne.elements.arrays import (
    group_places,
    hash_words,
    ranges,
    used_words,
)
from beam_dpne.elements.batches import NO_GRAM, DocumentBlock, UserBatch, WaitingParts
from beam_dpne.elements.encoding import bounded_parts
from beam_dpne.mechanism import randomness
from beam_dpne.mechanism.randomness import RunKey
from beam_dpne.reading.columns import NAMED_USER

# A partition limits its large users when it has joined so many tokens.
_MAX_BLOCK_TOKENS = 4_000_000
# A hash of 64 bits, shifted by this number, keeps its first 16 bits.
_SPARE_BITS = 64 - 16
# It ends the group that stands in front of a word. No group has a control character.
_GROUP_END = "\x1f"

# The columns of a batch of documents.
USER = "user"
TEXT = "text"
GROUP = "group"


def split_by_user(block: DocumentBlock, partitions: int) -> Iterator[tuple[int, DocumentBlock]]:
    """Cuts a block by the users' partitions, and drops documents without tokens."""
    filled = np.flatnonzero(np.diff(block.offsets))
    for number, places in group_places(partitions_of(block.users[filled], partitions), partitions):
        yield number, block.take(filled[places])


def partitions_of(users: np.ndarray, partitions: int) -> np.ndarray:
    """Returns the partition of each of some users, (n, 2) uint64: (n,) int64."""
    return (users[:, 0] % np.uint64(partitions)).astype(np.int64)


def bounded_blocks(block: DocumentBlock) -> Iterator[DocumentBlock]:
    """Cuts a block between documents into parts that are small enough for an element."""
    return bounded_parts(np.arange(len(block.users)), block.take, block)


def bounded_batches(batch: UserBatch) -> Iterator[UserBatch]:
    """Cuts a batch of positions between users into parts that are small enough for an element."""
    return bounded_parts(np.arange(len(batch.users)), functools.partial(_take_users, batch), batch)


def limit_documents(
    blocks: list[DocumentBlock], max_tokens: int, sub_key: bytes, *, final: bool
) -> DocumentBlock:
    """Joins blocks; users above the limit keep their first documents in a keyed random order.

    Documents are ordered by a keyed hash of their tokens. The document that reaches the limit is cut in
    the final call only, because its hash needs all of its tokens. Blocks may be limited one by one and
    then together: a document that is among the first of all blocks is among the first of its own.

    Args:
      blocks: At least one block.
      max_tokens: Largest number of tokens of a user.
      sub_key: Key of the hash.
      final: Whether no further documents of these users will come.
    """
    block = DocumentBlock.joined(blocks)
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
    return block.take(kept, allowed[kept] if final else lengths[kept])


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


def _take_users(batch: UserBatch, users: np.ndarray) -> UserBatch:
    """Selects neighbouring users, and the words that they hold."""
    start = users[0]
    stop = users[-1] + 1
    first = batch.offsets[start]
    last = batch.offsets[stop]
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
    first = users[order, 0]
    last = users[order, 1]
    collision = (first[1:] == first[:-1]) & (last[1:] != last[:-1])
    return np.lexsort((users[:, 1], users[:, 0])) if collision.any() else order


def changes(users: np.ndarray) -> np.ndarray:
    """Marks the first row, and the rows that differ from the row before: (n,) bool."""
    fresh = np.ones(len(users), dtype=bool)
    fresh[1:] = (users[1:] != users[:-1]).any(axis=1)
    return fresh


def distinct_users(users: np.ndarray) -> np.ndarray:
    """Returns each of some users once, in some order, faster than by sorting: (m, 2) uint64."""
    buffer = pa.py_buffer(np.ascontiguousarray(users))
    names = pa.Array.from_buffers(NAMED_USER, len(users), [None, buffer])
    distinct = pc.call_function("unique", [names])
    return np.frombuffer(distinct.buffers()[1], "<u8").reshape(-1, 2)


def hash_users(users: pa.Array, sub_key: bytes) -> np.ndarray:
    """Returns the 128-bit keyed hash of each user: (n, 2) uint64.

    Strings are hashed as UTF-8. A 16-byte name is encrypted as one AES block, so that different names
    have different hashes.
    """
    if users.type == NAMED_USER:
        names = np.frombuffer(users.buffers()[1], dtype="<u8").reshape(-1, 2)
        return randomness.encrypt_blocks(sub_key, names[users.offset : users.offset + len(users)])
    encoded = users.dictionary_encode()
    return hash_words(sub_key, encoded.dictionary)[encoded.indices.to_numpy()]


def encode_documents(users: np.ndarray, tokens: pa.ListArray) -> DocumentBlock:
    """Turns tokens into codes, which are indices into the block's distinct words."""
    encoded = encode_tokens(tokens)
    return DocumentBlock(
        users=users, offsets=encoded.offsets, codes=encoded.codes, words=encoded.words
    )


class EncodedTokens(NamedTuple):
    """Lists of tokens as codes.

    Attributes:
      offsets: (d + 1,) int64, where the tokens of each list begin in `codes`.
      codes: (t,) int32, the place of each token in `words`; −1 for nulls.
      words: the distinct tokens, Arrow strings.
    """

    offsets: np.ndarray
    codes: np.ndarray
    words: pa.Array


def encode_tokens(tokens: pa.ListArray) -> EncodedTokens:
    """Turns tokens into codes, which are indices into their distinct words."""
    offsets = tokens.offsets.to_numpy().astype(np.int64)
    first = offsets[0]
    # An array may be a slice of its values.
    encoded = tokens.values.slice(first, offsets[-1] - first).dictionary_encode()
    codes = encoded.indices.fill_null(NO_GRAM).to_numpy()
    return EncodedTokens(offsets=offsets - first, codes=codes, words=encoded.dictionary)


def with_group(groups: pa.Array, tokens: pa.ListArray) -> pa.ListArray:
    r"""Puts the group of each document in front of each of its tokens.

    Words of different groups are different words then, and so are their n-grams. `split_groups` is the
    inverse, whatever characters tokens have.

    Args:
      groups: (d,) string, the group of each document, without control characters.
      tokens: (d,) list of string, the tokens of each document.

    >>> with_group(pa.array(["de", "dk"]), pa.array([["tak", "a"], ["tak"]])).to_pylist()
    [['de\x1ftak', 'de\x1fa'], ['dk\x1ftak']]
    """
    of_each = groups.take(pc.call_function("list_parent_indices", [tokens]))
    joined = [of_each, tokens.flatten(), pa.scalar(_GROUP_END)]
    words = pc.call_function("binary_join_element_wise", joined)
    return pa.ListArray.from_arrays(tokens.offsets, words)


def split_groups(words: pa.Array) -> tuple[pa.Array, pa.Array]:
    r"""Returns the groups and the words of strings that `with_group` joined.

    Raises:
      ValueError: A word has no group.

    >>> [part.to_pylist() for part in split_groups(pa.array(["de\x1ftak", "de\x1fa\x1fb"]))]
    [['de', 'de'], ['tak', 'a\x1fb']]
    """
    options = pc.SplitPatternOptions(_GROUP_END, max_splits=1)
    parts = pc.call_function("split_pattern", [words], options)
    if len(parts.flatten()) != 2 * len(words):
        raise ValueError("Each word of a release with groups must have a group in front of it.")
    groups, rest = (
        pc.call_function("list_element", [parts, pa.scalar(place)]) for place in range(2)
    )
    return groups, rest


def without_groups(words: pa.Array) -> pa.Array:
    """Returns words without the groups in front of them, and words that have none as they are."""
    options = pc.ReplaceSubstringOptions(f"^[^{_GROUP_END}]*{_GROUP_END}", "")
    return pc.call_function("replace_substring_regex", [words], options)


def lay_out_positions(block: DocumentBlock, word_key: bytes) -> UserBatch:
    """Sorts documents by user, with one position for each token and NO_GRAM after each document."""
    lengths = np.diff(block.offsets)
    order = user_order(block.users)
    sorted_users = block.users[order]
    lengths = lengths[order]
    starts = np.flatnonzero(changes(sorted_users))
    # (documents,) the position after each document and the NO_GRAM that ends it.
    ends = np.cumsum(lengths + 1)
    ids = np.full(int(ends[-1]) if ends.size else 0, NO_GRAM, dtype=np.int32)
    inside = np.ones(ids.size, dtype=bool)
    inside[ends - 1] = False
    ids[inside] = block.codes[ranges(block.offsets[:-1][order], lengths)]
    words = block.words
    return UserBatch(
        length=0,
        size=len(words),
        users=sorted_users[starts],
        offsets=np.append((ends - lengths - 1)[starts], ids.size),
        ids=ids,
        words=words,
        word_hashes=hash_words(word_key, words),
    )


def lay_out(
    partition: tuple[int, Iterable[DocumentBlock]], *, max_tokens: int, run_key: RunKey
) -> Iterator[UserBatch]:
    """Joins a partition's blocks, limits large users after each few, and lays out the positions."""
    _, blocks = partition
    document_key = run_key.sub_key("document")

    def limited(some: list[DocumentBlock]) -> DocumentBlock:
        return limit_documents(some, max_tokens, document_key, final=False)

    def tokens_of(block: DocumentBlock) -> int:
        return block.codes.size

    waiting = WaitingParts(limited, tokens_of, _MAX_BLOCK_TOKENS)
    for block in blocks:
        waiting.add(block)
    block = limit_documents(waiting.parts, max_tokens, document_key, final=True)
    yield from bounded_batches(lay_out_positions(block, run_key.sub_key("word")))
