"""PrivacyPlan: every public parameter of a run, its checks, and the noise that follows from it."""

import dataclasses
import functools
import math
from collections.abc import Sequence
from typing import Any, ClassVar

from beam_dpne.counts.budget import check_count_noise, check_count_share
from beam_dpne.counts.defaults import COUNT_SHARE
from beam_dpne.counts.rule import MOST_TOTALS, CountNoise
from beam_dpne.mechanism import finite_noise, gaussian
from beam_dpne.ngrams import adaptive, tolerances
from beam_dpne.ngrams.strategies import (
    OF_ONE_STRATEGY,
    STRATEGIES,
    VALID_COUNTS,
    LengthPlan,
    Strategy,
    as_shares,
    parameter_defaults,
    strategy_of,
)
from beam_dpne.validation import (
    ADJACENCY,
    JsonParameters,
    as_float,
    check_budget,
    check_choice,
    check_count,
    check_integer,
    check_least_delta,
    check_user_count,
)

PRUNING_RULES = ("both", "single")
# The paper's estimate of |V_k| draws this many pairs of words and n-grams, at most.
ESTIMATE_SAMPLES = 1_000_000
HELD_DIGITS = 24
_MAX_LENGTH = 100
_MIN_SPURIOUS_FRACTION = 1e-100


@dataclasses.dataclass(frozen=True, kw_only=True)
class PrivacyPlan(JsonParameters):
    """The public parameters of a run of DPNE: frozen, checked, and never chosen from private data.

    A run under a plan is user-level (ε, δ)-differentially private: neighbouring inputs differ in one
    user with all of that user's documents. Parameters are flat here, in JSON and on the command line;
    the plan makes one strategy of those that belong to it (`strategies`).

    Attributes:
      epsilon: ε > 0 of the whole run.
      delta: δ in (0, 1) of the whole run; well below one over the number of users.
      max_length: T, the number of words in the longest n-gram.
      max_contributions: Δ, the distinct n-grams that a user adds in one round of a length, at most: one
        number, or one for each length. The default is 1000, and 100 with "one_round".
      spurious_fraction: η in (0, 1): expected spurious k-grams per released (k−1)-gram, at most.
      pruning: "both": a valid n-gram's prefix and suffix are released; "single": its prefix and last
        word are released ("one_round" only).
      valid_count: "exact" or "estimate" (the paper's EstimateValidKgrams; "one_round" with pruning
        "both" only).
      vocabulary_delta_share: δ_T/δ in (0, 1); the rest is δ_G, for the noise. The default is 0.1, and
        0.5 with "one_round".
      noise_growth: c in σ_k = c·σ_{k−1}. With the default, 1, all lengths have the same noise
        ("one_round" only).
      budget_shares: parts of the budget of all lengths, one for each, summing to 1, instead of
        noise_growth ("one_round" only).
      rounds: the number of rounds of each length k ≥ 2, from 1 to 3; 3 by default ("adaptive" only).
      user_budgets: with "individual", the default, each user divides one budget among the lengths by
        the user's own n-grams; with "even" each length has an equal part ("adaptive" only).
      favour: the lengths of which more is released: "words", "long", or "balanced", the default
        ("adaptive" with individual budgets only).
      count_share: the part of the budget μ², in [0, 0.9], that measures how many users hold each
        released n-gram (`counts`). With 0 nothing is measured, and the rows have no such numbers.
      max_tokens_per_user: the tokens of one user that are used, at most; it bounds the decisions that
        a user changes, and so the cost of floating point (`finite_noise`).
      public_user_count: the number of users of the input, where it is public: a δ above one over it is
        refused. Nothing else depends on it; it must never be counted in private data.
      strategy: "adaptive", or "one_round", the paper's algorithm.
      adjacency: "add_or_remove_one_user", the only one.

    Raises:
      ValueError: naming the parameter, its requirement and the value.

    Example:
      >>> plan = PrivacyPlan(
      ...     epsilon=1, delta=1e-7, max_length=6, max_contributions=10, strategy="one_round")
      >>> [round(length.noise_stddev, 3) for length in plan.lengths][:2]
      [12.776, 12.776]
      >>> PrivacyPlan.from_json(plan.to_json()) == plan
      True

    References: DPNE Theorem 2.1.
    """

    decides_defaults: ClassVar[str] = "strategy"

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
    favour: str | None = None
    count_share: float = COUNT_SHARE
    max_tokens_per_user: int = 1_000_000
    public_user_count: int | None = None
    strategy: str = "adaptive"
    adjacency: str = ADJACENCY

    def __post_init__(self):
        for name, value in _completed(self).items():
            object.__setattr__(self, name, value)
        _check(self)

    @functools.cached_property
    def strategy_value(self) -> Strategy:
        """The strategy with its parameters and rules."""
        return strategy_of(self)

    def rounds_of(self, length: int) -> int:
        """Returns the number of rounds of a length."""
        return self.strategy_value.rounds_of(length)

    @property
    def round_count(self) -> int:
        """The number of rounds of all lengths."""
        return sum(map(self.rounds_of, range(1, self.max_length + 1)))

    @property
    def allotment(self) -> int:
        """The budget of each user, in units of 2^-56 ("adaptive" only).

        It is for all lengths together, or with even budgets for each length.
        """
        whole = adaptive.user_budget(self.ngrams_noise_stddev)
        return whole // self.max_length if self.user_budgets == "even" else whole

    @property
    def held_stddev(self) -> float:
        """The noise s = 10/μ of counts of held candidates ("adaptive" only).

        It is rounded up to 24 binary digits, so that integers can be divided by it exactly.
        """
        stddev = tolerances.HELD_NOISE / math.sqrt(self.allotment / adaptive.BUDGET_UNITS)
        digits, exponent = math.frexp(stddev)
        return math.ldexp(math.ceil(math.ldexp(digits, HELD_DIGITS)), exponent - HELD_DIGITS)

    @property
    def held_decisions(self) -> int:
        """The number of counts of held candidates that one user changes, at most."""
        if not self.strategy_value.has_classes:
            return 0
        return tolerances.MOST_COUNTED * (self.max_length - 1)

    @property
    def decisions(self) -> int:
        """The number of decisions and numbers that one user changes, at most.

        A user changes at most max_tokens_per_user decisions in a round.
        """
        of_rounds = self.round_count * self.max_tokens_per_user
        return of_rounds + self.count_decisions + self.held_decisions

    @property
    def numerical_slack(self) -> float:
        """The cost of floating point in ε, at most; it is a part of the reserve."""
        return finite_noise.slack_of(self.decisions)

    @property
    def far_tails(self) -> float:
        """The cost in δ of noise in far tails, at most; it is a part of the reserve."""
        return finite_noise.far_tails(self.decisions, epsilon=self.epsilon)

    @property
    def gaussian_epsilon(self) -> float:
        """The ε for which the noise of the run is calibrated: ε less the reserve."""
        return finite_noise.usable_epsilon(self.epsilon)

    @property
    def gaussian_delta(self) -> float:
        """The δ_G that the noise of the run spends."""
        return self._usable_delta * (1 - self._delta_share)

    @property
    def vocabulary_delta(self) -> float:
        """The δ_T for words that one user alone holds."""
        return self._usable_delta * self._delta_share

    @property
    def _usable_delta(self) -> float:
        return finite_noise.usable_delta(epsilon=self.epsilon, delta=self.delta)

    @property
    def _delta_share(self) -> float:
        return self.vocabulary_delta_share or 0.0

    @property
    def count_decisions(self) -> int:
        """The numbers that the measurement of users releases and that one user changes, at most."""
        if not self.count_share:
            return 0
        return self.max_length * self.max_tokens_per_user + MOST_TOTALS * self.max_length

    @functools.cached_property
    def noise_stddev(self) -> float:
        """The noise σ of one Gaussian mechanism as private as all lengths and counts together.

        It is raised by a margin for the errors of the root and of the shares' sum.
        """
        exact = gaussian.gaussian_noise_stddev(
            epsilon=self.gaussian_epsilon, delta=self.gaussian_delta
        )
        return exact * (1 + gaussian.ROOT_MARGIN)

    @property
    def ngrams_noise_stddev(self) -> float:
        """The noise σ of one Gaussian mechanism as private as all lengths together, without counts."""
        return self.noise_stddev / math.sqrt(1 - self.count_share)

    @property
    def count_noise(self) -> CountNoise | None:
        """The noise of the measurement of users; None if nothing is measured."""
        if not self.count_share:
            return None
        return CountNoise.of_budget(math.sqrt(self.count_share) / self.noise_stddev)

    @functools.cached_property
    def lengths(self) -> tuple[LengthPlan, ...]:
        """The numbers of each length k = 1..T that are known before the data."""
        return tuple(self.strategy_value.length_plans(self))

    @property
    def contribution_limits(self) -> tuple[int, ...]:
        """Δ_k for each length; no user has more grams than max_tokens_per_user."""
        limits = self.max_contributions or 0
        limits = limits if isinstance(limits, tuple) else (limits,) * self.max_length
        return tuple(min(limit, self.max_tokens_per_user) for limit in limits)


def _completed(plan: PrivacyPlan) -> dict[str, Any]:
    """Returns the parameters of a plan that change when it is completed.

    Parameters that were left out get the strategy's defaults. Lists (from JSON) become tuples and whole
    numbers floats, so that plans compare.

    Raises:
      ValueError: if a parameter has no such form, or belongs to another strategy.
    """
    check_choice("strategy", plan.strategy, tuple(STRATEGIES))
    defaults = parameter_defaults(plan.strategy)
    for name in OF_ONE_STRATEGY:
        if name not in defaults and getattr(plan, name) is not None:
            raise ValueError(
                f"{name} must be left out with strategy={plan.strategy!r}, which does not have "
                f"it, got {name}={getattr(plan, name)!r}."
            )
    values = {name: value for name, value in defaults.items() if getattr(plan, name) is None}
    for name in ("epsilon", "delta", "spurious_fraction", "count_share"):
        values[name] = as_float(name, getattr(plan, name))
    for name in ("vocabulary_delta_share", "noise_growth"):
        value = values.get(name, getattr(plan, name))
        if value is not None:
            values[name] = as_float(name, value)
    if isinstance(plan.max_contributions, Sequence):
        values["max_contributions"] = tuple(plan.max_contributions)
    return values | {"budget_shares": as_shares(plan.budget_shares)}


def _check(plan: PrivacyPlan) -> None:
    """Checks a complete plan."""
    check_budget(plan.epsilon, plan.delta)
    check_least_delta(plan.delta)
    check_user_count(plan.delta, plan.public_user_count)
    check_integer("max_length", plan.max_length, 1)
    if plan.max_length > _MAX_LENGTH:
        raise ValueError(
            f"max_length must be at most {_MAX_LENGTH}, since each length is a separate stage, "
            f"got max_length={plan.max_length}."
        )
    check_integer("max_tokens_per_user", plan.max_tokens_per_user, 1)
    limits = plan.max_contributions
    for limit in limits if isinstance(limits, tuple) else (limits,):
        check_integer("max_contributions", limit, 1)
    if isinstance(limits, tuple):
        check_count("max_contributions", limits, plan.max_length)
    if not 0 < plan.spurious_fraction < 1:
        raise ValueError(
            f"spurious_fraction must be in (0, 1), got spurious_fraction={plan.spurious_fraction}."
        )
    if plan.spurious_fraction < _MIN_SPURIOUS_FRACTION:
        raise ValueError(
            f"spurious_fraction must be at least {_MIN_SPURIOUS_FRACTION}, below which thresholds "
            f"leave floating point, got spurious_fraction={plan.spurious_fraction}."
        )
    check_count_share(plan.count_share)
    share = plan.vocabulary_delta_share
    if share is None or not 0 < share < 1:
        raise ValueError(
            f"vocabulary_delta_share must be in (0, 1), got vocabulary_delta_share={share}."
        )
    check_choice("valid_count", plan.valid_count, VALID_COUNTS)
    check_choice("pruning", plan.pruning, PRUNING_RULES)
    plan.strategy_value.check(plan)
    check_choice("adjacency", plan.adjacency, (ADJACENCY,))
    finite_noise.check(
        plan,
        remedy=f"Lower max_tokens_per_user={plan.max_tokens_per_user}, if a public bound allows it.",
    )
    check_count_noise(plan.count_share, plan.count_noise)
    if plan.strategy_value.has_user_budgets:
        adaptive.user_budget(plan.ngrams_noise_stddev)
