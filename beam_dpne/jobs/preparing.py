"""All that a run checks before it reads its input as a whole; `beam-dpne check` checks the same."""

import dataclasses
import math
from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from beam_dpne.accounting.expense import PLANS, Plan
from beam_dpne.bayesian.plan import ProbabilitiesPlan
from beam_dpne.documents.blocks import GROUP
from beam_dpne.documents.private_run import PrivateRun
from beam_dpne.documents.run_keys import RunKeyFile, can_be_read_by_others
from beam_dpne.documents.tokenizers import Tokenizer, check_alone, resolve_tokenizer
from beam_dpne.errors import UsageError, withhold_unhandled
from beam_dpne.jobs.arguments import misspelt, runner_of, unknown_argument
from beam_dpne.jobs.deltas import refuse_too_large_delta, warn_of_large_delta
from beam_dpne.jobs.inputs import (
    SECRET,
    notes_on_users,
    read_inputs,
    reading_of,
    tokenizer_name,
    with_cause,
    with_rules,
)
from beam_dpne.jobs.made import Made
from beam_dpne.jobs.parameters import (
    FailureLogging,
    Input,
    Rejecting,
    Running,
    Tokenizing,
    Writing,
)
from beam_dpne.jobs.series import check_series, placed
from beam_dpne.jobs.showing import Showing
from beam_dpne.jobs.workers import check_workers, workers_of
from beam_dpne.lists.copies import refuse_input
from beam_dpne.lists.parameters import CountedPhrases, KnownLists, ListedPhrases, PublicCounting
from beam_dpne.mechanism.randomness import RunKey
from beam_dpne.ngrams.run import NgramsRun
from beam_dpne.phrase_counts.plan import PhraseCountsPlan
from beam_dpne.reading.files import InputFile, text_bytes
from beam_dpne.reading.frames import Frame
from beam_dpne.reading.options import ReadOptions, names_of
from beam_dpne.release.places import check_not_below, check_outside
from beam_dpne.release.publishing import check_output
from beam_dpne.set_union.plan import SetUnionPlan
from beam_dpne.set_union.run import SetUnionRun
from beam_dpne.storage.directories import (
    absolute_path,
    as_release_error,
    check_access,
    directory_at,
)
from beam_dpne.storage.private import temporary_folder

if TYPE_CHECKING:
    from beam_dpne.jobs.engine import BeamOptions
    from beam_dpne.lists.known import KnownNgrams
    from beam_dpne.lists.phrases import PhraseList
    from beam_dpne.lists.public_counts import PublicCounts

    _Options = BeamOptions | None

# Programs that cannot run without a public list.
_OF_A_LIST = (PhraseCountsPlan, ProbabilitiesPlan)


@dataclasses.dataclass(frozen=True, eq=False, kw_only=True)
class Prepared:
    """What is known of a run that nothing refuses, before it reads its input as a whole.

    Attributes:
      options: the options of Beam; None if there are none.
      files: the files of the input.
      reading: how they are read.
      tokenizer: name of the tokenizer, or the function, with the rules of texts.
      workers: number of processes of the local driver; None on a runner of Beam.
      private: the parameters of the program; None if epsilon, delta or another parameter that has no
        default is not given.
    """

    options: "_Options"
    files: Sequence[InputFile]
    reading: ReadOptions
    tokenizer: str | Tokenizer
    workers: int | None
    private: PrivateRun | None


def prepare(
    made: Made,
    beam_arguments: list[str],
    showing: Showing,
    tokenizer: Tokenizer | None = None,
    *,
    frame: Frame | None = None,
    run_key: RunKey | None = None,
    phrases: Sequence[str] | pa.Table | None = None,
    shows_fields: bool = False,
) -> Prepared:
    """Checks all that a run checks before it reads its input as a whole.

    Args:
      made: the groups of parameters of the command; those of the plan and the output may be missing.
      beam_arguments: options of Beam.
      showing: how the operator is told what may be wrong.
      tokenizer: replaces the one that the parameters name.
      frame: the input, if the parameters name none.
      run_key: replaces the one that the parameters name.
      phrases: the list whose users are counted, if the parameters name none.
      shows_fields: whether an error may name the fields that a file has, which may be data.

    Raises:
      BeamDpneError, ValueError, FileNotFoundError: the run would be refused.
    """
    options = _beam_options(beam_arguments, made.names)
    check_workers(made, options)
    _check_places(made, options)
    chosen = tokenizer or tokenizer_name(made)
    inputs = frame or made[Input].input
    corpus = _corpus(made, inputs, chosen, showing, shows_fields=shows_fields)
    workers = workers_of(made, options, corpus.files, corpus.reading, showing)
    ruled = _ruled(made, chosen)
    key = run_key or _run_key(made, options)
    plan = next((made[kind] for kind in PLANS.values() if kind in made), None)
    listed = _listed(made, options, corpus, showing, plan=plan, tokenizer=ruled, phrases=phrases)
    private = None
    if plan is not None:
        refuse_too_large_delta(plan)
        warn_of_large_delta(plan, showing)
    if plan is not None and (listed is not None or not isinstance(plan, _OF_A_LIST)):
        given = made[Running].partitions
        common = _Common(
            plan=plan,
            tokenizer=ruled,
            partitions=given or _partitions(corpus.files, workers),
            run_key=key,
        )
        private = _private(listed, corpus, common)
        if made[Running].series is not None:
            private = placed(private, made[Running])
    _warn_of_readable_key(made, showing)
    return Prepared(
        options=options,
        files=corpus.files,
        reading=corpus.reading,
        tokenizer=ruled,
        workers=workers,
        private=private,
    )


def _beam_options(arguments: list[str], known: Collection[str]) -> "_Options":
    """Returns Beam's options, or None if no argument is for Beam, which is then not loaded."""
    runner, others = runner_of(arguments)
    if runner is None and not others:
        return None
    from beam_dpne.jobs.engine import beam_options

    return beam_options(arguments, known)


def refuse_misspelt(arguments: Sequence[str], known: Collection[str]) -> None:
    """Refuses an option that Beam does not know, and that is nearly one of a program's own.

    Beam would drop it, or hand it to the engine, and the option that was meant would seem missing.

    Args:
      arguments: what a program does not know itself.
      known: names of the program's own options.

    Raises:
      UsageError: there is such an option.
    """
    if misspelt(arguments, known):
        from beam_dpne.jobs.engine import unknown_to_beam

        # Beam reads options with their values, so that it is asked about all of them.
        for option in misspelt(unknown_to_beam(arguments), known):
            raise unknown_argument(option, known)


def _pipeline_options(options: "_Options") -> Any:
    return None if options is None else options.pipeline_options


def _is_template(options: "_Options") -> bool:
    return options is not None and options.is_template


@dataclasses.dataclass(frozen=True, eq=False, kw_only=True)
class _Corpus:
    """The files of the input, and how they are read."""

    files: Sequence[InputFile]
    reading: ReadOptions


def _corpus(
    made: Made,
    inputs: str | Sequence[str] | Frame,
    chosen: str | Tokenizer,
    showing: Showing,
    *,
    shows_fields: bool,
) -> _Corpus:
    """Returns the input, whose fields are checked and whose first texts the tokenizer has cut."""
    function = resolve_tokenizer(chosen)
    files, reading, first = read_inputs(
        reading_of(made), inputs, chosen, showing=showing, shows_fields=shows_fields
    )
    if Writing in made and Input in made:
        for file in files:
            check_not_below("input", file.path, made[Writing].output)
    words = made[Tokenizing].stop_list
    if words:
        refuse_input("stop_list", words, files, reading)
    if callable(chosen) or ":" in chosen:
        withhold_unhandled()
        check_alone(function, first.texts)
    # `check`, which may show fields, looks at the users of all records.
    for note in () if shows_fields else notes_on_users(first, reading):
        showing.advise(f"{note} {SECRET}")
    return _Corpus(files=files, reading=reading)


def _ruled(made: Made, chosen: str | Tokenizer) -> str | Tokenizer:
    """Returns the tokenizer with its rules of texts; with a failure log its errors keep their cause."""
    if made[FailureLogging].failure_log is not None:
        chosen = with_cause(chosen)
    return with_rules(made[Tokenizing], chosen)


def _run_key(made: Made, options: "_Options") -> RunKeyFile | None:
    path = made[Running].run_key_file
    if not path:
        return None
    return RunKeyFile.checked(absolute_path(path), pinned=not _is_template(options))


def _warn_of_readable_key(made: Made, showing: Showing) -> None:
    key = made[Running].run_key_file
    if key and can_be_read_by_others(key):
        showing.advise(
            f"warning: others than its owner can read {key}; whoever has the run key can "
            "subtract the noise (chmod 600)."
        )


def _check_places(made: Made, options: "_Options") -> None:
    """Checks all paths but those of the input; raises UsageError, AccessError or ReleaseError."""
    budget = made[Running].budget
    key = made[Running].run_key_file
    rejects = made[Rejecting].rejects
    words = made[Tokenizing].stop_list
    inputs = names_of(made[Input].input) if Input in made else ()
    output = made[Writing].output if Writing in made else None
    read = [*inputs, *filter(None, (key, words))]
    temporary = None if options is None else options.temp_location
    folders = (made[Running].series, made[Running].participants)
    written = filter(None, (output, rejects, temporary, budget, *folders))
    if output is not None:
        if options is not None and options.runner is not None:
            from beam_dpne.jobs.engine import check_beside

            check_beside(options, output)
        # Without the option, runs put locks and their sets there (`storage.private`).
        temporary = temporary or temporary_folder()
        secrets = {"run_key_file": key, "stop_list": words, "temp_location": temporary}
        for path in inputs:
            check_not_below("input", path, output)
        for name, path in secrets.items():
            if path is not None:
                check_not_below(name, path, output)
    check_access(read, list(written), _pipeline_options(options))
    if output is not None:
        check_output(output, overwrite=made[Writing].overwrite)
    if _is_template(options) and (key is None or budget is not None):
        raise UsageError(
            "--template_location needs --run_key_file and no --budget: a template is run many times, "
            "with a fresh key frozen in it; add each release to its budget by beam-dpne account."
        )
    if budget is not None:
        check_outside("budget", budget, output)
    is_here = options is None or options.is_here
    check_series(made[Running], output, is_here=is_here, is_template=_is_template(options))
    if rejects is not None:
        check_directory("rejects", rejects, output)


def _listed(
    made: Made,
    options: "_Options",
    corpus: _Corpus,
    showing: Showing,
    *,
    plan: Plan | None,
    tokenizer: str | Tokenizer,
    phrases: Sequence[str] | pa.Table | None,
) -> "KnownNgrams | PublicCounts | PhraseList | None":
    """Returns the public list of a run, or None if it has none; also without a plan, as for `check`."""
    if KnownLists in made:
        return _known(made[KnownLists], options, corpus, showing, plan=plan, tokenizer=tokenizer)
    if PublicCounting in made:
        return _public_counts(made[PublicCounting].public, options, corpus, plan, tokenizer)
    if phrases is None and ListedPhrases not in made:
        return None
    from beam_dpne.lists.phrases import read_phrases

    sizes = plan if isinstance(plan, PhraseCountsPlan) else PhraseCountsPlan
    return read_phrases(
        made[ListedPhrases] if phrases is None else phrases,
        made[CountedPhrases],
        tokenizer,
        is_grouped=corpus.reading.group_field is not None,
        most=sizes.max_phrases,
        inputs=corpus.files,
        options=_pipeline_options(options),
        reading=corpus.reading,
    )


def _known(
    asked: KnownLists,
    options: "_Options",
    corpus: _Corpus,
    showing: Showing,
    *,
    plan: Plan | None,
    tokenizer: str | Tokenizer,
) -> "KnownNgrams | None":
    """Returns the known n-grams, or None without lists; a list without any is told."""
    if asked.known is None:
        return None
    from beam_dpne.lists.known import read_known

    known = read_known(
        asked,
        getattr(plan, "max_length", 1),
        tokenizer,
        corpus.files,
        options=_pipeline_options(options),
        reading=corpus.reading,
    )
    if not all(each["ngrams"] for each in known.lists):
        showing.advise("a list of --known has no n-gram: see --known_min_count.")
    return known


@dataclasses.dataclass(frozen=True, eq=False, kw_only=True)
class _Common:
    """What the runs of all programs are made of."""

    plan: Any
    tokenizer: str | Tokenizer
    partitions: int
    run_key: RunKey | None


def _private(listed: Any, corpus: _Corpus, common: _Common) -> PrivateRun:
    """Returns the parameters of the run of a plan, with its public list."""
    described = corpus.reading.describe([file.path for file in corpus.files])
    # Documents have columns of these names, whatever the fields of the files are.
    group_field = None if described.group_field is None else GROUP
    if isinstance(common.plan, SetUnionPlan):
        return SetUnionRun(
            plan=common.plan,
            tokenizer=common.tokenizer,
            partitions=common.partitions,
            run_key=common.run_key,
            described=described,
            known=None if listed is None else listed.items,
        )
    if isinstance(common.plan, PhraseCountsPlan):
        from beam_dpne.phrase_counts.run import PhraseCountsRun

        return PhraseCountsRun(
            plan=common.plan,
            tokenizer=common.tokenizer,
            partitions=common.partitions,
            run_key=common.run_key,
            described=described,
            phrases=listed,
            group_field=group_field,
        )
    if isinstance(common.plan, ProbabilitiesPlan):
        # Its libraries take time to load, which the other programs do without.
        from beam_dpne.bayesian.run import BayesianRun

        return BayesianRun(
            plan=common.plan,
            tokenizer=common.tokenizer,
            partitions=common.partitions,
            run_key=common.run_key,
            described=described,
            public=listed,
        )
    return NgramsRun(
        plan=common.plan,
        tokenizer=common.tokenizer,
        partitions=common.partitions,
        run_key=common.run_key,
        described=described,
        known=listed,
        group_field=group_field,
    )


def _public_counts(
    path: str,
    options: "_Options",
    corpus: _Corpus,
    plan: Plan | None,
    tokenizer: str | Tokenizer,
) -> "PublicCounts":
    """Returns the public n-grams of a plan, or of a usual one."""
    from beam_dpne.lists.public_counts import read_public_counts

    sizes = plan if isinstance(plan, ProbabilitiesPlan) else ProbabilitiesPlan
    check_access([path], [], _pipeline_options(options))
    refuse_input("public", path, corpus.files, corpus.reading)
    return read_public_counts(
        path,
        length=sizes.length,
        tokenizer=tokenizer,
        vocabulary_size=sizes.vocabulary_size,
    )


def _partitions(files: Sequence[InputFile], workers: int | None) -> int:
    """Returns a number of partitions that each hold about 8 MiB of text, or 40 MiB of a huge corpus.

    A reader cuts its documents into that many blocks, so more than a few thousand are slow. All workers
    have the same number of partitions, which are about equally large, so that they end together.
    """
    mebibytes = text_bytes(files) / 2**20
    workers = workers or 1
    wanted = math.ceil(max(min(4096, mebibytes / 8), mebibytes / 40, min(workers, mebibytes), 1))
    return wanted if wanted < workers else workers * math.ceil(wanted / workers)


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
    with as_release_error(f"`{name}` must be a directory that can be written, got `{name}={path}`"):
        directory_at(path).probe()
