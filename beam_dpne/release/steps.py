"""The results of private transforms, as rows and with a ledger, and WriteRelease, which publishes them.

`PrivateNgrams`, `PrivateSetUnion` and `BayesianCounts` return such results; their rooms are above this
one.
"""

import dataclasses
import functools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, ClassVar, Generic, TypeVar

import apache_beam as beam
import msgspec
from apache_beam.pvalue import AsIter, PCollection, PValue

from beam_dpne.elements import progress
from beam_dpne.elements.bundles import UnhintedTransform, apply, longest_beside_shorter
from beam_dpne.elements.rows import Rows, pieces
from beam_dpne.reading.rejects import DEFAULT_MAX_REJECTED, Tally
from beam_dpne.reading.steps import check_tallies
from beam_dpne.release.described import Form, described, described_rows
from beam_dpne.release.ledger import Run, ledger_bytes
from beam_dpne.release.parts import OUTPUT_FORMATS, rows_section
from beam_dpne.release.publishing import check_output, publish_release
from beam_dpne.release.schema import NO_NOTES, AnyLedger, ReleaseNotes
from beam_dpne.validation import check_choice, check_integer, check_share

_Row = TypeVar("_Row")


class Result(Generic[_Row]):
    """Base of the results of `PrivateNgrams`, `PrivateSetUnion` and `BayesianCounts`.

    Each is a named tuple that has the fields `released` and `run`, and the form of its program.
    """

    form: ClassVar[Form]
    released: Any
    run: Run

    @functools.cached_property
    def rows(self) -> PCollection[_Row]:
        """All released rows, one element each, equal to the rows of written files.

        They have a schema, so that Beam's sinks, data frames and SQL take them. The first access adds
        one step to the pipeline.
        """
        row_type = self.form.row_type(self.run.plan)
        label, longest, shorter = self._last_sets("Rows")
        # Beam hands side inputs to functions, and to no `functools.partial`.
        make = beam.FlatMap(_rows, shorter, form=self.form, row_type=row_type)
        return apply(longest, label, make, row_type)

    @functools.cached_property
    def ledger(self) -> PCollection[str]:
        """The ledger of the rows, one JSON text, equal to the ledger of written files up to its end.

        Its last section is not `parts` but `rows`: their number `count` and their digest `sha256`,
        the SHA-256 of all rows as jsonl in the order of a release. The first access adds one step to
        the pipeline.
        """
        label, longest, shorter = self._last_sets("Ledger")
        make = beam.FlatMap(_ledger, shorter, form=self.form, run=self.run)
        return apply(longest, label, make, str)

    @property
    def sets(self) -> tuple[PCollection[Any], ...]:
        """The released sets, of which the last always has one element."""
        return self.released if isinstance(self.released, tuple) else (self.released,)

    def _last_sets(self, name: str) -> tuple[str, PCollection[Any], Any]:
        """Returns the label of a step, after the one that released the last set, and its inputs.

        They are the last set, and all others as a side input.
        """
        producer = self.sets[-1].producer
        label = f"{producer.full_label}/{name}" if producer else name
        longest, shorter = longest_beside_shorter(self.sets, label)
        return label, longest, shorter


def _rows(longest: Any, shorter: Iterable[Any], *, form: Form, row_type: Any) -> Iterator[Any]:
    for piece in pieces(form.rows_of([*shorter, longest])):
        yield from map(row_type, *(column.to_pylist() for column in piece.columns))


def _ledger(longest: Any, shorter: Iterable[Any], *, form: Form, run: Run) -> Iterator[str]:
    rows, ledger = described(form, run, NO_NOTES, [*shorter, longest])
    # Files have no need of the digest of the rows, which takes seconds for a million of them.
    ledger = msgspec.structs.replace(ledger, rows=rows_section(rows))
    yield ledger_bytes(ledger).decode().rstrip()


@dataclasses.dataclass(eq=False, kw_only=True)
class WriteRelease(UnhintedTransform):
    """Writes a release as files that a ledger lists; the last step of a pipeline.

    Input: the result of `PrivateNgrams`, `PrivateSetUnion` or `BayesianCounts`. Where only PCollections
    can be passed on, as in Beam YAML: a dict of `result.rows` and `result.ledger`.

    Output: PCollection of one str, the path of the ledger. Under `output` are `ledger.json` and the
    parts, `ngrams-<hash of content>-NNNNN-of-NNNNN.<format>` (`items-…`, `probabilities-…`). Their rows
    are in one order, which the ledger states with the meaning of each column. A line of jsonl is
    `{"length":1,"ngram":"a","score":7.5}`; csv (with texts in quotes) and tsv (without) have a header
    line.

    Privacy: post-processing of released sets; the ledger adds only public numbers. Rows that are not
    exactly those that the ledger describes are refused.

    Cost: one worker holds all released sets and the text of one part.

    Attributes:
      output: Directory, local or on any Beam file system; created if missing.
      output_format: "jsonl", "csv", "tsv" or "parquet".
      notes: The operator's notes on the release (title, contact, privacy unit); for the ledger.
      overwrite: Whether a release that exists is replaced. It stays whole until the new ledger
        replaces its ledger. Then its parts are deleted, and so are files that a killed run has left;
        other files are never deleted.
      rows_per_part: Number of rows of a part; the rows of all lengths are cut together.
      tally: Tallies of the records that were read (`ReadDocuments`); None if they were not counted.
      max_rejected: Largest share of those records that may be rejected, in [0, 1]; above it nothing
        is published. Beam's counter `beam_dpne:rejected_records` counts them.
      earlier: The bytes of ledgers of other releases. One that was made under this run key with the
        same parameters has the same noise, and must be this release; the one in `output` is looked at
        in any case.

    Raises:
      TypeError: The input is neither a result nor a dict of rows and ledger.
      ValueError: A field has a wrong value.
      ReleaseError: When the pipeline is built: the output holds files and overwrite is off, or it
        cannot be written. While running: a release exists and overwrite is off, another run has
        published there meanwhile, the output cannot be written, rows and ledger do not belong
        together, or the run key has met another input. The existing release stays as it was.
      TooManyRejectedError: While running, before anything is written: a larger share of the records
        than max_rejected was rejected.

    Example:
      >>> import tempfile
      >>> from apache_beam.runners.portability.fn_api_runner import FnApiRunner
      >>> from beam_dpne import NgramsPlan, PrivateNgrams, ReleaseNotes, WriteRelease, read_release
      >>> plan = NgramsPlan(epsilon=10, delta=1e-4, max_length=2, max_contributions=2,
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
    earlier: Sequence[bytes] = dataclasses.field(default=(), repr=False)

    def __post_init__(self):
        super().__post_init__()
        check_share("max_rejected", self.max_rejected)
        check_choice("output_format", self.output_format, OUTPUT_FORMATS)
        check_integer("rows_per_part", self.rows_per_part, 1)

    def _extract_input_pvalues(self, pvalueish: Any) -> tuple[Any, dict[str, PValue]]:
        """Leaves out the other fields of a result, of which Beam would make PCollections."""
        pvalueish, found = super()._extract_input_pvalues(pvalueish)
        return pvalueish, {
            name: value for name, value in found.items() if isinstance(value, PValue)
        }

    def expand(self, input_or_inputs: Result | Mapping[str, PCollection]) -> PValue:
        """Brings everything to one worker, which publishes it."""
        given = input_or_inputs
        check_output(self.output, overwrite=self.overwrite)
        if isinstance(given, Result):
            main, shorter = longest_beside_shorter(given.sets)
            beside = (shorter,)
            describe: Callable[..., Any] = functools.partial(
                _described_sets, given.form, given.run, self.notes
            )
        elif isinstance(given, Mapping) and set(given) == {"rows", "ledger"}:
            main = given["ledger"].pipeline | "Once" >> beam.Create([None])
            beside = (AsIter(given["rows"]), AsIter(given["ledger"]))
            describe = functools.partial(_described_rows, self.notes)
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
            earlier=self.earlier,
        ).with_output_types(str)


def _publish(
    main: Any,
    tallies: Iterable[Tally] | None,
    *beside: Iterable[Any],
    describe: Callable[..., tuple[Rows, AnyLedger]],
    max_rejected: float,
    output: str,
    output_format: str,
    overwrite: bool,
    rows_per_part: int,
    earlier: Sequence[bytes],
) -> str:
    """Publishes the one release that the input describes, if it may be published."""
    if tallies is not None:
        check_tallies(tallies, max_rejected)
    progress.enter("publish", None)
    rows, ledger = describe(main, *beside)
    return publish_release(
        rows,
        ledger,
        output=output,
        output_format=output_format,
        overwrite=overwrite,
        rows_per_part=rows_per_part,
        earlier=lambda: earlier,
    )


def _described_sets(
    form: Form, run: Run, notes: ReleaseNotes, longest: Any, shorter: Iterable[Any]
) -> tuple[Rows, AnyLedger]:
    return described(form, run, notes, [*shorter, longest])


def _described_rows(
    notes: ReleaseNotes, _: None, rows: Iterable[Any], ledgers: Iterable[str]
) -> tuple[Rows, AnyLedger]:
    return described_rows(notes, rows, ledgers)
