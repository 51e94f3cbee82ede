"""PrivacyPlan: every public parameter of a run, its checks, and the noise that follows from it."""

import dataclasses
import functools
import math
from typing import Annotated, Any, ClassVar

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
    parameter_defaults,
    strategy_of,
)
from beam_dpne.validation import (
    MAX_USERS,
    Parameter,
    PlanParameters,
    check_count,
)

PRUNING_RULES = ("both", "single")
# The paper's estimate of |V_k| draws this many pairs of words and n-grams, at most.
ESTIMATE_SAMPLES = 1_000_000
HELD_DIGITS = 24
_MAX_LENGTH = 100
_MIN_SPURIOUS_FRACTION = 1e-100


@dataclasses.dataclass(frozen=True, kw_only=True)
class PrivacyPlan(PlanParameters):
    """The public parameters of a run of DPNE: frozen, checked, and never chosen from private data.

    A run under a plan is user-level (ε, δ)-differentially private: neighbouring inputs differ in one
    user with all of that user's documents. Parameters are flat here, in JSON and on the command line;
    the plan makes one strategy of those that belong to it (`strategies`).

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

    max_length: Annotated[
        int,
        Parameter(
            least=1,
            most=_MAX_LENGTH,
            help="Number of words in the longest n-gram, T. More lengths share the same budget, "
            "so that each has more noise.",
        ),
    ] = 5
    strategy: Annotated[
        str,
        Parameter(
            choices=tuple(STRATEGIES),
            help="How users spend their budget. With adaptive, each user divides one budget among "
            "lengths and rounds according to the n-grams that the user has, which releases two to "
            "three times as much. one_round is the mechanism of the paper, with one round for "
            "each length.",
        ),
    ] = "adaptive"
    max_contributions: Annotated[
        int | tuple[int, ...] | None,
        Parameter(
            least=1,
            default_text="1000, one_round 100",
            help="Largest number of distinct n-grams that one user adds at one length (with "
            "adaptive, in each round of it), Δ: one number, or one for each length. The number "
            "that a typical user has is sensible; a larger one raises the threshold without any "
            "gain. It must not be computed from the private data.",
        ),
    ] = None
    count_share: Annotated[
        float,
        Parameter(
            least=0,
            most=0.9,
            help="Part of the budget that measures how many users have each released row, from "
            "1e-6; 0 switches it off. The rows then have the columns users, users_low and "
            "users_high, an estimate and its 95 % interval, and come in the order of users. With "
            "0.15 about 7 to 10 % fewer rows are released.",
        ),
    ] = COUNT_SHARE
    spurious_fraction: Annotated[
        float,
        Parameter(
            least=_MIN_SPURIOUS_FRACTION,
            below=1,
            rare=True,
            help="Upper bound η on the expected number of released n-grams of each length that "
            "nobody has, as a fraction of the released n-grams one word shorter. A larger η "
            "releases more n-grams of both kinds, real and spurious.",
        ),
    ] = 0.01
    rounds: Annotated[
        int | None,
        Parameter(
            least=1,
            most=3,
            rare=True,
            default_text="3, one_round none",
            help="Number of rounds of each length of two words and more. Later rounds spend only "
            "on n-grams that are undecided, so that more are released; each round is a pass over "
            "the data. Only adaptive has it.",
        ),
    ] = None
    user_budgets: Annotated[
        str | None,
        Parameter(
            choices=("individual", "even"),
            rare=True,
            default_text="individual, one_round none",
            help="How a user's budget is divided among lengths. individual divides it by the "
            "n-grams that the user has. even gives each length the same part, which needs "
            "ordinary composition only and releases less. Only adaptive has it.",
        ),
    ] = None
    favour: Annotated[
        str | None,
        Parameter(
            choices=("words", "balanced", "long"),
            rare=True,
            default_text="balanced, one_round none",
            help="The lengths of which more is released, at the cost of the others. words keeps "
            "less of a user's budget for longer n-grams, long keeps more. Choose it by the "
            "purpose of the release, and never by looking at the data. Only adaptive has it, and "
            "with even budgets only balanced is allowed.",
        ),
    ] = None
    vocabulary_delta_share: Annotated[
        float | None,
        Parameter(
            above=0,
            below=1,
            rare=True,
            default_text="0.1, one_round 0.5",
            help="Share of delta that bounds the probability of releasing a single word that only "
            "one user has. The noise gets the rest of delta. A small share raises the threshold "
            "of single words; a large share raises the noise of all lengths.",
        ),
    ] = None
    pruning: Annotated[
        str,
        Parameter(
            choices=PRUNING_RULES,
            rare=True,
            help="Which n-grams are candidates. With both, these are the n-grams whose prefix and "
            "suffix were released; with single, those whose prefix and last word were released. "
            "both gives fewer candidates and so a lower threshold; the privacy is the same. "
            "adaptive has only both.",
        ),
    ] = "both"
    valid_count: Annotated[
        str,
        Parameter(
            choices=VALID_COUNTS,
            rare=True,
            help="How the number of candidates is computed. exact counts them; estimate uses the "
            "estimate of the paper, which only one_round has, and only with pruning both.",
        ),
    ] = "exact"
    noise_growth: Annotated[
        float | None,
        Parameter(
            above=0,
            rare=True,
            default_text="1, adaptive none",
            help="Ratio c of the noise of each length to the noise of the length before, e.g. "
            "0.8. A ratio below 1 favours long n-grams; 1 treats all lengths alike. It is refused "
            "if it would leave some length without budget. Only one_round has it.",
        ),
    ] = None
    budget_shares: Annotated[
        tuple[float, ...] | None,
        Parameter(
            above=0,
            rare=True,
            help="Share of the lengths' budget for each length, e.g. 0.2, 0.4 and 0.4 for a "
            "max_length of 3, instead of noise_growth. There must be one share for each length, "
            "and they must sum to 1. Only one_round has them.",
        ),
    ] = None
    max_tokens_per_user: Annotated[
        int,
        Parameter(
            least=1,
            most=MAX_USERS,
            rare=True,
            help="Largest number of tokens of one user that are read. Users above it keep a "
            "random subset of their documents. It bounds the cost of floating point, so a number "
            "that is too large for epsilon is refused.",
        ),
    ] = 1_000_000

    def __post_init__(self):
        super().__post_init__()
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

    Parameters that were left out get the strategy's defaults.

    Raises:
      ValueError: if a parameter belongs to another strategy.
    """
    defaults = parameter_defaults(plan.strategy)
    for name in OF_ONE_STRATEGY:
        if name not in defaults and getattr(plan, name) is not None:
            raise ValueError(
                f"{name} must be left out with strategy={plan.strategy!r}, which does not have "
                f"it, got {name}={getattr(plan, name)!r}."
            )
    return {name: value for name, value in defaults.items() if getattr(plan, name) is None}


def _check(plan: PrivacyPlan) -> None:
    """Checks a complete plan."""
    limits = plan.max_contributions
    if isinstance(limits, tuple):
        check_count("max_contributions", limits, plan.max_length)
    check_count_share(plan.count_share)
    plan.strategy_value.check(plan)
    finite_noise.check(
        plan,
        remedy=f"Lower max_tokens_per_user={plan.max_tokens_per_user}, if a public bound allows it.",
    )
    check_count_noise(plan.count_share, plan.count_noise)
    if plan.strategy_value.has_user_budgets:
        adaptive.user_budget(plan.ngrams_noise_stddev)
