"""CountUsers: how many users hold each released n-gram, from one more pass over the users.

The pass and its privacy are in `counts.measuring`.
"""

import dataclasses
from collections.abc import Sequence

import apache_beam as beam
import numpy as np
from apache_beam.pvalue import PCollection

from beam_dpne.counts.measuring import Held, count_in_beam
from beam_dpne.counts.rule import required_noise
from beam_dpne.elements.arrays import rows_of_entries
from beam_dpne.elements.batches import UnhintedTransform, UserBatch, apply
from beam_dpne.elements.coders import SetStore, spill
from beam_dpne.mechanism.randomness import RunKey
from beam_dpne.ngrams.candidates import prune_invalid, rows_at_positions
from beam_dpne.ngrams.elements import GramSet, unpack_pairs
from beam_dpne.ngrams.plan import PrivacyPlan


@dataclasses.dataclass(eq=False, kw_only=True)
class CountUsers(UnhintedTransform):
    """Estimates how many users hold each released n-gram, with intervals.

    Input: `UserBatch` of length 0: all users, as they were before any n-gram was released.

    Output: tuple of PCollections of one `GramSet` each: S_1, …, S_T with `users`.

    Privacy: the estimates are a function of S_1, …, S_T and of sums with Gaussian noise, which together
    with S_1, …, S_T are private under the plan; see `counts.measuring`.

    Cost: one pass over the users' positions, one shuffle of sums, one number for each released n-gram;
    one worker holds all released sets.

    Attributes:
      plan: the plan of the run, with a count_share above 0.
      released: S_1, …, S_T, PCollections of one `GramSet` each; side inputs.
      run_key: the secret of the run.
      store: the folder for sets that are too large for an element; with None every set is one element.

    Raises:
      ValueError: if the plan's count_share is 0.

    Example:
      >>> import pyarrow as pa
      >>> from apache_beam.runners.portability.fn_api_runner import FnApiRunner
      >>> from beam_dpne import CountUsers, PrivacyPlan, RunKey
      >>> batch = UserBatch(  # 2,000 users, each of whom says "a b"
      ...     length=0, size=2, users=np.arange(4000, dtype=np.uint64).reshape(-1, 2),
      ...     offsets=np.arange(0, 6003, 3), ids=np.tile([0, 1, -1], 2000).astype(np.int32),
      ...     words=pa.array(["a", "b"]), word_hashes=np.eye(2, dtype=np.uint64))
      >>> words = GramSet(length=1, keys=np.arange(2), scores=np.array([9.0, 9.5]),
      ...                 words=pa.array(["a", "b"]), vocabulary_size=2)
      >>> with beam.Pipeline(runner=FnApiRunner()) as pipeline:
      ...     released = (pipeline | "S_1" >> beam.Create([words]),)
      ...     plan = PrivacyPlan(epsilon=4, delta=1e-7, max_length=1)
      ...     counted = pipeline | beam.Create([batch]) | CountUsers(
      ...         plan=plan, released=released, run_key=RunKey(bytes(32)))
      ...     _ = counted[0] | beam.Map(lambda grams: print(grams.users[:, 0].round(-2)))
      [2000 2000]

    References: none; `counts.rule` has the design.
    """

    plan: PrivacyPlan
    released: Sequence[PCollection[GramSet]]
    run_key: RunKey = dataclasses.field(repr=False)
    store: SetStore | None = None

    def __post_init__(self):
        super().__init__()
        required_noise(self.plan.count_noise)

    def expand(self, users: PCollection[UserBatch]) -> tuple[PCollection[GramSet], ...]:
        """Counts the users of all lengths together, and gives each length its own PCollection."""
        counted = count_in_beam(
            GramRows(pruning=self.plan.pruning, store=self.store),
            users,
            self.released,
            kind=GramSet,
            noise=self.plan.count_noise,
            run_key=self.run_key,
        )
        return tuple(
            apply(counted, f"Length{length}", beam.Filter(_has_length, length), GramSet)
            for length in range(1, len(self.released) + 1)
        )


def _has_length(grams: GramSet, length: int) -> bool:
    return grams.length == length


@dataclasses.dataclass(frozen=True, kw_only=True)
class GramRows:
    """S_1, …, S_T as rows whose users are counted; rows count through all of them.

    Attributes:
      pruning: the pruning rule of the plan, which decides the meaning of keys.
      store: the folder for sets that are too large for an element.
    """

    pruning: str
    store: SetStore | None = None

    def held(self, users: UserBatch, released: Sequence[GramSet]) -> Held:
        """Returns the distinct released n-grams of each user of a batch of length 0."""
        owners, rows, first = [np.zeros(0, np.int64)], [np.zeros(0, np.int64)], 0
        # Users without a position left are dropped on the way, so that the batch has their numbers.
        numbers = np.arange(len(users.users), dtype=np.uint64)
        batch = dataclasses.replace(users, users=np.stack((numbers, numbers), axis=1), left=None)
        for grams in released:
            ids = rows_at_positions(batch, grams)
            place = np.flatnonzero(ids >= 0)
            user = rows_of_entries(batch.offsets)[place]
            owners.append(batch.users[user, 0].astype(np.int64))
            rows.append(ids[place].astype(np.int64) + first)
            first += len(grams)
            batch = prune_invalid(batch, grams, pruning=self.pruning, ids=ids)
        pairs = np.concatenate(owners), np.concatenate(rows)
        return Held.of(*pairs, user_count=numbers.size, row_count=first)

    def scores(self, released: Sequence[GramSet]) -> list[np.ndarray]:
        """Returns the scores of the rows of each length."""
        return [grams.scores for grams in released]

    def parents(self, released: Sequence[GramSet]) -> np.ndarray:
        """Returns the rows of each n-gram's prefix and of its suffix or last word.

        Every user of an n-gram holds them as well. They are (n, 2) int32, or int64 of 2^31 rows and
        more, −1 where there is no such row.
        """
        sizes = [len(grams) for grams in released]
        offsets = np.concatenate(([0], np.cumsum(sizes, dtype=np.int64)))
        kind = np.int32 if offsets[-1] < 2**31 else np.int64
        parents = np.full((int(offsets[-1]), 2), -1, kind)
        for k in range(1, len(released)):
            rows = slice(int(offsets[k]), int(offsets[k + 1]))
            prefixes, seconds = unpack_pairs(released[k].keys)
            parents[rows, 0] = prefixes + offsets[k - 1]
            parents[rows, 1] = seconds + offsets[k - 1 if self.pruning == "both" else 0]
        return parents

    def with_users(self, released: Sequence[GramSet], users: np.ndarray) -> list[GramSet]:
        """Returns the sets with their numbers of users."""
        parts = np.split(users, np.cumsum([len(each) for each in self.scores(released)])[:-1])
        return [
            spill(dataclasses.replace(grams, users=part, stored=None), self.store)
            for grams, part in zip(released, parts, strict=True)
        ]
