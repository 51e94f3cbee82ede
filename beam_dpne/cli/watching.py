"""Running a pipeline to its end, and watching whether the workers of an engine start."""

import builtins
import collections
import contextlib
import dataclasses
import errno
import functools
import os
import re
import threading
import time
from collections.abc import Iterator

import apache_beam as beam
from apache_beam.io.filesystems import FileSystems
from apache_beam.metrics.metric import MetricsFilter
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.runners.runner import PipelineResult, PipelineState
from apache_beam.runners.worker import sdk_worker

from beam_dpne.engines.run import (
    cancel,
    cancelled_on_failure,
    failures_at_flink,
    likely_wrong,
    state_of,
)
from beam_dpne.errors import RunError, may_be_printed
from beam_dpne.storage.run_files import Markers

_ERRNO = re.compile(r"\[Errno (\d{1,4})\]")
_WHILE_RUNNING = re.compile(r"(?: \[while running '[^']*'\])+$")
_POLL_SECONDS = 0.5


@dataclasses.dataclass(frozen=True, kw_only=True)
class Canary:
    """The sign by which a launcher sees that the workers of an engine have started.

    Attributes:
      marks: the markers that the pipeline's first step leaves.
      timeout: seconds from the state RUNNING until they must be there; 0 means no limit.
    """

    marks: Markers
    timeout: int


def run_pipeline(pipeline: beam.Pipeline, canary: Canary | None = None) -> PipelineResult:
    """Runs a pipeline to its end; an interrupted or failed launcher cancels the job.

    Args:
      pipeline: to run.
      canary: the sign that workers have started; None where no job can hang.

    Raises:
      RunError: if the run failed. Its message is one of this package, or else only the type of the
        error, since the messages of libraries may quote data.
    """
    _silence_workers()
    stopped: list[str] = []
    result = None
    try:
        result = pipeline.run()
        with (
            cancelled_on_failure(result, pipeline.options),
            _watched(result, canary, pipeline, stopped),
        ):
            result.wait_until_finish()
    except Exception as error:
        details = functools.partial(failures_at_flink, result, pipeline.options)
        raise RunError(stopped[0] if stopped else reason(error), details) from None
    return result


def _silence_workers() -> None:
    """Stops Beam's worker from printing tracebacks on stderr, which may quote the data.

    With LOOPBACK, Prism's default, the worker is in this process. It also logs the traceback, as an
    error.
    """
    sdk_worker.__dict__["print"] = _print_nothing


def _print_nothing(*_: object, **__: object) -> None:
    """Stands in for `print`."""


def has_finished(result: PipelineResult) -> bool:
    """Whether the job ran to its end; the job of a template is only written."""
    return getattr(result, "has_job", True) and result.state == PipelineState.DONE


def reason(error: BaseException) -> str:
    """Returns the reason of a failure without data: a message of this package, or the error's type.

    An engine hands on a text that has a traceback in it. Only the line after the frames of the last
    traceback is read, and it is returned only if it begins with an error class of this package; a
    record would have to imitate a whole traceback, in a message of a library, to be returned.
    """
    if may_be_printed(_name_of(type(error))):
        return _WHILE_RUNNING.sub("", str(error))
    name, _, message = _raised(str(error)).partition(": ")
    if may_be_printed(name):
        return _WHILE_RUNNING.sub("", message)
    if not isinstance(getattr(builtins, name, None), type):
        name, message = type(error).__name__, str(error)
    found = _ERRNO.match(message)
    if found and int(found.group(1)) in errno.errorcode:
        return f"{os.strerror(int(found.group(1)))}."
    return f"{name}; its message is withheld, since it may quote the data."


def _name_of(kind: type) -> str:
    return f"{kind.__module__}.{kind.__qualname__}"


def _raised(text: str) -> str:
    """Returns the line that names the error of the last traceback in a text, or an empty one."""
    _, mark, traceback = text.rpartition("Traceback (most recent call last):")
    lines = traceback.splitlines()[1:] if mark else []
    return next((line for line in lines if line and not line[0].isspace()), "")


def counters(result: PipelineResult) -> dict[str, int]:
    """Returns the values of this package's counters by name; none where the engine has no counters."""
    metrics = result.metrics()
    if metrics is None:
        return {}
    values: collections.Counter[str] = collections.Counter()
    for metric in metrics.query(MetricsFilter().with_namespace("beam_dpne"))["counters"]:
        values[metric.key.metric.name] += metric.committed or 0
    return dict(values)


@contextlib.contextmanager
def _watched(
    result: PipelineResult, canary: Canary | None, pipeline: beam.Pipeline, stopped: list[str]
) -> Iterator[None]:
    """Cancels a job whose workers do not start, and adds the reason to `stopped`."""
    if canary is None or canary.timeout == 0:
        yield
        return
    ended = threading.Event()
    options = pipeline.options
    thread = threading.Thread(
        target=_watch, args=(result, canary, options, stopped, ended), daemon=True
    )
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def _watch(
    result: PipelineResult,
    canary: Canary,
    options: PipelineOptions,
    stopped: list[str],
    ended: threading.Event,
) -> None:
    running_since = None
    while not ended.wait(_POLL_SECONDS):
        if _is_made(canary.marks.started):
            return
        if running_since is None and state_of(result) == PipelineState.RUNNING:
            running_since = time.monotonic()
        late = running_since is not None and time.monotonic() - running_since > canary.timeout
        if late and not _is_made(canary.marks.started):
            stopped.append(_advice(canary, options))
            cancel(result, options)
            return


def _is_made(mark: str) -> bool:
    """Whether the marker is there; an object store that does not answer now may do so later."""
    with contextlib.suppress(Exception):
        return FileSystems.exists(mark)
    return False


def _advice(canary: Canary, options: PipelineOptions) -> str:
    return (
        f"no worker did a first step within {canary.timeout} s (--harness_timeout) of the job's start, "
        f"which includes planning and upload, so the job was cancelled. {likely_wrong(options)} "
        f"Or temp_location: launcher and workers must share {canary.marks.folder}."
    )
