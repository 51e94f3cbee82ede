"""What a parameter is, its check, and the JSON form of a group of parameters.

The one definition of a parameter is the field of the dataclass that holds it: its type and default, and
a `Parameter` with its range and help. The command line, Beam YAML, launch forms, the page of options
and plan files are made from it (`parameters_of`), and making the object checks it once (`Parameters`).
Each check raises ValueError with the parameter's name, its requirement, its value and the remedy.
"""

import dataclasses
import functools
import json
import math
import re
import types
import typing
from collections.abc import Sequence
from typing import Annotated, Any, ClassVar, TypeVar, cast

ADJACENCY = "add_or_remove_one_user"
LARGE_DELTA = 1e-3
MAX_USERS = 2**30
_MIN_DELTA = 1e-20
_DECIDES_NOTHING = ("public_user_count", "adjacency")
_Plan = TypeVar("_Plan", bound="PlanParameters")


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


@dataclasses.dataclass(frozen=True, kw_only=True)
class Parameter:
    """The definition of one parameter, as the metadata of its field: `Annotated[int, Parameter(…)]`.

    Help is written in whole sentences that hold for Python, JSON, YAML and the command line alike:
    the meaning, a sensible value, the consequence of a wrong one. Other parameters are named as they
    are, without dashes.

    Attributes:
      help: the meaning.
      least, most: the closed ends of its range.
      above, below: the open ends of its range.
      choices: all allowed values, if they are few.
      pattern: the regular expression of a text, in the syntax that Python, Java and RE2 share.
      requirement: describes the allowed values, where their range does not.
      remedy: ends the error of a wrong value.
      default_text: the default in words, where it depends on other parameters.
      rare: whether it stands in plan files, YAML and Python only, and not on the command line.
      path: "files" or "file" for files to read, "directory" for one to write, else "".
      name, kind, single, several, optional, required, default: what `parameters_of` reads from the
        field: its name; int, float, str or bool; whether it may be one such value, or a tuple of them;
        whether it may be None; whether it has no default; the default.
    """

    help: str
    least: float | None = None
    most: float | None = None
    above: float | None = None
    below: float | None = None
    choices: Sequence[str] = ()
    pattern: str = ""
    requirement: str = ""
    remedy: str = ""
    default_text: str = ""
    rare: bool = False
    path: str = ""
    name: str = ""
    kind: type = str
    single: bool = True
    several: bool = False
    optional: bool = False
    required: bool = False
    default: Any = None

    @property
    def must_be(self) -> str:
        """Describes the allowed values, e.g. "an integer from 1 to 100"."""
        one = self.requirement or self._range
        if not self.several:
            return one
        return f"{one}, or a list of them" if self.single else f"a list, each of it {one}"

    @property
    def shown_default(self) -> str:
        """The default as help and documentation show it."""
        if self.default_text or self.required:
            return self.default_text or "required"
        if self.kind is bool:
            return str(bool(self.default)).lower()
        if isinstance(self.default, tuple):
            return ",".join(map(str, self.default))
        return "none" if self.default is None else str(self.default)

    @property
    def text_pattern(self) -> str:
        """The regular expression of the texts that `parse` accepts."""
        one = self.pattern or "|".join(self.choices) or _PATTERNS[self.kind]
        listed = self.several and self.kind in (int, float)
        return f"({one})(,({one}))*" if listed else one

    def parse(self, text: str) -> Any:
        """Returns the value that a text gives; numbers and choices of a list have commas between them.

        Raises:
          ValueError: if the text has another form.
        """
        listed = self.several and (self.kind in (int, float) or self.choices)
        parts = text.split(",") if listed else [text]
        if self.kind is not str and not all(re.fullmatch(_PATTERNS[self.kind], x) for x in parts):
            self._refuse(text)
        values = tuple(part == "true" if self.kind is bool else self.kind(part) for part in parts)
        return values[0] if self.single and len(values) == 1 else values

    def checked(self, value: Any) -> Any:
        """Returns a value as the field holds it: whole numbers as float, lists as tuples.

        Raises:
          ValueError: if it has another type, or is out of range.
        """
        if value is None and self.optional:
            return None
        if self.several and isinstance(value, list | tuple):
            if not value:
                self._refuse(value)
            return tuple(self._checked_one(each, value) for each in value)
        if not self.single:
            self._refuse(value)
        return self._checked_one(value, value)

    @property
    def _range(self) -> str:
        if self.choices:
            return f"one of {', '.join(self.choices)}"
        if self.kind in (str, bool):
            return "true or false" if self.kind is bool else "text"
        noun = "an integer" if self.kind is int else "a number"
        low = self.least if self.above is None else self.above
        high = self.most if self.below is None else self.below
        if low is None:
            return noun if self.kind is int else "a finite number"
        if high is None:
            return f"{noun} of at least {low:g}" if self.above is None else f"{noun} > {low:g}"
        if self.kind is int:
            return f"an integer from {low:d} to {high:d}"
        ends = "(["[self.above is None], ")]"[self.below is None]
        return f"a number in {ends[0]}{low:g}, {high:g}{ends[1]}"

    def _checked_one(self, value: Any, given: Any) -> Any:
        allowed = int | float if self.kind is float else self.kind
        if not isinstance(value, allowed) or (isinstance(value, bool) and self.kind is not bool):
            self._refuse(given)
        if isinstance(value, str):
            known = not self.choices or value in self.choices
            if not known or (self.pattern and not re.fullmatch(self.pattern, value)):
                self._refuse(given)
        elif self.kind is not bool:
            value = self.kind(value) if abs(value) < _LARGEST_NUMBER else math.inf
            in_range = (
                math.isfinite(value)
                and (self.least is None or value >= self.least)
                and (self.most is None or value <= self.most)
                and (self.above is None or value > self.above)
                and (self.below is None or value < self.below)
            )
            if not in_range:
                self._refuse(given)
        return value

    def _refuse(self, value: Any) -> typing.NoReturn:
        text = f"{self.name} must be {self.must_be}, got {self.name}={value!r}. {self.remedy}"
        raise ValueError(text.rstrip())


_PATTERNS: dict[type, str] = {
    str: r"[^\r\n]+",
    bool: "true|false",
    int: "-?[0-9]{1,18}",
    float: r"-?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][-+]?[0-9]{1,4})?",
}
_LARGEST_NUMBER = 10**300


@functools.cache
def parameters_of(group: type) -> tuple[Parameter, ...]:
    """Returns the parameters of a dataclass, in the order of its fields."""
    return tuple(
        _of_field(field)
        for field in dataclasses.fields(group)
        if typing.get_origin(field.type) is typing.Annotated
    )


def _of_field(field: dataclasses.Field[Any]) -> Parameter:
    hint, parameter = typing.get_args(field.type)[:2]
    members = typing.get_args(hint) if _is_union(hint) else (hint,)
    plain = [member for member in members if member in _PATTERNS]
    lists = [typing.get_args(member)[0] for member in members if typing.get_origin(member)]
    required = field.default is dataclasses.MISSING
    return dataclasses.replace(
        parameter,
        name=field.name,
        kind=(*plain, *lists)[0],
        single=bool(plain),
        several=bool(lists),
        optional=type(None) in members,
        required=required,
        default=None if required else field.default,
    )


def _is_union(hint: Any) -> bool:
    return typing.get_origin(hint) in (typing.Union, types.UnionType)


class Parameters:
    """Base of dataclasses that hold parameters: making one checks each of them by its definition.

    A subclass that checks more has a `__post_init__` that calls this one first.
    """

    def __post_init__(self) -> None:
        for each in parameters_of(cast("Any", type(self))):
            object.__setattr__(self, each.name, each.checked(getattr(self, each.name)))


@dataclasses.dataclass(frozen=True, kw_only=True)
class PlanParameters(Parameters):
    """The budget of a plan and its JSON form, for dataclasses whose fields are all its parameters.

    Attributes:
      decides_defaults: the parameter on which defaults of others depend.
    """

    decides_defaults: ClassVar[str]

    epsilon: Annotated[
        float,
        Parameter(
            above=0,
            remedy="It is the privacy budget of the whole run; 1 to 4 is common for text.",
            help="Privacy budget ε of the whole run, per user. 1 to 4 is common for text, and 0.1 "
            "to 1 for probabilities of public n-grams; above 10 little is protected. A smaller ε "
            "releases less.",
        ),
    ]
    delta: Annotated[
        float,
        Parameter(
            above=0,
            below=1,
            remedy="A sensible delta is well below one over the number of users, e.g. 1e-7 for a "
            "million.",
            help="Privacy budget δ of the whole run, per user. Choose it well below one over the "
            "number of users, e.g. 1e-7 for a million users. A larger δ may expose single users.",
        ),
    ]
    public_user_count: Annotated[
        int | None,
        Parameter(
            least=1,
            rare=True,
            help="Number of users of the input, if it is public, e.g. 50000; it must never be "
            "counted in the private data. A delta above one over this number is refused. Without "
            "it, a delta of 0.001 or more causes a warning. It does not change the release.",
        ),
    ] = None
    adjacency: str = ADJACENCY

    def __post_init__(self) -> None:
        super().__post_init__()
        check_least_delta(self.delta)
        check_user_count(self.delta, self.public_user_count)
        check_choice("adjacency", self.adjacency, (ADJACENCY,))

    def to_dict(self) -> dict[str, Any]:
        """Returns the parameters as JSON types."""
        return dataclasses.asdict(cast("Any", self))

    def to_json(self) -> str:
        """Returns the parameters as a JSON object; inverse of `from_json`."""
        return json.dumps(self.to_dict(), indent=2) + "\n"

    def key_parameters(self) -> dict[str, Any]:
        """Returns ε, δ and the resolved parameters that differ from their defaults, as JSON types.

        A run key is bound to them (`key_context`). So a parameter that goes, or one that is added,
        changes no release in which it has its default.
        """
        cls, chosen = type(self), self.decides_defaults
        plain = cls(**{"epsilon": 1.0, "delta": 1e-6, chosen: getattr(self, chosen)}).to_dict()
        default = next(f.default for f in dataclasses.fields(cast("Any", cls)) if f.name == chosen)
        plain = plain | {"epsilon": None, "delta": None, chosen: default}
        return {
            name: value
            for name, value in self.to_dict().items()
            if value != plain[name] and name not in _DECIDES_NOTHING
        }

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
