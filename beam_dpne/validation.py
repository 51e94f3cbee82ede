"""Checks that the parameter objects share: each raises ValueError with name, requirement and value."""

import dataclasses
import json
from collections.abc import Sequence
from typing import Any, TypeVar, cast

ADJACENCY = "add_or_remove_one_user"
MAX_USERS = 2**30
_MIN_DELTA = 1e-20
_Plan = TypeVar("_Plan", bound="JsonParameters")


def as_float(name: str, value: Any) -> float:
    """Returns a number as float."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ValueError(f"{name} must be a number, got {name}={value!r}.")
    try:
        return float(value)
    except OverflowError:
        raise ValueError(f"{name} must be a number that a float can hold.") from None


def check_delta(delta: float) -> None:
    """Checks that δ is not below what the noise of 128 bits can give, whatever else a plan says."""
    if delta < _MIN_DELTA:
        raise ValueError(
            f"delta must be at least {_MIN_DELTA}, where the noise of 128 bits ends, got delta={delta}."
        )


def check_integer(name: str, value: Any, least: int, most: int | None = None) -> None:
    """Checks an integer with a least value, and perhaps a largest."""
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
    """Checks one of a few values."""
    if value not in choices:
        listed = ", ".join(map(str, choices))
        raise ValueError(f"{name} must be one of {listed}, got {name}={value!r}.")


class JsonParameters:
    """The JSON round trip of a plan: a dataclass whose fields are all its parameters."""

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


def json_parameters(text: str, known: Sequence[str], required: Sequence[str]) -> dict[str, Any]:
    """Reads the parameters of a plan from a JSON object.

    Args:
      text: of the object.
      known: the names that it may have.
      required: those that it must have.

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
