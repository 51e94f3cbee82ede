"""The files in which budgets and series keep what was spent, and how they are read."""

import functools
from typing import TypeVar

import msgspec

from beam_dpne.errors import BudgetError
from beam_dpne.storage.directories import as_release_error, directory_at

BUDGET_NAME = "budget.json"
SERIES_NAME = "series.json"
KEY_NAME = "participants.json"
_FOLDERS = {
    BUDGET_NAME: "the folder of a budget (`budget`)",
    SERIES_NAME: "the public folder of a series (`series`)",
    KEY_NAME: "the private folder of a series (`participants`)",
}
# Notes and ledgers of runs, and marks of releases of a series.
_OF_RUNS = (".json", ".recorded")

as_budget_error = functools.partial(as_release_error, kind=BudgetError)

_State = TypeVar("_State", bound=msgspec.Struct)


def what_is_at(path: str) -> str:
    """Returns what a folder is, if it is one of a budget or of a series, else an empty text.

    Raises:
      BudgetError: The folder cannot be read.
    """
    with as_budget_error(f"the folder {path} cannot be read"):
        names = directory_at(path).names()
    return next((what for file, what in _FOLDERS.items() if file in names), "")


def read_state(path: str, file: str, kind: type[_State], *, option: str, command: str) -> _State:
    """Returns what the folder of a budget or of a series is about.

    Args:
      path: The folder.
      file: The name of the file that says it.
      kind: What the file is, with the tag of its schema.
      option: The parameter that names the folder, for messages.
      command: The command that makes one, for messages.

    Raises:
      BudgetError: There is no such file, or it is damaged, or the folder is of another kind.
    """
    what = what_is_at(path)
    if what == _FOLDERS[file]:
        with as_budget_error(f"{path} cannot be read"):
            return decoded(directory_at(path).read(file) or b"", kind, f"{path}/{file}")
    if what:
        wanted = _FOLDERS[file].removesuffix(f" (`{option}`)")
        raise BudgetError(f"`{option}` must be {wanted}, got {path}, which is {what}.")
    remedy = f"Make one: {command}."
    with as_budget_error(f"the folder {path} cannot be read"):
        names = directory_at(path).names()
    if any(name.endswith(_OF_RUNS) for name in names):
        remedy = (
            f"It has files of runs: restore {file}, with the newest copies of all files of the budget "
            "or series. A new one would not know what was spent, and adds to it."
        )
    raise BudgetError(f"`{option}` must be a folder with {file}, got {path}. {remedy}")


class _Head(msgspec.Struct):
    schema: str


def decoded(data: bytes, kind: type[_State], name: str) -> _State:
    """Returns what a file of a budget or of a series says.

    Args:
      data: The bytes of the file.
      kind: What it is, with the tag of its schema.
      name: Its name, for messages.

    Raises:
      BudgetError: It is damaged, or of another version of this package.
    """
    with as_budget_error(f"{name} is damaged"):
        found = msgspec.json.decode(data, type=_Head).schema
        own = kind.__struct_config__.tag
        if found != own:
            raise BudgetError(
                f"{name} has schema {found!r}; this version reads {own}. Go on with the version of "
                "beam-dpne that wrote it."
            )
        return msgspec.json.decode(data, type=kind)
