"""The contexts of run keys of set unions and Bayesian counts; see `mechanism.parameters`."""

from typing import TYPE_CHECKING, Any

from beam_dpne.bayesian import log_global
from beam_dpne.mechanism import integer_noise, parameters

if TYPE_CHECKING:
    from beam_dpne.bayesian.plan import BayesianPlan


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
