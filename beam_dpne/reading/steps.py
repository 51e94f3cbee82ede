"""ReadDocuments: files are cut into pieces of work, and each piece becomes batches of documents."""

import dataclasses
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import apache_beam as beam
import pyarrow as pa
from apache_beam.metrics.metric import Metrics
from apache_beam.pvalue import AsIter, PCollection, TaggedOutput

from beam_dpne.elements.bundles import UnhintedTransform, apply
from beam_dpne.reading.files import has_glob, match_inputs
from beam_dpne.reading.options import InputDescription, ReadOptions, extension_of, format_of
from beam_dpne.reading.reader import Reader, work_items
from beam_dpne.reading.records import WorkItem
from beam_dpne.reading.rejects import (
    NO_RECORDS,
    REJECTED_RECORDS,
    Reject,
    Tally,
    require_few_rejected,
    write_rejects,
)
from beam_dpne.validation import made_from

_REJECTS = "rejects"
_TALLY = "tally"


class _Outputs(NamedTuple):
    documents: PCollection[pa.RecordBatch]
    rejects: PCollection[Reject]
    tally: PCollection[Tally]


class ReadResult(_Outputs):
    """Output of `ReadDocuments`: documents, rejected records, and numbers of records.

    Attributes:
      documents: Batches of users and texts.
      rejects: The records that cannot be used.
      tally: Numbers of records of each piece of work.
      described: How the records became documents. Pass it to `PrivateNgrams(described=…)` and the other
        transforms, so that the run key is bound to it and the ledger states it.
    """

    described: InputDescription


@dataclasses.dataclass(eq=False, kw_only=True)
class ReadDocuments(UnhintedTransform):
    r"""Reads users' texts from files into Arrow record batches.

    Input:
      A pipeline.

    Output:
      A `ReadResult`. `documents`: `pyarrow.RecordBatch` of about `block_bytes` with columns `user`
      (string; for `sequences` fixed_size_binary(16): the file's index among the sorted inputs, then
      the byte offset of the line in the decompressed text, 8 bytes each, little-endian) and `text`
      (string, or list<string> if `text_is_tokens`), without nulls; with `fields` the records as they
      are. `rejects`: a `Reject` for each record that cannot be used; Beam's counter
      `beam_dpne:rejected_records` counts them. `tally`: a `Tally` for each piece of work, or for all;
      `WriteRelease(tally=…)` adds them up and publishes nothing
      if too large a share was rejected.

    Privacy:
      Not private; it reads the private corpus. Errors, logs and rejects hold positions and fixed
      phrases, never the content of a record.

    Cost:
      One pass. Large plain files of lines (JSONL, sequences, CSV and TSV without quoting) in UTF-8
      are split by bytes, and Parquet files by row groups. A file with quoting, a JSON array, a
      compressed file and a file in another encoding are one piece of work each. A worker holds a few
      blocks and at most one record of `max_record_bytes`.

    Attributes:
      inputs: Paths or globs of files, or folders, of which everything below is read, local or on any
        Beam file system, or local tables of Delta or Iceberg. Files ending in `.gz`, `.bz2`, `.zst`,
        `.zstd`, `.xz` and `.zip` are decompressed.
      rejects: Directory, outside releases, for the file `rejects-00000-of-00001.jsonl`, in which each
        reject is a line of JSON; `tally` waits for it. It is as private as the data, and on a local
        file system only its owner can read it.
      input_format, user_field, text_field, encoding: As in `ReadOptions`.
      normalize_users, record_is_user: As in `ReadOptions`.
      delimiter, quoting, columns, max_record_bytes, records, where: As in `ReadOptions`.
      text_is_tokens, group_field, block_bytes, split_bytes: As in `ReadOptions`. With a group_field the
        batches have a third column `group` (string).
      fields: Further fields, as in `ReadOptions`; one is text as it is, null if it is null or missing,
        and any other value as text. Then name the fields with `PrivateNgrams(user_field=…,
        text_field=…)`, too, and leave `described` out.

    Raises:
      ValueError: A parameter is wrong, or the extension of a path belongs to no known format.
      InputError: While running, a file is missing, truncated or damaged, or lacks a field.

    Example:
      >>> import pathlib, tempfile
      >>> from apache_beam.runners.portability.fn_api_runner import FnApiRunner
      >>> with tempfile.TemporaryDirectory() as folder:
      ...     path = pathlib.Path(folder, "notes.csv")
      ...     _ = path.write_text('user,text\nann,"Hello, you"\nbob,Good day\n')
      ...     with beam.Pipeline(runner=FnApiRunner()) as pipeline:
      ...         read = pipeline | ReadDocuments(inputs=[str(path)])
      ...         _ = read.documents | beam.Map(lambda batch: print(batch.to_pylist()))
      [{'user': 'ann', 'text': 'Hello, you'}, {'user': 'bob', 'text': 'Good day'}]

    References:
      RFC 4180 (CSV), IANA text/tab-separated-values, jsonlines.org.
    """

    inputs: Sequence[str]
    input_format: str = ReadOptions.input_format
    user_field: str | Sequence[str] = ReadOptions.user_field
    text_field: str | Sequence[str] = ReadOptions.text_field
    normalize_users: bool = ReadOptions.normalize_users
    record_is_user: bool = ReadOptions.record_is_user
    encoding: str | None = ReadOptions.encoding
    delimiter: str | None = ReadOptions.delimiter
    quoting: str = ReadOptions.quoting
    columns: Sequence[str] | None = ReadOptions.columns
    max_record_bytes: int = ReadOptions.max_record_bytes
    records: str | None = ReadOptions.records
    where: str | Sequence[str] | None = ReadOptions.where
    rejects: str | None = None
    text_is_tokens: bool = ReadOptions.text_is_tokens
    group_field: str | None = ReadOptions.group_field
    fields: Sequence[str] | None = ReadOptions.fields
    block_bytes: int = ReadOptions.block_bytes
    split_bytes: int = ReadOptions.split_bytes

    def __post_init__(self) -> None:
        super().__post_init__()
        _ = self._of_files  # Wrong parameters are refused here.

    @property
    def options(self) -> ReadOptions:
        """The settings of the reader as plain data, e.g. for `check_fields`."""
        names = [field.name for field in dataclasses.fields(ReadOptions)]
        return made_from(ReadOptions, {name: getattr(self, name) for name in names})

    @property
    def _of_files(self) -> "ReadFiles":
        return ReadFiles(inputs=self.inputs, rejects=self.rejects, options=self.options)

    def expand(self, input_or_inputs: beam.Pipeline) -> ReadResult:
        """Adds the steps that find the files when the pipeline runs, and read them."""
        return self._of_files.expand(input_or_inputs)


@dataclasses.dataclass(eq=False, kw_only=True)
class ReadFiles(UnhintedTransform):
    """`ReadDocuments` with its options as one value."""

    inputs: Sequence[str]
    rejects: str | None
    options: ReadOptions

    def __post_init__(self) -> None:
        super().__post_init__()
        if isinstance(self.inputs, str) or not self.inputs:
            raise ValueError(
                f"inputs must be a list of at least one path, got inputs={self.inputs!r}."
            )
        options = self.options
        for path in self.inputs:
            if extension_of(path) and not has_glob(path):
                options.check_kind(format_of(path, options.input_format))
        if self._is_named:
            options.formats_of(self.inputs)

    def expand(self, input_or_inputs: beam.Pipeline) -> ReadResult:
        """Adds the steps that find the files when the pipeline runs, and read them."""
        options = self.options
        inputs = input_or_inputs | "Inputs" >> beam.Create([tuple(self.inputs)])
        items = (
            inputs | "Match" >> beam.FlatMap(_work_items, options) | "Spread" >> beam.Reshuffle()
        )
        read = items | "Read" >> beam.ParDo(_ReadItems(options)).with_outputs(
            _REJECTS, _TALLY, main="documents"
        )
        tally = read[_TALLY]
        if self.rejects is not None:
            once = input_or_inputs | "Rejects" >> beam.Create([self.rejects])
            write = beam.Map(write_rejects, AsIter(read[_REJECTS]))
            written = apply(once, "WriteRejects", write, str)
            after = beam.Map(lambda tally, _written: tally, AsIter(written))
            tally = apply(tally, "AfterRejects", after, Tally)
        result = ReadResult(read["documents"], read[_REJECTS], tally)
        # A format that no path names shows when the pipeline runs.
        result.described = options.describe(self.inputs) if self._is_named else options.description
        return result

    @property
    def _is_named(self) -> bool:
        """Whether the paths are those of all files, whose extensions say their formats."""
        return not any(has_glob(path) or not extension_of(path) for path in self.inputs)


def check_tallies(tallies: Iterable[Tally], max_rejected: float) -> None:
    """Checks the share of rejected records, as a step of a pipeline, which counts empty inputs.

    Raises:
      TooManyRejectedError: The share is larger than the largest that is allowed.
    """
    if not require_few_rejected(tallies, max_rejected):
        Metrics.counter("beam_dpne", NO_RECORDS).inc()


def _work_items(patterns: tuple[str, ...], options: ReadOptions) -> Iterator[WorkItem]:
    """Yields the pieces of work of all inputs."""
    yield from work_items(match_inputs(patterns), options)


class _ReadItems(beam.DoFn):
    """Reads pieces of work."""

    def __init__(self, options: ReadOptions) -> None:
        self._options = options
        self._rejected = Metrics.counter("beam_dpne", REJECTED_RECORDS)

    def process(self, element: WorkItem) -> Iterator[Any]:
        """Yields batches of documents, and yields rejects and the tally to further outputs."""
        reader = Reader([element], self._options)
        for documents in reader.batches():
            if documents.num_rows:
                yield documents
            for reject in reader.take_rejects():
                self._rejected.inc()
                yield TaggedOutput(_REJECTS, reject)
        yield TaggedOutput(_TALLY, reader.tally)
