"""CountUsers: how many users hold each released n-gram, from one more pass over the users.

The measurement and its privacy are in `counts.measuring`, and the estimates in `counts.estimates`.
"""

import dataclasses
import functools
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import apache_beam as beam
import numpy as np
from apache_beam.pvalue import AsIter, AsSingleton, PCollection

from beam_dpne.counts.estimates import estimate_users
from beam_dpne.counts.measuring import CountSums, Held, add_sums, measure, no_sums, sum_counts
from beam_dpne.counts.rule import CountRule, count_rule
from beam_dpne.elements import progress
from beam_dpne.elements.arrays import distinct, offsets_of, rows_of_entries
from beam_dpne.elements.batches import SumBundle, UnhintedTransform, UserBatch, apply
from beam_dpne.elements.coders import spill
from beam_dpne.elements.side_inputs import SetStore, cached_for_sets
from beam_dpne.mechanism.randomness import RunKey
from beam_dpne.ngrams.candidates import prune_invalid, rows_at_positions
from beam_dpne.ngrams.elements import GramSet, unpack_pairs
from beam_dpne.ngrams.plan import PrivacyPlan

# Rows whose sums travel in one element, 1 MB.
_ROWS_OF_A_PIECE = 2**17


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
        if not self.plan.count_share:
            raise ValueError("count_share must be above 0 to count users, got count_share=0.0.")

    def expand(self, users: PCollection[UserBatch]) -> tuple[PCollection[GramSet], ...]:
        """Sums within bundles, adds up the bundles, and estimates on one worker."""
        # Beam's embedded runner holds back a Flatten whose input is computed from a PCollection that is
        # still needed, and the sets depend on such ones: this pass has a copy of the users. The empty
        # side input keeps the runner from making one stage of the copy and the pass.
        users = apply(users, "Copy", beam.Map(_same), UserBatch)
        none = AsIter(apply(users, "None", beam.Filter(_never), UserBatch))
        sides = [AsSingleton(each) for each in self.released]
        sum_batch = functools.partial(_sum_batch, plan=self.plan)
        sum_bundle = SumBundle(sum_batch=sum_batch, merge=add_sums, cut=_pieces)
        pieces = apply(
            users, "SumBundle", beam.ParDo(sum_bundle, none, *sides), tuple[int, CountSums]
        )
        grouped = pieces | "ByRows" >> beam.GroupByKey()
        merge = beam.MapTuple(lambda _, pieces: add_sums(list(pieces)))
        sums = AsIter(apply(grouped, "SumRows", merge, CountSums))
        estimate = beam.ParDo(_Estimate(self.plan, self.run_key, self.store), sums, *sides[:-1])
        counted = apply(self.released[-1], "Estimate", estimate, GramSet)
        return tuple(
            apply(counted, f"Length{length}", beam.Filter(_has_length, length), GramSet)
            for length in range(1, len(self.released) + 1)
        )


def _has_length(grams: GramSet, length: int) -> bool:
    return grams.length == length


def _same(batch: UserBatch) -> UserBatch:
    return batch


def _never(_: UserBatch) -> bool:
    return False


def _sum_batch(
    batch: UserBatch, _: Iterable[UserBatch], *released: GramSet, plan: PrivacyPlan
) -> CountSums:
    progress.enter("count")
    return sum_counts(held_grams(batch, released, pruning=plan.pruning), rule_of(*released))


def _pieces(sums: CountSums) -> Iterator[tuple[int, CountSums]]:
    """Cuts sums by rows, so that no element is large."""
    for number in range(max(1, -(-len(sums) // _ROWS_OF_A_PIECE))):
        rows = slice(number * _ROWS_OF_A_PIECE, (number + 1) * _ROWS_OF_A_PIECE)
        totals = sums.totals if number == 0 else sums.totals[:0]
        yield number, CountSums(first=rows.start, masses=sums.masses[rows], totals=totals)


class _Estimate(beam.DoFn):
    """Adds noise to the sums of all users, and gives each released set its estimates."""

    def __init__(self, plan: PrivacyPlan, run_key: RunKey, store: SetStore | None):
        self._plan = plan
        self._run_key = run_key
        self._store = store

    def process(
        self, element: GramSet, pieces: Iterable[CountSums], *shorter: Any
    ) -> Iterator[GramSet]:
        """Returns all sets, given the longest n-grams and the shorter sets."""
        for grams in count_users(
            [*shorter, element], pieces, plan=self._plan, run_key=self._run_key
        ):
            yield spill(grams, self._store)


@cached_for_sets(maxsize=1)
def rule_of(*released: GramSet) -> CountRule:
    """Returns the weights of all released n-grams, which are computed once for all batches."""
    return count_rule([np.zeros(0) if each.is_public else each.scores for each in released])


def count_users(
    released: Sequence[GramSet],
    pieces: Iterable[CountSums],
    *,
    plan: PrivacyPlan,
    run_key: RunKey,
) -> list[GramSet]:
    """Returns S_1, …, S_T with estimated numbers of users.

    Args:
      released: S_1, …, S_T.
      pieces: sums over all users, cut by rows in any way.
      plan: the plan of the run.
      run_key: the secret of the run.
    """
    if plan.count_noise is None:
        raise ValueError("A plan with count_share=0 measures no users.")
    rule = rule_of(*released)
    sums = no_sums(rule)
    for piece in pieces:
        sums.masses[piece.first : piece.first + len(piece)] += piece.masses
        if piece.totals.size:
            sums.totals[:] += piece.totals
    measured = measure(sums, rule, plan.count_noise, run_key)
    scores = np.concatenate([np.zeros(0), *(g.scores for g in released if not g.is_public)])
    estimates = estimate_users(measured, rule, scores, parents_of(released, pruning=plan.pruning))
    users = np.stack((estimates.users, estimates.low, estimates.high), axis=1)
    parts = np.split(users, rule.offsets[1:-1])
    return [
        grams if grams.is_public else dataclasses.replace(grams, users=part, stored=None)
        for grams, part in zip(released, parts, strict=True)
    ]


def parents_of(released: Sequence[GramSet], *, pruning: str) -> np.ndarray:
    """Returns the rows of each n-gram's prefix and of its suffix or last word.

    Every user of an n-gram holds them as well.

    Args:
      released: S_1, …, S_T; rows count through those that are not public.
      pruning: the pruning rule of the plan, which decides the meaning of keys.

    Returns:
      (n, 2) int64, -1 where there is no such row.
    """
    sizes = [0 if grams.is_public else len(grams) for grams in released]
    offsets = np.concatenate(([0], np.cumsum(sizes, dtype=np.int64)))
    parents = np.full((int(offsets[-1]), 2), -1, np.int64)
    for k in range(1, len(released)):
        rows = slice(int(offsets[k]), int(offsets[k + 1]))
        lengths = (k - 1, k - 1 if pruning == "both" else 0)
        for column, (parent, length) in enumerate(
            zip(unpack_pairs(released[k].keys), lengths, strict=True)
        ):
            if not released[length].is_public:
                parents[rows, column] = parent + offsets[length]
    return parents


def held_grams(batch: UserBatch, released: Sequence[GramSet], *, pruning: str) -> Held:
    """Returns the distinct released n-grams of each user of a batch of length 0.

    Rows count through S_1, …, S_T; a public vocabulary, which is not released, has none.

    Args:
      batch: users' positions of length 0.
      released: S_1, …, S_T.
      pruning: the pruning rule of the plan.
    """
    users, rows, first = [np.zeros(0, np.int64)], [np.zeros(0, np.int64)], 0
    # Users without a position left are dropped on the way, so that the batch carries their numbers.
    numbers = np.arange(len(batch.users), dtype=np.uint64)
    batch = dataclasses.replace(batch, users=np.stack((numbers, numbers), axis=1), left=None)
    for grams in released:
        if not grams.is_public:
            ids = rows_at_positions(batch, grams)
            place = np.flatnonzero(ids >= 0)
            user = rows_of_entries(batch.offsets)[place]
            users.append(batch.users[user, 0].astype(np.int64))
            rows.append(ids[place].astype(np.int64) + first)
            first += len(grams)
        batch = prune_invalid(batch, grams, pruning=pruning)
    sizes = (max(1, numbers.size), max(1, first))
    (user, row), _ = distinct((np.concatenate(users), np.concatenate(rows)), sizes)
    return Held(offsets=offsets_of(np.bincount(user, minlength=numbers.size)), rows=row)
