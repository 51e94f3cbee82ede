"""The fields and types of a PCollection's elements, as far as they are known before anything runs.

The check here refuses a type only if no value of it can be a document. Whatever Beam does not know is
checked when the pipeline runs (`batch`, `columns`). Errors name fields and types but no value.
"""

import dataclasses
import types
import typing
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from apache_beam.typehints.native_type_compatibility import convert_to_python_type
from apache_beam.typehints.row_type import RowTypeConstraint

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
