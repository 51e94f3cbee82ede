"""Checks of a `PrivacyPlan`: its defaults, its choices, and the draws of noise that it counts."""

from collections.abc import Sequence
from typing import Any

from beam_dpne.mechanism import finite_noise, gaussian
from beam_dpne.mechanism.user_count import check_user_count
from beam_dpne.ngrams import adaptive
from beam_dpne.ngrams.strategies import (
    OF_ONE_STRATEGY,
    STRATEGIES,
    VALID_COUNTS,
    as_shares,
    parameter_defaults,
)
from beam_dpne.set_union.policies import VOCABULARY_POLICIES, update_policy
from beam_dpne.validation import (
    ADJACENCY,
    MAX_USERS,
    as_float,
    check_choice,
    check_count,
    check_delta,
    check_integer,
)

PRUNING_RULES = ("both", "single")
# Pairs of words and grams that the paper's estimate of |V_k| looks at, at most.
ESTIMATE_SAMPLES = 1_000_000
RELATIVE_ERROR_PER_DECISION = 2e-12
_MAX_LENGTH = 100
_MIN_SPURIOUS_FRACTION = 1e-100
_MAX_SLACK_SHARE = finite_noise.LARGEST_SHARE
# A set union looks at the words twice, at most.
UNION_ROUNDS = 2
# What its decisions may cost of ε; they may all depend on one user (`SetUnionPlan.numerical_slack`).
UNION_SLACK = 1e-5
# A set union with Gaussian noise plans for δ_G = δ_T, so for a little less than 2 δ_T in all.
_UNION_DELTAS = 1.99
# A `PrivacyPlan`, whose module imports this one.
_Plan = Any


def completed(plan: _Plan) -> dict[str, Any]:
    """Returns the parameters that change when a plan is completed.

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
    if plan.vocabulary_policy == "public":
        defaults["vocabulary_delta_share"] = 0.0
    values = {name: value for name, value in defaults.items() if getattr(plan, name) is None}
    for name in ("epsilon", "delta", "spurious_fraction"):
        values[name] = as_float(name, getattr(plan, name))
    for name in ("vocabulary_delta_share", "noise_growth"):
        value = values.get(name, getattr(plan, name))
        if value is not None:
            values[name] = as_float(name, value)
    if isinstance(plan.max_contributions, Sequence):
        values["max_contributions"] = tuple(plan.max_contributions)
    return values | {"budget_shares": as_shares(plan.budget_shares)}


def check(plan: _Plan) -> None:
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
    check_choice("valid_count", plan.valid_count, VALID_COUNTS)
    check_choice("pruning", plan.pruning, PRUNING_RULES)
    plan.strategy_value.check(plan)
    check_choice("adjacency", plan.adjacency, (ADJACENCY,))
    if plan.numerical_slack > _MAX_SLACK_SHARE * plan.epsilon:
        raise ValueError(
            f"max_tokens_per_user must be small enough that the numerical slack "
            f"{plan.numerical_slack:.2g} is at most epsilon/1000, got "
            f"max_tokens_per_user={plan.max_tokens_per_user}; lower it or raise epsilon."
        )
    _check_finite_noise(plan)
    if plan.strategy_value.has_user_budgets:
        adaptive.user_budget(plan.noise_stddev)


def constants() -> dict[str, Any]:
    """Returns the constants of this module that decide a release."""
    return {
        "estimate_samples": ESTIMATE_SAMPLES,
        "relative_error_per_decision": RELATIVE_ERROR_PER_DECISION,
        "union_rounds": UNION_ROUNDS,
        "union_slack": UNION_SLACK,
    }


def noise_draws(plan: _Plan, epsilon: float, delta: float) -> tuple[finite_noise.NoiseDraws, ...]:
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


def _check_finite_noise(plan: _Plan) -> None:
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


def _check_vocabulary(plan: _Plan) -> None:
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


def _check_union(plan: _Plan) -> None:
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


def _check_lists(plan: _Plan) -> None:
    """Checks Δ_k, each by itself and in number."""
    limits = plan.max_contributions
    for limit in limits if isinstance(limits, tuple) else (limits,):
        check_integer("max_contributions", limit, 1)
    if isinstance(limits, tuple):
        check_count("max_contributions", limits, plan.max_length)
