"""Folders of lake tables, whose Parquet files hold rows that were deleted.

A table of Delta, Hudi or Iceberg is a folder of files with a log that says which of them, and which of
their rows, are in the table now. Whoever reads all files gets deleted rows back, among them those of
people who were erased.
"""

import fnmatch
import os
from collections.abc import Iterable

from beam_dpne.errors import InputError
from beam_dpne.storage.directories import reason
from beam_dpne.storage.objects import exists
from beam_dpne.storage.paths import around, has_folders, is_local, matching

# For each kind of table, what its folder has; of one of these patterns there is a file.
_MARKS = {
    "Delta": "_delta_log/*",
    "Hudi": ".hoodie/*",
    "Iceberg": "metadata/*.metadata.json*",
}
_REMEDIES = {
    "Delta": "On this machine's file system name the folder of the table alone as the input, or: ",
    "Hudi": "",
    "Iceberg": "On this machine's file system name its current metadata file, which its catalog knows, "
    "as the input, or: ",
}


def refuse_lake_tables(name: str, paths: Iterable[str]) -> None:
    """Refuses files of a lake table, in its folder or in a folder below it; links are followed.

    Args:
      name: The parameter that names the files.
      paths: Paths of files, or of folders with a slash at the end, local or on any Beam file system.

    Raises:
      InputError: A file is of such a table, or nobody can say whether it is.
    """
    found = {place for path in paths for place in (path, _target_of(path))}
    for folder in sorted({above for path in found for above in around(path.rpartition("/")[0])}):
        for kind, mark in _MARKS.items():
            try:
                is_table = _has(folder, mark)
            except OSError as error:
                raise InputError(
                    f"`{name}` must be files in folders that can be listed, got files in {folder}, "
                    f"where {mark} cannot be looked up ({reason(error)}). They may be of a {kind} "
                    "table, and have rows that were deleted from it. Try again, get the right to "
                    "list there, or give copies of the files in another place."
                ) from None
            if is_table:
                raise _refusal(name, kind, folder)


def refuse_listed_tables(name: str, paths: Iterable[str]) -> None:
    """Refuses a folder if there is a lake table in it, by the paths of all files in it and below.

    Raises:
      InputError: A file is of a table.
    """
    for path in paths:
        for kind, mark in _MARKS.items():
            if fnmatch.fnmatchcase(path, f"*/{mark}"):
                raise _refusal(name, kind, path.rpartition(f"/{mark.partition('/')[0]}/")[0])


def _refusal(name: str, kind: str, folder: str) -> InputError:
    """Returns the error about files of a table."""
    remedy = _REMEDIES[kind] if name == "input" else ""
    return InputError(
        f"`{name}` must not be files of a {kind} table, got files in {folder}. They have rows that "
        f"were deleted from the table, perhaps those of erased people. {remedy}Export the current "
        "version of the table to Parquet files, and give these."
    )


def _target_of(path: str) -> str:
    """Returns where a local path leads; a folder's has a slash at the end."""
    if not is_local(path):
        return path
    target = os.path.realpath(path)
    return f"{target}/" if os.path.isdir(target) else target


def _has(folder: str, mark: str) -> bool:
    """Whether a folder has a file of a pattern.

    Raises:
      OSError: That cannot be looked up.
    """
    inner, _, pattern = mark.partition("/")
    try:
        if is_local(folder):
            return bool(fnmatch.filter(os.listdir(os.path.join(folder, inner)), pattern))
        return bool(matching(f"{folder}/{mark}"))
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError:
        if is_local(folder) or not has_folders(folder):
            raise
        # Some file systems fail if they are to list a folder that is not there.
        if exists(f"{folder}/{inner}"):
            raise
        return False
