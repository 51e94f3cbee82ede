"""Strategies: the weights of users' contributions in the rounds of a length, and the rounds' rules.

A strategy is a value with parameters. It imports neither Beam nor Arrow, and depends on data only by
sizes of released sets. Candidates, histogram, noise, spurious n-grams and decoding are the same for all
strategies.
"""

import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from beam_dpne.mechanism import gaussian, thresholds
from beam_dpne.mechanism.rules import ClassRule, GroupRule, LengthRule, RoundRule, length_rule
from beam_dpne.ngrams import adaptive, tolerances
from beam_dpne.validation import check_choice, check_count, check_integer

VALID_COUNTS = ("exact", "estimate")
# Parameters of a plan that only one strategy has; they are None in plans of the other.
OF_ONE_STRATEGY = ("noise_growth", "rounds", "user_budgets", "favour")
_MIN_SHARE = 1e-9
# A `PrivacyPlan`, whose module imports this one.
_Plan = Any


@dataclasses.dataclass(frozen=True, kw_only=True)
class LengthPlan:
    """The numbers of one length that are known before the data.

    Attributes:
      length: k.
      max_contributions: Δ_k.
      budget_share: f_k, the part of the run's budget; all of them and count_share sum to 1. None where
        each user divides one budget among all lengths.
      noise_stddev: the standard deviation of each round's noise, in units of weight: σ_k = σ/√f_k. It
        is 1 with "adaptive", where the weights carry the budget.
      threshold: ρ_1 at k = 1; None for longer n-grams, whose threshold depends on |S_{k−1}| and |V_k|.
      rounds: the numbers of each round ("adaptive" only).
      word_rules: the rules of the rounds at k = 1 ("adaptive" only).
    """

    length: int
    max_contributions: int
    budget_share: float | None
    noise_stddev: float
    threshold: float | None
    rounds: tuple[adaptive.Round, ...] = ()
    word_rules: tuple[RoundRule, ...] = ()


@dataclasses.dataclass(frozen=True, kw_only=True)
class OneRound:
    """The paper's strategy: one round for each length, with weight 1/√n for each of a user's n n-grams.

    Attributes:
      noise_growth: c in σ_k = c·σ_{k−1}, finite and > 0.
      budget_shares: f_k, one for each private length, summing to 1, instead of noise_growth.
      valid_count: "exact", or "estimate" for the paper's estimate of |V_k|.

    Raises:
      ValueError: naming the parameter, its requirement and the value.

    Example:
      >>> OneRound(noise_growth=2.0).shares(2)
      (0.8, 0.2)

    References: DPNE Algorithm 1; Theorem 2.1.
    """

    name: ClassVar[str] = "one_round"
    # Defaults of parameters that plans of all strategies have.
    plan_defaults: ClassVar[dict[str, Any]] = {
        "max_contributions": 100,
        "vocabulary_delta_share": 0.5,
    }
    # Whether each user divides one budget among rounds, or has weight 1 in each.
    has_user_budgets: ClassVar[bool] = False
    # Whether candidates are sorted into classes by a prediction (`classes`).
    has_classes: ClassVar[bool] = False

    noise_growth: float = 1.0
    budget_shares: tuple[float, ...] | None = None
    valid_count: str = "exact"

    def __post_init__(self):
        if self.budget_shares is not None:
            self._check_shares(self.budget_shares)
        if not (math.isfinite(self.noise_growth) and self.noise_growth > 0):
            raise ValueError(
                f"noise_growth must be a finite number > 0, got noise_growth={self.noise_growth}."
            )
        check_choice("valid_count", self.valid_count, VALID_COUNTS)

    def _check_shares(self, shares: tuple[float, ...]) -> None:
        if self.noise_growth != 1.0:
            raise ValueError("Give budget_shares or noise_growth, not both.")
        if not all(0 < share <= 1 for share in shares):
            raise ValueError(f"budget_shares must each be in (0, 1], got {shares}.")
        if abs(math.fsum(shares) - 1) > 1e-9:
            raise ValueError(
                f"budget_shares must sum to 1, got {shares}, which sum to {math.fsum(shares)}."
            )

    def check(self, plan: _Plan) -> None:
        """Checks the parameters against those of a plan."""
        if self.budget_shares is not None:
            check_count("budget_shares", self.budget_shares, plan.max_length)
        elif min(self.shares(plan.max_length)) < _MIN_SHARE:
            raise ValueError(
                f"noise_growth must leave each length a share of at least {_MIN_SHARE}, got "
                f"noise_growth={self.noise_growth} with max_length={plan.max_length}; move it nearer "
                "to 1."
            )
        if plan.pruning == "single" and self.valid_count == "estimate":
            raise ValueError(
                "valid_count must be 'exact' with pruning='single', got valid_count='estimate': "
                "there |V_k| is a product and needs no estimate."
            )

    def shares(self, lengths: int) -> tuple[float, ...]:
        """Returns f_k for each of so many private lengths; they sum to 1."""
        if self.budget_shares is not None:
            return gaussian.normalise_shares(self.budget_shares)
        return gaussian.growth_shares(self.noise_growth, lengths)

    def rounds_of(self, length: int) -> int:
        """Returns the number of rounds of a length: 1."""
        return 1

    def length_plans(self, plan: _Plan) -> list[LengthPlan]:
        """Returns the numbers of the lengths that the strategy finds."""
        shares = self.shares(plan.max_length)
        stddevs = gaussian.split_noise_stddev(plan.ngrams_noise_stddev, shares)
        return [
            LengthPlan(
                length=length,
                max_contributions=plan.contribution_limits[length - 1],
                budget_share=share * (1 - plan.count_share),
                noise_stddev=stddev,
                threshold=_word_threshold(plan, stddev) if length == 1 else None,
            )
            for length, (share, stddev) in enumerate(zip(shares, stddevs, strict=True), start=1)
        ]

    def rule(
        self, plan: _Plan, length: int, *, released: int, sizes: Mapping[int, int], counted: int
    ) -> LengthRule:
        """Returns σ_k and ρ_k; if no n-gram is valid, nothing more is released.

        Args:
          plan: the plan of the run.
          length: k.
          released: |S_{k−1}|.
          sizes: |V_c| of the classes that have candidates, by their numbers; here of class 0 alone.
            It is empty at k = 1.
          counted: |V_k| or its estimate, which affects the threshold only.
        """
        numbers, valid = plan.lengths[length - 1], sum(sizes.values())
        if length == 1:
            return length_rule(
                length=1, noise_stddev=numbers.noise_stddev, threshold=numbers.threshold
            )
        threshold = None
        if valid:
            threshold = thresholds.spurious_threshold(
                noise_stddev=numbers.noise_stddev,
                spurious_fraction=plan.spurious_fraction,
                released=released,
                valid=counted,
            )
        return length_rule(
            length=length,
            noise_stddev=numbers.noise_stddev,
            threshold=threshold,
            valid=valid,
            pruning=plan.pruning,
        )


@dataclasses.dataclass(frozen=True, kw_only=True)
class Adaptive:
    """Several rounds for each length, among whose open n-grams each user divides one budget.

    Attributes:
      rounds: the number of rounds of each length k ≥ 2, from 1 to 3.
      user_budgets: with "individual" each user divides one budget among the lengths by the user's own
        n-grams; with "even" each length has an equal part.
      favour: "words", "balanced" or "long": how much individual budgets keep for longer n-grams.

    Raises:
      ValueError: naming the parameter, its requirement and the value.

    Example:
      >>> strategy = Adaptive(rounds=3)
      >>> strategy.rounds_of(1), strategy.rounds_of(2)
      (3, 3)

    References: none; `adaptive` has the formulas and why they are private.
    """

    name: ClassVar[str] = "adaptive"
    plan_defaults: ClassVar[dict[str, Any]] = {
        "max_contributions": 1000,
        "vocabulary_delta_share": 0.1,
    }
    has_user_budgets: ClassVar[bool] = True
    has_classes: ClassVar[bool] = True

    rounds: int = 3
    user_budgets: str = "individual"
    favour: str = "balanced"

    def __post_init__(self):
        check_integer("rounds", self.rounds, 1, max(adaptive.GRAM_ROUNDS))
        check_choice("user_budgets", self.user_budgets, adaptive.USER_BUDGETS)
        check_choice("favour", self.favour, tuple(adaptive.AHEAD))
        if self.user_budgets == "even" and self.favour != "balanced":
            raise ValueError(
                "favour must be 'balanced' with user_budgets='even', where each length has a part of "
                f"the budget, got favour={self.favour!r}."
            )

    def check(self, plan: _Plan) -> None:
        """Checks the parameters against those of a plan."""
        if plan.budget_shares is not None:
            raise ValueError(
                "budget_shares must be left out with strategy='adaptive', where each user divides one "
                f"budget, got budget_shares={plan.budget_shares}."
            )
        for name, only in (("valid_count", "exact"), ("pruning", "both")):
            if getattr(plan, name) != only:
                raise ValueError(
                    f"{name} must be {only!r} with strategy='adaptive', got "
                    f"{name}={getattr(plan, name)!r}; the paper's variants have strategy='one_round'."
                )
        if plan.spurious_fraction > adaptive.MAX_SPURIOUS_FRACTION:
            raise ValueError(
                f"spurious_fraction must be at most {adaptive.MAX_SPURIOUS_FRACTION} with "
                "strategy='adaptive', beyond which some thresholds do not exist, got "
                f"spurious_fraction={plan.spurious_fraction}."
            )
        # No class has a larger probability; without thresholds a run would stop in its middle.
        adaptive.gram_rounds(tolerances.LARGEST_PROBABILITY, adaptive.GRAM_ROUNDS[self.rounds])

    def rounds_of(self, length: int) -> int:
        """Returns the number of rounds of a length: 3 at k = 1, and `rounds` at k ≥ 2."""
        return len(adaptive.rounds_of(length, self.rounds))

    def length_plans(self, plan: _Plan) -> list[LengthPlan]:
        """Returns the numbers of the lengths that the strategy finds."""
        share = None
        if self.user_budgets == "even":
            share = (1 - plan.count_share) / plan.max_length
        plans = []
        for length in range(1, plan.max_length + 1):
            limit = plan.contribution_limits[length - 1]
            rules = ()
            if length == 1:
                rules = adaptive.vocabulary_rounds(
                    allotment=plan.allotment, delta=plan.vocabulary_delta, max_contributions=limit
                )
            plans.append(
                LengthPlan(
                    length=length,
                    max_contributions=limit,
                    budget_share=share,
                    noise_stddev=1.0,
                    threshold=rules[-1].threshold if rules else None,
                    rounds=adaptive.rounds_of(length, self.rounds),
                    word_rules=rules,
                )
            )
        return plans

    def rule(
        self, plan: _Plan, length: int, *, released: int, sizes: Mapping[int, int], counted: int
    ) -> LengthRule:
        """Returns ρ_r and b_r of each class, from |S_{k−1}| and |V_c|; see `OneRound.rule`."""
        numbers = plan.lengths[length - 1]
        if length == 1:
            return LengthRule.of_rounds(length=1, noise_stddev=1.0, rounds=numbers.word_rules)
        groups = tolerances.groups_of(sizes, released)
        unheld = tolerances.all_candidates(groups)
        described = [
            GroupRule(
                lowest=min(group.factors),
                candidates=number,
                noise_stddev=0.0,
                noisy_unheld=number,
                unheld=number,
            )
            for group, number in zip(groups, unheld, strict=True)
        ]
        return class_rule(
            plan, length, released=released, sizes=sizes, groups=groups, described=described
        )


def class_rule(
    plan: _Plan,
    length: int,
    *,
    released: int,
    sizes: Mapping[int, int],
    groups: Sequence[tolerances.Group],
    described: Sequence[GroupRule],
) -> LengthRule:
    """Returns ρ_r and b_r of each class, from |S_{k−1}|, |V_c| and N_G ("adaptive" only).

    Args:
      plan: the plan of the run.
      length: k ≥ 2.
      released: |S_{k−1}|.
      sizes: |V_c| of the classes that have candidates, by their numbers.
      groups: the groups of the classes, the best one first.
      described: what is known of the held candidates of each group.
    """
    unheld, tolerated = [each.unheld for each in described], plan.spurious_fraction * released
    chances = tolerances.probabilities(groups, unheld, tolerated)
    of_groups = tolerances.group_probabilities(groups, unheld, tolerated)
    rounds = plan.lengths[length - 1].rounds
    return LengthRule(
        length=length,
        noise_stddev=1.0,
        classes=tuple(
            ClassRule(
                number=number,
                valid=sizes[number],
                rounds=adaptive.gram_rounds(chances[number], rounds),
            )
            for number in sorted(sizes)
        ),
        groups=tuple(
            dataclasses.replace(each, probability=chance)
            for each, chance in zip(described, of_groups, strict=True)
        ),
        by_prediction=True,
    )


Strategy = OneRound | Adaptive
STRATEGIES: dict[str, type[OneRound] | type[Adaptive]] = {
    kind.name: kind for kind in (Adaptive, OneRound)
}


def parameter_defaults(strategy: str) -> dict[str, Any]:
    """Returns the defaults of the parameters whose defaults depend on the strategy."""
    kind = STRATEGIES[strategy]
    defaults = {field.name: field.default for field in dataclasses.fields(kind)}
    return {**kind.plan_defaults, **{n: defaults[n] for n in OF_ONE_STRATEGY if n in defaults}}


def strategy_of(plan: _Plan) -> Strategy:
    """Returns the strategy of a plan whose parameters are complete."""
    kind = STRATEGIES[plan.strategy]
    return kind(**{field.name: getattr(plan, field.name) for field in dataclasses.fields(kind)})


def _word_threshold(plan: _Plan, noise_stddev: float) -> float:
    return thresholds.vocabulary_threshold(
        noise_stddev=noise_stddev,
        delta=plan.vocabulary_delta,
        max_contributions=plan.contribution_limits[0],
    )
