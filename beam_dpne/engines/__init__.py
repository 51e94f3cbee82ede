"""Running a pipeline on an engine: workers are checked first, and jobs end with their launcher.

An engine runs the steps of a pipeline in Python processes, called harnesses. It keeps a job whose
harnesses cannot start in the state RUNNING for ever. By default Beam's job server for Flink stops the
harness of a step when the step is done, and starts another one for the next step. The pipelines of this
package have dozens of short steps, and hang when a step meets a harness that is being stopped.

The job server also forgets a job that is cancelled, while Flink runs on. So a job is cancelled at Flink
itself too, through its REST interface.
"""

import concurrent.futures
import contextlib
import logging
import os
import re
import signal
import sys
import threading
from collections.abc import Callable, Iterator

import apache_beam as beam
import grpc
from apache_beam.options.pipeline_options import (
    DirectOptions,
    PipelineOptions,
    PortableOptions,
)
from apache_beam.portability.api import beam_job_api_pb2, beam_job_api_pb2_grpc
from apache_beam.runners.runner import PipelineResult, PipelineRunner, PipelineState

from beam_dpne import __version__
from beam_dpne.engines.flink import (
    cancel_at_flink,
    failure_at_flink,
    flink_address,
    job_id,
    watched_at_flink,
)
from beam_dpne.errors import EngineError, UsageError, own_reason

HARNESS_KEPT_MILLIS = 120_000
# Options that a job on Flink needs besides addresses. The first keeps harnesses from one step to the
# next. The second runs stages one after the other, so that there may be more tasks than slots; only a
# step whose output has one reader, on the same worker, runs together with it. Other engines ignore it.
FLINK_OPTIONS = (
    f"--environment_cache_millis={HARNESS_KEPT_MILLIS}",
    "--execution_mode_for_batch=BATCH",
)
_PORTABLE = "PortableRunner"
_log = logging.getLogger(__name__)
# Airflow's operators of Beam find the job by this line.
_SENT = "Created job with id: [%s]"
# A TaskManager goes on asking a harness that is gone, also after each restart of the job at Flink.
_LOST_HARNESS = re.compile(r"(?s) failed in state FAILED: .*StatusRuntimeException: CANCELLED: ")
# What a stage of these pipelines needs for each result that it writes; Flink's default is 512.
_SORT_BUFFERS = 64
_FEW_BUFFERS = re.compile(
    r"Insufficient number of network buffers: required (\d+), but only (\d+) available. "
    r"The total number of network buffers is currently set to (\d+) of (\d+) bytes"
)
_STOPS_HARNESSES = (_PORTABLE, "FlinkRunner")
_IDLE_SECONDS = 2.0
_SECONDS_OF_ANSWER = 10


def run(
    pipeline: beam.Pipeline,
    *,
    harness_timeout: int = 120,
    shared_folder: str | None = None,
    may_repeat: Callable[[], bool] | None = None,
) -> PipelineResult:
    """Runs a pipeline to its end, and cancels it if this process is stopped.

    If the engine is reached through a job server (Flink, Spark, Prism), a job of one step is run first.
    If the workers cannot do it in time, that job is cancelled and the pipeline is not sent. When this
    process is interrupted (Ctrl-C) or terminated (SIGTERM, in the main thread), or an error is raised
    here, the job is cancelled, with `--flink_master` at Flink itself too. Without that option Flink
    runs on. A launcher that is killed (SIGKILL) cancels nothing.

    If a job failed because the engine has lost a harness, it may be sent once more, with a warning in
    the log. The second job has the noise of the first one, so that its input must be the same.

    Args:
      pipeline: A complete pipeline that is not used as a context manager, which would run it.
      harness_timeout: Seconds in which workers must have done a first step; 0 omits this step. If
        `--flink_master` names Flink, a warning tells that it was without TaskManagers for so long.
      shared_folder: A folder that workers must be able to use, which the first step checks, or None.
      may_repeat: Says whether a job that lost a harness may be sent once more: whether it would read
        what it has read. Without it, no job is.

    Returns:
      The result of the finished pipeline.

    Raises:
      ValueError: An option of the pipeline would make it hang or fail.
      EngineError: The workers did not do a first step in time, or failed in it, or Flink has too few
        network buffers.
      RuntimeError: The pipeline failed, as Beam raises it.

    Example:
      >>> from apache_beam.runners.portability.fn_api_runner import FnApiRunner
      >>> pipeline = beam.Pipeline(runner=FnApiRunner())
      >>> _ = pipeline | beam.Create(["done"]) | beam.Map(print)
      >>> run(pipeline).state
      done
      'DONE'
    """
    check_options(pipeline)
    with _terminable():
        check_workers(pipeline, harness_timeout, shared_folder)
        try:
            return _run_once(pipeline, harness_timeout)
        except RuntimeError as error:
            _refuse_few_buffers(error)
            is_lost = _LOST_HARNESS.search(str(error)) is not None
            if not is_lost or may_repeat is None or not may_repeat():
                raise
        _log.warning(
            "The engine has lost a worker, and ended the job. The job is sent once more under the same "
            "run key. If it fails again, look for the worker's end in the logs of the machine: often "
            "it had too little memory."
        )
        return _run_once(pipeline, harness_timeout)


def _run_once(pipeline: beam.Pipeline, harness_timeout: int) -> PipelineResult:
    """Sends a pipeline as one job, and waits for its end."""
    options = pipeline.options
    pipeline.result = result = send(pipeline)
    if (job := job_id(result)) is not None:
        _log.info(_SENT, job)
    with (
        cancelled_on_failure(result, options),
        watched_at_flink(result, options, harness_timeout),
    ):
        result.wait_until_finish()
    return result


def _refuse_few_buffers(error: RuntimeError) -> None:
    """Raises EngineError if a job failed because Flink has too few network buffers."""
    if found := _FEW_BUFFERS.search(str(error)):
        required, left, total, size = map(int, found.groups())
        granted = total * size >> 20
        remedies = [
            f"Set taskmanager.memory.network.min and .max to {2 * granted}m or more, and raise "
            "taskmanager.memory.process.size by as much",
            "or give a smaller --parallelism.",
        ]
        if required > _SORT_BUFFERS:
            remedies.insert(
                1, f"set taskmanager.network.sort-shuffle.min-buffers to {_SORT_BUFFERS}"
            )
        raise EngineError(
            f"TaskManagers have too few network buffers: a task needed {required}, and {left} of "
            f"{total} were left ({granted} MiB). {', '.join(remedies)}"
        ) from None


@contextlib.contextmanager
def pipeline(
    options: PipelineOptions | None = None,
    *,
    runner: str | PipelineRunner | None = None,
    harness_timeout: int = 120,
) -> Iterator[beam.Pipeline]:
    """Gives a pipeline to build in a `with` block, and runs it by `run` at the end of the block.

    If the block raises an error, nothing is run. Options that would make the pipeline hang are refused
    before the block begins. After the block, the attribute `result` of the pipeline is its result.

    Args:
      options: Beam's options; None for those of the command line, as in `beam.Pipeline`.
      runner: Beam's runner, or its name; None for the one that `options` name.
      harness_timeout: Seconds in which workers must have done a first step; 0 omits this step.

    Yields:
      A pipeline to build. It must not be run in the block.

    Raises:
      ValueError: An option of the pipeline would make it hang or fail.
      EngineError: The workers did not do a first step in time, or failed in it.
      RuntimeError: The pipeline failed, as Beam raises it.

    Example:
      >>> with pipeline(PipelineOptions(["--runner=FnApiRunner"])) as built:
      ...     _ = built | beam.Create(["done"]) | beam.Map(print)
      done
      >>> built.result.state
      'DONE'
    """
    built = beam.Pipeline(runner=runner, options=options)
    check_options(built)
    yield built
    run(built, harness_timeout=harness_timeout)


def check_options(pipeline: beam.Pipeline) -> None:
    """Raises UsageError for options with which a pipeline would hang or fail."""
    kept = pipeline.options.view_as(PortableOptions).environment_cache_millis
    if type(pipeline.runner).__name__ in _STOPS_HARNESSES and not int(kept):
        raise UsageError(
            "environment_cache_millis must be above 0 with a job server, got "
            f"environment_cache_millis={kept}: an engine such as Flink would start and stop a Python "
            "process for each step of the pipeline, and may hang; add "
            f"beam_dpne.engines.FLINK_OPTIONS, which are {' '.join(FLINK_OPTIONS)}, to the "
            "pipeline's options."
        )
    mode = pipeline.options.view_as(DirectOptions).direct_running_mode
    kinds = {kind.__name__ for kind in type(pipeline.runner).__mro__}
    if mode == "multi_threading" and "FnApiRunner" in kinds:
        raise UsageError(
            "direct_running_mode must be 'in_memory' or 'multi_processing', got "
            "direct_running_mode='multi_threading': Beam may send an element before its coder has "
            "written all of it, which the next step cannot decode."
        )


def options_of_job_server(endpoint: str) -> frozenset[str] | None:
    """Returns the names of the options that a job server has beside Beam's own.

    Args:
      endpoint: Its address, HOST:PORT.

    Returns:
      None if it does not answer, which the first step of the workers then tells with its remedy.
    """
    asked = beam_job_api_pb2.DescribePipelineOptionsRequest()
    with grpc.insecure_channel(endpoint) as channel:
        server = beam_job_api_pb2_grpc.JobServiceStub(channel)
        try:
            described = server.DescribePipelineOptions(asked, timeout=_SECONDS_OF_ANSWER)
        except grpc.RpcError:
            return None
    return frozenset(option.name for option in described.options)


def holds_flattens_back(pipeline: beam.Pipeline) -> bool:
    """Whether the runner may delay a Flatten while a PCollection that leads to it is still needed.

    Beam's embedded runner does: if step A puts something into a Flatten, step B reads A's input too,
    and B waits for the Flatten, then B never runs. It may also be behind a job server. Dataflow does
    not, and Flink does not, which is known by `--flink_master`.
    """
    kinds = {kind.__name__ for kind in type(pipeline.runner).__mro__}
    return "DataflowRunner" not in kinds and flink_address(pipeline.options) is None


def _has_job_server(pipeline: beam.Pipeline) -> bool:
    return _PORTABLE in {kind.__name__ for kind in type(pipeline.runner).__mro__}


def send(pipeline: beam.Pipeline) -> PipelineResult:
    """Sends a job to its engine; other runners run the whole pipeline here, or start their engine.

    A job that is being sent to a job server when this process is interrupted would stay there, since
    nothing here knows it yet. So it is sent in a thread, and when it is known, it is cancelled. Runners
    that start their engine themselves need the main thread, and end it with this process.
    """
    portable = pipeline.options.view_as(PortableOptions)
    if not (_has_job_server(pipeline) and portable.job_endpoint):
        return pipeline.run()
    with concurrent.futures.ThreadPoolExecutor(max_workers=1) as pool:
        sent = pool.submit(pipeline.run)
        try:
            return sent.result()
        except BaseException:
            # Leaving the block waits until the job is sent, unless sending itself has failed.
            sent.add_done_callback(
                lambda job: job.exception() or cancel(job.result(), pipeline.options)
            )
            raise


@contextlib.contextmanager
def cancelled_on_failure(result: PipelineResult, options: PipelineOptions) -> Iterator[None]:
    """Cancels a job when an error is raised; it would publish otherwise."""
    try:
        yield
    except BaseException:
        cancel(result, options)
        raise


def cancel(result: PipelineResult, options: PipelineOptions) -> None:
    """Cancels a job that has not ended, as far as possible, at the job server and at Flink."""
    with contextlib.suppress(Exception):
        if PipelineState.is_terminal(result.state):
            return
    with contextlib.suppress(Exception):
        result.cancel()
    with contextlib.suppress(Exception):
        cancel_at_flink(result, options)


def check_workers(pipeline: beam.Pipeline, timeout: int, shared_folder: str | None = None) -> None:
    """Runs a job of one step without data, to see that workers start, and cancels it if they do not.

    Nothing is done without a job server, or with a timeout of 0.

    Args:
      pipeline: The pipeline that is to run.
      timeout: Seconds in which the job must have ended.
      shared_folder: A folder that a worker must be able to use, or None.

    Raises:
      EngineError: The engine did not start, or the workers did not do the job in time, or failed in it.
    """
    if not (timeout and _has_job_server(pipeline)):
        return
    options = pipeline.options
    first = beam.Pipeline(runner=pipeline.runner, options=options)
    versions = (beam.__version__, __version__)
    _ = first | beam.Create([versions]) | beam.Map(_check_worker, shared_folder)
    portable = options.view_as(PortableOptions)
    advice = (
        f"Likely wrong: environment_type={portable.environment_type or 'DOCKER'}, "
        f"environment_config={portable.environment_config}: the engine must reach it, and it must "
        f"start a Python that has beam_dpne and the launcher's version of Beam, {beam.__version__}."
    )
    try:
        result = send(first)
    except Exception as error:
        raise EngineError(
            f"the engine of {type(pipeline.runner).__name__} did not take a first step, which holds no "
            f"data: {type(error).__name__}: {error} {_remedy_of_start(pipeline)}"
        ) from None
    with cancelled_on_failure(result, options):
        try:
            _wait_at_most(timeout, result)
        except RuntimeError as error:
            reason = own_reason(error) or f"{error} {advice}"
            raise EngineError(
                f"the workers failed in a first step, which holds no data: {reason}"
            ) from None
        if not PipelineState.is_terminal(result.state):
            if (reason := failure_at_flink(result, options)) is not None:
                raise EngineError(
                    f"the workers failed in a first step, which holds no data: {reason}"
                )
            raise EngineError(
                f"no worker did a first step within {timeout} s (`harness_timeout`), so its job was "
                f"cancelled and the pipeline was not sent. {advice} On Flink the job of that step "
                "stays there without --flink_master HOST:8081."
            )


def _wait_at_most(seconds: float, result: PipelineResult) -> None:
    """Waits for the end of a job, which raises what Beam raises, and returns after so many seconds.

    Beam's own wait with a limit sees the end of a job up to a second late.
    """
    ended: concurrent.futures.Future[object] = concurrent.futures.Future()

    def wait() -> None:
        try:
            ended.set_result(result.wait_until_finish())
        except Exception as error:
            ended.set_exception(error)

    threading.Thread(target=wait, name="first step", daemon=True).start()
    concurrent.futures.wait([ended], seconds)
    if ended.done():
        ended.result()


def _remedy_of_start(pipeline: beam.Pipeline) -> str:
    """Returns what to do about an engine that does not start, or is not reached."""
    endpoint = pipeline.options.view_as(PortableOptions).job_endpoint
    if endpoint:
        return f"Is a job server at --job_endpoint {endpoint}?"
    starting = {
        "PrismRunner": "downloads Prism. Without a network give --prism_location FILE",
        "FlinkRunner": "starts Flink's job server by Java, and downloads it. Install Java; without a "
        "network give --flink_job_server_jar FILE",
        "SparkRunner": "starts Spark's job server by Java, and downloads it. Install Java; without a "
        "network give --spark_job_server_jar FILE",
    }
    how = starting.get(type(pipeline.runner).__name__, "starts the engine of this runner")
    return (
        f"Beam {how}, or name a job server that runs by --job_endpoint HOST:PORT. On this machine a "
        "run needs no engine: leave --runner out."
    )


def _check_worker(launcher: tuple[str, str], shared_folder: str | None) -> None:
    """Raises EngineError if a worker has other versions than the launcher, or cannot use its folder."""
    here = (beam.__version__, __version__)
    if here != launcher:
        raise EngineError(
            f"`workers` must have the launcher's versions of apache-beam and beam_dpne, "
            f"{' and '.join(launcher)}, got {' and '.join(here)}."
        )
    if shared_folder is not None and not os.access(shared_folder, os.R_OK | os.W_OK | os.X_OK):
        raise EngineError(
            "temp_location must be a folder that launcher and workers share, as one user, outside of "
            f"what is published. A worker cannot use the run's folder {shared_folder}."
        )


@contextlib.contextmanager
def _terminable() -> Iterator[None]:
    """Lets SIGTERM cancel the job before it ends the process.

    This works only in the main thread, and only if the signal is not handled or ignored already.
    """
    is_main = threading.current_thread() is threading.main_thread()
    if not is_main or signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL:
        yield
        return
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)


def drop_idle_processors(seconds: float = _IDLE_SECONDS) -> None:
    """Lets harnesses that start in this process drop what has been idle for so long, or twice that.

    Beam keeps what has processed a bundle for one to two minutes, for another bundle of the same step:
    the step with its last element and side inputs, and a buffer of output that was up to 10 MB. A job
    of this package has many short steps, so that most of them come in one minute. Ten times the titles
    with 187 stages on Flink needed 1.6 GB in a harness with the minute, and .9 GB with two seconds.
    """
    from apache_beam.runners.worker import sdk_worker

    sdk_worker.DEFAULT_BUNDLE_PROCESSOR_CACHE_SHUTDOWN_THRESHOLD_S = seconds
