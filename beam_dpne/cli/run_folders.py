"""The run's temporary folder, which only its owner can read and which is deleted at the end.

An embedded run writes sets that are as private as the data to this machine's temporary directory. A
run that was killed (SIGKILL) deletes nothing, so the next run deletes its folder. A running launcher
holds a lock on a file in its folder, and the system releases the lock when the process ends.
"""

import contextlib
import importlib.util
import logging
import os
import platform
import shutil
import stat
import sys
from collections.abc import Iterator

from apache_beam.io.filesystems import FileSystems

from beam_dpne.elements import side_inputs
from beam_dpne.errors import UsageError

PREFIX = ".beam_dpne-"
# The lock has the name of the machine, since two machines that mount one folder may not see each
# other's locks.
_LOCK = f"locked-on-{platform.node()}"
_HAS_LOCKS = importlib.util.find_spec("fcntl") is not None

# The folders of runs that have not ended: by path, whether this process alone uses it.
_in_use: dict[str, bool] = {}
_ATTEMPTS = 3


@contextlib.contextmanager
def run_folder(parent: str, name: str, *, embedded: bool = False) -> Iterator[str]:
    """Yields the path of the run's temporary folder, and deletes the folder at the end.

    Args:
      parent: a directory on storage that workers and launcher share.
      name: name of the folder in that directory.
      embedded: whether this process alone uses the folder. If so, and on a local file system, only its
        owner can read it, and folders of embedded runs that were killed are deleted first. On an
        engine a job may outlive its launcher, so folders of other runs are left alone.

    Raises:
      UsageError: if an embedded run cannot make its folder.
    """
    folder = FileSystems.join(parent, name)
    with contextlib.ExitStack() as stack:
        _in_use[folder] = embedded
        stack.callback(_in_use.pop, folder)
        if embedded and _HAS_LOCKS and FileSystems.get_scheme(folder) is None:
            _delete_abandoned(parent)
            stack.enter_context(_locked(folder))
        stack.callback(delete_and_report, folder)
        yield folder


def delete_at_once() -> None:
    """Deletes the local folders of embedded runs when the process is ended, and names all others.

    Threads may still write while a folder is deleted, hence several attempts.
    """
    for folder, embedded in _in_use.items():
        is_local = FileSystems.get_scheme(folder) is None
        for _ in range(_ATTEMPTS if embedded and is_local else 0):
            shutil.rmtree(folder, ignore_errors=True)
        if not is_local or os.path.lexists(folder):
            with contextlib.suppress(OSError):
                print(
                    f"beam-dpne: ended at once; the temporary folder {folder} may be left. It is as "
                    "private as the data; delete it when no job uses it.",
                    file=sys.stderr,
                )


def delete_and_report(folder: str) -> None:
    """Deletes the folder of a run; a folder that cannot be deleted is logged and fails nothing."""
    side_inputs.forget()
    try:
        _delete_folder(folder)
    except Exception as error:
        logging.getLogger(__name__).warning(
            "The run's temporary files in %s could not be deleted (%s).",
            folder,
            type(error).__name__,
        )


def _delete_folder(folder: str) -> None:
    if FileSystems.get_scheme(folder) is None:
        if os.path.isdir(folder):
            shutil.rmtree(folder)
        return
    found = FileSystems.match([FileSystems.join(folder, "*")])[0].metadata_list
    if found:
        FileSystems.delete([file.path for file in found])


@contextlib.contextmanager
def _locked(folder: str) -> Iterator[None]:
    """Makes the folder so that only its owner can read it, and locks it until the run or process ends.

    Raises:
      UsageError: if the folder cannot be made.
    """
    try:
        handle = _locked_folder(folder)
    except OSError as error:
        raise UsageError(
            f"temp_location must be writable, got {os.path.dirname(folder)} ({type(error).__name__})."
        ) from None
    try:
        yield
    finally:
        os.close(handle)


def _locked_folder(folder: str) -> int:
    """Makes the folder and its lock, which is locked before it gets its name; returns the handle."""
    import fcntl

    os.makedirs(os.path.dirname(folder) or ".", exist_ok=True)
    os.mkdir(folder, mode=0o700)
    new = os.path.join(folder, f"{_LOCK}.new")
    handle = os.open(new, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
    fcntl.flock(handle, fcntl.LOCK_EX)
    os.rename(new, os.path.join(folder, _LOCK))
    return handle


def _delete_abandoned(parent: str) -> None:
    """Deletes the folders of this user's embedded runs whose processes have ended."""
    with contextlib.suppress(OSError), os.scandir(parent or ".") as entries:
        for entry in entries:
            if entry.name.startswith(PREFIX) and _is_private_folder(entry):
                with contextlib.suppress(OSError):
                    _delete_if_abandoned(entry.path)


def _is_private_folder(entry: os.DirEntry[str]) -> bool:
    with contextlib.suppress(OSError):
        found = entry.stat(follow_symlinks=False)
        is_ours = stat.S_ISDIR(found.st_mode) and found.st_uid == os.getuid()
        return is_ours and not found.st_mode & 0o077
    return False


def _delete_if_abandoned(folder: str) -> None:
    """Deletes a folder whose lock is free; raises OSError if the lock is taken or missing."""
    import fcntl

    handle = os.open(os.path.join(folder, _LOCK), os.O_RDWR | os.O_NOFOLLOW)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        shutil.rmtree(folder)
    finally:
        os.close(handle)
