"""Publishing a release: parts first, then the ledger in one step.

The files are a function of the released rows, the ledger and versions, and of nothing else that is
known about the data. Names of parts are derived from their content, so that a repeated bundle writes
the same files again.
"""

import contextlib
import dataclasses
import functools
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import apache_beam as beam
from apache_beam.pvalue import AsIter, PCollection, PValue
from apache_beam.typehints.decorators import IOTypeHints

from beam_dpne.elements import progress
from beam_dpne.elements.batches import DisplayedTransform
from beam_dpne.elements.rows import longest_beside_shorter
from beam_dpne.errors import ReleaseError
from beam_dpne.reading.rejects import (
    DEFAULT_MAX_REJECTED,
    Tally,
    add_up,
    check_max_rejected,
    report_counts,
    require_few_rejected,
)
from beam_dpne.release.files import (
    LEDGER_NAME,
    as_release_error,
    is_ledger,
    listed_parts,
)
from beam_dpne.release.ledger import Run, ledger_bytes, with_parts
from beam_dpne.release.notes import NO_NOTES, ReleaseNotes
from beam_dpne.release.parts import (
    OUTPUT_FORMATS,
    PART_NAME,
    Part,
    render_parts,
)
from beam_dpne.release.result import Described, Form, Result, described, described_rows
from beam_dpne.storage.access import directory_at
from beam_dpne.storage.directories import Directory

_WRITABLE = "output must be a directory that can be written, got output={}"
_TEMPORARY_NAME = re.compile(
    rf"\.({PART_NAME.pattern}|{re.escape(LEDGER_NAME)}|probe)\.tmp-[0-9a-f]{{32}}"
)
_LedgerFor = Callable[[Sequence[Part]], bytes]


@dataclasses.dataclass(eq=False, kw_only=True)
class WriteRelease(DisplayedTransform):
    """Writes a release as files that a ledger lists; the last step of a pipeline.

    Input: the result of `PrivateNgrams`, `PrivateSetUnion` or `BayesianCounts`. Where only PCollections
    can be passed on, as in Beam YAML: a dict of `result.rows` and `result.ledger`.

    Output: PCollection of one str, the path of the ledger. Under `output` are `ledger.json` and the
    parts, `ngrams-<hash of content>-NNNNN-of-NNNNN.<format>` (`items-…`, `probabilities-…`). Their rows
    are in one order, which the ledger states with the meaning of each column. A line of jsonl is
    `{"length":1,"ngram":"a","score":7.5}`; tsv has a header line and no quoting.

    Privacy: post-processing of released sets; the ledger adds only public numbers. Rows that are not
    exactly those that the ledger describes are refused.

    Cost: one worker holds all released sets and the text of one part.

    Attributes:
      output: Directory, local or on any Beam file system; created if missing.
      output_format: "jsonl", "tsv" or "parquet".
      notes: The operator's notes on the release (title, contact, privacy unit); for the ledger.
      overwrite: Whether a release that exists is replaced. It stays whole until the new ledger
        replaces its ledger. Then its parts are deleted, and so are files that a killed run has left;
        other files are never deleted.
      rows_per_part: Number of rows of a part; the rows of all lengths are cut together.
      tally: Tallies of the records that were read (`ReadDocuments`); None if they were not counted.
      max_rejected: Largest share of those records that may be rejected, in [0, 1]; above it nothing
        is published. Beam's counters `beam_dpne:rejected_records.*` count them by reason.

    Raises:
      TypeError: The input is neither a result nor a dict of rows and ledger.
      ValueError: A field has a wrong value, or rows are unbounded or windowed.
      ReleaseError: When the pipeline is built: the output holds files and overwrite is off, or it
        cannot be read. While running: a release exists and overwrite is off, another run has
        published there meanwhile, the output cannot be written, or rows and ledger do not belong
        together. The existing release stays as it was.
      TooManyRejectedError: While running, before anything is written: a larger share of the records
        than max_rejected was rejected.

    Example:
      >>> import tempfile
      >>> from apache_beam.runners.portability.fn_api_runner import FnApiRunner
      >>> from beam_dpne import PrivacyPlan, PrivateNgrams, ReleaseNotes, WriteRelease, read_release
      >>> plan = PrivacyPlan(epsilon=10, delta=1e-4, max_length=2, max_contributions=2,
      ...                    spurious_fraction=1e-9)
      >>> with tempfile.TemporaryDirectory() as folder:
      ...     with beam.Pipeline(runner=FnApiRunner()) as pipeline:
      ...         texts = [(f"u{i}", "Good morning") for i in range(200)]
      ...         result = pipeline | beam.Create(texts) | PrivateNgrams(plan=plan)
      ...         _ = result | WriteRelease(output=folder, notes=ReleaseNotes(unit="a customer"))
      ...     read_release(folder).table().column("ngram").to_pylist()[-1]
      'good morning'

    References: none.
    """

    output: str
    output_format: str = "jsonl"
    notes: ReleaseNotes = NO_NOTES
    overwrite: bool = False
    rows_per_part: int = 1_000_000
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

    def _extract_input_pvalues(self, pvalueish: Any) -> tuple[Any, dict[str, PValue]]:
        """Leaves out the other fields of a result, of which Beam would make PCollections."""
        pvalueish, found = super()._extract_input_pvalues(pvalueish)
        return pvalueish, {
            name: value for name, value in found.items() if isinstance(value, PValue)
        }

    def expand(self, input_or_inputs: Result | Mapping[str, PCollection]) -> PValue:
        """Brings everything to one worker, which publishes it."""
        given = input_or_inputs
        check_unused(self.output, overwrite=self.overwrite)
        if isinstance(given, Result):
            main, shorter = longest_beside_shorter(given.sets)
            beside = (shorter,)
            describe = functools.partial(_of_sets, given.form, given.run, self.notes)
        elif isinstance(given, Mapping) and set(given) == {"rows", "ledger"}:
            _check_complete(given)
            main = given["ledger"].pipeline | "Once" >> beam.Create([None])
            beside = (AsIter(given["rows"]), AsIter(given["ledger"]))
            describe = functools.partial(_of_rows, self.notes)
        else:
            raise TypeError(
                "WriteRelease takes the result of PrivateNgrams, PrivateSetUnion or BayesianCounts, or "
                "a dict of its rows and ledger."
            )
        return main | "Publish" >> beam.Map(
            _publish,
            None if self.tally is None else AsIter(self.tally),
            *beside,
            describe=describe,
            max_rejected=self.max_rejected,
            output=self.output,
            output_format=self.output_format,
            overwrite=self.overwrite,
            rows_per_part=self.rows_per_part,
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
    check_unused(output, overwrite=overwrite)
    with as_release_error(_WRITABLE.format(output)):
        directory_at(output).probe()


def check_unused(output: str, *, overwrite: bool) -> None:
    """Checks that nothing is in the way of a release, and writes nothing.

    Args:
      output: Directory of the release; it may be missing.
      overwrite: Whether the directory may have a release, or other files, already.

    Raises:
      ReleaseError: The path is a file, or the directory is not empty or cannot be read.
    """
    directory = directory_at(output)
    with as_release_error(_WRITABLE.format(output)):
        names = directory.names()
        _check_replaceable(directory.read(LEDGER_NAME), output)
        if not overwrite:
            _check_empty(names, output)


def _check_complete(given: Mapping[str, PCollection]) -> None:
    """Raises ValueError unless rows and ledger are complete at some time."""
    for name, pcollection in given.items():
        if not pcollection.is_bounded or not pcollection.windowing.is_default():
            raise ValueError(
                f"{name} must be bounded and in the global window with its default trigger, since a "
                "release is written once. Apply beam.WindowInto(GlobalWindows()) before."
            )


def _publish(
    main: Any,
    tallies: Iterable[Tally] | None,
    *beside: Iterable[Any],
    describe: Callable[..., Described],
    max_rejected: float,
    **settings: Any,
) -> str:
    """Publishes the one release that the input describes, if it may be published."""
    if tallies is not None:
        tally = add_up(tallies)
        require_few_rejected(tally, max_rejected)
        report_counts(tally)
    progress.enter("publish", None)
    return publish_release(describe(main, *beside), **settings)


def _of_sets(
    form: Form, run: Run, notes: ReleaseNotes, longest: Any, shorter: Iterable[Any]
) -> Described:
    return described(form, run, [*shorter, longest], notes)


def _of_rows(
    notes: ReleaseNotes, _: None, rows: Iterable[Any], ledgers: Iterable[str]
) -> Described:
    return described_rows(rows, ledgers, notes)


def publish_release(
    release: Described,
    *,
    output: str,
    output_format: str = "jsonl",
    overwrite: bool = False,
    rows_per_part: int = 1_000_000,
) -> str:
    """Publishes a release as files that a ledger lists.

    Args:
      release: Its program, rows and ledger.
      output: As in `WriteRelease`, which calls this function in a pipeline.
      output_format: As there.
      overwrite: As there.
      rows_per_part: As there.

    Returns:
      The path of the ledger.

    Raises:
      ReleaseError: A release exists and overwrite is off, or the output cannot be written. The
        existing release stays as it was.
    """
    parts = functools.partial(
        render_parts, release.program, release.rows, output_format, rows_per_part
    )

    def ledger_for(listed: Sequence[Part]) -> bytes:
        return ledger_bytes(with_parts(release.ledger, listed))

    directory = directory_at(output)
    with as_release_error(f"The release cannot be published in {output}"), directory.locked():
        # The ledger is read first. If another attempt publishes after that, this attempt is refused;
        # in the other order, parts that it wrote after the listing would stay for ever.
        current = directory.read(LEDGER_NAME)
        before = directory.names()
        _check_replaceable(current, output)
        if current is None or overwrite:
            written = _write(directory, parts(), ledger_for, current)
            directory.remove(_obsolete(before, overwrite=overwrite) - written)
        elif current != ledger_for([part for part, _ in parts()]):
            raise ReleaseError(
                f"{output} is a release already; choose another directory or set overwrite."
            )
    # Names of parts are hashes of released rows, so the directory names the release.
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
    if names:
        state = "is a release already" if LEDGER_NAME in names else "is not empty"
        raise ReleaseError(
            f"output must be an empty or new directory, got output={output}, which {state}. "
            "Choose another directory, or set overwrite, which deletes only files of a release."
        )


def _check_replaceable(ledger: bytes | None, output: str) -> None:
    if ledger is not None and not is_ledger(ledger):
        raise ReleaseError(
            f"output has a {LEDGER_NAME} that beam_dpne did not write, got output={output}. "
            "Choose another directory."
        )
