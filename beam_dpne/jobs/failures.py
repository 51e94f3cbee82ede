"""The failure log: a local file of the operator with all that a failure withholds elsewhere."""

import contextlib
import datetime
import logging
import os
import traceback
from collections.abc import Callable, Iterator

from beam_dpne import __version__
from beam_dpne.errors import UNHANDLED, UsageError

# The modules of this package that log. Others may have loggers whose names begin with beam_dpne.
LOGGERS = (
    *("beam_dpne.engines", "beam_dpne.engines.flink"),
    "beam_dpne.storage.directories",
    *("beam_dpne.yaml.rows", "beam_dpne.yaml.transforms"),
)


def is_own_record(record: logging.LogRecord) -> bool:
    """Whether a module of this package has logged a record."""
    return record.name in LOGGERS


@contextlib.contextmanager
def failure_log(path: str, output: str | None) -> Iterator[Callable[[BaseException], str]]:
    """Writes the errors that libraries log into a local file that only its owner can read.

    Args:
      path: path of the file; one that is empty at the end is removed.
      output: directory of the release, or None if the run publishes none.

    Yields:
      A function that adds a failure to the file, and returns a sentence for stderr that names it.

    Raises:
      UsageError: if the file must not be at that path, or cannot be written.
    """
    from beam_dpne.release.places import check_outside
    from beam_dpne.storage.directories import absolute_path
    from beam_dpne.storage.paths import is_local

    if not is_local(path):
        raise UsageError(f"`failure_log` must be a local file, got `failure_log={path}`.")
    check_outside("failure_log", path, output)
    path = absolute_path(path)
    try:
        # A link that somebody has put there is refused.
        no_link = getattr(os, "O_NOFOLLOW", 0)
        os.close(os.open(path, os.O_WRONLY | os.O_CREAT | no_link, 0o600))
        os.chmod(path, 0o600)
        handler = logging.FileHandler(path, encoding="utf-8", errors="backslashreplace")
        handler.setLevel(logging.WARNING)
    except OSError as error:
        raise UsageError(
            f"`failure_log` must be a file that can be written, got `failure_log={path}` "
            f"({error.strerror})."
        ) from None

    def keep(error: BaseException) -> str:
        now = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
        text = f"== {now}, beam-dpne {__version__}: what was raised ==\n{whole_chain(error)}"
        handler.emit(logging.makeLogRecord({"msg": text}))
        return f"The whole failure is in {path}, which is as private as the data."

    root = logging.getLogger()
    level = root.level
    printing = [each for each in root.handlers if is_own_record not in each.filters]
    # A caller may have a handler that prints; lines of libraries are for the file alone.
    for other in printing:
        other.addFilter(is_own_record)
    root.addHandler(handler)
    UNHANDLED.addHandler(handler)
    root.setLevel(logging.ERROR)
    try:
        yield keep
    finally:
        root.removeHandler(handler)
        UNHANDLED.removeHandler(handler)
        for other in printing:
            other.removeFilter(is_own_record)
        root.setLevel(level)
        # A log that cannot be kept is no reason to fail.
        with contextlib.suppress(OSError):
            handler.close()
        with contextlib.suppress(OSError):
            if not os.path.getsize(path):
                os.remove(path)


def whole_chain(error: BaseException) -> str:
    """Returns the tracebacks of an exception and its causes, even those that `from None` hides."""
    link: BaseException | None = error
    while link is not None:
        link.__suppress_context__ = link.__cause__ is not None
        link = link.__cause__ or link.__context__
    return "".join(traceback.format_exception(error))
