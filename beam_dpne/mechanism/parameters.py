"""Parts of the context that a run key is bound to, which the plans of all programs share.

One key on one input, but under two ways of computing weights, gives the same noise on other weights:
their difference is then free of noise. So a key is bound to every parameter of a plan with its
defaults resolved, and to every constant that decides weights, noise, thresholds and cutoffs, each read
from the module that uses it (`mechanism_parameters` of the plans). `public_user_count` is left out,
since nothing is computed from it. Changes that are not numbers, such as the shape of a formula or how
draws are keyed, raise the mechanism's version instead.
"""

import json
from typing import Any

from beam_dpne.mechanism import finite_noise, gaussian

_DECIDES_NOTHING = "public_user_count"


def without_user_count(fields: dict[str, Any]) -> dict[str, Any]:
    """Returns the parameters of a plan that decide a release."""
    return {name: value for name, value in fields.items() if name != _DECIDES_NOTHING}


def noise_constants() -> dict[str, Any]:
    """Returns the constants on which all noise depends."""
    return {**gaussian.constants(), **finite_noise.constants()}


def as_json_types(parameters: dict[str, Any]) -> dict[str, Any]:
    """Returns the values that JSON gives back: lists for tuples."""
    return json.loads(json.dumps(parameters))
