"""What decides a release, for the context that a run key is bound to.

One key on one input, but under two ways of computing weights, gives the same noise on other weights:
their difference is then free of noise. So the key is bound to every parameter of a plan with its
defaults resolved, and to every constant that decides weights, noise, thresholds and cutoffs, each read
from the module that uses it. `public_user_count` is left out, since nothing is computed from it. What
is not a number, such as the shape of a formula or how draws are keyed, is for the mechanism's version.
"""

import json
from typing import TYPE_CHECKING, Any

from beam_dpne.mechanism import (
    evidence_law,
    finite_noise,
    gaussian,
    rules,
    thresholds,
)
from beam_dpne.ngrams import adaptive, plan_checks
from beam_dpne.set_union import policies

if TYPE_CHECKING:
    from beam_dpne.ngrams.plan import PrivacyPlan

_DECIDES_NOTHING = "public_user_count"


def of_ngrams(plan: "PrivacyPlan") -> dict[str, Any]:
    """Returns what decides a release of n-grams, as JSON types."""
    found: dict[str, Any] = {
        "plan": _fields(plan.to_dict()) | {"contribution_limits": plan.contribution_limits},
        "rules": rules.constants(),
        "noise": _noise(),
        "null_law": evidence_law.constants(),
        "checks": plan_checks.constants(),
    }
    if plan.is_adaptive:
        found["adaptive"] = adaptive.constants(plan.rounds or 1)
    if plan.has_union_vocabulary:
        found["words"] = _union() | {"shards": policies.shards_for(plan.max_users)}
    return _as_json_types(found)


def _fields(parameters: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in parameters.items() if name != _DECIDES_NOTHING}


def _noise() -> dict[str, Any]:
    return {**gaussian.constants(), **finite_noise.constants()}


def _union() -> dict[str, Any]:
    return {"set_union": policies.constants(), "thresholds": thresholds.constants()}


def _as_json_types(parameters: dict[str, Any]) -> dict[str, Any]:
    """Returns what JSON gives back: lists for tuples."""
    return json.loads(json.dumps(parameters))
