"""ExtractGrams and PruneInvalid: which n-grams of a user are candidates, and which positions go on."""

import itertools

import apache_beam as beam
import numpy as np
import pyarrow as pa
import pytest
from apache_beam.runners.portability.fn_api_runner import FnApiRunner
from apache_beam.testing.util import assert_that

from beam_dpne import ExtractGrams, GramSet, PruneInvalid, UserBatch
from beam_dpne.ngrams.elements import pack_pairs, unpack_pairs

# Two users: "a b c a" and, in two documents, "b" and "a b".
WORDS = UserBatch(
    length=0,
    size=3,
    users=np.array([[1, 2], [3, 4]], np.uint64),
    words=pa.array(["c", "a", "b"]),
    word_hashes=np.array([[5, 6], [7, 8], [9, 10]], np.uint64),
    offsets=np.array([0, 5, 10]),
    ids=np.array([1, 2, 0, 1, -1, 2, -1, 1, 2, -1], np.int32),
)
# "a" and "b" were released, "c" was not.
S_1 = GramSet(
    length=1,
    keys=np.arange(2),
    scores=np.ones(2),
    words=pa.array(["a", "b"]),
    parent_size=1,
    vocabulary_size=2,
)


def grams_of(contributions):
    """Each user's candidates, as tuples of ids, or as words at length 1."""
    keys = contributions.keys
    if contributions.words is not None:
        named = [(word,) for word in contributions.words.take(pa.array(keys)).to_pylist()]
    else:
        named = list(zip(*(ids.tolist() for ids in unpack_pairs(keys)), strict=True))
    starts = contributions.offsets.tolist()
    return [sorted(named[a:b]) for a, b in itertools.pairwise(starts)]


def test_candidates_of_length_1_are_a_users_distinct_words():
    with beam.Pipeline(runner=FnApiRunner()) as pipeline:
        grams = pipeline | beam.Create([WORDS]) | ExtractGrams(length=1) | beam.Map(grams_of)

        def check(found):
            assert found == [[[("a",), ("b",), ("c",)], [("a",), ("b",)]]]

        assert_that(grams, check)


def pruned_words(pruning="both"):
    def prune(pipeline):
        released = pipeline | "S_1" >> beam.Create([S_1])
        users = pipeline | "users" >> beam.Create([WORDS])
        return users | PruneInvalid(released=released, pruning=pruning)

    return prune


def test_positions_that_can_begin_nothing_longer_and_users_without_any_are_dropped():
    """Of "a b c a" the second "a" has no released neighbour; a border follows each run."""
    with beam.Pipeline(runner=FnApiRunner()) as pipeline:
        users = pruned_words()(pipeline)

        def check(batches):
            (batch,) = batches
            assert (batch.length, batch.size, batch.vocabulary_size) == (1, 2, 2)
            assert batch.users.tolist() == [[1, 2], [3, 4]]
            assert batch.ids.tolist() == [0, 1, -1, 0, 1, -1]
            assert batch.offsets.tolist() == [0, 3, 6]

        assert_that(users, check)


@pytest.mark.parametrize("pruning", ["both", "single"])
def test_candidates_of_length_2_are_neighbouring_released_words_of_one_document(pruning):
    """ "b" and "a" of the second user are in two documents: "b a" is no candidate."""
    with beam.Pipeline(runner=FnApiRunner()) as pipeline:
        users = pruned_words(pruning)(pipeline)
        grams = users | ExtractGrams(length=2) | beam.Map(grams_of)

        def check(found):
            assert found == [[[(0, 1)], [(0, 1)]]]

        assert_that(grams, check)


def test_a_longer_candidate_has_a_released_prefix_and_a_released_suffix():
    """Of "a b a b" with "a b" and "b a" released, both trigrams; without "b a", none."""
    text = UserBatch(
        length=1,
        size=2,
        users=np.array([[1, 2]], np.uint64),
        offsets=np.array([0, 5]),
        ids=np.array([0, 1, 0, 1, -1], np.int32),
        vocabulary_size=2,
    )
    both = np.array([0, 1]), np.array([1, 0])
    for (firsts, seconds), expected in ((both, [[[(0, 1), (1, 0)]]]), (([0], [1]), [])):
        keys = pack_pairs(np.array(firsts), np.array(seconds))
        bigrams = GramSet(
            length=2, keys=keys, scores=np.ones(keys.size), parent_size=2, vocabulary_size=2
        )
        with beam.Pipeline(runner=FnApiRunner()) as pipeline:
            released = pipeline | "S_2" >> beam.Create([bigrams])
            users = pipeline | beam.Create([text]) | PruneInvalid(released=released)
            grams = users | ExtractGrams(length=3) | beam.Map(grams_of)

            def check(found, expected=expected):
                assert found == expected

            assert_that(grams, check)


def test_lengths_and_pruning_rules_are_checked_when_the_pipeline_is_built():
    with pytest.raises(ValueError, match="length must be at least 1"):
        ExtractGrams(length=0)
    with pytest.raises(ValueError, match="pruning must be 'both' or 'single'"):
        PruneInvalid(released=None, pruning="all")  # type: ignore[arg-type]


def test_positions_of_another_length_are_refused():
    with (
        pytest.raises(Exception, match="needs ids of length 1"),
        beam.Pipeline(runner=FnApiRunner()) as pipeline,
    ):
        _ = pipeline | beam.Create([WORDS]) | ExtractGrams(length=2)
