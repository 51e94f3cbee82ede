"""The sums over users from which numbers of users are estimated, in exact integers, and their noise.

**Why it is private.** Given the released rows, a user adds to the sums of rows the vector (a_g·t) over
the rows that the user holds, with t ≤ 1/√(Σ a_g²): its length is at most 1. To the sums of groups, in
units of their class's bound M_j, the user adds a vector of length at most 1. Both are functions of this
user's data and of released sets alone. The sums get Gaussian noise with 1/σ_A² + 1/σ_B² ≤ μ², so the
measurement is μ-Gaussian-DP given everything released before, and composes with it.

Weights are exact integers in units of 2^-32. Released are only *cells*, 64 to a standard deviation,
whose probabilities are right to a relative 1e-12 (`mechanism.thresholds`).
"""

import dataclasses
from collections.abc import Iterable

import numpy as np

from beam_dpne.counts.rule import EXACT, CountNoise, CountRule, blocks
from beam_dpne.elements.arrays import distinct, offsets_of, rows_of_entries
from beam_dpne.elements.batches import RowSums, sums_of_table, table_of_sums
from beam_dpne.mechanism import randomness
from beam_dpne.mechanism.randomness import RunKey
from beam_dpne.mechanism.rules import CELLS_PER_STDDEV, UNITS
from beam_dpne.mechanism.thresholds import cells_above

_SMALL = 1 - 2.0**-50
_NORM_MARGIN = 2.0**-30


@dataclasses.dataclass(frozen=True, eq=False, kw_only=True)
class Held:
    """The distinct released rows that each user holds (CSR).

    Attributes:
      offsets: (n + 1,) int64, where each user's rows begin.
      rows: (m,) int64, ascending within a user.
    """

    offsets: np.ndarray
    rows: np.ndarray

    @classmethod
    def of(cls, users: np.ndarray, rows: np.ndarray, *, user_count: int, row_count: int) -> "Held":
        """Returns what users hold, from pairs of a user's number and a row, (p,) integers each."""
        (user, row), _ = distinct((users, rows), (max(1, user_count), max(1, row_count)))
        return cls(offsets=offsets_of(np.bincount(user, minlength=user_count)), rows=row)


@dataclasses.dataclass(frozen=True, eq=False, kw_only=True)
class MeasuredCounts:
    """The noisy sums, in units that do not depend on weights.

    Attributes:
      masses: (n,) float64, Σ_u t_u of each row, with noise.
      mass_stddevs: (n,) float64, the standard deviation of that noise.
      totals: (g, J + 1) float64: number of pairs of a user of each class and a row of each group that
        the user holds, with noise.
      total_stddevs: (g, J + 1) float64, the standard deviation of that noise.
    """

    masses: np.ndarray
    mass_stddevs: np.ndarray
    totals: np.ndarray
    total_stddevs: np.ndarray


def user_factors(squares: np.ndarray) -> np.ndarray:
    """Returns t = 1/√q in units of 2^-32, rounded down, so that t²·q ≤ 2^64: (n,) int64.

    Args:
      squares: (n,) int64, q = Σ a_g² ≥ 0 of each user; t = 0 where it is 0.

    Example:
      >>> user_factors(np.array([0, 1, 4]))
      array([         0, 4294967295, 2147483647])
    """
    # √ and the quotient are right to 2^-52 each, so that the product with 1 − 2^-50 is never too large.
    roots = np.sqrt(np.maximum(squares, 1).astype(np.float64))
    factors = np.floor(UNITS / roots * _SMALL).astype(np.int64)
    return np.where(squares > 0, factors, 0)


def sum_counts(held: Held, rule: CountRule) -> RowSums:
    """Adds up the users of a batch.

    Returns:
      First the rows' masses, Σ_u a_g·t_u in units of 2^-32; after them, group by group, the number of
      rows of the group that the users of each class hold, Σ_u c_G. `split_sums` gives both back.
    """
    users = rows_of_entries(held.offsets)
    weights = rule.row_weights[held.rows]
    squares = _sums_of_users(weights * weights, held.offsets)
    masses = np.zeros(rule.row_weights.size, np.int64)
    np.add.at(masses, held.rows, weights * user_factors(squares)[users])
    # (pairs,) each: the pairs of a user and a group that the user has rows of, and their number c_G.
    size = rule.group_weights.size
    pairs, numbers = np.unique(users * size + rule.groups[held.rows], return_counts=True)
    user, group = np.divmod(pairs, max(size, 1))
    lengths = (numbers * rule.group_weights[group]).astype(np.float64) ** 2
    norms = np.zeros(held.offsets.size - 1)
    np.add.at(norms, user, lengths)
    # The least class whose squared bound is not below the squared length. Sums from 2^53 on are right
    # to far less than a relative 2^-30, which is added, so that no user is in too small a class.
    norms[norms >= EXACT] *= 1 + _NORM_MARGIN
    classes = np.searchsorted(rule.bounds.astype(np.float64) ** 2, norms)
    totals = np.zeros((size, rule.bounds.size), np.int64)
    np.add.at(totals, (group, classes[user]), numbers)
    return sums_of_table(np.concatenate((masses, totals.reshape(-1))))


def split_sums(pieces: Iterable[RowSums], rule: CountRule) -> tuple[np.ndarray, np.ndarray]:
    """Returns masses, (n,) int64, and totals, (g, J + 1) int64, of sums that are cut in any way."""
    rows, shape = rule.row_weights.size, (rule.group_weights.size, rule.bounds.size)
    table = table_of_sums(pieces, rows + shape[0] * shape[1])
    return table[:rows], table[rows:].reshape(shape)


def _sums_of_users(values: np.ndarray, offsets: np.ndarray) -> np.ndarray:
    """Returns the sum of each user's values: (n,) int64."""
    before = np.concatenate(([0], np.cumsum(values)))
    return before[offsets[1:]] - before[offsets[:-1]]


def measure(
    pieces: Iterable[RowSums], rule: CountRule, noise: CountNoise, run_key: RunKey
) -> MeasuredCounts:
    """Adds noise to the sums of all users: the only step from private sums to public numbers.

    Args:
      pieces: sums over all users, cut by users and rows in any way.
      rule: the rule by which they were summed.
      noise: the noise.
      run_key: bound to the run's parameters.
    """
    sums, totals = split_sums(pieces, rule)
    masses = np.empty(sums.size)
    for rows in blocks(0, masses.size):
        draws = _normals(run_key, "count masses", np.arange(rows.start, rows.stop))
        noisy = _noisy(sums[rows], noise.row_stddev * UNITS, draws)
        masses[rows] = noisy / (UNITS * rule.row_weights[rows])
    # (g, J + 1) int64: Σ c_G d_G, on which a user of class j has an effect of at most M_j.
    values = totals * rule.group_weights[:, np.newaxis]
    stddevs = noise.group_stddev * np.broadcast_to(rule.bounds, values.shape)
    draws = _normals(run_key, "count totals", np.arange(values.size)).reshape(values.shape)
    return MeasuredCounts(
        masses=masses,
        mass_stddevs=noise.row_stddev / rule.row_weights,
        totals=_noisy(values, stddevs, draws) / rule.group_weights[:, np.newaxis],
        total_stddevs=stddevs / rule.group_weights[:, np.newaxis],
    )


def _noisy(values: np.ndarray, stddevs: np.ndarray | float, normals: np.ndarray) -> np.ndarray:
    """Returns the middles of the cells of values with noise, float64.

    Args:
      values: integers, in any unit.
      stddevs: standard deviations of the noise, in this unit.
      normals: standard normal draws.
    """
    widths = np.ceil(np.asarray(stddevs) / CELLS_PER_STDDEV).astype(np.int64)
    # Whole cells are split off exactly, so that no rounding grows with the value.
    whole, rest = np.divmod(values, widths)
    cells = cells_above(whole, rest.astype(np.float64), normals * stddevs, widths)
    return (cells + 0.5) * widths


def _normals(run_key: RunKey, purpose: str, items: np.ndarray) -> np.ndarray:
    return randomness.normals(randomness.keyed_bits(run_key.sub_key(purpose), np.uint64(0), items))
