"""SetUnionPlan: every public parameter of a private set union, and the noise that follows from them."""

import dataclasses
import functools
import json
import math
from typing import Any, NamedTuple

from beam_dpne.mechanism import gaussian
from beam_dpne.mechanism import thresholds as union
from beam_dpne.ngrams import mechanism_parameters
from beam_dpne.ngrams.plan import PrivacyPlan
from beam_dpne.set_union import plan_checks, union_settings
from beam_dpne.set_union.policy_names import CUTOFF_POLICIES, DEFAULT_POLICY, DESCENT_POLICIES
from beam_dpne.set_union.union_settings import (
    DECISION_ERRORS,
    DEFAULT_DELTA_SHARE,
    DEFAULT_MARGINS,
    DEFAULT_SHARD_USERS,
    DEFAULT_SHARDS,
    DEFAULT_USERS,
    MAX_ADAPTIVE_DEGREE,
    SCREENING_CUT,
    SCREENING_DELTA_SHARES,
    SCREENING_SHARES,
    SPARE,
)
from beam_dpne.validation import ADJACENCY, json_parameters


class Noise(NamedTuple):
    """The noise on each item.

    Attributes:
      kind: "laplace" or "gaussian".
      scale: λ of Laplace noise, σ of Gaussian noise, in units of weight.
      stddev: its standard deviation, √2 λ or σ, in units of weight.
    """

    kind: str
    scale: float
    stddev: float


class UnionRound(NamedTuple):
    """What decides in one round; most policies have one.

    Attributes:
      number: from 1.
      noise: on each item.
      threshold: ρ, in units of weight, of which a user has 1 in each round.
      cutoff: Γ (τ for "mad"), in units of weight; None for policies without one.
      cut: items whose noisy weight is below it are closed for later rounds; None in the last.
    """

    number: int
    noise: Noise
    threshold: float
    cutoff: float | None
    cut: float | None


@dataclasses.dataclass(frozen=True, kw_only=True)
class SetUnionPlan:
    """The parameters of a private set union: frozen, checked, public; never chosen from private data.

    A run under a plan is user-level (ε, δ)-differentially private: neighbouring inputs differ in one
    user with all of that user's items.

    Attributes:
      epsilon: ε > 0 of the whole run.
      delta: δ in (0, 1) of the whole run; well below one over the number of users.
      policy: how users divide their budget among their items, one of POLICIES.
      max_contributions: Δ_0, distinct items that one user adds, at most.
      cutoff_margin: α (β for "mad") ≥ 0: the cutoff Γ lies this many scales of the noise over the
        threshold ρ. None: the policy's default; only for CUTOFF_POLICIES.
      shards: M, parts into which a descent policy divides the users by hash, each with a histogram of
        its own up to Γ/M; 1 is the paper. None: 2; only for DESCENT_POLICIES.
      max_shard_users: users that one worker takes in sequence, at most; max_users/shards may not be
        above it. Both are promises: the data are not counted.
      vocabulary_delta_share: δ_T/δ in (0, 1), for items of one user alone; the rest is δ_G, for the
        Gaussian noise. None: the policy's default. Laplace policies have none: all of δ is δ_T.
      max_users: users of the input, at most: the operator's promise, never checked against the data.
        What rounding adds to the sensitivity (`rounding_bound`) and what floating point may cost
        depend on it, under CUTOFF_POLICIES only.
      max_items_per_user: items (with repetitions) of one user that are looked at.
      public_user_count: number of users of the input, where it is public: a δ above one over it is
        refused. Nothing else depends on it; it must never be counted in private data.
      adjacency: "add_or_remove_one_user", the only one.

    Raises:
      ValueError: naming the parameter, its requirement and the value.

    Example:
      >>> import math
      >>> plan = SetUnionPlan(epsilon=3, delta=math.exp(-10), policy="weighted_gaussian")
      >>> round(plan.noise.scale, 4), round(plan.threshold, 4)
      (1.3328, 6.8237)
      >>> SetUnionPlan.from_json(plan.to_json()) == plan
      True

    References: Gopi et al., "Differentially Private Set Union" (ICML 2020).
    """

    epsilon: float
    delta: float
    policy: str = DEFAULT_POLICY
    max_contributions: int = 100
    cutoff_margin: float | None = None
    shards: int | None = None
    max_shard_users: int = DEFAULT_SHARD_USERS
    vocabulary_delta_share: float | None = None
    max_users: int = DEFAULT_USERS
    max_items_per_user: int = 1_000_000
    public_user_count: int | None = None
    adjacency: str = ADJACENCY

    def __post_init__(self):
        plan_checks.normalise(self)
        plan_checks.check(self)

    @property
    def noise_kind(self) -> str:
        """What the noise is: "laplace" or "gaussian"."""
        return union_settings.noise_kind(self.policy)

    @property
    def contribution_limit(self) -> int:
        """Δ_0; no user has more items than max_items_per_user."""
        return min(self.max_contributions, self.max_items_per_user)

    @property
    def shard_count(self) -> int:
        """M: the number of histograms; 1 for policies without a sequence."""
        return (self.shards or DEFAULT_SHARDS) if self.policy in DESCENT_POLICIES else 1

    @property
    def margin(self) -> float:
        """α or β in Γ = ρ + α · scale; 0 for policies without a cutoff."""
        if self.policy not in CUTOFF_POLICIES:
            return 0.0
        return DEFAULT_MARGINS[self.policy] if self.cutoff_margin is None else self.cutoff_margin

    @property
    def delta_share(self) -> float:
        """δ_T/δ; 1 under Laplace noise, which needs no other δ."""
        if self.noise_kind == "laplace":
            return 1.0
        given = self.vocabulary_delta_share
        return DEFAULT_DELTA_SHARE if given is None else given

    @property
    def max_adaptive_degree(self) -> int:
        """d_max of "mad": users with more items do not reroute weight."""
        return min(self.contribution_limit, MAX_ADAPTIVE_DEGREE)

    @property
    def rounding_bound(self) -> float:
        """How much rounding may add to the sensitivity, if there are at most max_users users.

        0 where all arithmetic is exact in integers: weights rounded down, and ℓ1 pouring.
        """
        if self.policy in ("policy_gaussian", "screened_gaussian"):
            return union.descent_rounding(
                max_contributions=self.contribution_limit, max_users=self.max_users
            )
        if self.policy == "mad":
            return union.rerouting_rounding(
                max_degree=self.max_adaptive_degree, max_users=self.max_users
            )
        return 0.0

    @property
    def sensitivity(self) -> float:
        """How far one user moves a round's histogram, rounding included, in the norm of the noise.

        ℓ1 for Laplace noise, ℓ2 for Gaussian noise, in units of weight.
        """
        if self.policy == "count_laplace":
            return float(self.contribution_limit)
        if self.policy == "count_gaussian":
            return math.nextafter(math.sqrt(self.contribution_limit), math.inf)
        self._refuse_rounds("sensitivity")
        return 1.0 + self.rounding_bound

    @property
    def numerical_slack(self) -> float:
        """What floating point may cost of ε, subtracted before the noise is calibrated.

        Every decision is right to a relative c = 1e-12 (2e-12 for Laplace noise). Where a user changes
        only the decisions on own items, that is 2c for each of Δ_0 items. In the policies in which
        users' weights follow others' all decisions may change, n ≤ max_users · Δ_0 in a round: there
        the errors' logarithms, which are independent, within ±c and of mean at most c², add up to at
        most s = c √(2 n ln(1/ν)) + n c² but for a probability ν (Hoeffding), in each of two worlds.
        """
        error = DECISION_ERRORS[self.noise_kind]
        if self.policy not in CUTOFF_POLICIES:
            return 2 * error * self.decision_count
        count = self.decision_count
        log_failure = -math.log(SPARE) + self.epsilon - math.log(self.delta)
        return 2 * (error * math.sqrt(2 * count * log_failure) + count * error**2)

    @property
    def usable_delta(self) -> float:
        """δ less what floating point may cost: the slack's factor, ν twice, and the far tails."""
        rest = self.delta * (1 - 3 * SPARE) - self.far_tails
        return rest * math.exp(-self.numerical_slack)

    @property
    def gaussian_delta(self) -> float:
        """δ_G, spent on Gaussian noise; 0 for Laplace noise."""
        return self.usable_delta * (1 - self.delta_share)

    @property
    def vocabulary_delta(self) -> float:
        """δ_T, spent on items that one user alone holds."""
        return self.usable_delta * self.delta_share

    @functools.cached_property
    def union_rounds(self) -> tuple[UnionRound, ...]:
        """What decides in each round: one, or the two of "screened_gaussian".

        Gaussian noise of σ/√q_r in rounds of sensitivity 1 is as private as σ once, for Σ q_r = 1.
        """
        self._refuse_rounds("noise")
        if self.policy != "screened_gaussian":
            return (self._round(1, 1.0, 1.0),)
        shares = zip(SCREENING_SHARES, SCREENING_DELTA_SHARES, strict=True)
        first, last = (self._round(i, *parts) for i, parts in enumerate(shares, start=1))
        return first._replace(cut=SCREENING_CUT * first.noise.stddev), last

    @property
    def noise(self) -> Noise:
        """The noise on each item, in the last round."""
        return self.union_rounds[-1].noise

    @property
    def threshold(self) -> float:
        """ρ of the last round, in units of weight."""
        return self.union_rounds[-1].threshold

    @property
    def cutoff(self) -> float | None:
        """Γ (τ for "mad") of the last round, in units of weight; None for policies without one."""
        return self.union_rounds[-1].cutoff

    @functools.cached_property
    def composed_noise_scale(self) -> float:
        """λ or σ of one mechanism as private as all rounds, for the sensitivity.

        Raised by a relative 1e-10, more than the error of the root.
        """
        epsilon = self.epsilon - self.numerical_slack
        if self.noise_kind == "laplace":
            return self.sensitivity / epsilon * (1 + gaussian.ROOT_MARGIN)
        exact = gaussian.gaussian_noise_stddev(epsilon=epsilon, delta=self.gaussian_delta)
        return exact * self.sensitivity * (1 + gaussian.ROOT_MARGIN)

    def _round(self, number: int, share: float, delta_share: float) -> UnionRound:
        scale = self.composed_noise_scale / math.sqrt(share)
        kind = self.noise_kind
        threshold = self._threshold(scale, self.vocabulary_delta * delta_share)
        return UnionRound(
            number=number,
            noise=Noise(kind, scale, math.sqrt(2) * scale if kind == "laplace" else scale),
            threshold=threshold,
            cutoff=threshold + self.margin * scale if self.policy in CUTOFF_POLICIES else None,
            cut=None,
        )

    def _threshold(self, scale: float, delta: float) -> float:
        """Returns ρ: items of one user alone are released with probability ≤ δ."""
        parameters: dict[str, Any] = {
            "delta": delta,
            "max_contributions": self.contribution_limit,
        }
        if self.policy in ("count_laplace", "count_gaussian"):
            return union.count_threshold(kind=self.noise_kind, scale=scale, **parameters)
        if self.policy == "greedy":
            return union.greedy_threshold(scale=scale, **parameters)
        if self.noise_kind == "laplace":
            return union.laplace_threshold(scale=scale, **parameters)
        return gaussian.vocabulary_threshold(noise_stddev=scale, **parameters)

    @functools.cached_property
    def rounds_plan(self) -> PrivacyPlan:
        """The plan of policy "rounds": the adaptive strategy at one length."""
        if self.policy != "rounds":
            raise ValueError(f"rounds_plan is of policy 'rounds' only, got policy={self.policy!r}.")
        parameters: dict[str, Any] = {
            "epsilon": self.epsilon,
            "delta": self.delta,
            "max_length": 1,
            "max_contributions": self.max_contributions,
            "max_tokens_per_user": self.max_items_per_user,
            "strategy": "adaptive",
        }
        if self.vocabulary_delta_share is not None:
            parameters["vocabulary_delta_share"] = self.vocabulary_delta_share
        return PrivacyPlan(**parameters)

    def facts(self) -> dict[str, Any]:
        """Returns what was spent and how, as JSON types, for the ledger: public numbers only.

        Noise, threshold and cutoff are those of the last of `rounds`. Policy "rounds" has its facts in
        the released set of its `rounds_plan`.
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

    def to_dict(self) -> dict[str, Any]:
        """Returns the parameters as JSON types."""
        return dataclasses.asdict(self)

    def to_json(self) -> str:
        """Returns the parameters as a JSON object; inverse of `from_json`."""
        return json.dumps(self.to_dict(), indent=2) + "\n"

    @classmethod
    def from_json(cls, text: str) -> "SetUnionPlan":
        """Reads a plan written by `to_json`; absent parameters take their defaults.

        Raises:
          ValueError: if it is not a JSON object, or has a parameter that plans do not have.
        """
        known = [field.name for field in dataclasses.fields(cls)]
        return cls(**json_parameters(text, known, ("epsilon", "delta")))

    @property
    def far_tails(self) -> float:
        """What noise so far out that its probability is not right to a relative c may cost of δ."""
        return plan_checks.noise_draws(self, self.epsilon, self.delta).far_tails

    @property
    def decision_count(self) -> int:
        """Decisions that may depend on one user, at most."""
        return union_settings.decision_count(
            self.policy, max_contributions=self.contribution_limit, max_users=self.max_users
        )

    def mechanism_parameters(self) -> dict[str, Any]:
        """Returns what decides a release, as JSON types: parameters, resolved, and constants."""
        return mechanism_parameters.of_set_union(self)

    def _refuse_rounds(self, name: str) -> None:
        if self.policy == "rounds":
            raise ValueError(f"{name} is not of policy 'rounds'; see rounds_plan.")
