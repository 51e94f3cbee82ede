"""Rejected records: their positions and reasons, their numbers, and the largest share that is allowed.

Reasons are fixed phrases, so that no reject quotes a record. Positions and numbers are as secret as the
data and are for the operator only.
"""

import collections
import dataclasses
import json
import os
import stat
from collections.abc import Iterable, Mapping
from typing import NamedTuple, cast

import apache_beam as beam
from apache_beam.io.filesystem import CompressionTypes
from apache_beam.io.filesystems import FileSystems
from apache_beam.metrics.metric import Metrics
from apache_beam.pvalue import AsIter, PCollection

from beam_dpne.errors import TooManyRejectedError

NOT_DECODED = "not valid in its encoding (UTF-8 by default)"
NOT_JSON = "malformed JSON"
NOT_OBJECT = "not a JSON object"
NOT_CSV = "malformed CSV"
RAGGED = "wrong number of columns"
TOO_LONG = "longer than max_record_bytes"
NO_USER = "user is null or missing"
EMPTY_USER = "user is empty"
BAD_USER = "user is not text or an integer"
NO_TEXT = "text is null or missing"
BAD_TEXT = "text is not text"
BAD_TOKENS = "text is not a list of texts"
_NAME = "rejects-00000-of-00001.jsonl"


class Reject(NamedTuple):
    """A rejected record: its file, its position, and the reason as a fixed phrase.

    Attributes:
      file: Path of the file.
      position: Byte offset in the decompressed text as UTF-8, or number of the row or of the element
        of a JSON array, from 0.
      unit: Unit of `position`: `byte` or `row`.
      reason: One of the phrases of this module.
    """

    file: str
    position: int
    unit: str
    reason: str


@dataclasses.dataclass(eq=False, kw_only=True)
class WriteRejects(beam.PTransform):
    """Writes rejects to the operator's directory, with one JSON object on each line.

    Input:
      A PCollection of `Reject`.

    Output:
      The path of the file `rejects-00000-of-00001.jsonl`. Each of its lines has `file`, `position`,
      `unit` and `reason`, and without rejects it is empty. A second run replaces the file of the first.

    Privacy:
      Not private: the number of malformed records and their positions depend on single users. The
      file holds no text of any record, but it is for the operator and must not be part of a release.
      A local file has mode 600.

    Cost:
      One short line for each reject; one worker writes all of them.

    Attributes:
      path: Directory, local or on any Beam file system.

    Raises:
      ValueError: `path` is empty.

    Example:
      >>> import pathlib, tempfile
      >>> from apache_beam.runners.portability.fn_api_runner import FnApiRunner
      >>> with tempfile.TemporaryDirectory() as folder:
      ...     with beam.Pipeline(runner=FnApiRunner()) as pipeline:
      ...         rejects = pipeline | beam.Create([Reject("a.jsonl", 17, "byte", NOT_JSON)])
      ...         paths = rejects | WriteRejects(path=folder)
      ...     print(pathlib.Path(folder, "rejects-00000-of-00001.jsonl").read_text().strip())
      {"file": "a.jsonl", "position": 17, "unit": "byte", "reason": "malformed JSON"}

    References: none.
    """

    path: str

    def __post_init__(self) -> None:
        super().__init__()
        if not self.path:
            raise ValueError(f"path must name a directory, got path={self.path!r}.")

    def expand(self, input_or_inputs: PCollection[Reject]) -> PCollection[str]:
        """Writes the rejects in one step."""
        path = FileSystems.join(self.path, _NAME)
        once = input_or_inputs.pipeline | "Path" >> beam.Create([path])
        written = once | "Write" >> beam.Map(_write, AsIter(input_or_inputs))
        return cast("PCollection[str]", written)


def _write(path: str, rejects: Iterable[Reject]) -> str:
    """Writes rejects as lines into a file, which on a local file system only its owner can read."""
    is_local = FileSystems.get_scheme(path) is None
    if is_local:
        os.makedirs(os.path.dirname(path), exist_ok=True)
    with FileSystems.create(path, compression_type=CompressionTypes.UNCOMPRESSED) as file:
        if is_local:
            os.chmod(path, stat.S_IRUSR | stat.S_IWUSR)
        for reject in rejects:
            file.write(json.dumps(reject._asdict()).encode() + b"\n")
    return path


DEFAULT_MAX_REJECTED = 0.05
# Beam's counters of rejected records and of inputs without a record, which are as secret as the data.
REJECTED_RECORDS = "rejected_records"
NO_RECORDS = "inputs_without_records"


class Tally(NamedTuple):
    """Numbers of records of one or several pieces of work. They are not private.

    Attributes:
      records: Number of records read, usable or not.
      rejected: Number of rejected records by reason.
    """

    records: int
    rejected: Mapping[str, int]


def check_max_rejected(max_rejected: float) -> None:
    """Raises ValueError unless `max_rejected` is in [0, 1]."""
    if not 0 <= max_rejected <= 1:
        raise ValueError(
            f"max_rejected must be a share of the records in [0, 1], got max_rejected={max_rejected}."
        )


def require_few_rejected(tallies: Iterable[Tally], max_rejected: float) -> None:
    """Checks the share of rejected records; an input without records passes, and is counted.

    Args:
      tallies: Tallies of all pieces of work.
      max_rejected: Largest share of rejected records that is allowed, in [0, 1].

    Raises:
      TooManyRejectedError: The share is larger. The message holds the reasons, and no number.
    """
    records, reasons = 0, collections.Counter[str]()
    for tally in tallies:
        records += tally.records
        reasons.update(tally.rejected)
    if not records:
        Metrics.counter("beam_dpne", NO_RECORDS).inc()
    elif reasons.total() / records > max_rejected:
        raise TooManyRejectedError(
            f"More records were rejected than {max_rejected=} allows, because of: "
            f"{', '.join(sorted(reasons))}. Nothing was published. Correct the files or the options by "
            "which they are read, such as user_field, text_field, encoding and input_format, or give a "
            "larger max_rejected to go on without these records. --rejects DIR lists them."
        )
