"""BatchDocuments: the one form in which documents enter a pipeline."""

import dataclasses
from collections.abc import Iterator, Sequence
from typing import Any, cast

import apache_beam as beam
import pyarrow as pa
from apache_beam.pvalue import PCollection
from apache_beam.transforms.window import GlobalWindows

from beam_dpne.documents.rows import Text, check_element_type, checked_names, documents_of
from beam_dpne.reading.document_columns import TEXT, USER, normalized_batches


@dataclasses.dataclass(eq=False, kw_only=True)
class BatchDocuments(beam.PTransform):
    """Gathers documents of every form into record batches of users and texts.

    Input: documents, bounded and in the global window. Rows with field names (NamedTuple, `beam.Row`
    and all other elements with a schema, dict, dataclass), `pyarrow.RecordBatch` and `pyarrow.Table`
    are read by name, in any order of their fields, and their other fields are ignored; plain tuples
    are (user, text), and nothing else is read by position. A user is str or an integer, which is the
    same user as its decimal digits; a text is str, or a list of str for the tokenizer `tokens`.

    Output: `pyarrow.RecordBatch` with columns `user` (string, or the 16-byte names that `ReadDocuments`
    gives to sequences) and `text` (string, or list of string), without nulls.

    Privacy: not private.

    Cost: no shuffle.

    Attributes:
      user_field: name of the field that holds the user: it defines whom the guarantee protects.
      text_field: name of the field that holds the text, or several names: then each text is a document
        of its user, and a text that is None is left out as long as the row has another.
      batch_size: documents in a batch that is made of rows, at most.

    Raises:
      ValueError: if batch_size < 1, two fields are the same, the input is unbounded or in other windows
        than the global one, or its element type lacks the fields or has them with other types.
        ValueError or TypeError, when run, if an element does; the message holds nothing of it.

    Example:
      >>> from apache_beam.runners.portability.fn_api_runner import FnApiRunner
      >>> with beam.Pipeline(runner=FnApiRunner()) as pipeline:
      ...     documents = pipeline | beam.Create([("ann", "to be"), ("bob", "or not")])
      ...     batches = documents | BatchDocuments()
      ...     _ = batches | beam.Map(lambda batch: print(batch.num_rows, batch.schema.names))
      2 ['user', 'text']

    References: none; the element type of the pipelines.
    """

    user_field: str = USER
    text_field: str | Sequence[str] = TEXT
    batch_size: int = 10_000

    def __post_init__(self):
        super().__init__()
        checked_names(self.user_field, self.text_field)
        if self.batch_size < 1:
            raise ValueError(f"batch_size must be at least 1, got batch_size={self.batch_size}.")

    def expand(self, documents: PCollection) -> PCollection[pa.RecordBatch]:
        """Checks what is known of the input, and buffers rows within a bundle."""
        text_fields = checked_names(self.user_field, self.text_field)
        require_one_release(documents)
        by_position = check_element_type(documents.element_type, self.user_field, text_fields)
        batch = _Batch(self.user_field, text_fields, self.batch_size, by_position)
        return cast(
            "PCollection[pa.RecordBatch]",
            documents | "Batch" >> beam.ParDo(batch).with_output_types(pa.RecordBatch),
        )


def require_one_release(documents: PCollection) -> None:
    """Raises unless all documents are in one window that closes: a user has one contribution.

    Raises:
      ValueError: if the input is unbounded, or in other windows than the global one.
    """
    if not documents.is_bounded:
        raise ValueError(
            "documents must be bounded, got an unbounded PCollection, whose release would never be "
            "finished. Read documents that are complete, such as the files of one month."
        )
    windowing = documents.windowing
    if not windowing.is_default():
        raise ValueError(
            "documents must be in the global window with its default trigger, got windowing by "
            f"{type(windowing.windowfn).__name__} and {type(windowing.triggerfn).__name__}. For one "
            "release of all documents, apply beam.WindowInto(GlobalWindows()) before. A release for "
            "each window would be several releases about the same users, and each of them would "
            "spend epsilon and delta."
        )


class _Batch(beam.DoFn):
    """Buffers rows; the columns of a record batch pass through."""

    def __init__(
        self, user_field: str, text_fields: Sequence[str], batch_size: int, by_position: bool
    ):
        self._user_field = user_field
        self._by_position = by_position
        self._text_fields = text_fields
        self._batch_size = batch_size

    def start_bundle(self):
        self._users: list[str] = []
        self._texts: list[Text] = []

    def process(self, element) -> Iterator[pa.RecordBatch]:
        if isinstance(element, pa.RecordBatch | pa.Table):
            batches = element.to_batches() if isinstance(element, pa.Table) else [element]
            for batch in batches:
                yield from normalized_batches(batch, self._user_field, self._text_fields)
            return
        for user, text in documents_of(
            element, self._user_field, self._text_fields, self._by_position
        ):
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
        are_tokens = {isinstance(text, list) for text in texts}
        if len(are_tokens) > 1:
            raise TypeError("Texts must be all str, or all lists of tokens, got some of each.")
        kind = pa.list_(pa.string()) if are_tokens == {True} else pa.string()
        try:
            columns = [pa.array(users, pa.string()), pa.array(texts, kind)]
        except (UnicodeError, pa.ArrowException):
            raise ValueError("A user or a text cannot be encoded as UTF-8.") from None
        return pa.RecordBatch.from_arrays(columns, names=[USER, TEXT])
