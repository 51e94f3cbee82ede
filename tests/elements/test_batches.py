"""Elements have coders and schemas, fit into what an engine takes, and are summed in bundles."""

import collections
import dataclasses
import pickle

import apache_beam as beam
import numpy as np
import pyarrow as pa
import pytest
from apache_beam.coders import TupleCoder, VarIntCoder
from apache_beam.pipeline import PipelineVisitor
from apache_beam.typehints.schemas import named_fields_from_element_type

import beam_dpne
from beam_dpne import (
    NgramProbability,
    ReleasedItem,
    ReleasedNgram,
    RunKey,
    SetUnionPlan,
    WeightedHistogram,
)
from beam_dpne.documents.blocks import (
    bounded_batches,
    bounded_blocks,
    encode_documents,
    hash_users,
    lay_out_positions,
    limit_documents,
)
from beam_dpne.elements import bundles, encoding
from beam_dpne.elements.batches import (
    DocumentBlock,
    RowSums,
    UserBatch,
    WaitingParts,
    add_range,
    merge_piece,
    table_of_sums,
)
from beam_dpne.elements.bundles import SumBundle, SumRowsOfBundle
from beam_dpne.elements.coders import BatchCoder
from beam_dpne.elements.rows import ITEM_SCHEMA, PROBABILITY_SCHEMA, ROW_SCHEMA
from beam_dpne.mechanism.randomness import keyed_hashes
from beam_dpne.ngrams import elements
from beam_dpne.ngrams.candidates import extract_grams, prune_invalid
from beam_dpne.ngrams.contributions import limit_contributions
from beam_dpne.ngrams.elements import HistogramShard
from beam_dpne.ngrams.histogram import cut_by_hash_range, merge_shards, sum_contributions
from beam_dpne.ngrams.keys import pack_pairs, unpack_pairs
from beam_dpne.set_union.elements import ItemSums
from beam_dpne.steps import Contributions, ReleaseItems

KEY = RunKey(bytes(32))
BUDGET = {"epsilon": 4.0, "delta": 1e-6}
WORDS = {
    "words": pa.array(["a", "b", "c", "d"]),
    "word_hashes": keyed_hashes(KEY.sub_key("word"), [b"a", b"b", b"c", b"d"]),
}


# Batches of one user with two of four words or n-grams, of which all users have the last.


def one_user(number: int) -> dict[str, np.ndarray]:
    return {"users": np.array([[number, number]], np.uint64), "offsets": np.array([0, 2])}


def held(number: int) -> np.ndarray:
    return np.array([number % 3, 3], np.int32)


def words_of(number: int) -> Contributions:
    return grams_of(number, length=1, **WORDS)


def grams_of(number: int, **others) -> Contributions:
    columns = {"keys": held(number).astype(np.int64), "weights": np.array([1, 10**number])}
    return Contributions(**{"length": 2} | columns | others, **one_user(number))


def items_of(number: int) -> DocumentBlock:
    return DocumentBlock(codes=held(number), **one_user(number), **WORDS)


# The transforms that sum them, applied to nothing.


def histogram(pipeline: beam.Pipeline) -> WeightedHistogram:
    return WeightedHistogram(previous=pipeline | "Previous" >> beam.Create([]))


def set_union(pipeline: beam.Pipeline) -> ReleaseItems:
    plan = SetUnionPlan(**BUDGET, policy="weighted_gaussian", count_share=0)
    return ReleaseItems(plan=plan, run_key=KEY)


def sum_bundle_of(transform_in) -> SumBundle:
    """The one step of a transform that sums bundles, as it is in the pipeline."""
    found = []

    class Steps(PipelineVisitor):
        def visit_transform(self, transform_node):
            step = transform_node.transform
            if isinstance(step, beam.ParDo) and isinstance(step.fn, SumBundle):
                found.append(step.fn)

    pipeline = beam.Pipeline()
    _ = pipeline | beam.Create([]) | transform_in(pipeline)
    pipeline.visit(Steps())
    (step,) = found
    return step


def total(pieces: list) -> collections.Counter:
    """The sum of each name and column over all pieces."""
    sums = collections.Counter()
    for _, piece in pieces:
        match piece:
            case HistogramShard():
                names = piece.keys if piece.words is None else piece.words
                values = piece.weights
            case ItemSums():
                names, values = piece.words, piece.sums
        for name, row in zip(names.tolist(), values.reshape(len(names), -1), strict=True):
            sums.update({(name, column): value for column, value in enumerate(row.tolist())})
    return sums


@pytest.mark.parametrize(
    ("transform_in", "batch_of"),
    [
        pytest.param(histogram, words_of, id="words"),
        pytest.param(histogram, grams_of, id="n-grams"),
        pytest.param(set_union, items_of, id="items"),
    ],
)
def test_sums_that_are_sent_before_the_end_of_a_bundle_are_sent_once(
    transform_in, batch_of, monkeypatch
):
    step = sum_bundle_of(transform_in)

    def sent():
        step.start_bundle()
        early = [piece for number in range(5) for piece in step.process(batch_of(number))]
        return early, [windowed.value for windowed in step.finish_bundle()]

    # A bundle that failed leaves nothing to the next one, which repeats it.
    step.start_bundle()
    assert not list(step.process(batch_of(0)))
    none, whole = sent()
    monkeypatch.setattr(bundles, "MAX_WAITING", 2)
    early, late = sent()
    assert not none
    assert early
    assert late
    assert total(early + late) == total(whole)


@pytest.mark.parametrize(
    ("most_rows", "early"),
    [
        pytest.param(2**24, [], id="at the end of the bundle"),
        pytest.param(2**18, [(0, [5], [20]), (7, [7 * 2**17 + 3], [5])], id="or at once"),
    ],
)
def test_sums_of_rows_are_sent_once(most_rows, early, monkeypatch):
    monkeypatch.setattr(bundles, "MOST_ROWS", most_rows)
    step = SumRowsOfBundle(lambda sums: sums)
    batches = [
        RowSums(rows=np.array([0, 5, 2**17 - 1]), sums=np.array([1, 2, 3])),
        RowSums(rows=np.array([5, 7 * 2**17 + 3, 5]), sums=np.array([10, 5, 10])),
        RowSums(rows=np.array([2**17, 2**17, 5]), sums=np.array([4, -4, 1])),
    ]

    def plain(pieces) -> list[tuple[int, list[int], list[int]]]:
        return [(number, sums.rows.tolist(), sums.sums.tolist()) for number, sums in pieces]

    # A bundle that failed leaves nothing to the next one, which repeats it.
    step.start_bundle()
    assert not list(step.process(batches[0]))
    step.start_bundle()
    at_once = [piece for batch in batches for piece in step.process(batch)]
    at_the_end = [windowed.value for windowed in step.finish_bundle()]
    assert plain(at_once) == early
    assert not list(step.finish_bundle())
    merged: dict[int, list[RowSums]] = {}
    for number, sums in (*at_once, *at_the_end):
        merged.setdefault(number, []).append(sums)
    # A row whose sum is 0 is not there.
    assert plain((number, merge_piece(number, parts)) for number, parts in merged.items()) == [
        (0, [0, 5, 2**17 - 1], [1, 23, 3]),
        (7, [7 * 2**17 + 3], [5]),
    ]


@pytest.mark.parametrize(
    ("sizes", "joined"),
    [
        pytest.param([4, 4], [], id="up to the limit they wait"),
        pytest.param([4, 4, 1, 1], [9], id="above it they are joined"),
        pytest.param([9, 8, 1, 1, 9], [9, 19], id="large ones wait until they have doubled"),
    ],
)
def test_waiting_parts_are_joined_above_a_limit_that_grows_with_them(sizes, joined):
    waiting = WaitingParts[str]("".join, len, 8)
    parts = [str(number) * size for number, size in enumerate(sizes)]
    found = [waiting.size for part in parts if waiting.add(part)]
    assert found == joined
    assert "".join(waiting.parts) == "".join(parts)
    assert waiting.size == sum(sizes)


@pytest.mark.parametrize(
    ("row_type", "schema"),
    [
        (ReleasedNgram, ROW_SCHEMA),
        (ReleasedItem, ITEM_SCHEMA),
        (NgramProbability, PROBABILITY_SCHEMA),
    ],
)
def test_rows_have_the_fields_of_the_files_and_a_schema(row_type, schema):
    assert list(row_type._fields) == schema.names
    assert [name for name, _ in named_fields_from_element_type(row_type)] == schema.names
    assert isinstance(beam.coders.registry.get_coder(row_type), beam.coders.RowCoder)


def test_every_registered_batch_has_one_coder_which_says_what_it_codes():
    for name in beam_dpne.__all__:
        getattr(beam_dpne, name)
    kinds = [kind for kind in beam.coders.registry.custom_types if dataclasses.is_dataclass(kind)]
    kinds = [kind for kind in kinds if kind.__module__.startswith("beam_dpne.")]
    assert len(kinds) > 10
    for kind in kinds:
        coder = beam.coders.registry.get_coder(kind)
        assert type(coder) is BatchCoder
        assert coder.to_type_hint() is kind
        assert not coder.is_deterministic()
        assert pickle.loads(pickle.dumps(coder)) == coder


LIMIT = 4096


@pytest.fixture
def small(monkeypatch):
    """Elements of 4 KiB, so that small corpora must be cut."""
    monkeypatch.setattr(encoding, "MAX_ELEMENT_BYTES", LIMIT)


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
    keys = pack_pairs(prefixes, seconds)
    assert np.unique(keys).size == ids.size**2
    for given, back in zip((prefixes, seconds), unpack_pairs(keys), strict=True):
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
    expected, found = (extract_grams(some) for some in (batch, wide))
    assert found.keys.tolist() == expected.keys.tolist()
    assert found.offsets.tolist() == expected.offsets.tolist()
    assert np.diff(expected.offsets).max() == 2
    wide = dataclasses.replace(positions, size=2**63)
    words = extract_grams(wide)
    assert words.keys.tolist() == extract_grams(positions).keys.tolist()


def sum_of(batch):
    grams = extract_grams(batch)
    return sum_contributions(limit_contributions(grams, max_contributions=9, run_key=KEY))


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
    assert 2048 < size < estimate < 2 * size
    monkeypatch.setattr(BatchCoder, "encode", None)
    assert coder.get_impl().estimate_size(documents) == estimate
    assert TupleCoder([VarIntCoder(), coder]).get_impl().estimate_size((1, documents)) >= estimate


@pytest.mark.parametrize(
    ("ids", "size"),
    [([-1, 254], 1), ([-1, 40_000], 2), ([5, 5], 1), ([-(2**31), 2**31 - 1], 4), ([], 4)],
)
def test_integers_travel_in_few_bytes_and_are_the_same_afterwards(ids, size):
    left = np.array([-(2**63), 2**63 - 1])
    batch = UserBatch(
        length=1, size=9, ids=np.tile(np.array(ids, np.int32), 500), left=left, **one_user(2**63)
    )
    coder = BatchCoder(UserBatch)
    encoded = coder.encode(batch)
    assert len(encoded) - 1000 * (len(ids) > 0) * size < 500
    decoded = coder.decode(encoded)
    for name in ("users", "offsets", "ids", "left"):
        before, after = getattr(batch, name), getattr(decoded, name)
        assert after.dtype == before.dtype
        assert after.tolist() == before.tolist()
        assert not after.flags.writeable


@pytest.mark.parametrize(
    ("left", "size"),
    [
        pytest.param([3 << 32 | 7, 9 << 32 | 80], 2, id="pairs of small numbers"),
        pytest.param([-(5 << 32) - 1, 1000 << 32 | 70_000], 6, id="also below 0"),
        pytest.param([0, 2**63 - 1], 8, id="large halves"),
        pytest.param([-1, 2**63 - 2], 8, id="the largest distance"),
        pytest.param([-1, 2**63 - 1], 8, id="a distance that is larger"),
    ],
)
def test_integers_of_two_small_halves_travel_in_few_bytes(left, size):
    wide = np.tile(np.array(left), 501)
    batch = UserBatch(length=1, size=9, ids=np.zeros(0, np.int32), left=wide, **one_user(2**63))
    coder = BatchCoder(UserBatch)
    encoded = coder.encode(batch)
    assert size * wide.size <= len(encoded) < size * wide.size + 500
    assert coder.decode(encoded).left.tolist() == wide.tolist()


@pytest.mark.parametrize("ranges", [1, 2, 3, 16])
def test_ranges_of_rows_are_added_up_to_what_all_rows_are(ranges):
    rng = np.random.default_rng(3)
    parts = [
        RowSums(rows=np.sort(rng.choice(50, size, replace=False)), sums=rng.integers(-9, 9, size))
        for size in (20, 0, 1, 50)
    ]
    found = [add_range(parts, number, ranges) for number in range(ranges)]
    rows = np.concatenate([each.rows for each in found])
    assert (np.diff(rows) > 0).all()
    assert (table_of_sums(found, 50) == table_of_sums(parts, 50)).all()
    assert all((each.sums != 0).all() for each in found)


def test_a_range_of_no_rows_has_no_sums():
    nothing = RowSums(rows=np.zeros(0, np.int64), sums=np.zeros(0, np.int64))
    assert len(add_range([nothing], 0, 2)) == len(add_range([], 1, 2)) == 0
