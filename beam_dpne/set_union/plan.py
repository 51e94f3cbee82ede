"""SetUnionPlan: the public parameters of a private set union, its policies, rounds and noise."""

import dataclasses
import functools
import math
from collections.abc import Sequence
from typing import Annotated, ClassVar, NamedTuple

import scipy

from beam_dpne.counts.rule import (
    COUNT_SHARE,
    SUMS_OF_A_ROW,
    SUMS_OF_A_USER,
    CountShare,
    noise_of_budget,
)
from beam_dpne.mechanism import gaussian, thresholds
from beam_dpne.mechanism.plan import GaussianPlan
from beam_dpne.mechanism.rules import UNITS, EvidenceRule
from beam_dpne.validation import MAX_USERS, Parameter

_MAX_CUTOFF = 8000.0
_ERROR = gaussian.RELATIVE_ERROR
# More shards are never taken: 8 release 3 % less than one, but 64 release 38 % less.
MOST_SHARDS = 8
# η, spurious known items over those that users have; the largest probability of each in a round; and
# the standard deviations of noise below which they are closed in rounds with a cut, and else counted.
SPURIOUS_SHARE = 0.01
MOST_SPURIOUS = 0.35
KNOWN_CUT = -0.35
# The probability ν that the errors of many decisions add up to more than the numerical slack, over
# δ·e^−ε; see `SetUnionPlan.numerical_slack`.
SPARE = 1e-12


class RoundShares(NamedTuple):
    """The part of a run that one round has.

    Attributes:
      budget, delta: shares of the squared budget and of δ_T; those of all rounds sum to 1.
      cut: items whose noisy weight is below it are closed, in standard deviations of noise; None in the
        last round, and in rounds that close nothing but what they find.
    """

    budget: float = 1.0
    delta: float = 1.0
    cut: float | None = None


# The rounds of each policy. Those of "screened_gaussian" were chosen on public text; each round of
# "sips" has three times the shares of the one before, as published.
ROUNDS: dict[str, tuple[RoundShares, ...]] = {
    "weighted_gaussian": (RoundShares(),),
    "sips": tuple(RoundShares(each / 13, each / 13) for each in (1, 3, 9)),
    "policy_gaussian": (RoundShares(),),
    "screened_gaussian": (
        RoundShares(0.12, 0.03, 0.5),
        RoundShares(0.23, 0.12, 1.4),
        RoundShares(0.65, 0.85),
    ),
}
POLICIES = tuple(ROUNDS)
# In these, users move items towards a cutoff one after the other: their weights depend on other users.
DESCENT_POLICIES = ("policy_gaussian", "screened_gaussian")


class UnionRound(NamedTuple):
    """The public numbers that decide about every item in one round.

    Attributes:
      round: the round's number, from 1.
      noise_stddev: σ of the noise on each item, in units of weight.
      threshold: ρ, in units of weight; each user has a budget of 1 in each round.
      cutoff: Γ, in units of weight; None for policies without a cutoff.
      cut: the same as in `RoundShares`, in units of weight.
    """

    round: int
    noise_stddev: float
    threshold: float
    cutoff: float | None
    cut: float | None

    @property
    def evidence(self) -> EvidenceRule:
        """The cells of noisy weights around ρ.

        ρ is rounded up, and two units of 2^-32 are added, since some weights are rounded up by 2^-50.
        """
        units = math.ceil(self.threshold * UNITS) + 2
        return EvidenceRule(evidence_stddev=self.noise_stddev, threshold_units=units)

    @property
    def cut_cell(self) -> int | None:
        """The lowest cell that stays open for the next round; None in rounds without a cut."""
        if self.cut is None:
            return None
        cells = self.evidence
        return math.ceil((self.cut * UNITS - cells.threshold_units) / cells.cell_units)


@dataclasses.dataclass(frozen=True, kw_only=True)
class SetUnionPlan(GaussianPlan):
    """The public parameters of a private set union; they must never be chosen from private data.

    A run under a plan is user-level (ε, δ)-differentially private: neighbouring inputs differ in one
    user with all of that user's items.

    Raises:
      ValueError: with the name of the parameter, its requirement and the value.

    Example:
      >>> import math
      >>> plan = SetUnionPlan(
      ...     epsilon=3, delta=math.exp(-10), policy="weighted_gaussian", count_share=0)
      >>> [(round(each.noise_stddev, 4), round(each.threshold, 4)) for each in plan.union_rounds]
      [(1.3342, 6.832)]
      >>> SetUnionPlan.from_json(plan.to_json()) == plan
      True

    References: Gopi et al., "Differentially Private Set Union" (ICML 2020).
    """

    program: ClassVar[str] = "set-union"
    decides_defaults: ClassVar[str] = "policy"

    policy: Annotated[
        str,
        Parameter(
            choices=POLICIES,
            help="How users divide their weight among their items: one after the other towards a "
            "cutoff, in three rounds (screened_gaussian) or one (policy_gaussian), or evenly, in one "
            "round (weighted_gaussian) or three (sips).",
        ),
    ] = "screened_gaussian"
    max_contributions: Annotated[
        int,
        Parameter(
            least=1,
            most=10_000_000,
            help="Largest number of items of one user, Δ; the number of distinct items that a "
            "typical user has is sensible. It must not be computed from the private data.",
        ),
    ] = 100
    count_share: CountShare = COUNT_SHARE
    max_users: Annotated[
        int,
        Parameter(
            least=1,
            most=MAX_USERS,
            in_short_help=False,
            help="Upper bound on the number of users of the input, which you promise: it is never "
            "checked against the data. Policies without a cutoff ignore it.",
        ),
    ] = 10_000_000
    cutoff_margin: Annotated[
        float,
        Parameter(
            least=0,
            in_short_help=False,
            help="Distance above the threshold up to which items are filled, in standard deviations "
            "of the noise. Policies without a cutoff ignore it.",
        ),
    ] = 5.0
    max_shard_users: Annotated[
        int,
        Parameter(
            least=1,
            most=MAX_USERS,
            in_short_help=False,
            help="Largest number of users that one worker takes in sequence: users are divided into "
            "max_users over it shards, at most 8, and more shards release a little less. Policies "
            "without a cutoff ignore it.",
        ),
    ] = 5_000_000
    vocabulary_delta_share: Annotated[
        float,
        Parameter(
            above=0,
            below=1,
            in_short_help=False,
            help="Share of delta that bounds the probability of releasing an item that only one user "
            "has. The noise gets the rest.",
        ),
    ] = 0.5
    max_items_per_user: Annotated[
        int,
        Parameter(
            least=1,
            most=MAX_USERS,
            in_short_help=False,
            help="Largest number of items of one user that are read, with repetitions. Users above it "
            "keep a random subset of their texts.",
        ),
    ] = 1_000_000

    def __post_init__(self) -> None:
        super().__post_init__()
        self._check_shards()
        self._check_noise()

    @property
    def has_cutoff(self) -> bool:
        """Whether items are filled up to a cutoff; a user's weights then depend on other users."""
        return self.policy in DESCENT_POLICIES

    @property
    def contribution_limit(self) -> int:
        """Δ_0; no user has more items than max_items_per_user."""
        return min(self.max_contributions, self.max_items_per_user)

    @property
    def shard_count(self) -> int:
        """M: the number of histograms; 1 for policies in which users have no order."""
        shards = -(-self.max_users // self.max_shard_users) if self.has_cutoff else 1
        return min(shards, MOST_SHARDS)

    @property
    def decision_count(self) -> int:
        """The largest number of decisions about items that may depend on one user.

        Under a cutoff users' weights follow those of others, so that all decisions of each round may;
        otherwise, given the rounds before, those about the user's items do.
        """
        users = self.max_users if self.has_cutoff else 1
        return len(ROUNDS[self.policy]) * users * self.contribution_limit

    @property
    def count_decisions(self) -> int:
        """The numbers that the measurement of users releases and that one user changes, at most."""
        if not self.count_share:
            return 0
        return SUMS_OF_A_ROW * self.max_items_per_user + SUMS_OF_A_USER

    @property
    def rounding_bound(self) -> float:
        """The largest effect of rounding on the sensitivity, for at most max_users users.

        It is 0 for weights that are rounded down, where all arithmetic is exact in integers.
        """
        if not self.has_cutoff:
            return 0.0
        return thresholds.descent_rounding(
            max_contributions=self.contribution_limit, max_users=self.max_users
        )

    @property
    def sensitivity(self) -> float:
        """The largest ℓ2 distance by which one user moves a round's histogram, rounding included."""
        return 1.0 + self.rounding_bound

    @property
    def numerical_slack(self) -> float:
        """The most that floating point may cost of ε; it is a part of the reserve.

        The probability of every decision is right to a relative c = 1e-12. If a user changes only the
        decisions about the items that this user has, the cost is 2c for each of Δ_0 items in each
        round. In the policies in which users' weights follow those of others, all decisions may change,
        n ≤ max_users · Δ_0 in a round. The logarithms of their errors are independent, within ±c, and
        of mean at most c². Except with a probability ν, they add up to at most
        s = c √(2 n ln(1/ν)) + n c² (Hoeffding), in each of the two worlds. Of the numbers of users, a
        user changes only those of items that this user has: each of them costs 2c.
        """
        decisions = self.decision_count
        of_counts = gaussian.slack_of(self.count_decisions)
        if not self.has_cutoff:
            return gaussian.slack_of(decisions) + of_counts
        log_failure = -math.log(SPARE) + self.epsilon - math.log(self.delta)
        deviation = _ERROR * math.sqrt(2 * decisions * log_failure)
        return 2 * (deviation + decisions * _ERROR**2) + of_counts

    @property
    def far_tails(self) -> float:
        """The most that noise in far tails may cost of δ; it is a part of the reserve.

        It includes the probability ν = SPARE·δ·e^(−ε) of errors that add up to more than the slack.
        """
        draws = self.decision_count + self.count_decisions
        return gaussian.far_tails(draws, epsilon=self.epsilon) + 3 * SPARE * self.delta

    @functools.cached_property
    def count_noise(self) -> float | None:
        """The noise of the measurement of users; None if nothing is measured."""
        if not self.count_share:
            return None
        return noise_of_budget(math.sqrt(self.count_share) * self.mu)

    @functools.cached_property
    def union_rounds(self) -> tuple[UnionRound, ...]:
        """The numbers that decide in each round; most policies have one round.

        Gaussian noise of σ/√((1 − c) q_r) in rounds of sensitivity 1 is as private as σ/√(1 − c) once,
        for Σ q_r = 1.
        """
        rounds = []
        for number, share in enumerate(ROUNDS[self.policy], start=1):
            stddev = self.noise_stddev / math.sqrt((1 - self.count_share) * share.budget)
            threshold = thresholds.vocabulary_threshold(
                noise_stddev=stddev,
                delta=self.vocabulary_delta * share.delta,
                max_contributions=self.contribution_limit,
            )
            cutoff = threshold + self.cutoff_margin * stddev if self.has_cutoff else None
            cut = None if share.cut is None else share.cut * stddev
            rounds.append(UnionRound(number, stddev, threshold, cutoff, cut))
        return tuple(rounds)

    def known_threshold(self, size: int, past: Sequence[int]) -> float:
        """Returns ρ of known items in the round that follows the past; `decisions` has the argument.

        Args:
          size: |L|, the number of known items; without any the result means nothing.
          past: for each round before, the number of known items with a weight below `KNOWN_CUT`.
        """
        number = len(past)
        unheld = max(1.0, size)
        tolerated = min(1.0, SPURIOUS_SHARE * unheld)
        if past:
            null = float(scipy.special.ndtr(-KNOWN_CUT))
            held = size - (past[0] + math.sqrt(size)) / (1 - null)
            tolerated = max(tolerated, SPURIOUS_SHARE * held)
            left = 1.0 if self.union_rounds[number - 1].cut is None else null
            unheld = (past[-1] + 1) * left / (1 - null)
        chance = min(MOST_SPURIOUS, ROUNDS[self.policy][number].delta * tolerated / unheld)
        return self.union_rounds[number].noise_stddev * -float(scipy.special.ndtri(chance))

    def _check_shards(self) -> None:
        """Checks the users of a shard."""
        users_of_shard = -(-self.max_users // self.shard_count)
        if self.has_cutoff and users_of_shard > self.max_shard_users:
            raise ValueError(
                f"`max_shard_users` must be at least max_users/{MOST_SHARDS}={users_of_shard}, "
                "since a shard's users meet on one worker, got "
                f"`max_shard_users={self.max_shard_users}`; or lower `max_users` to a public bound "
                "of the users, or choose `policy='sips'`, which has no shards and releases more "
                "than many of them."
            )

    def _check_noise(self) -> None:
        """Checks that noise of 128 bits and floating point are good enough for the budget."""
        others = f"`max_contributions={self.max_contributions}`"
        if self.count_share:
            others += f" and `max_items_per_user={self.max_items_per_user}`"
        if self.has_cutoff:
            others = f"`max_users={self.max_users}`, {others}"
        self.check_reserve(f"Lower {others}, if public bounds allow it.")
        _ = self.count_noise  # refused here if the budget is too small
        highest = max(each.cutoff or 0 for each in self.union_rounds)
        if highest > _MAX_CUTOFF:
            raise ValueError(
                f"`cutoff_margin` must leave a cutoff of at most {_MAX_CUTOFF:.0f}, got "
                f"{highest:.4g}; lower `cutoff_margin` or raise `epsilon`."
            )
