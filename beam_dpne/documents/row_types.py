"""The names of documents' fields, checked as far as they are known before anything runs.

Types of values are checked when the pipeline runs (`batch`, `columns`). Errors name fields and types
but no value.
"""

import difflib
from collections.abc import Iterable, Sequence
from typing import Any

from beam_dpne.elements.rows import field_types

# Least similarity of a field that an error names. Keys of a dict may be data rather than names, so that
# only a key that differs from the wanted name by a letter or two is quoted.
NEAR, SURELY_NEAR = 0.6, 0.8
KINDS = (
    "rows with field names (NamedTuple, beam.Row, dict, dataclass), pyarrow.RecordBatch, or plain "
    "tuples of (user, text)"
)
_SHOWN = 30


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
      ValueError: A field is missing, or no element of the type can be a document.
    """
    if element_type in (str, bytes, int, float):
        raise ValueError(
            f"documents must be {KINDS}, got elements of type {element_type.__name__}. Make documents "
            "of lines before, or read the files with ReadDocuments."
        )
    fields = field_types(element_type)
    for option, name in (
        ("user_field", user_field),
        *(("text_field", each) for each in text_fields),
    ):
        if fields and name not in fields:
            more = ", …" if len(fields) > _SHOWN else ""
            raise ValueError(
                f"{option} must name a field of the documents, got {option}={name!r}. Their fields "
                f"are {', '.join(list(fields)[:_SHOWN])}{more}.{hint(name, fields, cutoff=NEAR)}"
            )
    return not fields


def type_name(kind: type) -> str:
    """Returns the name of a class; Beam names classes of rows by random numbers."""
    return "row" if kind.__name__.startswith("BeamSchema_") else kind.__name__


def hint(name: str, fields: Iterable[Any], cutoff: float) -> str:
    """Returns a question that names the most similar field, or "" if none is similar enough."""
    names = [field for field in fields if isinstance(field, str)]
    found = difflib.get_close_matches(name, names, n=1, cutoff=cutoff)
    return f" Did you mean {found[0]!r}?" if found else ""
