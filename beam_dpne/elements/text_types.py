"""Types of Arrow that hold texts, or lists of texts."""

import pyarrow as pa


def is_text(kind: pa.DataType) -> bool:
    """Returns whether a type is string or large_string; few functions of Arrow take string views."""
    return pa.types.is_string(kind) or pa.types.is_large_string(kind)


def is_list(kind: pa.DataType) -> bool:
    """Returns whether a type is list or large_list."""
    return pa.types.is_list(kind) or pa.types.is_large_list(kind)
