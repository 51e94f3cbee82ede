"""PrivacyPlan: every public parameter of a run, and the noise that follows from them.

Parameters are flat, here, in JSON and on the command line; the plan makes one strategy of those that
belong to it (`strategies`).
"""

import dataclasses
import functools
import math
from typing import Any

from beam_dpne.mechanism import evidence_law, gaussian, parameters, rules, thresholds
from beam_dpne.ngrams import adaptive, plan_checks
from beam_dpne.ngrams.strategies import STRATEGIES, LengthPlan, Strategy, strategy_of
from beam_dpne.set_union import policies
from beam_dpne.set_union.policies import DEFAULT_USERS
from beam_dpne.validation import ADJACENCY, JsonParameters


@dataclasses.dataclass(frozen=True, kw_only=True)
class PrivacyPlan(JsonParameters):
    """The parameters of a run of DPNE: frozen, checked, public; never chosen from private data.

    A run under a plan is user-level (ε, δ)-differentially private: neighbouring inputs differ in one
    user with all of that user's documents.

    Attributes:
      epsilon: ε > 0 of the whole run.
      delta: δ in (0, 1) of the whole run; well below one over the number of users.
      max_length: T, words in the longest gram.
      max_contributions: Δ, distinct grams a user adds in one round of a length: one number, or one
        per length; by default 300, "one_round" 100.
      spurious_fraction: η in (0, 1): expected spurious k-grams per released (k−1)-gram, at most.
      pruning: "both": a valid gram's prefix and suffix are released; "single": its prefix and last
        word.
      valid_count: "exact" or "estimate" (the paper's EstimateValidKgrams; pruning "both" only).
      vocabulary_delta_share: δ_T/δ in (0, 1); the rest is δ_G, for the noise; by default 0.1,
        "one_round" 0.5; 0 with a public vocabulary, which needs none.
      noise_growth: c in σ_k = c·σ_{k−1}; 1, the default, is the same noise at every length
        ("one_round" only).
      budget_shares: f_k, one per length, summing to 1, instead of noise_growth ("one_round" only).
      rounds: rounds of each length k ≥ 2, 1 to 3; by default 3 ("adaptive" only).
      user_budgets: with "individual", the default, each user divides one budget among the lengths by
        its own grams; with "even" each length has an equal part ("adaptive" only).
      vocabulary_policy: how words are found. By default the strategy finds them ("rounds", for
        "one_round" "weighted_gaussian"). With "public" they are an input, and cost nothing. With
        "screened_gaussian" or "weighted_gaussian" a set union finds them, with the same part of the
        budget μ² as each other length.
      max_tokens_per_user: tokens of one user that are looked at; bounds the numerical slack.
      max_users: users of the input, at most: the operator's promise, never checked against the data.
        Only the vocabulary_policy "screened_gaussian", under which users' weights follow those of
        others, depends on it: the effect of rounding on its sensitivity, the cost of floating point,
        and the number of its shards. It is ignored under other policies.
      public_user_count: number of users of the input, where it is public: a δ above one over it is
        refused. Nothing else depends on it; it must never be counted in private data.
      strategy: "adaptive", or "one_round", the paper's algorithm.
      adjacency: "add_or_remove_one_user", the only one.

    Raises:
      ValueError: naming the parameter, its requirement and the value.

    Example:
      >>> plan = PrivacyPlan(
      ...     epsilon=1, delta=1e-7, max_length=6, max_contributions=10, strategy="one_round")
      >>> [round(length.noise_stddev, 3) for length in plan.lengths][:2]
      [11.779, 11.779]
      >>> PrivacyPlan.from_json(plan.to_json()) == plan
      True

    References: DPNE Theorem 2.1.
    """

    epsilon: float
    delta: float
    max_length: int = 5
    max_contributions: int | tuple[int, ...] | None = None
    spurious_fraction: float = 0.01
    pruning: str = "both"
    valid_count: str = "exact"
    vocabulary_delta_share: float | None = None
    noise_growth: float | None = None
    budget_shares: tuple[float, ...] | None = None
    rounds: int | None = None
    user_budgets: str | None = None
    vocabulary_policy: str | None = None
    max_tokens_per_user: int = 1_000_000
    max_users: int = DEFAULT_USERS
    public_user_count: int | None = None
    strategy: str = "adaptive"
    adjacency: str = ADJACENCY

    def __post_init__(self):
        for name, value in plan_checks.completed(self).items():
            object.__setattr__(self, name, value)
        plan_checks.check(self)

    @functools.cached_property
    def strategy_value(self) -> Strategy:
        """The strategy with its parameters and rules."""
        return strategy_of(self)

    @property
    def has_public_vocabulary(self) -> bool:
        """Whether the words are given instead of found."""
        return self.vocabulary_policy == "public"

    @property
    def has_union_vocabulary(self) -> bool:
        """Whether words are found by a set union instead of the strategy's first length."""
        by_strategy = STRATEGIES[self.strategy].plan_defaults["vocabulary_policy"]
        return self.vocabulary_policy not in ("public", by_strategy)

    @property
    def private_lengths(self) -> range:
        """The lengths on which budget is spent."""
        return range(2 if self.has_public_vocabulary else 1, self.max_length + 1)

    @property
    def strategy_lengths(self) -> range:
        """The lengths that are found by the strategy."""
        return self.private_lengths[1:] if self.has_union_vocabulary else self.private_lengths

    @property
    def union_share(self) -> float:
        """The part of the budget that a set union has for the words; 0 without one."""
        if not self.has_union_vocabulary:
            return 0.0
        return self.strategy_value.shares(len(self.private_lengths))[0]

    def rounds_of(self, length: int) -> int:
        """Returns how often a length is looked at."""
        if length not in self.private_lengths:
            return 0
        if length not in self.strategy_lengths:
            return plan_checks.UNION_ROUNDS
        return self.strategy_value.rounds_of(length)

    @property
    def round_count(self) -> int:
        """How often the data are looked at."""
        return sum(map(self.rounds_of, self.private_lengths))

    @property
    def allotment(self) -> int:
        """What a user may spend before it runs dry, in units of 2^-56 ("adaptive" only).

        On all lengths together, or with even budgets on each.
        """
        whole = adaptive.user_budget(self.noise_stddev / math.sqrt(1 - self.union_share))
        return whole // len(self.strategy_lengths) if self.user_budgets == "even" else whole

    @property
    def numerical_slack(self) -> float:
        """What floating point may cost of ε, subtracted before the noise is calibrated.

        Every decision's probability is right to a relative 1e-12 with and without the user, and a
        user changes at most max_tokens_per_user decisions in a round.
        """
        decisions = self.round_count * self.max_tokens_per_user
        of_union = plan_checks.UNION_SLACK if self.has_union_vocabulary else 0.0
        return decisions * plan_checks.RELATIVE_ERROR_PER_DECISION + of_union

    @property
    def far_tails(self) -> float:
        """What noise so far out that its probability is not right to 1e-12 may cost of δ."""
        return plan_checks.noise_draws(self, self.epsilon, self.delta)[0].far_tails

    @property
    def gaussian_epsilon(self) -> float:
        """ε for which the noise of all lengths is calibrated: less the slack."""
        return self.epsilon - self.numerical_slack

    @property
    def gaussian_delta(self) -> float:
        """δ_G, spent on the noise of all lengths, less what floating point may cost."""
        return self._usable_delta * (1 - self.delta_share)

    @property
    def vocabulary_delta(self) -> float:
        """δ_T, spent on words that one user alone holds, less what floating point may cost."""
        return self._usable_delta * self.delta_share

    @property
    def _usable_delta(self) -> float:
        """The strategy's δ less the far tails, and less the slack's factor."""
        rest = self.delta - self.far_tails
        return rest * math.exp(-self.numerical_slack)

    @property
    def delta_share(self) -> float:
        """δ_T/δ; 0 with a public vocabulary."""
        return self.vocabulary_delta_share or 0.0

    @functools.cached_property
    def noise_stddev(self) -> float:
        """The noise σ of one Gaussian mechanism as private as all lengths together.

        Raised by a margin for the errors of the root and of the shares' sum.
        """
        exact = gaussian.gaussian_noise_stddev(
            epsilon=self.gaussian_epsilon, delta=self.gaussian_delta
        )
        return exact * (1 + gaussian.ROOT_MARGIN)

    @functools.cached_property
    def lengths(self) -> tuple[LengthPlan, ...]:
        """The numbers of each length k = 1..T that are known before the data."""
        return (*self._other_lengths(), *self.strategy_value.length_plans(self))

    def _other_lengths(self) -> tuple[LengthPlan, ...]:
        """Length 1, where the strategy does not find it: a public vocabulary or a set union."""
        if 1 in self.strategy_lengths:
            return ()
        limit = 0 if self.has_public_vocabulary else self.contribution_limits[0]
        return (
            LengthPlan(
                length=1,
                max_contributions=limit,
                budget_share=self.union_share,
                noise_stddev=0.0,
                threshold=None,
            ),
        )

    @property
    def contribution_limits(self) -> tuple[int, ...]:
        """Δ_k for each length; no user has more grams than max_tokens_per_user."""
        limits = self.max_contributions or 0
        limits = limits if isinstance(limits, tuple) else (limits,) * self.max_length
        return tuple(min(limit, self.max_tokens_per_user) for limit in limits)

    def mechanism_parameters(self) -> dict[str, Any]:
        """Returns what decides a release, as JSON types: parameters, resolved, and constants."""
        found: dict[str, Any] = {
            "plan": parameters.without_user_count(self.to_dict())
            | {"contribution_limits": self.contribution_limits},
            "rules": rules.constants(),
            "noise": parameters.noise_constants(),
            "null_law": evidence_law.constants(),
            "checks": plan_checks.constants(),
            **self.strategy_value.constants(),
        }
        if self.has_union_vocabulary:
            found["words"] = {
                "set_union": policies.constants(),
                "thresholds": thresholds.constants(),
                "shards": policies.shards_for(self.max_users),
            }
        return parameters.as_json_types(found)
