"""The pass that counts users, in Beam and in memory: exact sums over users, their noise, estimates.

A program says with a `CountedRows` how its released sets are rows, and which rows a user holds.

**Why it is private.** Given the released rows, a user adds to all sums together a vector that is a
function of this user's data and of the released rows alone, and whose length is at most 1 (`rule`). The
sums get Gaussian noise with 1/σ ≤ μ, so the measurement is μ-Gaussian-DP given everything released
before, and composes with it. Everything that follows uses the noisy sums and the released rows alone.

A user's numbers are integers in units of 2^-32, rounded down, so that the length is at most 1 exactly.
Noisy sums leave as *cells* only, a 64th of a standard deviation wide or a little wider, whose
probabilities are right to a relative 1e-12 (`mechanism.thresholds`). The sums of 3·10^9 users fit into
int64, even if all of them hold the same row and nothing else.
"""

import dataclasses
import functools
import math
from collections.abc import Iterable, Sequence
from typing import Any, Protocol, TypeVar, runtime_checkable

import numpy as np

from beam_dpne.counts.rule import (
    SIZES_PART,
    CountRule,
    MeasuredCounts,
    blocks,
    count_rule,
    required_noise,
)
from beam_dpne.elements.arrays import (
    distinct,
    offsets_of,
    rows_of_entries,
)
from beam_dpne.elements.batches import RowSums, table_of_sums
from beam_dpne.elements.encoding import cached_for_sets
from beam_dpne.elements.sums import sums_of_rows
from beam_dpne.mechanism import randomness
from beam_dpne.mechanism.randomness import RunKey
from beam_dpne.mechanism.rules import CELLS_PER_STDDEV, UNITS
from beam_dpne.mechanism.thresholds import noisy_cells_of

_Set = TypeVar("_Set")
# γ and κ in units of 2^-32, with 2κ² + γ² ≤ 1; the margin is larger than all that floating point loses.
_MARGIN = 1 - 2.0**-40
# Rows to which noise is added at a time: some ten sums each, which stay in the processor's cache.
_ROWS_AT_ONCE = 2**12
_SIZE_UNITS = UNITS * math.sqrt(SIZES_PART) * _MARGIN
_ROW_UNITS = UNITS * math.sqrt((1 - SIZES_PART) / 2) * _MARGIN


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
class UserParts:
    """What users send, in units of 2^-32 and rounded down; the upper class is the one above the lower.

    Attributes:
      lower: (n,) int64, the lower class of each user.
      numbers: (n, 2) int64, what a user sends for each row that is held, divided by the row's weight,
        to the sums of both classes.
      masses: (n,) int64, the same for the row's mass, the one sum that users of all classes share.
      sizes: (n, 2) int64, what a user sends to the numbers of users of both classes.
    """

    lower: np.ndarray
    numbers: np.ndarray
    masses: np.ndarray
    sizes: np.ndarray

    @classmethod
    def of(cls, squares: np.ndarray, bounds: np.ndarray) -> "UserParts":
        """Returns the parts of users with the squared sizes Σ a_g², (n,) int64.

        Example:
          >>> parts = UserParts.of(np.array([1, 2, 4]), np.array([1.0, 2.0]))
          >>> (parts.numbers / UNITS).round(3).tolist()
          [[0.7, 0.0], [0.404, 0.148], [0.0, 0.35]]
        """
        last = max(bounds.size - 2, 0)
        lower = np.searchsorted(bounds[: last + 1] ** 2, squares, side="right") - 1
        lower = np.clip(lower, 0, last)
        # (n,) float64: s² between 1 and 4, and p.
        ratios = np.clip(squares / bounds[lower] ** 2, 1, 4)
        upper = 1 - np.sqrt((4 / ratios - 1) / 3) if bounds.size > 1 else np.zeros(squares.size)
        parts = np.stack((1 - upper, upper), axis=1) * (squares > 0)[:, np.newaxis]
        sent = _ROW_UNITS * parts / (bounds[lower, np.newaxis] * (1.0, 2.0))
        return cls(
            lower=lower,
            numbers=np.floor(sent).astype(np.int64),
            masses=np.floor(sent.sum(axis=1)).astype(np.int64),
            sizes=np.floor(_SIZE_UNITS * parts).astype(np.int64),
        )


def sum_counts(held: Held, rule: CountRule) -> RowSums:
    """Returns what the users of a batch add to the sums.

    Returns:
      Sums in units of 2^-32, row by row: those of the classes, and then that of the row's mass. The
      numbers of users of the classes come last, as if they were one more row. What each user adds is
      there by itself, so that rows are repeated. `split_sums` gives all three back.
    """
    classes = rule.bounds.size
    users = rows_of_entries(held.offsets)
    weights = rule.row_weights.take(held.rows)
    parts = UserParts.of(sums_of_rows(weights * weights, held.offsets), rule.bounds)
    both = range(min(2, classes))
    # What is added for one row held by one user lies together, as its places in the table do; the
    # numbers of users follow.
    shape = held.rows.size, 1 + len(both)
    of_rows = slice(0, math.prod(shape))
    rows, sums = np.empty((2, of_rows.stop + len(both) * parts.lower.size), np.int64)
    places, added = rows[of_rows].reshape(shape), sums[of_rows].reshape(shape)
    starts = held.rows * np.int64(classes + 1)
    places[:, -1] = starts + classes
    added[:, -1] = weights * parts.masses.take(users)
    starts += parts.lower.take(users)
    for above in both:
        places[:, above] = starts + above
        added[:, above] = weights * parts.numbers[:, above].take(users)
    sizes = rule.row_weights.size * (classes + 1) + np.add.outer(parts.lower, both)
    rows[of_rows.stop :] = sizes.reshape(-1)
    sums[of_rows.stop :] = parts.sizes[:, : len(both)].reshape(-1)
    return RowSums(rows=rows, sums=sums)


def split_sums(
    pieces: Iterable[RowSums], rule: CountRule
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Returns the sums of n rows and C classes from pieces that are cut in any way.

    Returns:
      The numbers of each row, (n, C) int64; its mass, (n,) int64; and the numbers of users of the
      classes, (C,) int64.
    """
    shape = rule.row_weights.size + 1, rule.bounds.size + 1
    table = table_of_sums(pieces, math.prod(shape)).reshape(shape)
    return table[:-1, :-1], table[:-1, -1], table[-1, :-1]


def measure(
    pieces: Iterable[RowSums], rule: CountRule, noise: float, run_key: RunKey
) -> MeasuredCounts:
    """Adds noise to the sums of all users: the only step from private sums to public numbers.

    Args:
      pieces: sums over all users, cut by users and rows in any way.
      rule: the rule by which they were summed.
      noise: the noise.
      run_key: bound to the run's parameters.
    """
    numbers, masses, sizes = split_sums(pieces, rule)
    # The noisy numbers take the places of the sums, block by block.
    found = MeasuredCounts(
        numbers=numbers.view(np.float64),
        masses=masses.view(np.float64),
        sizes=noisy_sums(sizes, noise, run_key, "count sizes", 0) / _SIZE_UNITS,
        unit=noise * UNITS / _ROW_UNITS,
        size_stddev=noise * UNITS / _SIZE_UNITS,
    )
    for rows in blocks(0, masses.size, _ROWS_AT_ONCE):
        scales = _ROW_UNITS * rule.row_weights[rows]
        found.masses[rows] = (
            noisy_sums(masses[rows], noise, run_key, "count masses", rows.start) / scales
        )
        first = rows.start * rule.bounds.size
        noisy = noisy_sums(numbers[rows].reshape(-1), noise, run_key, "count numbers", first)
        found.numbers[rows] = (
            noisy.reshape(numbers[rows].shape) * rule.bounds / scales[:, np.newaxis]
        )
    return found


def noisy_sums(
    values: np.ndarray, noise: float, run_key: RunKey, purpose: str, first: int
) -> np.ndarray:
    """Returns the middles of the cells of values with noise, (n,) float64 in units of 2^-32.

    Args:
      values: (n,) int64, in units of 2^-32.
      noise: the noise.
      run_key: bound to the run's parameters.
      purpose: what the values are; different values have different noise.
      first: the number of the first value.
    """
    stddev = noise * UNITS
    items = np.arange(first, first + values.size)
    bits = randomness.keyed_bits(run_key.sub_key(purpose), np.uint64(0), items)
    width = math.ceil(stddev / CELLS_PER_STDDEV)
    draws = randomness.normals(bits) * stddev
    return (noisy_cells_of(values, draws, width) + 0.5) * width


@runtime_checkable  # Beam checks the arguments of steps.
class CountedRows(Protocol):
    """How the released sets of one program are rows whose users are counted; it must be hashable.

    A user must be in one batch only, since every user adds vectors of length 1 at most to the sums.
    """

    def held(self, users: Any, released: Sequence[Any]) -> Held:
        """Returns the distinct rows that each user of a batch holds."""
        ...

    def scores(self, released: Sequence[Any]) -> Sequence[np.ndarray]:
        """Returns the scores of the rows of each length."""
        ...

    def groups(self, released: Sequence[Any]) -> np.ndarray | None:
        """Returns the number of the group of each row, (n,) integers ≥ 0; None without groups."""
        ...

    def with_users(self, released: Sequence[Any], users: np.ndarray) -> list[Any]:
        """Returns the sets with the numbers of users of all rows, (n, 3) int64."""
        ...


def sum_batches(rows: CountedRows, batches: Iterable[Any], released: Sequence[Any]) -> RowSums:
    """Returns the exact sums of batches in memory, as `sum_counts` does; a user is in one batch only.

    Args:
      rows: how the sets are rows.
      batches: users.
      released: the released sets.
    """
    sum_batch = functools.partial(sum_batch_of, rows=rows, sets=len(released))
    rule = rule_of(rows, *released)
    size = (rule.row_weights.size + 1) * (rule.bounds.size + 1)
    table = table_of_sums((sum_batch(batch, *released) for batch in batches), size)
    found = np.flatnonzero(table)
    return RowSums(rows=found, sums=table[found])


def sum_batch_of(batch: Any, *beside: Any, rows: CountedRows, sets: int) -> RowSums:
    """Counts in one batch; the released sets are the last of the side inputs."""
    released = beside[len(beside) - sets :]
    return sum_counts(rows.held(batch, released), rule_of(rows, *released))


@cached_for_sets(maxsize=1)
def rule_of(rows: CountedRows, *released: Any) -> CountRule:
    """Returns the weights of all rows, which are computed once for all batches."""
    return count_rule(rows.scores(released))


def estimated(
    last: Any,
    pieces: Iterable[RowSums],
    *shorter: Any,
    rows: CountedRows,
    noise: float | None,
    run_key: RunKey,
    workers: int = 1,
) -> list[Any]:
    """Returns all released sets with their estimates, given the last one and those before it.

    Args:
      last: the set of the longest rows.
      pieces: sums over all users, cut by users and rows in any way.
      shorter: the sets before it.
      rows: how the sets are rows.
      noise: the noise of the measurement; None is refused.
      run_key: the secret of the run, bound to its parameters.
      workers: the largest number of processes; it changes no estimate.
    """
    # Nobody else needs it, so that a launcher and most workers do without its tables.
    from beam_dpne.counts.estimates import estimate_users

    released = [*shorter, last]
    rule = rule_of(rows, *released)
    measured = measure(pieces, rule, required_noise(noise), run_key)
    users = estimate_users(measured, rule, rows.groups(released), workers)
    return rows.with_users(released, users)
