"""The reason of a failure that a program may print, and `--failure_log`, which gets the whole failure.

The line that a failed run prints on stderr holds no data. The file may hold data, since the messages
of libraries, and of a tokenizer that users wrote, quote texts. So only its owner can read it, and it
is in no release. `errors.may_be_printed` decides by the class of an error whether its message is
printed.
"""

import builtins
import contextlib
import datetime
import errno
import logging
import os
import re
import traceback
from collections.abc import Iterator

import pyarrow as pa

from beam_dpne.documents.key_context import tokenizer_identity
from beam_dpne.documents.tokenizers import TOKENIZERS, Tokenizer, failure_of, resolve_tokenizer
from beam_dpne.errors import RunError, UsageError, may_be_printed
from beam_dpne.release.reading import check_outside, is_local
from beam_dpne.storage.directories import reason
from beam_dpne.version import __version__

_ERRNO = re.compile(r"\[Errno (\d{1,4})\]")
_WHILE_RUNNING = re.compile(r"(?: \[while running '[^']*'\])+$")


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
    """The failure log of one run: a local file that only its owner can read."""

    def __init__(self, path: str, output: str | None) -> None:
        """Opens the file, to which failures are appended.

        Args:
          path: path of the file.
          output: directory of the release, or None if the run publishes none.

        Raises:
          UsageError: if the file must not be at that path, or cannot be written.
        """
        if not is_local(path):
            raise UsageError(f"failure_log must be a local file, got failure_log={path}.")
        check_outside("failure_log", path, output)
        self._path = os.path.abspath(path)
        try:
            handle = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
            os.fchmod(handle, 0o600)
        except OSError as error:
            raise UsageError(
                "failure_log must be a file of yours in a directory that can be written, got "
                f"failure_log={path} ({reason(error)})."
            ) from None
        self._file = os.fdopen(handle, "a", encoding="utf-8", errors="backslashreplace")
        self._start = self._file.tell()
        self._is_kept = False

    @contextlib.contextmanager
    def listening(self) -> Iterator[None]:
        """Writes the errors that libraries log into the file; none reaches stderr."""
        handler = logging.StreamHandler(self._file)
        handler.setLevel(logging.ERROR)
        handler.setFormatter(logging.Formatter("%(asctime)s %(name)s: %(message)s"))
        root = logging.getLogger()
        level = root.level
        root.addHandler(handler)
        root.setLevel(logging.ERROR)
        try:
            yield
        finally:
            root.removeHandler(handler)
            root.setLevel(level)

    def keep(self, error: BaseException) -> str:
        """Writes the failure; returns a sentence for stderr that names the file."""
        now = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
        parts = [f"== {now}, beam-dpne {__version__}: what was raised ==", whole_chain(error)]
        if isinstance(error, RunError) and error.details is not None:
            with contextlib.suppress(Exception):  # The engine may be gone.
                parts += ["== What the engine reports ==", error.details()]
        try:
            self._file.write("\n".join(parts) + "\n")
            self._file.flush()
        except OSError as failure:
            return f"The failure log {self._path} could not be written ({reason(failure)})."
        self._is_kept = True
        return f"The whole failure is in {self._path}, which is as private as the data."

    def close(self) -> None:
        """Closes the file; without a failure it is as it was before."""
        with contextlib.suppress(OSError), self._file:
            if not self._is_kept:
                self._file.flush()
                os.ftruncate(self._file.fileno(), self._start)
                if self._start == 0:
                    os.remove(self._path)


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
