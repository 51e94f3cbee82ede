"""How a job runs on Beam: its pipeline, options, runner and temporary folder, and its end."""

import argparse
import collections
import contextlib
import dataclasses
import importlib
import os
import re
import time
import uuid
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Any, TypeVar

import apache_beam as beam
from apache_beam.io.filesystems import FileSystems
from apache_beam.metrics.metric import MetricsFilter
from apache_beam.options.pipeline_options import (
    DebugOptions,
    GoogleCloudOptions,
    PipelineOptions,
    PortableOptions,
    SetupOptions,
    StandardOptions,
)
from apache_beam.options.pipeline_options_validator import PipelineOptionsValidator
from apache_beam.runners.portability.fn_api_runner import FnApiRunner, worker_handlers
from apache_beam.runners.runner import PipelineResult, PipelineRunner, PipelineState, create_runner
from apache_beam.runners.worker import sdk_worker

from beam_dpne import engines
from beam_dpne.accounting.population import counted_ledger
from beam_dpne.documents.private_run import PrivateRun
from beam_dpne.documents.steps import DocumentsTransform
from beam_dpne.elements import encoding, progress
from beam_dpne.elements.encoding import SetStore
from beam_dpne.errors import (
    BeamDpneError,
    RunError,
    UsageError,
    printable_reason,
    withhold_unhandled,
)
from beam_dpne.jobs.arguments import EMBEDDED, runner_of, unknown_argument, works_here
from beam_dpne.jobs.budgets import key_digests
from beam_dpne.jobs.job import Job, ReadRecords
from beam_dpne.ngrams.run import NgramsRun
from beam_dpne.ngrams.steps import PrivateNgrams
from beam_dpne.phrase_counts.run import PhraseCountsRun
from beam_dpne.reading.files import patterns_of
from beam_dpne.reading.rejects import NO_RECORDS, REJECTED_RECORDS
from beam_dpne.reading.steps import ReadFiles
from beam_dpne.release.places import LEDGER_NAME
from beam_dpne.release.steps import WriteRelease
from beam_dpne.set_union.run import SetUnionRun
from beam_dpne.storage import private
from beam_dpne.storage.directories import absolute_path, directory_at
from beam_dpne.storage.objects import exists
from beam_dpne.storage.paths import is_local
from beam_dpne.validation import did_you_mean

_IDLE_SECONDS = 0.1
# A network disk may show a file of another machine as missing for so long.
_UNSEEN_SECONDS = 60.0
# Dataflow's Flex launcher has the job written to such a path, which is observed and not documented.
_FLEX_LAUNCH = re.compile(r"gs://.+/template_launches/\d{4}(?:[-_]\d\d){5}-\d+/job_object")
_View = TypeVar("_View", bound=PipelineOptions)


class _Options(PipelineOptions):
    """Beam's options with one view of each kind, which parses the arguments once.

    Beam views the options for each two types that it compares, 2,700 times for a pipeline of seven
    lengths, and parses the arguments for each new view. All views have one state.
    """

    def view_as(self, cls: type[_View]) -> _View:
        """Returns the view of a kind."""
        views = vars(self).setdefault("_views", {})
        if cls not in views:
            views[cls] = super().view_as(cls)
        return views[cls]

    def __getstate__(self) -> dict[str, Any]:
        """Returns what is copied or sent: without the views, whose states could become their own."""
        return {name: item for name, item in super().__getstate__().items() if name != "_views"}


@dataclasses.dataclass(frozen=True, kw_only=True)
class BeamOptions:
    """The runner of a pipeline, and its options.

    Attributes:
      runner: Beam's runner, or None for the local driver, which needs none.
      pipeline_options: Beam's options; its file systems take some of them.
    """

    runner: PipelineRunner | None
    pipeline_options: PipelineOptions

    @property
    def is_embedded(self) -> bool:
        """Whether the runner is Beam's embedded one, in this process."""
        return isinstance(self.runner, FnApiRunner)

    @property
    def is_here(self) -> bool:
        """Whether this process does all the work, alone or as the one worker of an engine."""
        if self.hands_over:
            return False
        environment_type = self.pipeline_options.view_as(PortableOptions).environment_type
        return self.runner is None or works_here(type(self.runner).__name__, environment_type)

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


def beam_options(arguments: Sequence[str], known: Collection[str] = ()) -> BeamOptions:
    """Returns Beam's options, without a runner unless one is named.

    Args:
      arguments: what a program does not know itself.
      known: names of the program's own options, one of which a wrong name may have meant.

    Raises:
      UsageError: if neither this package nor Beam has an option, or a value is wrong.
    """
    runner, others = runner_of(arguments)
    options = _Options(others)
    flags = {other.partition("=")[0] for other in others}
    if "--save_main_session" not in flags:
        # No code of this package is in the main module, and the data there may be private.
        options.view_as(SetupOptions).save_main_session = False
    if "--environment_cache_millis" not in flags:
        # Otherwise Flink starts a new Python for each short stage, which takes 3 s instead of 0.1 s,
        # and hangs if it meets a Python that is being stopped.
        options.view_as(PortableOptions).environment_cache_millis = engines.HARNESS_KEPT_MILLIS
    if runner is None:
        _check_known(others, known)
        return BeamOptions(runner=None, pipeline_options=options)
    if runner.lower() in EMBEDDED:
        _check_known(others, known)
        return BeamOptions(runner=FnApiRunner(), pipeline_options=options)
    if _kind_of(runner) == "prismrunner":
        # Prism asks a bundle to give up half of its elements whenever it made no progress for a tenth
        # of a second. One of ours is a partition of users and takes longer, and the worker is a single
        # process, so that data travel twice for nothing.
        options.view_as(DebugOptions).add_experiment("prism_disable_sdf_split")
    # In the launch of a Flex Template, Dataflow has checked all names by the form, and its launcher
    # adds options of its own.
    if _kind_of(runner) == "dataflowrunner" and not is_flex_launch(options):
        _check_known(others, known)
    named = BeamOptions(runner=_runner(runner, options), pipeline_options=options)
    endpoint = options.view_as(PortableOptions).job_endpoint
    # This runner sends the options that its job server describes, and drops the others.
    if _kind_of(runner) == "portablerunner" and endpoint not in (None, "embed"):
        _check_known_to_engine(others, endpoint, known)
    return named


def _kind_of(runner: str) -> str:
    """Returns the name of a runner's class, which may come with its module, in small letters."""
    return runner.rpartition(".")[2].lower()


def _runner(name: str, options: PipelineOptions) -> PipelineRunner:
    """Returns the runner of a name; raises UsageError if it, its options or a package is missing."""
    try:
        runner = create_runner(name)
    except (ValueError, ImportError, AttributeError) as error:
        hint = did_you_mean(name, StandardOptions.KNOWN_RUNNER_NAMES)
        raise UsageError(f"--runner cannot be used, got --runner={name}: {error}{hint}") from None
    if type(runner).__name__ == "DataflowRunner":
        try:
            importlib.import_module("apache_beam.runners.dataflow.internal.apiclient")
        except ImportError:
            raise UsageError(
                f"--runner cannot be used, got --runner={name}: packages for Google Cloud are missing. "
                "Install beam_dpne with its extra gcp."
            ) from None
    if faults := PipelineOptionsValidator(options, runner).validate():
        told = " ".join(fault.rstrip(".") + "." for fault in faults)
        raise UsageError(f"runner needs other options, got runner={name}: {told}")
    return runner


def is_classic_template(options: PipelineOptions) -> bool:
    """Whether the job is written and not run; a Flex Template's launcher writes and runs each job."""
    return bool(_template_of(options)) and not is_flex_launch(options)


def is_flex_launch(options: PipelineOptions) -> bool:
    """Whether the launcher of a Flex Template has started this process."""
    return _FLEX_LAUNCH.fullmatch(_template_of(options)) is not None


def _template_of(options: PipelineOptions) -> str:
    return options.view_as(GoogleCloudOptions).template_location or ""


def _check_known(arguments: Sequence[str], known: Collection[str]) -> None:
    """Raises UsageError about an argument that Beam does not know, and would drop silently."""
    for argument in unknown_to_beam(arguments):
        options = PipelineOptions([]).get_all_options()
        raise unknown_argument(argument, [*known, *options])


def _check_known_to_engine(arguments: Sequence[str], endpoint: str, known: Collection[str]) -> None:
    """Raises UsageError about an option that neither Beam nor the job server has, if this answers."""
    of_engine = engines.options_of_job_server(endpoint)
    if of_engine is None:
        return
    for argument in unknown_to_beam(arguments):
        name = argument.partition("=")[0].lstrip("-")
        # What begins otherwise is the value of an option of the engine.
        if argument.startswith("--") and name not in of_engine:
            of_beam = PipelineOptions([]).get_all_options()
            raise unknown_argument(argument, [*known, *of_engine, *of_beam])


def unknown_to_beam(arguments: Sequence[str]) -> list[str]:
    """Returns those of some arguments that Beam does not know."""
    parsers: list[argparse.ArgumentParser] = []
    PipelineOptions([]).get_all_options(add_extra_args_fn=parsers.append)
    return parsers[0].parse_known_args(list(arguments))[1]


def run_job(
    job: Job, options: BeamOptions, *, set_limit: int, harness_timeout: int
) -> ReadRecords | None:
    """Runs a job as a pipeline on a runner of Beam.

    Args:
      job: what is read, released and published.
      options: the runner and its options.
      set_limit: bytes above which a set reaches workers as a file.
      harness_timeout: seconds in which an engine's workers must do a first step; 0 omits it.

    Returns:
      What is known of the records that were read; None if the job did not run to its end, as that of a
      template.

    Raises:
      RunError: as in `run_pipeline`, or the release was published where the launcher does not have it.
    """
    progress.enter("engine")
    with run_folder(options, job.output) as folder:
        store = SetStore(folder=folder, limit=set_limit, from_launch=not options.hands_over)
        pipeline = _pipeline(job, options, store)
        timeout = 0 if options.hands_over else harness_timeout
        before = _versions(job)
        earlier = _ledger_of_another(job)
        result = run_pipeline(
            pipeline,
            timeout,
            folder if is_local(folder) else None,
            may_repeat=lambda: before is not None and _versions(job) == before,
        )
        if not has_finished(result):
            return None
    check_published(job.output, earlier)
    found = counters(result)
    return ReadRecords(
        rejected=found.get(REJECTED_RECORDS, 0), are_none=bool(found.get(NO_RECORDS))
    )


def _versions(job: Job) -> list[tuple[int, int]] | None:
    """Returns size and last change of each file of the input; None unless all are on disks here.

    An object store would be asked once for each file.
    """
    try:
        found = [os.stat(file.path) for file in job.files]
    except OSError:
        return None
    return [(each.st_size, each.st_mtime_ns) for each in found]


def _ledger_of_another(job: Job) -> bytes | None:
    """Returns the ledger that a job replaces, which is on a disk; None if it may be its own."""
    ledger = directory_at(job.output).read(LEDGER_NAME) if is_local(job.output) else None
    own = key_digests(job.private)
    if ledger is None or own is None:
        return ledger
    with contextlib.suppress(BeamDpneError):
        if counted_ledger(ledger, LEDGER_NAME).run_key == own:
            return None
    return ledger


def check_published(
    output: str, earlier: bytes | None = None, seconds: float = _UNSEEN_SECONDS
) -> None:
    """Checks that the release of a job that has ended well is in a directory, if that is on a disk.

    Args:
      output: the directory.
      earlier: the ledger that was there before, which the job must have replaced.
      seconds: how long its ledger may take to be seen here.

    Raises:
      RunError: the ledger is not there.
    """
    end = time.monotonic() + seconds
    while is_local(output) and directory_at(output).read(LEDGER_NAME) in (None, earlier):
        if time.monotonic() > end:
            here = (
                "there is no ledger here" if earlier is None else "the ledger here is an older one"
            )
            raise RunError(
                f"`output` must be a directory that launcher and workers share, got `output={output}`: "
                f"the job has ended well, and {here}. The release is in this directory on the machine "
                "of a worker, and its budget is spent: copy it from there instead of running again."
            )
        time.sleep(min(1.0, seconds / 10))


def _pipeline(job: Job, options: BeamOptions, store: SetStore) -> beam.Pipeline:
    """Returns the pipeline of a job: files are read, released, and published.

    The tally waits for the list of rejects, so that the list exists if the tally fails the run.
    """
    pipeline = beam.Pipeline(runner=options.runner, options=options.pipeline_options)
    paths = patterns_of(job.files)
    read = pipeline | "Read" >> ReadFiles(inputs=paths, rejects=job.rejects, options=job.reading)
    write = WriteRelease(
        output=job.output,
        output_format=job.output_format,
        notes=job.notes,
        overwrite=job.overwrite,
        tally=read.tally,
        max_rejected=job.max_rejected,
        earlier=job.earlier,
    )
    _ = read.documents | transform_of(job.private, store) | "Publish" >> write
    return pipeline


def transform_of(private: PrivateRun, store: SetStore | None) -> DocumentsTransform:
    """Returns the transform of a program with the parameters of a run."""
    if isinstance(private, NgramsRun):
        return PrivateNgrams.of(private, store)
    if isinstance(private, SetUnionRun):
        from beam_dpne.set_union.steps import PrivateSetUnion

        return PrivateSetUnion.of(private, store)
    if isinstance(private, PhraseCountsRun):
        from beam_dpne.phrase_counts.steps import CountPhrases

        return CountPhrases.of(private, store)
    from beam_dpne.bayesian.steps import BayesianCounts

    return BayesianCounts.of(private, store)


def run_pipeline(
    pipeline: beam.Pipeline,
    harness_timeout: int = 0,
    shared_folder: str | None = None,
    may_repeat: Callable[[], bool] | None = None,
) -> PipelineResult:
    """Runs a pipeline to its end; a launcher that is interrupted or fails cancels the job.

    Args:
      pipeline: the pipeline to run.
      harness_timeout: seconds in which an engine's workers must do a first step; 0 omits it.
      shared_folder: folder of the run that the workers of an engine must be able to use.
      may_repeat: says whether a job that lost a worker may be sent once more.

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
        return engines.run(
            pipeline,
            harness_timeout=harness_timeout,
            shared_folder=shared_folder,
            may_repeat=may_repeat,
        )
    except Exception as error:
        raise RunError(printable_reason(error)) from None


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
        return options.is_embedded or is_local(release)
    return is_local(options.temp_location)


def check_beside(options: BeamOptions, release: str) -> None:
    """Refuses a release in a whole bucket if its run would have its temporary folder beside it.

    Raises:
      UsageError: there is nothing beside a bucket.
    """
    whole_bucket = re.fullmatch(r"[^:]+://[^/]+/*", release)
    if whole_bucket and options.temp_location is None and not _is_here(options, release):
        raise UsageError(
            "`temp_location` must be given if `output` is a whole bucket, got "
            f"`output={release}`: what the run writes between two steps is as secret as the data, and "
            "would be published there."
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
        with private.run_folder(given, ends_with_launcher=options.is_embedded) as folder:
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
            if exists(folder) or FileSystems.match([f"{folder}/*"])[0].metadata_list:
                FileSystems.delete([folder])
