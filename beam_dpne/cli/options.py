"""An option of a command, defined once for the parser, the help, and launch templates."""

import argparse
import dataclasses
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any


@dataclasses.dataclass(frozen=True, kw_only=True)
class Option:
    """One option of a program.

    Attributes:
      name: without dashes.
      help: its meaning, a sensible value, and the consequence of a wrong one.
      default: value when it is left out, or None.
      parse: from text to value; one of the functions below, each of which has a pattern.
      choices: the only values, if they are few.
      repeatable: may be given several times.
      flag: on or off; without a value it is on.
      path: "files" or "file" if the value names files to read, "directory" if it names one to write,
        else "".
      form_pattern: instead of the pattern of `parse`.
      shown_default: the default in words, where it depends on other options.
    """

    name: str
    help: str
    default: Any = None
    parse: Callable[[str], Any] = str
    choices: Sequence[str] = ()
    repeatable: bool = False
    flag: bool = False
    path: str = ""
    form_pattern: str = ""
    shown_default: str = ""

    @property
    def default_text(self) -> str:
        """The default as the help and the README's table show it."""
        if self.shown_default:
            return self.shown_default
        if self.flag:
            return "off"
        return "none" if self.default is None else str(self.default)

    @property
    def pattern(self) -> str:
        """Regular expression of the texts that a launch form may send.

        The parser takes each of them, and the program refuses all others. The pattern is in the
        syntax that Python, Java and RE2 share, for a match of the whole text.
        """
        return self.form_pattern or PATTERNS[boolean if self.flag else self.parse]


# The options of a command, by the title under which its help and its launch form show them.
Table = Mapping[str, Sequence[Option]]


def boolean(text: str) -> bool:
    """Parses `true` and `false`."""
    return {"true": True, "false": False}[_matched(text, "true|false")]


def integer(text: str) -> int:
    """Parses `10`, without blanks, underscores or digits of other scripts, which forms lack."""
    return int(_matched(text, f"-?{_INTEGER}"))


def number(text: str) -> float:
    """Parses `0.5` and `1e-7`; the checks of values refuse numbers that are not finite."""
    return float(_matched(text, f"-?({_NUMBER}|inf|nan)"))


def integers(text: str) -> int | tuple[int, ...]:
    """Parses `10` or `10,20,20`."""
    values = tuple(integer(part) for part in text.split(","))
    return values[0] if len(values) == 1 else values


def numbers(text: str) -> tuple[float, ...]:
    """Parses `0.5,0.25,0.25`."""
    return tuple(number(part) for part in text.split(","))


def names(text: str) -> tuple[str, ...]:
    """Parses `user,text`."""
    return tuple(part.strip() for part in text.split(","))


def field(text: str) -> list[str]:
    """Parses the name of one field, commas and all; each further option adds one."""
    return [text]


def addresses(text: str) -> list[str]:
    """Parses one path, or several full addresses with commas between, since a form has one field.

    >>> addresses("gs://bucket/a.csv, gs://bucket/b,c.csv")
    ['gs://bucket/a.csv', 'gs://bucket/b,c.csv']
    """
    return re.split(r",\s*(?=[A-Za-z][-+.A-Za-z0-9]*://)", text)


def _matched(text: str, pattern: str) -> str:
    if not re.fullmatch(pattern, text):
        raise ValueError("the text does not match")
    return text


_INTEGER = "[0-9]{1,18}"
_NUMBER = r"([0-9]+\.?[0-9]*|\.[0-9]+)([eE][-+]?[0-9]{1,4})?"
_LINE = r"[^\r\n]+"
FIELD_PATTERN = r"[^\x00-\x1f\"\\]+"
PATTERNS: Mapping[Callable[[str], Any], str] = {
    str: _LINE,
    boolean: "true|false",
    integer: _INTEGER,
    number: _NUMBER,
    integers: f"{_INTEGER}(,{_INTEGER})*",
    numbers: f"{_NUMBER}(,{_NUMBER})*",
    names: _LINE,
    field: FIELD_PATTERN,
    addresses: _LINE,
}


def add_options(parser: argparse.ArgumentParser, title: str, options: Sequence[Option]) -> None:
    """Adds a titled group of options to a parser; options left out become None."""
    group = parser.add_argument_group(title)
    for option in options:
        text = f"{option.help} (default: {option.default_text})".replace("%", "%%")
        flag = f"--{option.name}"
        if option.flag:
            given = {"nargs": "?", "const": True, "type": boolean, "metavar": "true|false"}
            group.add_argument(flag, help=text, **given)
        elif option.choices:
            group.add_argument(flag, choices=option.choices, help=text)
        else:
            action = "extend" if option.repeatable else "store"
            group.add_argument(flag, type=option.parse, action=action, metavar="X", help=text)


def add_table(parser: argparse.ArgumentParser, table: Table) -> None:
    """Adds all options of a table, each group under its name."""
    for title, options in table.items():
        add_options(parser, title, options)


def add_program(parser: argparse.ArgumentParser, table: Table) -> None:
    """Adds all options of a program whose `output` is the directory of a release."""
    add_table(parser, table)
    parser.set_defaults(publishes=True)


def options_of(table: Table) -> tuple[Option, ...]:
    """Returns the options of all groups of a table, in order."""
    return tuple(option for options in table.values() for option in options)


def changed(options: Sequence[Option], **changes: Mapping[str, Any]) -> tuple[Option, ...]:
    """Returns the options, with other values of the fields named for some of them.

    Args:
      options: to copy.
      changes: by the name of an option, its changed fields.
    """
    return tuple(dataclasses.replace(option, **changes.get(option.name, {})) for option in options)


def with_defaults(given: argparse.Namespace, options: Sequence[Option]) -> dict[str, Any]:
    """Returns the values of options, defaults for those left out."""
    values = {}
    for option in options:
        value = getattr(given, option.name)
        if value is None:
            value = False if option.flag else option.default
        values[option.name] = value
    return values
