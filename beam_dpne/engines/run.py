"""Running a pipeline on an engine: workers are checked first, and jobs end with their launcher.

An engine runs the steps of a pipeline in Python processes, called harnesses. It keeps a job whose
harnesses cannot start in the state RUNNING for ever. By default Beam's job server for Flink stops the
harness of a step when the step is done, and starts another one for the next step. The pipelines of this
package have dozens of short steps, and hang when a step meets a harness that is being stopped.

The job server also forgets a job that is cancelled, while Flink runs on. So this module asks Flink
itself to cancel a job, and asks it for the tracebacks of a failed job.
"""

import contextlib
import json
import signal
import threading
import time
import urllib.request
from collections.abc import Iterator
from types import FrameType
from typing import Any, NoReturn

import apache_beam as beam
from apache_beam.options.pipeline_options import (
    DirectOptions,
    FlinkRunnerOptions,
    PipelineOptions,
    PortableOptions,
)
from apache_beam.runners.runner import PipelineResult, PipelineState

from beam_dpne.errors import EngineError
from beam_dpne.version import __version__

HARNESS_KEPT_MILLIS = 120_000
# Options that a job on Flink needs besides addresses. The first keeps harnesses from one step to the
# next. The second runs steps one after the other, so that there may be more tasks than slots; other
# engines ignore it.
FLINK_OPTIONS = (
    f"--environment_cache_millis={HARNESS_KEPT_MILLIS}",
    "--execution_mode_for_batch=BATCH_FORCED",
)
_PORTABLE = "PortableRunner"
_STOPS_HARNESSES = (_PORTABLE, "FlinkRunner")
# States in which a job at Flink has ended, and the seconds for which this module waits for Flink.
_FINAL = frozenset({"CANCELED", "FAILED", "FINISHED"})
_SECONDS = 10


def run(pipeline: beam.Pipeline, *, harness_timeout: int = 120) -> PipelineResult:
    """Runs a pipeline to its end, and cancels it if this process is stopped.

    If the engine is reached through a job server (Flink, Spark, Prism), a job of one step is run first.
    If the workers cannot do it in time, that job is cancelled and the pipeline is not sent. When this
    process is interrupted (Ctrl-C) or terminated (SIGTERM, in the main thread), or an error is raised
    here, the job is cancelled, with `--flink_master` at Flink itself too. Without that option Flink
    runs on. A launcher that is killed (SIGKILL) cancels nothing.

    Args:
      pipeline: A complete pipeline that is not used as a context manager, which would run it.
      harness_timeout: Seconds in which workers must have done a first step; 0 omits this step.

    Returns:
      The result of the finished pipeline.

    Raises:
      ValueError: An option of the pipeline would make it hang or fail.
      EngineError: The workers did not do a first step in time, or failed in it.
      RuntimeError: The pipeline failed, as Beam raises it.

    Example:
      >>> from apache_beam.runners.portability.fn_api_runner import FnApiRunner
      >>> pipeline = beam.Pipeline(runner=FnApiRunner())
      >>> _ = pipeline | beam.Create(["done"]) | beam.Map(print)
      >>> run(pipeline).state
      done
      'DONE'
    """
    if harness_timeout < 0:
        raise ValueError(
            f"harness_timeout must be at least 0, got harness_timeout={harness_timeout}."
        )
    check_options(pipeline)
    _check_threads(pipeline)
    with _terminable():
        classes = {kind.__name__ for kind in type(pipeline.runner).__mro__}
        if harness_timeout and _PORTABLE in classes:
            _check_workers(pipeline, harness_timeout)
        result = pipeline.run()
        with cancelled_on_failure(result, pipeline.options):
            result.wait_until_finish()
    return result


def check_options(pipeline: beam.Pipeline) -> None:
    """Raises ValueError if harnesses would be stopped after each step of a pipeline."""
    kept = pipeline.options.view_as(PortableOptions).environment_cache_millis
    if type(pipeline.runner).__name__ in _STOPS_HARNESSES and not int(kept):
        raise ValueError(
            "environment_cache_millis must be above 0 with a job server, got "
            f"environment_cache_millis={kept}: an engine such as Flink would start and stop a Python "
            "process for each step of the pipeline, and may hang; add "
            f"beam_dpne.engines.run.FLINK_OPTIONS, which are {' '.join(FLINK_OPTIONS)}, to the "
            "pipeline's options."
        )


def _check_threads(pipeline: beam.Pipeline) -> None:
    """Raises ValueError for Beam's FnApiRunner in a mode in which it may cut elements in two."""
    mode = pipeline.options.view_as(DirectOptions).direct_running_mode
    if mode == "multi_threading" and type(pipeline.runner).__name__ == "FnApiRunner":
        raise ValueError(
            "direct_running_mode must be 'in_memory' or 'multi_processing', got "
            "direct_running_mode='multi_threading': Beam may send an element before its coder has "
            "written all of it, which the next step cannot decode."
        )


@contextlib.contextmanager
def cancelled_on_failure(result: PipelineResult, options: PipelineOptions) -> Iterator[None]:
    """Cancels a job that has not ended when an error is raised; it would publish otherwise."""
    try:
        yield
    except BaseException:
        if not PipelineState.is_terminal(state_of(result)):
            cancel(result, options)
        raise


def cancel(result: PipelineResult, options: PipelineOptions) -> None:
    """Cancels a job as far as possible, at the job server and at Flink."""
    with contextlib.suppress(Exception):
        result.cancel()
    with contextlib.suppress(Exception):
        cancel_at_flink(result, options)


def state_of(result: PipelineResult) -> str | None:
    """Returns the state of a job, or None if the engine does not answer."""
    with contextlib.suppress(Exception):
        return result.state
    return None


def likely_wrong(options: PipelineOptions) -> str:
    """Returns advice for a job whose workers do not start, from the environment in its options."""
    portable = options.view_as(PortableOptions)
    kind = portable.environment_type or "DOCKER"
    where = portable.environment_config if kind == "EXTERNAL" else "…"
    return (
        f"Likely wrong: environment_type={kind}, environment_config={where}: the engine must reach "
        "it, and it must start a Python that has beam_dpne and the launcher's version of Beam, "
        f"{beam.__version__}."
    )


def _check_workers(pipeline: beam.Pipeline, timeout: int) -> None:
    """Runs a job of one step without data, to see that workers start.

    Raises:
      EngineError: The workers do not do the step in time, or fail in it.
    """
    first = beam.Pipeline(runner=pipeline.runner, options=pipeline.options)
    versions = (beam.__version__, __version__)
    _ = first | beam.Create([versions]) | beam.Map(_check_versions)
    result = first.run()
    with cancelled_on_failure(result, pipeline.options):
        try:
            result.wait_until_finish(duration=timeout * 1000)
        except RuntimeError as error:
            raise EngineError(
                f"the workers failed in a first step, which holds no data: {error} "
                f"{likely_wrong(pipeline.options)}"
            ) from None
        if not PipelineState.is_terminal(state_of(result)):
            _refuse_late(pipeline.options, timeout)


def _refuse_late(options: PipelineOptions, timeout: int) -> NoReturn:
    """Raises EngineError because no worker did the first step in time."""
    stays = " On Flink give --flink_master HOST:8081 too, or the job of that step stays there."
    raise EngineError(
        f"no worker did a first step within {timeout} s (harness_timeout), so its job was cancelled "
        f"and the pipeline was not sent. {likely_wrong(options)}"
        f"{stays if flink_address(options) is None else ''}"
    )


def _check_versions(launcher: tuple[str, str]) -> None:
    """Raises EngineError if a worker has other versions of Beam and beam_dpne than the launcher."""
    here = (beam.__version__, __version__)
    if here != launcher:
        raise EngineError(
            f"workers must have the launcher's versions of apache-beam and beam_dpne, "
            f"{' and '.join(launcher)}, got {' and '.join(here)}."
        )


@contextlib.contextmanager
def _terminable() -> Iterator[None]:
    """Lets SIGTERM cancel the job before it ends the process.

    This works only in the main thread, and only if the signal is not handled or ignored already. A
    second signal ends the process at once.
    """
    usual = signal.getsignal(signal.SIGTERM) == signal.SIG_DFL
    if not usual or threading.current_thread() is not threading.main_thread():
        yield
        return
    received: list[int] = []

    def receive(number: int, _frame: FrameType | None) -> NoReturn:
        received.append(number)
        signal.signal(number, signal.SIG_DFL)
        raise KeyboardInterrupt

    signal.signal(signal.SIGTERM, receive)
    try:
        yield
    except BaseException:
        if received:  # Beam may have wrapped the KeyboardInterrupt, so its type is not checked.
            signal.raise_signal(signal.SIGTERM)
        raise
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)


def flink_address(options: PipelineOptions) -> str | None:
    """Returns the address of Flink's REST interface, or None without --flink_master.

    >>> flink_address(FlinkRunnerOptions(["--flink_master=host:8081"]))
    'http://host:8081'
    """
    master = options.view_as(FlinkRunnerOptions).flink_master or ""
    if not master or master.startswith("["):
        return None
    return master if "://" in master else f"http://{master}"


def cancel_at_flink(result: PipelineResult, options: PipelineOptions) -> bool:
    """Cancels the job at Flink; returns whether that certainly succeeded.

    The job may be on its way from the job server to Flink, so this waits up to ten seconds for it.

    Raises:
      OSError: Flink does not answer.
    """
    address = flink_address(options)
    name = _job_name(result)
    if address is None or name is None:
        return False
    until = time.monotonic() + _SECONDS
    while not (found := _running(address, name)) and time.monotonic() < until:
        time.sleep(0.5)
    if len(found) != 1:  # If several jobs have the same --job_name, the right one is not known.
        return False
    url = f"{address}/jobs/{found[0]}?mode=cancel"
    urllib.request.urlopen(urllib.request.Request(url, method="PATCH"), timeout=_SECONDS).close()
    return True


def failures_at_flink(result: PipelineResult | None, options: PipelineOptions) -> str:
    """Returns the tracebacks that Flink has recorded of a job, or "" without the address of Flink.

    Args:
      result: Result of the job; None if it was never submitted.
      options: Beam's options, with the address of Flink.

    Raises:
      OSError: Flink does not answer.
    """
    address, name = flink_address(options), _job_name(result)
    if address is None or name is None:
        return ""
    jobs = [job for job in _get(f"{address}/jobs/overview")["jobs"] if job["name"] == name]
    if not jobs:
        return ""
    newest = max(jobs, key=lambda job: job["start-time"])["jid"]
    found = _get(f"{address}/jobs/{newest}/exceptions")
    entries = found.get("exceptionHistory", {}).get("entries", [])
    texts = [f"{entry.get('taskName')}:\n{entry.get('stacktrace')}" for entry in entries]
    return "\n".join(texts or [found.get("root-exception") or ""])


def _job_name(result: PipelineResult | None) -> str | None:
    """Returns the name of a job at Flink, which is its id at the job server without the last part."""
    job = getattr(result, "_job_id", None)
    return job and job.rpartition("_")[0]


def _running(address: str, name: str) -> list[str]:
    """Returns the ids of the jobs at Flink with this name that have not ended."""
    jobs = _get(f"{address}/jobs/overview")["jobs"]
    return [job["jid"] for job in jobs if job["name"] == name and job["state"] not in _FINAL]


def _get(url: str) -> Any:
    with urllib.request.urlopen(url, timeout=_SECONDS) as response:
        return json.load(response)
