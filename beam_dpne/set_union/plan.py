"""SetUnionPlan: the public parameters of a private set union, and the noise that follows from them."""

import dataclasses
import functools
import math
from typing import Annotated, Any, ClassVar

from beam_dpne.counts.rule import COUNT_SHARE, MOST_TOTALS, CountNoise
from beam_dpne.mechanism import gaussian, thresholds
from beam_dpne.set_union import policies
from beam_dpne.set_union.policies import SPARE, RoundShares, UnionRound
from beam_dpne.validation import MAX_USERS, Parameter, PlanParameters

_MAX_CUTOFF = 8000.0
_MAX_CONTRIBUTIONS = 10_000_000
_ERROR = gaussian.RELATIVE_ERROR


@dataclasses.dataclass(frozen=True, kw_only=True)
class SetUnionPlan(PlanParameters):
    """The public parameters of a private set union; they must never be chosen from private data.

    A run under a plan is user-level (ε, δ)-differentially private: neighbouring inputs differ in one
    user with all of that user's items.

    Raises:
      ValueError: with the name of the parameter, its requirement and the value.

    Example:
      >>> import math
      >>> plan = SetUnionPlan(
      ...     epsilon=3, delta=math.exp(-10), policy="weighted_gaussian", count_share=0)
      >>> round(plan.noise_stddev, 4), round(plan.threshold, 4)
      (1.3342, 6.832)
      >>> SetUnionPlan.from_json(plan.to_json()) == plan
      True

    References: Gopi et al., "Differentially Private Set Union" (ICML 2020).
    """

    program: ClassVar[str] = "set-union"
    decides_defaults: ClassVar[str] = "policy"

    policy: Annotated[
        str,
        Parameter(
            choices=tuple(policies.POLICIES),
            help="How users divide their weight among their items: one after the other towards a "
            "cutoff, in three rounds (screened_gaussian) or one (policy_gaussian), or evenly, in one "
            "round (weighted_gaussian) or three (sips).",
        ),
    ] = policies.DEFAULT_POLICY
    max_contributions: Annotated[
        int,
        Parameter(
            least=1,
            most=_MAX_CONTRIBUTIONS,
            help="Largest number of distinct items that one user adds, Δ; the number that a typical "
            "user has is sensible. It must not be computed from the private data.",
        ),
    ] = 100
    count_share: Annotated[
        float,
        Parameter(
            least=0,
            most=0.9,
            help="Part of the budget that measures how many users have each released row; 0 switches "
            "it off, and with 0.15 about 7 to 10 % fewer rows are released.",
        ),
    ] = COUNT_SHARE
    max_users: Annotated[
        int,
        Parameter(
            least=1,
            most=MAX_USERS,
            rare=True,
            help="Upper bound on the number of users of the input, which you promise: it is never "
            "checked against the data. Policies without a cutoff ignore it.",
        ),
    ] = policies.DEFAULT_USERS
    cutoff_margin: Annotated[
        float | None,
        Parameter(
            least=0,
            rare=True,
            default_text="5, policies without a cutoff none",
            help="Distance above the threshold up to which items are filled, in standard deviations "
            "of the noise. Only policy_gaussian and screened_gaussian have it.",
        ),
    ] = None
    shards: Annotated[
        int | None,
        Parameter(
            least=1,
            most=2**16,
            rare=True,
            default_text="max_users/max_shard_users, at most 8; other policies none",
            help="Number of parts into which users are divided, each on one worker. More of them "
            "release a little less. Only policy_gaussian and screened_gaussian have it.",
        ),
    ] = None
    max_shard_users: Annotated[
        int,
        Parameter(
            least=1,
            most=MAX_USERS,
            rare=True,
            help="Largest number of users that one worker takes in sequence. Raise it where workers "
            "have the memory and the time.",
        ),
    ] = policies.DEFAULT_SHARD_USERS
    vocabulary_delta_share: Annotated[
        float,
        Parameter(
            above=0,
            below=1,
            rare=True,
            help="Share of delta that bounds the probability of releasing an item that only one user "
            "has. The noise gets the rest.",
        ),
    ] = policies.DEFAULT_DELTA_SHARE
    max_items_per_user: Annotated[
        int,
        Parameter(
            least=1,
            most=MAX_USERS,
            rare=True,
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
        return self.policy in policies.DESCENT_POLICIES

    @property
    def margin(self) -> float | None:
        """The distance of cutoff and threshold in standard deviations; None without a cutoff."""
        given = self.cutoff_margin
        return policies.DESCENT_MARGIN if given is None and self.has_cutoff else given

    @property
    def contribution_limit(self) -> int:
        """Δ_0; no user has more items than max_items_per_user."""
        return min(self.max_contributions, self.max_items_per_user)

    @property
    def shard_count(self) -> int:
        """M: the number of histograms; 1 for policies in which users have no order."""
        if self.shards is not None or not self.has_cutoff:
            return self.shards or 1
        return min(-(-self.max_users // self.max_shard_users), policies.MOST_DEFAULT_SHARDS)

    @property
    def decision_count(self) -> int:
        """The largest number of decisions about items that may depend on one user.

        Under a cutoff users' weights follow those of others, so that all decisions of each round may;
        otherwise, given the rounds before, those about the user's items do.
        """
        users = self.max_users if self.has_cutoff else 1
        return len(policies.ROUNDS[self.policy]) * users * self.contribution_limit

    @property
    def count_decisions(self) -> int:
        """The numbers that the measurement of users releases and that one user changes, at most."""
        return self.max_items_per_user + MOST_TOTALS if self.count_share else 0

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
        decisions, of_counts = self.decision_count, gaussian.slack_of(self.count_decisions)
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

    @property
    def usable_delta(self) -> float:
        """δ less the reserve."""
        return gaussian.usable_delta(epsilon=self.epsilon, delta=self.delta)

    @property
    def gaussian_epsilon(self) -> float:
        """The ε for which noise is calibrated: ε less the reserve."""
        return gaussian.usable_epsilon(self.epsilon)

    @property
    def gaussian_delta(self) -> float:
        """δ_G, spent on noise."""
        return self.usable_delta * (1 - self.vocabulary_delta_share)

    @property
    def vocabulary_delta(self) -> float:
        """δ_T, spent on items that one user alone holds."""
        return self.usable_delta * self.vocabulary_delta_share

    @functools.cached_property
    def composed_noise_scale(self) -> float:
        """σ of one mechanism as private as all rounds and the numbers of users together.

        It is for the sensitivity, and is raised by a relative 1e-10, more than the error of the root.
        """
        exact = gaussian.gaussian_noise_stddev(
            epsilon=self.gaussian_epsilon, delta=self.gaussian_delta
        )
        return exact * self.sensitivity * (1 + gaussian.ROOT_MARGIN)

    @functools.cached_property
    def count_noise(self) -> CountNoise | None:
        """The noise of the measurement of users; None if nothing is measured."""
        if not self.count_share:
            return None
        whole = self.sensitivity / self.composed_noise_scale
        return CountNoise.of_budget(math.sqrt(self.count_share) * whole)

    @functools.cached_property
    def union_rounds(self) -> tuple[UnionRound, ...]:
        """The numbers that decide in each round; most policies have one round.

        Gaussian noise of σ/√((1 − c) q_r) in rounds of sensitivity 1 is as private as σ/√(1 − c) once,
        for Σ q_r = 1.
        """
        shares = enumerate(policies.ROUNDS[self.policy], start=1)
        return tuple(self._round(number, share) for number, share in shares)

    @property
    def noise_stddev(self) -> float:
        """σ of the last round, in units of weight."""
        return self.union_rounds[-1].noise_stddev

    @property
    def threshold(self) -> float:
        """ρ of the last round, in units of weight."""
        return self.union_rounds[-1].threshold

    def report(self) -> dict[str, Any]:
        """Returns how the budget is spent, as JSON types, for the ledger: public numbers only."""
        last = self.union_rounds[-1]
        return {
            "policy": self.policy,
            "noise_stddev": last.noise_stddev,
            "threshold": last.threshold,
            "cutoff": last.cutoff,
            "shards": self.shard_count,
            "sensitivity": self.sensitivity,
            "count_share": self.count_share,
            "rounds": [each._asdict() for each in self.union_rounds],
        }

    def _round(self, number: int, share: RoundShares) -> UnionRound:
        """Returns the numbers of a round that has a share of the budget."""
        stddev = self.composed_noise_scale / math.sqrt((1 - self.count_share) * share.budget)
        threshold = thresholds.vocabulary_threshold(
            noise_stddev=stddev,
            delta=self.vocabulary_delta * share.delta,
            max_contributions=self.contribution_limit,
        )
        return UnionRound(
            number=number,
            noise_stddev=stddev,
            threshold=threshold,
            cutoff=None if self.margin is None else threshold + self.margin * stddev,
            cut=None if share.cut is None else share.cut * stddev,
        )

    def _check_shards(self) -> None:
        """Checks that shards and cutoff are of a descent policy, and the users of a shard."""
        for name in ("cutoff_margin", "shards"):
            if getattr(self, name) is not None and not self.has_cutoff:
                raise ValueError(
                    f"{name} must not be given with policy={self.policy!r}, which has none; it belongs "
                    f"to {', '.join(policies.DESCENT_POLICIES)}."
                )
        users_of_shard = -(-self.max_users // self.shard_count)
        if self.has_cutoff and users_of_shard > self.max_shard_users:
            raise ValueError(
                f"max_shard_users must be at least max_users/shards={users_of_shard}, since a shard's "
                f"users meet on one worker, got max_shard_users={self.max_shard_users}; raise shards, "
                "or lower max_users to a public bound of the users, or choose policy='sips', which has "
                "no shards and releases more than many of them."
            )

    def _check_noise(self) -> None:
        """Checks that noise of 128 bits and floating point are good enough for the budget."""
        others = f"max_contributions={self.max_contributions}"
        if self.count_share:
            others += f" and max_items_per_user={self.max_items_per_user}"
        if self.has_cutoff:
            others = f"max_users={self.max_users}, {others}"
        gaussian.check_reserve(self, remedy=f"Lower {others}, if public bounds allow it.")
        _ = self.count_noise  # refused here if the budget is too small
        highest = max(each.cutoff or 0 for each in self.union_rounds)
        if highest > _MAX_CUTOFF:
            raise ValueError(
                f"cutoff_margin must leave a cutoff of at most {_MAX_CUTOFF:.0f}, got "
                f"{highest:.4g}; lower cutoff_margin or raise epsilon."
            )
