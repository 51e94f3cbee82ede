"""BatchDocuments: documents of all forms become record batches of users and texts.

A user and a text are both strings, so that only a name distinguishes them. Rows with field names are
read by name, in any order of their fields, and only plain tuples of (user, text) by position. In the
batches, users become strings, and texts become strings or lists of strings.
"""

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, cast

import apache_beam as beam
import numpy as np
import pyarrow as pa
from apache_beam.pvalue import PCollection
from apache_beam.transforms.window import GlobalWindows

from beam_dpne.documents.columns import TEXT, TOKEN_LISTS, USER, normalized_batches
from beam_dpne.documents.row_types import KINDS, REMEDY, check_element_type, type_name
from beam_dpne.documents.sources import require_rows_by_name
from beam_dpne.elements.display_data import DisplayedTransform
from beam_dpne.reading.batches import record_batch
from beam_dpne.reading.options import names_of

Text = str | list[str]


@dataclasses.dataclass(eq=False, kw_only=True)
class BatchDocuments(DisplayedTransform):
    """Gathers documents of every form into record batches of users and texts.

    Input: documents, bounded and in the global window. Rows with field names (NamedTuple, `beam.Row`
    and all other elements with a schema, dict, dataclass), `pyarrow.RecordBatch` and `pyarrow.Table`
    are read by name, in any order of their fields, and their other fields are ignored. Plain tuples
    are (user, text), and nothing else is read by position. A user is str or an integer, which is the
    same user as its decimal digits. A text is str, or a list of str for the tokenizer `tokens`. Rows
    that Beam makes of tables or data frames are refused, since they may have wrong names (`sources`).

    Output: `pyarrow.RecordBatch` with columns `user` (string, or the 16-byte names that `ReadDocuments`
    gives to sequences) and `text` (string, or list of string), without nulls.

    Privacy: not private.

    Cost: no shuffle.

    Attributes:
      user_field: Name of the field that holds the user, which is the unit that the guarantee protects.
      text_field: Name of the field that holds the text, or several names. Then each text is a document
        of its user, and a text that is None is left out if the row has another text.
      batch_size: Largest number of documents in a batch that is made of rows.

    Raises:
      ValueError: batch_size is below 1, two fields are the same, the input is unbounded or not in the
        global window, comes from a source of Beam that may give rows wrong names, or its element type
        lacks the fields or has them with other types.
      ValueError, TypeError: While running: an element lacks the fields or has other types. The message
        holds no value of the element.

    Example:
      >>> from apache_beam.runners.portability.fn_api_runner import FnApiRunner
      >>> with beam.Pipeline(runner=FnApiRunner()) as pipeline:
      ...     documents = pipeline | beam.Create([("ann", "to be"), ("bob", "or not")])
      ...     batches = documents | BatchDocuments()
      ...     _ = batches | beam.Map(lambda batch: print(batch.num_rows, batch.schema.names))
      2 ['user', 'text']

    References: none.
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
        """Checks the input and its known element type, and adds the step that makes batches."""
        text_fields = checked_names(self.user_field, self.text_field)
        require_one_release(documents)
        require_rows_by_name(documents)
        by_position = check_element_type(documents.element_type, self.user_field, text_fields)
        batch = beam.ParDo(_Batch(self, by_position)).with_output_types(pa.RecordBatch)
        return cast("PCollection[pa.RecordBatch]", documents | "Batch" >> batch)


def require_one_release(documents: PCollection) -> None:
    """Checks that the documents give one release, since a user contributes to each release anew.

    Raises:
      TypeError: The input is not one PCollection.
      ValueError: The input is unbounded, or not in the global window with its default trigger.
    """
    if not isinstance(documents, PCollection):
        raise TypeError(
            f"documents must be one PCollection, got {type(documents).__name__}. A result with several "
            "outputs has the documents as one of them, such as `documents` of ReadDocuments."
        )
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
    """Buffers rows within a bundle, and normalizes record batches."""

    def __init__(self, settings: BatchDocuments, by_position: bool):
        self._user_field = settings.user_field
        self._text_fields = names_of(settings.text_field)
        self._batch_size = settings.batch_size
        self._by_position = by_position

    def start_bundle(self):
        self._users: list[str] = []
        self._texts: list[Text] = []

    def process(self, element) -> Iterator[pa.RecordBatch]:
        if isinstance(element, pa.RecordBatch | pa.Table):
            batches = element.to_batches() if isinstance(element, pa.Table) else [element]
            for batch in batches:
                yield from normalized_batches(batch, self._user_field, self._text_fields)
            return
        fields = self._user_field, self._text_fields
        for user, text in documents_of(element, *fields, self._by_position):
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
        kind = TOKEN_LISTS if are_tokens == {True} else pa.string()
        try:
            columns = [pa.array(users, pa.string()), pa.array(texts, kind)]
        except (UnicodeError, pa.ArrowException):
            raise ValueError("A user or a text cannot be encoded as UTF-8.") from None
        return record_batch(*columns)


def checked_names(user_field: str, text_field: str | Sequence[str]) -> tuple[str, ...]:
    """Checks names of fields and returns those of the text fields.

    Raises:
      ValueError: A name is empty or not a str, or two names are equal.
    """
    names = names_of(text_field)
    for option, name in (("user_field", user_field), *(("text_field", name) for name in names)):
        if not (isinstance(name, str) and name):
            raise ValueError(f"{option} must be the name of a field, got {option}={name!r}.")
    if not names:
        raise ValueError("text_field must name at least one field, got text_field=().")
    if len({user_field, *names}) <= len(names):
        raise ValueError(
            "user_field and every text_field must be different fields, got "
            f"user_field={user_field!r}, text_field={text_field!r}."
        )
    return names


def documents_of(
    element: Any, user_field: str, text_fields: Sequence[str], by_position: bool = True
) -> Iterator[tuple[str, Text]]:
    """Yields the documents of one element as (user, text), one for each text that is not None.

    Args:
      element: An element with named fields, or a plain tuple.
      user_field: Name of the users' field.
      text_fields: Names of the texts' fields.
      by_position: Whether plain tuples of (user, text) are accepted.

    Raises:
      TypeError, ValueError: The element has other fields or types. The message holds no value of it.
    """
    fields = _fields_of_element(element)
    if fields is None and type(element) is tuple and len(element) == 1 + len(text_fields) == 2:
        if not by_position:
            raise TypeError(
                "Documents must be of the PCollection's element type, which has named fields, got a "
                "plain tuple, which may be in the order of those fields. Build the row type itself."
            )
        fields = {user_field: element[0], text_fields[0]: element[1]}
    if fields is None:
        raise TypeError(f"Documents must be {KINDS}, got {type_name(type(element))}.")
    for name in (user_field, *text_fields):
        if name not in fields:
            raise ValueError(
                f"Each document must have the field {name!r}, got a {type_name(type(element))} "
                "without it. Name the fields of your rows with user_field and text_field."
            )
    present = [name for name in text_fields if fields[name] is not None]
    if not present:
        raise TypeError(
            f"Each document must have a text, got None in {' and '.join(map(repr, text_fields))}; "
            "drop those documents."
        )
    user = _checked_user(fields[user_field], user_field)
    for name in present:
        yield user, _checked_text(fields[name], name)


def _fields_of_element(element: Any) -> Mapping[str, Any] | None:
    """Returns the values of an element by field name, or None if it has no field names."""
    if isinstance(element, Mapping):
        return element
    if isinstance(element, beam.Row):
        return element.as_dict()
    names = getattr(element, "_fields", None)
    if isinstance(element, tuple) and names is not None:
        return dict(zip(names, element, strict=True))
    if dataclasses.is_dataclass(element) and not isinstance(element, type):
        return {field.name: getattr(element, field.name) for field in dataclasses.fields(element)}
    return None


def _checked_user(user: Any, field: str) -> str:
    """Returns a user as text; an integer becomes its decimal digits, as in the readers of files."""
    if isinstance(user, str) and user:
        return user
    if isinstance(user, int | np.integer) and not isinstance(user, bool):
        return str(int(user))
    if user is None or user == "":
        raise ValueError(f"A user must not be None or empty in the field {field!r}. {REMEDY}")
    raise TypeError(
        f"A user must be str or int, got {type_name(type(user))} in the field {field!r}. {REMEDY}"
    )


def _checked_text(text: Any, field: str) -> Text:
    if isinstance(text, str):
        return text
    is_list = isinstance(text, list) or type(text) is tuple
    wrong = [token for token in text if not isinstance(token, str)] if is_list else [text]
    if wrong:
        raise TypeError(
            f"A text must be str, or a list of str, got {type_name(type(wrong[0]))} in the field "
            f"{field!r}. {REMEDY}"
        )
    return list(text)
