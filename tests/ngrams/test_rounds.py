"""Rounds of one length: exact evidence, decisions that are kept, and what goes on to the next round."""

import dataclasses
import itertools
import math
import tracemalloc
from fractions import Fraction

import apache_beam as beam
import numpy as np
import pyarrow as pa
import pytest
from apache_beam.runners.portability.fn_api_runner import FnApiRunner
from hypothesis import assume, given
from hypothesis import strategies as st

from beam_dpne import RunKey, WeightedHistogram
from beam_dpne.elements import encoding
from beam_dpne.mechanism.randomness import keyed_hashes, normals
from beam_dpne.mechanism.rules import UNITS, ClassRule, LengthRule, RoundRule
from beam_dpne.mechanism.thresholds import evidence_noise, noisy_cells, scores
from beam_dpne.ngrams import adaptive, decisions
from beam_dpne.ngrams.decisions import (
    decide_round,
    merge_present,
    noise_bits,
    present_part,
    released_part,
)
from beam_dpne.ngrams.elements import ROOT
from beam_dpne.ngrams.histogram import merge_shards, shard_open
from beam_dpne.steps import Contributions, GramSet, HistogramShard
from tests.support.grams import decide
from tests.support.pipelines import keep

KEY = RunKey(bytes(range(32)))
COUNT = 3000


def rule_of(length: int, fraction: float = 0.3, rounds: int = 3) -> LengthRule:
    own = adaptive.gram_rounds(fraction, adaptive.GRAM_ROUNDS[rounds])
    if length == 1:
        own = adaptive.vocabulary_rounds(allotment=2**56, delta=0.2, max_contributions=3)
    return LengthRule(
        length=length, noise_stddev=1.0, classes=(ClassRule(rounds=own, valid=COUNT),)
    )


def random_bits(rng, count: int) -> np.ndarray:
    return rng.integers(0, 2**64, (count, 2), dtype=np.uint64)


# Evidence.


@given(
    st.lists(st.integers(0, 2**22), min_size=1, max_size=3),
    st.integers(-(2**38), 2**38),
    st.floats(0.3, 9),
    st.lists(st.integers(0, 2**60), min_size=3, max_size=3),
    st.floats(-40, 40),
)
def test_cells_are_those_of_exact_fractions(loadings, threshold, stddev, weights, noise):
    """Also where the evidence has 80 bits, so that floating point would lose the cell."""
    rule = RoundRule(
        loadings=tuple(loadings),
        loading_unit=2**20,
        evidence_stddev=stddev,
        threshold_units=threshold,
        null_probability=0.1,
    )
    columns = [np.array([weight]) for weight in weights[: len(loadings)]]
    evidence = sum(
        Fraction(loading, 2**20) * weight
        for loading, weight in zip(loadings, weights, strict=False)
    )
    distance = (evidence - threshold) / rule.cell_units
    exact = distance + Fraction(noise) * UNITS / rule.cell_units
    # On a border the rounding of the noise itself decides.
    assume(abs(exact - round(exact)) > Fraction(1, 10**9))
    (cell,) = noisy_cells(columns, np.array([noise]), rule)
    assert cell == math.ceil(exact) - 1


@pytest.mark.parametrize("threshold", [7, -(2**40) - 3, 2**36 + 11])
def test_evidence_of_huge_weights_on_a_border_belongs_to_the_cell_below(threshold):
    """Weights of 2^60 units without noise; the first round's makes the evidence a border exactly."""
    loadings = (2**20, 2**19 * 3 + 1, 2**21 - 1)
    rule = RoundRule(
        loadings=loadings,
        loading_unit=2**20,
        evidence_stddev=2.7,
        threshold_units=threshold,
        null_probability=0.1,
    )
    later = np.random.default_rng(2).integers(2**39, 2**40, (2, 500)) << 20
    rest = [loadings[1] * a + loadings[2] * b for a, b in (later >> 20).T.tolist()]
    cells = [other // rule.cell_units + 2**16 for other in rest]
    first = np.array(
        [threshold + c * rule.cell_units - other for c, other in zip(cells, rest, strict=True)]
    )
    for step, above in ((-1, 0), (0, 0), (1, 1), (rule.cell_units, 1), (rule.cell_units + 1, 2)):
        found = noisy_cells([first + step, *later], np.zeros(500), rule)
        assert found.tolist() == [cell - 1 + above for cell in cells]


def test_the_noise_of_a_round_adds_the_loaded_noise_of_the_rounds_before():
    rng = np.random.default_rng(3)
    bits = [random_bits(rng, 1000) for _ in range(3)]
    for number, own in enumerate(rule_of(2).rounds, start=1):
        expected = sum(
            loading / 2**20 * normals(some)
            for loading, some in zip(own.loadings, bits, strict=False)
        )
        noise = evidence_noise(bits[:number], own, 1.0)
        np.testing.assert_allclose(noise, expected, rtol=1e-14, atol=1e-14)
        np.testing.assert_allclose(
            evidence_noise(bits[:number], own, 2.5), 2.5 * noise, rtol=1e-14, atol=1e-13
        )
    with pytest.raises(ValueError, match="zip"):
        evidence_noise(bits[:2], rule_of(2).rounds[2], 1.0)


# Decisions.


def shard_of(length: int, weights, **columns) -> HistogramShard:
    weights = np.asarray(weights, np.int64)
    if length == 1:
        words = [f"w{place}" for place in range(weights.size)]
        columns["words"] = pa.array(words)
        columns["word_hashes"] = keyed_hashes(
            KEY.sub_key("word"), [word.encode() for word in words]
        )
    return HistogramShard(length=length, keys=np.arange(weights.size), weights=weights, **columns)


def names_of(shard) -> list:
    return shard.keys.tolist() if shard.words is None else shard.words.to_pylist()


def next_round(shard: HistogramShard, weight: int) -> HistogramShard:
    """The shard as the next round's histogram, if every open gram gets this weight."""
    weights = np.where(shard.found > 0, 0, weight)
    return dataclasses.replace(shard, weights=weights)


@pytest.mark.parametrize("length", [1, 2, 4])
def test_what_was_found_or_closed_is_never_looked_at_again(length):
    """Found grams keep round and cell, closed ones are gone, whatever they would get later."""
    rule = rule_of(length)
    rng = np.random.default_rng(5)
    shard = shard_of(length, rng.integers(0, 2**33, COUNT))
    states = []
    for number in range(1, len(rule.rounds)):
        shard = decide_round(shard, rule=rule, run_key=KEY)
        assert (shard.round, shard.earlier.shape) == (number + 1, (number, len(names_of(shard))))
        cells = shard.cells[shard.found == 0]
        assert (cells >= rule.rounds[number - 1].cut_cell).all()
        if length > 1:
            assert (cells < 0).all()
        assert (shard.cells[shard.found > 0] >= 0).all()
        states.append(
            {
                name: (found, cell)
                for name, found, cell in zip(
                    names_of(shard), shard.found.tolist(), shard.cells.tolist(), strict=True
                )
            }
        )
        shard = next_round(shard, 2**31)
    released = decide(shard, rule=rule, run_key=KEY)
    names = names_of(released)
    by_name = dict(zip(names, released.scores.tolist(), strict=True))
    for before, after in itertools.pairwise(states):
        assert after.keys() < before.keys()
    for number, state in enumerate(states, start=1):
        assert {found for found, _ in state.values()} == set(range(number + 1))
        for name, (found, cell) in state.items():
            if found:
                (score,) = scores(np.array([cell]), rule.rounds[found - 1])
                assert by_name[name] == score
                assert all(later[name] == (found, cell) for later in states[number:])
    assert by_name.keys() <= states[0].keys()
    assert len(by_name) > sum(found > 0 for found, _ in states[-1].values())


@pytest.mark.parametrize("length", [1, 2])
def test_a_decision_is_that_of_the_noise_of_all_rounds_so_far(length):
    """Shards decided round by round, against evidence computed at once."""
    rule = rule_of(length)
    rng = np.random.default_rng(6)
    weights = [rng.integers(1, 2**33, COUNT) for _ in rule.rounds]
    shard = shard_of(length, weights[0])
    names = names_of(shard)
    numbers = range(1, len(rule.rounds) + 1)
    bits = [noise_bits(shard, KEY, number) for number in numbers]
    open_, found = np.ones(COUNT, bool), np.zeros(COUNT, int)
    for number, own in enumerate(rule.rounds, start=1):
        cells = noisy_cells(weights[:number], evidence_noise(bits[:number], own, 1.0), own)
        found[open_ & (cells >= 0)] = number
        open_ &= (cells < 0) & (cells >= own.cut_cell)
        after = decide_round(shard, rule=rule, run_key=KEY)
        present = [
            name
            for name, is_open, round_ in zip(names, open_, found, strict=True)
            if is_open or round_
        ]
        assert names_of(after) == present
        rows = [names.index(name) for name in present]
        assert after.found.tolist() == found[rows].tolist()
        if number < len(rule.rounds):
            shard = dataclasses.replace(after, weights=weights[number][rows])
    assert {*numbers} <= {*found.tolist()}


def test_a_word_is_found_only_in_a_round_in_which_it_has_weight():
    """Without weight it stays open, however large its noise; with weight it is found."""
    rule = rule_of(1)
    low = tuple(dataclasses.replace(own, threshold_units=-(2**40)) for own in rule.rounds)
    rule = LengthRule(length=1, noise_stddev=1.0, classes=(ClassRule(rounds=low[:2]),))
    after = decide_round(shard_of(1, [0, 1, 0]), rule=rule, run_key=KEY)
    assert after.found.tolist() == [0, 1, 0]
    last = dataclasses.replace(after, weights=np.array([0, 0, 5]))
    assert decide(last, rule=rule, run_key=KEY).words.to_pylist() == ["w1", "w2"]


def test_the_weight_of_another_round_does_not_let_a_word_be_found():
    """Open after round 1, low threshold in round 2: only a weight sent in round 2 counts."""
    first, second, _ = rule_of(1).rounds
    first = dataclasses.replace(first, threshold_units=2**45, cut_cell=-(2**40))
    second = dataclasses.replace(second, threshold_units=-(2**40))
    rule = LengthRule(length=1, noise_stddev=1.0, classes=(ClassRule(rounds=(first, second)),))
    after = decide_round(shard_of(1, [2**33, 1, 0, 0]), rule=rule, run_key=KEY)
    assert after.found.tolist() == [0, 0, 0, 0]
    last = dataclasses.replace(after, weights=np.array([0, 0, 1, 2**33]))
    assert decide_round(last, rule=rule, run_key=KEY).found.tolist() == [0, 0, 2, 2]
    assert decide(last, rule=rule, run_key=KEY).words.to_pylist() == ["w2", "w3"]


def test_spurious_grams_that_somebody_holds_are_dropped_though_they_are_closed():
    """Held grams are dropped in round 1; later, when most are closed, no other one is."""
    rule = rule_of(2)
    drawn = HistogramShard(
        length=2,
        round=2,
        keys=np.arange(0, 2 * COUNT, 2),
        weights=np.zeros(COUNT, np.int64),
        earlier=np.zeros((1, COUNT), np.int64),
        cells=np.arange(COUNT),
        found=np.full(COUNT, 2, np.int8),
        rule=rule,
    )
    shard = decisions.decide(shard_of(2, np.zeros(COUNT)), drawn, run_key=KEY)
    unheld = list(range(COUNT + COUNT % 2, 2 * COUNT, 2))
    for _ in range(2):
        shard = next_round(shard, 0)
        assert shard.keys[shard.keys >= COUNT].tolist() == unheld
        shard = decide_round(shard, rule=rule, run_key=KEY)
    released = released_part(shard)
    assert set(released.keys.tolist()) - set(range(COUNT)) == set(unheld)
    assert np.unique(released.keys).size == released.keys.size
    by_key = dict(zip(released.keys.tolist(), released.scores.tolist(), strict=True))
    own = scores(np.arange(COUNT), rule.rounds[1])
    assert all(by_key[key] == own[key // 2] for key in unheld)


# From round to round.


def open_pieces(length: int):
    rule = rule_of(length)
    rng = np.random.default_rng(7)
    shard = shard_of(length, rng.integers(0, 2**33, 300))
    if length > 1:
        shard = dataclasses.replace(shard, classes=rng.integers(0, 9, 300).astype(np.int16))
    after = decide_round(shard, rule=rule, run_key=KEY)
    return after, [piece for _, piece in shard_open(after)]


def sums_of_a_round(after: HistogramShard, rows: np.ndarray) -> HistogramShard:
    """Sums of users' weights 1, 2, … of round 2, for these grams of a shard."""
    is_words = after.words is not None
    return HistogramShard(
        length=after.length,
        round=2,
        keys=np.arange(rows.size) if is_words else after.keys[rows],
        weights=np.arange(1, rows.size + 1),
        words=after.words.take(pa.array(rows)) if is_words else None,
        word_hashes=after.word_hashes[rows] if is_words else None,
    )


def rows_of(shard: HistogramShard) -> dict:
    """All that a shard of round 2 says about each of its grams."""
    columns = [shard.weights, shard.earlier[0], shard.found, shard.cells]
    if shard.classes is not None:
        columns.append(shard.classes)
    rows = zip(*(column.tolist() for column in columns), strict=True)
    return dict(zip(names_of(shard), rows, strict=True))


@pytest.mark.parametrize("length", [1, 3])
def test_weights_of_a_round_meet_the_grams_that_are_open(length):
    after, pieces = open_pieces(length)
    rows = np.flatnonzero(after.found == 0)[::3]
    sums = sums_of_a_round(after, rows)
    expected = np.zeros(after.keys.size, np.int64)
    expected[rows] = 2 * np.arange(1, rows.size + 1)
    for order in ([*pieces, sums, sums], [sums, *pieces, sums], [sums, sums, *pieces]):
        merged = merge_shards(order)
        assert names_of(merged) == names_of(after)
        assert merged.weights.tolist() == expected.tolist()
        assert merged.earlier.tolist() == after.earlier.tolist()
        assert merged.found.tolist() == after.found.tolist()
        assert merged.rule == after.rule
    assert merge_shards(pieces).weights.tolist() == [0] * after.keys.size


@pytest.mark.parametrize("length", [1, 3])
def test_open_grams_may_come_back_in_any_order(length, monkeypatch):
    """The pieces of a shard that is cut for the shuffle arrive in any order."""
    monkeypatch.setattr(encoding, "MAX_ELEMENT_BYTES", 2048)
    after, pieces = open_pieces(length)
    assert len(pieces) > 3
    rows = np.flatnonzero(after.found == 0)
    sums = sums_of_a_round(after, rows)
    weights = np.zeros(after.keys.size, np.int64)
    weights[rows] = sums.weights
    expected = rows_of(dataclasses.replace(after, weights=weights))
    for order in (pieces, pieces[::-1], pieces[1:] + pieces[:1]):
        merged = merge_shards([*order, sums])
        assert (np.diff(merged.keys) > 0).all()
        assert rows_of(merged) == expected


@pytest.mark.parametrize("length", [1, 3])
def test_weights_for_grams_that_are_not_open_are_refused(length):
    _, pieces = open_pieces(length)
    stray = shard_of(length, [1] * 400, round=2)
    with pytest.raises(ValueError, match="only to grams that are open"):
        merge_shards([*pieces, stray])
    with pytest.raises(ValueError, match="need what DecideRound left open"):
        merge_shards([stray])


@pytest.mark.parametrize("length", [1, 2])
def test_what_is_present_is_sorted_and_says_found_or_the_cell(length):
    after, _ = open_pieces(length)
    part = present_part(after)
    middle = len(part) // 2

    def slice_of(rows):
        return dataclasses.replace(
            part,
            keys=part.keys[rows],
            cells=part.cells[rows],
            found=part.found[rows],
            words=None if part.words is None else part.words[rows],
        )

    parts = [slice_of(slice(middle, None)), slice_of(slice(None, middle))]
    merged = merge_present(parts, dataclasses.replace(ROOT, length=length - 1), 1)
    names = sorted(names_of(after), key=lambda name: name.encode() if length == 1 else name)
    assert names_of(merged) == names
    by_name = dict(zip(names_of(after), zip(after.found, after.cells, strict=True), strict=True))
    for name, found, cell in zip(names, merged.found, merged.cells, strict=True):
        was_found, place = by_name[name]
        assert (found, cell) == ((1, 0) if was_found else (0, place))


def test_sorting_what_stands_holds_one_shard_at_a_time():
    """What stands is the largest set of a run, and a shard has 35 bytes for each of its 15."""
    rng = np.random.default_rng(3)

    def shards():
        for _ in range(40):
            keys = np.sort(rng.integers(0, 2**62, 10_000))
            buffer = np.zeros((35, keys.size), np.int8)
            yield HistogramShard(
                length=2,
                keys=keys,
                weights=np.zeros_like(keys),
                found=buffer[0],
                cells=np.frombuffer(buffer[1:9], np.int64),
                classes=np.frombuffer(buffer[9:11], np.int16),
            )

    tracemalloc.start()
    merged = merge_present(map(present_part, shards()), dataclasses.replace(ROOT, length=1), 1)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    # 15 bytes of the set, 8 of its order, 4 of one sorted column; a few shards of a 40th each.
    assert len(merged) == 400_000
    assert (np.diff(merged.keys) > 0).all()
    assert peak < 30 * len(merged)


def test_grams_of_two_words_and_more_are_decided_together_with_spurious_ones():
    """Without them a released n-gram tells that somebody holds it."""
    with pytest.raises(ValueError, match="spurious=… of SampleSpurious"):
        decisions.decide(shard_of(2, [1]), run_key=KEY)
    with pytest.raises(ValueError, match="rule=rule_for"):
        decisions.decide(shard_of(1, [1]), run_key=KEY)
    grams = Contributions(
        length=2,
        users=np.array([[1, 2]], np.uint64),
        offsets=np.array([0, 1]),
        keys=np.array([7]),
        weights=np.array([2**32]),
    )
    with (
        pytest.raises(Exception, match="WeightedHistogram needs previous="),
        beam.Pipeline(runner=FnApiRunner()) as pipeline,
    ):
        _ = pipeline | beam.Create([grams]) | WeightedHistogram()


def test_an_early_round_releases_nothing():
    """Spurious grams of later rounds are found already, and held ones are not."""
    after = decide_round(shard_of(2, [0] * 9), rule=rule_of(2), run_key=KEY)
    with pytest.raises(ValueError, match="takes the last round, 3, got round 1"):
        released_part(after)


def test_every_hash_range_is_decided_also_one_in_which_nobody_holds_anything():
    """Else spurious n-grams would be missing there, and the others would be known to be held."""
    grams = Contributions(
        length=2,
        users=np.array([[1, 2]], np.uint64),
        offsets=np.array([0, 1]),
        keys=np.array([7]),
        weights=np.array([UNITS]),
    )
    words = GramSet(length=1, keys=np.arange(9), scores=np.ones(9), vocabulary_size=9)
    with beam.Pipeline(runner=FnApiRunner()) as pipeline:
        previous = pipeline | "S_1" >> beam.Create([words])
        weighted = WeightedHistogram(previous=previous, histogram_ranges=5)
        shards = keep(pipeline | beam.Create([grams]) | weighted)
    assert sorted(shard.hash_range for shard in shards) == [(number, 5) for number in range(5)]
