"""The fields and types of a PCollection's elements, as far as they are known before anything runs.

The checks here refuse a type only if no value of it can be a document. Whatever Beam does not know is
checked when the pipeline runs (`batch`, `columns`). Errors name fields and types but no value.
"""

import dataclasses
import difflib
import types
import typing
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from apache_beam.typehints.native_type_compatibility import convert_to_python_type
from apache_beam.typehints.row_type import RowTypeConstraint

_USERS = (str, int, np.integer)
_TEXTS = (str, list, tuple)
_LISTS = (list, tuple, Sequence, Iterable)
_NEVER_DOCUMENTS = (str, bytes, int, float, list, set, frozenset, np.ndarray, type(None))
_SHOWN = 30
# Least similarity of a field that an error names. Keys of a dict may be data rather than names, so that
# only a key that differs from the wanted name by a letter or two is quoted.
NEAR, SURELY_NEAR = 0.6, 0.8
KINDS = (
    "rows with field names (NamedTuple, beam.Row, dict, dataclass), pyarrow.RecordBatch, or plain "
    "tuples of (user, text)"
)
NESTED = (
    "A field within a field cannot be named. Copy it into a field of the document before, for example "
    "with beam.Map."
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
            f"documents must be {KINDS}, got elements of type {_shown(element_type)}."
            f"{about_elements(element_type)}"
        )
    without_fields = False
    for kind in kinds:
        fields = _fields_of_type(kind)
        without_fields |= fields is None
        if fields is not None:
            _check_field("user_field", user_field, fields, _USERS, "str or int")
            for name in text_fields:
                _check_field("text_field", name, fields, _TEXTS, "str, or a list of str")
        elif len(members := _members_of_tuple(kind)) == 2:
            _check_pair(*members)
    return without_fields


def _check_field(
    option: str, name: str, fields: Mapping[str, Any], wanted: tuple[type, ...], kinds: str
) -> None:
    """Raises ValueError unless a row type has a field that may have one of the wanted types."""
    if name not in fields:
        more = ", …" if len(fields) > _SHOWN else ""
        raise ValueError(
            f"{option} must name a field of the documents, got {option}={name!r}. Their fields are "
            f"{', '.join(list(fields)[:_SHOWN])}{more}.{hint(name, fields, cutoff=NEAR)}"
        )
    kind = _python_type(fields[name])
    if not _may_be(kind, wanted):
        raise ValueError(
            f"{option} must name a field of type {kinds}, got {option}={name!r}, which has type "
            f"{_shown(kind)}. {remedy(kind)}"
        )


def _check_pair(user: Any, text: Any) -> None:
    """Raises ValueError unless the types of a plain tuple may be those of a user and a text."""
    for place, kind, wanted, kinds in (
        ("first", user, _USERS, "a user, str or int"),
        ("second", text, _TEXTS, "a text, str or a list of str"),
    ):
        if not _may_be(kind, wanted):
            raise ValueError(
                f"Plain tuples must be (user, text), whose {place} member is {kinds}, got the type "
                f"{_shown(kind)}. {remedy(kind)}"
            )


def _is_never_document(kind: Any, texts: int) -> bool:
    """Returns whether no element of a type is a document with a number of texts.

    Only types for which this is certain count, since Beam does not know every type exactly.
    """
    if _fields_of_type(kind) is not None:
        return False
    if members := _members_of_tuple(kind):
        return len(members) != 2 or texts != 1
    kind = typing.get_origin(kind) or kind
    is_known = isinstance(kind, type) and issubclass(kind, _NEVER_DOCUMENTS)
    return is_known or bool(about_elements(kind))


def about_elements(kind: Any) -> str:
    """Returns what to do with elements that are data frames or lines of text, "" for other types."""
    if str(getattr(kind, "__module__", "")).partition(".")[0] == "pandas":
        return (
            " Make a batch of each data frame by pyarrow.RecordBatch.from_pandas, which keeps the "
            "names of its columns."
        )
    if kind is str:
        return " Make documents of lines before, or read the files with ReadDocuments."
    return ""


def remedy(kind: Any) -> str:
    """Returns what to do about a value or a field of an impossible type."""
    for each in _members_of_union(kind) or [kind]:
        outer = typing.get_origin(each) or each
        inner = typing.get_args(each) if outer in _LISTS else ()
        if any(map(_has_fields, (outer, *inner))):
            return NESTED
        if _is_subclass(outer, float | np.floating):
            return (
                "Integers become floats in a data frame with missing values. Drop documents without "
                "a user, and convert the users to int before."
            )
    return "Convert it before."


def _has_fields(kind: Any) -> bool:
    return _fields_of_type(kind) is not None or _is_subclass(kind, Mapping)


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


def hint(name: str, fields: Iterable[Any], cutoff: float) -> str:
    """Returns what may be meant by a name that is no field, or "" if nothing suggests itself."""
    fields = list(fields)
    outer, dot, _ = name.partition(".")
    if dot and outer in fields:
        return f" {NESTED}"
    return _near(name, fields, cutoff)


def _near(name: str, fields: Iterable[Any], cutoff: float) -> str:
    """Returns a question that names the most similar field, or "" if none is similar enough."""
    found = difflib.get_close_matches(
        name, [field for field in fields if isinstance(field, str)], n=1, cutoff=cutoff
    )
    return f" Did you mean {found[0]!r}?" if found else ""


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


def _is_subclass(kind: Any, of: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, of)
