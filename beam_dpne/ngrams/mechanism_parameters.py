"""The contexts of run keys of set unions and Bayesian counts; see `mechanism.parameters`."""

from typing import TYPE_CHECKING, Any

from beam_dpne.bayesian import log_global
from beam_dpne.mechanism import integer_noise, parameters, rules, thresholds
from beam_dpne.set_union import union_settings

if TYPE_CHECKING:
    from beam_dpne.bayesian.plan import BayesianPlan
    from beam_dpne.set_union.plan import SetUnionPlan


def of_set_union(plan: "SetUnionPlan") -> dict[str, Any]:
    """Returns what decides a release of items, as JSON types."""
    fields = parameters.without_user_count(plan.to_dict())
    if plan.policy == "rounds":
        return parameters.as_json_types(
            {"plan": fields, "rounds_plan": plan.rounds_plan.mechanism_parameters()}
        )
    resolved = {
        "contribution_limit": plan.contribution_limit,
        "cutoff_margin": plan.margin,
        "shards": plan.shard_count,
        "vocabulary_delta_share": plan.delta_share,
        "max_adaptive_degree": plan.max_adaptive_degree,
    }
    return parameters.as_json_types(
        {
            "plan": fields | resolved,
            "rules": rules.constants(),
            "noise": parameters.noise_constants(),
            **_union(),
        }
    )


def of_bayesian(plan: "BayesianPlan") -> dict[str, Any]:
    """Returns what decides noisy counts, and the parameters of the step that follows, as JSON types."""
    resolved: dict[str, Any] = {"contribution_limit": plan.contribution_limit}
    if plan.mode != "counts":
        resolved |= {"decay": plan.decay_rate, "tuning_share_of_users": plan.tuning_share_of_users}
    if plan.is_private:
        resolved |= {"grid": plan.grid}
    else:
        resolved |= {"candidates": plan.candidates, "tuning_epsilon": plan.tuning_epsilon}
    return parameters.as_json_types(
        {
            "plan": parameters.without_user_count(plan.to_dict()) | resolved,
            "noise": parameters.noise_constants(),
            "integer_noise": integer_noise.constants(),
            "log_global": log_global.constants(),
        }
    )


def _union() -> dict[str, Any]:
    return {"set_union": union_settings.constants(), "thresholds": thresholds.constants()}
