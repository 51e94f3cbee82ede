"""Paths of releases: which path is a release, and which is in one."""

import contextlib
import os
import re

from beam_dpne.errors import UsageError
from beam_dpne.storage.directories import absolute_path
from beam_dpne.storage.objects import exists
from beam_dpne.storage.paths import around, is_local, is_pipe, join

LEDGER_NAME = "ledger.json"


def ledger_path(path: str) -> str:
    """Returns the path of a release's ledger, given that path or the release's directory."""
    last = re.split(r"[/\\]", path)[-1]
    return path if last == LEDGER_NAME else join(path, LEDGER_NAME)


def release_folder(path: str) -> str:
    """Returns the path of a release's directory, given that path or the release's ledger."""
    return ledger_path(path)[: -len(LEDGER_NAME)] or os.curdir


def real_path(path: str) -> str:
    """Returns a path without symbolic links and without slashes at its end."""
    return (os.path.realpath(absolute_path(path)) if is_local(path) else path).rstrip("/")


def has_ledger(folder: str) -> bool:
    """Returns whether a directory holds the ledger of a release."""
    return exists(f"{folder}/{LEDGER_NAME}")


def is_release(name: str, path: str) -> bool:
    """Returns whether a parameter names a ledger or a directory, which if remote must have a ledger.

    Raises:
      FileNotFoundError: The path is local, and nothing is there, or a pipe.
    """
    if is_local(path) and not os.path.exists(path):
        raise FileNotFoundError(f"`{name}` must name an existing file or directory, got {path}.")
    if is_pipe(path):
        raise FileNotFoundError(
            f"`{name}` must name a file that can be read several times, got {path}, which is a pipe "
            "or a device; write it into a file."
        )
    is_folder = os.path.isdir(path) if is_local(path) else has_ledger(path)
    return is_folder or path.endswith(LEDGER_NAME)


def check_outside(name: str, path: str, release: str | None = None) -> None:
    """Checks that a path is neither a release nor inside one; links are followed.

    Args:
      name: Name of the parameter that gives the path.
      path: Path of a file or a directory, local or on any Beam file system; it may be missing.
      release: Path of a release that may be missing yet, or None.

    Raises:
      UsageError: It is in a release.
    """
    own = None if release is None else release_folder(release)
    for folder in _around(path):
        if (own is not None and _is_same(folder, own)) or has_ledger(folder):
            raise UsageError(
                f"`{name}` must be outside every release, got `{name}={path}`, which is in "
                f"{folder}: what is in the directory of a release is published with it."
            )


def check_not_below(name: str, path: str, output: str) -> None:
    """Refuses what is as secret as the data in the directory of a release to come; links are followed.

    Args:
      name: Name of the parameter that gives the path.
      path: Path of a file or a directory, local or on any Beam file system; it may be missing.
      output: Directory of the release.

    Raises:
      UsageError: It is that directory, or in it, as it is written or where links lead.
    """
    if any(_is_same(folder, output) for folder in _around(path)):
        raise UsageError(
            f"`{name}` must be outside the directory of the release, got `{name}={path}` and "
            f"`output={output}`: what is in that directory is published. Choose another output."
        )


def check_no_release_in(name: str, path: str, output: str) -> None:
    """Refuses a release in a folder that has files and locks of its own, such as that of a series.

    Args:
      name: Name of the parameter that gives the folder.
      path: The folder.
      output: Directory of the release.

    Raises:
      UsageError: It is that folder, or in it, as it is written or where links lead.
    """
    if any(_is_same(folder, path) for folder in _around(output)):
        raise UsageError(
            f"`output` must be outside the folder of `{name}`, got `output={output}` and "
            f"`{name}={path}`. Choose another output."
        )


def _around(path: str) -> list[str]:
    """Returns a path and the folders around it, as it is written and then where links lead."""
    starts = {absolute_path(path).rstrip("/"): None, real_path(path): None}
    return [folder for start in starts for folder in around(start)]


def _is_same(folder: str, other: str) -> bool:
    """Whether two paths name one folder, which need not exist."""
    if real_path(folder) == real_path(other):
        return True
    # A file system may know one folder by several names, as those that ignore case do.
    with contextlib.suppress(OSError):
        return is_local(folder) and os.path.samefile(folder, absolute_path(other))
    return False
