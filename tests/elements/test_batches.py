"""No element is larger than an engine takes, whatever the text is made of."""

import dataclasses

import numpy as np
import pyarrow as pa
import pytest
from apache_beam.coders import TupleCoder, VarIntCoder

from beam_dpne import RunKey
from beam_dpne.documents.group_by_user import (
    bounded_batches,
    bounded_blocks,
    encode_documents,
    hash_users,
    lay_out_positions,
    limit_documents,
)
from beam_dpne.elements import coders
from beam_dpne.elements.batches import DocumentBlock, UserBatch
from beam_dpne.elements.coders import BatchCoder
from beam_dpne.ngrams import elements
from beam_dpne.ngrams.candidates import extract_grams, prune_invalid
from beam_dpne.ngrams.contributions import limit_contributions
from beam_dpne.ngrams.elements import HistogramShard
from beam_dpne.ngrams.histogram import cut_by_hash_range, merge_shards, sum_contributions

KEY = RunKey(bytes(32))
LIMIT = 4096


@pytest.fixture
def small(monkeypatch):
    """Elements of 4 KiB, so that small corpora must be cut."""
    monkeypatch.setattr(coders, "MAX_ELEMENT_BYTES", LIMIT)


def block_of(texts: list[list[str]], names: list[str]):
    return encode_documents(hash_users(pa.array(names), KEY.sub_key("user")), pa.array(texts))


def corpus():
    """Users of one token, which cost most for their text, and some with long texts."""
    rng = np.random.default_rng(3)
    texts = [[f"w{rng.integers(50)}"] for _ in range(900)]
    texts += [[f"w{word}" for word in rng.integers(500, size=80)] for _ in range(60)]
    return texts, [f"user {place % 700}" for place in range(len(texts))]


def encoded(coder: BatchCoder, batch) -> int:
    return len(coder.encode(batch))


def test_blocks_are_cut_and_hold_the_same_documents(small):
    whole = block_of(*corpus())
    parts = list(bounded_blocks(whole))
    assert len(parts) > 3
    assert max(encoded(BatchCoder(DocumentBlock), part) for part in parts) < LIMIT + 2048
    joined = limit_documents(parts, 10**6, b"", final=True)
    assert (joined.users == whole.users).all()
    assert (joined.offsets == whole.offsets).all()
    assert joined.words.take(pa.array(joined.codes)) == whole.words.take(pa.array(whole.codes))


def test_positions_are_cut_between_users(small):
    whole = lay_out_positions(block_of(*corpus()), KEY.sub_key("word"))
    parts = list(bounded_batches(whole))
    assert len(parts) > 3
    assert max(encoded(BatchCoder(UserBatch), part) for part in parts) < LIMIT + 2048
    assert (np.concatenate([part.users for part in parts]) == whole.users).all()
    assert words_by_user(parts) == words_by_user([whole])
    sums = [merge_shards([sum_of(part) for part in some]) for some in (parts, [whole])]
    assert by_word(sums[0]) == by_word(sums[1])


def test_pieces_of_a_histogram_are_cut_and_add_up_again(small):
    batch = lay_out_positions(block_of(*corpus()), KEY.sub_key("word"))
    whole = sum_of(batch)
    parts = [piece for _, piece in cut_by_hash_range(whole, 1)]
    assert len(parts) > 3
    assert max(encoded(BatchCoder(HistogramShard), part) for part in parts) < LIMIT + 2048
    assert by_word(merge_shards(parts)) == by_word(whole)


def test_ids_below_2_to_31_are_told_apart_in_a_pair():
    largest = 2**31 - 1
    ids = np.array([0, 1, 2**16 - 1, 2**16, 2**16 + 1, largest - 1, largest])
    prefixes, seconds = (side.ravel() for side in np.meshgrid(ids, ids))
    keys = elements.pack_pairs(prefixes, seconds)
    assert np.unique(keys).size == ids.size**2
    for given, back in zip((prefixes, seconds), elements.unpack_pairs(keys), strict=True):
        assert back.tolist() == given.tolist()


@pytest.mark.parametrize("pruning", ["both", "single"])
def test_candidates_of_large_sets_are_as_distinct_as_those_of_small_ones(pruning):
    """User, prefix and second do not fit in 63 bits together where sets are large."""
    texts = [["w1", "w2", "w1", "w2", "w1"], ["w2", "w2", "w2", "w2"], ["w1", "w2", "w1", "w2"]]
    names = ["ann", "bob", "eve"]
    positions = lay_out_positions(block_of(texts, names), KEY.sub_key("word"))
    vocabulary = elements.GramSet(
        length=1,
        keys=np.arange(2),
        scores=np.ones(2),
        words=pa.array(["w1", "w2"]),
        vocabulary_size=2,
    )
    batch = prune_invalid(positions, vocabulary, pruning=pruning)
    wide = dataclasses.replace(batch, size=2**31, vocabulary_size=2**31)
    expected, found = (extract_grams(some, length=2) for some in (batch, wide))
    assert found.keys.tolist() == expected.keys.tolist()
    assert found.offsets.tolist() == expected.offsets.tolist()
    assert np.diff(expected.offsets).max() == 2
    wide = dataclasses.replace(positions, size=2**63)
    words = extract_grams(wide, length=1)
    assert words.keys.tolist() == extract_grams(positions, length=1).keys.tolist()


def sum_of(batch):
    grams = extract_grams(batch, length=1)
    return sum_contributions(limit_contributions(grams, max_contributions=9, sub_key=b"k" * 32))


def by_word(shard):
    return dict(zip(shard.words.to_pylist(), shard.weights.tolist(), strict=True))


def words_by_user(parts):
    found = {}
    for part in parts:
        words = part.words.to_pylist()
        for place, user in enumerate(part.users.tolist()):
            ids = part.ids[part.offsets[place] : part.offsets[place + 1]].tolist()
            found[tuple(user)] = [words[word] if word >= 0 else None for word in ids]
    return found


def test_one_giant_word_is_an_element_of_its_own(small):
    """A text may hold a token of any size, and no user may decide whether there is a release."""
    texts = [["x" * (3 * LIMIT), "a", "b"], ["a", "b", "y" * (2 * LIMIT)]]
    block = block_of(texts, ["one", "two"])
    parts = list(bounded_blocks(block))
    batch = lay_out_positions(limit_documents(parts, 10**6, b"", final=True), KEY.sub_key("word"))
    pieces = [p for b in bounded_batches(batch) for _, p in cut_by_hash_range(sum_of(b), 1)]
    assert len(merge_shards(pieces).weights) == 4


def test_the_size_of_a_batch_is_known_without_encoding_it(monkeypatch):
    coder = BatchCoder(DocumentBlock)
    documents = block_of(*corpus())
    size, estimate = encoded(coder, documents), coder.estimate_size(documents)
    assert abs(estimate - size) < 2048 < size
    monkeypatch.setattr(BatchCoder, "encode", None)
    assert coder.get_impl().estimate_size(documents) == estimate
    assert TupleCoder([VarIntCoder(), coder]).get_impl().estimate_size((1, documents)) >= estimate
