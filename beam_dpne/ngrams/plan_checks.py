"""What a `PrivacyPlan` may say: the choices, the defaults of each strategy, and all checks."""

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from beam_dpne.mechanism import finite_noise, gaussian
from beam_dpne.mechanism.user_count import check_user_count
from beam_dpne.ngrams import adaptive
from beam_dpne.set_union.policies import VOCABULARY_POLICIES, update_policy
from beam_dpne.validation import as_float, check_choice, check_count, check_integer

if TYPE_CHECKING:
    from beam_dpne.ngrams.plan import PrivacyPlan

ADJACENCY = "add_or_remove_one_user"
STRATEGIES = ("adaptive", "one_round")
PRUNING_RULES = ("both", "single")
VALID_COUNTS = ("exact", "estimate")
MAX_USERS = 2**30
# Pairs of words and grams that the paper's estimate of |V_k| looks at, at most.
ESTIMATE_SAMPLES = 1_000_000
RELATIVE_ERROR_PER_DECISION = 2e-12
_MAX_LENGTH = 100
_MIN_DELTA = 1e-20
_MIN_SPURIOUS_FRACTION = 1e-100
_MAX_SLACK_SHARE = finite_noise.LARGEST_SHARE
_MIN_SHARE = 1e-9
DEFAULTS = {
    "adaptive": {
        "max_contributions": 300,
        "vocabulary_delta_share": 0.1,
        "rounds": 3,
        "user_budgets": "individual",
        "vocabulary_policy": "rounds",
    },
    "one_round": {
        "max_contributions": 100,
        "vocabulary_delta_share": 0.5,
        "noise_growth": 1.0,
        "vocabulary_policy": "weighted_gaussian",
    },
}
# A set union looks at the words twice, at most.
UNION_ROUNDS = 2
# What its decisions may cost of ε; they may all depend on one user (`SetUnionPlan.numerical_slack`).
UNION_SLACK = 1e-5
# A set union with Gaussian noise plans for δ_G = δ_T, so for a little less than 2 δ_T in all.
_UNION_DELTAS = 1.99
_OF_ONE_STRATEGY = ("noise_growth", "rounds", "user_budgets")


def complete(plan: "PrivacyPlan") -> None:
    """Sets what was left out to the strategy's defaults, and gives each value one form."""
    check_choice("strategy", plan.strategy, STRATEGIES)
    _take_defaults(plan)
    _normalise(plan)


def check(plan: "PrivacyPlan") -> None:
    """Checks a complete plan; raises ValueError naming the parameter, its requirement and the value."""
    check_choice("vocabulary_policy", plan.vocabulary_policy, VOCABULARY_POLICIES)
    gaussian.check_budget(plan.epsilon, plan.delta)
    check_delta(plan.delta)
    check_user_count(plan.delta, plan.public_user_count)
    check_integer("max_length", plan.max_length, 1)
    if plan.max_length > _MAX_LENGTH:
        raise ValueError(
            f"max_length must be at most {_MAX_LENGTH}, since each length is a stage of its own, "
            f"got max_length={plan.max_length}."
        )
    check_integer("max_tokens_per_user", plan.max_tokens_per_user, 1)
    check_integer("max_users", plan.max_users, 1, MAX_USERS)
    _check_lists(plan)
    if not 0 < plan.spurious_fraction < 1:
        raise ValueError(
            f"spurious_fraction must be in (0, 1), got spurious_fraction={plan.spurious_fraction}."
        )
    if plan.spurious_fraction < _MIN_SPURIOUS_FRACTION:
        raise ValueError(
            f"spurious_fraction must be at least {_MIN_SPURIOUS_FRACTION}, below which thresholds "
            f"leave floating point, got spurious_fraction={plan.spurious_fraction}."
        )
    _check_vocabulary(plan)
    if plan.is_adaptive:
        _check_adaptive(plan)
    else:
        _check_growth(plan)
    check_choice("pruning", plan.pruning, PRUNING_RULES)
    check_choice("valid_count", plan.valid_count, VALID_COUNTS)
    check_choice("adjacency", plan.adjacency, (ADJACENCY,))
    if plan.pruning == "single" and plan.valid_count == "estimate":
        raise ValueError(
            "valid_count must be 'exact' with pruning='single', got valid_count='estimate': "
            "there |V_k| is a product and needs no estimate."
        )
    if plan.numerical_slack > _MAX_SLACK_SHARE * plan.epsilon:
        raise ValueError(
            f"max_tokens_per_user must be small enough that the numerical slack "
            f"{plan.numerical_slack:.2g} is at most epsilon/1000, got "
            f"max_tokens_per_user={plan.max_tokens_per_user}; lower it or raise epsilon."
        )
    _check_finite_noise(plan)
    if plan.is_adaptive:
        adaptive.user_budget(plan.noise_stddev)


def constants() -> dict[str, Any]:
    """Returns the constants of this module that decide a release."""
    return {
        "estimate_samples": ESTIMATE_SAMPLES,
        "relative_error_per_decision": RELATIVE_ERROR_PER_DECISION,
        "union_rounds": UNION_ROUNDS,
        "union_slack": UNION_SLACK,
    }


def noise_draws(
    plan: "PrivacyPlan", epsilon: float, delta: float
) -> tuple[finite_noise.NoiseDraws, ...]:
    """Returns the noise of a plan with another ε and δ: the strategy's, and that of a set union.

    A user changes at most max_tokens_per_user decisions in a round, and moves the means of at most
    max_contributions. Words by a set union are part of the run's Gaussian mechanism, so their draws are
    among the strategy's; they also have to fit into δ_T, from which their own plan keeps their cost.
    """
    strategy = finite_noise.NoiseDraws(
        kind="gaussian",
        count=plan.round_count * plan.max_tokens_per_user,
        moved=sum(
            plan.rounds_of(length) * plan.contribution_limits[length - 1]
            for length in plan.strategy_lengths
        ),
        far_tail=finite_noise.FAR_TAILS["gaussian"],
        epsilon=epsilon,
        delta=delta,
        gaussian_delta=delta * (1 - plan.delta_share),
    )
    policy = plan.vocabulary_policy
    if policy is None or not plan.has_union_vocabulary:
        return (strategy,)
    decisions = update_policy(policy).decision_count(
        max_contributions=plan.contribution_limits[0], max_users=plan.max_users
    )
    together = strategy._replace(count=strategy.count + decisions, moved=strategy.moved + decisions)
    words = strategy._replace(
        count=decisions, moved=decisions, delta=_UNION_DELTAS * delta * plan.delta_share
    )
    return together, words


def _check_finite_noise(plan: "PrivacyPlan") -> None:
    remedy = (
        f"A lower max_tokens_per_user={plan.max_tokens_per_user} helps a little, if a public bound "
        "allows it."
    )
    if plan.has_union_vocabulary:
        remedy = (
            f"Lower max_tokens_per_user={plan.max_tokens_per_user} and, for "
            f"vocabulary_policy={plan.vocabulary_policy!r}, max_users={plan.max_users}, to what the "
            "input can have at most, by a public bound."
        )
    finite_noise.check(
        lambda epsilon, delta: noise_draws(plan, epsilon, delta),
        epsilon=plan.epsilon,
        delta=plan.delta,
        remedy=remedy,
    )


def check_delta(delta: float) -> None:
    """Checks δ against what no noise of 128 bits can have, whatever else a plan says."""
    if delta < _MIN_DELTA:
        raise ValueError(
            f"delta must be at least {_MIN_DELTA}, where the noise of 128 bits ends, got delta={delta}."
        )


def _take_defaults(plan: "PrivacyPlan") -> None:
    """Sets what was left out to the strategy's default; refuses what it does not have."""
    defaults = DEFAULTS[plan.strategy]
    for name in _OF_ONE_STRATEGY:
        if name not in defaults and getattr(plan, name) is not None:
            raise ValueError(
                f"{name} must be left out with strategy={plan.strategy!r}, which does not have "
                f"it, got {name}={getattr(plan, name)!r}."
            )
    if plan.has_public_vocabulary and plan.vocabulary_delta_share is None:
        object.__setattr__(plan, "vocabulary_delta_share", 0.0)
    for name, value in defaults.items():
        if getattr(plan, name) is None:
            object.__setattr__(plan, name, value)


def _normalise(plan: "PrivacyPlan") -> None:
    """Turns lists (from JSON) into tuples and whole numbers into floats, so plans compare."""
    for name in ("epsilon", "delta", "spurious_fraction"):
        object.__setattr__(plan, name, as_float(name, getattr(plan, name)))
    for name in ("vocabulary_delta_share", "noise_growth"):
        if getattr(plan, name) is not None:
            object.__setattr__(plan, name, as_float(name, getattr(plan, name)))
    if isinstance(plan.max_contributions, Sequence):
        object.__setattr__(plan, "max_contributions", tuple(plan.max_contributions))
    if isinstance(plan.budget_shares, str) or not isinstance(plan.budget_shares, Sequence | None):
        raise ValueError(
            f"budget_shares must be a list of numbers, got budget_shares={plan.budget_shares!r}."
        )
    if plan.budget_shares is not None:
        shares = tuple(as_float("budget_shares", share) for share in plan.budget_shares)
        object.__setattr__(plan, "budget_shares", shares)


def _check_vocabulary(plan: "PrivacyPlan") -> None:
    """Checks δ_T's part, and that something is left to find."""
    share = plan.vocabulary_delta_share
    if plan.has_public_vocabulary:
        if share != 0:
            raise ValueError(
                "vocabulary_delta_share must be left out with a public vocabulary, which needs "
                f"none, got vocabulary_delta_share={share}."
            )
        if plan.max_length == 1:
            raise ValueError(
                "max_length must be at least 2 with a public vocabulary, got max_length=1."
            )
        return
    if plan.has_union_vocabulary:
        _check_union(plan)
    if share is None or not 0 < share < 1:
        raise ValueError(
            f"vocabulary_delta_share must be in (0, 1), got vocabulary_delta_share={share}."
        )


def _check_union(plan: "PrivacyPlan") -> None:
    if plan.vocabulary_policy == "rounds":
        raise ValueError(
            "vocabulary_policy must not be 'rounds' with strategy='one_round': rounds divide the "
            "budgets of strategy='adaptive', got vocabulary_policy='rounds'. Leave it out."
        )
    if plan.max_length == 1:
        raise ValueError(
            "max_length must be at least 2 with another vocabulary_policy than the strategy's "
            f"own, got vocabulary_policy={plan.vocabulary_policy!r}: use PrivateSetUnion."
        )


def _check_adaptive(plan: "PrivacyPlan") -> None:
    """Checks what only "adaptive" has, and refuses what it does not have."""
    if plan.budget_shares is not None:
        raise ValueError(
            "budget_shares must be left out with strategy='adaptive', where each user divides a "
            f"budget of its own, got budget_shares={plan.budget_shares}."
        )
    if plan.valid_count != "exact":
        raise ValueError(
            "valid_count must be 'exact' with strategy='adaptive', got "
            f"valid_count={plan.valid_count!r}."
        )
    check_integer("rounds", plan.rounds, 1, max(adaptive.GRAM_ROUNDS))
    check_choice("user_budgets", plan.user_budgets, adaptive.USER_BUDGETS)
    if plan.spurious_fraction > adaptive.MAX_SPURIOUS_FRACTION:
        raise ValueError(
            f"spurious_fraction must be at most {adaptive.MAX_SPURIOUS_FRACTION} with "
            "strategy='adaptive', beyond which some thresholds do not exist, got "
            f"spurious_fraction={plan.spurious_fraction}."
        )


def _check_growth(plan: "PrivacyPlan") -> None:
    growth = plan.noise_growth or 0.0
    if not (math.isfinite(growth) and growth > 0):
        raise ValueError(f"noise_growth must be a finite number > 0, got noise_growth={growth}.")
    if min(gaussian.growth_shares(growth, len(plan.private_lengths))) < _MIN_SHARE:
        raise ValueError(
            f"noise_growth must leave each length a share of at least {_MIN_SHARE}, got "
            f"noise_growth={growth} with max_length={plan.max_length}; move it nearer to 1."
        )


def _check_lists(plan: "PrivacyPlan") -> None:
    """Checks Δ_k and f_k, each on its own and in number."""
    given = plan.max_contributions
    for limit in given if isinstance(given, tuple) else (given,):
        check_integer("max_contributions", limit, 1)
    if isinstance(given, tuple):
        check_count("max_contributions", given, plan.max_length)
    if plan.budget_shares is None:
        return
    check_count("budget_shares", plan.budget_shares, len(plan.private_lengths))
    if plan.noise_growth not in (None, 1.0):
        raise ValueError("Give budget_shares or noise_growth, not both.")
    if not all(0 < share <= 1 for share in plan.budget_shares):
        raise ValueError(f"budget_shares must each be in (0, 1], got {plan.budget_shares}.")
    if abs(math.fsum(plan.budget_shares) - 1) > 1e-9:
        raise ValueError(
            f"budget_shares must sum to 1, got {plan.budget_shares}, "
            f"which sum to {math.fsum(plan.budget_shares)}."
        )
