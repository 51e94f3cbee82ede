"""The steps of the YAML transforms: records of files become rows with a schema, and rows a release.

Beam's readers of files for YAML pair values with names by position, so that rows of theirs are
refused as documents. Here the columns of a batch have the names of the fields in each file and record.
A private transform straight behind this reader takes the batches, and other steps take rows, which are
made of them by the names of the columns.
"""

import dataclasses
import functools
import json
import logging
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, cast

import apache_beam as beam
import pyarrow as pa
from apache_beam.pipeline import PipelineVisitor
from apache_beam.pvalue import AsIter, PBegin, PCollection
from apache_beam.typehints.row_type import RowTypeConstraint

from beam_dpne.documents.blocks import GROUP, TEXT, USER
from beam_dpne.documents.participants import Participation
from beam_dpne.documents.rows import checked_names
from beam_dpne.documents.steps import (
    BatchDocuments,
    DocumentsTransform,
    check_known_fields,
    known_fields,
    steps_before,
)
from beam_dpne.errors import UsageError
from beam_dpne.jobs.engine import BeamOptions, is_classic_template
from beam_dpne.jobs.made import Made
from beam_dpne.jobs.parameters import Running
from beam_dpne.jobs.series import (
    check_series,
    refuse_records_without_users,
    settle,
    starting,
)
from beam_dpne.lists.copies import refuse_input
from beam_dpne.ngrams.steps import PrivateNgrams
from beam_dpne.phrase_counts.steps import CountPhrases
from beam_dpne.reading.files import InputFile, match_inputs, patterns_of
from beam_dpne.reading.options import InputDescription, ReadOptions, names_of
from beam_dpne.reading.records import check_fields
from beam_dpne.reading.rejects import Tally
from beam_dpne.reading.steps import ReadFiles, check_tallies
from beam_dpne.release.ledger import user_sentence
from beam_dpne.release.places import check_not_below, check_outside
from beam_dpne.release.steps import WriteRelease

_LOGGER = logging.getLogger(__name__)
# Signs in the name of a field, or in a path, that no name of a row has.
_NO_NAME = re.compile(r"\W+")
# Keys of private transforms that name files which must not be published.
_SECRET_KEYS = ("run_key_file", "stop_list")

# The transforms that release each group by itself.
_GROUPED = (PrivateNgrams, CountPhrases)


@dataclasses.dataclass(eq=False, kw_only=True)
class ReadRows(beam.PTransform):
    """Reads files into rows.

    Attributes:
      inputs: paths, globs or folders.
      options: how they are read; `fields` is a list.
      max_rejected: the largest share of rejected records with which rows are passed on.
      rejects: the operator's directory for the list of rejected records, or None.
    """

    inputs: Sequence[str]
    options: ReadOptions
    max_rejected: float
    rejects: str | None

    def __post_init__(self):
        super().__init__("ReadDocuments")

    @functools.cached_property
    def files(self) -> list[InputFile]:
        """The files that it reads."""
        return match_inputs(self.inputs)

    @property
    def description(self) -> InputDescription:
        """How the program describes its documents if it reads them by these options."""
        return self.options.describe(file.path for file in self.files)

    def expand(self, pipeline: Any) -> PCollection:
        """Checks the files, as far as that is possible before the run, and adds the steps."""
        if not isinstance(pipeline, beam.Pipeline | PBegin):
            raise UsageError("ReadDocuments must have no input; the key input names the files.")
        options = self.options
        check_fields(self.files, options)
        paths = patterns_of(self.files)
        root: Any = pipeline
        read = root | "Read" >> ReadFiles(inputs=paths, rejects=self.rejects, options=options)
        names = _row_names(options)
        batches = read.documents
        if names != [name for _, name in options.column_fields]:
            named = beam.Map(lambda batch: batch.rename_columns(names))
            batches = batches | "Names" >> named.with_output_types(pa.RecordBatch)
        if self.max_rejected < 1:
            # Batches wait until all records are counted, so that too many rejects leave no release.
            check = beam.Map(_check, self.max_rejected, AsIter(read.tally))
            checked = batches.pipeline | "Once" >> beam.Create([None]) | "Check" >> check
            after = beam.Map(lambda batch, _: batch, AsIter(checked))
            batches = batches | "AfterCheck" >> after.with_output_types(pa.RecordBatch)
        rows = beam.FlatMap(_rows_of, names)
        return batches | "Rows" >> rows.with_output_types(_row_type(options))


def _row_names(options: ReadOptions) -> list[str]:
    """Returns the names that the wanted fields have in rows: turns_text for the path turns[].text.

    Raises:
      UsageError: Two fields would have one name.
    """
    names = [_NO_NAME.sub("_", name).strip("_") or name for _, name in options.column_fields]
    for name in names:
        if names.count(name) > 1:
            raise UsageError(
                f"ReadDocuments must have fields with different names in rows, got {name!r} for two."
            )
    return names


def _check(_: None, max_rejected: float, tallies: Iterable[Tally]) -> None:
    """Raises TooManyRejectedError if too many records were rejected, when their list is written."""
    check_tallies(tallies, max_rejected)


def _rows_of(batch: pa.RecordBatch, names: Sequence[str]) -> Iterator[beam.Row]:
    """Makes a row of each record of a batch, by the names of the columns."""
    columns = [batch.column(name).to_pylist() for name in names]
    for values in zip(*columns, strict=True):
        yield beam.Row(**dict(zip(names, values, strict=True)))


def _row_type(options: ReadOptions) -> Any:
    """Returns the type of the rows; users are never null, and so is the text if there is one field."""
    text: Any = Sequence[str] if options.text_is_tokens else str
    if len(options.text_fields) > 1:
        text = text | None
    kinds = {"user_field": str, "text_field": text, "group_field": str, "fields": str | None}
    of_options = zip(_row_names(options), options.column_fields, strict=True)
    fields: Any = [(name, kinds[option]) for name, (option, _) in of_options]
    return RowTypeConstraint.from_fields(fields)


def _readers_before(rows: PCollection) -> list[ReadRows]:
    """Returns the readers from which rows come, also through other steps, ordered by label."""
    steps = {
        step.full_label: step.transform
        for step in steps_before(rows)
        if isinstance(step.transform, ReadRows)
    }
    return [steps[label] for label in sorted(steps)]


def _in_field(name: str) -> beam.PTransform:
    """Returns the step that makes rows with one field of texts."""
    kind = RowTypeConstraint.from_fields([(name, str)])
    return beam.Map(lambda text: beam.Row(**{name: text})).with_output_types(kind)


@dataclasses.dataclass(eq=False, kw_only=True)
class PrivateRows(beam.PTransform):
    """Applies a private transform of documents to rows, and returns rows.

    Attributes:
      transform: the private transform.
      keys: its keys. Public files that they name must not be files from which the rows come, and
        secret ones must not be in the directory of a release.
      made: all groups of its keys, which name its series, if it has one.
    """

    transform: DocumentsTransform
    keys: Mapping[str, Any]
    made: Made

    def __post_init__(self):
        super().__init__(type(self.transform).__name__)

    def expand(self, rows: PCollection) -> dict[str, PCollection]:
        """Checks the rows and the options of the pipeline, and adds the steps."""
        if not isinstance(rows, PCollection):
            raise UsageError(f"{self.label} must have one input, whose rows are the documents.")
        if self.transform.run_key is None and is_classic_template(rows.pipeline.options):
            raise UsageError(
                "template_location needs `run_key_file`: a template is run many times, and a fresh key "
                "would be frozen in it."
            )
        options = BeamOptions(runner=rows.pipeline.runner, pipeline_options=rows.pipeline.options)
        check_series(
            self.made[Running], None, is_here=options.is_here, is_template=options.is_template
        )
        result: Any = self._released(rows)
        return {"rows": result.rows, "ledger": result.ledger | "Ledger" >> _in_field("ledger")}

    def _refuse_inputs(self, reader: ReadRows) -> None:
        """Refuses public files that are files of a reader, or copies of them."""
        for name in ("known", "public", "phrases", "stop_list"):
            for path in names_of(self.keys.get(name) or ()):
                refuse_input(name, path, reader.files, reader.options)

    def _released(self, rows: PCollection) -> Any:
        """Returns the result for rows, whose batches are used if they come straight from files.

        Documents that are exactly those of the program have its description, and so its noise under
        one run key. Of rows that went through other steps, or of which other fields are the documents,
        the description also says how the files were read, since other options may give other documents.
        """
        step: Any = rows.producer
        reader = step and step.parent and step.parent.transform
        is_straight = isinstance(reader, ReadRows)
        transform = self.transform
        if is_straight:
            transform = _by_row_names(transform, reader.options)
        group_field = transform.row_description.group_field
        names = checked_names(transform.user_field, transform.text_field, group_field)
        # Batches, which are checked while they are read only, have the fields of the rows.
        users = names_of(transform.user_field)
        check_known_fields(rows.element_type, names, group_field is not None, len(users))
        readers = _readers_before(rows)
        further = {name for each in readers for name in each.options.fields or ()}
        if not further.isdisjoint(users):
            raise UsageError(
                "`user_field` must not be one of the further fields of ReadDocuments, got "
                f"`user_field={transform.user_field!r}`: only its own `user_field` is checked, so "
                "that 7, 7.0 and [7] would be three users. Give ReadDocuments `user_field`: "
                f"{', '.join(users)}."
            )
        for each in readers:
            self._refuse_inputs(each)
        records = step.inputs[0] if is_straight else rows
        read = reader.options if is_straight else ReadOptions()
        of_options = zip(_row_names(read), read.column_fields, strict=True)
        documents = tuple(name for name, (option, _) in of_options if option != "fields")
        is_grouped_alike = (read.group_field is None) == (group_field is None)
        is_read_alike = is_grouped_alike and len(read.user_fields) == len(users)
        if is_straight and is_read_alike and documents == names:
            batch = BatchDocuments(
                user_field=transform.user_field,
                text_field=transform.text_field,
                group_field=group_field,
            )
            records = records | "Documents" >> batch
            transform = _of_program(transform, reader.description)
        elif readers:
            described = _described(transform.row_description, readers)
            transform = dataclasses.replace(transform, described=described)
        if self.made[Running].series is not None:
            _check_users_of_series(transform, readers)
            transform = cast("DocumentsTransform", starting(self.made, transform))
            _refuse_second_of_series(transform, rows.pipeline)
        return records | "Release" >> transform


def _check_users_of_series(transform: DocumentsTransform, readers: Sequence[ReadRows]) -> None:
    """Checks that the ids of a release's users are those that its readers give.

    Rows of other sources may have another form of a user's id in each release, and what the readers of
    a service do is not known here.

    Raises:
      UsageError: rows come from elsewhere, or their users have another name or form.
    """
    for reader in readers:
        refuse_records_without_users(reader.description)
    ways = [user_sentence(reader.description) for reader in readers]
    here = user_sentence(transform.described)
    if {*ways} != {here}:
        raise UsageError(
            "`series` must be given for rows of ReadDocuments in this Python whose users are named as "
            f"in ReadDocuments, got {' and '.join(ways) or 'other rows'} there, and here {here}."
        )


def _refuse_second_of_series(transform: DocumentsTransform, pipeline: beam.Pipeline) -> None:
    """Raises UsageError if a pipeline has another release of a series, which has the same number."""
    found = _Participations()
    pipeline.visit(found)
    own = cast("Participation", transform.participation)
    if own.place.id in found.series:
        raise UsageError(
            "`series` must be given to one transform of a pipeline, since a release follows from who "
            "took part in the one before: make each release by a run of its own."
        )


class _Participations(PipelineVisitor):
    """Finds the series of the releases in a pipeline.

    Attributes:
      series: names of the series.
    """

    def __init__(self):
        self.series: set[str] = set()

    def enter_composite_transform(self, transform_node: Any) -> None:
        """Looks at a step, and goes on with those in it."""
        step = transform_node.transform
        if isinstance(step, DocumentsTransform) and step.participation is not None:
            self.series.add(step.participation.place.id)


def _by_row_names(transform: DocumentsTransform, read: ReadOptions) -> DocumentsTransform:
    """Returns a transform that names fields as rows do, instead of by the paths of the reader."""
    fields = [field for _, field in read.column_fields]
    names = dict(zip(fields, _row_names(read), strict=True))
    renamed = dataclasses.replace(
        transform,
        user_field=[names.get(name, name) for name in names_of(transform.user_field)],
        text_field=[names.get(name, name) for name in names_of(transform.text_field)],
    )
    if isinstance(renamed, _GROUPED) and renamed.group_field is not None:
        group = names.get(renamed.group_field, renamed.group_field)
        return dataclasses.replace(renamed, group_field=group)
    return renamed


def _of_program(transform: DocumentsTransform, description: InputDescription) -> DocumentsTransform:
    """Returns a transform of the batches of `BatchDocuments`, with the program's description."""
    transform = dataclasses.replace(
        transform, user_field=USER, text_field=TEXT, described=description
    )
    if isinstance(transform, _GROUPED) and transform.is_grouped:
        return dataclasses.replace(transform, group_field=GROUP)
    return transform


def _described(rows: InputDescription, readers: Sequence[ReadRows]) -> InputDescription:
    """Returns the description of rows that come from readers of files through other steps."""
    details = [
        (f"ReadDocuments {number}", json.dumps(reader.description.to_dict()))
        for number, reader in enumerate(readers, start=1)
    ]
    return dataclasses.replace(rows, details=tuple(sorted(details)))


@dataclasses.dataclass(eq=False)
class WriteRows(beam.PTransform):
    """Writes rows and ledger, and returns the path of the ledger in a row with the field `path`."""

    write: WriteRelease

    def __post_init__(self):
        super().__init__("WriteRelease")

    def expand(self, outputs: Any) -> PCollection:
        """Checks the names and fields of the inputs, and adds the steps."""
        if not isinstance(outputs, Mapping) or set(outputs) != {"rows", "ledger"}:
            raise UsageError(
                "WriteRelease must have the two inputs rows and ledger, which are the outputs of one "
                "private transform, e.g. input: {rows: PrivateNgrams.rows, ledger: "
                "PrivateNgrams.ledger}."
            )
        fields = known_fields(outputs["ledger"].element_type)
        if fields and "ledger" not in fields:
            raise UsageError(
                "ledger must have the field ledger, as the output ledger of a private transform does, "
                f"got rows with the fields {', '.join(fields)}."
            )
        for reader in _readers_before(outputs["rows"]):
            if reader.rejects is not None:
                check_outside("rejects", reader.rejects, self.write.output)
            for file in reader.files:
                check_not_below("input", file.path, self.write.output)
        for step in steps_before(outputs["rows"]):
            if isinstance(step.transform, PrivateRows):
                for name in _SECRET_KEYS:
                    for path in names_of(step.transform.keys.get(name) or ()):
                        check_not_below(name, path, self.write.output)
                check_series(step.transform.made[Running], self.write.output, is_here=True)
        text = beam.Map(lambda row: row.ledger).with_output_types(str)
        given: Any = {"rows": outputs["rows"], "ledger": outputs["ledger"] | "Ledger" >> text}
        written = given | "Release" >> self.write
        placed = {
            step.full_label: step.transform.participation
            for step in steps_before(outputs["rows"])
            if isinstance(step.transform, DocumentsTransform)
        }
        if placed and (participation := next(iter(placed.values()))) is not None:
            settled = beam.Map(_settled, participation, self.write.output)
            written = written | "Settle" >> settled.with_output_types(str)
        return cast("PCollection", written | "Path" >> _in_field("path"))


def _settled(path: str, participation: Participation, output: str) -> str:
    """Puts the ledger of a published release into its series, and passes its path on.

    If the run is killed before that, its note stays, which counts as much as the ledger.
    """
    settle(participation, output, _LOGGER.warning)
    return path
