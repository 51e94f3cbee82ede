"""Publishing a release: parts first, the ledger last and in one step; and reading it back.

Nothing of the operator's channel enters here: what is written is a function of the released sets,
the plan and versions. Names are made of content, so a repeated bundle writes the same files again.
"""

import contextlib
import dataclasses
import functools
import hashlib
import os
import re
from collections.abc import Callable, Iterable, Iterator, Sequence

import apache_beam as beam
import pyarrow as pa
from apache_beam.pvalue import AsIter, PCollection, PValue
from apache_beam.typehints.decorators import IOTypeHints

from beam_dpne.bayesian.counting import NgramProbabilities
from beam_dpne.bayesian.plan import BayesianPlan
from beam_dpne.bayesian.transform import BayesianCountsResult
from beam_dpne.documents.tokenizers import Tokenizer, tokenizer_name
from beam_dpne.elements import progress
from beam_dpne.elements.rows import longest_beside_shorter
from beam_dpne.errors import ReleaseError
from beam_dpne.ngrams.elements import GramSet
from beam_dpne.ngrams.plan import PrivacyPlan
from beam_dpne.ngrams.transform import PrivateNgramsResult
from beam_dpne.reading.description import InputDescription
from beam_dpne.reading.tally import (
    DEFAULT_MAX_REJECTED,
    Tally,
    add_up,
    check_max_rejected,
    count_rejected,
    require_few_rejected,
)
from beam_dpne.release.kinds import kind_of
from beam_dpne.release.ledger import (
    LEDGER_NAME,
    PART_NAME,
    Part,
    is_ledger,
    ledger_bytes,
    ledger_path,
    listed_parts,
    read_ledger,
    reason,
)
from beam_dpne.release.parts import OUTPUT_FORMATS, parse_part, render_parts
from beam_dpne.release.release_notes import NO_NOTES, ReleaseNotes
from beam_dpne.set_union.elements import ItemSet
from beam_dpne.set_union.plan import SetUnionPlan
from beam_dpne.set_union.transform import PrivateSetUnionResult
from beam_dpne.storage.directories import Directory, directory_at
from beam_dpne.storage.markers import Marks

_PROBE = ".probe.tmp-"
_TEMPORARY_NAME = re.compile(
    rf"\.({PART_NAME.pattern}|{re.escape(LEDGER_NAME)}|probe)\.tmp-[0-9a-f]{{32}}"
)
_Released = GramSet | ItemSet | NgramProbabilities
_Plan = PrivacyPlan | SetUnionPlan | BayesianPlan
_Result = PrivateNgramsResult | PrivateSetUnionResult | BayesianCountsResult
_LedgerFor = Callable[[Sequence[Part]], bytes]


@dataclasses.dataclass(eq=False, kw_only=True)
class PublishRelease(beam.PTransform):
    """Publishes released sets as files that a ledger lists; the last stage of a pipeline.

    Input: `PrivateNgramsResult`, `PrivateSetUnionResult` or `BayesianCountsResult`; only what it
    released is read, the facts come from there.

    Output: PCollection of one str, the path of the ledger. Under `output` are `ledger.json` and the
    parts. Of n-grams: `ngrams-<hash of content>-NNNNN-of-NNNNN.<format>` with length (int32), ngram
    (string, see `join_tokens`) and score (float64, units of weight, six decimals), sorted by length,
    falling score, then bytes. Of a set union: `items-<hash of content>-NNNNN-of-NNNNN.<format>` with
    item (string) and score, sorted by falling score, then bytes. Of n-gram probabilities:
    `probabilities-…` with ngram and probability (float64, nine significant digits), sorted by falling
    probability, then bytes; without a guarantee `probabilities_without_privacy-…`, with a third
    column privacy (string) that says so in every row. A line of jsonl is
    `{"length":1,"ngram":"a","score":7.5}`; tsv has a header line and no quoting, and items are
    written by `escape_item`.

    Privacy: post-processing of released sets; the ledger adds public numbers only.

    Cost: one worker holds all released sets and the text of one part.

    Attributes:
      output: directory, local or on any Beam file system; created if missing.
      output_format: "jsonl", "tsv" or "parquet".
      plan: of the run, for the ledger; a `PrivacyPlan`, a `SetUnionPlan` or a `BayesianPlan`.
      tokenizer: of the run, for the ledger: its name, or the function.
      run_key_given: whether the run key was given instead of fresh, for the ledger.
      described: how records became documents, for the ledger, whose privacy unit it names. None: what
        the transform that released the sets says of it.
      notes: what the operator says of the release, for the ledger: title, contact, privacy unit.
      overwrite: replaces a release that is already there: it stays whole until the new ledger takes
        the place of its own, then its parts are deleted, and what a killed run has left; other files
        never are.
      rows_per_part: the rows of all lengths, one after the other, are cut into parts of this size.
      marks: of the run; an engine that runs on after the launcher gave the run up publishes
        nothing. None: the release is always wanted.
      tally: of the records that were read (`ReadDocuments`); None if nobody counted them.
      max_rejected: the largest share of those records that may be rejected, in [0, 1]; above it
        nothing is published. Beam's counters `beam_dpne:rejected_records.*` count them by reason.

    Raises:
      ValueError: on a bad field.
      ReleaseError: when the pipeline runs, if another release is there and overwrite is off, if
        another run has published there meanwhile, or the output cannot be written; what was there
        stays as it was.
      TooManyRejectedError: when the pipeline runs, before anything is written, if a larger share of
        the records than max_rejected was rejected.

    Example:
      >>> import tempfile
      >>> from apache_beam.runners.portability.fn_api_runner import FnApiRunner
      >>> from beam_dpne import PrivacyPlan, PrivateNgrams
      >>> plan = PrivacyPlan(epsilon=10, delta=1e-4, max_length=2, max_contributions=2,
      ...                    spurious_fraction=1e-9)
      >>> with tempfile.TemporaryDirectory() as folder:
      ...     with beam.Pipeline(runner=FnApiRunner()) as pipeline:
      ...         texts = [(f"u{i}", "Good morning") for i in range(200)]
      ...         documents = pipeline | beam.Create(texts)
      ...         _ = documents | PrivateNgrams(plan=plan) | PublishRelease(
      ...             output=folder, output_format="tsv", plan=plan, tokenizer="words",
      ...             run_key_given=False)
      ...     read_release(folder).column("ngram").to_pylist()[-1]
      'good morning'

    References: none; the protocol is this project's own.
    """

    output: str
    output_format: str
    plan: _Plan
    tokenizer: str | Tokenizer
    run_key_given: bool
    described: InputDescription | None = None
    notes: ReleaseNotes = NO_NOTES
    overwrite: bool = False
    rows_per_part: int = 1_000_000
    marks: Marks | None = None
    tally: PCollection[Tally] | None = dataclasses.field(default=None, repr=False)
    max_rejected: float = DEFAULT_MAX_REJECTED

    def __post_init__(self):
        super().__init__()
        check_max_rejected(self.max_rejected)
        if not self.output:
            raise ValueError("output must be the path of a directory, got output=''.")
        if self.output_format not in OUTPUT_FORMATS:
            raise ValueError(
                f"output_format must be one of {', '.join(OUTPUT_FORMATS)}, "
                f"got output_format={self.output_format!r}."
            )
        if self.rows_per_part < 1:
            raise ValueError(
                f"rows_per_part must be at least 1, got rows_per_part={self.rows_per_part}."
            )

    def default_type_hints(self) -> IOTypeHints:
        """None: Beam would log a warning about an input that is a named tuple."""
        return IOTypeHints.empty()

    def expand(self, input_or_inputs: _Result) -> PValue:
        """Brings the sets to one worker, which publishes them."""
        released = input_or_inputs.released
        sets = released if isinstance(released, tuple) else (released,)
        longest, shorter = longest_beside_shorter(sets)
        return longest | "Publish" >> beam.Map(
            _publish_sets,
            shorter,
            () if self.tally is None else AsIter(self.tally),
            output=self.output,
            output_format=self.output_format,
            plan=self.plan,
            tokenizer=tokenizer_name(self.tokenizer),
            run_key_given=self.run_key_given,
            described=self.described or _described_by(sets[0]),
            notes=self.notes,
            overwrite=self.overwrite,
            rows_per_part=self.rows_per_part,
            marks=self.marks,
            max_rejected=self.max_rejected,
        ).with_output_types(str)


def check_output(output: str, *, overwrite: bool) -> None:
    """Checks, before a run, that a release can be published; writes nothing that stays.

    Args:
      output: directory of the release; may be missing.
      overwrite: whether a release, or other files, may be there already.

    Raises:
      ReleaseError: if it is a file, is not empty, or cannot be written.
    """
    if not output:
        raise ReleaseError("output must be the path of a directory, got output=''.")
    directory = directory_at(output)
    with _translated(f"output must be a directory that can be written, got output={output}"):
        names = directory.names()
        _check_replaceable(directory.read(LEDGER_NAME), output)
        if not overwrite:
            _check_empty(names, output)
        directory.probe()


def read_release(path: str) -> pa.Table:
    """Reads the rows of a release, following its ledger and checking every part.

    Args:
      path: of the release's directory, or of its `ledger.json`; local or on any Beam file system.

    Returns:
      Columns length (int32), ngram (string) and score (float64), or item (string) and score, or ngram
      and probability (and privacy, where there is none), in the order of the release.

    Raises:
      ReleaseError: if the release is incomplete or damaged.
    """
    folder = directory_at(ledger_path(path)[: -len(LEDGER_NAME)] or os.curdir)
    ledger = read_ledger(path)
    tables = [_read_part(folder, Part(**part)) for part in ledger["parts"]]
    return pa.concat_tables(tables)


def _read_part(directory: Directory, part: Part) -> pa.Table:
    with _translated(f"Part {part.name} of the release cannot be read"):
        data = directory.read(part.name)
        if data is None:
            raise ReleaseError(f"The release is incomplete: part {part.name} is missing.")
        if (len(data), hashlib.sha256(data).hexdigest()) != (part.bytes, part.sha256):
            raise ReleaseError(f"The release is damaged: part {part.name} has another SHA-256.")
        rows = parse_part(part.name, data)
        if len(rows) != part.rows:
            raise ReleaseError(f"The release is damaged: part {part.name} has other rows.")
    return rows


def _described_by(released: PCollection) -> InputDescription | None:
    """Returns what the transform that released a set says of its input; None if it says nothing."""
    step = released.producer
    while step is not None:
        found = getattr(step.transform, "input_description", None)
        if found is not None:
            return found
        step = step.parent
    return None


def _publish_sets(
    longest: _Released,
    shorter: Iterable[_Released],
    tallies: Iterable[Tally],
    *,
    marks: Marks | None,
    max_rejected: float,
    **settings,
) -> str:
    """Entry of the stage: all released sets are here, as one element and one side input."""
    if marks is not None:
        marks.require_wanted()
    tally = add_up(tallies)
    require_few_rejected(tally, max_rejected)
    count_rejected(tally.rejected)
    progress.enter("publish", None)
    return publish_release([*shorter, longest], **settings)


def publish_release(
    released: Sequence[_Released],
    *,
    output: str,
    output_format: str,
    plan: _Plan,
    tokenizer: str | Tokenizer,
    run_key_given: bool,
    described: InputDescription | None = None,
    notes: ReleaseNotes = NO_NOTES,
    overwrite: bool = False,
    rows_per_part: int = 1_000_000,
) -> str:
    """Publishes what was released as files that a ledger lists: S_1, …, S_T in any order, or one set.

    The other arguments are the fields of `PublishRelease`, which does this in a pipeline.

    Returns:
      The path of the ledger.

    Raises:
      ReleaseError: if another release is there and overwrite is off, or the output cannot be
        written; what was there stays as it was.
    """
    kind = kind_of(plan)
    rows = kind.rows(released)
    parts = functools.partial(render_parts, kind.layout, rows, output_format, rows_per_part)

    def ledger_for(listed: Sequence[Part]) -> bytes:
        return ledger_bytes(
            kind.ledger(
                plan,
                released,
                parts=listed,
                run_key_given=run_key_given,
                tokenizer=tokenizer,
                described=described,
                notes=notes,
            )
        )

    directory = directory_at(output)
    with _translated(f"The release cannot be published in {output}"), directory.held():
        before = directory.names()
        current = directory.read(LEDGER_NAME)
        _check_replaceable(current, output)
        if current is None or overwrite:
            placed = _place(directory, parts(), ledger_for, current)
            directory.remove(_obsolete(before, overwrite=overwrite) - placed)
        elif current != ledger_for([part for part, _ in parts()]):
            raise ReleaseError(
                f"{output} is a release already; choose another directory or --overwrite."
            )
    return directory.path_of(LEDGER_NAME)


def _place(
    directory: Directory,
    parts: Iterable[tuple[Part, bytes]],
    ledger_for: _LedgerFor,
    current: bytes | None,
) -> set[str]:
    """Places the parts, then the ledger instead of the current one; returns the parts' names."""
    placed: list[Part] = []
    try:
        for part, data in parts:
            placed.append(part)
            directory.place(part.name, data)
        directory.replace(LEDGER_NAME, ledger_for(placed), seen=current)
    except BaseException:
        with contextlib.suppress(Exception):
            listed = listed_parts(directory.read(LEDGER_NAME))
            withdrawn = {part.name for part in placed} - listed
            directory.remove(withdrawn.intersection(directory.names()))
        raise
    return {part.name for part in placed}


def _obsolete(before: Iterable[str], *, overwrite: bool) -> set[str]:
    """What a new ledger makes obsolete of the files that were there when the attempt began.

    What came since may be another attempt's.
    """
    return {
        name
        for name in before
        if _TEMPORARY_NAME.fullmatch(name) or (overwrite and PART_NAME.fullmatch(name))
    }


def _check_empty(names: Sequence[str], output: str) -> None:
    # Another launcher may be probing at this moment.
    names = sorted(name for name in names if not name.startswith(_PROBE))
    if not names:
        return
    unfinished = _obsolete(names, overwrite=True)
    what = "is a release already" if LEDGER_NAME in names else "is not empty"
    if unfinished == set(names):
        files = "a file" if len(names) == 1 else f"{len(names)} files"
        what = f"holds {files} of a run that has not finished, such as {names[0]}"
    raise ReleaseError(
        f"output must be an empty or new directory, got output={output}, which {what}. "
        "Choose another directory, or --overwrite, which deletes only files of a release."
    )


def _check_replaceable(ledger: bytes | None, output: str) -> None:
    if ledger is not None and not is_ledger(ledger):
        raise ReleaseError(
            f"output has a {LEDGER_NAME} that beam_dpne did not write, got output={output}. "
            "Choose another directory."
        )


@contextlib.contextmanager
def _translated(what: str) -> Iterator[None]:
    """Makes one clear sentence of what goes wrong, without what a library may quote."""
    try:
        yield
    except ReleaseError:
        raise
    except Exception as error:
        raise ReleaseError(f"{what}: {reason(error)}.") from None
