"""One user moves each histogram by at most 1 in ℓ2, in exact integers.

Neighbours are a corpus and the corpus without one user; both are counted given the same S_{k−1}, as
the composition theorem asks.
"""

import collections
import random

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from beam_dpne import GramSet, RunKey, length_rule
from beam_dpne.documents.blocks import (
    encode_documents,
    hash_users,
    lay_out_positions,
    split_by_user,
)
from beam_dpne.mechanism.thresholds import equal_weights
from beam_dpne.ngrams.candidates import extract_grams, prune_invalid
from beam_dpne.ngrams.contributions import limit_contributions
from beam_dpne.ngrams.histogram import cut_by_hash_range, merge_shards, sum_contributions
from beam_dpne.ngrams.keys import pack_pairs

KEY = RunKey(b"sensitivity".ljust(32, b"."))
ONE = 2**64
WORDS = "abcd"
Corpus = dict[str, list[list[str]]]

texts = st.lists(st.text(WORDS, max_size=12).map(list), min_size=1, max_size=3)
corpora = st.dictionaries(st.integers(0, 99).map(str), texts, min_size=1, max_size=6)


@given(
    corpora,
    st.integers(1, 9),
    st.sampled_from(["both", "single"]),
    st.integers(0, 2**32),
    st.integers(1, 4),
)
@settings(max_examples=120, deadline=None)
def test_removing_any_user_moves_every_histogram_by_at_most_one(
    corpus, limit, pruning, seed, partitions
):
    chain = random_chain(seed, pruning)
    whole = histograms(corpus, chain, limit, pruning, partitions)
    for user in corpus:
        rest = {name: own for name, own in corpus.items() if name != user}
        for with_user, without in zip(
            whole, histograms(rest, chain, limit, pruning, partitions), strict=True
        ):
            assert without.keys() <= with_user.keys()
            moves = [with_user[gram] - without.get(gram, 0) for gram in with_user]
            assert sum(move**2 for move in moves) <= ONE
            assert sum(move != 0 for move in moves) <= limit


@given(corpora, st.integers(1, 3), st.sampled_from(["both", "single"]), st.integers(0, 2**32))
@settings(max_examples=150, deadline=None)
def test_every_valid_gram_that_a_user_holds_is_observed_also_at_weight_zero(
    corpus, limit, pruning, seed
):
    chain = random_chain(seed, pruning)
    for length, histogram in enumerate(histograms(corpus, chain, limit, pruning, 2), start=1):
        assert histogram.keys() == held_and_valid(corpus, chain, length, pruning)


def test_the_bound_is_reached_by_a_user_with_a_square_number_of_grams():
    for count in (1, 4, 16, 64):
        corpus = {"ann": [[f"{i:03}" for i in range(count)]]}
        (histogram,) = histograms(corpus, [], count, "both", 1)
        assert sum(weight**2 for weight in histogram.values()) == ONE


def test_a_dropped_gram_is_observed_at_weight_zero():
    (histogram,) = histograms({"ann": [list("abcdefgh")]}, [], 4, "both", 3)
    assert sorted(histogram.values()) == [0] * 4 + [2**31] * 4


def test_equal_weights_fill_the_bound_and_never_pass_it():
    counts = np.array([*range(1, 3000), 10**5, 10**6 + 1, 10**7 - 1])
    for count, weight in zip(counts.tolist(), equal_weights(counts).tolist(), strict=True):
        assert count * weight**2 <= ONE < count * (weight + 1) ** 2


@pytest.mark.parametrize("pruning", ["both", "single"])
def test_a_user_reaches_the_bound_at_every_length(pruning):
    corpus = {"ann": [list("abcabcab")], "bob": [list("bca")]}
    chain = full_chain(list("abc"), pruning)
    for limit in (1, 4):
        whole = histograms(corpus, chain, limit, pruning, 1)
        rest = histograms({"bob": corpus["bob"]}, chain, limit, pruning, 1)
        for with_ann, without in zip(whole, rest, strict=True):
            kept = min(limit, len(with_ann))
            square = sum((with_ann[g] - without.get(g, 0)) ** 2 for g in with_ann)
            assert ONE - 2 * kept * 2**32 < square <= ONE


def histograms(corpus, chain, limit, pruning, partitions) -> list[dict[tuple[str, ...], int]]:
    """H_1, …, H_{len(chain) + 1} given S_1, … = chain, by the package's kernels."""
    names = [(user, text) for user, own in corpus.items() for text in own]
    users = pa.array([user for user, _ in names], pa.string())
    tokens = pa.array([text for _, text in names], pa.list_(pa.string()))
    block = encode_documents(hash_users(users, KEY.sub_key("user")), tokens)
    batches = [
        lay_out_positions(part, KEY.sub_key("word")) for _, part in split_by_user(block, partitions)
    ]
    results = []
    for length in range(1, len(chain) + 2):
        if length > 1:
            batches = [prune_invalid(b, chain[length - 2], pruning=pruning) for b in batches]
        pieces = collections.defaultdict(list)
        for batch in batches:
            limited = limit_contributions(
                extract_grams(batch),
                max_contributions=limit,
                run_key=KEY,
            )
            for shard, piece in cut_by_hash_range(sum_contributions(limited), 3):
                pieces[shard].append(piece)
        merged = [merge_shards(group) for group in pieces.values()]
        results.append(
            {
                gram: weight
                for shard in merged
                for gram, weight in zip(
                    names_of(shard, chain, pruning), shard.weights.tolist(), strict=True
                )
            }
        )
    return results


def names_of(shard, chain, pruning) -> list[tuple[str, ...]]:
    """The grams of a shard as words."""
    if shard.length == 1:
        return [(word,) for word in shard.words.to_pylist()]
    return [words_of_key(key, shard.length, chain, pruning) for key in shard.keys.tolist()]


def words_of_key(key, length, chain, pruning) -> tuple[str, ...]:
    """The words of one packed pair."""
    prefix, second = key >> 32, key & (2**32 - 1)
    if length == 1:
        return (chain[0].words[key].as_py(),)
    previous = chain[length - 2]
    first = words_of_key(int(previous.keys[prefix]), length - 1, chain, pruning)
    if pruning == "single":
        return (*first, chain[0].words[second].as_py())
    return (*first, words_of_key(int(previous.keys[second]), length - 1, chain, pruning)[-1])


def random_chain(seed: int, pruning: str) -> list[GramSet]:
    """S_1, S_2, S_3 chosen at random, each valid given the one before."""
    rng = random.Random(seed)
    return make_chain(list(WORDS), pruning, lambda: rng.random() < 0.7)


def full_chain(words: list[str], pruning: str) -> list[GramSet]:
    """S_1, S_2, S_3 with everything that is valid."""
    return make_chain(words, pruning, lambda: True)


def make_chain(words, pruning, keep) -> list[GramSet]:
    """Released sets of three lengths whose members are kept by a coin."""
    kept = [word for word in words if keep()]
    size = len(kept)
    first = GramSet(
        length=1,
        keys=np.arange(size),
        scores=np.ones(size),
        words=pa.array(kept, pa.string()),
        parent_size=1,
        vocabulary_size=size,
        rule=length_rule(length=1, noise_stddev=1, threshold=1, pruning=pruning),
    )
    chain, grams = [first], [(word,) for word in kept]
    for length in (2, 3):
        pairs = []
        for prefix, gram in enumerate(grams):
            for second, other in enumerate(grams if pruning == "both" else chain_words(kept)):
                fits = pruning == "single" or gram[1:] == other[:-1]
                if fits and keep():
                    pairs.append((prefix, second, (*gram, other[-1])))
        keys = [pack_pairs(np.array([p]), np.array([s]))[0] for p, s, _ in pairs]
        chain.append(
            GramSet(
                length=length,
                keys=np.array(keys, dtype=np.int64),
                scores=np.ones(len(keys)),
                parent_size=len(grams),
                vocabulary_size=size,
                rule=length_rule(length=length, noise_stddev=1, threshold=1, pruning=pruning),
            )
        )
        grams = [gram for _, _, gram in pairs]
    return chain


def chain_words(words: list[str]) -> list[tuple[str, ...]]:
    """S_1 as tuples."""
    return [(word,) for word in words]


def held_and_valid(corpus, chain, length, pruning) -> set[tuple[str, ...]]:
    """The grams of a corpus in V_k, by definition."""
    held = {
        tuple(text[i : i + length])
        for own in corpus.values()
        for text in own
        for i in range(len(text) - length + 1)
    }
    if length == 1:
        return held
    previous = chain[length - 2]
    keys = previous.keys.tolist()
    released = {words_of_key(key, length - 1, chain, pruning) for key in keys}
    vocabulary = set(chain_words(chain[0].words.to_pylist()))
    last = vocabulary if pruning == "single" else released
    tail = -1 if pruning == "single" else 1
    return {g for g in held if g[:-1] in released and g[tail:] in last}
