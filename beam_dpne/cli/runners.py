"""How a pipeline runs on Beam: its options, its runner, its temporary folder, and its end."""

import argparse
import collections
import contextlib
import dataclasses
import logging
import os
import re
import sys
import threading
import uuid
from collections.abc import Collection, Iterator, Sequence

import apache_beam as beam
from apache_beam.io.filesystems import FileSystems
from apache_beam.metrics.metric import MetricsFilter
from apache_beam.options.pipeline_options import (
    DebugOptions,
    GoogleCloudOptions,
    PipelineOptions,
    PortableOptions,
    SetupOptions,
)
from apache_beam.runners.portability.fn_api_runner import FnApiRunner, worker_handlers
from apache_beam.runners.runner import PipelineResult, PipelineRunner, PipelineState, create_runner
from apache_beam.runners.worker import sdk_worker

from beam_dpne import engines
from beam_dpne.cli.commands import unknown
from beam_dpne.elements import encoding
from beam_dpne.errors import RunError, UsageError, printable_reason
from beam_dpne.storage import private
from beam_dpne.storage.directories import absolute_path
from beam_dpne.storage.paths import is_local

_EMBEDDED = ("fnapirunner", "embedded")
_IDLE_SECONDS = 0.1
# Dataflow's Flex launcher has the job written to such a path, which is observed and not documented.
_FLEX_LAUNCH = re.compile(r"gs://.+/template_launches/\d{4}(?:[-_]\d\d){5}-\d+/job_object")


@dataclasses.dataclass(frozen=True, kw_only=True)
class BeamOptions:
    """The runner of a pipeline, and its options.

    Attributes:
      runner: Beam's runner; this package always names one, since Beam's default may download one.
      pipeline_options: Beam's options.
    """

    runner: PipelineRunner
    pipeline_options: PipelineOptions

    @property
    def embedded(self) -> bool:
        """Whether the runner is the embedded one, in this process."""
        return isinstance(self.runner, FnApiRunner)

    @property
    def is_template(self) -> bool:
        """Whether a classic template is written instead of a run."""
        return is_classic_template(self.pipeline_options)

    @property
    def temp_location(self) -> str | None:
        """Beam's temporary location, or None."""
        return self.pipeline_options.view_as(GoogleCloudOptions).temp_location

    @property
    def hands_over(self) -> bool:
        """Whether the launcher ends before the job runs, as it does with both kinds of templates."""
        return bool(self.pipeline_options.view_as(GoogleCloudOptions).template_location)


class CachedOptions(PipelineOptions):
    """Beam's options that keep one view for each class, since Beam asks for thousands of views."""

    def view_as(self, cls):
        """Returns the view of a class, the same one each time; all views share their values."""
        views = self.__dict__.setdefault("_views", {})
        if cls not in views:
            views[cls] = super().view_as(cls)
        return views[cls]


def beam_options(arguments: Sequence[str], known: Collection[str] = ()) -> BeamOptions:
    """Returns Beam's options; the runner is the embedded one unless another one is named.

    Args:
      arguments: what a program does not know itself.
      known: names of the program's own options, one of which a wrong name may have meant.

    Raises:
      UsageError: if neither this package nor Beam has an option, or a value is wrong.
    """
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    parser.add_argument("--runner", default=_EMBEDDED[0])
    parsed, others = parser.parse_known_args(list(arguments))
    options = CachedOptions(others)
    flags = {other.partition("=")[0] for other in others}
    if "--save_main_session" not in flags:
        # No code of this package is in the main module, and the data there may be private.
        options.view_as(SetupOptions).save_main_session = False
    if "--environment_cache_millis" not in flags:
        # Otherwise Flink starts a new Python for each short stage, which takes 3 s instead of 0.1 s,
        # and hangs if it meets a Python that is being stopped.
        options.view_as(PortableOptions).environment_cache_millis = engines.HARNESS_KEPT_MILLIS
    if parsed.runner.lower() in _EMBEDDED:
        _check_known(others, known)
        return BeamOptions(runner=FnApiRunner(), pipeline_options=options)
    if parsed.runner.rpartition(".")[2].lower() == "prismrunner":
        # Prism asks a bundle to give up half of its elements whenever it made no progress for a tenth
        # of a second. One of ours is a partition of users and takes longer, and the worker is a single
        # process, so that data travel twice for nothing.
        options.view_as(DebugOptions).add_experiment("prism_disable_sdf_split")
    try:
        return BeamOptions(runner=create_runner(parsed.runner), pipeline_options=options)
    except (ValueError, ImportError, AttributeError) as error:
        raise UsageError(f"runner cannot be used, got runner={parsed.runner}: {error}") from None


def is_classic_template(options: PipelineOptions) -> bool:
    """Whether the job is written and not run; a Flex Template's launcher writes and runs each job."""
    location = options.view_as(GoogleCloudOptions).template_location
    return bool(location) and not _FLEX_LAUNCH.fullmatch(location)


def _check_known(arguments: Sequence[str], known: Collection[str]) -> None:
    """Raises UsageError about an argument that Beam does not know, and would drop silently."""
    parsers: list[argparse.ArgumentParser] = []
    options = PipelineOptions([]).get_all_options(add_extra_args_fn=parsers.append)
    for argument in parsers[0].parse_known_args(list(arguments))[1]:
        raise unknown(argument, [*known, *options])


def run_pipeline(
    pipeline: beam.Pipeline, harness_timeout: int = 0, shared_folder: str | None = None
) -> PipelineResult:
    """Runs a pipeline to its end; a launcher that is interrupted or fails cancels the job.

    Args:
      pipeline: the pipeline to run.
      harness_timeout: seconds in which an engine's workers must do a first step; 0 omits it.
      shared_folder: folder of the run that the workers of an engine must be able to use.

    Raises:
      RunError: if the run failed. Its message is one of this package, or else only the type of the
        error, since the messages of libraries may quote data.
    """
    # A worker in this process (LOOPBACK, which is Prism's default) prints tracebacks that it also logs.
    sdk_worker.__dict__["print"] = lambda *_, **__: None
    withhold_unhandled()
    # The embedded runner runs a stage in one bundle, so that nothing is used again. To keep side inputs
    # it would also measure each of them, object by object.
    engines.drop_idle_processors(_IDLE_SECONDS)
    worker_handlers.STATE_CACHE_SIZE_MB = 0
    try:
        return engines.run(pipeline, harness_timeout=harness_timeout, shared_folder=shared_folder)
    except Exception as error:
        raise RunError(printable_reason(error)) from None


def withhold_unhandled() -> None:
    """Lets errors that nobody handles be logged and not printed, as from now on.

    The interpreter prints an error that ends a thread, or that nobody can catch (in a finalizer), and
    its message may quote the data.
    """
    threading.excepthook = sys.unraisablehook = lambda unhandled: logging.getLogger(
        "apache_beam"
    ).error("Nobody has handled an error.", exc_info=unhandled.exc_value)


def has_finished(result: PipelineResult) -> bool:
    """Whether the job ran to its end, which the job of a template does not."""
    return getattr(result, "has_job", True) and result.state == PipelineState.DONE


def counters(result: PipelineResult) -> dict[str, int]:
    """Returns the values of this package's counters by name, or none if the engine counts nothing."""
    metrics = result.metrics()
    if metrics is None:
        return {}
    values: collections.Counter[str] = collections.Counter()
    for metric in metrics.query(MetricsFilter().with_namespace("beam_dpne"))["counters"]:
        values[metric.key.metric.name] += metric.committed or 0
    return values


def _is_here(options: BeamOptions, release: str) -> bool:
    """Whether the temporary folder of a run is on a disk, instead of an object store."""
    if options.temp_location is None:
        return options.embedded or is_local(release)
    return is_local(options.temp_location)


def check_beside(options: BeamOptions, release: str) -> None:
    """Refuses a release in a whole bucket if its run would have its temporary folder beside it.

    Raises:
      UsageError: there is nothing beside a bucket.
    """
    whole_bucket = re.fullmatch(r"[^:]+://[^/]+/*", release)
    if whole_bucket and options.temp_location is None and not _is_here(options, release):
        raise UsageError(
            "temp_location must be given if output is a whole bucket, got output="
            f"{release}: what the run writes between two steps is as secret as the data, and would be "
            "published there."
        )


@contextlib.contextmanager
def run_folder(options: BeamOptions, release: str) -> Iterator[str]:
    """Yields the run's temporary folder, which is as private as the data, and deletes it at the end.

    It is in the temporary location. Without one it is in the system's temporary folder, which launcher
    and workers of an engine must then share (`engines.run` asks a worker), and for a release on an
    object store on an engine it is beside the release.
    """
    given = options.temp_location
    if _is_here(options, release):
        # Jobs on an engine go on when their launcher is killed.
        with private.run_folder(given, ends_with_launcher=options.embedded) as folder:
            try:
                yield folder
            finally:
                encoding.forget()
        return
    beside = os.path.dirname(absolute_path(release).rstrip("/"))
    folder = FileSystems.join(given or beside, f".beam_dpne-{uuid.uuid4().hex}")
    try:
        yield folder
    finally:
        encoding.forget()
        with contextlib.suppress(Exception):
            if FileSystems.exists(folder) or FileSystems.match([f"{folder}/*"])[0].metadata_list:
                FileSystems.delete([folder])
