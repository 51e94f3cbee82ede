"""The command line of a command, made from its groups of parameters (`validation.Parameter`)."""

import argparse
import dataclasses
import json
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any, NoReturn, TypeVar, cast

from beam_dpne.cli.parameters import PlanFile
from beam_dpne.errors import UsageError
from beam_dpne.validation import Parameter, Parameters, parameters_of

# The groups of parameters of a command, by the title under which its help shows them.
Groups = Mapping[str, Sequence[type[Parameters]]]
# The values that a user has given, by name; all others have their defaults.
Given = Mapping[str, Any]
_Group = TypeVar("_Group", bound=Parameters)


class OneLineParser(argparse.ArgumentParser):
    """A parser that prints an error as one line, and the usage only for --help."""

    def error(self, message: str) -> NoReturn:
        """Prints the error and exits with status 2."""
        self.exit(2, f"beam-dpne: error: {message}. See --help.\n")


def all_parameters(groups: Groups) -> dict[str, Parameter]:
    """Returns all parameters of a command by name, rare ones included."""
    kinds = (kind for kinds in groups.values() for kind in kinds)
    return {each.name: each for kind in kinds for each in parameters_of(kind)}


def add_options(parser: argparse.ArgumentParser, groups: Groups, positional: str = "") -> None:
    """Adds an option for each parameter that is not rare; the help names the rare ones.

    Args:
      parser: the parser.
      groups: the groups of parameters.
      positional: name of the parameter whose values come without its name.
    """
    rare = [name for name, each in all_parameters(groups).items() if each.rare]
    for title, kinds in groups.items():
        shown = parser.add_argument_group(title)
        for each in (each for kind in kinds for each in parameters_of(kind) if not each.rare):
            _add_option(shown, each, positional)
    if rare:
        parser.epilog = f"A file named with --plan may also hold: {', '.join(rare)}."


def _add_option(group: Any, each: Parameter, positional: str) -> None:
    text = f"{each.help} (default: {each.shown_default})".replace("%", "%%")
    metavar = f"{{{','.join(each.choices)}}}" if each.choices else "X"
    if each.name == positional:
        nargs = "*" if each.several else "?"
        group.add_argument(each.name, nargs=nargs, metavar=each.name.upper(), help=text)
    elif each.kind is bool:
        # Beside positional values a flag takes none; launch forms send true or false.
        bare = {"action": "store_const"} if positional else {"nargs": "?", "metavar": "true|false"}
        group.add_argument(f"--{each.name}", const="true", help=text, **bare)
    else:
        action = "append" if each.several else "store"
        group.add_argument(f"--{each.name}", action=action, metavar=metavar, help=text)


def given_values(parsed: argparse.Namespace, groups: Groups) -> dict[str, Any]:
    """Returns the values that the command line and the file of the option `plan` give.

    Raises:
      ValueError: a value has a wrong form, a name is unknown, or a parameter is given twice.
    """
    parameters = all_parameters(groups)
    given = {
        name: _parsed(each, value)
        for name, each in parameters.items()
        if (value := getattr(parsed, name, None)) not in (None, [])
    }
    if not any(kind is PlanFile for kinds in groups.values() for kind in kinds):
        return given
    path = given.pop("plan", None)
    if path is None:
        return given
    known = {field.name for kinds in groups.values() for kind in kinds for field in _fields(kind)}
    in_file = read_parameters(path, known - {"plan"})
    if both := [name for name in in_file if name in given]:
        raise UsageError(
            f"{both[0]} is in the file {path} already; leave out the option --{both[0]}, or change "
            "the file."
        )
    return given | in_file


def read_parameters(path: str, known: set[str]) -> dict[str, Any]:
    """Returns the parameters in a JSON file by name; those that are null are left out.

    Raises:
      UsageError: the file holds no JSON object, or has a name that is not known.
    """
    text = read_text(path, "plan", "a JSON file as written by `beam-dpne plan`")
    try:
        values = json.loads(text)
    except (ValueError, RecursionError):
        values = None
    if not isinstance(values, dict):
        raise UsageError(f"plan must be a file with a JSON object of parameters, got plan={path}.")
    if unknown := sorted(set(values) - known):
        raise UsageError(
            f"plan must have parameters of this command, got {unknown[0]!r}; they are "
            f"{', '.join(sorted(known))}."
        )
    return {name: value for name, value in values.items() if value is not None}


class Made:
    """The groups of a command with their values; making them checks every parameter, once.

    Attributes:
      names: names of all parameters.
    """

    def __init__(self, groups: Groups, given: Given) -> None:
        """Makes each group.

        Raises:
          UsageError: parameters without a default are not given.
          ValueError: a value is wrong.
        """
        kinds = [kind for kinds in groups.values() for kind in kinds]
        missing = [
            each
            for kind in kinds
            for each in parameters_of(kind)
            if each.required and each.name not in given
        ]
        if missing:
            names = " and ".join(each.name for each in missing)
            raise UsageError(f"{names} must be given. {' '.join(each.help for each in missing)}")
        self._made = {kind: _made(kind, given) for kind in kinds}
        self.names = [each.name for kind in kinds for each in parameters_of(kind)]

    def __getitem__(self, kind: type[_Group]) -> _Group:
        """Returns the group of a class."""
        return cast("_Group", self._made[kind])

    def __contains__(self, kind: type) -> bool:
        """Whether the command has a group."""
        return kind in self._made


def _made(kind: type[Parameters], given: Given) -> Parameters:
    return kind(**{each.name: given[each.name] for each in _fields(kind) if each.name in given})


def _parsed(each: Parameter, value: str | list[str]) -> Any:
    """Returns a value from its text, or from the texts of an option that is given repeatedly."""
    if isinstance(value, str):
        return each.parse(value)
    parts = [each.parse(text) for text in value]
    values = tuple(x for part in parts for x in (part if isinstance(part, tuple) else (part,)))
    return values[0] if each.single and len(values) == 1 else values


def _fields(kind: type[Parameters]) -> tuple["dataclasses.Field[Any]", ...]:
    # The base class is no dataclass, but every group is one.
    fields: Any = dataclasses.fields
    return fields(kind)


def read_text(path: str, name: str, wanted: str) -> str:
    """Returns the text of a file.

    Args:
      path: path of the file.
      name: name of the option that gives it, for errors.
      wanted: description of the file that should be named, for errors.

    Raises:
      UsageError: if it cannot be read, or is no UTF-8.
    """
    systems = _file_systems(path)
    try:
        if systems is None:
            return pathlib.Path(path).read_bytes().decode("utf-8")
        with systems.open(path, compression_type="uncompressed") as file:
            return file.read().decode("utf-8")
    except Exception as error:
        raise UsageError(
            f"{name} cannot be read, got {path} ({type(error).__name__}). Name {wanted}."
        ) from None


def write_file(name: str, path: str, data: bytes) -> None:
    """Writes the file that the parameter `name` gives.

    Raises:
      UsageError: if it cannot be written.
    """
    systems = _file_systems(path)
    try:
        if systems is None:
            pathlib.Path(path).write_bytes(data)
            return
        with systems.create(path, compression_type="uncompressed") as file:
            file.write(data)
    except Exception as error:
        why = getattr(error, "strerror", None) or type(error).__name__
        raise UsageError(f"{name} cannot be written, got {path} ({why}).") from None


def _file_systems(path: str) -> Any:
    """Returns Beam's file systems for a path on one of them, else None.

    Raises:
      AccessError: if the file system cannot be used.
    """
    if "://" not in path:
        return None
    from apache_beam.io.filesystems import FileSystems

    from beam_dpne.storage.access import check_access
    from beam_dpne.storage.directories import connect_anonymously_to_emulators

    connect_anonymously_to_emulators()
    check_access([path], [])
    return FileSystems
