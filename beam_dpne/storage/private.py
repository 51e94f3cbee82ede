"""Files that only their owner can use: locks of runs, and what runs write between their steps.

They lie in one folder for each user, `.beam_dpne-NUMBER` with the number of the user, in the system's
temporary folder or in another one that is named. Its owner and its mode are checked each time, so that
nobody else can have put a file or a link into it.
"""

import contextlib
import os
import shutil
import socket
import stat
import tempfile
from collections.abc import Iterator

from beam_dpne.errors import AccessError

_OWNER_ALONE = 0o700
_OTHERS = 0o077


def private_home(parent: str | None = None) -> str:
    """Returns this user's private folder in a folder, and makes it if it is missing.

    Args:
      parent: The folder around it; None for the system's temporary one.

    Raises:
      AccessError: Something else is there, or others than its owner can use it.
    """
    around = parent or tempfile.gettempdir()
    os.makedirs(around, exist_ok=True)
    user = os.getuid() if os.name == "posix" else 0
    path = os.path.join(around, f".beam_dpne-{user}")
    with contextlib.suppress(FileExistsError):
        os.mkdir(path, _OWNER_ALONE)
    found = os.lstat(path)
    is_open = os.name == "posix" and found.st_mode & _OTHERS
    if is_open or not stat.S_ISDIR(found.st_mode) or found.st_uid != user:
        raise AccessError(
            f"{path} must be a folder that you own and nobody else can use: runs put locks there, "
            "and sets that are as secret as the data. Remove it, or set TMPDIR to another folder."
        )
    return path


@contextlib.contextmanager
def run_folder(parent: str | None = None) -> Iterator[str]:
    """Gives a run a private folder, and deletes it at the end, with those of runs that were killed.

    A run has a lock on its folder as long as it lives, by which others know that it does. Folders of
    other machines that share the disk are left alone.

    Args:
      parent: The folder around the user's private folder; None for the system's temporary one.

    Yields:
      The path of the folder.

    Raises:
      AccessError: See `private_home`.
    """
    home = private_home(parent)
    prefix = f"run-{socket.gethostname()}-"
    with contextlib.ExitStack() as stack:
        # A new folder has its lock before another run looks for folders without one.
        with contextlib.ExitStack() as alone:
            if _lock(alone, home):
                _delete_left_behind(home, prefix)
            folder = tempfile.mkdtemp(prefix=prefix, dir=home)
            stack.callback(shutil.rmtree, folder, ignore_errors=True)
            _lock(stack, folder)
        yield folder


def _delete_left_behind(home: str, prefix: str) -> None:
    """Deletes the folders of this machine's runs on which nobody has a lock any more."""
    for entry in list(os.scandir(home)):
        if entry.name.startswith(prefix) and entry.is_dir(follow_symlinks=False):
            with contextlib.suppress(BlockingIOError), contextlib.ExitStack() as stack:
                _lock(stack, entry.path, waits=False)
                shutil.rmtree(entry.path, ignore_errors=True)


@contextlib.contextmanager
def one_at_a_time(name: str) -> Iterator[None]:
    """Keeps other runs of this user on this machine from the same work, while this one is at it.

    Args:
      name: A file name that stands for the work.

    Raises:
      AccessError: See `private_home`.
      BlockingIOError: Another run is at it.
    """
    home = private_home()
    path = os.path.join(home, f"{name}.lock")
    with contextlib.ExitStack() as stack:
        with contextlib.ExitStack() as alone:
            _lock(alone, home)
            os.close(os.open(path, os.O_RDONLY | os.O_CREAT, 0o600))
            _lock(stack, path, waits=False)
        stack.callback(_remove_lock, home, path)
        yield


def _remove_lock(home: str, path: str) -> None:
    """Removes a lock's file while nobody else opens it."""
    with contextlib.ExitStack() as alone:
        _lock(alone, home)
        os.remove(path)


def _lock(stack: contextlib.ExitStack, path: str, *, waits: bool = True) -> bool:
    """Takes the lock of a file or a folder until the stack ends.

    Returns:
      Whether it is taken; it is not where the system, or the file system, has no locks.

    Raises:
      BlockingIOError: Another process has it, and this one must not wait.
    """
    try:
        import fcntl
    except ImportError:
        return False
    handle = os.open(path, os.O_RDONLY)
    stack.callback(os.close, handle)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX if waits else fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise
    except OSError:
        return False
    return True
