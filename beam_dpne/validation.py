"""What a parameter is, its check, and the JSON form of a group of parameters.

The one definition of a parameter is the field of the dataclass that holds it: its type and default, and
a `Parameter` with its range and help. The command line, Beam YAML, launch forms, the page of options
and plan files are made from it (`parameters_of`), and making the object checks it once (`Parameters`).
Each check raises ValueError with the parameter's name, its requirement, its value and the remedy.
"""

import csv
import dataclasses
import difflib
import functools
import io
import json
import math
import re
import types
import typing
from collections.abc import Collection, Iterator, Mapping, Sequence, Set
from typing import Annotated, Any, TypeVar

LARGE_DELTA = 1e-3
# A run refuses it, unless the number of users is public and small.
TOO_LARGE_DELTA = 1e-2
MAX_USERS = 2**30
# What columns, arrays and frames of all libraries have.
_OF_DATA = ("__array__", "__arrow_c_stream__", "__arrow_c_array__", "__dataframe__")
# A text with more characters, or a list with more members, may be data, and no message has it.
_LONGEST_TOLD = 100
MOST_TOLD = 8
_NAME = re.compile(r"[\w.\-\[\]]{1,64}")


@dataclasses.dataclass(frozen=True)
class Parameter:
    """The definition of one parameter, as the metadata of its field: `Annotated[int, Parameter(…)]`.

    Help is one or two whole sentences that hold for Python, JSON, YAML and the command line alike;
    other parameters are named without dashes.

    Attributes:
      help: the meaning.
      least, most: the closed ends of its range.
      above, below: the open ends of its range.
      choices: all allowed values, if they are few.
      names: allowed values that have names, where others are allowed, too; a wrong value may mean one.
      pattern: the regular expression of a text, in the syntax that Python, Java and RE2 share.
      requirement: describes the allowed values, where their range does not.
      remedy: ends the error of a wrong value.
      default_text: the default in words, where it depends on other parameters.
      in_short_help: whether `--help` has a line about it; `--help-all` shows every parameter.
      essential: whether it is among the first in a command's help, as are all without a default.
      value: the word for a value in help, where its kind and its name do not give a good one.
      commas: whether one text gives several names with commas between them, also where mostly one is
        given.
      path: "files" or "file" for files to read, "directory" for one to write, else "".
      name, kind, single, several, optional, required, default: what `parameters_of` reads from the
        field: its name; int, float, str or bool; whether it may be one such value, or a tuple of them;
        whether it may be None; whether it has no default; the default.
    """

    help: str = ""
    least: float = -math.inf
    most: float = math.inf
    above: float = -math.inf
    below: float = math.inf
    choices: Sequence[str] = ()
    names: Sequence[str] = ()
    pattern: str = ""
    requirement: str = ""
    remedy: str = ""
    default_text: str = ""
    in_short_help: bool = True
    essential: bool = False
    value: str = ""
    commas: bool = False
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
        return f"{one}, or a list of them" if self.single else f"a list, each member {one}"

    @property
    def shown_default(self) -> str:
        """The default as help and documentation show it."""
        if self.default_text or self.required:
            return self.default_text or "required"
        if isinstance(self.default, tuple):
            return ",".join(map(str, self.default))
        text = str(self.default)
        return text.lower() if self.default is None or self.kind is bool else text

    @property
    def shown_value(self) -> str:
        """The word for a value in help; a flag has none."""
        if self.kind is bool or self.value:
            return self.value
        words = {"files": "FILES", "file": "FILE", "directory": "DIR"}
        last = "N" if self.kind in (int, float) else self.name.rpartition("_")[2].upper()
        return words.get(self.path, last)

    @property
    def has_commas(self) -> bool:
        """Whether one text gives a whole list, with commas between its members.

        Paths, and names of which there is mostly one, may have commas in them: of these a list is given
        by one text for each member, unless the parameter says otherwise (`commas`).
        """
        is_list_of_names = not self.single and not self.path
        return self.several and (
            self.kind in (int, float) or bool(self.choices) or is_list_of_names or self.commas
        )

    def parse(self, text: str) -> Any:
        """Returns the value that a text gives.

        A list has commas between its members, and a name with a comma is enclosed in double quotes, as
        in a line of CSV (`has_commas`).

        Raises:
          ValueError: if the text has another form.

        >>> Parameter(name="columns", single=False, several=True).parse('user,"text, long"')
        ('user', 'text, long')
        """
        parts = self._members(text) if self.has_commas else [text]
        if self.kind is not str and not all(re.fullmatch(PATTERNS[self.kind], x) for x in parts):
            self._refuse(text)
        values = tuple(part == "true" if self.kind is bool else self.kind(part) for part in parts)
        return values[0] if self.single and len(values) == 1 else values

    def texts(self, value: Any) -> list[str]:
        """Returns the texts that `parse` reads as a value, one for each time that its option is given.

        >>> Parameter(name="columns", single=False, several=True).texts(["user", "text, long"])
        ['user,"text, long"']
        >>> Parameter(name="input", several=True, path="files").texts(["a.csv", "b.csv"])
        ['a.csv', 'b.csv']
        """
        if self.commas and isinstance(value, str):
            value = [value]
        if not isinstance(value, list | tuple):
            return [_text(value)]
        members = [_text(each) for each in value]
        if not self.has_commas:
            return members
        if self.kind is not str:
            return [",".join(members)]
        line = io.StringIO()
        csv.writer(line, lineterminator="").writerow(members)
        return [line.getvalue()]

    def checked(self, value: Any) -> Any:
        """Returns a value as the field holds it: whole numbers as float, lists as tuples.

        Raises:
          ValueError: if it has another type, or is out of range.
        """
        if value is None and self.optional:
            return None
        is_list = self.several and isinstance(value, list | tuple)
        values: Any = value if is_list else [value]
        if not values or not (is_list or self.single) or not all(map(self._allows, values)):
            self._refuse(value)
        held = tuple(map(float, values)) if self.kind is float else tuple(values)
        if self.choices and len(set(held)) < len(held):
            raise ValueError(
                f"`{self.name}` must name each value once, got `{self.name}={told_value(held)}`."
            )
        return held if is_list else held[0]

    def _members(self, text: str) -> list[str]:
        """Returns the texts between the commas of a list; raises ValueError if a quote is open."""
        if self.kind is not str:
            return text.split(",")
        try:
            return comma_separated(text)
        except ValueError:
            self._refuse(text)

    def _allows(self, value: Any) -> bool:
        kinds = int | float if self.kind is float else self.kind
        if not isinstance(value, kinds) or (isinstance(value, bool) and self.kind is not bool):
            return False
        if isinstance(value, str):
            if not value:
                return False
            known = not self.choices or value in self.choices
            return known and (not self.pattern or bool(re.fullmatch(self.pattern, value)))
        in_range = self.least <= value <= self.most and self.above < value < self.below
        return in_range and math.isfinite(value)

    @property
    def _range(self) -> str:
        if self.choices:
            return f"one of {', '.join(self.choices)}"
        if self.kind in (str, bool):
            words = "a path" if self.path else "text"
            return words if self.kind is str else "true or false"
        noun = "an integer" if self.kind is int else "a number"
        low = max(self.least, self.above)
        high = min(self.most, self.below)
        if low == -math.inf:
            return noun
        if high == math.inf:
            return f"{noun} of at least {low:g}" if low == self.least else f"{noun} > {low:g}"
        if self.kind is int:
            return f"an integer from {low:.0f} to {high:.0f}"
        # A round bracket stands at an end that does not belong to the range.
        left = "(" if low > self.least else "["
        right = ")" if high < self.most else "]"
        return f"a number in {left}{low:g}, {high:g}{right}"

    def _refuse(self, value: Any) -> typing.NoReturn:
        got = f"`{self.name}={told_value(value)}`"
        members = value if isinstance(value, list | tuple) else [value]
        must_be = self.must_be
        if self.choices and self.several and members is value and members:
            must_be = f"some of {', '.join(self.choices)}"
        text = f"`{self.name}` must be {must_be}, got {got}. {self.remedy}".rstrip()
        numbers = [each for each in members if type(each) in (int, float)]
        is_name = self.kind is str and not self.path and self.value not in ("DIR", "FILE")
        if is_name and numbers and all(self._allows(str(each)) for each in numbers):
            text = f"{text} Put numbers in quotes."
        raise ValueError(f"{text}{self._near(value)}")

    def _near(self, value: Any) -> str:
        """Returns a question with the allowed names that are nearest to a value, or ""."""
        for each in value if isinstance(value, list | tuple) else [value]:
            if isinstance(each, str) and not self._allows(each):
                return did_you_mean(each, (*self.choices, *self.names))
        return ""


def holds_data(value: object) -> bool:
    """Whether a value is a column, an array, a frame, a mapping, a set or an iterator, or has one."""
    if isinstance(value, Mapping | Set | Iterator):
        return True
    if isinstance(value, list | tuple):
        return any(map(holds_data, value))
    is_number = getattr(value, "shape", None) == ()
    return not is_number and any(hasattr(value, name) for name in _OF_DATA)


def told_value(value: object) -> str:
    """Returns a value as messages have it; of what may be data they have the type and the size alone.

    Numbers, names and short texts, and short lists of them, are told as they are. A text with blanks
    in it may be somebody's, unless it is a path.

    >>> import pyarrow as pa
    >>> told_value(("a", "b")), told_value(True), told_value("a"), told_value(pa.array(["my pin"]))
    ('a,b', 'true', "'a'", 'StringArray')
    >>> told_value(["pin"] * 20), told_value("my pin"), told_value({"pin": 1}), told_value(b"pin")
    ('list of 20', 'str of 6', 'dict of 1', 'bytes of 3')
    """
    members = value if isinstance(value, list | tuple) else [value]
    told = [_told_alone(each) for each in members]
    texts = [each for each in told if each is not None]
    is_short = len(texts) <= MOST_TOLD and sum(map(len, texts)) <= _LONGEST_TOLD
    if len(texts) == len(members) and is_short:
        return repr(value) if isinstance(value, str) else ",".join(texts) or "''"
    kind = type(value).__name__
    sized = isinstance(value, str | bytes | list | tuple | Mapping | Set)
    return f"{kind} of {len(value):,}" if sized else kind


def _told_alone(value: object) -> str | None:
    """Returns a number, a name or a short text as messages have it, and None of all else."""
    if type(value) is str:
        is_one = "/" in value or not re.search(r"\s", value)
        return value if is_one and len(value) <= _LONGEST_TOLD else None
    return _text(value) if type(value) in (int, float, bool, types.NoneType) else None


def first_names(names: Sequence[str], most: int = 30) -> str:
    """Returns the first of several names as messages list them.

    >>> first_names(["a", "b"]), first_names(["a", "b", "c"], 2)
    ('a, b', 'a, b and 1 more')
    """
    more = f" and {len(names) - most:,} more" if len(names) > most else ""
    return f"{', '.join(names[:most])}{more}"


def told_name(name: str) -> str:
    """Returns the name of a field as messages have it; one that may be a text is told by its length.

    >>> told_name("customer_id"), told_name("turns[].said"), told_name("my pin")
    ("'customer_id'", "'turns[].said'", 'a text of 6 characters')
    """
    return repr(name) if is_name(name) else f"a text of {len(name)} characters"


def is_name(text: str) -> bool:
    """Whether a text looks like the name of a field: it is short, and one word."""
    return bool(_NAME.fullmatch(text))


def _text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


# A member of a list in a line of CSV, as `comma_separated` reads it; an empty one is quoted.
MEMBER = r"""("([^"\x00-\x1f]|"")*"|[^",\x00-\x1f][^,\x00-\x1f]*)"""


def comma_separated(text: str) -> list[str]:
    """Returns the members of a list in a text; one with a comma is in double quotes, as in CSV.

    Raises:
      ValueError: a quote is open, or stands within a member.

    >>> comma_separated('user,"Smith, Ann"')
    ['user', 'Smith, Ann']
    """
    try:
        (members,) = csv.reader([text], strict=True)
    except csv.Error as error:
        raise ValueError(str(error)) from None
    return members


PATTERNS: dict[type, str] = {
    str: r"[^\r\n]+",
    bool: "true|false",
    int: "-?[0-9]{1,18}",
    float: r"-?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][-+]?[0-9]{1,4})?",
}


@functools.cache
def parameters_of(group: "type[Parameters]") -> tuple[Parameter, ...]:
    """Returns the parameters of a dataclass, in the order of its fields."""
    return tuple(
        _of_field(field)
        for field in dataclasses.fields(group)
        if typing.get_origin(field.type) is Annotated
    )


def _of_field(field: dataclasses.Field[Any]) -> Parameter:
    hint, parameter = typing.get_args(field.type)[:2]
    is_union = typing.get_origin(hint) in (typing.Union, types.UnionType)
    members = typing.get_args(hint) if is_union else (hint,)
    plain = [member for member in members if member in PATTERNS]
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


def check_integer(name: str, value: Any, least: int, most: float = math.inf) -> None:
    """Checks an integer with a least and an optional largest value."""
    Parameter(name=name, kind=int, least=least, most=most).checked(value)


def check_share(name: str, value: Any) -> None:
    """Checks a share, a number in [0, 1]."""
    Parameter(name=name, kind=float, least=0, most=1).checked(value)


def check_choice(name: str, value: Any, choices: Sequence[str]) -> None:
    """Checks that a text is one of a few choices."""
    Parameter(name=name, choices=choices).checked(value)


def check_count(name: str, values: Sequence[Any], count: int) -> None:
    """Checks that a list has one value for each length."""
    if len(values) != count:
        raise ValueError(
            f"`{name}` must have one value for each of the {count} lengths, got {len(values)}."
        )


EPSILON = Parameter(
    "Privacy budget ε of the whole run, per user: 1 to 4 is common for text, 0.1 to 1 for "
    "probabilities; above 10 little is protected.",
    above=0,
    remedy="It is the privacy budget of the whole run; 1 to 4 is common for text.",
    essential=True,
    name="epsilon",
    kind=float,
)
DELTA = Parameter(
    "Privacy budget δ, per user: well below one over the number of users, e.g. 1e-7 for a million. A "
    "larger δ may expose single users.",
    above=0,
    below=1,
    remedy="A sensible delta is well below one over the number of users, e.g. 1e-7 for a million.",
    essential=True,
    name="delta",
    kind=float,
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


@dataclasses.dataclass(frozen=True, kw_only=True)
class Parameters:
    """Base of dataclasses that hold parameters: making one checks each of them by its definition.

    A subclass that checks more has a `__post_init__` that calls this one first.
    """

    def __post_init__(self) -> None:
        for each in parameters_of(type(self)):
            object.__setattr__(self, each.name, each.checked(getattr(self, each.name)))


_Group = TypeVar("_Group", bound=Parameters)


def made_from(kind: type[_Group], values: Mapping[str, Any]) -> _Group:
    """Makes a group of parameters from the values that a user gave by name.

    It is the one place in which names become arguments. What is not given has its default, and values
    of other groups are left alone.

    Raises:
      ValueError: a value is wrong.
    """
    names = [field.name for field in dataclasses.fields(kind)]
    return kind(**{name: values[name] for name in names if name in values})


def did_you_mean(name: str, known: Collection[str], prefix: str = "") -> str:
    """Returns a question with the known names that are nearest to another one, if any are near.

    >>> did_you_mean("epsilom", ["delta", "epsilon"]), did_you_mean("x", ["delta"])
    (' Did you mean epsilon?', '')
    >>> did_you_mean("text", ["Text", "texts", "date"])
    ' Did you mean Text or texts?'
    """
    folded = {each.lower(): each for each in known}
    near = difflib.get_close_matches(name.lower(), folded, n=2, cutoff=0.7)
    return f" Did you mean {' or '.join(prefix + folded[each] for each in near)}?" if near else ""


class _Pairs(list[tuple[str, Any]]):
    """The names and values of an object of JSON, in order; a name may be there twice."""


def json_parameters(
    text: str | bytes, known: Collection[str], source: str = "`plan`"
) -> dict[str, Any]:
    """Reads a JSON object of parameters with known names; its ValueError quotes no value."""
    try:
        pairs = json.loads(text, object_pairs_hook=_Pairs)
    except (ValueError, RecursionError) as error:
        line = getattr(error, "lineno", 1)
        raise ValueError(f"{source} must be a JSON object; line {line} is not JSON.") from None
    if not isinstance(pairs, _Pairs):
        raise ValueError(f"{source} must be a JSON object of parameters.")
    values = dict[str, Any]()
    for name, value in pairs:
        if name in values:
            raise ValueError(f"{source} must have each parameter once, got {name} twice.")
        values[name] = value
    if unknown := sorted(set(values) - set(known)):
        hint = did_you_mean(unknown[0], known)
        raise ValueError(f"{source} must have known parameters, got {unknown[0]}.{hint}")
    return values
