"""BatchDocuments: elements of every form become record batches of users and texts.

A user and a text are both strings, so that only a name distinguishes them. Rows with field names are
read by name, in any order of their fields, and only plain tuples of (user, text) by position, or of
(user, text, group). Errors name fields and types, and hold no value of an element.
"""

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import apache_beam as beam
import numpy as np
import pyarrow as pa
from apache_beam.pvalue import PCollection
from apache_beam.transforms.window import GlobalWindows
from apache_beam.typehints.schemas import named_fields_from_element_type

from beam_dpne.documents.blocks import TEXT, USER
from beam_dpne.elements.bundles import apply
from beam_dpne.errors import kind_of
from beam_dpne.reading.columns import (
    group_column,
    group_faults,
    interleaved,
    row_faults,
    text_column,
    user_column,
)
from beam_dpne.reading.options import names_of

# Beam 2.77 turns tables of Arrow and data frames of pandas into rows by the position of their columns:
# it pairs the names of the first table with the values of all later ones, so that users and texts of a
# file with another order of columns change places. No later step can see this. Classes are compared by
# name, so that Beam's data frames and pandas are not imported for it.
_BY_POSITION = {"_ArrowTableToBeamRows", "DataFrameToRowsFn", "UnbatchPandas"}
_ROWS_IN_BATCH = 10_000
_MISSING = object()


@dataclasses.dataclass(eq=False, kw_only=True)
class BatchDocuments(beam.PTransform):
    """Gathers documents of every form into record batches of users and texts.

    Input: documents, bounded and in the global window. Rows with field names (NamedTuple, `beam.Row`
    and all other elements with a schema, dict, dataclass), `pyarrow.RecordBatch` and `pyarrow.Table`
    are read by name, in any order of their fields, and their other fields are ignored. Plain tuples
    are (user, text), with a group_field (user, text, group), and nothing else is read by position. A
    user is str or an integer, which is the same user as its decimal digits, and so is a group. A text
    is str, or a list of str for the tokenizer `tokens`. Rows that Beam makes of tables or data frames
    are refused, since they may have wrong names.

    Output: `pyarrow.RecordBatch` with columns `user` (string, or the 16-byte names that `ReadDocuments`
    gives to sequences), `text` (string, or list of string) and, with a group_field, `group` (string),
    without nulls.

    Privacy: not private.

    Cost: no shuffle.

    Attributes:
      user_field: Name of the field that holds the user, which is the unit that the guarantee protects.
      text_field: Name of the field that holds the text, or several names. Then each text is a document
        of its user, and a text that is None is left out if the row has another text.
      group_field: Name of the field that holds the group, of 1 to 256 characters without control
        characters, or None.

    Raises:
      ValueError: Two fields are the same, the input is unbounded or not in the
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
    group_field: str | None = None

    def __post_init__(self):
        super().__init__()
        checked_names(self.user_field, self.text_field, self.group_field)

    def expand(self, documents: PCollection) -> PCollection[pa.RecordBatch]:
        """Checks the input and its known element type, and adds the step that makes batches."""
        names = checked_names(self.user_field, self.text_field, self.group_field)
        is_grouped = self.group_field is not None
        require_one_release(documents)
        for step in steps_before(documents):
            kinds = {type(step.transform), type(getattr(step.transform, "fn", None))}
            if any(kind.__name__ in _BY_POSITION for kind in kinds):
                raise ValueError(
                    f"documents must not come from the step {step.full_label!r}, where Beam pairs "
                    "values with the names of fields by their position, so that users and texts may "
                    "change places. Read the files by name, with ReadDocuments, "
                    "ReadFromParquetBatched, or ReadFromParquet without as_rows."
                )
        by_position = not check_known_fields(documents.element_type, names, is_grouped)
        batch = beam.ParDo(_Batch(names, by_position, is_grouped))
        return apply(documents, "Batch", batch, pa.RecordBatch)


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
    if not documents.is_bounded or not documents.windowing.is_default():
        raise ValueError(
            "documents must be bounded and in the global window with its default trigger: a release "
            "for each window would spend epsilon and delta each time. Read documents that are "
            "complete, such as the files of one month, and apply beam.WindowInto(GlobalWindows())."
        )


def checked_names(
    user_field: str, text_field: str | Sequence[str], group_field: str | None = None
) -> tuple[str, ...]:
    """Returns the names of the user's and the texts' fields, and last that of the group's, if any.

    Raises:
      ValueError: There is no text field, a name is empty or not a str, or two names are equal.
    """
    texts = names_of(text_field)
    names = user_field, *texts, *(() if group_field is None else (group_field,))
    are_names = all(isinstance(name, str) and name for name in names)
    if not are_names or not texts or len(names) != len(set(names)):
        raise ValueError(
            "user_field, every text_field and group_field must be names of different fields, got "
            f"user_field={user_field!r}, text_field={text_field!r}, group_field={group_field!r}."
        )
    return names


def steps_before(documents: PCollection) -> Iterator[Any]:
    """Yields the steps from which elements come, also by side inputs, and the steps around them."""
    seen: set[int] = set()
    waiting: list[Any] = [documents]
    while waiting:
        step = getattr(waiting.pop(), "producer", None)
        if step is None or id(step) in seen:
            continue
        seen.add(id(step))
        waiting += [*step.inputs, *(side.pvalue for side in step.side_inputs)]
        while step is not None:
            yield step
            step = step.parent


def known_fields(element_type: Any) -> dict[str, Any]:
    """Returns the types of the fields of rows by name, and nothing for elements without a schema."""
    try:
        return dict(named_fields_from_element_type(element_type))
    except (KeyError, TypeError, ValueError):
        return {}


def check_known_fields(element_type: Any, names: Sequence[str], is_grouped: bool = False) -> bool:
    """Checks the fields of a PCollection's elements, and returns whether they are known.

    Plain tuples may be read by position only if they are not, since a tuple could be in the order of
    those fields.

    Raises:
      ValueError: A field is missing.
    """
    fields = known_fields(element_type)
    for place, name in enumerate(names if fields else ()):
        is_group = is_grouped and place == len(names) - 1
        option = "group_field" if is_group else "text_field" if place else "user_field"
        if name not in fields:
            raise ValueError(
                f"{option} must name a field of the documents, got {option}={name!r}. Their fields are "
                f"{', '.join(fields)}."
            )
    return bool(fields)


class _Batch(beam.DoFn):
    """Gathers the rows of a bundle in columns, and checks the columns of record batches."""

    def __init__(self, names: Sequence[str], by_position: bool, is_grouped: bool):
        self._names = names
        self._tuple_size = by_position * (2 + is_grouped)
        self._is_grouped = is_grouped

    def start_bundle(self):
        self._rows: list[Sequence[Any]] = []

    def process(self, element) -> Iterator[pa.RecordBatch]:
        if isinstance(element, pa.RecordBatch | pa.Table):
            for batch in element.to_batches() if isinstance(element, pa.Table) else [element]:
                yield documents_of(batch, self._names, self._is_grouped)
            return
        self._rows.append(values_of(element, self._names, self._tuple_size))
        if len(self._rows) >= _ROWS_IN_BATCH:
            yield self._flush()

    def finish_bundle(self) -> Any:
        if self._rows:
            yield GlobalWindows.windowed_value(self._flush())

    def _flush(self) -> pa.RecordBatch:
        rows = self._rows
        self._rows = []
        batch = batch_of_rows(rows, self._names, self._is_grouped)
        return documents_of(batch, self._names, self._is_grouped)


def values_of(element: Any, names: Sequence[str], tuple_size: int = 2) -> Sequence[Any]:
    """Returns the values of a row with named fields, or of a plain tuple if it has this size."""
    if type(element) is tuple and len(element) == len(names) == tuple_size:
        return element
    if isinstance(element, Mapping):
        values = [element.get(name, _MISSING) for name in names]
    else:
        values = [getattr(element, name, _MISSING) for name in names]
    if any(value is _MISSING for value in values):
        raise TypeError(
            f"Each document must have the fields {', '.join(names)}, or be a plain tuple of (user, "
            "text), or with a group_field of (user, text, group), if the PCollection's element type "
            f"has no fields, got an element of type {type(element).__name__}. Name the fields with "
            "user_field, text_field and group_field."
        )
    return values


def batch_of_rows(
    rows: Sequence[Sequence[Any]], names: Sequence[str], is_grouped: bool = False
) -> pa.RecordBatch:
    """Returns rows of a user and texts as a record batch; integers as users and groups become text."""
    given = [list(values) for values in zip(*rows, strict=True)]
    for place in (0, -1) if is_grouped else (0,):
        given[place] = [str(name) if _is_integer(name) else name for name in given[place]]
    columns = []
    for name, values in zip(names, given, strict=True):
        try:
            columns.append(pa.array(values))
        except (OverflowError, UnicodeError, pa.ArrowException) as error:
            raise TypeError(
                f"The field {name!r} must hold users or texts of one type, in UTF-8, got values that "
                f"Arrow refuses by {kind_of(error)}. Convert them before."
            ) from None
    return pa.RecordBatch.from_arrays(columns, names=list(names))


def _is_integer(user: Any) -> bool:
    return isinstance(user, int | np.integer) and not isinstance(user, bool)


def documents_of(
    batch: pa.RecordBatch, names: Sequence[str], is_grouped: bool = False
) -> pa.RecordBatch:
    """Returns the documents of a record batch, with columns `user`, `text` and, if any, `group`.

    Args:
      batch: Any record batch that has the columns.
      names: Names of the users' column and of the texts' columns. If there are several of these, null
        texts are left out.
      is_grouped: Whether the last name is that of the groups' column.

    Raises:
      ValueError: A column is missing, has a wrong type, or there are two of its name, or a row has no
        user, no text or no group.
    """
    for name in names:
        if batch.schema.names.count(name) != 1:
            raise ValueError(
                f"A batch of documents must have one column {name!r}, got "
                f"{batch.schema.names.count(name)} of them. Name its columns with user_field and "
                "text_field."
            )
    fields = ", ".join(map(repr, names))
    users = user_column(batch.column(names[0]), names[0])
    group = None
    if is_grouped:
        *names, group_name = names
        group = group_column(batch.column(group_name), group_name)
    texts = [text_column(batch.column(name), name) for name in names[1:]]
    for rows, reason in row_faults(users, texts) + ([] if group is None else group_faults(group)):
        if rows.any():
            raise ValueError(
                f"Documents must be usable, got one with the fields {fields} whose {reason}. Drop it "
                "before."
            )
    held = [each for each in texts if each.null_count < len(each)] or texts[:1]
    if len({each.type for each in held}) > 1:
        raise TypeError("Texts must be all str, or all lists of tokens, got some of each.")
    return interleaved(users, held, group)
