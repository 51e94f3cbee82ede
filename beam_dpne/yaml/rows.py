"""Records of files as rows with a schema, read by the names of their fields as the programs read them.

Beam's readers of files for YAML pair values with names by position, so that rows of theirs are
refused as documents (`beam_dpne.documents.batch`). Here the columns of a batch have the names of the
fields in each file and record. A private transform straight behind this reader takes the batches, and
other steps take rows, which are made of them by the names of the columns.
"""

import dataclasses
import json
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple, cast

import apache_beam as beam
import pyarrow as pa
from apache_beam.pipeline import PipelineVisitor
from apache_beam.pvalue import AsIter, PBegin, PCollection
from apache_beam.typehints.row_type import RowTypeConstraint

from beam_dpne.cli.runners import is_classic_template
from beam_dpne.documents.batch import (
    TEXT,
    USER,
    BatchDocuments,
    check_known_fields,
    checked_names,
    steps_before,
)
from beam_dpne.documents.transform import DocumentsTransform
from beam_dpne.errors import UsageError
from beam_dpne.reading.files import match_inputs
from beam_dpne.reading.options import InputDescription, ReadOptions, names_of
from beam_dpne.reading.records import check_fields
from beam_dpne.reading.rejects import (
    Tally,
    WriteRejects,
    add_up,
    report_counts,
    require_few_rejected,
)
from beam_dpne.reading.transform import ReadDocuments


@dataclasses.dataclass(eq=False, kw_only=True)
class ReadRows(beam.PTransform):
    """Reads files into rows.

    Attributes:
      inputs: paths, globs or folders.
      options: how they are read; `fields` is a list.
      strict: whether the first rejected record fails the run.
      max_rejected: the largest share of rejected records with which rows are passed on.
      rejects: the operator's directory for the list of rejected records, or None.
    """

    inputs: Sequence[str]
    options: ReadOptions
    strict: bool
    max_rejected: float
    rejects: str | None

    def __post_init__(self):
        super().__init__("ReadDocuments")

    @property
    def description(self) -> InputDescription:
        """How the program describes its documents if it reads them by these options."""
        paths = [file.path for file in match_inputs(self.inputs)]
        return self.options.describe(paths)

    def check_user(self, user_field: str) -> None:
        """Raises UsageError for a user that is one of the further fields, which are not checked."""
        if user_field in (self.options.fields or ()):
            raise UsageError(
                f"user_field must not be one of the further fields of ReadDocuments, got user_field="
                f"{user_field!r}: only its own user_field is checked, so that 7, 7.0 and [7] would be "
                f"three users. Give ReadDocuments user_field: {user_field}."
            )

    def expand(self, pipeline: Any) -> PCollection:
        """Checks the files, as far as that is possible before the run, and adds the steps."""
        if not isinstance(pipeline, beam.Pipeline | PBegin):
            raise UsageError("ReadDocuments must have no input; the key input names the files.")
        files = match_inputs(self.inputs)
        check_fields(files, self.options)
        root: Any = pipeline
        read = root | "Read" >> ReadDocuments(
            inputs=[file.path for file in files],
            shown_inputs=self.inputs,
            strict=self.strict,
            **dataclasses.asdict(self.options),
        )
        batches, tally = read.documents, read.tally
        if self.rejects is not None:
            written = read.rejects | "WriteRejects" >> WriteRejects(path=self.rejects)
            after = beam.Map(_after, AsIter(written)).with_output_types(Tally)
            tally = tally | "AfterRejects" >> after
        if self.max_rejected < 1:
            # Batches wait until all records are counted, so that too many rejects leave no release.
            checked = (
                batches.pipeline
                | "Once" >> beam.Create([None])
                | "Check" >> beam.Map(_check, AsIter(tally), self.max_rejected)
            )
            after = beam.Map(_after, AsIter(checked)).with_output_types(pa.RecordBatch)
            batches = batches | "AfterCheck" >> after
        rows = _ToRows(self.options, self.description)
        return batches | "Rows" >> beam.ParDo(rows).with_output_types(row_type(self.options))


def _readers_before(rows: PCollection) -> list[ReadRows]:
    """Returns the readers from which rows come, also through other steps, ordered by label."""
    steps = {
        step.full_label: step.transform
        for step in steps_before(rows)
        if isinstance(step.transform, ReadRows)
    }
    return [steps[label] for label in sorted(steps)]


def _described(rows: InputDescription, readers: Sequence[ReadRows]) -> InputDescription:
    """Returns the description of rows that come from readers of files through other steps."""
    details = [
        (f"ReadDocuments {number}", json.dumps(reader.description.to_dict()))
        for number, reader in enumerate(readers, start=1)
    ]
    return dataclasses.replace(rows, details=tuple(sorted(details)))


class LedgerText(NamedTuple):
    """The ledger of a release, in a row.

    Attributes:
      ledger: the ledger as JSON, with the number and the SHA-256 of the rows instead of files.
    """

    ledger: str


beam.coders.registry.register_coder(LedgerText, beam.coders.RowCoder)


@dataclasses.dataclass(eq=False, kw_only=True)
class PrivateRows(beam.PTransform):
    """Applies a private transform to rows, and returns rows.

    Attributes:
      name: name of the YAML transform.
      transform: the private transform of documents.
    """

    name: str
    transform: DocumentsTransform

    def __post_init__(self):
        super().__init__(self.name)

    def expand(self, rows: PCollection) -> dict[str, PCollection]:
        """Checks the rows and the options of the pipeline, and adds the steps."""
        if not isinstance(rows, PCollection):
            raise UsageError(f"{self.name} must have one input, whose rows are the documents.")
        if self.transform.run_key is None and is_classic_template(rows.pipeline.options):
            raise UsageError(
                "template_location needs run_key_file: a template is run many times, and a fresh key "
                "would be frozen in it."
            )
        result: Any = self._released(rows)
        ledger = beam.Map(LedgerText).with_output_types(LedgerText)
        return {"rows": result.rows, "ledger": result.ledger | "Ledger" >> ledger}

    def _released(self, rows: PCollection) -> Any:
        """Returns the result for rows, whose batches are used if they come straight from files.

        Documents that are exactly those of the program have its description, and so its noise under
        one run key. Of rows that went through other steps, or of which other fields are the documents,
        the description also says how the files were read, since other options may give other documents.
        """
        transform = self.transform
        step = rows.producer
        function = None if step is None else getattr(step.transform, "fn", None)
        read = function.description if isinstance(function, _ToRows) else None
        records = rows if step is None or read is None else cast("PCollection", step.inputs[0])
        # Batches, which are checked while they are read only, have the fields of the rows.
        check_known_fields(
            rows.element_type, checked_names(transform.user_field, transform.text_field)
        )
        readers = _readers_before(rows)
        names = transform.user_field, names_of(transform.text_field)
        for reader in readers:
            reader.check_user(transform.user_field)
        if read is not None and names == (read.user_field, read.text_fields):
            batch = BatchDocuments(user_field=transform.user_field, text_field=transform.text_field)
            as_program = dataclasses.replace(
                transform, user_field=USER, text_field=TEXT, described=read
            )
            return records | "Documents" >> batch | "Release" >> as_program
        if readers:
            transform = dataclasses.replace(
                transform, described=_described(transform.row_description, readers)
            )
        return records | "Release" >> transform


def directories_of_rejects(pipeline: beam.Pipeline) -> list[str]:
    """Returns the directories into which the readers of a pipeline write lists of rejected records."""
    found: list[str] = []

    class Steps(PipelineVisitor):
        def enter_composite_transform(self, transform_node: Any) -> None:
            step = transform_node.transform
            if isinstance(step, ReadRows) and step.rejects is not None:
                found.append(step.rejects)

    pipeline.visit(Steps())
    return found


def row_type(options: ReadOptions) -> Any:
    """Returns the type of the rows; users are never null, and so is the text if there is one field."""
    text: Any = Sequence[str] if options.text_is_tokens else str
    texts = options.text_fields
    names = [*texts, *(options.fields or ())]
    kinds = [text if len(texts) == 1 else text | None] * len(texts)
    kinds += [str | None] * len(options.fields or ())
    return RowTypeConstraint.from_fields(
        [(options.user_field, str), *zip(names, kinds, strict=True)]
    )


class _ToRows(beam.DoFn):
    """Makes a row of each record of a batch, by the names of the columns."""

    def __init__(self, options: ReadOptions, description: InputDescription):
        self._names = [name for _, name in options.wanted_fields]
        self.description = description

    def process(self, batch: pa.RecordBatch) -> Iterator[beam.Row]:
        names = self._names
        columns = [batch.column(name).to_pylist() for name in names]
        for values in zip(*columns, strict=True):
            yield beam.Row(**dict(zip(names, values, strict=True)))


def _after(element: Any, _others: Iterable[Any]) -> Any:
    """Returns an element; the step that has others as a side input waits for them."""
    return element


def _check(_: None, tallies: Iterable[Tally], max_rejected: float) -> None:
    """Raises TooManyRejectedError if too large a share of the records was rejected."""
    tally = add_up(tallies)
    require_few_rejected(tally, max_rejected)
    report_counts(tally)
