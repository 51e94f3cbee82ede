"""Files that only their owner can use: locks of runs, and what runs write between their steps.

They lie in one folder for each user, `.beam_dpne-NUMBER` with the number of the user, in the system's
temporary folder or in another one that is named. Its owner and its mode are checked each time, so that
nobody else can have put a file or a link into it. The list of rejected records is where the operator
wants it, and is written here too.
"""

import contextlib
import os
import re
import shutil
import socket
import stat
import tempfile
import uuid
from collections.abc import Iterator
from typing import BinaryIO

from beam_dpne.errors import AccessError, kind_of

_OWNER_ALONE = 0o700
_FILE_OF_OWNER = 0o600
_OTHERS = 0o077
# What `tempfile.mkdtemp` adds to the name of a folder.
_RANDOM = "[a-z0-9_]{8}"


def temporary_folder() -> str:
    """Returns the system's temporary folder.

    Raises:
      AccessError: There is none in which this process can write, as under a root that is read-only.
    """
    try:
        return tempfile.gettempdir()
    except OSError:
        raise AccessError(
            "the temporary folder (TMPDIR, or else /tmp) must be one in which this process can write, "
            "got none. Runs put locks there: mount a small volume, and name it by TMPDIR."
        ) from None


def private_home(parent: str | None = None) -> str:
    """Returns this user's private folder in a folder, and makes it if it is missing.

    Args:
      parent: The folder around it; None for the system's temporary one.

    Raises:
      AccessError: Something else is there, or others than its owner can use it, or it cannot be made.
    """
    around = parent or temporary_folder()
    user = os.getuid() if os.name == "posix" else 0
    path = os.path.join(around, f".beam_dpne-{user}")
    try:
        os.makedirs(around, exist_ok=True)
        with contextlib.suppress(FileExistsError):
            os.mkdir(path, _OWNER_ALONE)
        found = os.lstat(path)
    except OSError as error:
        raise AccessError(
            f"the temporary folder (temp_location, or else TMPDIR) must be one in which {path} can be "
            f"made, got {around} ({error.strerror or kind_of(error)})."
        ) from None
    is_open = os.name == "posix" and found.st_mode & _OTHERS
    if is_open or not stat.S_ISDIR(found.st_mode) or found.st_uid != user:
        raise AccessError(
            f"{path} must be a folder that you own and nobody else can use: runs put locks there, "
            "and sets that are as secret as the data. Remove it, or name another folder by "
            "temp_location, or else TMPDIR."
        )
    return path


@contextlib.contextmanager
def run_folder(parent: str | None = None, *, ends_with_launcher: bool = True) -> Iterator[str]:
    """Gives a run a private folder, and deletes it at the end, with those of runs that were killed.

    A run has a lock on its folder as long as it lives, by which others know that it does. Folders of
    other machines that share the disk are left alone, and so are those of jobs on an engine, which go
    on when their launcher is killed.

    Args:
      parent: The folder around the user's private folder; None for the system's temporary one.
      ends_with_launcher: Whether nothing can use the folder when this process has ended.

    Yields:
      The path of the folder.

    Raises:
      AccessError: See `private_home`, or no folder can be made there.
    """
    home = private_home(parent)
    ended = f"run-{socket.gethostname()}-"
    prefix = ended if ends_with_launcher else f"job-{socket.gethostname()}-"
    with contextlib.ExitStack() as stack:
        # A new folder has its lock before another run looks for folders without one.
        with contextlib.ExitStack() as alone:
            if take_lock(alone, home) is not None:
                _delete_left_behind(home, ended)
            try:
                folder = tempfile.mkdtemp(prefix=prefix, dir=home)
            except OSError as error:
                raise AccessError(
                    f"{home} must be a folder in which a run can make one, got an error "
                    f"({error.strerror or kind_of(error)})."
                ) from None
            stack.callback(shutil.rmtree, folder, ignore_errors=True)
            take_lock(stack, folder)
        yield folder


def _delete_left_behind(home: str, prefix: str) -> None:
    """Deletes the folders with this prefix, of this machine's runs, on which nobody has a lock."""
    # The name of another machine may begin with the name of this one.
    name = re.compile(re.escape(prefix) + _RANDOM)
    for entry in list(os.scandir(home)):
        if name.fullmatch(entry.name) and entry.is_dir(follow_symlinks=False):
            with contextlib.suppress(BlockingIOError), contextlib.ExitStack() as stack:
                if take_lock(stack, entry.path, waits=False) is not None:
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
            take_lock(alone, home)
            os.close(os.open(path, os.O_RDONLY | os.O_CREAT, _FILE_OF_OWNER))
            take_lock(stack, path, waits=False)
        stack.callback(_remove_lock, home, path)
        yield


def _remove_lock(home: str, path: str) -> None:
    """Removes a lock's file while nobody else opens it.

    What cleans temporary folders may have removed it, which must not fail a run that is done.
    """
    with contextlib.suppress(OSError), contextlib.ExitStack() as alone:
        take_lock(alone, home)
        os.remove(path)


def take_lock(stack: contextlib.ExitStack, path: str, *, waits: bool = True) -> int | None:
    """Takes the lock of a file or a folder until the stack ends.

    Returns:
      The handle of what is locked. None if nothing is, because the system, or the file system, has no
      locks, or nothing is there any more.

    Raises:
      BlockingIOError: Another process has it, and this one must not wait.
    """
    try:
        import fcntl
    except ImportError:
        return None
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW)
    except OSError:  # Its run has just ended.
        return None
    stack.callback(os.close, handle)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX if waits else fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise
    except OSError:
        return None
    return handle


@contextlib.contextmanager
def private_file(path: str) -> Iterator[BinaryIO]:
    """Opens a new file that only its owner can use, which gets its name when the block has ended.

    So a file or a link that has the name already is replaced, and nothing is written into it.

    Args:
      path: A local path, whose folders are made if they are missing.

    Yields:
      The file, for writing bytes.
    """
    folder, name = os.path.split(os.path.abspath(path))
    os.makedirs(folder, exist_ok=True)
    temporary = os.path.join(folder, f".{name}.tmp-{uuid.uuid4().hex}")
    try:
        handle = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, _FILE_OF_OWNER)
        with open(handle, "wb") as file:
            yield file
        os.replace(temporary, path)
    except BaseException:
        with contextlib.suppress(OSError):
            os.remove(temporary)
        raise
