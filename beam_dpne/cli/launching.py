"""Running a pipeline to its end: on an engine, with an eye on workers that do not start."""

import contextlib
import dataclasses
import logging
import os
import re
import threading
import time
from collections.abc import Iterator

import apache_beam as beam
from apache_beam.io.filesystems import FileSystems
from apache_beam.metrics.metric import MetricsFilter
from apache_beam.options.pipeline_options import PipelineOptions, PortableOptions
from apache_beam.runners.runner import PipelineResult, PipelineState

from beam_dpne.cli.errors import RunError
from beam_dpne.cli.flink_jobs import cancel_at_flink
from beam_dpne.started import has_started

_OURS = re.compile(r"^(?:Caused by: )?beam_dpne[\w.]*\.(\w+): (.*)$")
_ERRNO = re.compile(r"^(?:\w+Error: )?\[Errno (\d+)\]", re.MULTILINE)
_WHILE_RUNNING = re.compile(r"(?: \[while running '[^']*'\])+$")
_POLL_SECONDS = 0.5


@dataclasses.dataclass(frozen=True, kw_only=True)
class Canary:
    """What tells that the workers of an engine start.

    Attributes:
      mark: file that the pipeline's first step makes.
      timeout: seconds from the state RUNNING until it must be there; 0: for ever.
    """

    mark: str
    timeout: int


def run_pipeline(pipeline: beam.Pipeline, canary: Canary | None = None) -> PipelineResult:
    """Runs to the end; an interrupted or failed launcher cancels the job.

    Args:
      pipeline: to run.
      canary: how the launcher sees that workers start; None where nothing can hang.

    Raises:
      RunError: if the run failed, with our own message, or else only the type of the error: the
        messages of libraries may quote data.
    """
    stopped: list[str] = []
    try:
        result = pipeline.run()
        with (
            _cancelled_on_interrupt(result, pipeline.options),
            _watched(result, canary, pipeline, stopped),
        ):
            result.wait_until_finish()
    except Exception as error:
        raise RunError(stopped[0] if stopped else reason(error)) from None
    return result


def has_finished(result: PipelineResult) -> bool:
    """Whether the job ran, to its end; a template is only written."""
    return getattr(result, "has_job", True) and result.state == PipelineState.DONE


def reason(error: BaseException) -> str:
    """Returns what may be said of a failure: our own words, or the type of the error."""
    if type(error).__module__.startswith("beam_dpne."):
        return _WHILE_RUNNING.sub("", str(error))
    lines = [line for line in str(error).splitlines() if line.strip()]
    for line in reversed(lines):
        if match := _OURS.match(line.strip()):
            return _WHILE_RUNNING.sub("", match.group(2))
    if match := _ERRNO.search(str(error)):
        return f"{os.strerror(int(match.group(1)))}."
    found = re.findall(r"^(?:\w+\.)*(\w*(?:Error|Exception|Interrupt))\b", str(error), re.MULTILINE)
    kind = found[-1] if found else type(error).__name__
    return f"{kind}; its message is withheld, since it may quote the data."


def counter(result: PipelineResult, name: str) -> int:
    """Returns the value of one of our counters, 0 where the engine has none."""
    metrics = result.metrics()
    if metrics is None:
        return 0
    query = metrics.query(MetricsFilter().with_namespace("beam_dpne").with_name(name))
    return sum(metric.committed or 0 for metric in query["counters"])


@contextlib.contextmanager
def run_folder(parent: str | None, name: str) -> Iterator[str]:
    """Names the run's temporary location, and deletes what a run has put there.

    Args:
      parent: directory on storage that workers and launcher share.
      name: of the folder in it.
    """
    folder = FileSystems.join(parent, name) if parent else name
    try:
        yield folder
    finally:
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
            FileSystems.delete([folder])
        return
    found = FileSystems.match([FileSystems.join(folder, "*")])[0].metadata_list
    if found:
        FileSystems.delete([file.path for file in found])


@contextlib.contextmanager
def _cancelled_on_interrupt(result: PipelineResult, options: PipelineOptions) -> Iterator[None]:
    """Cancels the job if the launcher is interrupted: left alone it would still publish."""
    try:
        yield
    except KeyboardInterrupt:
        _cancel(result, options)
        raise


def _cancel(result: PipelineResult, options: PipelineOptions) -> None:
    """Cancels a job as far as can be; at Flink too, whose job the job server leaves running."""
    with contextlib.suppress(Exception):
        result.cancel()
    with contextlib.suppress(Exception):
        cancel_at_flink(result, options)


@contextlib.contextmanager
def _watched(
    result: PipelineResult, canary: Canary | None, pipeline: beam.Pipeline, stopped: list[str]
) -> Iterator[None]:
    """Cancels a job whose workers do not start, and says why in `stopped`."""
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
        if _is_made(canary.mark):
            return
        if running_since is None and _state(result) == PipelineState.RUNNING:
            running_since = time.monotonic()
        late = running_since is not None and time.monotonic() - running_since > canary.timeout
        if late and not _is_made(canary.mark):
            stopped.append(_what_is_wrong(canary, options))
            _cancel(result, options)
            return


def _is_made(mark: str) -> bool:
    """Whether the mark is there; an object store that does not answer now may do so later."""
    with contextlib.suppress(Exception):
        return has_started(mark)
    return False


def _state(result: PipelineResult) -> str | None:
    with contextlib.suppress(Exception):
        return result.state
    return None


def _what_is_wrong(canary: Canary, options: PipelineOptions) -> str:
    portable = options.view_as(PortableOptions)
    kind = portable.environment_type or "DOCKER"
    where = portable.environment_config or "none"
    return (
        f"no worker did a first step within {canary.timeout} s (--harness_timeout) of the job's start, "
        "which includes planning and upload, so the job was cancelled. Likely wrong: "
        f"environment_type={kind}, environment_config={where}: the engine must reach it, and it must "
        "start a Python that has beam_dpne and the launcher's version of Beam, "
        f"{beam.__version__}. Or temp_location: launcher and workers must share "
        f"{os.path.dirname(canary.mark)}."
    )
