"""`--failure_log FILE`: the whole of a failure, tracebacks and all, for the operator alone.

What a failed run says on stderr holds no data. The file may hold any: messages of libraries and of a
tokenizer of the user's own quote texts. So it is a file of its owner alone and in no release.
"""

import contextlib
import datetime
import os
import re
import stat
from collections.abc import Iterator, Sequence

from apache_beam.io.filesystem import CompressionTypes
from apache_beam.io.filesystems import FileSystems

from beam_dpne.cli import jobs
from beam_dpne.cli.tracebacks import ErrorRecords, whole_chain
from beam_dpne.errors import RunError, UsageError
from beam_dpne.release.ledger import LEDGER_NAME, reason
from beam_dpne.storage.access import check_access
from beam_dpne.version import __version__

_FIRST_LINE = "beam-dpne failure log: as private as the data, for the operator only\n"
_OBJECT = re.compile(r"\w+://[^/]+/(.*[^/])?")
_READ_WRITE = os.O_RDWR | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK


class FailureLog:
    """The file of one run, open from before it begins until `keep` or `discard`."""

    def __init__(self, path: str, output: str | None, *, remote: bool) -> None:
        """Checks that the file can be written; a local one is made.

        Args:
          path: of the file.
          output: directory of the release, if the run publishes one.
          remote: whether the file may be in a bucket.

        Raises:
          UsageError: if the file must not be there, or cannot be.
        """
        self.path = path
        self._records = ErrorRecords()
        if not path:
            raise UsageError("failure_log must be the path of a file, got failure_log=''.")
        is_local = FileSystems.get_scheme(path) is None
        if not is_local:
            _check_remote(path, allowed=remote)
        _check_apart(path, output)
        self._file = _LocalFile(path) if is_local else None

    @contextlib.contextmanager
    def listening(self) -> Iterator[None]:
        """Keeps what libraries log as errors; nothing of it reaches stderr."""
        with self._records.caught():
            yield

    def keep(self, error: BaseException) -> str:
        """Writes the failure; returns a sentence for stderr that says where it is."""
        data = self._text(error).encode("utf-8", "backslashreplace")
        try:
            if self._file is not None:
                self._file.append(data)
            else:
                _write_remote(self.path, data)
        except Exception as failure:
            return f"The failure log {self.path} could not be written ({reason(failure)})."
        return f"The whole failure is in {self.path}, which is as private as the data."

    def discard(self) -> None:
        """Removes the file, if this run made it."""
        if self._file is not None:
            self._file.discard()

    def _text(self, error: BaseException) -> str:
        now = datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds")
        parts = [
            f"{_FIRST_LINE}{now}, beam-dpne {__version__}\n",
            f"== What was raised ==\n{whole_chain(error)}",
        ]
        engine = _of_engine(error)
        if engine:
            parts.append(f"== What the engine reports ==\n{engine}")
        logged = self._records.text()
        if logged:
            parts.append(f"== What libraries logged as errors ==\n{logged}")
        return "\n".join(parts) + "\n"


def _of_engine(error: BaseException) -> str:
    """Returns what the engine itself has recorded of a failed job, if it can be asked."""
    if not isinstance(error, RunError) or error.details is None:
        return ""
    try:
        return error.details()
    except Exception as failure:
        return f"It could not be asked: {type(failure).__name__}: {failure}\n"


class _LocalFile:
    """A file that only its owner may read: a new one, or one that an earlier run left."""

    def __init__(self, path: str) -> None:
        self._path = os.path.abspath(path)
        self._is_new = True
        try:
            try:
                self._handle = os.open(self._path, _READ_WRITE | os.O_CREAT | os.O_EXCL, 0o600)
            except FileExistsError:
                self._is_new = False
                self._handle = os.open(self._path, _READ_WRITE)
        except OSError as error:
            raise UsageError(
                "failure_log must be a new file in a directory that can be written, and no link, got "
                f"failure_log={path} ({reason(error)})."
            ) from None
        if not self._is_new and not self._is_ours():
            os.close(self._handle)
            raise UsageError(
                "failure_log must be a new file, or the failure log of an earlier run that only you "
                f"can read (mode 600), got failure_log={path}; name another one."
            )

    def append(self, data: bytes) -> None:
        with os.fdopen(self._handle, "ab") as file:
            file.write(data)

    def discard(self) -> None:
        mine = os.fstat(self._handle)
        os.close(self._handle)
        if self._is_new:
            with contextlib.suppress(OSError):
                there = os.lstat(self._path)
                if os.path.samestat(mine, there):
                    os.remove(self._path)

    def _is_ours(self) -> bool:
        found = os.fstat(self._handle)
        if not stat.S_ISREG(found.st_mode) or found.st_uid != os.geteuid():
            return False
        if stat.S_IMODE(found.st_mode) & 0o077 or found.st_nlink != 1:
            return False
        first = _FIRST_LINE.encode()
        return found.st_size == 0 or os.pread(self._handle, len(first), 0) == first


def _check_remote(path: str, *, allowed: bool) -> None:
    """Raises unless an object can be made; it has no mode, the bucket's access rules are all."""
    if not allowed:
        raise UsageError(
            f"failure_log must be a local file, got failure_log={path}: whoever may read that bucket "
            "could read the data in it. If only the operator may, add --failure_log_remote."
        )
    if not _OBJECT.fullmatch(path):
        raise UsageError(f"failure_log must be the path of a file, got failure_log={path}.")
    check_access([], [path.rpartition("/")[0]])
    if FileSystems.exists(path):
        raise UsageError(f"failure_log must be a new file in a bucket, got failure_log={path}.")


def _write_remote(path: str, data: bytes) -> None:
    with FileSystems.create(path, compression_type=CompressionTypes.UNCOMPRESSED) as file:
        file.write(data)


def _check_apart(path: str, output: str | None) -> None:
    """Raises if the file would be in the release, or in or below a directory with a ledger."""
    if output and jobs.is_inside(path, output):
        raise UsageError(
            "failure_log must be outside the directory of the release, got "
            f"failure_log={path}: it is as private as the data."
        )
    for folder in _above(jobs.normalized(path)):
        ledger = f"{folder}/{LEDGER_NAME}"
        local = FileSystems.get_scheme(folder) is None
        if os.path.lexists(ledger) if local else FileSystems.exists(ledger):
            raise UsageError(
                f"failure_log must be outside every release, got failure_log={path}, which is in "
                f"{folder or '/'}, where a ledger.json is: it is as private as the data."
            )


def _above(path: str) -> Sequence[str]:
    """Returns the directories above a path, "" for the root; of a bucket the last is its address."""
    scheme, separator, rest = path.rpartition("://")
    parts = rest.split("/")[:-1]
    return [scheme + separator + "/".join(parts[:end]) for end in range(len(parts), 0, -1)]
