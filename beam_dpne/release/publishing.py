"""Publishing a release: parts first, then the ledger in one step.

The files are a function of the released sets, the plan and versions, and of nothing else that is known
about the data. Names of parts are derived from their content, so that a repeated bundle writes the same
files again.
"""

import contextlib
import dataclasses
import functools
import re
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import apache_beam as beam
import pyarrow as pa
from apache_beam.pvalue import AsIter, PCollection, PValue
from apache_beam.typehints.decorators import IOTypeHints

from beam_dpne.bayesian.counting import NgramProbabilities, probability_table
from beam_dpne.bayesian.plan import BayesianPlan
from beam_dpne.bayesian.transform import BayesianCountsResult
from beam_dpne.documents.tokenizers import Tokenizer, tokenizer_name
from beam_dpne.elements import progress
from beam_dpne.elements.display_data import DisplayedTransform
from beam_dpne.elements.rows import longest_beside_shorter
from beam_dpne.errors import ReleaseError
from beam_dpne.ngrams.decoding import length_report, ngram_table
from beam_dpne.ngrams.elements import GramSet
from beam_dpne.ngrams.plan import PrivacyPlan
from beam_dpne.ngrams.transform import PrivateNgramsResult
from beam_dpne.reading.options import InputDescription
from beam_dpne.reading.rejects import (
    DEFAULT_MAX_REJECTED,
    Tally,
    add_up,
    check_max_rejected,
    report_counts,
    require_few_rejected,
)
from beam_dpne.release.bayesian_ledger import bayesian_ledger
from beam_dpne.release.files import (
    LEDGER_NAME,
    OUTPUT_FORMATS,
    PART_NAME,
    PROGRAMS,
    Part,
    Program,
    as_release_error,
    is_ledger,
    listed_parts,
    render_parts,
)
from beam_dpne.release.ledger import NO_NOTES, ReleaseNotes, ledger_bytes
from beam_dpne.release.ngrams_ledger import ngrams_ledger
from beam_dpne.release.set_union_ledger import set_union_ledger
from beam_dpne.set_union.elements import ItemSet, item_table
from beam_dpne.set_union.plan import SetUnionPlan
from beam_dpne.set_union.transform import PrivateSetUnionResult
from beam_dpne.storage.access import directory_at
from beam_dpne.storage.directories import Directory
from beam_dpne.storage.lineage import report_sink

_PROBE = ".probe.tmp-"
_TEMPORARY_NAME = re.compile(
    rf"\.({PART_NAME.pattern}|{re.escape(LEDGER_NAME)}|probe)\.tmp-[0-9a-f]{{32}}"
)
_Released = GramSet | ItemSet | NgramProbabilities
_Plan = PrivacyPlan | SetUnionPlan | BayesianPlan
_Result = PrivateNgramsResult | PrivateSetUnionResult | BayesianCountsResult
_LedgerFor = Callable[[Sequence[Part]], bytes]


@dataclasses.dataclass(eq=False, kw_only=True)
class PublishRelease(DisplayedTransform):
    """Publishes released sets as files that a ledger lists; the last stage of a pipeline.

    Input: `PrivateNgramsResult`, `PrivateSetUnionResult` or `BayesianCountsResult`, of which only the
    released sets are read.

    Output: PCollection of one str, the path of the ledger. Under `output` are `ledger.json` and the
    parts. N-grams: `ngrams-<hash of content>-NNNNN-of-NNNNN.<format>` with length (int32), ngram
    (string, see `join_tokens`) and score (float64, units of weight, six decimals), sorted by length,
    falling score, then bytes. Set union: `items-<hash of content>-NNNNN-of-NNNNN.<format>` with
    item (string) and score, sorted by falling score, then bytes. N-gram probabilities:
    `probabilities-<hash of content>-NNNNN-of-NNNNN.<format>` with ngram and probability (float64, nine
    significant digits), sorted by falling probability, then bytes. A line of jsonl is
    `{"length":1,"ngram":"a","score":7.5}`; tsv has a header line and no quoting, and items are
    written by `escape_item`.

    Privacy: post-processing of released sets; the ledger adds only public numbers.

    Cost: one worker holds all released sets and the text of one part.

    Attributes:
      output: Directory, local or on any Beam file system; created if missing.
      output_format: "jsonl", "tsv" or "parquet".
      plan: Plan of the run, a `PrivacyPlan`, a `SetUnionPlan` or a `BayesianPlan`; for the ledger.
      tokenizer: Tokenizer of the run, its name or the function; for the ledger.
      run_key_given: Whether the run key was given instead of fresh; for the ledger.
      described: How records became documents; for the ledger, which names the privacy unit. None
        means the description by the transform that released the sets.
      notes: The operator's notes on the release (title, contact, privacy unit); for the ledger.
      overwrite: Whether a release that exists is replaced. It stays whole until the new ledger
        replaces its ledger. Then its parts are deleted, and so are files that a killed run has left;
        other files are never deleted.
      rows_per_part: Number of rows of a part; the rows of all lengths are cut together.
      permit: Function that the worker calls just before it publishes; if it raises an error, nothing
        is published. With it, a launcher that has given up a run keeps the engine's job, which may
        still be running, from publishing.
      tally: Tallies of the records that were read (`ReadDocuments`); None if they were not counted.
      max_rejected: Largest share of those records that may be rejected, in [0, 1]; above it nothing
        is published. Beam's counters `beam_dpne:rejected_records.*` count them by reason.

    Raises:
      ValueError: A field has a wrong value.
      ReleaseError: While running: a release exists and overwrite is off, another run has published
        there meanwhile, or the output cannot be written. The existing release stays as it was.
      TooManyRejectedError: While running, before anything is written: a larger share of the records
        than max_rejected was rejected.

    Example:
      >>> import tempfile
      >>> from apache_beam.runners.portability.fn_api_runner import FnApiRunner
      >>> from beam_dpne import PrivacyPlan, PrivateNgrams
      >>> from beam_dpne.release.files import read_release
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

    References: none.
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
    permit: Callable[[], None] | None = None
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
        """Returns empty hints, since Beam would log a warning about a named tuple as input."""
        return IOTypeHints.empty()

    def expand(self, input_or_inputs: _Result) -> PValue:
        """Brings the sets to one worker, which publishes them."""
        released = input_or_inputs.released
        sets = released if isinstance(released, tuple) else (released,)
        longest, shorter = longest_beside_shorter(sets)
        return longest | "Publish" >> beam.Map(
            _publish_sets,
            shorter,
            None if self.tally is None else AsIter(self.tally),
            output=self.output,
            output_format=self.output_format,
            plan=self.plan,
            tokenizer=tokenizer_name(self.tokenizer),
            run_key_given=self.run_key_given,
            described=self.described or _described_by(sets[0]),
            notes=self.notes,
            overwrite=self.overwrite,
            rows_per_part=self.rows_per_part,
            permit=self.permit,
            max_rejected=self.max_rejected,
        ).with_output_types(str)


def check_output(output: str, *, overwrite: bool) -> None:
    """Checks, before a run, that a release can be published; leaves no file there.

    Args:
      output: Directory of the release; it may be missing.
      overwrite: Whether the directory may have a release, or other files, already.

    Raises:
      ReleaseError: The path is a file, or the directory is not empty or cannot be written.
    """
    if not output:
        raise ReleaseError("output must be the path of a directory, got output=''.")
    directory = directory_at(output)
    with as_release_error(f"output must be a directory that can be written, got output={output}"):
        names = directory.names()
        _check_replaceable(directory.read(LEDGER_NAME), output)
        if not overwrite:
            _check_empty(names, output)
        directory.probe()


def _described_by(released: PCollection) -> InputDescription | None:
    """Returns the input description of the transform that released a set; None if it has none."""
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
    tallies: Iterable[Tally] | None,
    *,
    permit: Callable[[], None] | None,
    max_rejected: float,
    **settings,
) -> str:
    """Publishes all released sets, which arrive as one element and one side input."""
    if permit is not None:
        permit()
    if tallies is not None:
        tally = add_up(tallies)
        require_few_rejected(tally, max_rejected)
        report_counts(tally)
    progress.enter("publish", None)
    return publish_release([*shorter, longest], **settings)


def contents_of(
    plan: _Plan, released: Sequence[Any]
) -> tuple[Program, pa.Table, Callable[..., dict[str, Any]]]:
    """Returns how the results of a run are published: the program, the rows, and the ledger.

    The third is a function from the arguments of `whole_ledger` that do not depend on the program.

    Raises:
      TypeError: The plan is of no private program.
    """
    if isinstance(plan, BayesianPlan):
        (found,) = released
        ledger = functools.partial(bayesian_ledger, plan=plan, found=found)
        return PROGRAMS["bayesian"], probability_table(released), ledger
    if isinstance(plan, SetUnionPlan):
        (items,) = released
        ledger = functools.partial(set_union_ledger, plan=plan, items=items)
        return PROGRAMS["set-union"], item_table(released), ledger
    if isinstance(plan, PrivacyPlan):
        reports = [length_report(grams) for grams in released]
        ledger = functools.partial(ngrams_ledger, plan=plan, reports=reports)
        return PROGRAMS["ngrams"], ngram_table(released), ledger
    raise TypeError(
        "plan must be a PrivacyPlan, a SetUnionPlan or a BayesianPlan, under which a release is "
        f"private, got {type(plan).__name__}."
    )


def publish_release(
    released: Sequence[_Released],
    *,
    output: str,
    output_format: str,
    plan: _Plan,
    overwrite: bool = False,
    rows_per_part: int = 1_000_000,
    **common: Any,
) -> str:
    """Publishes released sets as files that a ledger lists.

    Args:
      released: S_1, …, S_T in any order, or one set of items or probabilities.
      output: As in `PublishRelease`, which calls this function in a pipeline.
      output_format: As there.
      plan: As there.
      overwrite: As there.
      rows_per_part: As there.
      common: The arguments of `whole_ledger` that do not depend on the program, except the parts.

    Returns:
      The path of the ledger.

    Raises:
      ReleaseError: A release exists and overwrite is off, or the output cannot be written. The
        existing release stays as it was.
    """
    program, rows, ledger = contents_of(plan, released)
    parts = functools.partial(render_parts, program, rows, output_format, rows_per_part)

    def ledger_for(listed: Sequence[Part]) -> bytes:
        return ledger_bytes(ledger(parts=listed, **common))

    directory = directory_at(output)
    with as_release_error(f"The release cannot be published in {output}"), directory.locked():
        before = directory.names()
        current = directory.read(LEDGER_NAME)
        _check_replaceable(current, output)
        if current is None or overwrite:
            written = _write(directory, parts(), ledger_for, current)
            directory.remove(_obsolete(before, overwrite=overwrite) - written)
        elif current != ledger_for([part for part, _ in parts()]):
            raise ReleaseError(
                f"{output} is a release already; choose another directory or --overwrite."
            )
    # Names of parts are hashes of released rows, so the directory names the release.
    report_sink(output)
    return directory.path_of(LEDGER_NAME)


def _write(
    directory: Directory,
    parts: Iterable[tuple[Part, bytes]],
    ledger_for: _LedgerFor,
    current: bytes | None,
) -> set[str]:
    """Writes the parts and then replaces the current ledger; returns the parts' names.

    If that fails, the parts that were written are deleted, unless the ledger that is there lists them.
    """
    written: list[Part] = []
    try:
        for part, data in parts:
            written.append(part)
            directory.put(part.name, data)
        directory.replace(LEDGER_NAME, ledger_for(written), seen=current)
    except BaseException:
        with contextlib.suppress(Exception):
            listed = listed_parts(directory.read(LEDGER_NAME))
            withdrawn = {part.name for part in written} - listed
            directory.remove(withdrawn.intersection(directory.names()))
        raise
    return {part.name for part in written}


def _obsolete(before: Iterable[str], *, overwrite: bool) -> set[str]:
    """Returns those files that were there when the attempt began and are obsolete with a new ledger.

    Files that came later may belong to another attempt.
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
    state = "is a release already" if LEDGER_NAME in names else "is not empty"
    if unfinished == set(names):
        files = "a file" if len(names) == 1 else f"{len(names)} files"
        state = f"holds {files} of a run that has not finished, such as {names[0]}"
    raise ReleaseError(
        f"output must be an empty or new directory, got output={output}, which {state}. "
        "Choose another directory, or --overwrite, which deletes only files of a release."
    )


def _check_replaceable(ledger: bytes | None, output: str) -> None:
    if ledger is not None and not is_ledger(ledger):
        raise ReleaseError(
            f"output has a {LEDGER_NAME} that beam_dpne did not write, got output={output}. "
            "Choose another directory."
        )
