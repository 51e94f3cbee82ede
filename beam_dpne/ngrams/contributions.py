"""LimitContributions and SpendBudgets: what one user adds to a length's histogram, and its bound.

The paper's strategy bounds a user in `limit_contributions`, once for each length. The adaptive strategy
bounds a user in `spend`, over all lengths and rounds together. Set unions do it in `set_union.weights`.
"""

import dataclasses
from collections.abc import Iterator
from typing import Any, NamedTuple, cast

import apache_beam as beam
import numpy as np
import pyarrow as pa
from apache_beam.pvalue import AsSingleton, DoOutputsTuple, PCollection, TaggedOutput

from beam_dpne.elements import progress
from beam_dpne.elements.arrays import (
    distinct,
    hash_words,
    offsets_of,
    outside_limit,
    rows_of_entries,
)
from beam_dpne.elements.batches import UnhintedTransform, UserBatch, apply
from beam_dpne.elements.display_data import DisplayedTransform
from beam_dpne.mechanism import randomness
from beam_dpne.mechanism.cells import equal_weights
from beam_dpne.mechanism.randomness import RunKey
from beam_dpne.ngrams import adaptive
from beam_dpne.ngrams.candidates import (
    PruneInvalid,
    extract_grams,
    keep_present,
    present_positions,
    prune_invalid,
)
from beam_dpne.ngrams.classes import class_numbers
from beam_dpne.ngrams.elements import Contributions, GramSet, PresentGrams, unpack_pairs
from beam_dpne.ngrams.held_counts import counted_classes, tallies
from beam_dpne.ngrams.plan import PrivacyPlan

_USERS = "users"
_CONTRIBUTIONS = "contributions"


@dataclasses.dataclass(eq=False, kw_only=True)
class LimitContributions(DisplayedTransform):
    """Keeps at most Δ_k distinct n-grams of each user, a keyed random subset, and gives them weights.

    A user with n kept n-grams gives each the weight 1/√n, rounded down to units of 2^-32, so the
    squares of one user's weights add up to at most 1 in exact arithmetic. N-grams beyond the limit
    stay at weight 0, since an n-gram that some user holds must never count among the spurious ones.

    Input: `Contributions` without weights.

    Output: `Contributions` with int64 weights in units of 2^-32.

    Privacy: bounds the ℓ2-norm of what one user adds to the histogram of this length by 1; private
    only together with `NoisyThreshold`.

    Cost: one AES block and a share of one sort for each n-gram of the users above the limit.

    Attributes:
      max_contributions: Δ_k ≥ 1.
      length: k.
      run_key: the secret of the run.

    Raises:
      ValueError: if max_contributions < 1.

    Example:
      >>> import numpy as np
      >>> from apache_beam.runners.portability.fn_api_runner import FnApiRunner
      >>> from beam_dpne import Contributions, LimitContributions, RunKey
      >>> grams = Contributions(length=2, users=np.array([[1, 2]], np.uint64),
      ...                       offsets=np.array([0, 6]), keys=np.arange(6))
      >>> with beam.Pipeline(runner=FnApiRunner()) as pipeline:
      ...     limited = pipeline | beam.Create([grams]) | LimitContributions(
      ...         length=2, max_contributions=4, run_key=RunKey.generate())
      ...     _ = limited | beam.Map(lambda c: print(np.sort(c.weights) / 2**32))
      [0.  0.  0.5 0.5 0.5 0.5]

    References: DPNE Algorithm 1, "Limit user contributions" and the update of H_k.
    """

    length: int
    max_contributions: int
    run_key: RunKey = dataclasses.field(repr=False)

    def __post_init__(self):
        super().__init__()
        if self.max_contributions < 1:
            raise ValueError(f"max_contributions must be at least 1, got {self.max_contributions}.")

    def expand(self, contributions: PCollection[Contributions]) -> PCollection[Contributions]:
        """Applies `limit_contributions` to each batch."""
        limit = beam.Map(
            _limit_checked,
            length=self.length,
            max_contributions=self.max_contributions,
            run_key=self.run_key,
        )
        return apply(contributions, "Limit", limit, Contributions)


class SpendResult(NamedTuple):
    """The result of `SpendBudgets`.

    Attributes:
      contributions: PCollection of `Contributions` with weights.
      users: PCollection of `UserBatch` with the budgets that users have left.
    """

    contributions: PCollection[Contributions]
    users: PCollection[UserBatch]


@dataclasses.dataclass(eq=False, kw_only=True)
class SpendBudgets(UnhintedTransform):
    """Lists each user's open n-grams of one round, and spends a part of the user's budget on them.

    A user's weights in one round cost the sum of their squares. Before the first round of a length
    k ≥ 2 the user also pays for a count of held candidates, see `held_counts`. What the user has left
    falls by these costs and never below 0. N-grams beyond the limit stay in the first round at weight
    0, since an n-gram that some user holds must never count among the spurious ones.

    Input: `UserBatch` of length k−1; in round r ≥ 2 the users that this transform returned in round
    r−1.

    Output: `SpendResult`. Positions of closed n-grams are dropped, and users who are left without
    positions.

    Privacy: over all lengths and rounds the squared weights of one user and the charges for counts of
    held candidates add up to at most μ² on every path, in exact arithmetic; private only together with
    `CountHeld`, `DecideRound` and `NoisyThreshold`.

    Cost: one look-up for each position that is left, and one sort of those that are open.

    Attributes:
      plan: the plan of the run, with strategy "adaptive".
      length: k.
      round_number: r ≥ 1.
      run_key: the secret of the run.
      previous: PCollection of one `GramSet`, S_{k−1}, whose scores predict weights (k ≥ 2).
      present: PCollections of one `PresentGrams` after each of the rounds 1..r−1.
      prune: in round 1 of a length k ≥ 2, a `PruneInvalid` that is applied to the users in the same
        step, which saves engines a stage; by default they have been pruned already.

    Raises:
      ValueError: if the plan has another strategy, a side input is missing, or `prune` is given in
        another round.

    Example:
      >>> from apache_beam.runners.portability.fn_api_runner import FnApiRunner
      >>> from beam_dpne import PrivacyPlan, RunKey, SpendBudgets, UserBatch
      >>> batch = UserBatch(  # one user with the text "a b a b"
      ...     length=0, size=2, users=np.array([[1, 2]], np.uint64), words=pa.array(["a", "b"]),
      ...     word_hashes=np.array([[3, 4], [5, 6]], np.uint64),
      ...     offsets=np.array([0, 5]), ids=np.array([0, 1, 0, 1, -1], np.int32))
      >>> plan = PrivacyPlan(epsilon=1, delta=1e-7, max_length=2)
      >>> with beam.Pipeline(runner=FnApiRunner()) as pipeline:
      ...     spent = pipeline | beam.Create([batch]) | SpendBudgets(
      ...         plan=plan, length=1, round_number=1, run_key=RunKey.generate())
      ...     _ = spent.contributions | beam.Map(lambda c: print((c.weights / 2**32).round(4)))
      [0.0347 0.0347]

    References: none; the strategy is new in this project, see `adaptive`.
    """

    plan: PrivacyPlan
    length: int
    round_number: int
    run_key: RunKey = dataclasses.field(repr=False)
    previous: PCollection[GramSet] | None = None
    present: tuple[PCollection[PresentGrams], ...] = ()
    prune: PruneInvalid | None = None

    def __post_init__(self):
        super().__post_init__()
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
        if self.prune is not None and (self.length == 1 or self.round_number > 1):
            raise ValueError("prune may be given in round 1 of length 2 and more only.")

    def expand(self, users: PCollection[UserBatch]) -> SpendResult:
        """Applies `contribute` to each batch, after `prune_invalid` if `prune` is given."""
        settings: dict[str, Any] = {
            "plan": self.plan,
            "length": self.length,
            "round_number": self.round_number,
            "run_key": self.run_key,
        }
        if self.previous is not None:
            settings["previous"] = AsSingleton(self.previous)
        if self.present:
            settings["present"] = AsSingleton(self.present[-1])
        if len(self.present) > 1:
            settings["before"] = AsSingleton(self.present[-2])
        if self.prune is not None:
            settings["pruning"] = self.prune.pruning
            if self.prune.present is not None:
                settings["shorter"] = AsSingleton(self.prune.present)
        outputs = beam.FlatMap(_spend_and_report, **settings).with_outputs(
            _USERS, main=_CONTRIBUTIONS
        )
        spent = cast("DoOutputsTuple", users | "Spend" >> outputs)
        # The element type of a tagged output picks its coder.
        spent[_CONTRIBUTIONS].element_type = Contributions
        spent[_USERS].element_type = UserBatch
        return SpendResult(spent[_CONTRIBUTIONS], spent[_USERS])


def _limit_checked(
    contributions: Contributions, *, length: int, max_contributions: int, run_key: RunKey
) -> Contributions:
    if contributions.length != length:
        raise ValueError(
            f"LimitContributions({length=}) got grams of {contributions.length} words."
        )
    sub_key = run_key.sub_key("subset", length)
    return limit_contributions(contributions, max_contributions=max_contributions, sub_key=sub_key)


def limit_contributions(
    contributions: Contributions, *, max_contributions: int, sub_key: bytes
) -> Contributions:
    """Gives each user's n-grams the weight 1/√min(n, Δ), or 0 outside a keyed subset of size Δ."""
    counts = np.diff(contributions.offsets)
    kept = np.minimum(counts, max_contributions)
    # (n,) int64 in units of 2^-32: the weight of each n-gram of a user; users may have none.
    shares = np.zeros(counts.size, dtype=np.int64)
    shares[kept > 0] = equal_weights(kept[kept > 0])
    weights = np.repeat(shares, counts)
    weights[outside_subset(contributions, max_contributions, sub_key)] = 0
    return dataclasses.replace(contributions, weights=weights)


def outside_subset(
    contributions: Contributions, max_contributions: int, sub_key: bytes
) -> np.ndarray:
    """Returns the entries of users above the limit that are outside a keyed subset: ascending int64."""
    keys = draw_keys(contributions)

    def draw(user: np.ndarray, entries: np.ndarray) -> np.ndarray:
        return randomness.keyed_bits(sub_key, contributions.users[user, 0], keys[entries])[:, 0]

    return outside_limit(contributions.offsets, max_contributions, draw)


def draw_keys(contributions: Contributions) -> np.ndarray:
    """Returns 64 bits for each n-gram that are the same in every batch: (m,) uint64.

    A packed pair identifies its n-gram in every batch. A word is identified by its keyed hash.
    """
    if contributions.word_hashes is not None:
        return contributions.word_hashes[contributions.keys, 0]
    return contributions.keys.view(np.uint64)


def _spend_and_report(
    batch: UserBatch,
    *,
    length: int,
    pruning: str | None = None,
    shorter: PresentGrams | None = None,
    **settings: Any,
) -> Iterator[Any]:
    """Spends, after pruning if a rule for it is given; `shorter` are the rows of the positions then."""
    progress.enter("users", length)
    if pruning is not None:
        released = settings["previous"]
        batch = prune_invalid(batch, released, pruning=pruning, present=shorter)
    spent = contribute(batch, length=length, **settings)
    if spent is not None:
        contributions, users = spent
        yield contributions
        yield TaggedOutput(_USERS, users)


def contribute(
    batch: UserBatch,
    *,
    plan: PrivacyPlan,
    length: int,
    round_number: int,
    run_key: RunKey,
    previous: GramSet | None = None,
    present: PresentGrams | None = None,
    before: PresentGrams | None = None,
) -> tuple[Contributions, UserBatch] | None:
    """Returns what a batch's users send to one round, and the users with what they have left.

    Args:
      batch: users' positions; in round r ≥ 3 in terms of `before`, else of length k−1.
      plan: the plan of the run.
      length: k.
      round_number: r.
      run_key: the secret of the run.
      previous: S_{k−1} (k ≥ 2).
      present: the n-grams that are open or found after round r−1 (r ≥ 2).
      before: the n-grams that were open or found after round r−2 (r ≥ 3).

    Returns:
      None if no user has a position left.
    """
    if present is not None:
        batch = keep_present(batch, present, before)
    if not len(batch.users):
        return None
    limit = plan.contribution_limits[length - 1]
    if not plan.strategy_value.has_user_budgets:
        sub_key = run_key.sub_key("subset", length)
        grams = extract_grams(batch, length=length)
        return limit_contributions(grams, max_contributions=limit, sub_key=sub_key), batch
    grams, rows = _open_grams(batch, length, round_number, present, run_key)
    # (n,) int64 in units of 2^-56: the budget for squared weights that earlier rounds have left.
    left = _left(batch, plan, length, round_number)
    if previous is not None and round_number == 1:
        # All own candidates of counted groups count, also those beyond Δ.
        classes = class_numbers(previous, grams.keys)
        counted = counted_classes(previous, plan.held_stddev)
        sent, cost = tallies(classes, grams.offsets, left, counted, plan.held_stddev)
        grams, left = dataclasses.replace(grams, classes=classes, tallies=sent), left - cost
    spent = _spent(dataclasses.replace(batch, left=left), grams, plan)
    # (m,) float64 without unit: the ratio in which a user divides the amount among n-grams.
    shares = _preferences(grams, rows, previous, present)
    sub_key = run_key.sub_key("subset", length, round_number)
    # N-grams beyond Δ_k stay at weight 0, so that they never count among the spurious ones.
    shares[outside_subset(grams, limit, sub_key)] = 0.0
    # Weights in units of 2^-32; their cost is exact and at most `spent`, so that no user overspends.
    weights, cost = adaptive.divide(spent, grams.offsets, shares)
    return dataclasses.replace(grams, weights=weights), dataclasses.replace(batch, left=left - cost)


def _spent(batch: UserBatch, grams: Contributions, plan: PrivacyPlan) -> np.ndarray:
    """Returns what each user spends on the open n-grams of a round: (n,) int64 in units of 2^-56."""
    length, left = grams.length, batch.left
    if left is None:
        raise ValueError("Users must say what they have left.")
    this_round = adaptive.rounds_of(length, plan.rounds or 1)[grams.round - 1]
    # With even budgets longer n-grams have their part already, so that nothing is kept back for them.
    longer = plan.max_length - length if plan.user_budgets == "individual" else 0
    # (n,) int64: places at which a longer n-gram of the user could still be found.
    ahead = adaptive.grams_ahead(present_positions(batch, length), batch.offsets, longer)
    kept = adaptive.kept_ahead(length, plan.favour or "balanced")
    spent = adaptive.spends(left, np.diff(grams.offsets), ahead, this_round.quota, kept)
    # The threshold for words of one user assumes this norm of a user's contributions to the round.
    return (
        np.minimum(spent, adaptive.round_cap(plan.allotment, this_round)) if length == 1 else spent
    )


def _left(batch: UserBatch, plan: PrivacyPlan, length: int, round_number: int) -> np.ndarray:
    """Returns each user's remaining budget: (n,) int64 in units of 2^-56.

    It is the whole allotment at first, and with even budgets again at the start of each length.
    """
    is_fresh = batch.left is None and length == 1
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
) -> tuple[Contributions, np.ndarray]:
    """Returns each user's distinct candidates in round 1, and later those that are still open.

    The second array has their rows in the present set, (m,) int64; it is empty in round 1.
    """
    if present is None:
        return extract_grams(batch, length=length), np.zeros(0, np.int64)
    rows, offsets = _distinct_open_rows(batch, present)
    contributions = Contributions(
        length=length, round=round_number, users=batch.users, offsets=offsets, keys=rows
    )
    if present.words is None:
        return dataclasses.replace(contributions, keys=present.keys[rows]), rows
    # Words travel with the batch, but only those that are open for some user of it.
    used, places = np.unique(rows, return_inverse=True)
    words = present.words.take(pa.array(used))
    contributions = dataclasses.replace(
        contributions,
        keys=places.reshape(-1),
        words=words,
        word_hashes=hash_words(run_key.sub_key("word"), words),
    )
    return contributions, rows


def _distinct_open_rows(batch: UserBatch, present: PresentGrams) -> tuple[np.ndarray, np.ndarray]:
    """Returns each user's distinct rows of open n-grams, ascending, and where each user's begin."""
    # Positions of open n-grams: neither borders nor found n-grams, on which nothing is spent.
    place = np.flatnonzero(batch.ids >= 0)
    place = place[present.found[batch.ids[place]] == 0]
    user = rows_of_entries(batch.offsets)[place]
    (user, rows), _ = distinct((user, batch.ids[place]), (len(batch.users), batch.size))
    return rows, offsets_of(np.bincount(user, minlength=len(batch.users)))


def _preferences(
    grams: Contributions,
    rows: np.ndarray,
    previous: GramSet | None,
    present: PresentGrams | None,
) -> np.ndarray:
    """Returns a_g for each entry; it is 1 at k = 1, where the threshold needs equal weights.

    Args:
      grams: each user's open n-grams.
      rows: (m,) int64, their rows in the present set.
      previous: S_{k−1}; None at k = 1.
      present: the set of n-grams that are open or found; None in round 1.
    """
    if grams.length == 1:
        return np.ones(grams.keys.size)
    # (m,) float64 in units of weight: the n-gram's expected weight; 1 where nothing is known.
    predictions = np.ones(grams.keys.size)
    if previous is not None and grams.length > 2:
        prefixes, seconds = unpack_pairs(grams.keys)
        # An n-gram is at most as frequent as its prefix and its suffix: the lower score predicts.
        predictions = np.minimum(previous.scores[prefixes], previous.scores[seconds])
    if present is None or present.rule is None:
        return adaptive.preferences(predictions, 0.0)
    classes = None if present.classes is None else present.classes[rows]
    cuts = present.rule.cut_cells(present.round)[present.rule.places(classes, rows.size)]
    return adaptive.preferences(predictions, adaptive.nearness(present.cells[rows], cuts))
