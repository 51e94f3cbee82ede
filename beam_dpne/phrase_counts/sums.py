"""What users send in the three rounds of a count, in exact integers, and the noise on their sums.

Let m be the number of phrases of the list that a user holds, and K the number of all.

1. *Sizes.* Each user adds 1 to the class of m; classes are octaves.
2. *Excess.* A bound M², and the shares of the budget that the next two rounds have, are chosen from the
   noisy sizes. Each user with m > M² adds
   (1 − M/√m) / (1 − M/√K) ≤ 1 to one number.
3. *Numbers.* Each user adds min(1/M, 1/√m) to each phrase that the user holds. The square of the vector
   is at most m/m = 1.

**Why it is private.** In each round a user adds a vector of length at most 1, which is a function of
this user's own phrases and of what was released in the rounds before. The sums get Gaussian noise whose
squared 1/σ add up to at most μ² over the rounds, so the three together are μ-Gaussian-DP (adaptive
composition). The list is public, and every phrase gets a number.

All vectors are integers in units of 2^-32 and rounded down, so that the lengths are at most 1 exactly.
The sums of 2^31 − 1 users fit into int64, even if all of them are of one class.
"""

import dataclasses
import math
from collections.abc import Iterable

import numpy as np

from beam_dpne.counts.measuring import Held, noisy_sums
from beam_dpne.elements.arrays import rows_of_entries
from beam_dpne.elements.batches import RowSums, UserBatch, table_of_sums
from beam_dpne.elements.sums import sums_at
from beam_dpne.lists.phrases import PhraseList
from beam_dpne.mechanism.randomness import RunKey
from beam_dpne.mechanism.rules import UNITS
from beam_dpne.phrase_counts.plan import SIZE_SHARE, PhraseCountsPlan


@dataclasses.dataclass(frozen=True, kw_only=True)
class Bound:
    """The bound that was chosen from the noisy sizes.

    Attributes:
      members: K, the number of phrases of the list.
      most: M², so many phrases a user may hold and count fully in each; from 1 to K.
      excess_share: the part of the budget with which the excess is measured; 0 if no user can be above
        the bound.
    """

    members: int
    most: int
    excess_share: float

    @property
    def row_share(self) -> float:
        """The part of the budget that is left for the numbers."""
        return 1 - SIZE_SHARE - self.excess_share

    @property
    def scale(self) -> float:
        """M, by which sums are multiplied to be numbers of users."""
        return math.sqrt(self.most)

    @property
    def largest_excess(self) -> float:
        """1 − M/√K, what one user sends too little for one phrase, at most."""
        return 1 - math.sqrt(self.most / self.members)

    def key_of(self, run_key: RunKey) -> RunKey:
        """Returns the key of the rounds whose sums follow from the bound.

        A bound is the best of many by a little, so that another version of a library may choose another
        one from the same sizes. The difference of both releases would be free of noise if they had the
        same draws.
        """
        return run_key.bound_to(f"bound {self.most}, excess {self.excess_share}")


def held_phrases(batch: UserBatch, phrases: PhraseList) -> Held:
    """Returns the distinct phrases of the list that each user of a batch holds, as rows of the list.

    Raises:
      ValueError: if the batch's positions are not of length 0.
    """
    user, rows = phrases.held_by(batch)
    count = len(batch.users)
    return Held.of(user, rows, user_count=count, row_count=len(phrases))


def class_ends(members: int) -> np.ndarray:
    """Returns the largest number of phrases of each class of users: 1, 2, 4, … and K; (C,) int64.

    >>> class_ends(20)
    array([ 1,  2,  4,  8, 16, 20])
    """
    doubled = 2 ** np.arange(math.ceil(math.log2(members)) if members > 1 else 0, dtype=np.int64)
    return np.append(doubled, members)


def sum_sizes(held: Held, members: int) -> RowSums:
    """Counts the users of a batch who hold a phrase by their class, in units of 2^-32."""
    sizes = np.diff(held.offsets)
    classes = np.searchsorted(class_ends(members), sizes[sizes > 0])
    return _sums(classes, np.full(classes.size, UNITS, np.int64))


def sum_excess(held: Held, bound: Bound) -> RowSums:
    """Adds up what users above the bound send too little for one phrase, over the most it can be."""
    sizes = np.diff(held.offsets)
    above = sizes[sizes > bound.most]
    shares = (1 - np.sqrt(bound.most / above)) / bound.largest_excess if above.size else above
    units = np.minimum(np.floor(shares * UNITS), UNITS).astype(np.int64)
    return _sums(np.zeros(above.size, np.int64), units)


def sum_numbers(held: Held, bound: Bound) -> RowSums:
    """Adds up what users send to their phrases, in units of 2^-32."""
    sizes = np.diff(held.offsets)
    weights = user_weights(sizes, bound)
    return _sums(held.rows, weights[rows_of_entries(held.offsets)])


def user_weights(sizes: np.ndarray, bound: Bound) -> np.ndarray:
    """Returns what a user sends to each of so many phrases, ⌊2^32 / √max(m, M²)⌋: (n,) int64.

    The root is one of integers: m times its square is at most 2^64 exactly.
    """
    distinct, places = np.unique(np.maximum(sizes, bound.most), return_inverse=True)
    roots = [math.isqrt(UNITS * UNITS // size) for size in distinct.tolist()]
    return np.array(roots, np.int64)[places]


def noisy_sizes(
    sums: Iterable[RowSums], members: int, plan: PhraseCountsPlan, run_key: RunKey
) -> np.ndarray:
    """Returns the noisy numbers of users of all classes: (C,) float64."""
    table = table_of_sums(sums, class_ends(members).size)
    return noisy_sums(table, plan.size_noise, run_key, "phrase sizes", 0) / UNITS


def noisy_excess(
    sums: Iterable[RowSums], bound: Bound, plan: PhraseCountsPlan, run_key: RunKey
) -> float:
    """Returns the noisy shortfall of a phrase that all users above the bound hold, in users."""
    noise = plan.noise_of(bound.excess_share)
    noisy = noisy_sums(table_of_sums(sums, 1), noise, bound.key_of(run_key), "phrase excess", 0)
    return float(noisy[0]) / UNITS * bound.largest_excess


def noisy_numbers(
    sums: Iterable[RowSums], bound: Bound, plan: PhraseCountsPlan, run_key: RunKey
) -> np.ndarray:
    """Returns the noisy number of users of each phrase, less the shortfall: (K,) float64."""
    table = table_of_sums(sums, bound.members)
    noise = plan.noise_of(bound.row_share)
    noisy = noisy_sums(table, noise, bound.key_of(run_key), "phrase numbers", 0)
    return noisy * (bound.scale / UNITS)


def _sums(rows: np.ndarray, units: np.ndarray) -> RowSums:
    used, places = np.unique(rows, return_inverse=True)
    return RowSums(rows=used, sums=sums_at(places, units, used.size))
