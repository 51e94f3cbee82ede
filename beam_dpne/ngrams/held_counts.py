"""The private count of held candidates: how many candidates of each group somebody holds.

Before the first round of a length, user u takes n_G = Σ ω over the own candidates of each counted group
G, q = Σ_G n_G², and t = min(1, s·√(COST·left/q)). The user sends t for each of these candidates, beside
the weights of round 1. With h_G = Σ ω_g·min(1, Σ_u t_u(g)) over the observed candidates,

    X_G = U_G − h_G + N(0, s²),

is released as a cell of width s/64. One user moves (h_G)_G by at most t·√q in ℓ2, whatever the others
send, since min(1, ·) moves by no more than its argument. So (t·√q/s)² of the user's budget is charged
first: the bound, never the shift itself, which depends on the others. It is computed in integers.

N_G is an estimate of the number of candidates that nobody holds, weighted by ω, with E[1/N_G] at most
one over it (Voinov 1985): s·φ(X/s)/Φ̄(X/s), and at least s/4.
"""

import dataclasses
import math
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np

from beam_dpne.elements.arrays import rows_of_entries
from beam_dpne.elements.coders import cached_for_sets
from beam_dpne.mechanism import randomness, special
from beam_dpne.mechanism.randomness import RunKey
from beam_dpne.mechanism.rules import CELLS_PER_STDDEV, UNITS, GroupRule, LengthRule
from beam_dpne.ngrams import adaptive, tolerances
from beam_dpne.ngrams.adaptive import BUDGET_BITS
from beam_dpne.ngrams.classes import class_sizes
from beam_dpne.ngrams.elements import GramSet, HistogramShard, SpuriousGrams
from beam_dpne.ngrams.histogram import hash_ranges
from beam_dpne.ngrams.plan import PrivacyPlan
from beam_dpne.ngrams.strategies import class_rule
from beam_dpne.ngrams.tolerances import (
    COUNT_COST,
    FACTOR_BITS,
    LEAST_ESTIMATE,
    TALLY_BITS,
    Group,
)
from beam_dpne.ngrams.valid import rule_for

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
    *,
    copy: int = 0,
) -> list[int | None]:
    """Returns the cell of X_G of each group, None for groups that are not counted.

    Args:
      counted: the groups.
      parts: `held_sums` of all hash ranges.
      length: k.
      stddev: s.
      run_key: the secret of the run.
      copy: the number of the run, if an audit makes many under one key.
    """
    held = [sum(column) for column in zip(*parts, strict=True)] or [0] * len(counted.groups)
    numbers = np.arange(len(counted.groups), dtype=np.uint64)
    bits = randomness.keyed_bits(run_key.sub_key("held noise", length), np.uint64(copy), numbers)
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
    ratio = math.sqrt(2 / math.pi) / float(special.erfcx(noisy / (stddev * math.sqrt(2))))
    return stddev * max(ratio * _ESTIMATE_MARGIN, LEAST_ESTIMATE)


def counted_rule(
    previous: GramSet,
    parts: Iterable[Sequence[int]],
    *,
    plan: PrivacyPlan,
    length: int,
    run_key: RunKey,
) -> LengthRule:
    """Returns the rule of a length k ≥ 2 after the count of held candidates."""
    stddev = plan.held_stddev
    counted = counted_classes(previous, stddev)
    cells = estimates(counted, parts, length, stddev, run_key)
    return class_rule(
        plan,
        length,
        released=len(previous),
        sizes=class_sizes(previous),
        groups=counted.groups,
        described=describe(counted.groups, cells, stddev),
    )


def rule_of_round(
    previous: GramSet,
    shards: Iterable[HistogramShard],
    *,
    plan: PrivacyPlan,
    length: int,
    run_key: RunKey,
) -> LengthRule:
    """Returns the rule of a length k ≥ 2 after the sums of round 1, of all hash ranges."""
    if not plan.is_adaptive:
        return rule_for(plan, length, run_key)(previous)
    counted = counted_classes(previous, plan.held_stddev)
    parts = [held_sums(shard, counted) for shard in shards]
    return counted_rule(previous, parts, plan=plan, length=length, run_key=run_key)


def meet_spurious(
    shard: HistogramShard, drawn: SpuriousGrams, *, histogram_ranges: int
) -> HistogramShard:
    """Gives a hash range the drawn n-grams that belong to it, and the rule that decides."""
    ranges = hash_ranges(drawn.keys.view(np.uint64), histogram_ranges)
    inside = np.flatnonzero(ranges == shard.range_number)
    return dataclasses.replace(
        shard,
        tallies=None,
        spurious_keys=drawn.keys[inside],
        spurious_cells=drawn.cells[inside],
        spurious_rounds=drawn.rounds[inside],
        spurious_classes=drawn.classes[inside],
        rule=drawn.rule,
    )
