"""Paths beside and inside releases: what is as private as the data must not be put into one."""

import os
from collections.abc import Iterator

from apache_beam.io.filesystems import FileSystems

from beam_dpne.release.ledger import LEDGER_NAME


def absolute(path: str) -> str:
    """Returns a path that means the same in the working directory of another process."""
    return os.path.abspath(path) if is_local(path) else path


def is_local(path: str) -> bool:
    """Whether a path is of this machine, instead of a bucket or another Beam file system."""
    return FileSystems.get_scheme(path) is None


def real_path(path: str) -> str:
    """Returns a path without links and without its last slashes."""
    return (os.path.realpath(path) if is_local(path) else path).rstrip("/")


def is_inside(path: str, folder: str) -> bool:
    """Whether a path is a directory, or somewhere in it."""
    return f"{real_path(path)}/".startswith(f"{real_path(folder)}/")


def has_ledger(folder: str) -> bool:
    """Whether a directory holds the ledger of a release; a broken link counts as one."""
    ledger = f"{folder}/{LEDGER_NAME}"
    return os.path.lexists(ledger) if is_local(folder) else FileSystems.exists(ledger)


def release_around(path: str) -> str | None:
    """Returns the directory of the release that a path is in, or None; links are followed.

    The path itself may be that directory; "" stands for the root.
    """
    return next(filter(has_ledger, upwards(real_path(path))), None)


def upwards(path: str) -> Iterator[str]:
    """Yields a path and all directories above it, the last of which is "" or a bucket's address.

    >>> list(upwards("/a/b")), list(upwards("gs://a/b"))
    (['/a/b', '/a', ''], ['gs://a/b', 'gs://a'])
    """
    scheme, separator, rest = path.rpartition("://")
    while rest:
        yield scheme + separator + rest.rstrip("/")
        rest = rest.rstrip("/").rpartition("/")[0]
    if not separator:
        yield ""
