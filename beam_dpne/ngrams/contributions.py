"""LimitContributions and SpendBudgets: what one user adds to a length's histogram, and its bound.

"one_round" bounds a user once for each length, and "adaptive" over all lengths and rounds together.
"""

import dataclasses
from collections.abc import Iterator
from typing import Any, NamedTuple

import apache_beam as beam
import numpy as np
import pyarrow as pa
from apache_beam.pvalue import AsSingleton, PCollection, TaggedOutput

from beam_dpne.elements import progress
from beam_dpne.elements.arrays import (
    distinct,
    hash_words,
    offsets_of,
    outside_limit,
    rows_of_entries,
)
from beam_dpne.elements.batches import UnhintedTransform, UserBatch, apply
from beam_dpne.mechanism import randomness
from beam_dpne.mechanism.randomness import RunKey
from beam_dpne.mechanism.thresholds import equal_weights
from beam_dpne.ngrams import adaptive
from beam_dpne.ngrams.candidates import (
    extract_grams,
    keep_present,
    present_positions,
    prune_invalid,
)
from beam_dpne.ngrams.elements import Contributions, GramSet, PresentGrams, unpack_pairs
from beam_dpne.ngrams.length_rules import counted_classes, tallies
from beam_dpne.ngrams.plan import PrivacyPlan
from beam_dpne.ngrams.valid import class_numbers
from beam_dpne.validation import check_choice, check_integer


@dataclasses.dataclass(eq=False, kw_only=True)
class LimitContributions(beam.PTransform):
    """Keeps at most Δ_k distinct n-grams of each user, a keyed random subset, and gives them weights.

    A user with n kept n-grams gives each the weight 1/√n, rounded down, so that the squares of one
    user's weights add up to at most 1 in exact arithmetic. N-grams beyond the limit stay at weight 0,
    since an n-gram that some user holds must never count among the spurious ones.

    Input: `Contributions` without weights.

    Output: `Contributions` with int64 weights in units of 2^-32.

    Privacy: bounds the ℓ2-norm of what one user adds to the histogram of this length by 1; private
    only together with `NoisyThreshold`.

    Cost: one AES block and a share of one sort for each n-gram of the users above the limit.

    Attributes:
      max_contributions: Δ_k ≥ 1.
      run_key: the secret of the run.

    Example:
      >>> import numpy as np
      >>> from apache_beam.runners.portability.fn_api_runner import FnApiRunner
      >>> from beam_dpne import Contributions, LimitContributions, RunKey
      >>> grams = Contributions(length=2, users=np.array([[1, 2]], np.uint64),
      ...                       offsets=np.array([0, 6]), keys=np.arange(6))
      >>> with beam.Pipeline(runner=FnApiRunner()) as pipeline:
      ...     limited = pipeline | beam.Create([grams]) | LimitContributions(
      ...         max_contributions=4, run_key=RunKey.generate())
      ...     _ = limited | beam.Map(lambda c: print(np.sort(c.weights) / 2**32))
      [0.  0.  0.5 0.5 0.5 0.5]

    References: DPNE Algorithm 1, "Limit user contributions" and the update of H_k.
    """

    max_contributions: int
    run_key: RunKey = dataclasses.field(repr=False)

    def __post_init__(self):
        super().__init__()
        check_integer("max_contributions", self.max_contributions, 1)

    def expand(self, contributions: PCollection[Contributions]) -> PCollection[Contributions]:
        """Applies `limit_contributions` to each batch."""
        limit = beam.Map(
            limit_contributions, max_contributions=self.max_contributions, run_key=self.run_key
        )
        return apply(contributions, "Limit", limit, Contributions)


class SpendResult(NamedTuple):
    """PCollections of weighted `Contributions`, and of `UserBatch` with what users have left."""

    contributions: PCollection[Contributions]
    users: PCollection[UserBatch]


@dataclasses.dataclass(eq=False, kw_only=True)
class SpendBudgets(UnhintedTransform):
    """Lists each user's open n-grams of one round, and spends a part of the user's budget on them.

    A user's weights in one round cost the sum of their squares. Before the first round of a length
    k ≥ 2 the user also pays for a count of held candidates, see `length_rules`. What the user has left
    falls by these costs and never below 0. N-grams beyond Δ_k stay in the first round at weight 0.

    Input: `UserBatch`: all users, and later those that this transform returned in the round before.

    Output: `SpendResult`. In round 1 of k ≥ 2 positions are pruned by S_{k−1}, in later rounds by what
    is open or found; users who are left without positions are dropped.

    Privacy: over all lengths and rounds one user's squared weights and charges for counts add up to at
    most μ² on every path, in exact arithmetic; private only together with `SampleSpurious`,
    `DecideRound` and `NoisyThreshold`.

    Cost: one look-up for each position that is left, and one sort of those that are open.

    Attributes:
      plan: the plan of the run, with strategy "adaptive".
      length: k.
      round_number: r ≥ 1.
      run_key: the secret of the run.
      previous: PCollection of one `GramSet`, S_{k−1} (k ≥ 2).
      present: PCollection of one `PresentGrams` after round r−1 (r ≥ 2).
      before: the `present` of the round before, to whose rows positions refer; None if it had none.

    Example:
      >>> import numpy as np, pyarrow as pa
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
    present: PCollection[PresentGrams] | None = None
    before: PCollection[PresentGrams] | None = None

    def __post_init__(self):
        super().__post_init__()
        check_choice("strategy", self.plan.strategy, ("adaptive",))

    def expand(self, users: PCollection[UserBatch]) -> SpendResult:
        """Applies `contribute` to each batch."""
        sides = {"previous": self.previous, "present": self.present, "before": self.before}
        given = {name: AsSingleton(side) for name, side in sides.items() if side is not None}
        spend = beam.FlatMap(
            _spent_by_batch,
            plan=self.plan,
            length=self.length,
            round_number=self.round_number,
            run_key=self.run_key,
            **given,
        )
        spent: Any = users | "Spend" >> spend.with_outputs("users", main="contributions")
        # The element type of a tagged output picks its coder.
        spent.contributions.element_type = Contributions
        spent.users.element_type = UserBatch
        return SpendResult(spent.contributions, spent.users)


def _spent_by_batch(batch: UserBatch, **settings: Any) -> Iterator[Any]:
    spent = contribute(batch, **settings)
    if spent is not None:
        contributions, users = spent
        yield contributions
        yield TaggedOutput("users", users)


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
    # A packed pair identifies its n-gram in every batch. A word is identified by its keyed hash.
    keys, hashes = contributions.keys, contributions.word_hashes
    keys = keys.view(np.uint64) if hashes is None else hashes[keys, 0]

    def draw(user: np.ndarray, entries: np.ndarray) -> np.ndarray:
        return randomness.keyed_bits(sub_key, contributions.users[user, 0], keys[entries])[:, 0]

    return outside_limit(contributions.offsets, max_contributions, draw)


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

    It is None if no user has a position left. Other arguments are the attributes of `SpendBudgets`.
    """
    progress.enter("users", length)
    if present is not None:
        batch = keep_present(batch, present, before)
    elif previous is not None:
        batch = prune_invalid(batch, previous, pruning=plan.pruning, present=before)
    if not len(batch.users):
        return None
    limit = plan.contribution_limits[length - 1]
    if not plan.is_adaptive:
        grams = extract_grams(batch)
        return limit_contributions(grams, max_contributions=limit, run_key=run_key), batch
    grams, rows = _open_grams(batch, length, round_number, present, run_key)
    # (n,) int64 in units of 2^-56: the budget for squared weights that earlier rounds have left.
    left = _left(batch, plan, length, round_number)
    if previous is not None and round_number == 1:
        # All own candidates of counted groups count, also those beyond Δ.
        classes = class_numbers(previous, grams.keys)
        counted = counted_classes(previous, plan.held_stddev)
        sent, cost = tallies(classes, grams.offsets, left, counted, plan.held_stddev)
        grams, left = dataclasses.replace(grams, classes=classes, tallies=sent), left - cost
    spent = _spent(batch, left, grams, plan)
    # (m,) float64 without unit: the ratio in which a user divides the amount among n-grams.
    shares = _preferences(grams, rows, previous, present)
    sub_key = run_key.sub_key("subset", length, round_number)
    # N-grams beyond Δ_k stay at weight 0, so that they never count among the spurious ones.
    shares[outside_subset(grams, limit, sub_key)] = 0.0
    # Weights in units of 2^-32; their cost is exact and at most `spent`, so that no user overspends.
    weights, cost = adaptive.divide(spent, grams.offsets, shares)
    return dataclasses.replace(grams, weights=weights), dataclasses.replace(batch, left=left - cost)


def _spent(
    batch: UserBatch, left: np.ndarray, grams: Contributions, plan: PrivacyPlan
) -> np.ndarray:
    """Returns what each user spends on the open n-grams of a round: (n,) int64 in units of 2^-56."""
    length = grams.length
    this_round = plan.lengths[length - 1].rounds[grams.round - 1]
    # With even budgets longer n-grams have their part already, so that nothing is kept back for them.
    longer = plan.max_length - length if plan.user_budgets == "individual" else 0
    # (n,) int64: places at which a longer n-gram of the user could still be found.
    ahead = adaptive.grams_ahead(present_positions(batch, length), batch.offsets, longer)
    kept = adaptive.AHEAD[plan.favour or "balanced"][length > 1]
    spent = adaptive.spends(left, np.diff(grams.offsets), ahead, this_round.quota, kept)
    if length > 1:
        return spent
    # The threshold for words of one user assumes this norm of a user's contributions to the round.
    return np.minimum(spent, adaptive.round_cap(plan.allotment, this_round))


def _left(batch: UserBatch, plan: PrivacyPlan, length: int, round_number: int) -> np.ndarray:
    """Returns each user's remaining budget, at first the whole allotment: (n,) int64."""
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
    """Returns each user's distinct open candidates, and after round 1 their rows in the present set."""
    if present is None:
        return extract_grams(batch), np.zeros(0, np.int64)
    # Positions of open n-grams: neither borders nor found n-grams, on which nothing is spent.
    place = np.flatnonzero(batch.ids >= 0)
    place = place[present.found[batch.ids[place]] == 0]
    user = rows_of_entries(batch.offsets)[place]
    (user, rows), _ = distinct((user, batch.ids[place]), (len(batch.users), batch.size))
    offsets = offsets_of(np.bincount(user, minlength=len(batch.users)))
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


def _preferences(
    grams: Contributions,
    rows: np.ndarray,
    previous: GramSet | None,
    present: PresentGrams | None,
) -> np.ndarray:
    """Returns a_g of each entry of `grams`; it is 1 at k = 1, where the threshold needs equal weights.

    `rows` are the entries' rows in the present set: (m,) int64.
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
