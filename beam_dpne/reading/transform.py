"""ReadDocuments: files to record batches of users and texts."""

import collections
import dataclasses
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import apache_beam as beam
import pyarrow as pa
from apache_beam.metrics.metric import Metrics
from apache_beam.pvalue import PCollection, TaggedOutput
from apache_beam.typehints.decorators import IOTypeHints

from beam_dpne.errors import InputError
from beam_dpne.reading.blocks import WorkItem, plan_reads, read_ahead, read_item, unit_of
from beam_dpne.reading.description import InputDescription
from beam_dpne.reading.files import match_inputs
from beam_dpne.reading.options import ReadOptions, format_of, has_glob, may_be_folder
from beam_dpne.reading.rejects import Reject
from beam_dpne.reading.tally import Tally, tally_of
from beam_dpne.storage.markers import Marks, mark_started

_REJECTS = "rejects"
_TALLY = "tally"


class _Read(NamedTuple):
    documents: PCollection[pa.RecordBatch]
    rejects: PCollection[Reject]
    tally: PCollection[Tally]


class ReadResult(_Read):
    """What `ReadDocuments` gives: documents, the records that were left out, and their numbers.

    Attributes:
      documents: users and texts.
      rejects: the records that cannot be used.
      tally: numbers of records.
      described: how the records became documents. Give it to `PrivateNgrams(described=…)` and the
        others, so that the run key is bound to it and the ledger tells it.
    """

    described: InputDescription


@dataclasses.dataclass(eq=False, kw_only=True)
class ReadDocuments(beam.PTransform):
    r"""Reads users' texts from files into Arrow record batches.

    Input:
      A pipeline.

    Output:
      A `ReadResult`. `documents`: `pyarrow.RecordBatch` of about `block_bytes` with columns `user`
      (string; for `sequences` fixed_size_binary(16): the file's place among the sorted inputs, then
      the byte offset of the line in the decompressed text, 8 bytes each, little-endian) and `text`
      (string, or list<string> if `text_is_tokens`), without nulls. `rejects`: a `Reject` for each
      record that cannot be used; Beam's counter `beam_dpne:rejected_records` counts them. `tally`:
      a `Tally` for each piece of work; `PublishRelease(tally=…)` adds them up and publishes nothing
      if too large a share was rejected.

    Privacy:
      Not private; it reads the private corpus. Errors, logs and rejects hold positions and fixed
      phrases, never what a record says.

    Cost:
      One pass. Large plain files of lines (JSONL, sequences, CSV and TSV without quoting) in UTF-8
      or another encoding that keeps ASCII are split by bytes, and Parquet by row groups; files with
      quoting, JSON arrays, compressed files and other encodings are one piece of work each. A worker
      holds a few blocks and at most one record of `max_record_bytes`.

    Attributes:
      inputs: Paths or globs of files, or folders whose files are all of one format, local or on any
        Beam file system. `.gz`, `.bz2`, `.zst` and `.zstd` are decompressed.
      input_format: `jsonl` (one object a line), `json` (one array of objects; each of the two reads
        the other), `csv`, `tsv`, `parquet`, `sequences` (each line one user, tokens separated by
        blanks), or `auto`: by extension, never `sequences`.
      user_field: Name of the user's field: text or integers, compared as UTF-8 text.
      text_field: Name of the text's field, or several names: each text is then a document of the
        user's, and a record without any of them is a reject.
      encoding: Codec of Python for the text of files other than Parquet. None: UTF-8, or UTF-16 or
        UTF-32 where a file begins with their byte order mark.
      delimiter: One ASCII character between the fields of CSV or TSV, or its name: `comma`,
        `semicolon`, `tab`, `pipe`, `colon`, `space`. None: a comma or a tab.
      quoting: Whether fields of CSV or TSV may be enclosed in quotes: `quoted`, `none`, or `auto`,
        which is `quoted` for CSV and `none` for TSV.
      columns: Names of all columns of CSV or TSV files without a header line.
      max_record_bytes: Longer records are rejects.
      strict: Whether the first reject fails the run.
      text_is_tokens: Whether texts are lists of tokens (JSONL and Parquet).
      block_bytes: Bytes of decompressed text in one batch.
      split_bytes: Bytes of one piece of work.
      marks: What the first step leaves, so that a launcher knows that workers run; None: nothing.

    Raises:
      ValueError: A parameter is wrong, or the extension of a path tells no format.
      InputError: While running: a file is missing, truncated or damaged, or lacks a field.

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
      RFC 4180 (CSV), IANA text/tab-separated-values, jsonlines.org; issue 3, sections 4 and 6.
    """

    inputs: Sequence[str]
    input_format: str = "auto"
    user_field: str = "user"
    text_field: str | Sequence[str] = "text"
    encoding: str | None = None
    delimiter: str | None = None
    quoting: str = "auto"
    columns: Sequence[str] | None = None
    max_record_bytes: int = 16 * 2**20
    strict: bool = False
    text_is_tokens: bool = False
    block_bytes: int = 8 * 2**20
    split_bytes: int = 64 * 2**20
    marks: Marks | None = None

    def __post_init__(self) -> None:
        super().__init__()
        if isinstance(self.inputs, str) or not self.inputs:
            raise ValueError(
                f"inputs must be a list of at least one path, got inputs={self.inputs!r}."
            )
        options = self.options
        for path in self.inputs:
            if not has_glob(path) and not may_be_folder(path):
                options.check_kind(format_of(path, self.input_format))

    @property
    def options(self) -> ReadOptions:
        """The same settings as plain data, as `check_fields` takes them."""
        names = [field.name for field in dataclasses.fields(ReadOptions)]
        return ReadOptions(**{name: getattr(self, name) for name in names})

    def default_type_hints(self) -> IOTypeHints:
        """None: Beam would log a warning about a result that is a named tuple."""
        return IOTypeHints.empty()

    def expand(self, input_or_inputs: beam.Pipeline) -> ReadResult:
        """Matches files when the pipeline runs, and reads them."""
        options = self.options
        inputs = input_or_inputs | "Inputs" >> beam.Create([tuple(self.inputs)])
        if self.marks is not None:
            inputs = inputs | "Canary" >> beam.Map(mark_started, self.marks)
        items = (
            inputs | "Match" >> beam.FlatMap(_work_items, options) | "Spread" >> beam.Reshuffle()
        )
        read = items | "Read" >> beam.ParDo(_ReadItem(options, self.strict)).with_outputs(
            _REJECTS, _TALLY, main="documents"
        )
        result = ReadResult(read["documents"], read[_REJECTS], read[_TALLY])
        result.described = options.description
        return result


def _work_items(patterns: tuple[str, ...], options: ReadOptions) -> Iterator[WorkItem]:
    """The pieces of work of all inputs."""
    for file in match_inputs(patterns, options.input_format):
        yield from plan_reads(file, options)


class _ReadItem(beam.DoFn):
    """Reads one piece of work."""

    def __init__(self, options: ReadOptions, strict: bool) -> None:
        self._options = options
        self._strict = strict
        self._rejected = Metrics.counter("beam_dpne", "rejected_records")

    def process(self, element: WorkItem) -> Iterator[Any]:
        """Yields batches of documents, and to outputs of their own the rejects and the tally."""
        unit = unit_of(element.kind)
        usable, reasons = 0, collections.Counter[str]()
        for documents, rejects, records in read_ahead(read_item(element, self._options)):
            if documents.num_rows:
                yield documents
            usable += records
            reasons.update(reason for _, reason in rejects)
            self._rejected.inc(len(rejects))
            for position, reason in rejects:
                reject = Reject(element.file.path, position, unit, reason)
                if self._strict:
                    raise InputError(
                        f"{reject.file} must hold only usable records (--strict), got one at "
                        f"{unit} {position}: {reason}."
                    )
                yield TaggedOutput(_REJECTS, reject)
        yield TaggedOutput(_TALLY, tally_of(usable, reasons))
