"""CountItems: how many users have each released item, from one more pass over the users.

The pass is in `counts.transform`, and the measurement and its privacy in `counts.measuring`. Released
are S, the items, and then sums with Gaussian noise, to which every user adds vectors of length 1 at
most, given S. They are a function of S and of each user's own items, under all policies: a user's
weights may follow those of others, but the rows that a user holds do not. All items of a user that
were released count, also those beyond max_contributions.

**The items and the numbers of users.** A part c of the budget (count_share) measures how many users
have each released item (`counts`), after the items are known.

Given the past, a user moves the weights of round r by at most S in ℓ2, and then the sums of users by
vectors of length 1 at most. These are rounds of one adaptive composition of Gaussian mechanisms, with
Σ_r (S/σ_r)² ≤ (1 − c) μ² for the items and c μ² for the sums: together they are as private as one
Gaussian mechanism of sensitivity/σ = μ, for (ε, δ_G). The rest of δ is δ_T, as without counts: the
argument for items of one user alone compares with a run that releases none of them (`weights`), and
what follows the released set is the same function of it in both runs.
"""

import dataclasses
from collections.abc import Sequence

import numpy as np
from apache_beam.pvalue import PCollection

from beam_dpne.counts.measuring import Held
from beam_dpne.counts.rule import required_noise
from beam_dpne.counts.transform import count_in_beam, count_in_memory
from beam_dpne.elements.arrays import places_in, rows_of_entries
from beam_dpne.elements.batches import UnhintedTransform, UserBatch
from beam_dpne.mechanism.randomness import RunKey
from beam_dpne.set_union.elements import ItemSet, UserItems
from beam_dpne.set_union.plan import SetUnionPlan
from beam_dpne.set_union.weights import items_of_users


@dataclasses.dataclass(eq=False, kw_only=True)
class CountItems(UnhintedTransform):
    """Estimates how many users have each released item, with intervals.

    Input: `UserBatch` of length 0, as `ReleaseItems` takes it; each user is in one batch only.

    Output: PCollection of one `ItemSet` with `users`.

    Privacy: the estimates are a function of the released items and of sums with Gaussian noise, which
    together are private under the plan; see `counts.measuring`.

    Cost: one pass over the users' items, one shuffle of sums, one number for each released item; each
    worker holds all released items.

    Attributes:
      plan: the plan of the run, with a count_share above 0.
      released: PCollection of one `ItemSet`; a side input.
      run_key: the secret of the run, bound to its parameters.

    Raises:
      ValueError: if the plan's count_share is 0.

    Example:
      >>> import apache_beam as beam, pyarrow as pa
      >>> from apache_beam.runners.portability.fn_api_runner import FnApiRunner
      >>> from beam_dpne import RunKey, SetUnionPlan
      >>> batch = UserBatch(  # 2,000 users, each of whom has "a" and "b"
      ...     length=0, size=2, users=np.arange(4000, dtype=np.uint64).reshape(-1, 2),
      ...     offsets=np.arange(0, 6003, 3), ids=np.tile([0, 1, -1], 2000).astype(np.int32),
      ...     words=pa.array(["a", "b"]), word_hashes=np.eye(2, dtype=np.uint64))
      >>> found = ItemSet(items=pa.array(["a", "b"]), scores=np.array([900.0, 950.0]))
      >>> with beam.Pipeline(runner=FnApiRunner()) as pipeline:
      ...     released = pipeline | "Released" >> beam.Create([found])
      ...     counted = pipeline | beam.Create([batch]) | CountItems(
      ...         plan=SetUnionPlan(epsilon=4, delta=1e-7), released=released,
      ...         run_key=RunKey(bytes(32)))
      ...     _ = counted | beam.Map(lambda items: print(items.users[:, 0].round(-2)))
      [2000 2000]

    References: none; `counts.rule` has the design.
    """

    plan: SetUnionPlan
    released: PCollection[ItemSet]
    run_key: RunKey = dataclasses.field(repr=False)

    def __post_init__(self):
        super().__init__()
        required_noise(self.plan.count_noise)

    def expand(self, users: PCollection[UserBatch]) -> PCollection[ItemSet]:
        """Applies the pass."""
        return count_in_beam(
            _ItemRows(),
            users,
            [self.released],
            kind=ItemSet,
            noise=required_noise(self.plan.count_noise),
            run_key=self.run_key,
        )


def count_items(
    items: UserItems, released: ItemSet, plan: SetUnionPlan, run_key: RunKey
) -> ItemSet:
    """Returns released items with numbers of users, in memory.

    Args:
      items: all users, not yet limited.
      released: the released items.
      plan: the plan of the run, with a count_share above 0.
      run_key: the secret of the run, bound to its parameters.
    """
    noise = required_noise(plan.count_noise)
    (counted,) = count_in_memory(_ItemRows(), [items], [released], noise=noise, run_key=run_key)
    return counted


@dataclasses.dataclass(frozen=True)
class _ItemRows:
    """The released items as rows whose users are counted, in their order."""

    def held(self, users: UserBatch | UserItems, released: Sequence[ItemSet]) -> Held:
        """Returns the released items that each user of a batch has."""
        items = users if isinstance(users, UserItems) else items_of_users(users)
        return held_items(items, released[0])

    def scores(self, released: Sequence[ItemSet]) -> list[np.ndarray]:
        """Returns the scores of the items, which are rows of one length."""
        return [released[0].scores]

    def parents(self, released: Sequence[ItemSet]) -> None:
        """Returns None, since no item implies another one."""

    def with_users(self, released: Sequence[ItemSet], users: np.ndarray) -> list[ItemSet]:
        """Returns the set with its numbers of users."""
        return [dataclasses.replace(released[0], users=users)]


def held_items(items: UserItems, released: ItemSet) -> Held:
    """Returns the distinct released items of each user, as rows of the released set.

    Args:
      items: a batch of users, not limited.
      released: the released items.

    Example:
      >>> import pyarrow as pa
      >>> two = UserItems(users=np.arange(4, dtype=np.uint64).reshape(2, 2), items=np.array([1, 0, 1]),
      ...                 offsets=np.array([0, 2, 3]),
      ...                 words=pa.array(["tea", "rye"]), word_hashes=np.eye(2, dtype=np.uint64))
      >>> held = held_items(two, ItemSet(items=pa.array(["milk", "rye"]), scores=np.ones(2)))
      >>> held.offsets, held.rows
      (array([0, 1, 2]), array([1, 1]))
    """
    rows = places_in(items.words, released.items).astype(np.int64)[items.items]
    place = np.flatnonzero(rows >= 0)
    users = rows_of_entries(items.offsets)[place]
    return Held.of(users, rows[place], user_count=len(items.users), row_count=len(released))
