"""`beam-dpne ngrams`, `set-union` and `bayesian`: parameters are checked once, then a pipeline runs."""

import contextlib
import dataclasses
import hashlib
import math
import os
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import apache_beam as beam

from beam_dpne.accounting.expense import PLANS, Plan
from beam_dpne.bayesian.plan import BayesianPlan
from beam_dpne.cli import display, parameters, runners, streams
from beam_dpne.cli.budgets import kept_budget
from beam_dpne.cli.commands import Made
from beam_dpne.cli.inputs import (
    OF_RECORDS,
    SECRET,
    has_users_of_records,
    read_inputs,
    reading_of,
    tokenizer_name,
    with_cause,
    with_rules,
)
from beam_dpne.cli.parameters import PublicCounting, Tokenizing, Writing
from beam_dpne.cli.runners import BeamOptions
from beam_dpne.documents.blocks import GROUP
from beam_dpne.documents.run_keys import RunKeyFile, can_be_read_by_others
from beam_dpne.documents.tokenizers import Tokenizer, check_alone, resolve_tokenizer
from beam_dpne.elements import progress
from beam_dpne.elements.encoding import SetStore
from beam_dpne.errors import UsageError, kind_of, own_reason
from beam_dpne.ngrams.parameters import KnownLists
from beam_dpne.ngrams.transform import PrivateNgrams
from beam_dpne.reading.copies import refuse_input
from beam_dpne.reading.files import InputFile
from beam_dpne.reading.options import ReadOptions, codec_of, names_of
from beam_dpne.reading.rejects import NO_RECORDS, REJECTED_RECORDS
from beam_dpne.reading.transform import ReadDocuments
from beam_dpne.release.publishing import WriteRelease, check_output
from beam_dpne.release.reading import (
    LEDGER_NAME,
    as_release_error,
    check_not_below,
    check_outside,
    is_release,
    read_ledger,
    real_path,
)
from beam_dpne.release.schema import ReleaseNotes
from beam_dpne.set_union.plan import SetUnionPlan
from beam_dpne.storage.directories import absolute_path, check_access, directory_at
from beam_dpne.storage.paths import is_local
from beam_dpne.storage.private import one_at_a_time
from beam_dpne.validation import about_large_delta

if TYPE_CHECKING:
    from beam_dpne.bayesian.transform import BayesianCounts
    from beam_dpne.ngrams.known import KnownNgrams
    from beam_dpne.set_union.transform import PrivateSetUnion


def run(
    made: Made, beam_arguments: list[str], tokenizer: Tokenizer | None = None
) -> Mapping[str, Any] | None:
    """Releases what the parameters ask for, and prints it.

    Args:
      made: the groups of parameters of the command.
      beam_arguments: options of Beam.
      tokenizer: replaces the one that the parameters name.

    Returns:
      The ledger of the release, or None if only a template was written.

    Raises:
      RunError: if the run failed; a release is complete only if its ledger is there.
    """
    prepared = prepare(made, beam_arguments, tokenizer)
    private = prepared.private
    if private is None:
        raise UsageError("epsilon and delta must be given.")
    quiet = made[parameters.Quiet].quiet
    output = made[Writing].output
    started = time.monotonic()
    before = _ledger_in(output)
    counters: Mapping[str, int] | None = {}
    with (
        only_run_to(output),
        kept_budget(made, private),
        _not_failed_once_published(output, before),
    ):
        counters = _run(made, prepared, private)
    if counters is None:
        return None
    ledger = None
    try:
        _report_records(counters, made[parameters.Rejecting].rejects, quiet=quiet)
        ledger = read_ledger(output)
        display.print_release(ledger, output, time.monotonic() - started, quiet=quiet)
        sys.stdout.flush()
    except BaseException as error:
        # Whoever repeated this run would spend its budget twice, so its display cannot fail it.
        streams.drop_output()
        streams.say_whole(f"It could not be shown ({kind_of(error)}).")
    if not quiet:
        streams.say_published(output)
    return ledger


@dataclasses.dataclass(frozen=True, eq=False, kw_only=True)
class Prepared:
    """What is known of a run that nothing refuses, before it reads its input as a whole.

    Attributes:
      options: the options of Beam.
      files: the files of the input.
      reading: how they are read.
      tokenizer: name of the tokenizer, or the function, with the rules of texts.
      workers: number of processes, or None.
      private: the private transform, whose store is not known yet; None if epsilon, delta or another
        parameter that has no default is not given.
    """

    options: BeamOptions
    files: Sequence[InputFile]
    reading: ReadOptions
    tokenizer: str | Tokenizer
    workers: int | None
    private: "PrivateNgrams | PrivateSetUnion | BayesianCounts | None"


def prepare(
    made: Made,
    beam_arguments: list[str],
    tokenizer: Tokenizer | None = None,
    *,
    shows_fields: bool = False,
) -> Prepared:
    """Checks all that a run checks before it reads its input as a whole; `check` does the same.

    Args:
      made: the groups of parameters of the command; those of the plan and the output may be missing.
      beam_arguments: options of Beam.
      tokenizer: replaces the one that the parameters name.
      shows_fields: whether an error may name the fields that a file has, which may be data.

    Raises:
      BeamDpneError, ValueError, FileNotFoundError: the run would be refused.
    """
    options = runners.beam_options(beam_arguments, made.names)
    _check_places(made, options)
    chosen = tokenizer or tokenizer_name(made)
    function = resolve_tokenizer(chosen)
    quiet = made[parameters.Quiet].quiet
    inputs = made[parameters.Input].input
    files, reading, first = read_inputs(
        reading_of(made), inputs, chosen, quiet=quiet, shows_fields=shows_fields
    )
    if Writing in made:
        for file in files:
            check_not_below("input", file.path, made[Writing].output)
    if words := made[Tokenizing].stop_list:
        refuse_input("stop_list", words, files, reading)
    if callable(chosen) or ":" in chosen:
        runners.withhold_unhandled()
        check_alone(function, first.texts)
    if not quiet and has_users_of_records(first, reading):
        display.print_notice(f"beam-dpne: Nearly all of the first records {OF_RECORDS} {SECRET}")
    running = made[parameters.Running]
    key = running.run_key_file
    workers = running.workers or None
    if running.workers is None and options.embedded:
        has_affinity = hasattr(os, "sched_getaffinity")
        cores = len(os.sched_getaffinity(0)) if has_affinity else os.cpu_count() or 1
        workers = min(cores, parameters.MOST_WORKERS)
    logs_failures = made[parameters.FailureLogging].failure_log is not None
    ruled = with_rules(made[Tokenizing], with_cause(chosen) if logs_failures else chosen)
    run_key = key and RunKeyFile.checked(absolute_path(key), pinned=not options.is_template)
    plan = next((made[kind] for kind in PLANS.values() if kind in made), None)
    known = _known(made, options, files, reading, plan=plan, tokenizer=ruled)
    private = None
    if plan is not None:
        warn_of_large_delta(plan)
    if plan is not None and (not isinstance(plan, BayesianPlan) or PublicCounting in made):
        private = _private(
            made,
            options,
            files,
            reading,
            known,
            plan=plan,
            tokenizer=ruled,
            partitions=running.partitions or _partitions(files, workers),
            workers=workers,
            run_key=run_key,
            described=reading.describe([file.path for file in files]),
        )
    if key and not quiet and can_be_read_by_others(key):
        display.print_notice(
            f"beam-dpne: warning: others than its owner can read {key}; whoever has the run key can "
            "subtract the noise (chmod 600)."
        )
    return Prepared(
        options=options,
        files=files,
        reading=reading,
        tokenizer=ruled,
        workers=workers,
        private=private,
    )


def _ledger_in(output: str) -> bytes | None:
    """Returns the bytes of the ledger in a directory, or None if there is none, or none can be read."""
    with contextlib.suppress(Exception):
        return directory_at(output).read(LEDGER_NAME)
    return None


@contextlib.contextmanager
def _not_failed_once_published(output: str, before: bytes | None) -> Iterator[None]:
    """Lets a run that has published end well, whatever happens after its ledger is in place.

    Whoever repeated the run would spend its budget twice. An error of ours is raised before the ledger
    is written, so that a new ledger is then that of another run to the same directory.

    Args:
      output: the directory of the release.
      before: the ledger that was there before the run.
    """
    try:
        yield
    except BaseException as error:
        if progress.snapshot().stage != progress.PUBLISHED:
            now = _ledger_in(output)
            if now in (None, before) or own_reason(error.__context__ or error) is not None:
                raise
        progress.enter(progress.PUBLISHED)
        streams.say_whole(f"Its run ended with {kind_of(error)} after that.")


def _check_places(made: Made, options: BeamOptions) -> None:
    """Checks all paths but those of the input; raises UsageError, AccessError or ReleaseError."""
    budget = made[parameters.Running].budget
    key = made[parameters.Running].run_key_file
    rejects = made[parameters.Rejecting].rejects
    words = made[Tokenizing].stop_list
    inputs = names_of(made[parameters.Input].input)
    output = made[Writing].output if Writing in made else None
    read = [*inputs, *filter(None, (key, words))]
    written = filter(None, (output, rejects, options.temp_location, budget))
    if output is not None:
        runners.check_beside(options, output)
        # Without the option, runs put locks and their sets there (`storage.private`).
        temporary = options.temp_location or tempfile.gettempdir()
        secrets = {"run_key_file": key, "stop_list": words, "temp_location": temporary}
        for path in inputs:
            check_not_below("input", path, output)
        for name, path in secrets.items():
            if path is not None:
                check_not_below(name, path, output)
    check_access(read, list(written), options.pipeline_options)
    if output is not None:
        check_output(output, overwrite=made[Writing].overwrite)
    if options.is_template and (key is None or budget is not None):
        raise UsageError(
            "--template_location needs --run_key_file and no --budget: a template is run many times, "
            "with a fresh key frozen in it; add each release to its budget by beam-dpne account."
        )
    if budget is not None:
        check_outside("budget", budget, output)
    if rejects is not None:
        check_directory("rejects", rejects, output)


def _known(
    made: Made,
    options: BeamOptions,
    files: Sequence[InputFile],
    reading: ReadOptions,
    *,
    plan: Plan | None,
    tokenizer: str | Tokenizer,
) -> "KnownNgrams | None":
    """Returns the known n-grams, or None without lists; a list without any is told."""
    if KnownLists not in made or made[KnownLists].known is None:
        return None
    from beam_dpne.ngrams.known import read_known

    known = read_known(
        made[KnownLists],
        getattr(plan, "max_length", 1),
        tokenizer,
        files,
        options=options.pipeline_options,
        reading=reading,
    )
    if not all(each["ngrams"] for each in known.lists) and not made[parameters.Quiet].quiet:
        display.print_notice("beam-dpne: a list of --known has no n-gram: see --known_min_count.")
    return known


def _private(
    made: Made,
    options: BeamOptions,
    files: Sequence[InputFile],
    reading: ReadOptions,
    known: "KnownNgrams | None",
    **fields: Any,
) -> "PrivateNgrams | PrivateSetUnion | BayesianCounts":
    """Returns the private transform, whose store is not known yet."""
    plan = fields["plan"]
    if SetUnionPlan in made:
        from beam_dpne.set_union.transform import PrivateSetUnion

        items = None if known is None else known.items
        return PrivateSetUnion(known=items, **fields)
    if BayesianPlan not in made:
        # Documents have columns of these names, whatever the fields of the files are.
        fields["group_field"] = GROUP if fields["described"].group_field else None
        return PrivateNgrams(known=known, **fields)
    # Its libraries take time to load, which the other programs do without.
    from beam_dpne.bayesian.public_files import read_public_counts
    from beam_dpne.bayesian.transform import BayesianCounts

    path = made[PublicCounting].public
    check_access([path], [], options.pipeline_options)
    if not is_release("public", path):
        refuse_input("public", path, files, reading)
    how = {"tokenizer": fields["tokenizer"], "vocabulary_size": plan.vocabulary_size}
    fields["public"] = read_public_counts(path, length=plan.length, **how)
    return BayesianCounts(**fields)


def _run(
    made: Made,
    prepared: Prepared,
    private: "PrivateNgrams | PrivateSetUnion | BayesianCounts",
) -> Mapping[str, int] | None:
    """Runs a pipeline; returns its counters, or None if it did not run to its end, as a template's.

    The tally waits for the list of rejects, so that the list exists if the tally fails the run.
    """
    rejecting = made[parameters.Rejecting]
    writing = made[Writing]
    options = prepared.options
    files = prepared.files
    pipeline = beam.Pipeline(runner=options.runner, options=options.pipeline_options)
    quiet = made[parameters.Quiet].quiet
    shown = display.progress_line(sum(file.size for file in files), quiet=quiet)
    with runners.run_folder(options, writing.output) as folder, shown:
        if not options.embedded:
            progress.enter("engine")
        read = pipeline | "Read" >> ReadDocuments(
            inputs=[file.path for file in files],
            rejects=rejecting.rejects and absolute_path(rejecting.rejects),
            workers=prepared.workers if options.embedded else None,
            **dataclasses.asdict(prepared.reading),
        )
        write = WriteRelease(
            output=absolute_path(writing.output),
            output_format=writing.output_format,
            notes=made[ReleaseNotes],
            overwrite=writing.overwrite,
            tally=read.tally,
            max_rejected=rejecting.max_rejected,
        )
        store = SetStore(
            folder=folder,
            limit=made[parameters.Running].side_input_limit,
            from_launch=not options.hands_over,
        )
        _ = read.documents | dataclasses.replace(private, store=store) | "Publish" >> write
        timeout = 0 if options.hands_over else made[parameters.Running].harness_timeout
        shared_folder = folder if is_local(folder) else None
        result = runners.run_pipeline(pipeline, timeout, shared_folder)
        if not runners.has_finished(result):
            return None
        progress.enter(progress.PUBLISHED)
    return runners.counters(result)


@contextlib.contextmanager
def only_run_to(output: str) -> Iterator[None]:
    """Refuses a second run to a directory while this one is at work, if both are on this machine.

    Raises:
      UsageError: another run is at work; it has not published yet.
    """
    name = hashlib.sha256(real_path(output).encode()).hexdigest()[:16]
    with contextlib.ExitStack() as stack:
        try:
            stack.enter_context(one_at_a_time(f"output-{name}"))
        except BlockingIOError:
            raise UsageError(
                f"output must be of one run at a time, got output={output}, to which another run is at "
                "work. Choose another directory."
            ) from None
        yield


def _partitions(files: Sequence[InputFile], workers: int | None) -> int:
    """Returns a number of partitions that each hold about 8 MiB of text, or 40 MiB of a huge corpus.

    A reader cuts its documents into that many blocks, so more than a few thousand are slow. Each
    worker has a few partitions, so that all have work to the end. Compressed text is four times as
    long.
    """
    mebibytes = sum(file.size * (4 if codec_of(file.path) else 1) for file in files) / 2**20
    of_workers = min(4 * (workers or 0), mebibytes)
    return max(1, math.ceil(max(min(4096, mebibytes / 8), mebibytes / 40, of_workers)))


def warn_of_large_delta(plan: Any) -> None:
    """Warns on stderr, even if it is quiet, of a δ of 0.001 or more, which weakens the guarantee.

    There is no warning if the number of users is public, since a δ above one over that number is
    refused.
    """
    if (warning := about_large_delta(plan.delta)) and plan.public_user_count is None:
        display.print_notice(
            f"beam-dpne: warning: {warning}. Take a delta well below one over the number of users; if "
            "their number is public and small, give --public_user_count."
        )


def check_directory(name: str, path: str, release: str | None) -> None:
    """Checks that a directory is outside releases and can be written; leaves no file there.

    Args:
      name: the parameter that names the directory.
      path: the directory.
      release: the directory of the release, or None if it is not known.

    Raises:
      UsageError, ReleaseError: it is in a release, or cannot be written.
    """
    check_outside(name, path, release)
    with as_release_error(f"{name} must be a directory that can be written, got {name}={path}"):
        directory_at(path).probe()


def _report_records(counters: Mapping[str, int], directory: str | None, *, quiet: bool) -> None:
    """Reports on stderr, for the operator, that there were no records, or how many were left out."""
    told = []
    if counters.get(NO_RECORDS):
        told.append("the input has no records, so nothing can be released")
    if (rejected := counters.get(REJECTED_RECORDS)) and not quiet:
        where = f"see {directory}" if directory else "--rejects DIR lists them with their reasons"
        records = "record was" if rejected == 1 else "records were"
        told.append(f"{rejected:,} {records} rejected ({where})")
    for text in told:
        display.print_notice(f"beam-dpne: {text}. {SECRET}")
