"""BatchDocuments: documents of all forms become record batches of users and texts.

A user and a text are both strings, so that only a name distinguishes them. Rows with field names are
read by name, in any order of their fields, and only plain tuples of (user, text) by position. In the
batches, users become strings, and texts become strings or lists of strings.
"""

import dataclasses
import types
import typing
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, cast

import apache_beam as beam
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from apache_beam.pvalue import PCollection
from apache_beam.transforms.window import GlobalWindows
from apache_beam.typehints.native_type_compatibility import convert_to_python_type
from apache_beam.typehints.row_type import RowTypeConstraint

from beam_dpne.elements.arrays import is_list, is_text
from beam_dpne.elements.batches import DisplayedTransform
from beam_dpne.reading.batches import NAMED_USER, as_text, plain, record_batch
from beam_dpne.reading.options import names_of

_USERS = (str, int, np.integer)
_TEXTS = (str, list, tuple)
_LISTS = (list, tuple, Sequence, Iterable)
_NEVER_DOCUMENTS = (str, bytes, int, float, list, set, frozenset, np.ndarray, type(None))
_SHOWN = 30
KINDS = (
    "rows with field names (NamedTuple, beam.Row, dict, dataclass), pyarrow.RecordBatch, or plain "
    "tuples of (user, text)"
)
REMEDY = (
    "Convert it before, copy a field within a field into a field of the document, and drop documents "
    "without a user, whose integers become floats in a data frame."
)


def check_element_type(element_type: Any, user_field: str, text_fields: Sequence[str]) -> bool:
    """Checks the known fields of a PCollection's element type.

    Args:
      element_type: Type of the elements, as Beam has inferred it or as it was declared.
      user_field: Name of the users' field.
      text_fields: Names of the texts' fields.

    Returns:
      Whether plain tuples may be read by position. They may not if all elements have named fields by
      their type, since a tuple could be in the order of those fields.

    Raises:
      ValueError: A field is missing, its type is impossible for a user or a text, or no element of
        the type can be a document.
    """
    element_type = _python_type(element_type)
    kinds = list(_members_of_union(element_type) or [element_type])
    if all(_is_never_document(kind, len(text_fields)) for kind in kinds):
        raise ValueError(
            f"documents must be {KINDS}, got elements of type {_shown(element_type)}. Read files with "
            "ReadDocuments, and make a RecordBatch of a data frame by its from_pandas."
        )
    wanted = [("user_field", user_field, _USERS)]
    wanted += [("text_field", name, _TEXTS) for name in text_fields]
    without_fields = False
    for kind in kinds:
        fields = _fields_of_type(kind)
        if fields is None:
            without_fields = True
            # A plain tuple of a user and a text has no names of fields.
            members = _members_of_tuple(kind)
            fields = dict(zip([user_field, *text_fields], members, strict=False))
        for option, name, types_of in wanted if fields else ():
            _check_field(option, name, fields, types_of)
    return without_fields


def _check_field(option: str, name: str, fields: dict[str, Any], wanted: tuple[type, ...]) -> None:
    """Raises ValueError unless a row type has a field that may have one of the wanted types."""
    if name not in fields:
        more = ", …" if len(fields) > _SHOWN else ""
        raise ValueError(
            f"{option} must name a field of the documents, got {option}={name!r}. Their fields are "
            f"{', '.join(list(fields)[:_SHOWN])}{more}."
        )
    kind = _python_type(fields[name])
    if not _may_be(kind, wanted):
        kinds = "str or int" if wanted is _USERS else "str, or a list of str"
        raise ValueError(
            f"{option} must name a field of type {kinds}, got {option}={name!r}, which has type "
            f"{_shown(kind)}. {REMEDY}"
        )


def _is_never_document(kind: Any, texts: int) -> bool:
    """Returns whether no element of a type is a document with a number of texts."""
    if _fields_of_type(kind) is not None:
        return False
    if members := _members_of_tuple(kind):
        return len(members) != 2 or texts != 1
    kind = typing.get_origin(kind) or kind
    is_frame = str(getattr(kind, "__module__", "")).partition(".")[0] == "pandas"
    return is_frame or (isinstance(kind, type) and issubclass(kind, _NEVER_DOCUMENTS))


def _shown(kind: Any) -> str:
    """Returns a type for an error."""
    return str(kind) if typing.get_origin(kind) is not None else type_name(kind)


def type_name(kind: Any) -> str:
    """Returns the name of a class; Beam names classes of rows by random numbers."""
    name = getattr(kind, "__name__", str(kind))
    return "row" if name.startswith("BeamSchema_") else name


def _python_type(kind: Any) -> Any:
    """Returns the type of Python for one that Beam has inferred, or the type itself if it has none."""
    try:
        return convert_to_python_type(kind)
    except (AttributeError, ValueError):
        return kind


def _may_be(hint: Any, wanted: tuple[type, ...]) -> bool:
    """Returns whether a value of a declared type can have a wanted type, as for any unknown type."""
    hint = _python_type(getattr(hint, "__supertype__", hint))
    members = _members_of_union(hint)
    if members:
        return any(_may_be(each, wanted) for each in members)
    if _fields_of_type(hint) is not None:
        return False
    origin = typing.get_origin(hint)
    if origin in _LISTS:
        tokens = [each for each in typing.get_args(hint) if each is not Ellipsis]
        return list in wanted and all(_may_be(each, (str,)) for each in tokens)
    kind = origin or hint
    if hint is Any or not isinstance(kind, type):
        return True
    related = any(issubclass(kind, each) or issubclass(each, kind) for each in wanted)
    return related and kind is not bool


def _fields_of_type(kind: Any) -> dict[str, Any] | None:
    """Returns the types of a row type's fields by name, or None if it is not a row type."""
    if isinstance(kind, RowTypeConstraint):
        kind = kind.user_type
    if not isinstance(kind, type):
        return None
    names = getattr(kind, "_fields", None) if issubclass(kind, tuple) else None
    if dataclasses.is_dataclass(kind):
        names = [field.name for field in dataclasses.fields(kind)]
    if names is None:
        return None
    try:
        hints = typing.get_type_hints(kind)
    except (NameError, TypeError):
        hints = {}
    return {name: hints.get(name, Any) for name in names}


def _members_of_union(hint: Any) -> Iterable[Any]:
    if typing.get_origin(hint) in (typing.Union, types.UnionType):
        return typing.get_args(hint)
    return getattr(hint, "union_types", ())


def _members_of_tuple(kind: Any) -> tuple[Any, ...]:
    """Returns the types of a plain tuple's members, or () for other types and unknown lengths."""
    members = typing.get_args(kind)
    return members if typing.get_origin(kind) is tuple and Ellipsis not in members else ()


USER, TEXT = "user", "text"
TOKEN_LISTS = pa.list_(pa.string())


def normalized_batches(
    batch: pa.RecordBatch, user_field: str, text_fields: Sequence[str]
) -> Iterator[pa.RecordBatch]:
    """Yields the documents of each text column, as batches with columns `user` and `text`.

    Args:
      batch: Any record batch that has the columns.
      user_field: Name of the users' column.
      text_fields: Names of the texts' columns. If there are several, null texts are left out.

    Raises:
      ValueError: A column is missing or there are two of its name, or a row has no user or no text.
      TypeError: A column has a wrong type.
    """
    for name in (user_field, *text_fields):
        if batch.schema.names.count(name) != 1:
            raise ValueError(
                f"A batch of documents must have one column {name!r}, got "
                f"{batch.schema.names.count(name)} of them. Name its columns with user_field and "
                "text_field."
            )
    users = user_column(batch.column(user_field), user_field)
    columns = [text_column(batch.column(name), name) for name in text_fields]
    if not any(column.null_count for column in columns):
        yield from (record_batch(users, texts) for texts in columns)
        return
    # (rows,) bool for each text column, whether the row has a text there.
    present = [column.is_valid() for column in columns]
    if not np.logical_or.reduce([mask.to_numpy(zero_copy_only=False) for mask in present]).all():
        raise ValueError(
            "Each document must have a text, got a null in "
            f"{' and '.join(map(repr, text_fields))}; drop those documents."
        )
    for texts, mask in zip(columns, present, strict=True):
        yield record_batch(users.filter(mask), texts.filter(mask))


def user_column(users: pa.Array, name: str = USER) -> pa.Array:
    """Returns users as strings, with integers as decimal digits, and keeps 16-byte names.

    Raises:
      TypeError: The column has another type.
      ValueError: A user is null or empty.
    """
    kind = plain(users.type)
    if users.type != NAMED_USER:
        if not (_may_be_text(kind) or pa.types.is_integer(kind)):
            raise TypeError(
                f"The column {name!r} must hold strings, integers or fixed_size_binary(16), "
                f"got {kind}. {REMEDY}"
            )
        users = _cast(as_text(users), pa.string(), name)
    if users.null_count:
        raise ValueError(f"The column {name!r} must not have nulls; drop those documents.")
    if users.type != NAMED_USER and not pc.call_function("binary_length", [users]).to_numpy().all():
        raise ValueError(f"The column {name!r} must not have empty users; drop those documents.")
    return users


def text_column(texts: pa.Array, name: str) -> pa.Array:
    """Returns texts as strings, or lists of tokens as lists of strings, and keeps nulls.

    Raises:
      TypeError: The column has another type.
      ValueError: A token is null.
    """
    kind = plain(texts.type)
    if is_list(kind) and _may_be_text(plain(kind.value_type)):
        lists = cast("pa.ListArray", _cast(texts, TOKEN_LISTS, name))
        if lists.flatten().null_count:
            raise ValueError(f"The column {name!r} must not have null tokens; leave them out.")
        return lists
    if _may_be_text(kind):
        return _cast(as_text(texts), pa.string(), name)
    raise TypeError(f"The column {name!r} must hold texts, or lists of texts, got {kind}. {REMEDY}")


def _may_be_text(kind: pa.DataType) -> bool:
    """Returns whether a column's values can be cast to strings without changing their meaning."""
    return is_text(kind) or pa.types.is_string_view(kind) or pa.types.is_null(kind)


def _cast(values: pa.Array, kind: pa.DataType, name: str) -> pa.Array:
    """Casts a column; its error has only the type of Arrow's error, whose message may quote data."""
    if values.type == kind:
        return values
    try:
        return values.cast(kind)
    except pa.ArrowException as error:
        raise ValueError(
            f"The column {name!r} cannot be cast from {values.type} to {kind} "
            f"({type(error).__name__}); give smaller batches, or cast it before."
        ) from None


# Classes are compared by name, so that Beam's data frames and pandas are not imported for this.
_BY_POSITION = {"_ArrowTableToBeamRows", "DataFrameToRowsFn", "UnbatchPandas"}


def require_rows_by_name(documents: PCollection) -> None:
    """Raises ValueError if a step before the documents turns tables into rows by position."""
    for step in steps_before(documents):
        kinds = {type(step.transform), type(getattr(step.transform, "fn", None))}
        if any(kind.__name__ in _BY_POSITION for kind in kinds):
            raise ValueError(
                f"documents must not come from the step {step.full_label!r}, where Beam pairs values "
                "with the names of fields by their position, so that users and texts may change "
                "places. Read the files by name, with ReadDocuments, ReadFromParquetBatched, or "
                "ReadFromParquet without as_rows."
            )


def steps_before(documents: PCollection) -> Iterator[Any]:
    """Yields the steps from which elements come, also by side inputs, and the steps around them."""
    seen: set[int] = set()
    waiting: list[Any] = [documents]
    while waiting:
        step = getattr(waiting.pop(), "producer", None)
        inputs = getattr(step, "inputs", ())
        while step is not None and id(step) not in seen:
            seen.add(id(step))
            waiting.extend(side.pvalue for side in getattr(step, "side_inputs", ()))
            yield step
            # The inputs of a step around another one are those of its first inner steps, except where
            # it has no inner steps.
            waiting.extend(inputs)
            inputs, step = (), step.parent


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
