"""What is released follows the laws that the privacy proof assumes.

Keys come from a fixed family (`run_key`), so these tests always give the same result. Had the keys
been drawn at random, each assertion on a p-value would fail a correct program with probability
`FALSE_FAILURE` = 1e-6; there are fewer than a hundred of them, so all together below 1e-4.
"""

import functools
import hashlib

import numpy as np
import pyarrow as pa
import pytest
from scipy import stats

from beam_dpne import GramSet, HistogramShard, RunKey, length_rule
from beam_dpne.mechanism.randomness import keyed_hashes
from beam_dpne.mechanism.rules import UNITS, LengthRule, RoundRule
from beam_dpne.mechanism.thresholds import evidence_noise, noisy_cells
from beam_dpne.ngrams.keys import pack_pairs
from beam_dpne.ngrams.spurious import sample_spurious
from beam_dpne.ngrams.valid import class_sizes
from tests.support.grams import decide

FALSE_FAILURE = 1e-6
SIGMA = 2.5
DRAWS = 300_000


def run_key(number: int) -> RunKey:
    """Member `number` of a fixed family of keys."""
    return RunKey(hashlib.sha256(f"statistics {number}".encode()).digest())


@pytest.mark.parametrize("length", [1, 2, 5])
def test_release_frequency_is_the_normal_tail(length):
    rule = length_rule(length=length, noise_stddev=SIGMA, threshold=9.7)
    p_values = {}
    for distance in (-3.0, -1.0, -0.004, 0.0, 0.3, 2.0):
        weight = only(rule).threshold_units + round(distance * SIGMA * UNITS)
        released = decide(shard_of(length, weight), rule=rule, run_key=run_key(1))
        chance = stats.norm.cdf((weight - only(rule).threshold_units) / (SIGMA * UNITS))
        p_values[distance] = stats.binomtest(len(released), DRAWS, chance).pvalue
    assert min(p_values.values()) > FALSE_FAILURE, p_values


@pytest.mark.parametrize("length", [1, 3])
def test_scores_are_the_middles_of_cells_with_normal_probabilities(length):
    rule = length_rule(length=length, noise_stddev=SIGMA, threshold=150.2)
    assert only(rule).cell_units == round(SIGMA * 2**32 / 64)
    p_values = {}
    for distance in (-1.5, 0.0, 40.0):
        weight = only(rule).threshold_units + round(distance * SIGMA * UNITS)
        scores = decide(shard_of(length, weight), rule=rule, run_key=run_key(2)).scores
        observed = np.bincount(cells_of(scores, rule))
        borders = np.arange(observed.size + 1) * only(rule).cell_units
        edges = borders + only(rule).threshold_units - weight
        expected = DRAWS * np.diff(stats.norm.cdf(edges / (SIGMA * UNITS)))
        beyond = DRAWS * stats.norm.sf(edges[-1] / (SIGMA * UNITS))
        unreleased = DRAWS * stats.norm.cdf(edges[0] / (SIGMA * UNITS))
        observed = np.append(observed, [0, DRAWS - len(scores)])
        p_values[distance] = chi_squared(observed, np.append(expected, [beyond, unreleased]))
    assert min(p_values.values()) > FALSE_FAILURE, p_values


@pytest.mark.parametrize(("first", "second"), [(2, 3), (2, 7), (4, 5)])
def test_noise_of_one_gram_is_independent_across_lengths(first, second):
    scores = [noisy_scores(length, run_key(3)) for length in (first, second)]
    assert independence(*scores) > FALSE_FAILURE


def test_noise_of_neighbouring_keys_and_run_keys_is_independent():
    scores = noisy_scores(2, run_key(3))
    for other in (np.roll(scores, 1), noisy_scores(2, run_key(4))):
        assert independence(scores, other) > FALSE_FAILURE


@pytest.mark.parametrize(
    ("length", "tail", "pruning"),
    [(2, 0.05, "both"), (2, 0.6, "single"), (3, 0.1, "single"), (3, 0.6, "both")],
)
def test_the_number_of_spurious_grams_is_binomial_and_every_valid_gram_has_its_share(
    length, tail, pruning
):
    assert_each_valid_gram_is_drawn_with_its_chance(length, tail, pruning, runs=2000)


@pytest.mark.slow
@pytest.mark.parametrize("pruning", ["both", "single"])
@pytest.mark.parametrize(("length", "tail"), [(2, 0.02), (2, 0.6), (3, 0.1), (3, 0.6)])
def test_spurious_grams_of_many_runs_are_drawn_with_their_chance(length, tail, pruning):
    assert_each_valid_gram_is_drawn_with_its_chance(length, tail, pruning, runs=20_000)


def assert_each_valid_gram_is_drawn_with_its_chance(length, tail, pruning, runs):
    """Under many keys: how many are drawn at once, and how often each."""
    previous, rule = released_and_rule(length, tail, pruning)
    members = class_sizes(previous, pruning, by_prediction=False)[0]
    chance = rule.classes[0].null_probability
    drawn = [sample_spurious(previous, rule=rule, run_key=run_key(n)).keys for n in range(runs)]
    sizes = np.bincount([len(keys) for keys in drawn], minlength=members + 1)
    expected = runs * stats.binom.pmf(np.arange(members + 1), members, chance)
    assert chi_squared(sizes, expected) > FALSE_FAILURE
    keys, counts = np.unique(np.concatenate(drawn), return_counts=True)
    assert set(keys.tolist()) == all_members(previous, pruning)
    statistic = np.sum((counts - runs * chance) ** 2) / (runs * chance * (1 - chance))
    assert stats.chi2.sf(statistic, members) > FALSE_FAILURE


@pytest.mark.parametrize("tail", [1e-3, 0.05, 0.6])
def test_held_grams_of_weight_zero_and_unheld_grams_are_released_with_one_law(tail):
    """The same V_2 once held by somebody at weight 0 throughout, once held by nobody."""
    words = 600
    members = words**2
    vocabulary = vocabulary_of(words)
    rule = length_rule(length=2, noise_stddev=SIGMA, threshold=SIGMA * stats.norm.isf(tail))
    everything = np.arange(members)
    held = HistogramShard(
        length=2,
        keys=pack_pairs(everything // words, everything % words),
        weights=np.zeros(members, np.int64),
    )
    spurious = sample_spurious(vocabulary, rule=rule, run_key=run_key(5))
    nobody = np.zeros(0, np.int64)
    unheld = HistogramShard(length=2, keys=nobody, weights=nobody)
    released = [
        decide(shard, rule=rule, run_key=run_key(5), drawn=drawn)
        for shard, drawn in ((held, None), (unheld, spurious))
    ]
    counts = [len(part) for part in released]
    for count in counts:
        assert (
            stats.binomtest(count, members, rule.classes[0].null_probability).pvalue > FALSE_FAILURE
        )
    cells = [cells_of(part.scores, rule) for part in released]
    size = max(place.max() for place in cells) + 1
    edges = np.arange(size + 1) * only(rule).cell_units + only(rule).threshold_units
    expected = np.diff(-stats.norm.sf(edges / (SIGMA * UNITS)), append=0)
    expected[-1] = stats.norm.sf(edges[-1] / (SIGMA * UNITS))
    observed = [np.bincount(place, minlength=size + 1) for place in cells]
    for count, cell_counts in zip(counts, observed, strict=True):
        share = expected / rule.classes[0].null_probability
        assert chi_squared(cell_counts, count * share) > FALSE_FAILURE
    enough = np.flatnonzero(sum(observed) > 20)
    table = np.array([cell_counts[enough] for cell_counts in observed])
    assert stats.chi2_contingency(table).pvalue > FALSE_FAILURE


def test_spurious_grams_that_somebody_holds_are_dropped():
    """Half of V_2 is held at weight 0: each half is released with p, and nothing twice."""
    words, tail = 500, 0.3
    vocabulary = vocabulary_of(words)
    rule = length_rule(length=2, noise_stddev=SIGMA, threshold=SIGMA * stats.norm.isf(tail))
    everything = np.arange(words**2)
    held = pack_pairs(everything // words, everything % words)[::2]
    spurious = sample_spurious(vocabulary, rule=rule, run_key=run_key(6))
    shard = HistogramShard(length=2, keys=held, weights=np.zeros(held.size, np.int64))
    released = decide(shard, rule=rule, run_key=run_key(6), drawn=spurious)
    assert np.unique(released.keys).size == released.keys.size
    among = int(np.isin(released.keys, held).sum())
    for count in (among, len(released) - among):
        assert (
            stats.binomtest(count, held.size, rule.classes[0].null_probability).pvalue
            > FALSE_FAILURE
        )


def test_a_held_gram_is_decided_by_its_own_noise_and_not_by_the_spurious_draw():
    vocabulary = vocabulary_of(300)
    rule = length_rule(length=2, noise_stddev=SIGMA, threshold=SIGMA)
    spurious = sample_spurious(vocabulary, rule=rule, run_key=run_key(7))
    for weight in (0, only(rule).threshold_units):
        keys = spurious.keys
        shard = HistogramShard(length=2, keys=keys, weights=np.full(keys.size, weight))
        alone, beside = (
            decide(shard, rule=rule, run_key=run_key(7), drawn=drawn) for drawn in (None, spurious)
        )
        assert alone.keys.tolist() == beside.keys.tolist()
        assert alone.scores.tolist() == beside.scores.tolist()
        assert 0 < len(alone) < keys.size


def test_a_noisy_weight_must_pass_the_threshold_and_not_only_reach_it():
    """U = 1 gives noise of exactly 0; cell c holds (ρ + c·w, ρ + (c + 1)·w]."""
    rule = length_rule(length=2, noise_stddev=SIGMA, threshold=9.7)
    distances = np.array(
        [-only(rule).cell_units, -1, 0, 1, only(rule).cell_units, only(rule).cell_units + 1]
    )
    no_noise = evidence_noise([np.full((6, 2), 2**64 - 1, np.uint64)], only(rule), SIGMA)
    assert not no_noise.any()
    cells = noisy_cells([only(rule).threshold_units + distances], no_noise, only(rule))
    assert cells.tolist() == [-2, -1, -1, 0, 0, 1]


def test_words_without_weight_are_never_released():
    rule = length_rule(length=1, noise_stddev=SIGMA, threshold=-100.0)
    assert len(decide(shard_of(1, 0), rule=rule, run_key=run_key(8))) == 0
    assert len(decide(shard_of(1, 1), rule=rule, run_key=run_key(8))) == DRAWS


def only(rule: LengthRule) -> RoundRule:
    """The one round of a rule."""
    (own,) = rule.rounds
    return own


def shard_of(length: int, weight: int) -> HistogramShard:
    """As many grams as DRAWS, each of one weight."""
    keys, weights = np.arange(DRAWS), np.full(DRAWS, weight)
    if length > 1:
        return HistogramShard(length=length, keys=keys, weights=weights)
    words, hashes = drawn_words()
    return HistogramShard(length=1, keys=keys, weights=weights, words=words, word_hashes=hashes)


@functools.cache
def drawn_words() -> tuple[pa.Array, np.ndarray]:
    """As many words as DRAWS, and their hashes."""
    words = [str(number) for number in range(DRAWS)]
    hashes = keyed_hashes(run_key(0).sub_key("word"), [word.encode() for word in words])
    return pa.array(words), hashes


def noisy_scores(length: int, key: RunKey) -> np.ndarray:
    """The scores of DRAWS grams without weight, all above a very low threshold."""
    rule = length_rule(length=length, noise_stddev=SIGMA, threshold=-30 * SIGMA)
    released = decide(shard_of(length, 0), rule=rule, run_key=key)
    assert len(released) == DRAWS
    return released.scores


def independence(first: np.ndarray, second: np.ndarray) -> float:
    """The p-value of independence in a table of eighths of the normal law."""
    places = [
        np.minimum(7, (8 * stats.norm.cdf(scores / SIGMA)).astype(np.int64))
        for scores in (first, second)
    ]
    table = np.bincount(places[0] * 8 + places[1], minlength=64).reshape(8, 8)
    return float(stats.chi2_contingency(table).pvalue)


def cells_of(scores: np.ndarray, rule) -> np.ndarray:
    """Scores back to cells; fails unless each score is the middle of one."""
    places = (scores * UNITS - only(rule).threshold_units) / only(rule).cell_units - 0.5
    cells = np.rint(places)
    np.testing.assert_allclose(places, cells, atol=1e-6)
    assert cells.min(initial=0) >= 0
    return cells.astype(np.int64)


def vocabulary_of(size: int) -> GramSet:
    """S_1 of so many words, of which only the number matters here."""
    return GramSet(
        length=1, keys=np.arange(size), scores=np.ones(size), parent_size=1, vocabulary_size=size
    )


def released_and_rule(length: int, tail: float, pruning: str):
    """A small S_{k−1} with uneven middles, and a rule whose null probability is `tail`."""
    previous = vocabulary_of(5)
    if length == 3:
        pairs = [(0, 0), (0, 1), (0, 2), (0, 3), (1, 0), (2, 0), (2, 1), (3, 3), (4, 0)]
        prefixes, seconds = np.array(pairs).T
        previous = GramSet(
            length=2,
            keys=pack_pairs(prefixes, seconds),
            scores=np.ones(len(pairs)),
            parent_size=5,
            vocabulary_size=5,
        )
    threshold = SIGMA * stats.norm.isf(tail)
    return previous, length_rule(
        length=length, noise_stddev=SIGMA, threshold=threshold, pruning=pruning
    )


def all_members(previous: GramSet, pruning: str) -> set[int]:
    """V_k as keys, by enumeration."""
    size, keys = len(previous), previous.keys
    firsts, seconds = keys >> 32, keys & (2**32 - 1)
    if pruning == "single" or previous.length == 1:
        return {p << 32 | w for p in range(size) for w in range(previous.vocabulary_size)}
    return {
        p << 32 | s for p in range(size) for s in range(size) if int(seconds[p]) == int(firsts[s])
    }


def chi_squared(observed, expected) -> float:
    """The p-value of a chi-squared test; cells that expect fewer than 10 are put together."""
    observed, expected = np.asarray(observed, float), np.asarray(expected, float)
    small = expected < 10
    observed = np.append(observed[~small], observed[small].sum())
    expected = np.append(expected[~small], expected[small].sum())
    if expected[-1] < 10:
        observed = np.append(observed[:-2], observed[-2:].sum())
        expected = np.append(expected[:-2], expected[-2:].sum())
    statistic = np.sum((observed - expected) ** 2 / expected)
    return float(stats.chi2.sf(statistic, observed.size - 1))
