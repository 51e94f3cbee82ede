"""Ids of users and names of groups: one text for each, whatever type a format gives it.

A person must not become two users because one file has an id as text and another one as a number, or
because a writer took another width or unit. The page of inputs has the table of types and texts.
"""

import datetime
import decimal
import unicodedata
import uuid
from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from beam_dpne.errors import InputError

# Python writes no longer integer as digits unless it is told to.
_MOST_DIGITS = 4300
# Zeros at the end of the fraction of a second, which say nothing but the unit of a column.
_SPARE_ZEROS = pc.ReplaceSubstringOptions(r"\.0+$|(\.[0-9]*[1-9])0+$", r"\1")
# The groups of hexadecimal digits of a UUID.
_DASHES = pc.ReplaceSubstringOptions(
    "^(.{8})(.{4})(.{4})(.{4})(.{12})$", r"\1-\2-\3-\4-\5", max_replacements=1
)
# Signs that have a backslash before them within a value of several columns.
_TO_ESCAPE = pc.ReplaceSubstringOptions(r"([,\\])", r"\\\1")
_WHOLE = pa.decimal256(76, 0)
_UUID_BYTES = 16
# What identifies somebody, in an error.
IDS = "text, a whole number, a UUID, a date or a timestamp"
# Types of values that are read as columns of one.
_IN_COLUMNS = (float, np.floating, decimal.Decimal, datetime.date, bytes)


def is_text(kind: pa.DataType) -> bool:
    """Returns whether a type is string or large_string; few functions of Arrow take string views."""
    return pa.types.is_string(kind) or pa.types.is_large_string(kind)


def is_binary(kind: pa.DataType) -> bool:
    """Returns whether a type is binary of any length, as old writers give texts to Parquet."""
    checks = (pa.types.is_binary, pa.types.is_large_binary, pa.types.is_binary_view)
    return any(check(kind) for check in checks)


def may_be_text(kind: pa.DataType) -> bool:
    """Returns whether a column's values can be cast to strings without changing their meaning."""
    return is_text(kind) or pa.types.is_string_view(kind) or pa.types.is_null(kind)


def plain_type(kind: pa.DataType) -> pa.DataType:
    """Returns the type of a dictionary's values or of what an extension stores, or the type itself."""
    if isinstance(kind, pa.DictionaryType):
        return plain_type(kind.value_type)
    return kind.storage_type if isinstance(kind, pa.BaseExtensionType) else kind


def plain_values(values: pa.Array) -> pa.Array:
    """Returns a column without dictionaries and extension types."""
    if isinstance(values, pa.DictionaryArray):
        distinct = values.dictionary
        # Arrow takes no rows of views in an order of its own.
        if pa.types.is_string_view(distinct.type):
            distinct = distinct.cast(pa.large_string())
        values = distinct.take(values.indices)
    return values.storage if isinstance(values, pa.ExtensionArray) else values


def name_of_type(kind: pa.DataType) -> str:
    """Returns a type's name for an error, without names of fields within it, which may be values."""
    return str(kind).partition("<")[0]


def decoded(values: pa.Array) -> tuple[pa.Array, np.ndarray]:
    r"""Returns a column of texts or bytes as strings, and which rows are not UTF-8: (n,) bool.

    Such a row is null in the strings.

    >>> decoded(pa.array([b"ann", b"\xff"]))[1]
    array([False,  True])
    """
    try:
        texts = values.cast(pa.string())
        texts.validate(full=True)
    except pa.ArrowInvalid:
        found = [_utf8(value) for value in values.cast(pa.binary()).to_pylist()]
        texts = pa.array(found, pa.string())
        return texts, _mask(texts.is_null()) & ~_mask(values.is_null())
    return texts, np.zeros(len(texts), bool)


def id_column(values: pa.Array, name: str, noun: str) -> tuple[pa.Array, np.ndarray]:
    """Returns a column of ids as strings, and which rows have a value that identifies nothing.

    A null stays null, and so does a float that is no number.

    Args:
      values: The column.
      name: Its name, for errors.
      noun: What it names: "user" or "group".

    Returns:
      The strings, and (n,) bool: numbers with a fraction, or too large to be exact, and bytes that are
      not UTF-8. Their strings mean nothing.

    Raises:
      InputError: The column's type identifies nobody.

    >>> id_column(pa.array([7, -1]), "user", "user")[0].to_pylist()
    ['7', '-1']
    >>> texts, is_bad = id_column(pa.array([7.0, 7.5]), "user", "user")
    >>> texts.to_pylist(), is_bad.tolist()
    (['7', '0'], [False, True])
    """
    values = plain_values(values)
    kind = values.type
    if may_be_text(kind) or is_binary(kind):
        return decoded(values)
    if pa.types.is_fixed_size_binary(kind):
        return _of_bytes(values)
    if pa.types.is_floating(kind):
        return _of_floats(values)
    if pa.types.is_decimal(kind):
        return _of_decimals(values)
    if pa.types.is_timestamp(kind):
        texts = _of_times(values)
    elif pa.types.is_integer(kind) or pa.types.is_date(kind):
        texts = values.cast(pa.string())
    else:
        raise InputError(
            f"A {noun} must be {IDS}, got {name_of_type(kind)} in {name!r}. {_remedy(kind, noun)}"
        )
    return texts, np.zeros(len(texts), bool)


def joined_ids(columns: Sequence[pa.Array]) -> pa.Array:
    r"""Returns one id for the values of several columns: no two different rows have the same one.

    Commas stand between the values, with a backslash before each comma and backslash within a value.
    The values of one column stay as they are.

    >>> joined_ids([pa.array(["a,b", "a"]), pa.array(["c", "b,c"])]).to_pylist()
    ['a\\,b,c', 'a,b\\,c']
    """
    if len(columns) == 1:
        return columns[0]
    escaped = [pc.call_function("replace_substring_regex", [each], _TO_ESCAPE) for each in columns]
    return pc.call_function("binary_join_element_wise", [*escaped, pa.scalar(",")])


def normalized(text: str) -> str:
    r"""Returns an id without format characters, composed (NFC), and without blanks at its ends.

    >>> normalized("\u200eAnn ") == "Ann", normalized("e\u0301") == "\u00e9"
    (True, True)
    """
    if text.isascii():
        return text.strip()
    shown = "".join(sign for sign in text if unicodedata.category(sign) != "Cf")
    return unicodedata.normalize("NFC", shown).strip()


def normalized_column(users: pa.Array) -> pa.Array:
    """Returns `normalized` of each user; nulls stay."""
    encoded = users.dictionary_encode()
    texts = pa.array(map(normalized, encoded.dictionary.to_pylist()), pa.string())
    return texts.take(encoded.indices)


def id_text(value: object) -> str | None:
    """Returns the text of an id that is a value of JSON or of a row, or None if it identifies nobody.

    It is the text that `id_column` gives to a column of the value's type.

    >>> id_text("7"), id_text(7), id_text(7.0), id_text(7.5), id_text(True)
    ('7', '7', '7', None, None)
    """
    if isinstance(value, str):
        return value
    if isinstance(value, int | np.integer) and not isinstance(value, bool):
        return str(value) if abs(value) < 10**_MOST_DIGITS else None
    if isinstance(value, uuid.UUID):
        return str(value)
    return _of_column(value) if isinstance(value, _IN_COLUMNS) else None


def _of_column(value: object) -> str | None:
    """Returns the text of a value as that of a column of its type, or None."""
    try:
        texts, is_bad = id_column(pa.array([value]), "", "")
    except (pa.ArrowException, TypeError):
        # Decimals that are no numbers, and those of too many digits.
        return None
    return None if is_bad[0] else texts[0].as_py()


def _utf8(value: bytes | None) -> str | None:
    try:
        return None if value is None else value.decode()
    except UnicodeDecodeError:
        return None


def _of_bytes(values: pa.Array) -> tuple[pa.Array, np.ndarray]:
    """Returns UUIDs, of which the extension type has 16 bytes, and other bytes of a fixed size."""
    if values.type.byte_width != _UUID_BYTES:
        return decoded(values.cast(pa.binary()))
    digits = [None if value is None else value.hex() for value in values.to_pylist()]
    joined = pa.array(digits, pa.string())
    texts = pc.call_function("replace_substring_regex", [joined], _DASHES)
    return texts, np.zeros(len(texts), bool)


def _of_floats(values: pa.Array) -> tuple[pa.Array, np.ndarray]:
    """Returns whole numbers below the first one that a float of this width may have rounded."""
    dtype = np.dtype(f"f{values.type.bit_width // 8}")
    bound = 2.0 ** (np.finfo(dtype).nmant + 1)
    # (n,) float64; a null is no number, either.
    numbers = values.to_numpy(zero_copy_only=False).astype(np.float64)
    is_whole = (np.floor(numbers) == numbers) & (np.abs(numbers) < bound)
    whole = np.where(is_whole, numbers, 0).astype(np.int64)
    is_null = np.isnan(numbers)
    return pa.array(whole, mask=is_null).cast(pa.string()), ~is_whole & ~is_null


def _of_decimals(values: pa.Array) -> tuple[pa.Array, np.ndarray]:
    """Returns decimals without a fraction; 7.00 is 7."""
    whole = values.cast(_WHOLE, safe=False)
    if values.type.scale <= 0:
        return whole.cast(pa.string()), np.zeros(len(values), bool)
    exact = pa.decimal256(76, values.type.scale)
    is_equal = pc.call_function("equal", [whole.cast(exact), values.cast(exact)])
    return whole.cast(pa.string()), ~_mask(is_equal.fill_null(True))


def _of_times(values: pa.Array) -> pa.Array:
    """Returns timestamps with as many digits as they need; those of a time zone in UTC, with a Z."""
    kind = values.type
    # In Arrow a timestamp with a time zone is the time in UTC, beside the zone.
    texts = values.cast(pa.timestamp(kind.unit)).cast(pa.string())
    texts = pc.call_function("replace_substring_regex", [texts], _SPARE_ZEROS)
    if kind.tz is None:
        return texts
    return pc.call_function("binary_join_element_wise", [texts, pa.scalar("Z"), pa.scalar("")])


def of_within(noun: str) -> str:
    """Returns what to do where a user, a group or a text is in a field within the named one."""
    return (
        f"Name the field within it, e.g. {noun}_field=message.{noun}, or in rows of a pipeline copy "
        f"the {noun} into a field of the document."
    )


def _remedy(kind: pa.DataType, noun: str) -> str:
    """Returns what to do about a column of users or groups with a type that identifies nobody."""
    if pa.types.is_struct(kind) or pa.types.is_map(kind):
        return of_within(noun)
    if pa.types.is_nested(kind):
        return f"Write one document for each {noun} of a list."
    return "Convert the column to text before."


def _mask(values: pa.Array) -> np.ndarray:
    return values.to_numpy(zero_copy_only=False).astype(bool)
