"""The rule of a length, and the private count of held candidates from which it follows.

Before the first round of a length, user u takes n_G = Σ ω over the own candidates of each counted group
G, q = Σ_G n_G², and t = min(1, s·√(COST·left/q)). The user sends t for each of these candidates, beside
the weights of round 1. With h_G = Σ ω_g·min(1, Σ_u t_u(g)) over the observed candidates,

    X_G = U_G − h_G + N(0, s²),

is released as a cell of width s/64. One user moves (h_G)_G by at most t·√q in ℓ2, whatever the others
send, since min(1, ·) moves by no more than its argument. So (t·√q/s)² of the user's budget is charged
first: the bound, never the shift itself, which depends on the others. It is computed in integers.

N_G is an estimate of the number of candidates that nobody holds, weighted by ω, with E[1/N_G] at most
one over it (Voinov 1985): s·φ(X/s)/Φ̄(X/s), and at least s/4. Thresholds and cuts then follow from N_G,
|V_c| and |S_{k−1}|; with "one_round" from |V_k| and |S_{k−1}| alone.
"""

import dataclasses
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import numpy as np
import scipy

from beam_dpne.elements.arrays import rows_of_entries
from beam_dpne.elements.coders import cached_for_sets
from beam_dpne.mechanism import randomness, thresholds
from beam_dpne.mechanism.randomness import RunKey
from beam_dpne.mechanism.rules import (
    CELLS_PER_STDDEV,
    UNITS,
    ClassRule,
    GroupRule,
    LengthRule,
    length_rule,
)
from beam_dpne.ngrams import adaptive, tolerances
from beam_dpne.ngrams.adaptive import BUDGET_BITS
from beam_dpne.ngrams.elements import ROOT, GramSet, HistogramShard
from beam_dpne.ngrams.plan import PrivacyPlan
from beam_dpne.ngrams.tolerances import (
    COUNT_COST,
    FACTOR_BITS,
    LEAST_ESTIMATE,
    TALLY_BITS,
    Group,
)
from beam_dpne.ngrams.valid import class_sizes, estimate_valid_kgrams

# Sums of ω·t are in units of 2^-40.
SUM_BITS = FACTOR_BITS + TALLY_BITS
_MOST = 2**62 - 1
# Floating point is right to less than that where an estimate must not be too low.
_ESTIMATE_MARGIN = 1 + 1e-9


class Counted(NamedTuple):
    """What users and shards need to know of the counted groups of a length.

    Attributes:
      groups: all groups, the best one first.
      numbers: (c,) int64, the classes in counted groups, ascending.
      factors: (c,) int64, ω of each, in units of 2^-16.
      places: (c,) int64, the place of each class's group in `groups`.
    """

    groups: Sequence[Group]
    numbers: np.ndarray
    factors: np.ndarray
    places: np.ndarray

    def rows(self, classes: np.ndarray) -> np.ndarray:
        """Returns the place of each n-gram's class in `numbers`, −1 if it is not counted."""
        if not self.numbers.size:
            return np.full(classes.size, -1)
        # A table of all classes from the lowest counted one to the highest, and one place on each side.
        lowest, highest = int(self.numbers[0]), int(self.numbers[-1])
        table = np.full(highest - lowest + 3, -1)
        table[self.numbers - lowest + 1] = np.arange(self.numbers.size)
        return table[np.clip(classes, lowest - 1, highest + 1) - (lowest - 1)]


@cached_for_sets(maxsize=4)
def counted_classes(previous: GramSet, stddev: float) -> Counted:
    """Returns the counted groups of length k, a function of S_{k−1} and s."""
    sizes = class_sizes(previous)
    return counted_of(tolerances.groups_of(sizes, len(previous), stddev))


def counted_of(groups: Sequence[Group]) -> Counted:
    """Returns the counted classes of groups."""
    rows = sorted(
        (number, factor, place)
        for place, group in enumerate(groups)
        if group.is_counted
        for number, factor in group.factors.items()
    )
    columns = np.array(rows, np.int64).reshape(-1, 3).T
    return Counted(groups, *columns)


def tallies(
    classes: np.ndarray, offsets: np.ndarray, left: np.ndarray, counted: Counted, stddev: float
) -> tuple[np.ndarray, np.ndarray]:
    """Returns t for each candidate, and what it costs each user.

    Args:
      classes: (m,) int16, the class of each user's distinct candidates.
      offsets: (n + 1,) int64, where each user's candidates begin.
      left: (n,) int64, in units of 2^-56.
      counted: the counted groups.
      stddev: s.

    Returns:
      (m,) int64 in units of 2^-24, 0 outside counted groups; costs, (n,) int64 in units of 2^-56.
    """
    rows = counted.rows(classes)
    inside = np.flatnonzero(rows >= 0)
    user = rows_of_entries(offsets)[inside]
    size, groups = left.size, 1 + int(counted.places.max(initial=-1))
    # (n, groups) int64 in units of 2^-16: n_G; sums of floats are exact below 2^53.
    sums = np.bincount(
        user * groups + counted.places[rows[inside]],
        weights=counted.factors[rows[inside]].astype(np.float64),
        minlength=size * groups,
    )
    sums = sums.astype(np.int64).reshape(size, groups)
    # (n,) float64: q, group by group, since the order decides the last digits.
    squares = np.zeros(size)
    for column in (sums * 2.0**-FACTOR_BITS).T:
        squares += column * column
    allowed = COUNT_COST * left * 2.0**-BUDGET_BITS
    root = np.sqrt(np.divide(allowed, squares, out=np.ones(size), where=squares > 0))
    own = np.floor(np.minimum(1.0, stddev * root) * 2.0**TALLY_BITS).astype(np.int64)
    # Only where s > 2^21 this is less: so small a budget must not overflow 64 bits.
    own = np.minimum(own, _MOST // np.maximum(1, sums.max(axis=1, initial=0)))
    # What is charged follows from these integers alone, so floats above need not be right.
    own, cost = affordable(own, sums, left, stddev)
    sent = np.zeros(classes.size, np.int64)
    sent[inside] = own[user]
    return sent, cost


def affordable(
    own: np.ndarray, sums: np.ndarray, left: np.ndarray, stddev: float
) -> tuple[np.ndarray, np.ndarray]:
    """Returns t of each user, or 0 where it would cost more than the user has, and what it costs.

    A user's distances t·n_G/s are weights like all others, in units of 2^-32 and rounded up, and cost
    the sum of their squares.

    Args:
      own: (n,) int64, t in units of 2^-24; t·n_G < 2^62 in units of 2^-40.
      sums: (n, groups) int64, n_G in units of 2^-16.
      left: (n,) int64, in units of 2^-56.
      stddev: s.

    Returns:
      (n,) int64 in units of 2^-24; costs, (n,) int64 in units of 2^-56.
    """
    # s·2^(8 + shift) is an integer, since s has 24 binary digits. With more of them, costs were higher.
    shift = max(0, 21 - math.frexp(stddev)[1])
    divisor = math.floor(math.ldexp(stddev / UNITS, SUM_BITS + shift))
    # (n, groups) int64: ⌈t·n_G/s⌉ in units of 2^-32.
    distances = -((-(own[:, np.newaxis] * sums) << shift) // divisor)
    cost = adaptive.costs(distances.reshape(-1), np.arange(own.size + 1) * sums.shape[1])
    fits = cost <= left
    return np.where(fits, own, 0), np.where(fits, cost, 0)


def held_sums(shard: HistogramShard, counted: Counted) -> list[int]:
    """Returns the part of a hash range in h_G of each group, in units of 2^-40, exactly."""
    sums = [0] * len(counted.groups)
    if shard.tallies is None or shard.classes is None:
        return sums
    rows = counted.rows(shard.classes)
    inside = np.flatnonzero(rows >= 0)
    own = np.zeros(counted.numbers.size, np.int64)
    np.add.at(own, rows[inside], np.minimum(shard.tallies[inside], 1 << TALLY_BITS))
    for total, factor, place in zip(
        own.tolist(), counted.factors.tolist(), counted.places.tolist(), strict=True
    ):
        sums[place] += total * factor
    return sums


def estimates(
    counted: Counted,
    parts: Iterable[Sequence[int]],
    length: int,
    stddev: float,
    run_key: RunKey,
) -> list[int | None]:
    """Returns the cell of X_G of each group, None for groups that are not counted.

    Args:
      counted: the groups.
      parts: `held_sums` of all hash ranges.
      length: k.
      stddev: s.
      run_key: the secret of the run.
    """
    held = [sum(column) for column in zip(*parts, strict=True)] or [0] * len(counted.groups)
    numbers = np.arange(len(counted.groups), dtype=np.uint64)
    bits = randomness.keyed_bits(run_key.sub_key("held noise", length), np.uint64(0), numbers)
    noise = randomness.normals(bits) * stddev
    cells: list[int | None] = []
    for group, own, drawn in zip(counted.groups, held, noise.tolist(), strict=True):
        cell = None
        if group.is_counted:
            exact = (group.candidates << TALLY_BITS) - own + round(drawn * 2**SUM_BITS)
            cell = exact // cell_units(stddev)
        cells.append(cell)
    return cells


def cell_units(stddev: float) -> int:
    """Returns the width of a cell of X, s/64, in units of 2^-40."""
    return max(1, round(stddev * 2**SUM_BITS / CELLS_PER_STDDEV))


def describe(
    groups: Sequence[Group], cells: Sequence[int | None], stddev: float
) -> list[GroupRule]:
    """Returns N_G of each group: from the upper edge of the cell of X_G, or U_G without a count."""
    described = []
    for group, number, cell in zip(groups, tolerances.all_candidates(groups), cells, strict=True):
        noisy, left = number, number
        if cell is not None:
            noisy = (cell + 1) * cell_units(stddev) / 2**SUM_BITS
            left = estimate(noisy, stddev)
        described.append(
            GroupRule(
                lowest=min(group.factors),
                candidates=number,
                noise_stddev=0.0 if cell is None else stddev,
                noisy_unheld=noisy,
                unheld=left,
            )
        )
    return described


def estimate(noisy: float, stddev: float) -> float:
    """Returns max(s·φ(X/s)/Φ̄(X/s), s/4), never too low.

    >>> round(estimate(0.0, 1.0), 6), round(estimate(50.0, 1.0), 3), estimate(-30.0, 1.0)
    (0.797885, 50.02, 0.25)
    """
    ratio = math.sqrt(2 / math.pi) / float(scipy.special.erfcx(noisy / (stddev * math.sqrt(2))))
    return stddev * max(ratio * _ESTIMATE_MARGIN, LEAST_ESTIMATE)


def rule_for(
    plan: PrivacyPlan,
    previous: GramSet = ROOT,
    run_key: RunKey | None = None,
    held: Iterable[Sequence[int]] = (),
) -> LengthRule:
    """Returns the rule of the length after S_{k−1}, by default of words; it depends on public numbers.

    Args:
      plan: the plan of the run.
      previous: S_{k−1}.
      run_key: the secret of the run; counts of held candidates and the estimate of |V_k| draw from it.
      held: `held_sums` of all hash ranges ("adaptive" only); without them nothing is counted.
    """
    length, held = previous.length + 1, list(held)
    if length == 1:
        return rule_of_sizes(plan, 1, released=1, sizes={})
    sizes = class_sizes(previous, plan.pruning, by_prediction=plan.is_adaptive)
    estimated_valid, cells = None, None
    if plan.valid_count == "estimate" and run_key is not None and sizes:
        estimated_valid = max(
            1, estimate_valid_kgrams(previous, run_key.sub_key("estimate", length))
        )
    if held and run_key is not None:
        groups = counted_classes(previous, plan.held_stddev)
        cells = estimates(groups, held, length, plan.held_stddev, run_key)
    released = len(previous)
    return rule_of_sizes(
        plan, length, released=released, sizes=sizes, estimated_valid=estimated_valid, cells=cells
    )


def rule_of_sizes(
    plan: PrivacyPlan,
    length: int,
    *,
    released: int,
    sizes: Mapping[int, int],
    estimated_valid: int | None = None,
    cells: Sequence[int | None] | None = None,
) -> LengthRule:
    """Returns the thresholds and cuts of a length.

    Args:
      plan: the plan of the run.
      length: k.
      released: |S_{k−1}|.
      sizes: |V_c| of the classes that have candidates, by their numbers; with "one_round" of class 0
        alone. It is empty at k = 1, and if no n-gram is valid; then nothing more is released.
      estimated_valid: the estimate of |V_k|, which affects the threshold of "one_round" only.
      cells: the cell of X_G of each group; None where nothing was counted ("adaptive" only).
    """
    numbers, valid = plan.lengths[length - 1], sum(sizes.values())
    if length == 1 and plan.is_adaptive:
        return LengthRule.of_rounds(length=1, noise_stddev=1.0, rounds=numbers.word_rules)
    if not plan.is_adaptive:
        threshold = numbers.threshold
        if valid:
            threshold = thresholds.spurious_threshold(
                noise_stddev=numbers.noise_stddev,
                spurious_fraction=plan.spurious_fraction,
                released=released,
                valid=estimated_valid or valid,
            )
        return length_rule(
            length=length,
            noise_stddev=numbers.noise_stddev,
            threshold=threshold,
            valid=None if length == 1 else valid,
            pruning=plan.pruning if length > 1 else "both",
        )
    groups = tolerances.groups_of(sizes, released, plan.held_stddev)
    described = describe(groups, cells or [None] * len(groups), plan.held_stddev)
    unheld, tolerated = [each.unheld for each in described], plan.spurious_fraction * released
    chances = tolerances.probabilities(groups, unheld, tolerated)
    of_groups = tolerances.group_probabilities(groups, unheld, tolerated)
    return LengthRule(
        length=length,
        noise_stddev=1.0,
        classes=tuple(
            ClassRule(
                number=number,
                valid=sizes[number],
                rounds=adaptive.gram_rounds(chances[number], numbers.rounds),
            )
            for number in sorted(sizes)
        ),
        groups=tuple(
            dataclasses.replace(each, probability=chance)
            for each, chance in zip(described, of_groups, strict=True)
        ),
        by_prediction=True,
    )
