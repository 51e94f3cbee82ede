"""The adaptive strategy as plain functions: each user has one budget for all lengths and rounds.

Every round's noise has standard deviation 1, and the privacy follows from the budgets. A user starts
with μ² and sends weights whose squares never add up to more, over all lengths and rounds. In round r of
a length

1. a user spends a part of the remaining budget on the user's n-grams that are still open (`spends`),
2. and divides it among them (`preferences`, `divide`; `spending.contribute` applies both);
3. sums and noise are added to the evidence of earlier rounds (`decisions.decide_round`), and n-grams
   above ρ_r are found (`gram_rounds`, `vocabulary_rounds`);
4. n-grams below b_r are closed for good (`_cut_cell`).

The strategy is private for these reasons. *Budgets*: round r releases the sums of the others, plus the
weights v_r of user u, plus N(0, I). Given the rounds before, the sums of the others do not depend on u.
If Σ‖v_r‖² ≤ μ² on every path, one more coordinate, which nobody reads, can raise the sum to μ². Then
the privacy loss is exactly N(±μ²/2, μ²), that of one Gaussian mechanism with sensitivity μ and noise 1.
A user's remaining budget affects other users only through v_r. *Words of one user* (k = 1): round r
uses its own weights only, and up to Δ words of one user pass ρ_r with a probability of at most E_r·δ_T.
*Spurious n-grams*: they are drawn with the probabilities of `null_law`, which are those of an n-gram
that nobody holds.

References: Smith & Thakurta 2022, "Fully Adaptive Composition for Gaussian Differential Privacy";
Koskela, Tobaben & Honkela 2022, "Individual Privacy Accounting with Gaussian Differential Privacy".
"""

import dataclasses
import functools
import math
from fractions import Fraction

import numpy as np
import scipy

from beam_dpne.elements.sums import sums_of_rows
from beam_dpne.mechanism import gaussian
from beam_dpne.mechanism.rules import UNITS, NullLaw, RoundRule, cell_units
from beam_dpne.mechanism.thresholds import null_law, vocabulary_threshold

BUDGET_BITS = 56
BUDGET_UNITS = 2**BUDGET_BITS
MAX_BUDGET = 64
LOADING_UNIT = 2**20
# The numbers down to WORD_HOP, Q_r and E_r were chosen on public text of simulated users.
LATER_LOADING = 1.2
# What is kept for longer n-grams: at length 1, and at lengths k ≥ 2.
AHEAD = {"words": (0.2, 1.2), "balanced": (0.4, 1.2), "long": (0.4, 1.2)}
# Known words need less evidence. Users keep more by this part beside a known word than a new one.
MORE_BESIDE_KNOWN_WORDS = 1.0
# An n-gram that recurs so near in one text is counted there once, where copies are told from it.
NEARBY = 4
# Under favour "long", what an n-gram gets that stands alone, as a part of what it would get.
ALONE = 0.35
NEARLY_OVER = 0.7
LEAST_PREDICTION = 0.5
# The square root of a prediction is taken this many times, so its exponent is β = 2^-2.
PREDICTION_ROOTS = 2
# A larger factor in b_r closes more n-grams, and a larger boost fewer, see `_gram_cut_cell`.
CUT_FACTOR = 0.5
CUT_BOOST = 4
GRAM_HOP = 0.5
WORD_HOP = 1.5
# So many places are tried at once where a threshold is sought.
_BLOCK = 16
# Squares of weights are in units of 2^-64, budgets in 2^-56.
SQUARES_PER_BUDGET_UNIT = 2**8


@dataclasses.dataclass(frozen=True, kw_only=True)
class Round:
    """Q_r, the quota of what a user has left, E_r, and ν_r = Q_r Π_{s<r}(1 − Q_s), fixed numbers."""

    quota: float
    error_share: float
    budget_share: float


def _rounds(*quotas_and_shares: tuple[float, float]) -> tuple[Round, ...]:
    left = 1.0
    rounds = []
    for quota, error_share in quotas_and_shares:
        rounds.append(Round(quota=quota, error_share=error_share, budget_share=left * quota))
        left *= 1.0 - quota
    return tuple(rounds)


WORD_ROUNDS = _rounds((0.1, 0.05), (0.3, 0.15), (1.0, 0.8))
GRAM_ROUNDS = {
    1: _rounds((1.0, 1.0)),
    2: _rounds((0.3, 0.1), (1.0, 0.9)),
    3: _rounds((0.25, 0.05), (0.5, 0.15), (1.0, 0.8)),
}


def rounds_of(length: int, gram_rounds: int) -> tuple[Round, ...]:
    """Returns the rounds of a length: three for words, and 1 to 3 for longer n-grams."""
    return WORD_ROUNDS if length == 1 else GRAM_ROUNDS[gram_rounds]


def user_budget(noise_stddev: float) -> int:
    """Returns μ² = 1/σ² in units of 2^-56, rounded down.

    σ is that of a Gaussian mechanism of sensitivity 1 that is as private as the whole run.

    Raises:
      ValueError: if μ² ≥ 64, where 64 bits would not hold it.
    """
    squared = 1 / Fraction(noise_stddev) ** 2
    if squared >= MAX_BUDGET:
        raise ValueError(
            f"`epsilon` must be so small that a user's budget is below {MAX_BUDGET}, got a budget of "
            f"{float(squared):.4g}. Lower `epsilon`."
        )
    return math.floor(squared * BUDGET_UNITS)


def round_cap(allotment: int, this_round: Round) -> int:
    """Returns the most that a user may spend on words in one round: μ²ν_r, in units of 2^-56."""
    return min(allotment, math.floor(allotment * this_round.budget_share))


# Step 1.


def grams_ahead(present: np.ndarray, offsets: np.ndarray, longer: int) -> np.ndarray:
    """Returns Σ_{j>k} m_j, the places where a user's longer n-grams could start: (n,) int64.

    All k-grams of the longer n-gram must be present.

    Args:
      present: (p,) bool: whether the k-gram that starts at a position is open or found.
      offsets: (n + 1,) int64, where each user's positions begin; every text ends with a position
        that is not present.
      longer: T − k.
    """
    # (p,) integers: how many of the longer n-grams that start at a position could be found.
    starting = np.zeros(present.size, np.min_scalar_type(longer))
    # Whether all k-grams of the n-gram of d words more are present, by the position of the first one.
    whole = present
    for more in range(1, longer + 1):
        whole = whole[:-1] & present[more:]
        if not whole.any():
            break
        starting[: whole.size] += whole
    return sums_of_rows(starting, offsets)


def spends(
    left: np.ndarray,
    counts: np.ndarray,
    ahead: np.ndarray,
    quota: float,
    kept: np.ndarray | float,
) -> np.ndarray:
    """Returns the amount that each user spends in a round: left·Q·n/(n + kept·m).

    Args:
      left: (n,) int64, each user's remaining budget in units of 2^-56.
      counts: (n,) int64, the number of each user's distinct open n-grams.
      ahead: (n,) float64, m = (n/p)·Σ m_j, of `grams_ahead`: the open n-grams stand at p places,
        without those that recur nearby, and n are distinct; so are longer ones. Copies of a text
        change nothing.
      quota: Q_r.
      kept: ω, see `AHEAD`: (n,) float64, or one number for all.

    Returns:
      (n,) int64, in units of 2^-56, at most `left`.
    """
    part = quota * counts / np.maximum(counts + kept * ahead, 1.0)
    return np.minimum(left, np.floor(left * part).astype(np.int64))


# Step 2.


def preferences(predictions: np.ndarray | float, nearness: np.ndarray) -> np.ndarray:
    """Returns a_g = pred_g^-¼ (1 − f p_g) with f = NEARLY_OVER, shares before scaling: (m,) float64.

    `predictions` are the lower scores of prefix and suffix (1 at k = 2); p_g is 0 in round 1.
    """
    roots = np.maximum(predictions, LEAST_PREDICTION)
    for _ in range(PREDICTION_ROOTS):
        roots = np.sqrt(roots)
    return (1.0 - NEARLY_OVER * nearness) / roots


def nearness(cells: np.ndarray, cut_cells: np.ndarray) -> np.ndarray:
    """Returns p_g, the position of an n-gram's evidence between the last cut (0) and threshold (1).

    `cells` are those of the evidence in the last round, `cut_cells` the lowest open ones: (m,) each.
    """
    places = (cells - cut_cells + 0.5) / np.maximum(1, -cut_cells)
    return np.clip(places, 0.0, 1.0)


def divide(
    spent: np.ndarray, offsets: np.ndarray, user: np.ndarray, shares: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Divides the amount that each user spends into weights ∝ shares, rounded down until they fit.

    Args:
      spent: (n,) int64, in units of 2^-56.
      offsets: (n + 1,) int64, where each user's entries begin.
      user: (m,) int64, the row of each entry's user.
      shares: (m,) float64 ≥ 0; 0 gives the weight 0.

    Returns:
      Weights, (m,) int64 in units of 2^-32, and their cost, (n,) int64 in units of 2^-56.
    """
    # bincount adds in order, so that a sum does not depend on the batch or the machine.
    squares = np.bincount(user, weights=shares * shares, minlength=spent.size)
    root = np.sqrt(spent * float(SQUARES_PER_BUDGET_UNIT))
    scale = np.divide(root, np.sqrt(squares), out=np.zeros(spent.size), where=squares > 0)
    # They are not negative, so that without their fractions they are rounded down.
    weights = (scale.take(user) * shares).astype(np.int64)
    cost = costs(weights, offsets)
    while (over := cost > spent).any():
        weights -= (over[user] & (weights > 0)).astype(np.int64)
        cost = costs(weights, offsets)
    return weights, cost


def costs(weights: np.ndarray, offsets: np.ndarray) -> np.ndarray:
    """Returns ⌈Σ w²/2^8⌉ for each user, exactly; squares of whole weights would overflow 64 bits.

    Weights are (m,) int64 in [0, 2^36), in units of 2^-32; costs (n,) int64 in units of 2^-56.
    """
    # w² = 2^8 (w · whole) + w · rest. Sums over a batch may pass 2^63, since their differences do not.
    whole = weights >> 8
    rest = weights & (SQUARES_PER_BUDGET_UNIT - 1)
    rests = sums_of_rows(weights * rest, offsets)
    return sums_of_rows(weights * whole, offsets) - (-rests // SQUARES_PER_BUDGET_UNIT)


# Steps 3 and 4.


def vocabulary_rounds(
    *, allotment: int, delta: float, max_contributions: int
) -> tuple[RoundRule, ...]:
    """Returns the rules of the rounds at k = 1, which are decided separately.

    ρ_r = max_{t≤Δ} c_r/√t + Φ^{-1}((1 − E_r δ_T)^{1/t}) with c_r = μ√ν_r, the largest ℓ2-norm of one
    user's weights in round r. A word stays open if w_r ≥ ℓ_r ρ°/√(Σ_{s>r} ν_s/ν_1) − hop, with
    ℓ_r = √(ν_r/ν_1), where ρ° is the threshold of the norm μ at E_R δ_T.

    `allotment` is what a user may spend at this length, in units of 2^-56; delta is δ_T.
    """

    def threshold_of(amount: int, this_round: Round) -> float:
        norm = math.nextafter(math.sqrt(amount / BUDGET_UNITS), math.inf)
        return norm * vocabulary_threshold(
            noise_stddev=1.0 / norm,
            delta=this_round.error_share * delta,
            max_contributions=max_contributions,
        )

    last = threshold_of(allotment, WORD_ROUNDS[-1])
    first_share = WORD_ROUNDS[0].budget_share
    rules = []
    for index, this_round in enumerate(WORD_ROUNDS):
        units = math.ceil(threshold_of(round_cap(allotment, this_round), this_round) * UNITS)
        scale = math.sqrt(this_round.budget_share / first_share)
        cut = 0
        if later := math.fsum(each.budget_share for each in WORD_ROUNDS[index + 1 :]):
            cut = _cut_cell(scale * last / math.sqrt(later / first_share) - WORD_HOP, units, 1.0)
        rules.append(
            RoundRule(
                loadings=(0,) * index + (1,),
                evidence_stddev=1.0,
                threshold_units=units,
                cut_cell=cut,
                null_probability=0.0,
                score_divisor=scale,
            )
        )
    return tuple(rules)


@functools.lru_cache(maxsize=1024)
def gram_rounds(fraction: float, rounds: tuple[Round, ...]) -> tuple[RoundRule, ...]:
    """Returns the rules of the rounds at k ≥ 2 for candidates of one class, with fraction = p_c ≤ ½.

    ρ_r solves P(an n-gram without weight is open until r and then Y_r > ρ_r) = E_r · fraction.
    """
    loadings = [_loading(each, rounds[0]) for each in rounds]
    rules: list[RoundRule] = []
    for index, this_round in enumerate(rounds):
        evidence = loadings[: index + 1]
        information = sum(loading * loading for loading in evidence) / LOADING_UNIT**2
        stddev = evidence[-1] / LOADING_UNIT
        law = null_law(tuple(rules), 1.0)
        units = _threshold_units(law, stddev, this_round.error_share * fraction)
        rule = RoundRule(
            loadings=tuple(evidence),
            loading_unit=LOADING_UNIT,
            evidence_stddev=math.sqrt(information),
            threshold_units=units,
            cut_cell=_gram_cut_cell(fraction, rounds, index, units, information),
            null_probability=float(law.tail(stddev, units / UNITS)),
            score_divisor=information,
        )
        rules.append(rule)
    return tuple(rules)


def _loading(this_round: Round, first: Round) -> int:
    """Returns ℓ_r, 1 in round 1 and later 1.2 √(ν_r/ν_1), in units of 1/LOADING_UNIT."""
    if this_round is first:
        return LOADING_UNIT
    ratio = this_round.budget_share / first.budget_share
    return round(LATER_LOADING * math.sqrt(ratio) * LOADING_UNIT)


def _threshold_units(law: NullLaw, stddev: float, probability: float) -> int:
    """Returns the ρ for which P(open and then above ρ) is a given probability, in units of 2^-32.

    It is rounded up.
    """

    def excess(threshold: float) -> float:
        tail = float(law.tail(stddev, threshold))
        return (math.log(tail) if tail else -math.inf) - math.log(probability)

    low = float(law.places.min(initial=0.0)) - 10.0 * stddev
    if law.tail(stddev, low) <= probability:
        raise ValueError(
            "The probability of n-grams that nobody has must be lower: in a round with the probability "
            f"{probability:.3g} thresholds do not exist."
        )
    # Steps of one deviation, many at a time, until the tail is below the probability.
    above = _BLOCK
    while above == _BLOCK:
        steps = low + stddev * np.arange(1, _BLOCK + 1)
        above = int(np.count_nonzero(law.tail(stddev, steps) > probability))
        low += stddev * above
    high = low + stddev
    below, root = gaussian.near_root(excess, low, high)
    if math.ceil(below * UNITS) != math.ceil(root * UNITS):
        root = gaussian.falling_root(excess, low, high)
    return math.ceil(root * UNITS)


def _gram_cut_cell(
    fraction: float, rounds: tuple[Round, ...], index: int, units: int, information: float
) -> int:
    """Returns the cell of b_r = CUT_FACTOR z I/√(Σ_{s>r} ν_s/ν_1) − hop √I.

    Here I is `information`, and z = Φ̄^{-1}(min(½, boost·E_R·fraction)).
    """
    later = math.fsum(each.budget_share for each in rounds[index + 1 :])
    if not later:
        return 0
    chance = min(0.5, CUT_BOOST * rounds[-1].error_share * fraction)
    quantile = -float(scipy.special.ndtri(chance))
    remaining = math.sqrt(later / rounds[0].budget_share)
    stddev = math.sqrt(information)
    cut = CUT_FACTOR * quantile * information / remaining - GRAM_HOP * stddev
    return _cut_cell(cut, units, stddev)


def _cut_cell(cut: float, threshold_units: int, stddev: float) -> int:
    """Returns the cell that contains a cut; whether an n-gram is open depends on cells only."""
    return min(0, math.floor((cut * UNITS - threshold_units) / cell_units(stddev)))
