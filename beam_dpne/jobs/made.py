"""From the values that a user gave by name to objects: one way for all faces.

A face reads values in its own form (options, keys of YAML, fields of an operator). Here a file of
parameters joins them, and `Made` makes the groups, each of whose parameters is checked once.
"""

import dataclasses
import importlib
import os
import pathlib
from collections.abc import Collection, Mapping, Sequence
from typing import Any, TypeVar, cast

from beam_dpne.errors import UsageError
from beam_dpne.validation import Parameter, Parameters, json_parameters, made_from, parameters_of

# Groups of parameters, by the title under which help and forms show them.
Groups = Mapping[str, Sequence[type[Parameters]]]
_Group = TypeVar("_Group", bound=Parameters)


def load_groups(named: Mapping[str, Sequence[str]]) -> Groups:
    """Returns the classes of groups, each given as "module:Class" below `beam_dpne`."""
    return {
        title: [imported(f"beam_dpne.{name}") for name in names] for title, names in named.items()
    }


def imported(name: str) -> Any:
    """Returns what "module:name" names; the module is imported."""
    module, _, attribute = name.partition(":")
    return getattr(importlib.import_module(module), attribute)


def parameters_in(groups: Groups) -> dict[str, Parameter]:
    """Returns all parameters of groups by name."""
    kinds = (kind for kinds in groups.values() for kind in kinds)
    return {each.name: each for kind in kinds for each in parameters_of(kind)}


class Made:
    """The groups of a command with their values; making them checks every parameter, once.

    Attributes:
      names: names of all parameters.
      given: names of those that were given.
    """

    def __init__(self, groups: Groups, given: Mapping[str, Any], *, whole: bool = True) -> None:
        """Makes each group from the values that are given; all others have their defaults.

        For a release of a series, the series gives ε and δ (`accounting.series`). Unless it must be
        whole, groups are left out that lack a parameter without a default.

        Raises:
          UsageError: parameters without a default are not given.
          ValueError: a value is wrong.
        """
        kinds = [kind for kinds in groups.values() for kind in kinds]
        parameters = [each for kind in kinds for each in parameters_of(kind)]
        self.given = frozenset(given)
        if given.get("series") is not None:
            # Its libraries take time to load, which runs of no series do without.
            from beam_dpne.accounting.series import with_share

            for each in parameters:
                if each.name == "series":
                    each.checked(given["series"])
            given = with_share(given)
        missing = [each for each in parameters if each.required and each.name not in given]
        if not whole:
            left_out = {each.name for each in missing}
            kinds = [kind for kind in kinds if not left_out & _fields_of(kind)]
        elif missing:
            for each in parameters:
                if each.name in given:
                    each.checked(given[each.name])
            raise _about_missing(missing)
        self._made = {kind: made_from(kind, given) for kind in kinds}
        self.names = [each.name for each in parameters]

    def __getitem__(self, kind: type[_Group]) -> _Group:
        """Returns the group of a class."""
        return cast("_Group", self._made[kind])

    def __contains__(self, kind: type) -> bool:
        """Whether the command has a group."""
        return kind in self._made


def _fields_in(groups: Groups) -> set[str]:
    """Returns the names of all fields of groups, which a file of parameters may have."""
    return {name for kinds in groups.values() for kind in kinds for name in _fields_of(kind)}


def _fields_of(kind: type[Parameters]) -> set[str]:
    return {field.name for field in dataclasses.fields(kind)}


def _about_missing(missing: Sequence[Parameter]) -> UsageError:
    """Returns the error about parameters that must be given; of a single one it says the meaning."""
    if len(missing) == 1:
        only = missing[0]
        choices = f" It is one of {', '.join(only.choices)}." if only.choices else ""
        return UsageError(f"`{only.name}` must be given. {only.help}{choices}")
    return UsageError(f"{named([each.name for each in missing])} must be given.")


def named(names: Sequence[str]) -> str:
    """Returns names of parameters for a message.

    >>> named(["delta"]), named(["users", "epsilon", "delta"])
    ('`delta`', '`users`, `epsilon` and `delta`')
    """
    *others, last = (f"`{name}`" for name in names)
    return f"{', '.join(others)} and {last}" if others else last


def typed_values(given: Mapping[str, Any], known: Mapping[str, Parameter]) -> dict[str, Any]:
    """Returns values of a face that has types, by name; what is None counts as not given.

    Templates of such a face give texts, so that a text that a command line would take is parsed.

    Raises:
      ValueError: a text has a wrong form.
    """
    return {
        name: known[name].parse(value) if isinstance(value, str) else value
        for name, value in given.items()
        if value is not None
    }


def with_file(given: Mapping[str, Any], groups: Groups) -> dict[str, Any]:
    """Returns values with those in the JSON file of parameters that `plan` names, if it is given.

    Args:
      given: values by name.
      groups: the groups whose parameters the file may have; it names no further file.

    Raises:
      ValueError: a parameter is given twice, or a value of the file is wrong, or as in
        `read_parameters`.
    """
    values = {name: value for name, value in given.items() if name != "plan"}
    path = given.get("plan")
    if path is not None:
        in_file = read_parameters(path, _fields_in(groups) - {"plan"})
        if both := sorted(in_file.keys() & values.keys()):
            raise UsageError(
                f"`{both[0]}` is in the file {path} already; leave it out beside the file."
            )
        known = parameters_in(groups)
        for name in in_file.keys() & known.keys():
            try:
                known[name].checked(in_file[name])
            except ValueError as error:
                said = str(error).replace("`", "")
                raise UsageError(f"in the file {path}: {said}") from None
        values |= in_file
    return values


def read_parameters(path: str, known: Collection[str]) -> dict[str, Any]:
    """Returns the parameters in a JSON file by name; those that are null are left out.

    Raises:
      ValueError: the file cannot be read, holds no JSON object, or has a name that is not known.
    """
    if not path:
        raise UsageError("`plan` must be the path of a file, got `plan=''`.")
    if "://" in path:
        text = _read_remote(path)
    else:
        # Without Beam, which takes a second to load, so that an error of a parameter comes at once.
        try:
            text = pathlib.Path(os.path.expanduser(path)).read_bytes()
        except OSError as error:
            raise UsageError(f"`plan` cannot be read, got {path} ({error.strerror}).") from None
    try:
        values = json_parameters(text, known, f"`plan` {path}")
    except ValueError:
        _refuse_plan_of_another(path, text)
        raise
    return {name: value for name, value in values.items() if value is not None}


def _refuse_plan_of_another(path: str, text: bytes) -> None:
    """Raises UsageError if all that a file has are parameters of the plan of another program."""
    from beam_dpne.accounting.expense import PLANS  # Its libraries take time to load.

    for program, kind in PLANS.items():
        try:
            json_parameters(text, _fields_of(kind))
        except ValueError:
            continue
        raise UsageError(
            f"`plan` must be a file of parameters of this command, got {path}, which is a plan of "
            f"{program}."
        ) from None


def _read_remote(path: str) -> bytes:
    from beam_dpne.storage.directories import as_release_error, check_access, directory_at

    folder, name = os.path.split(path)
    with as_release_error(f"`plan` cannot be read, got {path}", UsageError):
        check_access([path], [])
        text = directory_at(folder).read(name)
    if text is None:
        raise UsageError(f"`plan` cannot be read, got {path}: there is no such file.")
    return text
