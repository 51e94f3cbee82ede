"""Rows of every form become record batches of users and texts, by the names of their fields.

A user and a text are both strings, so that only a name distinguishes them. Rows with field names are
read by name, in any order of their fields, and only plain tuples of (user, text) by position, or of
(user, text, group). Errors name fields and types, and hold no value of an element.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

from beam_dpne.errors import kind_of
from beam_dpne.reading.columns import (
    NAMED_USER,
    Fault,
    group_column,
    interleaved,
    record_faults,
    text_column,
    user_column,
)
from beam_dpne.reading.ids import id_text, joined_ids
from beam_dpne.reading.options import names_of

_MISSING = object()


def checked_names(
    user_field: str | Sequence[str],
    text_field: str | Sequence[str],
    group_field: str | None = None,
) -> tuple[str, ...]:
    """Returns the names of the users' and the texts' fields, and last that of the group's, if any.

    Raises:
      ValueError: There is no text field, a name is empty or not a str, or two names are equal.
    """
    texts = names_of(text_field)
    users = names_of(user_field) if isinstance(user_field, str | Sequence) else (user_field,)
    names = *users, *texts, *(() if group_field is None else (group_field,))
    are_names = all(isinstance(name, str) and name for name in names)
    if not are_names or not texts or not users or len(names) != len(set(names)):
        raise ValueError(
            "every `user_field` and `text_field`, and `group_field` must be names of different "
            f"fields, got `user_field={user_field!r}`, `text_field={text_field!r}`, "
            f"`group_field={group_field!r}`."
        )
    return names


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
            "text), or with a `group_field` of (user, text, group), if the PCollection's element type "
            f"has no fields, got an element of type {type(element).__name__}. Name the fields with "
            "`user_field`, `text_field` and `group_field`."
        )
    return values


def batch_of_rows(
    rows: Sequence[Sequence[Any]], names: Sequence[str], is_grouped: bool = False, users: int = 1
) -> pa.RecordBatch:
    """Returns rows of users and texts as a record batch; users and groups become text.

    Args:
      rows: The values of the names of each row.
      names: Names of the columns of users, of texts, and of groups.
      is_grouped: Whether the last name is that of the groups' column.
      users: Number of columns of users.
    """
    given = [list(values) for values in zip(*rows, strict=True)]
    for place in (*range(users), -1) if is_grouped else range(users):
        given[place] = [_as_id(name) for name in given[place]]
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


def _as_id(value: Any) -> Any:
    """Returns the text of an id, and a value that identifies nobody as it is, which is refused."""
    text = id_text(value)
    return value if text is None else text


def documents_of(
    batch: pa.RecordBatch, names: Sequence[str], is_grouped: bool = False, users: int = 1
) -> pa.RecordBatch:
    """Returns the documents of a record batch, with columns `user`, `text` and, if any, `group`.

    Args:
      batch: Any record batch that has the columns.
      names: Names of the users' columns, which are a user together, and of the texts' columns. If there
        are several of these, null texts are left out.
      is_grouped: Whether the last name is that of the groups' column.
      users: Number of columns of users.

    Raises:
      ValueError: A column is missing, has a wrong type, or there are two of its name, or a row has no
        user, no text or no group.
    """
    for name in names:
        if batch.schema.names.count(name) != 1:
            raise ValueError(
                f"A batch of documents must have one column {name!r}, got "
                f"{batch.schema.names.count(name)} of them. Name its columns with `user_field` and "
                "`text_field`."
            )
    fields = ", ".join(map(repr, names))
    ids: list[pa.Array] = []
    faults: list[Fault] = []
    for name in names[:users]:
        column = batch.column(name)
        # `ReadDocuments` gives such names to the users of sequences; they have no text.
        if users > 1 or column.type != NAMED_USER:
            column, fault = user_column(column, name)
            faults.append(fault)
        ids.append(column)
    group = None
    if is_grouped:
        *names, group_name = names
        group, fault = group_column(batch.column(group_name), group_name)
        faults.append(fault)
    texts: list[pa.Array] = []
    for name in names[users:]:
        text, fault = text_column(batch.column(name), name)
        texts.append(text)
        faults.append(fault)
    for rows, reason in (*faults, *record_faults(ids, texts, group)):
        if rows.any():
            raise ValueError(
                f"Documents must be usable, got one with the fields {fields} whose {reason}. Drop it "
                "before."
            )
    held = [each for each in texts if each.null_count < len(each)] or texts[:1]
    if len({each.type for each in held}) > 1:
        raise TypeError("Texts must be all str, or all lists of tokens, got some of each.")
    return interleaved(joined_ids(ids), held, group)
