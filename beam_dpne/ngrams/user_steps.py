"""The transforms of users on Beam: they list candidates, prune positions, and bound contributions."""

import dataclasses
from collections.abc import Iterator
from typing import Any, NamedTuple, cast

import apache_beam as beam
from apache_beam.pvalue import AsSingleton, DoOutputsTuple, PCollection, TaggedOutput

from beam_dpne.elements import progress
from beam_dpne.elements.batches import UnhintedTransform, UserBatch, apply
from beam_dpne.mechanism.randomness import RunKey
from beam_dpne.ngrams.candidates import extract_grams, prune_invalid
from beam_dpne.ngrams.contributions import contribute, limit_contributions
from beam_dpne.ngrams.elements import (
    Contributions,
    GramSet,
    PresentGrams,
)
from beam_dpne.ngrams.plan import PrivacyPlan

_USERS = "users"
_CONTRIBUTIONS = "contributions"


@dataclasses.dataclass(eq=False, kw_only=True)
class ExtractGrams(beam.PTransform):
    """Lists each user's distinct candidate n-grams of one length.

    At length 1 candidates are the user's words. At length k ≥ 2 they are two neighbouring released
    (k−1)-grams (pruning "both"), or a released (k−1)-gram and the released word after it ("single").
    These are exactly the user's k-grams in V_k, since `PruneInvalid` left only such positions.

    Input: `UserBatch` of length k−1.

    Output: `Contributions` of length k ≥ 1, keys ascending within each user, without weights.

    Privacy: not private; nothing is bounded yet.

    Cost: one sort of the batch's candidates as 64-bit integers.

    Example:
      >>> import numpy as np
      >>> from apache_beam.runners.portability.fn_api_runner import FnApiRunner
      >>> from beam_dpne import ExtractGrams, UserBatch
      >>> batch = UserBatch(  # one user: the released words 0 1 0 1, a border after them
      ...     length=1, size=2, users=np.array([[1, 2]], np.uint64), vocabulary_size=2,
      ...     offsets=np.array([0, 5]), ids=np.array([0, 1, 0, 1, -1], np.int32))
      >>> with beam.Pipeline(runner=FnApiRunner()) as pipeline:
      ...     grams = pipeline | beam.Create([batch]) | ExtractGrams()
      ...     _ = grams | beam.Map(lambda c: print(c.keys >> 32, c.keys & 0xFFFFFFFF))
      [0 1] [1 0]

    References: DPNE Algorithm 1, "W_i^k ← G_k(w_i)" and "U_i ← W_i^k ∩ V_k".
    """

    def __post_init__(self):
        super().__init__()

    def expand(self, users: PCollection[UserBatch]) -> PCollection[Contributions]:
        """Applies `extract_grams` to each batch."""
        return apply(users, "Extract", beam.Map(extract_grams), Contributions)


@dataclasses.dataclass(eq=False, kw_only=True)
class PruneInvalid(beam.PTransform):
    """Rewrites users' positions in terms of S_{k−1}, as the input of length k.

    Each position gets the id in S_{k−1} of the n-gram that starts there, −1 if it was not released.
    Positions at which nothing longer can begin are dropped, and users without any, so that later
    lengths cost less.

    Input: `UserBatch` of length k−2.

    Output: `UserBatch` of length k−1.

    Privacy: not private; a function of one user's data and of a released set.

    Cost: one look-up for each position that is left.

    Attributes:
      released: PCollection of one `GramSet`, S_{k−1}; a side input.
      pruning: "both" or "single".

    Raises:
      ValueError: on another pruning rule.

    Example:
      >>> import numpy as np, pyarrow as pa
      >>> from apache_beam.runners.portability.fn_api_runner import FnApiRunner
      >>> from beam_dpne import GramSet, PruneInvalid, UserBatch
      >>> batch = UserBatch(  # one user: "a b c", of which only "a" and "b" were released
      ...     length=0, size=3, users=np.array([[1, 2]], np.uint64), words=pa.array(["c", "a", "b"]),
      ...     offsets=np.array([0, 4]), ids=np.array([1, 2, 0, -1], np.int32))
      >>> vocabulary = GramSet(length=1, keys=np.arange(2), scores=np.array([9.0, 9.5]),
      ...                      words=pa.array(["a", "b"]), vocabulary_size=2)
      >>> with beam.Pipeline(runner=FnApiRunner()) as pipeline:
      ...     released = pipeline | "S_1" >> beam.Create([vocabulary])
      ...     users = pipeline | beam.Create([batch]) | PruneInvalid(released=released)
      ...     _ = users | beam.Map(lambda batch: print(batch.ids))
      [ 0  1 -1]

    References: DPNE appendix A, Algorithms 3 and 4 (CheckValidity, PruneInvalid).
    """

    released: PCollection[GramSet]
    pruning: str = "both"

    def __post_init__(self):
        super().__init__()
        if self.pruning not in ("both", "single"):
            raise ValueError(f"pruning must be 'both' or 'single', got pruning={self.pruning!r}.")

    def expand(self, users: PCollection[UserBatch]) -> PCollection[UserBatch]:
        """Applies `prune_invalid` to each batch, with S_{k−1} beside it."""
        prune = beam.FlatMap(_pruned, AsSingleton(self.released), pruning=self.pruning)
        return apply(users, "Prune", prune, UserBatch)


@dataclasses.dataclass(eq=False, kw_only=True)
class LimitContributions(beam.PTransform):
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
      ...         max_contributions=4, run_key=RunKey.generate())
      ...     _ = limited | beam.Map(lambda c: print(np.sort(c.weights) / 2**32))
      [0.  0.  0.5 0.5 0.5 0.5]

    References: DPNE Algorithm 1, "Limit user contributions" and the update of H_k.
    """

    max_contributions: int
    run_key: RunKey = dataclasses.field(repr=False)

    def __post_init__(self):
        super().__init__()
        if self.max_contributions < 1:
            raise ValueError(f"max_contributions must be at least 1, got {self.max_contributions}.")

    def expand(self, contributions: PCollection[Contributions]) -> PCollection[Contributions]:
        """Applies `limit_contributions` to each batch."""
        limit = beam.Map(
            limit_contributions, max_contributions=self.max_contributions, run_key=self.run_key
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
    k ≥ 2 the user also pays for a count of held candidates, see `length_rules`. What the user has left
    falls by these costs and never below 0. N-grams beyond the limit stay in the first round at weight
    0, since an n-gram that some user holds must never count among the spurious ones.

    Input: `UserBatch`: all users, and later those that this transform returned in the round before.

    Output: `SpendResult`. In the first round of k ≥ 2 positions are pruned by S_{k−1}, in later rounds
    by what is open or found; users who are left without positions are dropped.

    Privacy: over all lengths and rounds the squared weights of one user and the charges for counts of
    held candidates add up to at most μ² on every path, in exact arithmetic; private only together with
    `SampleSpurious`, `DecideRound` and `NoisyThreshold`.

    Cost: one look-up for each position that is left, and one sort of those that are open.

    Attributes:
      plan: the plan of the run, with strategy "adaptive".
      length: k.
      round_number: r ≥ 1.
      run_key: the secret of the run.
      previous: PCollection of one `GramSet`, S_{k−1} (k ≥ 2).
      present: PCollection of one `PresentGrams` after round r−1 (r ≥ 2).
      before: PCollection of one `PresentGrams`, the `present` of the round before, whose rows the
        positions of the users refer to; None where that round had none.

    Raises:
      ValueError: if the plan has another strategy, or not so many rounds.

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
        if not self.plan.is_adaptive:
            raise ValueError(
                f"plan must have strategy='adaptive', got strategy={self.plan.strategy!r}; use "
                "LimitContributions."
            )
        last = self.plan.rounds_of(self.length)
        if not 1 <= self.round_number <= last:
            raise ValueError(
                f"round_number must be one of the {last} rounds of length {self.length}, got "
                f"round_number={self.round_number}."
            )

    def expand(self, users: PCollection[UserBatch]) -> SpendResult:
        """Applies `contribute` to each batch."""
        sides = {"previous": self.previous, "present": self.present, "before": self.before}
        settings: dict[str, Any] = {
            "plan": self.plan,
            "length": self.length,
            "round_number": self.round_number,
            "run_key": self.run_key,
            **{name: AsSingleton(side) for name, side in sides.items() if side is not None},
        }
        outputs = beam.FlatMap(_spent_by_batch, **settings).with_outputs(
            _USERS, main=_CONTRIBUTIONS
        )
        spent = cast("DoOutputsTuple", users | "Spend" >> outputs)
        # The element type of a tagged output picks its coder.
        spent[_CONTRIBUTIONS].element_type = Contributions
        spent[_USERS].element_type = UserBatch
        return SpendResult(spent[_CONTRIBUTIONS], spent[_USERS])


def _pruned(batch: UserBatch, released: GramSet, *, pruning: str) -> list[UserBatch]:
    progress.enter("users", released.length + 1)
    pruned = prune_invalid(batch, released, pruning=pruning)
    return [pruned] if len(pruned.users) else []


def _spent_by_batch(batch: UserBatch, **settings: Any) -> Iterator[Any]:
    progress.enter("users", settings["length"])
    spent = contribute(batch, **settings)
    if spent is not None:
        contributions, users = spent
        yield contributions
        yield TaggedOutput(_USERS, users)
