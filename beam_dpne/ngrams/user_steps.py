"""The transforms of users on Beam: what each user sends to a round, and which n-grams users hold."""

import dataclasses
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import apache_beam as beam
from apache_beam.pvalue import AsSingleton, PCollection, TaggedOutput

from beam_dpne.counts.rule import required_noise
from beam_dpne.counts.steps import count_in_beam
from beam_dpne.elements import progress
from beam_dpne.elements.batches import UserBatch
from beam_dpne.elements.bundles import UnhintedTransform, apply
from beam_dpne.elements.coders import register_batches
from beam_dpne.elements.encoding import SetStore
from beam_dpne.mechanism.randomness import RunKey
from beam_dpne.ngrams.candidates import extract_grams, prune_invalid
from beam_dpne.ngrams.contributions import limit_contributions
from beam_dpne.ngrams.elements import Contributions, GramSet, HistogramShard, Past, PresentGrams
from beam_dpne.ngrams.plan import NgramsPlan
from beam_dpne.ngrams.released_rows import GramRows
from beam_dpne.ngrams.spending import RoundOfLength, contribute
from beam_dpne.validation import check_choice, check_integer

register_batches(Contributions, HistogramShard, PresentGrams, GramSet)


@dataclasses.dataclass(eq=False, kw_only=True)
class ExtractGrams(UnhintedTransform):
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
      >>> from beam_dpne import ExtractGrams
      >>> from beam_dpne.steps import UserBatch
      >>> batch = UserBatch(  # one user: the released words 0 1 0 1, a border after them
      ...     length=1, size=2, users=np.array([[1, 2]], np.uint64), vocabulary_size=2,
      ...     offsets=np.array([0, 5]), ids=np.array([0, 1, 0, 1, -1], np.int32))
      >>> with beam.Pipeline(runner=FnApiRunner()) as pipeline:
      ...     grams = pipeline | beam.Create([batch]) | ExtractGrams()
      ...     _ = grams | beam.Map(lambda c: print(c.keys >> 32, c.keys & 0xFFFFFFFF))
      [0 1] [1 0]

    References: DPNE Algorithm 1, "W_i^k ← G_k(w_i)" and "U_i ← W_i^k ∩ V_k".
    """

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

    Example:
      >>> import numpy as np, pyarrow as pa
      >>> from apache_beam.runners.portability.fn_api_runner import FnApiRunner
      >>> from beam_dpne import PruneInvalid
      >>> from beam_dpne.steps import GramSet, UserBatch
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
        check_choice("pruning", self.pruning, ("both", "single"))

    def expand(self, users: PCollection[UserBatch]) -> PCollection[UserBatch]:
        """Applies `prune_invalid` to each batch, with S_{k−1} beside it."""
        prune = beam.FlatMap(_pruned, AsSingleton(self.released), pruning=self.pruning)
        return apply(users, "Prune", prune, UserBatch)


def _pruned(batch: UserBatch, released: GramSet, *, pruning: str) -> list[UserBatch]:
    progress.enter("users", released.length + 1)
    pruned = prune_invalid(batch, released, pruning=pruning)
    return [pruned] if len(pruned.users) else []


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
      >>> from beam_dpne import LimitContributions, RunKey
      >>> from beam_dpne.steps import Contributions
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
    is open or found; users who are left without positions are dropped. Their words have no hashes any
    more, which nothing later needs.

    Privacy: over all lengths and rounds one user's squared weights and charges for counts add up to at
    most μ² on every path, in exact arithmetic; private only together with `SampleSpurious`,
    `DecideRound` and `NoisyThreshold`.

    Cost: one look-up for each position that is left, and one sort of those that are open.

    Attributes:
      plan: the plan of the run, with strategy "adaptive".
      length: k.
      round_number: r ≥ 1.
      run_key: the secret of the run.
      previous: PCollection of one `GramSet`, S_{k−1} (k ≥ 2), or the root of known n-grams (k = 1).
      present: PCollection of one `PresentGrams` after round r−1 (r ≥ 2).
      before: the `present` of the round before, to whose rows positions refer; None if it had none.

    Raises:
      ValueError: if the plan has another strategy or no such round, or `present` is wrongly given.

    Example:
      >>> import numpy as np, pyarrow as pa
      >>> from apache_beam.runners.portability.fn_api_runner import FnApiRunner
      >>> from beam_dpne import NgramsPlan, RunKey
      >>> from beam_dpne.steps import SpendBudgets, UserBatch
      >>> batch = UserBatch(  # one user with the text "a b a b"
      ...     length=0, size=2, users=np.array([[1, 2]], np.uint64), words=pa.array(["a", "b"]),
      ...     word_hashes=np.array([[3, 4], [5, 6]], np.uint64),
      ...     offsets=np.array([0, 5]), ids=np.array([0, 1, 0, 1, -1], np.int32))
      >>> plan = NgramsPlan(epsilon=1, delta=1e-7, max_length=2)
      >>> with beam.Pipeline(runner=FnApiRunner()) as pipeline:
      ...     spent = pipeline | beam.Create([batch]) | SpendBudgets(
      ...         plan=plan, length=1, round_number=1, run_key=RunKey.generate())
      ...     _ = spent.contributions | beam.Map(lambda c: print((c.weights / 2**32).round(4)))
      [0.0347 0.0347]

    References: none; the strategy is new in this project, see `adaptive`.
    """

    plan: NgramsPlan
    length: int
    round_number: int
    run_key: RunKey = dataclasses.field(repr=False)
    previous: PCollection[GramSet] | None = None
    present: PCollection[PresentGrams] | None = None
    before: PCollection[PresentGrams] | None = None

    def __post_init__(self):
        super().__post_init__()
        check_choice("strategy", self.plan.strategy, ("adaptive",))
        check_integer("round_number", self.round_number, 1, self.plan.rounds_of(self.length))
        # Without it, weights of another round would meet the noise of round 1 once more.
        if (self.present is None) != (self.round_number == 1):
            raise ValueError("present must be given from round 2 on, and only there.")

    def expand(self, users: PCollection[UserBatch]) -> SpendResult:
        """Applies `contribute` to each batch."""
        this = RoundOfLength(
            plan=self.plan, length=self.length, number=self.round_number, run_key=self.run_key
        )
        spend = beam.FlatMap(
            _spent_by_batch,
            this=this,
            released=_side(self.previous),
            present=_side(self.present),
            positions=_side(self.before),
        )
        spent: Any = users | "Spend" >> spend.with_outputs("users", main="contributions")
        # The element type of a tagged output picks its coder.
        spent.contributions.element_type = Contributions
        spent.users.element_type = UserBatch
        return SpendResult(spent.contributions, spent.users)


def _side(one: PCollection | None) -> AsSingleton | None:
    return None if one is None else AsSingleton(one)


def _spent_by_batch(
    batch: UserBatch,
    *,
    this: RoundOfLength,
    released: GramSet | None,
    present: PresentGrams | None,
    positions: PresentGrams | None,
) -> Iterator[object]:  # Beam would warn of a TaggedOutput; both outputs have their types above.
    progress.enter("users", this.length, this.number)
    past = Past(released=released, present=present, positions=positions)
    contributed = contribute(batch, this, past)
    if contributed is not None:
        yield contributed.contributions
        # Contributions had the hashes of words, which nobody needs of users afterwards.
        users = dataclasses.replace(contributed.users, word_hashes=None)
        yield TaggedOutput("users", users)


@dataclasses.dataclass(eq=False, kw_only=True)
class CountUsers(UnhintedTransform):
    """Estimates how many users hold each released n-gram, with intervals.

    Input: `UserBatch` of length 0: all users, as they were before any n-gram was released.

    Output: tuple of PCollections of one `GramSet` each: S_1, …, S_T with `users`.

    Privacy: a function of S_1, …, S_T and of sums with Gaussian noise, which are private together under
    the plan; see `counts.measuring`.

    Cost: one pass over the users' positions, one shuffle; one worker holds all released sets.

    Attributes:
      plan: the plan of the run, with a count_share above 0.
      released: S_1, …, S_T, PCollections of one `GramSet` each.
      run_key: the secret of the run.
      store: the folder for sets that are too large for an element; with None every set is one element.

    Example:
      >>> import numpy as np
      >>> import pyarrow as pa
      >>> from apache_beam.runners.portability.fn_api_runner import FnApiRunner
      >>> from beam_dpne import NgramsPlan, RunKey
      >>> from beam_dpne.steps import CountUsers
      >>> batch = UserBatch(  # 2,000 users, each of whom says "a b"
      ...     length=0, size=2, users=np.arange(4000, dtype=np.uint64).reshape(-1, 2),
      ...     offsets=np.arange(0, 6003, 3), ids=np.tile([0, 1, -1], 2000).astype(np.int32),
      ...     words=pa.array(["a", "b"]), word_hashes=np.eye(2, dtype=np.uint64))
      >>> words = GramSet(length=1, keys=np.arange(2), scores=np.array([9.0, 9.5]),
      ...                 words=pa.array(["a", "b"]), vocabulary_size=2)
      >>> plan = NgramsPlan(epsilon=4, delta=1e-7, max_length=1)
      >>> with beam.Pipeline(runner=FnApiRunner()) as pipeline:
      ...     released = (pipeline | "S_1" >> beam.Create([words]),)
      ...     counted = pipeline | beam.Create([batch]) | CountUsers(
      ...         plan=plan, released=released, run_key=RunKey(bytes(32)))
      ...     _ = counted[0] | beam.Map(lambda grams: print(grams.users[:, 0].round(-2)))
      [2000 2000]

    References: none; `counts.rule` has the design.
    """

    plan: NgramsPlan
    released: Sequence[PCollection[GramSet]]
    run_key: RunKey = dataclasses.field(repr=False)
    store: SetStore | None = None

    def __post_init__(self):
        super().__post_init__()
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
        names = [str(length) for length in range(1, len(self.released) + 1)]
        split = beam.Map(lambda grams: TaggedOutput(str(grams.length), grams))
        lengths: Any = counted | "Lengths" >> split.with_outputs(*names)
        for name in names:
            lengths[name].element_type = GramSet
        return tuple(lengths[name] for name in names)
