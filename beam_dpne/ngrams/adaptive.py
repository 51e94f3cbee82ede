"""The adaptive strategy, as plain functions: one budget per user, settled in rounds, evidence added up.

Every round's noise has standard deviation 1; budgets carry the privacy. A user starts with μ² and
sends weights whose squares never add up to more, over all lengths and rounds. In round r of a length

1. a user spends a part of what is left on its own grams that are still open (`spends`),
2. divided among them (`preferences`, `divide`),
3. sums and noise are added to the evidence of earlier rounds; what is above ρ_r is found
   (`gram_rounds`, `vocabulary_rounds`),
4. what is below b_r is closed for good (`_cut`).

Why it is private. *Budgets*: round r releases the sums of the others, plus what user u sends, plus
N(0, I); the sums of the others depend on the public past only. With Σ‖v_r‖² ≤ μ² on every path,
padded to equality by a coordinate that nobody reads, the privacy loss is N(±μ²/2, μ²) exactly, that
of one Gaussian mechanism with sensitivity μ and noise 1. What a user has left reaches others only
through v. *Words of one user* (k = 1): rounds are judged apart, and each threshold covers up to Δ
words at E_r·δ_T. *Spurious grams*: `null_law` has the same probabilities for a gram that nobody holds.

References: Smith & Thakurta 2022, "Fully Adaptive Composition for Gaussian Differential Privacy";
Koskela, Tobaben & Honkela 2022, "Individual Privacy Accounting with Gaussian Differential Privacy".
"""

import dataclasses
import functools
import math
from fractions import Fraction
from typing import Any

import numpy as np
from scipy import optimize, special

from beam_dpne.mechanism import gaussian
from beam_dpne.mechanism.rules import NOTHING_YET, UNITS, NullLaw, RoundRule, cell_units

BUDGET_BITS = 56
BUDGET_UNITS = 2**BUDGET_BITS
MAX_BUDGET = 64
MAX_SPURIOUS_FRACTION = 0.5
USER_BUDGETS = ("individual", "even")
LOADING_UNIT = 2**20
# These numbers, and Q_r and E_r below, were chosen on public text dealt to made-up users.
LATER_LOADING = 1.2
AHEAD = 0.7
NEARLY_OVER = 0.7
LEAST_PREDICTION = 0.5
# β = 2^-1: so many square roots are taken of a prediction.
PREDICTION_ROOTS = 1
# Of b_r, see `_gram_cut_cell`: a larger one closes more grams.
CUT_FACTOR = 0.5
GRAM_HOP = 0.5
WORD_HOP = 1.5
# Squares of weights are in units of 2^-64, budgets in 2^-56.
SQUARES_PER_BUDGET_UNIT = 2**8


@dataclasses.dataclass(frozen=True, kw_only=True)
class Round:
    """What is fixed for one round before any data.

    Attributes:
      quota: Q_r, the part of what is left that a user spends if only this length mattered.
      error_share: E_r, the round's part of the tolerated errors.
      budget_share: ν_r = Q_r Π_{s<r}(1 − Q_s).
    """

    quota: float
    error_share: float
    budget_share: float


def _rounds(*quotas_and_shares: tuple[float, float]) -> tuple[Round, ...]:
    left, rounds = 1.0, []
    for quota, error_share in quotas_and_shares:
        rounds.append(Round(quota=quota, error_share=error_share, budget_share=left * quota))
        left *= 1.0 - quota
    return tuple(rounds)


WORD_ROUNDS = _rounds((0.1, 0.1), (1.0, 0.9))
GRAM_ROUNDS = {
    1: _rounds((1.0, 1.0)),
    2: _rounds((0.3, 0.1), (1.0, 0.9)),
    3: _rounds((0.25, 0.03), (0.45, 0.12), (1.0, 0.85)),
}


def rounds_of(length: int, gram_rounds: int) -> tuple[Round, ...]:
    """Returns the rounds of a length: two for words, 1 to 3 for longer grams."""
    return WORD_ROUNDS if length == 1 else GRAM_ROUNDS[gram_rounds]


def constants(gram_rounds: int) -> dict[str, Any]:
    """Returns the constants of the strategy that decide weights, thresholds and cuts.

    Args:
      gram_rounds: of each length k ≥ 2.
    """
    rounds = {"word_rounds": WORD_ROUNDS, "gram_rounds": GRAM_ROUNDS[gram_rounds]}
    return {
        **{name: [dataclasses.asdict(own) for own in each] for name, each in rounds.items()},
        "budget_units": BUDGET_UNITS,
        "squares_per_budget_unit": SQUARES_PER_BUDGET_UNIT,
        "loading_unit": LOADING_UNIT,
        "later_loading": LATER_LOADING,
        "ahead": AHEAD,
        "nearly_over": NEARLY_OVER,
        "least_prediction": LEAST_PREDICTION,
        "prediction_roots": PREDICTION_ROOTS,
        "cut_factor": CUT_FACTOR,
        "gram_hop": GRAM_HOP,
        "word_hop": WORD_HOP,
    }


def user_budget(noise_stddev: float) -> int:
    """Returns μ² = 1/σ² in units of 2^-56, rounded down.

    Args:
      noise_stddev: σ of one Gaussian mechanism of sensitivity 1 as private as the whole run.

    Raises:
      ValueError: if μ² ≥ 64, where 64 bits would not hold it.
    """
    squared = 1 / Fraction(noise_stddev) ** 2
    if squared >= MAX_BUDGET:
        raise ValueError(
            f"epsilon must be so small that a user's budget is below {MAX_BUDGET}, where the noise "
            f"has deviation {MAX_BUDGET**-0.5}; got a budget of {float(squared):.4g}. Lower epsilon."
        )
    return math.floor(squared * BUDGET_UNITS)


def round_cap(allotment: int, own: Round) -> int:
    """Returns the most that a user may spend on words in one round: μ²ν_r, in units of 2^-56."""
    return min(allotment, math.floor(allotment * own.budget_share))


# Step 1.


def grams_ahead(present: np.ndarray, offsets: np.ndarray, longer: int) -> np.ndarray:
    """Returns Σ_{j>k} m_j: places where a longer gram could start, all of whose k-grams stand.

    A run of n present positions has n − d places for grams of length k + d.

    Args:
      present: (p,) bool: whether the k-gram that starts at a position is open or found.
      offsets: (n + 1,) int64, where each user's positions begin; a position that does not stand lies
        between any two texts.
      longer: T − k.

    Returns:
      (n,) int64.
    """
    size = present.size
    ends = np.where(present, size, np.arange(size))
    ends = np.minimum.accumulate(ends[::-1])[::-1]
    rest = np.minimum(ends - np.arange(size) - 1, longer)
    before = np.concatenate(([0], np.cumsum(np.where(present, rest, 0))))
    return np.diff(before[offsets])


def spends(left: np.ndarray, own: np.ndarray, ahead: np.ndarray, quota: float) -> np.ndarray:
    """Returns what each user spends in a round: left·Q·n/(n + ω Σ m_j), nothing without own grams.

    Args:
      left: (n,) int64, in units of 2^-56.
      own: (n,) int64, distinct open grams of the user.
      ahead: (n,) int64, see `grams_ahead`; 0 at k = T.
      quota: Q_r.

    Returns:
      (n,) int64, in units of 2^-56, at most `left`.
    """
    part = quota * own / np.maximum(own + AHEAD * ahead, 1.0)
    return np.minimum(left, np.floor(left * part).astype(np.int64))


# Step 2.


def preferences(predictions: np.ndarray, nearness: np.ndarray | float) -> np.ndarray:
    """Returns a_g = pred_g^-½ (1 − f p_g): what a gram is given, before scaling.

    Args:
      predictions: (m,) float64, the least score of the gram's parents (1 at k = 2).
      nearness: p_g in [0, 1], see `nearness`; 0 in round 1.
    """
    roots = np.maximum(predictions, LEAST_PREDICTION)
    for _ in range(PREDICTION_ROOTS):
        roots = np.sqrt(roots)
    return (1.0 - NEARLY_OVER * nearness) / roots


def nearness(cells: np.ndarray, rule: RoundRule) -> np.ndarray:
    """Returns p_g, the place of a gram's evidence between the last cut (0) and threshold (1)."""
    places = (cells - rule.cut_cell + 0.5) / max(1, -rule.cut_cell)
    return np.clip(places, 0.0, 1.0)


def divide(
    spent: np.ndarray, offsets: np.ndarray, shares: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Divides what each user spends: weights ∝ shares, whose squares cost no more than is spent.

    Weights are rounded down; where the integers still cost too much, each is lowered by a unit until
    they fit.

    Args:
      spent: (n,) int64, in units of 2^-56.
      offsets: (n + 1,) int64, where each user's entries begin.
      shares: (m,) float64 ≥ 0; 0 gives the weight 0.

    Returns:
      Weights, (m,) int64 in units of 2^-32, and their cost, (n,) int64 in units of 2^-56.
    """
    user = np.repeat(np.arange(spent.size), np.diff(offsets))
    # bincount adds in order, so that a sum does not depend on the batch or the machine.
    squares = np.bincount(user, weights=shares * shares, minlength=spent.size)
    root = np.sqrt(spent * float(SQUARES_PER_BUDGET_UNIT))
    scale = np.divide(root, np.sqrt(squares), out=np.zeros(spent.size), where=squares > 0)
    weights = np.floor(scale[user] * shares).astype(np.int64)
    cost = costs(weights, offsets)
    while (over := cost > spent).any():
        weights -= (over[user] & (weights > 0)).astype(np.int64)
        cost = costs(weights, offsets)
    return weights, cost


def costs(weights: np.ndarray, offsets: np.ndarray) -> np.ndarray:
    """Returns ⌈Σ w²/2^8⌉ for each user, exactly; no square is taken in 64 bits.

    Args:
      weights: (m,) int64 in [0, 2^36), in units of 2^-32.
      offsets: (n + 1,) int64.

    Returns:
      (n,) int64, in units of 2^-56.
    """
    high, low = weights >> 18, weights & (2**18 - 1)
    sums = [_sums(part, offsets) for part in (high * high, high * low, low * low)]
    # w² = 2^36 high² + 2^19 high·low + low²
    return (sums[0] << 28) + (sums[1] << 11) + -(-sums[2] // SQUARES_PER_BUDGET_UNIT)


def _sums(values: np.ndarray, offsets: np.ndarray) -> np.ndarray:
    return np.diff(np.concatenate(([0], np.cumsum(values)))[offsets])


# Steps 3 and 4.


def vocabulary_rounds(
    *, allotment: int, delta: float, max_contributions: int
) -> tuple[RoundRule, ...]:
    """Returns the rules of the rounds at k = 1, which are judged apart.

    ρ_r = max_{t≤Δ} c_r/√t + Φ^{-1}((1 − E_r δ_T)^{1/t}) with c_r = μ√ν_r, the ℓ2-norm of what one user
    sends in round r at most.

    Args:
      allotment: what a user may spend at this length, in units of 2^-56.
      delta: δ_T.
      max_contributions: Δ.
    """
    thresholds = []
    for own in WORD_ROUNDS:
        norm = math.nextafter(math.sqrt(round_cap(allotment, own) / BUDGET_UNITS), math.inf)
        thresholds.append(
            norm
            * gaussian.vocabulary_threshold(
                noise_stddev=1.0 / norm,
                delta=own.error_share * delta,
                max_contributions=max_contributions,
            )
        )
    scales = [math.sqrt(own.budget_share / WORD_ROUNDS[0].budget_share) for own in WORD_ROUNDS]
    rules = []
    for place, (threshold, scale) in enumerate(zip(thresholds, scales, strict=True)):
        units = math.ceil(threshold * UNITS)
        cut = 0
        if place + 1 < len(WORD_ROUNDS):
            cut = _cut_cell(thresholds[place + 1] / scales[place + 1] - WORD_HOP, units, 1.0)
        rules.append(
            RoundRule(
                loadings=(0,) * place + (1,),
                evidence_stddev=1.0,
                threshold_units=units,
                cut_cell=cut,
                null_probability=0.0,
                score_divisor=scale,
            )
        )
    return tuple(rules)


@functools.lru_cache(maxsize=128)
def gram_rounds(fraction: float, rounds: tuple[Round, ...]) -> tuple[RoundRule, ...]:
    """Returns the rules of the rounds at k ≥ 2.

    ρ_r solves P(a gram without weight is open until r and then Y_r > ρ_r) = E_r · fraction.

    Args:
      fraction: η·min(1, |S_{k−1}|/|V_k|), at most ½.
      rounds: of the length.
    """
    loadings = [_loading(own, rounds[0]) for own in rounds]
    law, rules = NOTHING_YET, []
    for place, own in enumerate(rounds):
        evidence = loadings[: place + 1]
        information = sum(loading * loading for loading in evidence) / LOADING_UNIT**2
        stddev = evidence[-1] / LOADING_UNIT
        threshold = _threshold(law, stddev, own.error_share * fraction)
        units = math.ceil(threshold * UNITS)
        rule = RoundRule(
            loadings=tuple(evidence),
            loading_unit=LOADING_UNIT,
            evidence_stddev=math.sqrt(information),
            threshold_units=units,
            cut_cell=_gram_cut_cell(fraction, rounds, place, units, information),
            null_probability=law.tail(stddev, units / UNITS),
            score_divisor=information,
        )
        rules.append(rule)
        law = law.cut(stddev, rule.cut, rule.threshold)
    return tuple(rules)


def _loading(own: Round, first: Round) -> int:
    """Returns ℓ_r: 1 in the first round, later 1.2 √(ν_r/ν_1), in units of 1/LOADING_UNIT."""
    if own is first:
        return LOADING_UNIT
    return round(LATER_LOADING * math.sqrt(own.budget_share / first.budget_share) * LOADING_UNIT)


def _threshold(law: NullLaw, stddev: float, probability: float) -> float:
    """Returns ρ with P(open and then above ρ) = probability."""

    def excess(place: float) -> float:
        return math.log(law.tail(stddev, place)) - math.log(probability)

    low = float(law.places.min(initial=0.0)) - 10.0 * stddev
    if law.tail(stddev, low) <= probability:
        raise ValueError(
            f"spurious_fraction must be at most {MAX_SPURIOUS_FRACTION}: beyond it a round's "
            "threshold does not exist."
        )
    high = low + stddev
    while law.tail(stddev, high) > probability:
        low, high = high, high + stddev
    root = optimize.root_scalar(excess, bracket=(low, high), method="brentq", xtol=1e-14)
    return float(root.root)


def _gram_cut_cell(
    fraction: float, rounds: tuple[Round, ...], place: int, units: int, information: float
) -> int:
    """Returns b_r = CUT_FACTOR z I/√(Σ_{s>r} ν_s/ν_1) − hop √I, z = Φ̄^{-1}(E_R·fraction), as a cell."""
    later = math.fsum(own.budget_share for own in rounds[place + 1 :])
    if not later:
        return 0
    last = -float(special.ndtri(rounds[-1].error_share * fraction))
    remaining = math.sqrt(later / rounds[0].budget_share)
    stddev = math.sqrt(information)
    return _cut_cell(CUT_FACTOR * last * information / remaining - GRAM_HOP * stddev, units, stddev)


def _cut_cell(cut: float, threshold_units: int, stddev: float) -> int:
    """Returns the cell that holds a cut; what is open is a function of cells only."""
    return min(0, math.floor((cut * UNITS - threshold_units) / cell_units(stddev)))
