"""What a `SetUnionPlan` may say: all checks, each a ValueError with name, requirement and value."""

import math
from typing import TYPE_CHECKING

from beam_dpne.mechanism import finite_noise, gaussian
from beam_dpne.mechanism.user_count import check_user_count
from beam_dpne.set_union import union_settings
from beam_dpne.set_union.policy_names import (
    CUTOFF_POLICIES,
    DESCENT_POLICIES,
    GAUSSIAN_POLICIES,
    POLICIES,
)
from beam_dpne.validation import (
    ADJACENCY,
    MAX_USERS,
    as_float,
    check_choice,
    check_delta,
    check_integer,
)

if TYPE_CHECKING:
    from beam_dpne.set_union.plan import SetUnionPlan

_MAX_CUTOFF = 8000.0
_MAX_SHARDS = 2**16
_MAX_CONTRIBUTIONS = 10_000_000
_MAX_SLACK_SHARE = finite_noise.LARGEST_SHARE


def normalise(plan: "SetUnionPlan") -> None:
    """Turns whole numbers into floats, so plans compare."""
    for name in ("epsilon", "delta"):
        object.__setattr__(plan, name, as_float(name, getattr(plan, name)))
    for name in ("cutoff_margin", "vocabulary_delta_share"):
        if getattr(plan, name) is not None:
            object.__setattr__(plan, name, as_float(name, getattr(plan, name)))


def check(plan: "SetUnionPlan") -> None:
    """Checks a plan whose numbers have one form."""
    gaussian.check_budget(plan.epsilon, plan.delta)
    check_delta(plan.delta)
    check_user_count(plan.delta, plan.public_user_count)
    check_choice("policy", plan.policy, POLICIES)
    check_choice("adjacency", plan.adjacency, (ADJACENCY,))
    check_integer("max_contributions", plan.max_contributions, 1, _MAX_CONTRIBUTIONS)
    check_integer("max_items_per_user", plan.max_items_per_user, 1, MAX_USERS)
    check_integer("max_users", plan.max_users, 1, MAX_USERS)
    check_integer("max_shard_users", plan.max_shard_users, 1, MAX_USERS)
    _check_options(plan)
    if plan.policy == "rounds":
        _ = plan.rounds_plan
        return
    _check_finite_noise(plan)
    _check_slack(plan)
    _check_cutoff(plan)


def _check_options(plan: "SetUnionPlan") -> None:
    """Checks options that only some policies have, and numbers among themselves."""
    _check_owner(plan, "shards", DESCENT_POLICIES)
    _check_owner(plan, "cutoff_margin", CUTOFF_POLICIES)
    _check_owner(plan, "vocabulary_delta_share", (*GAUSSIAN_POLICIES, "rounds"))
    if plan.shards is not None:
        check_integer("shards", plan.shards, 1, _MAX_SHARDS)
    margin, share = plan.cutoff_margin, plan.vocabulary_delta_share
    if margin is not None and not 0 <= margin < math.inf:
        raise ValueError(f"cutoff_margin must be a finite number ≥ 0, got cutoff_margin={margin}.")
    if share is not None and not 0 < share < 1:
        raise ValueError(
            f"vocabulary_delta_share must be in (0, 1), got vocabulary_delta_share={share}."
        )
    sequence = -(-plan.max_users // plan.shard_count)
    if plan.policy in DESCENT_POLICIES and sequence > plan.max_shard_users:
        raise ValueError(
            f"max_shard_users must be at least max_users/shards={sequence}, since a shard's users "
            f"meet on one worker, got max_shard_users={plan.max_shard_users}; raise shards, or "
            "lower max_users to a public bound of the users."
        )


def _check_owner(plan: "SetUnionPlan", name: str, policies: tuple[str, ...]) -> None:
    if getattr(plan, name) is not None and plan.policy not in policies:
        raise ValueError(
            f"{name} must not be given with policy={plan.policy!r}, which has none; it is of "
            f"{', '.join(policies)}."
        )


def _check_slack(plan: "SetUnionPlan") -> None:
    if plan.numerical_slack > _MAX_SLACK_SHARE * plan.epsilon:
        raise ValueError(
            f"max_contributions must be small enough that the numerical slack "
            f"{plan.numerical_slack:.2g} is at most epsilon/1000, got "
            f"max_contributions={plan.max_contributions}; lower it or raise epsilon."
        )


def _check_finite_noise(plan: "SetUnionPlan") -> None:
    remedy = ""
    if plan.policy in CUTOFF_POLICIES:
        remedy = (
            f"A lower max_users={plan.max_users} helps, if a public bound allows it, or "
            f"max_contributions={plan.max_contributions}."
        )
    finite_noise.check(
        lambda epsilon, delta: [noise_draws(plan, epsilon, delta)],
        epsilon=plan.epsilon,
        delta=plan.delta,
        remedy=remedy,
    )


def noise_draws(plan: "SetUnionPlan", epsilon: float, delta: float) -> finite_noise.NoiseDraws:
    """Returns the noise of a plan with another ε and δ, of any policy but "rounds"."""
    return finite_noise.NoiseDraws(
        kind=plan.noise_kind,
        count=plan.decision_count,
        moved=plan.decision_count,
        far_tail=union_settings.far_tail(plan.policy),
        epsilon=epsilon,
        delta=delta,
        gaussian_delta=delta * (1 - plan.delta_share),
    )


def _check_cutoff(plan: "SetUnionPlan") -> None:
    highest = max(each.cutoff or 0 for each in plan.union_rounds)
    if highest > _MAX_CUTOFF:
        raise ValueError(
            f"cutoff_margin must leave a cutoff of at most {_MAX_CUTOFF:.0f}, got {highest:.4g}; "
            "lower cutoff_margin or raise epsilon."
        )
