"""SetUnionPlan: the public parameters of a private set union, and the noise that follows from them.

**The items and the numbers of users.** A part c of the budget (count_share) measures how many users
have each released item (`counts`), after the items are known.

*Gaussian policies.* Given the past, a user moves the weights of round r by at most S in ℓ2, and then
the sums of users by vectors of length 1 at most. These are rounds of one adaptive composition of
Gaussian mechanisms, with Σ_r (S/σ_r)² ≤ (1 − c) μ² for the items and c μ² for the sums: together they
are as private as one Gaussian mechanism of sensitivity/σ = μ, for (ε, δ_G). The rest of δ is δ_T, as
without counts: the argument for items of one user alone compares with a run that releases none of them
(`weights`), and what follows the released set is the same function of it in both runs.

*Laplace policies.* Items spend (1 − c) ε and δ_T = (1 − c) δ. The sums are one Gaussian mechanism for
(c ε, c δ). By basic composition both together are (ε, δ)-private. This is not tight, but holds whatever
either of them is.
"""

import dataclasses
import functools
import math
from typing import Annotated, Any, ClassVar

from beam_dpne.counts.budget import check_count_noise, check_count_share
from beam_dpne.counts.defaults import COUNT_SHARE
from beam_dpne.counts.rule import MOST_TOTALS, CountNoise
from beam_dpne.mechanism import finite_noise, gaussian, thresholds
from beam_dpne.set_union import policies
from beam_dpne.set_union.policies import SPARE, RoundShares, UpdatePolicy
from beam_dpne.set_union.rounds import Noise, UnionRound, item_threshold
from beam_dpne.set_union.slack import numerical_slack
from beam_dpne.validation import (
    ADJACENCY,
    MAX_USERS,
    Parameter,
    PlanParameters,
    as_float,
    check_budget,
    check_choice,
    check_integer,
    check_least_delta,
    check_user_count,
)

_MAX_CUTOFF = 8000.0
_MAX_CONTRIBUTIONS = 10_000_000


@dataclasses.dataclass(frozen=True, kw_only=True)
class SetUnionPlan(PlanParameters):
    """The public parameters of a private set union; they must never be chosen from private data.

    A run under a plan is user-level (ε, δ)-differentially private: neighbouring inputs differ in one
    user with all of that user's items. JSON and the command line give the parameters of the policy
    beside the others; `update_policy` is the policy with its parameters.

    Attributes:
      epsilon: ε > 0 of the whole run.
      delta: δ in (0, 1) of the whole run; it should be well below one over the number of users.
      policy: the name of the update policy, one of `policies.POLICIES`: how users divide their budget
        among their items.
      max_contributions: Δ_0, the largest number of distinct items that one user adds.
      cutoff_margin: α (β for "mad" and "mad2r") ≥ 0: the cutoff Γ is this many scales of the noise
        above the threshold ρ. None is the policy's default; only policies with a cutoff have it.
      shards: M, the number of parts into which a descent policy divides the users by hash; each part
        has a histogram up to Γ/M, and M = 1 is the paper's algorithm. None is max_users /
        max_shard_users, rounded up, but at most 8, which is 2 by default; only descent policies have
        it.
      max_shard_users: the largest number of users that one worker takes in sequence; max_users/shards
        must not be above it. Both are promises: the users are not counted.
      vocabulary_delta_share: δ_T/δ in (0, 1), for items of one user alone; the rest is δ_G, for
        Gaussian noise. None is the policy's default. Policies with Laplace noise do not have it: there
        δ_T is all of δ that counts do not have.
      count_share: the part of the budget, in [0, 0.9], that measures how many users have each released
        item (`counts`): of μ², or under Laplace noise of ε and δ. With 0 nothing is measured, and the
        rows have no such numbers. The default is 0.15, and 0.07 under Laplace noise.
      max_users: the largest number of users of the input: the operator's promise, which is never
        checked against the data. Under policies with a cutoff, the effect of rounding on the
        sensitivity (`rounding_bound`) and the numerical slack depend on it; others ignore it.
      max_items_per_user: the largest number of items (with repetitions) that are read of one user.
      public_user_count: the number of users of the input, if it is public: a δ above one over it is
        rejected. Nothing else depends on it; it must never be counted in private data.
      adjacency: "add_or_remove_one_user", the only choice.

    Raises:
      ValueError: with the name of the parameter, its requirement and the value.

    Example:
      >>> import math
      >>> plan = SetUnionPlan(
      ...     epsilon=3, delta=math.exp(-10), policy="weighted_gaussian", count_share=0)
      >>> round(plan.noise.scale, 4), round(plan.threshold, 4)
      (1.3328, 6.8237)
      >>> SetUnionPlan.from_json(plan.to_json()) == plan
      True

    References: Gopi et al., "Differentially Private Set Union" (ICML 2020).
    """

    decides_defaults: ClassVar[str] = "policy"

    policy: Annotated[
        str,
        Parameter(
            choices=tuple(policies.POLICIES),
            help="How users divide their weight among their items. screened_gaussian lets users, "
            "one after the other, fill the items that need weight, in three rounds, of which each "
            "is about the items that the one before it leaves undecided. policy_gaussian does so "
            "in one round. weighted_gaussian divides the weight evenly. sips divides it evenly in "
            "three rounds, each about the items that the rounds before it have not found.",
        ),
    ] = policies.DEFAULT_POLICY
    max_contributions: Annotated[
        int,
        Parameter(
            least=1,
            most=_MAX_CONTRIBUTIONS,
            help="Largest number of distinct items that one user adds, Δ. The number that a "
            "typical user has is sensible; a larger one raises threshold or noise without any "
            "gain. It must not be computed from the private data.",
        ),
    ] = 100
    count_share: Annotated[
        float | None,
        Parameter(
            least=0,
            most=0.9,
            default_text="0.15",
            help="Part of the budget that measures how many users have each released row, from "
            "1e-6; 0 switches it off. The rows then have the columns users, users_low and "
            "users_high, an estimate and its 95 % interval, and come in the order of users. With "
            "0.15 about 7 to 10 % fewer rows are released.",
        ),
    ] = None
    max_users: Annotated[
        int,
        Parameter(
            least=1,
            most=MAX_USERS,
            rare=True,
            help="Upper bound on the number of users of the input. You promise it; it is never "
            "checked against the data. Under policy_gaussian and screened_gaussian the bound on "
            "rounding depends on it; other policies ignore it. Choose a round number well above "
            "the number that is publicly known.",
        ),
    ] = policies.DEFAULT_USERS
    cutoff_margin: Annotated[
        float | None,
        Parameter(
            least=0,
            rare=True,
            default_text="5, policies without a cutoff none",
            help="Distance above the threshold up to which items are filled, in standard "
            "deviations of the noise. Only policy_gaussian and screened_gaussian have it.",
        ),
    ] = None
    shards: Annotated[
        int | None,
        Parameter(
            least=1,
            rare=True,
            default_text="max_users/max_shard_users, at most 8; other policies none",
            help="Number of parts into which users are divided. Each part fills a separate "
            "histogram, one user after the other, on one worker. More shards use more workers and "
            "release a little less. Only policy_gaussian and screened_gaussian have it.",
        ),
    ] = None
    max_shard_users: Annotated[
        int,
        Parameter(
            least=1,
            most=MAX_USERS,
            rare=True,
            help="Largest number of users that one worker takes in sequence. A run is refused if "
            "max_users/shards is above it. Raise it where workers have the memory and the time.",
        ),
    ] = policies.DEFAULT_SHARD_USERS
    vocabulary_delta_share: Annotated[
        float | None,
        Parameter(
            above=0,
            below=1,
            rare=True,
            default_text="0.5",
            help="Share of delta that bounds the probability of releasing an item that only one "
            "user has. The noise gets the rest of delta.",
        ),
    ] = None
    max_items_per_user: Annotated[
        int,
        Parameter(
            least=1,
            most=MAX_USERS,
            rare=True,
            help="Largest number of items of one user that are read, with repetitions. Users "
            "above it keep a random subset of their texts.",
        ),
    ] = 1_000_000

    def __post_init__(self):
        super().__post_init__()
        optional = ("cutoff_margin", "vocabulary_delta_share", "count_share")
        for name in ("epsilon", "delta", *optional):
            value = getattr(self, name)
            # Whole numbers become floats, so that equal plans compare equal.
            if value is not None or name not in optional:
                object.__setattr__(self, name, as_float(name, value))
        if self.count_share is None:
            is_laplace = self.noise_kind == "laplace"
            share = policies.LAPLACE_COUNT_SHARE if is_laplace else COUNT_SHARE
            object.__setattr__(self, "count_share", share)
        self._check_parameters()
        self._check_noise()

    @functools.cached_property
    def update_policy(self) -> UpdatePolicy:
        """The update policy with its parameters, defaults resolved."""
        shards = self.shards
        if shards is None and self.policy in policies.DESCENT_POLICIES:
            check_integer("max_users", self.max_users, 1, MAX_USERS)
            check_integer("max_shard_users", self.max_shard_users, 1, MAX_USERS)
            needed = policies.shards_for(self.max_users, self.max_shard_users)
            shards = min(needed, policies.MOST_DEFAULT_SHARDS)
        return policies.update_policy(
            self.policy,
            cutoff_margin=self.cutoff_margin,
            shards=shards,
            vocabulary_delta_share=self.vocabulary_delta_share,
        )

    @property
    def noise_kind(self) -> str:
        """The kind of the noise: "laplace" or "gaussian"."""
        return self.update_policy.noise_kind

    @property
    def count_part(self) -> float:
        """The part of the budget that numbers of users have: count_share, which is known by now."""
        return self.count_share or 0.0

    @property
    def contribution_limit(self) -> int:
        """Δ_0; no user has more items than max_items_per_user."""
        return min(self.max_contributions, self.max_items_per_user)

    @property
    def shard_count(self) -> int:
        """M: the number of histograms; 1 for policies in which users have no order."""
        return self.update_policy.shards or 1

    @property
    def delta_share(self) -> float:
        """δ_T/δ; under Laplace noise, which needs no other δ, all that counts do not have."""
        if self.noise_kind == "laplace":
            return 1.0 - self.count_part
        return self.update_policy.delta_share

    @property
    def max_adaptive_degree(self) -> int:
        """d_max of "mad" and "mad2r": users with more items do not reroute weight."""
        return min(self.contribution_limit, policies.MAX_ADAPTIVE_DEGREE)

    @property
    def decision_count(self) -> int:
        """The largest number of decisions about items that may depend on one user."""
        return self.update_policy.decision_count(
            max_contributions=self.contribution_limit, max_users=self.max_users
        )

    @property
    def count_decisions(self) -> int:
        """The numbers that the measurement of users releases and that one user changes, at most."""
        return self.max_items_per_user + MOST_TOTALS if self.count_part else 0

    @property
    def rounding_bound(self) -> float:
        """The largest effect of rounding on the sensitivity, for at most max_users users.

        It is 0 where all arithmetic is exact in integers: for weights that are rounded down, and for
        ℓ1 pouring.
        """
        if self.noise_kind == "gaussian" and self.update_policy.rule == "descent":
            return thresholds.descent_rounding(
                max_contributions=self.contribution_limit, max_users=self.max_users
            )
        if self.update_policy.rule == "reroute":
            return thresholds.rerouting_rounding(
                max_degree=self.max_adaptive_degree, max_users=self.max_users
            )
        return 0.0

    @property
    def sensitivity(self) -> float:
        """The largest distance by which one user moves a round's histogram, rounding included.

        It is the ℓ1 distance for Laplace noise and the ℓ2 distance for Gaussian noise, in units of
        weight.
        """
        if self.update_policy.rule != "count":
            return 1.0 + self.rounding_bound
        if self.noise_kind == "laplace":
            return float(self.contribution_limit)
        return math.nextafter(math.sqrt(self.contribution_limit), math.inf)

    @property
    def numerical_slack(self) -> float:
        """The most that floating point may cost of ε; it is a part of the reserve."""
        return numerical_slack(
            self.noise_kind,
            self.decision_count,
            others_follow=self.update_policy.has_cutoff,
            count_decisions=self.count_decisions,
            log_failure=-math.log(SPARE) + self.epsilon - math.log(self.delta),
        )

    @property
    def far_tails(self) -> float:
        """The most that noise in far tails may cost of δ; it is a part of the reserve.

        It includes the probability ν = SPARE·δ·e^(−ε) of errors that add up to more than the slack.
        """
        of_items = finite_noise.far_tails(
            self.decision_count, epsilon=self.epsilon, kind=self.noise_kind
        )
        of_users = finite_noise.far_tails(self.count_decisions, epsilon=self.epsilon)
        return of_items + of_users + 3 * SPARE * self.delta

    @property
    def usable_delta(self) -> float:
        """δ less the reserve."""
        return finite_noise.usable_delta(epsilon=self.epsilon, delta=self.delta)

    @property
    def gaussian_epsilon(self) -> float:
        """The ε for which noise is calibrated: ε less the reserve."""
        return finite_noise.usable_epsilon(self.epsilon)

    @property
    def gaussian_delta(self) -> float:
        """δ_G, spent on Gaussian noise: under Laplace noise that of counts, which is 0 without them."""
        return self.usable_delta * (1 - self.delta_share)

    @property
    def vocabulary_delta(self) -> float:
        """δ_T, spent on items that one user alone holds."""
        return self.usable_delta * self.delta_share

    @functools.cached_property
    def composed_noise_scale(self) -> float:
        """λ or σ of one mechanism as private as all rounds, for the sensitivity.

        With Gaussian noise, it is as private as all rounds and the numbers of users together. It is
        raised by a relative 1e-10, more than the error of the root.
        """
        epsilon = self.gaussian_epsilon
        if self.noise_kind == "laplace":
            items = epsilon * (1 - self.count_part)
            return self.sensitivity / items * (1 + gaussian.ROOT_MARGIN)
        exact = gaussian.gaussian_noise_stddev(epsilon=epsilon, delta=self.gaussian_delta)
        return exact * self.sensitivity * (1 + gaussian.ROOT_MARGIN)

    @functools.cached_property
    def count_noise(self) -> CountNoise | None:
        """The noise of the measurement of users; None if nothing is measured."""
        if not self.count_part:
            return None
        if self.noise_kind == "gaussian":
            whole = self.sensitivity / self.composed_noise_scale
            return CountNoise.of_budget(math.sqrt(self.count_part) * whole)
        epsilon = self.count_part * self.gaussian_epsilon
        exact = gaussian.gaussian_noise_stddev(epsilon=epsilon, delta=self.gaussian_delta)
        return CountNoise.of_budget(1 / (exact * (1 + gaussian.ROOT_MARGIN)))

    @functools.cached_property
    def union_rounds(self) -> tuple[UnionRound, ...]:
        """The numbers that decide in each round; most policies have one round.

        Gaussian noise of σ/√((1 − c) q_r) in rounds of sensitivity 1 is as private as σ/√(1 − c) once,
        for Σ q_r = 1.
        """
        shares = enumerate(self.update_policy.rounds, start=1)
        return tuple(self._round(number, share) for number, share in shares)

    @property
    def noise(self) -> Noise:
        """The noise on each item in the last round."""
        return self.union_rounds[-1].noise

    @property
    def threshold(self) -> float:
        """ρ of the last round, in units of weight."""
        return self.union_rounds[-1].threshold

    @property
    def cutoff(self) -> float | None:
        """Γ (τ for "mad" and "mad2r") of the last round, in units of weight; None without a cutoff."""
        return self.union_rounds[-1].cutoff

    def report(self) -> dict[str, Any]:
        """Returns how the budget is spent, as JSON types, for the ledger: public numbers only.

        Noise, threshold and cutoff are those of the last of `rounds`.
        """
        return {
            "policy": self.policy,
            "noise": self.noise.kind,
            "noise_scale": self.noise.scale,
            "noise_stddev": self.noise.stddev,
            "threshold": self.threshold,
            "cutoff": self.cutoff,
            "shards": self.shard_count,
            "max_contributions": self.contribution_limit,
            "sensitivity": self.sensitivity,
            "rounding_bound": self.rounding_bound,
            "max_users": self.max_users,
            "numerical_slack": self.numerical_slack,
            "gaussian_delta": self.gaussian_delta,
            "vocabulary_delta": self.vocabulary_delta,
            "count_share": self.count_part,
            "rounds": [
                {
                    "noise_stddev": each.noise.stddev,
                    "threshold": each.threshold,
                    "cutoff": each.cutoff,
                    "cut": each.cut,
                }
                for each in self.union_rounds
            ],
        }

    def _round(self, number: int, share: RoundShares) -> UnionRound:
        """Returns the numbers of a round that has a share of the budget."""
        if self.noise_kind == "laplace":
            scale = self.composed_noise_scale
            stddev = math.sqrt(2) * scale
        else:
            scale = self.composed_noise_scale / math.sqrt((1 - self.count_part) * share.budget)
            stddev = scale
        threshold = self._threshold(number, scale, self.vocabulary_delta * share.delta)
        margin = self.update_policy.cutoff_margin
        return UnionRound(
            number=number,
            noise=Noise(self.noise_kind, scale, stddev),
            threshold=threshold,
            cutoff=None if margin is None else threshold + margin * scale,
            cut=None if share.cut is None else share.cut * stddev,
        )

    def _threshold(self, number: int, scale: float, delta: float) -> float:
        """Returns ρ, above which items of one user alone come with a probability of at most δ."""
        return item_threshold(
            self.update_policy,
            number,
            scale=scale,
            delta=delta,
            max_contributions=self.contribution_limit,
            sensitivity=self.sensitivity,
        )

    def _check_parameters(self) -> None:
        """Checks each parameter, and that no shard may have more than max_shard_users users."""
        check_budget(self.epsilon, self.delta)
        check_least_delta(self.delta)
        check_user_count(self.delta, self.public_user_count)
        check_choice("adjacency", self.adjacency, (ADJACENCY,))
        check_count_share(self.count_part)
        check_integer("max_contributions", self.max_contributions, 1, _MAX_CONTRIBUTIONS)
        check_integer("max_items_per_user", self.max_items_per_user, 1, MAX_USERS)
        check_integer("max_users", self.max_users, 1, MAX_USERS)
        check_integer("max_shard_users", self.max_shard_users, 1, MAX_USERS)
        users_of_shard = -(-self.max_users // self.shard_count)
        if self.update_policy.rule == "descent" and users_of_shard > self.max_shard_users:
            raise ValueError(
                f"max_shard_users must be at least max_users/shards={users_of_shard}, since a shard's "
                f"users meet on one worker, got max_shard_users={self.max_shard_users}; raise shards, "
                "or lower max_users to a public bound of the users, or choose policy='sips', which has "
                "no shards and releases more than many of them."
            )

    def _check_noise(self) -> None:
        """Checks that noise of 128 bits and floating point are good enough for the budget."""
        others = f"max_contributions={self.max_contributions}"
        if self.count_part:
            others += f" and max_items_per_user={self.max_items_per_user}"
        if self.update_policy.has_cutoff:
            others = f"max_users={self.max_users}, {others}"
        finite_noise.check(self, remedy=f"Lower {others}, if public bounds allow it.")
        check_count_noise(self.count_part, self.count_noise)
        highest = max(each.cutoff or 0 for each in self.union_rounds)
        if highest > _MAX_CUTOFF:
            raise ValueError(
                f"cutoff_margin must leave a cutoff of at most {_MAX_CUTOFF:.0f}, got "
                f"{highest:.4g}; lower cutoff_margin or raise epsilon."
            )
