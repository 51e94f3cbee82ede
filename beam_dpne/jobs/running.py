"""A run that nothing refuses: its budget is kept, and its job publishes a release."""

import contextlib
import dataclasses
from collections.abc import Iterator

from msgspec import UNSET

from beam_dpne.accounting.budget import open_budget
from beam_dpne.accounting.population import Counted, CountedLedger, counted_ledger
from beam_dpne.accounting.series import open_series
from beam_dpne.documents.private_run import PrivateRun
from beam_dpne.elements import progress
from beam_dpne.elements.processes import can_be_sent, in_new_process
from beam_dpne.errors import BeamDpneError, UsageError, kind_of, own_reason
from beam_dpne.jobs.budgets import charged_budget, kept_budget, key_digests
from beam_dpne.jobs.job import Job, ReadRecords
from beam_dpne.jobs.local import logged_files, run_here
from beam_dpne.jobs.made import Made
from beam_dpne.jobs.parameters import FailureLogging, Rejecting, Running, Writing
from beam_dpne.jobs.preparing import Prepared
from beam_dpne.jobs.series import settle, started_series
from beam_dpne.jobs.showing import Showing, is_whole
from beam_dpne.release.places import LEDGER_NAME, real_path
from beam_dpne.release.publishing import refuse_other_input
from beam_dpne.release.reading import decode_ledger
from beam_dpne.release.schema import ReleaseNotes
from beam_dpne.release.whole import Release, release_in_memory
from beam_dpne.storage.directories import absolute_path, directory_at, reason


@dataclasses.dataclass(kw_only=True)
class Ended:
    """How a run ended whose release is published, or whose template is written.

    Attributes:
      is_template: whether only a template was written, which publishes nothing.
      records: what is known of the records; None of a template, and of a run that ended with an error
        after its ledger was in place.
    """

    is_template: bool = False
    records: ReadRecords | None = None


def run(made: Made, prepared: Prepared, showing: Showing) -> Ended:
    """Publishes a release of what the parameters ask for.

    Args:
      made: the groups of parameters of a program.
      prepared: what `prepare` has found of the run.
      showing: how the operator is told and shown what happens.

    Raises:
      UsageError, BudgetError: the run is refused.
      RunError: the run failed; a release is complete only if its ledger is there.
    """
    private = prepared.private
    if private is None:
        raise UsageError("`epsilon` and `delta` must be given.")
    output = made[Writing].output
    ended = Ended()
    with (
        only_run_to(output),
        kept_budget(made, private, showing),
        started_series(made, private, showing) as started,
        _not_failed_once_published(output, showing),
    ):
        ended.records = _run(made, prepared, private, showing)
        ended.is_template = ended.records is None
        if started is not None and not ended.is_template:
            settle(started.participation, output, showing.tell)
    return ended


def _ledger_in(output: str) -> bytes | None:
    """Returns the bytes of the ledger in a directory, or None if there is none, or none can be read."""
    with contextlib.suppress(Exception):
        return directory_at(output).read(LEDGER_NAME)
    return None


@contextlib.contextmanager
def _not_failed_once_published(output: str, showing: Showing) -> Iterator[None]:
    """Lets a run that has published end well, whatever happens after its ledger is in place.

    Whoever repeated the run would spend its budget twice. An error of ours is raised before the ledger
    is written, so that a new ledger is then that of another run to the same directory.

    Args:
      output: the directory of the release, which is reserved for this run, so that no other run has
        written a ledger since this begins.
      showing: how the operator is told that something went wrong.
    """
    before = _ledger_in(output)
    try:
        yield
    except BaseException as error:
        if progress.snapshot().stage != progress.PUBLISHED:
            now = _ledger_in(output)
            if now in (None, before) or own_reason(error.__context__ or error) is not None:
                raise
        progress.enter(progress.PUBLISHED)
        showing.tell(is_whole(f"Its run ended with {kind_of(error)} after that."))


def run_in_memory(made: Made, prepared: Prepared, showing: Showing) -> tuple[Release, ReadRecords]:
    """Returns the release of what the parameters ask for, without files, and what it has read.

    If the run has a budget, it is charged before the release is given back. A release is withheld if
    its budget or its series has one of another input under the same key and parameters, or this
    process has given one back. Nobody has seen it then, so that it costs nothing.

    A fork would wait for ever for a lock that another thread of the caller has, so that a new process,
    which has no other threads, forks those that share the work.

    Raises:
      UsageError, BudgetError: the run is refused.
      ReleaseError: the run key has met another input.
      RunError: the run failed, and there is no release.
    """
    private = prepared.private
    if private is None:
        raise UsageError("`epsilon` and `delta` must be given.")
    workers = prepared.workers or 1
    job = _job(made, prepared, private, output="")
    log = made[FailureLogging].failure_log
    with (
        charged_budget(made, private, showing) as charge,
        started_series(made, private, showing) as started,
    ):
        progress.reset()
        with showing.progress(sum(file.size for file in prepared.files)):
            if workers > 1 and private.partitions > 1 and can_be_sent(job):
                files, records = in_new_process(logged_files, job, workers, log)
            else:
                files, records = logged_files(job, 1, log)
        release = release_in_memory(files)
        ledger = files[LEDGER_NAME]
        # Another run may have come to its end since this one has begun.
        refuse_other_input(_with_one_noise(made, private), ledger)
        _refuse_key_of_another(ledger)
        charge.settle(ledger, showing)
        # Of two runs that came to their ends at the same time at least one sees the other's ledger.
        refuse_other_input(_with_one_noise(made, private), ledger)
        if started is not None:
            started.settle(counted_ledger(ledger, LEDGER_NAME))
    return release, records


# The ledgers of the first releases in memory under each key that was given, by the commitments to the
# key with the parameters.
_FIRST: dict[str, bytes] = {}


def _refuse_key_of_another(ledger: bytes) -> None:
    """Raises ReleaseError if a release in memory has the noise of an earlier one of another input."""
    key = decode_ledger(ledger, LEDGER_NAME).run_key
    if key.given and key.bound_commitment is not UNSET:
        refuse_other_input([_FIRST.setdefault(key.bound_commitment, ledger)], ledger)


def _job(made: Made, prepared: Prepared, private: PrivateRun, *, output: str) -> Job:
    """Returns the job of a run; its output is empty if the release stays in memory."""
    rejects = made[Rejecting].rejects
    return Job(
        private=private,
        files=prepared.files,
        reading=prepared.reading,
        output=output,
        output_format=made[Writing].output_format if Writing in made else "jsonl",
        overwrite=Writing in made and made[Writing].overwrite,
        notes=made[ReleaseNotes],
        rejects=None if rejects is None else absolute_path(rejects),
        max_rejected=made[Rejecting].max_rejected,
        earlier=_with_one_noise(made, private),
    )


def _with_one_noise(made: Made, private: PrivateRun) -> tuple[bytes, ...]:
    """Returns the ledgers of releases under the key of a run with its parameters, as far as known."""
    own = key_digests(private)
    runs: list[Counted] = []
    if own is not None and (path := made[Running].budget):
        runs += open_budget(path).runs().values()
    if own is not None and private.participation is not None:
        runs += [run for _, run in open_series(private.participation.path).runs().values()]
    ledgers = (_ledger_of(run) for run in runs if run.run_key == own)
    return tuple(filter(None, ledgers))


def _ledger_of(run: Counted) -> bytes | None:
    """Returns the ledger of a run, or that which a run that was not settled has published."""
    if isinstance(run, CountedLedger):
        return run.data
    with contextlib.suppress(BeamDpneError):
        data = _ledger_in(run.output) if run.output else None
        if data is not None and counted_ledger(data, run.output).run_key == run.run_key:
            return data
    return None


def _run(
    made: Made, prepared: Prepared, private: PrivateRun, showing: Showing
) -> ReadRecords | None:
    """Runs the job; returns what is known of its records, or None if it did not run to its end."""
    job = _job(made, prepared, private, output=absolute_path(made[Writing].output))
    progress.reset()
    with showing.progress(sum(file.size for file in prepared.files)):
        if prepared.options is None or prepared.workers is not None:
            records: ReadRecords | None = run_here(
                job, prepared.workers or 1, lambda: _with_one_noise(made, private)
            )
        else:
            from beam_dpne.jobs.engine import run_job

            running = made[Running]
            records = run_job(
                job,
                prepared.options,
                set_limit=running.side_input_limit,
                harness_timeout=running.harness_timeout,
            )
        if records is not None:
            progress.enter(progress.PUBLISHED)
    return records


@contextlib.contextmanager
def only_run_to(output: str) -> Iterator[None]:
    """Refuses a second run to a directory while this one is at work, if both are on this machine.

    Raises:
      UsageError: another run is at work; it has not published yet.
    """
    directory = directory_at(real_path(output))
    with contextlib.ExitStack() as stack:
        try:
            stack.enter_context(directory.reserved())
        except BlockingIOError:
            raise UsageError(
                f"`output` must be of one run at a time, got `output={output}`, to which another "
                "run is at work. Choose another directory."
            ) from None
        except OSError as error:
            raise UsageError(
                f"`output` must be a directory that can be made, got `output={output}` "
                f"({reason(error)})."
            ) from None
        yield
