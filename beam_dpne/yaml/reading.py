"""Records of files as rows with a schema, read by the names of their fields as the programs read them.

Beam's readers of files for YAML pair values with names by position, so that rows of theirs are
refused as documents (`beam_dpne.documents.sources`). Here the columns of a batch have the names of the
fields in each file and record. A private transform straight behind this reader takes the batches, and
other steps take rows, which are made of them by the names of the columns.
"""

import dataclasses
import json
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, TypeVar, cast

import apache_beam as beam
import pyarrow as pa
from apache_beam.pipeline import PipelineVisitor
from apache_beam.pvalue import AsIter, PBegin, PCollection
from apache_beam.typehints.row_type import RowTypeConstraint

from beam_dpne.cli.failures import check_outside_releases
from beam_dpne.documents.sources import steps_before
from beam_dpne.errors import InputError, TooManyRejectedError, UsageError
from beam_dpne.reading.files import match_inputs
from beam_dpne.reading.headers import check_fields
from beam_dpne.reading.options import InputDescription, ReadOptions
from beam_dpne.reading.rejects import (
    Tally,
    WriteRejects,
    add_up,
    report_counts,
    require_few_rejected,
)
from beam_dpne.reading.transform import ReadDocuments
from beam_dpne.release.publishing import WriteRelease

_Step = TypeVar("_Step", bound=beam.PTransform)


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
        paths = [file.path for file in match_inputs(self.inputs, self.options.input_format)]
        return self.options.describe(paths)

    def check_user(self, user_field: str) -> None:
        """Raises UsageError for a user that is one of the further fields, which are not checked."""
        if user_field in (self.options.fields or ()) and user_field != self.options.user_field:
            raise UsageError(
                f"user_field must not be one of the further fields of ReadDocuments, got user_field="
                f"{user_field!r}: only its own user_field is checked, so that 7, 7.0 and [7] would be "
                f"three users. Give ReadDocuments user_field: {user_field}."
            )

    def expand(self, pipeline: Any) -> PCollection:
        """Checks the files, as far as that is possible before the run, and adds the steps."""
        if not isinstance(pipeline, beam.Pipeline | PBegin):
            raise UsageError("ReadDocuments must have no input; the key input names the files.")
        try:
            files = match_inputs(self.inputs, self.options.input_format)
            check_fields(files, self.options)
        except InputError as error:
            raise InputError(without_dashes(error)) from None
        paths = [file.path for file in files]
        root: Any = pipeline
        read = root | "Read" >> ReadDocuments(
            inputs=paths,
            shown_inputs=self.inputs,
            strict=self.strict,
            **dataclasses.asdict(self.options),
        )
        batches = read.documents
        tally = read.tally
        if self.rejects is not None:
            for release in _steps_of(batches.pipeline, WriteRelease):
                check_outside_releases("rejects", self.rejects, release.output)
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
        rows = _ToRows(self.options, self.options.describe(paths))
        return batches | "Rows" >> beam.ParDo(rows).with_output_types(row_type(self.options))


@dataclasses.dataclass(frozen=True)
class Batches:
    """Batches of records that stand behind rows.

    Attributes:
      records: `pyarrow.RecordBatch` with the fields as columns.
      description: how the program describes its documents if it reads them from the same files.
    """

    records: PCollection
    description: InputDescription


def batches_behind(rows: PCollection) -> Batches | None:
    """Returns the batches of rows that come straight from `ReadRows`, None for other rows."""
    step = rows.producer
    function = None if step is None else getattr(step.transform, "fn", None)
    if step is None or not isinstance(function, _ToRows):
        return None
    return Batches(cast("PCollection", step.inputs[0]), function.description)


def readers_before(rows: PCollection) -> list[ReadRows]:
    """Returns the readers from which rows come, also through other steps, ordered by label."""
    steps = {
        step.full_label: step.transform
        for step in steps_before(rows)
        if isinstance(step.transform, ReadRows)
    }
    return [steps[label] for label in sorted(steps)]


def described_rows(rows: InputDescription, readers: Sequence[ReadRows]) -> InputDescription:
    """Returns the description of rows that come from readers of files through other steps.

    Args:
      rows: the description by the fields alone.
      readers: the readers, of which there is at least one.
    """
    details = [
        (f"ReadDocuments {number}", json.dumps(reader.description.to_dict()))
        for number, reader in enumerate(readers, start=1)
    ]
    return dataclasses.replace(rows, details=tuple(sorted(details)))


def directories_of_rejects(pipeline: beam.Pipeline) -> list[str]:
    """Returns the directories into which the readers of a pipeline write lists of rejected records."""
    found = (reader.rejects for reader in _steps_of(pipeline, ReadRows))
    return [rejects for rejects in found if rejects is not None]


def _steps_of(pipeline: beam.Pipeline, kind: type[_Step]) -> list[_Step]:
    """Returns the composite transforms of a class in a pipeline, as far as it has been built."""
    found: list[_Step] = []

    class Steps(PipelineVisitor):
        def enter_composite_transform(self, transform_node: Any) -> None:
            if isinstance(transform_node.transform, kind):
                found.append(transform_node.transform)

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
        self._names = options.record_names or ()
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
    try:
        require_few_rejected(tally, max_rejected)
    except TooManyRejectedError as error:
        raise TooManyRejectedError(without_dashes(error)) from None
    report_counts(tally)


def without_dashes(error: Exception) -> str:
    """Returns an error of the programs, which name options as --name, with the names of keys.

    >>> without_dashes(ValueError("Name it with --encoding."))
    'Name it with encoding.'
    """
    return re.sub(r"--(?=[a-z])", "", str(error))
