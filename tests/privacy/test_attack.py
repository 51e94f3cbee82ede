"""An attack on the paper's mechanism: below the claimed ε, and above it once a mistake is planted.

The simulation is plain mathematics over many runs at once. It takes from the package what decides a
gram (`mechanism`, `calibration`, the plan's noise) and nothing else. In the one world a user takes
part, in the other not; the attacker sees the released grams and scores, knows everything else, and
computes the logarithm of the likelihood ratio, and how many grams of the user are released.

From half of the runs the attacker chooses a statistic and an event, one for each direction; from the
other half comes a Clopper–Pearson bound: with probability 99.9 % ε is at least `epsilon_at_least`. So
had the seeds been random, each test of the correct mechanism would fail falsely at most once in 1,000.
"""

import dataclasses

import numpy as np
import pytest
from scipy import special

from beam_dpne import LengthRule, PrivacyPlan, length_rule
from beam_dpne.audit import bounds
from beam_dpne.mechanism.cells import (
    equal_weights,
    evidence_noise,
    noisy_cells,
    scores,
    spurious_cells,
)
from beam_dpne.mechanism.rules import UNITS, RoundRule
from beam_dpne.mechanism.thresholds import spurious_threshold

RUNS = 200_000
FAILURE = 1e-3
EPSILON, DELTA = 1.0, 1e-2
WORDS = 3


@dataclasses.dataclass(frozen=True, kw_only=True)
class Mechanism:
    """What is released; the defaults are right, every other value is a planted mistake."""

    noise_factor: float = 1.0
    exact_scores: bool = False
    spurious: bool = True

    def held(self, weights: np.ndarray, rule: LengthRule, rng) -> tuple[np.ndarray, np.ndarray]:
        """Returns (released, scores) of grams that somebody holds."""
        rule = self.actual(rule)
        flat = weights.reshape(-1)
        own = only(rule)
        noise = evidence_noise([random_bits(flat.size, rng)], own, rule.noise_stddev)
        cells = noisy_cells([flat], noise, own)
        shown = flat / UNITS if self.exact_scores else scores(cells, own)
        return (cells >= 0).reshape(weights.shape), shown.reshape(weights.shape)

    def unheld(self, shape, rule: LengthRule, rng) -> tuple[np.ndarray, np.ndarray]:
        """Returns (released, scores) of grams that nobody holds."""
        rule = self.actual(rule)
        if not self.spurious:
            return np.zeros(shape, bool), np.zeros(shape)
        released = rng.random(shape) < rule.classes[0].null_probability
        cells = spurious_cells(random_bits(released.size, rng), rule.rounds, 1, rule.noise_stddev)
        shown = scores(cells, only(rule)).reshape(shape)
        return released, np.zeros(shape) if self.exact_scores else shown

    def actual(self, rule: LengthRule) -> LengthRule:
        """The rule with the noise that is really added; thresholds stay as calibrated."""
        return length_rule(
            length=rule.length,
            noise_stddev=rule.noise_stddev * self.noise_factor,
            threshold=rule.threshold,
            valid=rule.valid,
        )


MISTAKES = {
    "half the noise": Mechanism(noise_factor=0.5),
    "exact weights as scores": Mechanism(exact_scores=True),
    "no spurious grams": Mechanism(spurious=False),
}


@pytest.mark.parametrize("max_length", [2, 3])
def test_grams_of_one_user_alone_show_less_than_epsilon(max_length):
    assert 0.5 < attack(gram_world, Mechanism(), max_length) < EPSILON


@pytest.mark.parametrize(
    ("mistake", "max_length"), [*((name, 2) for name in MISTAKES), ("no spurious grams", 3)]
)
def test_grams_of_one_user_alone_show_each_planted_mistake(mistake, max_length):
    assert attack(gram_world, MISTAKES[mistake], max_length) > 1.2 * EPSILON


def test_words_of_one_user_alone_show_less_than_epsilon():
    assert 0.3 < attack(word_world, Mechanism(), 1) < EPSILON


@pytest.mark.parametrize("mistake", ["half the noise", "exact weights as scores"])
def test_words_of_one_user_alone_show_each_planted_mistake(mistake):
    assert attack(word_world, MISTAKES[mistake], 1) > 1.2 * EPSILON


def test_the_bound_finds_the_epsilon_of_two_known_normal_laws():
    """Of N(0, 1) and N(μ, 1) with μ = 1/σ(1, 10^-2), ε = 1 is just right at δ = 10^-2."""
    rng = np.random.default_rng(8)
    shift = (
        1
        / PrivacyPlan(
            epsilon=EPSILON,
            delta=DELTA / 0.999,
            max_length=1,
            vocabulary_delta_share=0.001,
            strategy="one_round",
        ).noise_stddev
    )
    without = rng.standard_normal((RUNS, 1))
    assert 0.85 < epsilon_at_least(rng.standard_normal((RUNS, 1)) + shift, without) < 1
    assert epsilon_at_least(rng.standard_normal((RUNS, 1)) + 1.3 * shift, without) > 1.1
    assert epsilon_at_least(rng.standard_normal((RUNS, 1)), without) == 0


def attack(world, mechanism: Mechanism, max_length: int) -> float:
    """Returns the lower bound that the attack finds for ε."""
    rng = np.random.default_rng(20_000 + max_length)
    plan = PrivacyPlan(
        epsilon=EPSILON,
        delta=DELTA,
        max_length=max_length,
        spurious_fraction=0.5,
        max_contributions=WORDS**3,
        vocabulary_delta_share=0.1,
        strategy="one_round",
        count_share=0,
    )
    with_user, without = (world(plan, mechanism, present, rng) for present in (True, False))
    return epsilon_at_least(with_user, without)


def gram_world(plan: PrivacyPlan, mechanism: Mechanism, present: bool, rng) -> np.ndarray:
    """Three public words; one user, or nobody, holds all of their bigrams and trigrams."""
    ratio = common_words(plan, mechanism, present, rng)
    rule = rule_of(plan, 2, released=WORDS, valid=WORDS**2)
    weight = int(equal_weights(np.array([WORDS**2]))[0])
    shape = (RUNS, WORDS, WORDS)
    bigrams, shown = released_grams(mechanism, present, np.full(shape, weight), rule, rng)
    ratio += log_ratio(bigrams, shown, weight, rule).sum(axis=(1, 2))
    found = bigrams.sum(axis=(1, 2))
    if plan.max_length == 3:
        trigram_ratio, trigrams = third_length(plan, mechanism, present, bigrams, rng)
        ratio, found = ratio + trigram_ratio, found + trigrams
    return np.column_stack((ratio, found))


def common_words(plan, mechanism, present, rng) -> np.ndarray:
    """Log-likelihood ratios of three words that others release, and the user holds too."""
    first = plan.lengths[0]
    rule = length_rule(length=1, noise_stddev=first.noise_stddev, threshold=first.threshold)
    weight = int(equal_weights(np.array([WORDS]))[0])
    others = only(rule).threshold_units + round(40 * first.noise_stddev * UNITS)
    weights = np.full((RUNS, WORDS), others + present * weight)
    _, shown = mechanism.held(weights, rule, rng)
    return log_ratio(True, shown - others / UNITS, weight, rule).sum(axis=1)


def third_length(plan, mechanism, present, bigrams, rng) -> tuple[np.ndarray, np.ndarray]:
    """Trigrams whose bigrams are both released; the rule depends on how many there are."""
    valid = bigrams[:, :, :, None] & bigrams[:, None, :, :]
    counts = np.column_stack((bigrams.sum(axis=(1, 2)), valid.sum(axis=(1, 2, 3))))
    ratio, found = np.zeros(RUNS), np.zeros(RUNS)
    for released, members in np.unique(counts[counts[:, 1] > 0], axis=0).tolist():
        runs = np.flatnonzero((counts == (released, members)).all(axis=1))
        rule = rule_of(plan, 3, released=released, valid=members)
        weight = int(equal_weights(np.array([members]))[0])
        weights = np.full((runs.size, members), weight)
        trigrams, shown = released_grams(mechanism, present, weights, rule, rng)
        ratio[runs] = log_ratio(trigrams, shown, weight, rule).sum(axis=1)
        found[runs] = trigrams.sum(axis=1)
    return ratio, found


def word_world(plan: PrivacyPlan, mechanism: Mechanism, present: bool, rng) -> np.ndarray:
    """A user with nine words: four that nobody else holds, five close to the threshold."""
    first = plan.lengths[0]
    rule = length_rule(length=1, noise_stddev=first.noise_stddev, threshold=first.threshold)
    weight = int(equal_weights(np.array([9]))[0])
    near = only(rule).threshold_units + round(first.noise_stddev * UNITS)
    common, shown = mechanism.held(np.full((RUNS, 5), near + present * weight), rule, rng)
    margin = only(rule).threshold_units - near
    centred = LengthRule.of_rounds(
        length=1,
        noise_stddev=rule.noise_stddev,
        rounds=(dataclasses.replace(only(rule), threshold_units=margin),),
    )
    ratio = log_ratio(common, shown - near / UNITS, weight, centred).sum(axis=1)
    alone, _ = mechanism.held(np.full((RUNS, 4), weight), rule, rng)
    found = present * alone.sum(axis=1)
    return np.column_stack((ratio + 100.0 * found, found))


def released_grams(mechanism, present, weights, rule, rng):
    """Grams of the user alone: held with their weight, or held by nobody."""
    if present:
        return mechanism.held(weights, rule, rng)
    return mechanism.unheld(weights.shape, rule, rng)


def rule_of(plan: PrivacyPlan, length: int, *, released: int, valid: int) -> LengthRule:
    """The rule of a length as the plan prescribes it."""
    stddev = plan.lengths[length - 1].noise_stddev
    threshold = spurious_threshold(
        noise_stddev=stddev,
        spurious_fraction=plan.spurious_fraction,
        released=released,
        valid=valid,
    )
    return length_rule(length=length, noise_stddev=stddev, threshold=threshold, valid=valid)


def log_ratio(released, shown: np.ndarray, weight: int, rule: LengthRule) -> np.ndarray:
    """Log-likelihood ratio of what is seen of a gram: its weight against no weight."""
    share, stddev = weight / UNITS, rule.noise_stddev
    seen = (shown * share - share**2 / 2) / stddev**2
    hidden = special.log_ndtr((rule.threshold - share) / stddev) - special.log_ndtr(
        rule.threshold / stddev
    )
    return np.where(released, seen, hidden)


def epsilon_at_least(with_user: np.ndarray, without: np.ndarray) -> float:
    """Lower bound on ε at the given δ: choose two events on one half, bound on the other."""
    return bounds.epsilon_at_least(with_user, without, delta=DELTA, failure=FAILURE)


def only(rule: LengthRule) -> RoundRule:
    """The one round of a rule."""
    (own,) = rule.rounds
    return own


def random_bits(count: int, rng) -> np.ndarray:
    """Blocks of 128 random bits."""
    return rng.integers(0, 2**64, size=(count, 2), dtype=np.uint64)
