"""The public n-grams that users have, their limits, the noise on their counts, and probabilities.

One user's contribution is bounded in `limit_grams` alone, and noise is added in `noisy_values` alone.
"""

import dataclasses
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from beam_dpne.bayesian import posterior
from beam_dpne.bayesian.plan import ProbabilitiesPlan
from beam_dpne.elements import arrays
from beam_dpne.elements.arrays import places_in
from beam_dpne.elements.batches import NO_GRAM, RowSums, UserBatch, table_of_sums
from beam_dpne.elements.rows import PROBABILITY_SCHEMA, in_order, rounded_probabilities
from beam_dpne.lists.public_counts import PublicCounts
from beam_dpne.mechanism import randomness
from beam_dpne.mechanism.randomness import RunKey, keyed_bits, normals


@dataclasses.dataclass(frozen=True, eq=False, kw_only=True)
class UserGrams:
    """The distinct public grams that each user has, and how often (CSR).

    Attributes:
      users: (n, 2) uint64, 128-bit keyed hashes; a user is in one batch only, and has some gram.
      offsets: (n + 1,) int64, where each user's grams begin in `rows`.
      rows: (m,) int32, rows of the public vocabulary, ascending within a user.
      counts: (m,) int64 ≥ 1, how often the user has the gram.
    """

    users: np.ndarray
    offsets: np.ndarray
    rows: np.ndarray
    counts: np.ndarray


@dataclasses.dataclass(frozen=True, eq=False, kw_only=True)
class NgramProbabilities:
    """A probability for every n-gram of a public vocabulary.

    Attributes:
      ngrams: (V,) Arrow strings, see `join_tokens`; in the order of the public counts.
      noisy: (V,) int64, the noisy counts, of which everything else is computed.
      probabilities: (V,) float64 ≥ 0, summing to 1.
      public: what the ledger says of the public counts.
    """

    ngrams: pa.Array
    noisy: np.ndarray
    probabilities: np.ndarray
    public: dict[str, Any]

    def __len__(self) -> int:
        return len(self.ngrams)


def find_grams(batch: UserBatch, public: PublicCounts) -> UserGrams:
    """Finds the public grams of each user in positions of length 0, and counts them.

    Raises:
      ValueError: if the batch's positions are not of length 0.
    """
    if batch.length or batch.words is None:
        raise ValueError(f"Positions must be of length 0, got length {batch.length}.")
    # Each word's place in `public.words`; the entry at the end is for the −1 that ends a document.
    known = np.append(places_in(batch.words, public.words), np.int32(NO_GRAM))
    starts, rows = public.find(known[batch.ids])
    # A pair (user, row) in one integer is a key.
    user = np.searchsorted(batch.offsets, starts, side="right") - 1
    keys, counts = np.unique(user * len(public) + rows, return_counts=True)
    user, rows = np.divmod(keys, len(public))
    present, sizes = np.unique(user, return_counts=True)
    return UserGrams(
        users=batch.users[present],
        offsets=arrays.offsets_of(sizes),
        rows=rows.astype(np.int32),
        counts=counts.astype(np.int64),
    )


def limit_grams(grams: UserGrams, plan: ProbabilitiesPlan, run_key: RunKey) -> UserGrams:
    """Keeps at most W distinct grams of each user, a keyed random subset, and clamps counts to C.

    Here, and nowhere else, one user's contribution is bounded. It is at most C·√W in ℓ2, in whole
    numbers.

    Args:
      grams: all public grams of the users.
      plan: the plan of the run, which has W and C.
      run_key: bound to the run's parameters.
    """
    limit = plan.contribution_limit
    outside = arrays.outside_keyed_subset(
        grams.offsets,
        limit,
        sub_key=run_key.sub_key("gram subset", plan.length),
        users=grams.users,
        keys_of=grams.rows.take,
    )
    kept = np.ones(grams.rows.size, dtype=bool)
    kept[outside] = False
    return UserGrams(
        users=grams.users,
        offsets=arrays.offsets_of(np.minimum(np.diff(grams.offsets), limit)),
        rows=grams.rows[kept],
        counts=np.minimum(grams.counts[kept], plan.max_count),
    )


def noisy_values(table: np.ndarray, plan: ProbabilitiesPlan, run_key: RunKey) -> np.ndarray:
    """Adds noise to the counts of all public grams, whether or not anybody has them; the mechanism.

    The noise is keyed by the row, and the run key is bound to the public counts, so that no two n-grams
    share their noise.

    Args:
      table: (V,) int64, the sums over all users.
      plan: the plan of the run.
      run_key: bound to the run's parameters; see `key_context`.

    Returns:
      (V,) int64.
    """
    rows = np.arange(len(table))
    draws = normals(keyed_bits(run_key.sub_key("gram noise", plan.length), rows, 0))
    return table + randomness.integer_normals(draws, plan.noise_stddev)


def sums_of_users(
    batch: UserBatch, public: PublicCounts, plan: ProbabilitiesPlan, run_key: RunKey
) -> RowSums:
    """Returns the counts of a batch's users, limited and added up; each user is in one batch only."""
    grams = limit_grams(find_grams(batch, public), plan, run_key)
    return RowSums(rows=grams.rows, sums=grams.counts)


def probabilities_of(
    sums: Iterable[RowSums], public: PublicCounts, plan: ProbabilitiesPlan, run_key: RunKey
) -> NgramProbabilities:
    """Returns the probability of every public n-gram, from the sums of all users with noise.

    Args:
      sums: exact sums over users, cut in any way.
      public: the public counts that the run uses.
      plan: the plan of the run.
      run_key: bound to the run's parameters.
    """
    noisy = noisy_values(table_of_sums(sums, len(public)), plan, run_key)
    found = posterior.probabilities(noisy, public.counts, public.grams, plan.noise_stddev)
    return NgramProbabilities(
        ngrams=public.texts(),
        noisy=noisy,
        probabilities=found,
        public={"ngrams": len(public), "length": public.length, "sha256": public.fingerprint()},
    )


def probability_table(released: Sequence[NgramProbabilities]) -> pa.Table:
    """Returns the rows of one release, in descending order of probabilities, then by bytes."""
    (found,) = released
    rows = pa.table(
        [found.ngrams, pa.array(rounded_probabilities(found.probabilities))],
        schema=PROBABILITY_SCHEMA,
    )
    return in_order(rows)
