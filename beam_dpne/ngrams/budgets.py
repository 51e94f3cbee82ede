"""SpendBudgets: a user's contributions to one round, paid from the user's own budget."""

import dataclasses
from collections.abc import Iterator
from typing import Any, NamedTuple, cast

import apache_beam as beam
import numpy as np
import pyarrow as pa
from apache_beam.pvalue import AsSingleton, DoOutputsTuple, PCollection, TaggedOutput
from apache_beam.typehints.decorators import IOTypeHints

from beam_dpne.elements import progress
from beam_dpne.elements.batches import UserBatch
from beam_dpne.elements.ragged import distinct, offsets_of, rows_of_entries
from beam_dpne.elements.words import hash_words
from beam_dpne.mechanism.randomness import RunKey
from beam_dpne.ngrams import adaptive
from beam_dpne.ngrams.candidates import extract_grams, keep_present, present_positions
from beam_dpne.ngrams.contributions import outside_subset
from beam_dpne.ngrams.elements import Contributions, GramSet, PresentGrams, unpack_pairs
from beam_dpne.ngrams.plan import PrivacyPlan

_USERS = "users"
_CONTRIBUTIONS = "contributions"


class SpendResult(NamedTuple):
    """What `SpendBudgets` returns.

    Attributes:
      contributions: PCollection of `Contributions` with weights.
      users: PCollection of `UserBatch`, with what each user has left.
    """

    contributions: PCollection[Contributions]
    users: PCollection[UserBatch]


@dataclasses.dataclass(eq=False, kw_only=True)
class SpendBudgets(beam.PTransform):
    """Lists each user's open grams of one round, and spends a part of the user's budget on them.

    A user's weights in one round cost the sum of their squares; what a user has left falls by it and
    never below 0. Grams beyond the limit stay in the first round, at weight 0: a gram that some user
    holds is never counted among the spurious ones.

    Input: `UserBatch` of length k−1; in round r ≥ 2, what this transform left in round r−1.

    Output: `SpendResult`. Positions of closed n-grams are dropped, and users who are left without
    positions.

    Privacy: over all lengths and rounds the squared weights of one user add up to at most μ² on every
    path, in exact arithmetic; private only together with `DecideRound` and `NoisyThreshold`.

    Cost: one look-up for each position that is left, one sort of those that are open.

    Attributes:
      plan: of the run, with strategy "adaptive".
      length: k.
      round_number: r ≥ 1.
      run_key: secret of the run.
      previous: PCollection of one `GramSet`, S_{k−1}, whose scores predict (k ≥ 2).
      present: PCollections of one `PresentGrams` after each of the rounds 1..r−1.

    Raises:
      ValueError: if the plan is of another strategy, or a side input is missing.

    Example:
      >>> from apache_beam.runners.portability.fn_api_runner import FnApiRunner
      >>> from beam_dpne import PrivacyPlan, RunKey, SpendBudgets, UserBatch
      >>> batch = UserBatch(  # one user: "a b a b" in a text of its own
      ...     length=0, size=2, users=np.array([[1, 2]], np.uint64), words=pa.array(["a", "b"]),
      ...     word_hashes=np.array([[3, 4], [5, 6]], np.uint64),
      ...     offsets=np.array([0, 5]), ids=np.array([0, 1, 0, 1, -1], np.int32))
      >>> plan = PrivacyPlan(epsilon=1, delta=1e-7, max_length=2)
      >>> with beam.Pipeline(runner=FnApiRunner()) as pipeline:
      ...     spent = pipeline | beam.Create([batch]) | SpendBudgets(
      ...         plan=plan, length=1, round_number=1, run_key=RunKey.generate())
      ...     _ = spent.contributions | beam.Map(lambda c: print((c.weights / 2**32).round(4)))
      [0.0332 0.0332]

    References: none; the strategy is this project's own, see `adaptive`.
    """

    plan: PrivacyPlan
    length: int
    round_number: int
    run_key: RunKey = dataclasses.field(repr=False)
    previous: PCollection[GramSet] | None = None
    present: tuple[PCollection[PresentGrams], ...] = ()

    def __post_init__(self):
        super().__init__()
        if not self.plan.strategy_value.has_user_budgets:
            raise ValueError(
                f"plan must have strategy='adaptive', got strategy={self.plan.strategy!r}; use "
                "LimitContributions."
            )
        if not 1 <= self.round_number <= self.plan.rounds_of(self.length):
            raise ValueError(
                f"round_number must be one of the {self.plan.rounds_of(self.length)} rounds of "
                f"length {self.length}, got round_number={self.round_number}."
            )
        if len(self.present) != self.round_number - 1:
            raise ValueError(
                f"present must be of the {self.round_number - 1} rounds before, got "
                f"{len(self.present)}."
            )
        if (self.previous is None) != (self.length == 1):
            raise ValueError("previous must be given at length 2 and more, and only there.")

    def default_type_hints(self) -> IOTypeHints:
        """None: Beam would log a warning about a result that is a named tuple."""
        return IOTypeHints.empty()

    def expand(self, users: PCollection[UserBatch]) -> SpendResult:
        """Applies `spend_on_present` to each batch."""
        sides: dict[str, Any] = {}
        if self.previous is not None and self.length > 2:
            sides["previous"] = AsSingleton(self.previous)
        if self.present:
            sides["present"] = AsSingleton(self.present[-1])
        if len(self.present) > 1:
            sides["before"] = AsSingleton(self.present[-2])
        spend_round = _Spend(self.plan, self.length, self.round_number, self.run_key)
        outputs = beam.ParDo(spend_round, **sides).with_outputs(_USERS, main=_CONTRIBUTIONS)
        spent = cast("DoOutputsTuple", users | "Spend" >> outputs)
        return SpendResult(
            _typed(spent[_CONTRIBUTIONS], Contributions), _typed(spent[_USERS], UserBatch)
        )


class _Spend(beam.DoFn):
    """Runs `spend_on_present` on each batch."""

    def __init__(self, plan: PrivacyPlan, length: int, round_number: int, run_key: RunKey):
        self._settings = {"plan": plan, "length": length, "round_number": round_number}
        self._run_key = run_key

    def process(
        self,
        element: UserBatch,
        previous: GramSet | None = None,
        present: PresentGrams | None = None,
        before: PresentGrams | None = None,
    ) -> Iterator[Any]:
        progress.enter("users", self._settings["length"])
        spent = spend_on_present(
            element,
            previous=previous,
            present=present,
            before=before,
            run_key=self._run_key,
            **self._settings,
        )
        if spent is not None:
            contributions, users = spent
            yield contributions
            yield TaggedOutput(_USERS, users)


def spend_on_present(
    batch: UserBatch,
    *,
    present: PresentGrams | None = None,
    before: PresentGrams | None = None,
    **settings: Any,
) -> tuple[Contributions, UserBatch] | None:
    """Applies `spend` to the positions of present grams; None if no user has any left.

    Args:
      batch: positions; in round r ≥ 3 in terms of `before`, else of length k−1.
      present: the grams that are open or found after round r−1 (r ≥ 2).
      before: those of round r−2 (r ≥ 3).
      **settings: the other arguments of `spend`.
    """
    if present is not None:
        batch = keep_present(batch, present, before)
    if not len(batch.users):
        return None
    return spend(batch, present=present, **settings)


def spend(
    batch: UserBatch,
    *,
    plan: PrivacyPlan,
    length: int,
    round_number: int,
    run_key: RunKey,
    previous: GramSet | None = None,
    present: PresentGrams | None = None,
) -> tuple[Contributions, UserBatch]:
    """Returns what a batch's users send in one round, and the batch with what they have left.

    Args:
      batch: positions; in round r ≥ 2 in terms of `present`.
      plan: of the run.
      length: k.
      round_number: r.
      run_key: secret of the run.
      previous: S_{k−1} (k ≥ 3).
      present: the grams that are open or found after round r−1 (r ≥ 2).
    """
    own_round = adaptive.rounds_of(length, plan.rounds or 1)[round_number - 1]
    grams = _open_grams(batch, length, round_number, present, run_key)
    # (n,) int64 in units of 2^-56: of each user's squared weights, what earlier rounds have left.
    left = _left(batch, plan, length, round_number)
    # With even budgets nothing is kept back for longer grams, whose part is their own.
    longer = plan.max_length - length if plan.user_budgets == "individual" else 0
    # (n,) int64: places at which a longer gram of the user could still be found.
    ahead = adaptive.grams_ahead(present_positions(batch, length), batch.offsets, longer)
    spent = adaptive.spends(left, np.diff(grams.offsets), ahead, own_round.quota)
    # The threshold for words of one user assumes this norm of what a user sends in the round.
    if length == 1:
        spent = np.minimum(spent, adaptive.round_cap(plan.allotment, own_round))
    # (m,) float64 without unit: in what ratio a user divides what it spends among its grams.
    shares = _preferences(grams, previous, present, plan.pruning)
    sub_key = run_key.sub_key("subset", length, round_number)
    # Grams beyond Δ_k stay at weight 0: a held gram must never be counted among the spurious ones.
    shares[outside_subset(grams, plan.contribution_limits[length - 1], sub_key)] = 0.0
    # Weights in units of 2^-32; their cost is exact and at most `spent`, so that no user overspends.
    weights, cost = adaptive.divide(spent, grams.offsets, shares)
    grams = dataclasses.replace(grams, weights=weights)
    return grams, dataclasses.replace(batch, left=left - cost)


def _left(batch: UserBatch, plan: PrivacyPlan, length: int, round_number: int) -> np.ndarray:
    """Returns what users have left: at first the whole, with even budgets again at each length."""
    is_fresh = batch.left is None and length == plan.strategy_lengths[0]
    # Budgets are dealt out once; a user who came without one would otherwise spend a second budget.
    if round_number == 1 and (is_fresh or plan.user_budgets == "even"):
        return np.full(len(batch.users), plan.allotment, dtype=np.int64)
    if batch.left is None:
        raise ValueError(
            f"Users at round {round_number} of length {length} must say what they have left; apply "
            "SpendBudgets to what it returned in the round before."
        )
    return batch.left


def _open_grams(
    batch: UserBatch,
    length: int,
    round_number: int,
    present: PresentGrams | None,
    run_key: RunKey,
) -> Contributions:
    """Returns each user's distinct candidates (round 1), or those that are still open."""
    if present is None:
        return extract_grams(batch, length=length)
    rows, offsets = _distinct_open_rows(batch, present)
    contributions = Contributions(
        length=length, round=round_number, users=batch.users, offsets=offsets, keys=rows
    )
    if present.words is None:
        return dataclasses.replace(contributions, keys=present.keys[rows])
    # Words travel with the batch: only those that some user of it still has open.
    used, places = np.unique(rows, return_inverse=True)
    words = present.words.take(pa.array(used))
    return dataclasses.replace(
        contributions,
        keys=places.reshape(-1),
        words=words,
        word_hashes=hash_words(run_key.sub_key("word"), words),
    )


def _distinct_open_rows(batch: UserBatch, present: PresentGrams) -> tuple[np.ndarray, np.ndarray]:
    """Returns each user's distinct rows of open grams, ascending, and where each user's begin."""
    # Positions of open grams: neither borders nor grams that are found, on which nothing is spent.
    place = np.flatnonzero(batch.ids >= 0)
    place = place[present.found[batch.ids[place]] == 0]
    user = rows_of_entries(batch.offsets)[place]
    (user, rows), _ = distinct((user, batch.ids[place]), (len(batch.users), batch.size))
    return rows, offsets_of(np.bincount(user, minlength=len(batch.users)))


def _preferences(
    grams: Contributions,
    previous: GramSet | None,
    present: PresentGrams | None,
    pruning: str,
) -> np.ndarray:
    """Returns a_g for each entry: 1 at k = 1, where the threshold needs equal weights."""
    if grams.length == 1:
        return np.ones(grams.keys.size)
    # (m,) float64 in units of weight: how heavy a gram is expected to be; 1 says nothing about it.
    predictions = np.ones(grams.keys.size)
    if previous is not None:
        prefixes, seconds = unpack_pairs(grams.keys)
        # A gram is at most as frequent as its prefix and its suffix: the lower score predicts.
        predictions = previous.scores[prefixes]
        if pruning == "both":
            predictions = np.minimum(predictions, previous.scores[seconds])
    if present is None or present.rule is None:
        return adaptive.preferences(predictions, 0.0)
    # Every open gram of a user is in the present set, so that each look-up finds its key.
    rows = np.searchsorted(present.keys, grams.keys)
    last = present.rule.rounds[present.round - 1]
    return adaptive.preferences(predictions, adaptive.nearness(present.cells[rows], last))


def _typed(collection: Any, kind: type) -> PCollection:
    """Names the element type of a tagged output, which picks its coder."""
    collection.element_type = kind
    return collection
