"""Checks and the JSON form of parameters, which all plans share.

Each check raises ValueError with the parameter's name, its requirement and its value.
"""

import dataclasses
import json
import math
from collections.abc import Sequence
from typing import Any, TypeVar, cast

ADJACENCY = "add_or_remove_one_user"
LARGE_DELTA = 1e-3
MAX_USERS = 2**30
_MIN_DELTA = 1e-20
_DECIDES_NOTHING = "public_user_count"
_Plan = TypeVar("_Plan", bound="JsonParameters")


def as_float(name: str, value: Any) -> float:
    """Returns a number as float."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ValueError(f"{name} must be a number, got {name}={value!r}.")
    try:
        return float(value)
    except OverflowError:
        raise ValueError(f"{name} must be a number that a float can hold.") from None


def check_budget(epsilon: float, delta: float) -> None:
    """Checks a whole budget; raises ValueError."""
    if not (math.isfinite(epsilon) and epsilon > 0):
        raise ValueError(f"epsilon must be a finite number > 0, got {epsilon=}.")
    check_delta(delta)


def check_delta(delta: float) -> None:
    """Checks δ; raises ValueError."""
    if not 0 < delta < 1:
        raise ValueError(
            f"delta must be in (0, 1), got {delta=}. A sensible delta is well below one over the "
            "number of users, e.g. 1e-7 for a million."
        )


def check_least_delta(delta: float) -> None:
    """Checks that δ is not so small that noise of 128 bits cannot provide it under any plan."""
    if delta < _MIN_DELTA:
        raise ValueError(
            f"delta must be at least {_MIN_DELTA}, where the noise of 128 bits ends, got delta={delta}."
        )


def check_user_count(delta: float, public_user_count: int | None) -> None:
    """Checks that δ is at most one over the public number of users, unless that is None."""
    if public_user_count is None:
        return
    check_integer("public_user_count", public_user_count, 1)
    if delta * public_user_count > 1:
        raise ValueError(
            f"delta must be at most 1/public_user_count={1 / public_user_count:.3g}, got {delta=} and "
            f"{public_user_count=}: with more, a run that publishes everything about one user would "
            "be within the guarantee. Lower delta to well below that."
        )


def about_large_delta(delta: float) -> str | None:
    """Returns a warning about a δ of 0.001 or more, and None for a smaller one.

    >>> about_large_delta(0.01)
    'delta=0.01 is large: publishing everything about one user in 100 would be within the guarantee'
    """
    if delta < LARGE_DELTA:
        return None
    return (
        f"{delta=:g} is large: publishing everything about one user in {max(1, int(1 / delta))} would "
        "be within the guarantee"
    )


def check_integer(name: str, value: Any, least: int, most: int | None = None) -> None:
    """Checks an integer with a least and an optional largest value."""
    is_integer = isinstance(value, int) and not isinstance(value, bool)
    if is_integer and least <= value and (most is None or value <= most):
        return
    range_ = f"of at least {least}" if most is None else f"from {least} to {most}"
    raise ValueError(f"{name} must be an integer {range_}, got {name}={value!r}.")


def check_count(name: str, values: Sequence[Any], count: int) -> None:
    """Checks that a list has one value for each length."""
    if len(values) != count:
        raise ValueError(
            f"{name} must have one value for each of the {count} lengths, got {len(values)}."
        )


def check_choice(name: str, value: Any, choices: Sequence[Any]) -> None:
    """Checks that a value is one of a few choices."""
    if value not in choices:
        listed = ", ".join(map(str, choices))
        raise ValueError(f"{name} must be one of {listed}, got {name}={value!r}.")


class JsonParameters:
    """The JSON form of a plan, for dataclasses whose fields are all the parameters of a plan."""

    def to_dict(self) -> dict[str, Any]:
        """Returns the parameters as JSON types."""
        return dataclasses.asdict(cast("Any", self))

    def to_json(self) -> str:
        """Returns the parameters as a JSON object; inverse of `from_json`."""
        return json.dumps(self.to_dict(), indent=2) + "\n"

    @classmethod
    def from_json(cls: type[_Plan], text: str) -> _Plan:
        """Reads a plan written by `to_json`; absent parameters take their defaults.

        Raises:
          ValueError: if it is not a JSON object, or has a parameter that plans do not have.
        """
        known = [field.name for field in dataclasses.fields(cast("Any", cls))]
        return cls(**json_parameters(text, known, ("epsilon", "delta")))


def deciding_parameters(fields: dict[str, Any]) -> dict[str, Any]:
    """Returns the parameters of a plan that decide a release, to which its run key is bound.

    If one key were used on one input under two ways of computing weights, the same noise would be added
    to different weights, and their difference would be free of noise. So the key is bound to every
    parameter with its default resolved, and to every constant that decides weights, noise, thresholds
    and cuts, each read from the module that uses it (`mechanism_parameters` of the plans). Only
    public_user_count is left out, since nothing is computed from it. Changes that are not numbers, such
    as the shape of a formula or the way in which draws are keyed, raise the mechanism's version.
    """
    return {name: value for name, value in fields.items() if name != _DECIDES_NOTHING}


def as_json_types(parameters: dict[str, Any]) -> dict[str, Any]:
    """Returns parameters as JSON gives them back, with lists for tuples."""
    return json.loads(json.dumps(parameters))


def json_parameters(text: str, known: Sequence[str], required: Sequence[str]) -> dict[str, Any]:
    """Reads the parameters of a plan from a JSON object.

    Args:
      text: the object.
      known: the names that it may have.
      required: the names that it must have.

    Raises:
      ValueError: if it is not such an object; the message quotes no value.
    """
    try:
        parameters = json.loads(text)
    except json.JSONDecodeError as error:
        raise ValueError(
            f"A plan must be a JSON object; line {error.lineno} is not JSON."
        ) from None
    except (ValueError, RecursionError):
        raise ValueError("A plan must be a JSON object of plain numbers and words.") from None
    if not isinstance(parameters, dict):
        raise ValueError(f"A plan must be a JSON object, got {type(parameters).__name__}.")
    if unknown := sorted(set(parameters) - set(known)):
        raise ValueError(f"A plan has no parameter {unknown[0]!r}; it has {sorted(known)}.")
    if missing := sorted(set(required) - set(parameters)):
        raise ValueError(f"A plan needs {' and '.join(missing)}, without a default.")
    return parameters
