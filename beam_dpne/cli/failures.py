"""The reason of a failure that a program may print, and `--failure_log`, which gets the whole failure.

The line that a failed run prints on stderr holds no data. The file may hold data, since the messages
of libraries, and of a tokenizer that users wrote, quote texts. So only its owner can read it, and it
is in no release. `errors.may_be_printed` decides by the class of an error whether its message is
printed, and `main._outcome` composes the line.
"""

import builtins
import collections
import contextlib
import datetime
import errno
import logging
import os
import re
import stat
import threading
import traceback
from collections.abc import Iterator

import pyarrow as pa
from apache_beam.io.filesystem import CompressionTypes
from apache_beam.io.filesystems import FileSystems

from beam_dpne.documents.key_context import tokenizer_identity
from beam_dpne.documents.tokenizers import (
    TOKENIZERS,
    Tokenizer,
    failure_of,
    resolve_tokenizer,
)
from beam_dpne.errors import RunError, UsageError, may_be_printed
from beam_dpne.release.files import is_inside, is_local, release_around
from beam_dpne.storage.access import check_access
from beam_dpne.storage.directories import reason
from beam_dpne.version import __version__

_ERRNO = re.compile(r"\[Errno (\d{1,4})\]")
_WHILE_RUNNING = re.compile(r"(?: \[while running '[^']*'\])+$")
_FIRST_LINE = "beam-dpne failure log: as private as the data, for the operator only\n"
_OBJECT = re.compile(r"\w+://[^/]+/(.*[^/])?")
_MOST_CHARACTERS = 8 * 2**20
_READ_WRITE = os.O_RDWR | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK


def printable_reason(error: BaseException) -> str:
    """Returns why a run failed, without data: a message of this package, or the error's type.

    An engine reports an error as a text that contains tracebacks. Only the line after the frames of
    the last traceback is read, and it is returned only if it begins with an error class of this
    package. A record would be returned only if it imitated a whole traceback in a library's message.
    """
    kind = type(error)
    if may_be_printed(f"{kind.__module__}.{kind.__qualname__}"):
        return _WHILE_RUNNING.sub("", str(error))
    name, _, message = _raised(str(error)).partition(": ")
    if may_be_printed(name):
        return _WHILE_RUNNING.sub("", message)
    if not isinstance(getattr(builtins, name, None), type):
        name, message = kind.__name__, str(error)
    found = _ERRNO.match(message)
    if found and int(found.group(1)) in errno.errorcode:
        return f"{os.strerror(int(found.group(1)))}."
    return f"{name}; its message is withheld, since it may quote the data."


def _raised(text: str) -> str:
    """Returns the line that names the error of the last traceback in a text, or an empty one."""
    _, mark, frames = text.rpartition("Traceback (most recent call last):")
    lines = frames.splitlines()[1:] if mark else []
    return next((line for line in lines if line and not line[0].isspace()), "")


class FailureLog:
    """The failure log of one run, which is open from before the run until `keep` or `discard`."""

    def __init__(self, path: str, output: str | None, *, remote: bool) -> None:
        """Checks that the file can be written, and makes it if it is local.

        Args:
          path: path of the file.
          output: directory of the release, or None if the run publishes none.
          remote: whether the file may be in a bucket.

        Raises:
          UsageError: if the file must not be at that path, or cannot be written.
        """
        self.path = path
        self._records = ErrorRecords()
        if not path:
            raise UsageError("failure_log must be the path of a file, got failure_log=''.")
        if not is_local(path):
            _check_remote(path, allowed=remote)
        check_outside_releases("failure_log", path, output)
        self._file = _LocalFile(path) if is_local(path) else None

    def listening(self) -> contextlib.AbstractContextManager[None]:
        """Returns a context that collects the errors that libraries log; none reaches stderr."""
        return self._records.caught()

    def keep(self, error: BaseException) -> str:
        """Writes the failure; returns a sentence for stderr that names the file."""
        data = self._text(error).encode("utf-8", "backslashreplace")
        try:
            if self._file is not None:
                self._file.append(data)
            else:
                uncompressed = CompressionTypes.UNCOMPRESSED
                with FileSystems.create(self.path, compression_type=uncompressed) as file:
                    file.write(data)
        except Exception as failure:
            return f"The failure log {self.path} could not be written ({reason(failure)})."
        return f"The whole failure is in {self.path}, which is as private as the data."

    def discard(self) -> None:
        """Removes the file if this run made it."""
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
    """Returns the engine's records of a failed job, or the reason why it could not be asked."""
    if not isinstance(error, RunError) or error.details is None:
        return ""
    try:
        return error.details()
    except Exception as failure:
        return f"It could not be asked: {type(failure).__name__}: {failure}\n"


class _LocalFile:
    """A new file that only its owner may read, or the failure log of an earlier run."""

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
        opened = os.fstat(self._handle)
        os.close(self._handle)
        if self._is_new:
            with contextlib.suppress(OSError):
                if os.path.samestat(opened, os.lstat(self._path)):
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
    """Raises UsageError unless a new object can be made, which its bucket's access rules protect."""
    if not allowed:
        raise UsageError(
            f"failure_log must be a local file, got failure_log={path}: everybody who may read "
            "that bucket could read the data in it. If only the operator may, add --failure_log_remote."
        )
    if not _OBJECT.fullmatch(path):
        raise UsageError(f"failure_log must be the path of a file, got failure_log={path}.")
    check_access([], [path.rpartition("/")[0]])
    if FileSystems.exists(path):
        raise UsageError(f"failure_log must be a new file in a bucket, got failure_log={path}.")


def check_outside_releases(name: str, path: str, output: str | None) -> None:
    """Raises UsageError if a path for private files is in a release; links are followed.

    Args:
      name: name of the option that gives the path.
      path: path of a file or a directory whose content is as private as the data.
      output: directory of the run's release, or None if the run publishes none.
    """
    if output and is_inside(path, output):
        raise UsageError(
            f"{name} must be outside the directory of the release, got {name}={path}: it is as "
            "private as the data."
        )
    folder = release_around(path)
    if folder is not None:
        raise UsageError(
            f"{name} must be outside every release, got {name}={path}, which is in "
            f"{folder or '/'}, where a ledger.json is: it is as private as the data."
        )


def whole_chain(error: BaseException) -> str:
    """Returns the tracebacks of an exception and its causes, even those that `from None` hides."""
    chain: list[BaseException] = []
    link: BaseException | None = error
    while link is not None and all(link is not seen for seen in chain):
        chain.append(link)
        link = link.__cause__ or link.__context__
    texts = (
        "".join(traceback.format_exception(type(one), one, one.__traceback__, chain=False))
        for one in reversed(chain)
    )
    return "\nWhich led to:\n\n".join(texts)


class ErrorRecords:
    """The latest error records that libraries logged during a run, in memory."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._texts: collections.deque[str] = collections.deque()
        self._characters = 0
        self._dropped = 0

    def text(self) -> str:
        """Returns all records, oldest first."""
        with self._lock:
            first = [f"({self._dropped} earlier records are left out.)"] if self._dropped else []
            return "".join(f"{text}\n" for text in (*first, *self._texts))

    def add(self, text: str) -> None:
        """Adds a record, unless it repeats the last one."""
        with self._lock:
            if self._texts and self._texts[-1] == text:
                return
            self._texts.append(text)
            self._characters += len(text)
            while self._characters > _MOST_CHARACTERS and len(self._texts) > 1:
                self._characters -= len(self._texts.popleft())
                self._dropped += 1

    @contextlib.contextmanager
    def caught(self) -> Iterator[None]:
        """Collects all error records; the root logger's handlers get the same records as before."""
        root = logging.getLogger()
        handlers, level = root.handlers[:], root.level
        root.handlers[:] = [_Divert(self, handlers, level)]
        root.setLevel(min(level, logging.ERROR))
        try:
            yield
        finally:
            root.handlers[:] = handlers
            root.setLevel(level)


class _Divert(logging.Handler):
    """Replaces the handlers of the root logger while its level is lowered."""

    def __init__(self, records: ErrorRecords, handlers: list[logging.Handler], level: int) -> None:
        super().__init__()
        self.setFormatter(logging.Formatter("%(asctime)s %(name)s: %(message)s"))
        self._records, self._handlers, self._level = records, handlers, level

    def emit(self, record: logging.LogRecord) -> None:
        """Collects an error, and passes on each record that the root's former level allowed."""
        if record.levelno >= logging.ERROR:
            self._records.add(self.format(record))
        if record.levelno < self._level and not _has_level(record.name):
            return
        others = self._handlers or ([logging.lastResort] if logging.lastResort else [])
        for handler in others:
            if record.levelno >= handler.level:
                handler.handle(record)


def _has_level(name: str) -> bool:
    """Whether a logger has a level, or one of its ancestors other than the root has."""
    logger: logging.Logger | None = logging.getLogger(name)
    while logger is not None and logger.parent is not None:
        if logger.level:
            return True
        logger = logger.parent
    return False


def with_cause(tokenizer: str | Tokenizer) -> str | Tokenizer:
    """Returns a tokenizer with the same tokens and the same name, whose errors keep their cause.

    `tokenize` withholds the errors of a tokenizer that a user wrote. An engine reports a worker's
    traceback as text, so the cause must be in the traceback if the operator wants a failure log. It
    is never printed on stderr.

    Args:
      tokenizer: a name, or a function; a tokenizer of this package is returned unchanged.

    >>> with_cause("words")
    'words'
    """
    trusted = TOKENIZERS if isinstance(tokenizer, str) else TOKENIZERS.values()
    return tokenizer if tokenizer in trusted else _WithCause(tokenizer)


class _WithCause:
    """Calls a tokenizer; a name is resolved by the worker that calls it."""

    def __init__(self, tokenizer: str | Tokenizer) -> None:
        # The run key is bound to name and version, which must be those of the tokenizer itself.
        identity = tokenizer_identity(tokenizer)
        self.tokenizer_name = identity["name"]
        self.version = identity["version"]
        self._tokenizer = tokenizer

    def __call__(self, texts: pa.Array) -> pa.ListArray:
        """Returns the tokens."""
        tokenizer = resolve_tokenizer(self._tokenizer)
        try:
            return tokenizer(texts)
        except (Exception, SystemExit) as error:
            failure = failure_of(tokenizer, error)
            raise failure from (None if failure is error else error)
