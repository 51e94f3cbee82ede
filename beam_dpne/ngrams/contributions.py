"""What one user adds to a length's histogram under "one_round", and to a count of held candidates.

Both are bounded in exact integers; `length_rules` says what the counts are for.
"""

import dataclasses
import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from beam_dpne.elements.arrays import outside_keyed_subset
from beam_dpne.elements.sums import sums_at
from beam_dpne.mechanism.randomness import RunKey
from beam_dpne.mechanism.rules import UNITS
from beam_dpne.mechanism.thresholds import equal_weights
from beam_dpne.ngrams import adaptive
from beam_dpne.ngrams.adaptive import BUDGET_BITS
from beam_dpne.ngrams.elements import Contributions
from beam_dpne.ngrams.tolerances import COUNT_COST, FACTOR_BITS, TALLY_BITS, Group

# Sums of ω·t are in units of 2^-40.
SUM_BITS = FACTOR_BITS + TALLY_BITS
_MOST = 2**62 - 1


def limit_contributions(
    contributions: Contributions, *, max_contributions: int, run_key: RunKey
) -> Contributions:
    """Gives each user's n-grams the weight 1/√min(n, Δ), or 0 outside a keyed subset of size Δ."""
    counts = np.diff(contributions.offsets)
    # (m,) int64 in units of 2^-32; users may have no n-gram.
    weights = np.repeat(equal_weights(np.clip(counts, 1, max_contributions)), counts)
    sub_key = run_key.sub_key("subset", contributions.length)
    weights[outside_subset(contributions, max_contributions, sub_key)] = 0
    return dataclasses.replace(contributions, weights=weights)


def outside_subset(
    contributions: Contributions, max_contributions: int, sub_key: bytes
) -> np.ndarray:
    """Returns the entries of users above the limit that are outside a keyed subset: ascending int64."""
    return outside_keyed_subset(
        contributions.offsets,
        max_contributions,
        sub_key=sub_key,
        users=contributions.users,
        keys_of=contributions.ngrams.identities,
    )


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
        lowest = int(self.numbers[0])
        highest = int(self.numbers[-1])
        table = np.full(highest - lowest + 3, -1)
        table[self.numbers - lowest + 1] = np.arange(self.numbers.size)
        return table[np.clip(classes, lowest - 1, highest + 1) - (lowest - 1)]


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
    classes: np.ndarray,
    users: np.ndarray,
    left: np.ndarray,
    counted: Counted,
    stddev: float,
    *,
    part: np.ndarray | float = 1.0,
) -> tuple[np.ndarray, np.ndarray]:
    """Returns t for each candidate, and what it costs each user.

    Args:
      classes: (m,) int16, the class of each user's distinct candidates.
      users: (m,) int64, the row of each candidate's user.
      left: (n,) int64, in units of 2^-56.
      counted: the counted groups.
      stddev: s.
      part: (n,) float64 up to 1, the part of the usual cost that each user pays at most.

    Returns:
      (m,) int64 in units of 2^-24, 0 outside counted groups; costs, (n,) int64 in units of 2^-56.
    """
    rows = counted.rows(classes)
    inside = np.flatnonzero(rows >= 0)
    rows = rows[inside]
    user = users.take(inside)
    size = left.size
    groups = 1 + int(counted.places.max(initial=-1))
    # (n, groups) int64 in units of 2^-16: n_G.
    cells = user * groups + counted.places[rows]
    sums = sums_at(cells, counted.factors[rows], size * groups).reshape(size, groups)
    # (n,) float64: q, group by group, since the order decides the last digits.
    squares = np.zeros(size)
    for column in (sums * 2.0**-FACTOR_BITS).T:
        squares += column * column
    allowed = COUNT_COST * left * 2.0**-BUDGET_BITS * part
    root = np.sqrt(np.divide(allowed, squares, out=np.ones(size), where=squares > 0))
    own = np.floor(np.minimum(1.0, stddev * root) * 2.0**TALLY_BITS).astype(np.int64)
    # Only where s > 2^21 this is less: so small a budget must not overflow 64 bits.
    own = np.minimum(own, _MOST // np.maximum(1, sums.max(axis=1, initial=0)))
    # What is charged follows from these integers alone, so floats above need not be right.
    own, cost = affordable(own, sums, left, stddev)
    sent = np.zeros(classes.size, np.int64)
    sent[inside] = own.take(user)
    return sent, cost


def affordable(
    own: np.ndarray, sums: np.ndarray, left: np.ndarray, stddev: float
) -> tuple[np.ndarray, np.ndarray]:
    """Returns each user's t and its cost; both are 0 where t would cost more than the user has left.

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
