"""BatchDocuments: the one form in which documents enter a pipeline."""

import dataclasses
from collections.abc import Iterator
from typing import Any, cast

import apache_beam as beam
import pyarrow as pa
from apache_beam.pvalue import PCollection
from apache_beam.transforms.window import GlobalWindows


@dataclasses.dataclass(eq=False, kw_only=True)
class BatchDocuments(beam.PTransform):
    """Gathers (user, text) pairs into record batches; record batches pass through.

    Input: pairs of str, or `pyarrow.RecordBatch` with columns `user` and `text`.

    Output: `pyarrow.RecordBatch` with columns `user` (string) and `text` (string, or list of string
    for the tokenizer `tokens`).

    Privacy: not private.

    Cost: no shuffle.

    Attributes:
      batch_size: documents in a batch, at most.

    Raises:
      ValueError: if batch_size < 1. TypeError, when run, for pairs of other types.

    Example:
      >>> from apache_beam.runners.portability.fn_api_runner import FnApiRunner
      >>> with beam.Pipeline(runner=FnApiRunner()) as pipeline:
      ...     documents = pipeline | beam.Create([("ann", "to be"), ("bob", "or not")])
      ...     batches = documents | BatchDocuments()
      ...     _ = batches | beam.Map(lambda batch: print(batch.num_rows, batch.schema.names))
      2 ['user', 'text']

    References: none; the element type of the pipelines.
    """

    batch_size: int = 10_000

    def __post_init__(self):
        super().__init__()
        if self.batch_size < 1:
            raise ValueError(f"batch_size must be at least 1, got batch_size={self.batch_size}.")

    def expand(self, documents: PCollection) -> PCollection[pa.RecordBatch]:
        """Buffers pairs within a bundle; a user has one contribution, so there is one window."""
        return cast(
            "PCollection[pa.RecordBatch]",
            documents
            | "OneWindow" >> beam.WindowInto(GlobalWindows())
            | "Batch" >> beam.ParDo(_BatchPairs(self.batch_size)).with_output_types(pa.RecordBatch),
        )


def document_columns(batch: pa.RecordBatch) -> tuple[pa.Array, pa.Array]:
    """Returns the columns `user` and `text`, checked."""
    for name in ("user", "text"):
        if name not in batch.schema.names:
            raise ValueError(f"A batch of documents needs a column {name!r}.")
        if batch.column(name).null_count:
            raise ValueError(f"The column {name!r} must not have nulls; drop those documents.")
    return batch.column("user"), batch.column("text")


class _BatchPairs(beam.DoFn):
    """Buffers pairs; a record batch passes through."""

    def __init__(self, batch_size: int):
        self._batch_size = batch_size

    def start_bundle(self):
        self._users: list[str] = []
        self._texts: list[Any] = []

    def process(self, element) -> Iterator[pa.RecordBatch]:
        if isinstance(element, pa.RecordBatch):
            yield element
            return
        user, text = _checked_pair(element)
        self._users.append(user)
        self._texts.append(text)
        if len(self._users) >= self._batch_size:
            yield self._flush()

    def finish_bundle(self) -> Any:
        if self._users:
            yield GlobalWindows.windowed_value(self._flush())

    def _flush(self) -> pa.RecordBatch:
        users, texts = self._users, self._texts
        self._users, self._texts = [], []
        kinds = {type(text) for text in texts}
        if len(kinds) > 1:
            raise TypeError("Texts must be all str, or all lists of tokens, got some of each.")
        kind = pa.list_(pa.string()) if kinds == {list} else pa.string()
        try:
            columns = [pa.array(users, pa.string()), pa.array(texts, kind)]
        except (UnicodeError, pa.ArrowException):
            raise ValueError("A user or a text cannot be encoded as UTF-8.") from None
        return pa.RecordBatch.from_arrays(columns, names=["user", "text"])


def _checked_pair(element: Any) -> tuple[str, Any]:
    """Returns (user, text) or raises an error without their contents."""
    if not (isinstance(element, tuple) and len(element) == 2):
        raise TypeError(
            f"Documents must be (user, text) pairs or pyarrow.RecordBatch, "
            f"got {type(element).__name__}."
        )
    user, text = element
    if not isinstance(user, str):
        raise TypeError(f"A user must be str, got {type(user).__name__}.")
    if isinstance(text, list):
        if not all(isinstance(token, str) for token in text):
            raise TypeError("Tokens must be str.")
        return str(user), [str(token) for token in text]
    if not isinstance(text, str):
        raise TypeError(f"A text must be str, or a list of tokens, got {type(text).__name__}.")
    return str(user), str(text)
