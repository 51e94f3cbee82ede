"""The run's temporary folder, which only its owner can read and which is deleted at the end.

An embedded run writes sets that are as private as the data to this machine's temporary directory. A
run that was killed (SIGKILL) deletes nothing, so the next run deletes its folder: a living launcher
holds a lock on a file in its folder, and the system releases the lock when the process has ended.
"""

import contextlib
import importlib.util
import logging
import os
import platform
import shutil
import stat
from collections.abc import Iterator

from apache_beam.io.filesystems import FileSystems

from beam_dpne.elements import side_inputs
from beam_dpne.errors import UsageError

PREFIX = ".beam_dpne-"
# The name of the machine is in it: in a folder that two machines mount, one may not see the lock of
# the other.
_LOCK = f"locked-on-{platform.node()}"
_HAS_LOCKS = importlib.util.find_spec("fcntl") is not None


@contextlib.contextmanager
def run_folder(parent: str, name: str, *, embedded: bool = False) -> Iterator[str]:
    """Yields the path of the run's temporary folder, and deletes what the run has put there.

    Args:
      parent: directory on storage that workers and launcher share.
      name: of the folder in it.
      embedded: whether this process alone uses it. If so, and on a local file system, nobody else
        can read it, and folders of embedded runs that were killed are deleted first. On an engine a
        job may outlive its launcher, so that no such folder is deleted.

    Raises:
      UsageError: if an embedded run cannot make its folder.
    """
    folder = FileSystems.join(parent, name)
    with contextlib.ExitStack() as stack:
        if embedded and _HAS_LOCKS and FileSystems.get_scheme(folder) is None:
            _delete_abandoned(parent)
            stack.enter_context(_locked(folder))
        stack.callback(_delete_and_report, folder)
        yield folder


def _delete_and_report(folder: str) -> None:
    side_inputs.forget(folder)
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
    """Makes the folder, for its owner only, and holds its lock until the run or the process ends.

    Raises:
      UsageError: if that cannot be done.
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
    """Returns the handle of the lock; its file appears under its name when it is locked."""
    import fcntl

    os.makedirs(os.path.dirname(folder) or ".", exist_ok=True)
    os.mkdir(folder, mode=0o700)
    new = os.path.join(folder, f"{_LOCK}.new")
    handle = os.open(new, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
    fcntl.flock(handle, fcntl.LOCK_EX)
    os.rename(new, os.path.join(folder, _LOCK))
    return handle


def _delete_abandoned(parent: str) -> None:
    """Deletes folders of embedded runs of this user whose process has ended, whatever their age."""
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
    """Deletes a folder whose lock is free; raises OSError if a process holds it or it is missing."""
    import fcntl

    handle = os.open(os.path.join(folder, _LOCK), os.O_RDWR | os.O_NOFOLLOW)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        shutil.rmtree(folder)
    finally:
        os.close(handle)
