"""Columns of users and texts: their types, those of JSON objects, documents, row groups of Parquet."""

import json
import re
from collections.abc import Sequence
from typing import Annotated, Any

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from beam_dpne.errors import InputError
from beam_dpne.reading.options import ReadOptions
from beam_dpne.reading.rejects import (
    BAD_GROUP,
    BAD_TEXT,
    BAD_TOKENS,
    BAD_USER,
    EMPTY_USER,
    NO_GROUP,
    NO_TEXT,
    NO_USER,
    NOT_OBJECT,
    OF_LISTS,
    OF_TEXTS,
    TOO_LONG,
)

# Type of the users of `sequences`, where each line of each file is a user: the file's index, and the
# line's offset.
NAMED_USER = pa.binary(16)
# Objects and lists within each other in a record of JSON lines; the decoder takes some more.
MOST_LEVELS = 500
# A text, of which no bracket counts, or a bracket.
_LEVELS = re.compile(rb'"(?:[^"\\]|\\.)*"|[\[\]{}]')
# A group stands in each of its words, before a control character that ends it.
GROUP = re.compile(r"\A[^\x00-\x1f\x7f]{1,256}\Z")


def is_text(kind: pa.DataType) -> bool:
    """Returns whether a type is string or large_string; few functions of Arrow take string views."""
    return pa.types.is_string(kind) or pa.types.is_large_string(kind)


def is_list(kind: pa.DataType) -> bool:
    """Returns whether a type is list or large_list."""
    return pa.types.is_list(kind) or pa.types.is_large_list(kind)


def user_column(users: pa.Array, name: str) -> pa.Array:
    """Returns users as strings, with integers as decimal digits, and keeps nulls and 16-byte names.

    Raises:
      InputError: The column has another type.

    >>> user_column(pa.array([7, -1]), "user").to_pylist()
    ['7', '-1']
    """
    return users if _plain(users.type) == NAMED_USER else _names(users, name, "user")


def group_column(groups: pa.Array, name: str) -> pa.Array:
    """Returns groups as strings, with integers as decimal digits, and keeps nulls.

    Raises:
      InputError: The column has another type.
    """
    return _names(groups, name, "group")


def _names(values: pa.Array, name: str, noun: str) -> pa.Array:
    kind = _plain(values.type)
    if not (_may_be_text(kind) or pa.types.is_integer(kind)):
        raise InputError(
            f"A {noun} must be text or an integer, got {_name_of(kind)} in {name!r}. "
            f"{_remedy_of_name(kind, noun)}"
        )
    return as_strings(values)


def _remedy_of_name(kind: pa.DataType, noun: str) -> str:
    """Returns what to do about a column of users or groups with a type that cannot be read."""
    if pa.types.is_floating(kind):
        return (
            f"Drop the documents without a {noun}, and convert the rest to integers: a data frame "
            "makes integers floats where one is missing."
        )
    if pa.types.is_struct(kind) or pa.types.is_map(kind):
        return _of_within(noun)
    if pa.types.is_nested(kind):
        return f"Write one document for each {noun} of a list."
    return "Convert the column to text before."


def _of_within(noun: str) -> str:
    """Returns what to do where a user, a group or a text is in a field within the named one."""
    return (
        f"Name the field within it, e.g. {noun}_field=message.{noun}, or in rows of a pipeline copy "
        f"the {noun} into a field of the document."
    )


def _remedy_of_text(kind: pa.DataType) -> str:
    """Returns what to do about a column of texts with a type that cannot be read."""
    if pa.types.is_struct(kind) or pa.types.is_map(kind):
        return _of_within("text")
    if pa.types.is_nested(kind):
        return "Convert the members of the lists to text before."
    return (
        "Name the field that holds the texts with text_field, or convert the column to text before."
    )


def group_fault(group: Any) -> str:
    """Returns the reason why a record with this group cannot be used, or ""."""
    if group is None or group == "":
        return NO_GROUP
    is_name = isinstance(group, str | int) and not isinstance(group, bool)
    return "" if is_name and GROUP.match(str(group)) else BAD_GROUP


# The rows that cannot be used for one reason, (n,) bool, and the reason.
Fault = tuple[np.ndarray, str]


def record_faults(
    users: pa.Array, texts: Sequence[pa.Array], groups: pa.Array | None = None
) -> list[Fault]:
    """Returns which records in columns cannot be used; `field_values` tells it of records in JSON.

    Args:
      users: (n,) strings.
      texts: the columns of texts, (n,) strings or lists of strings each.
      groups: (n,) strings; None without groups.
    """
    no_text = np.logical_and.reduce([_mask(text.is_null()) for text in texts])
    is_null = _mask(users.is_null())
    is_empty = ~is_null & (_lengths(users) == 0)
    faults = [(is_null, NO_USER), (is_empty, EMPTY_USER), (no_text, NO_TEXT)]
    faults += [(_has_null_token(text), BAD_TOKENS) for text in texts if is_list(text.type)]
    return faults if groups is None else faults + group_faults(groups)


def _has_null_token(texts: pa.Array) -> np.ndarray:
    """Marks the lists of tokens that have a null: (n,) bool."""
    rows = pc.call_function("list_parent_indices", [texts]).to_numpy()
    nulls = np.bincount(rows, _mask(texts.flatten().is_null()), len(texts))
    return nulls > 0


def group_faults(groups: pa.Array) -> list[Fault]:
    """Returns which rows have no group, or one that cannot be used."""
    encoded = groups.fill_null("").dictionary_encode()
    reasons = np.array([group_fault(group) for group in encoded.dictionary.to_pylist()], object)
    found = reasons[encoded.indices.to_numpy()]
    return [(found == reason, reason) for reason in (NO_GROUP, BAD_GROUP)]


def text_column(texts: pa.Array, name: str) -> pa.Array:
    """Returns texts as strings, or lists of tokens as lists of strings, and keeps nulls.

    Raises:
      InputError: The column has another type.
    """
    kind = _plain(texts.type)
    if _may_be_text(kind):
        return as_strings(texts)
    if is_list(kind) and _may_be_text(_plain(kind.value_type)):
        return texts.cast(pa.list_(pa.string()))
    raise InputError(
        f"A text must be text or a list of texts, got {_name_of(kind)} in {name!r}. "
        f"{_remedy_of_text(kind)}"
    )


def as_strings(values: pa.Array) -> pa.Array:
    """Casts values to string; dictionaries are decoded, and values with parts are refused."""
    kind = _plain(values.type)
    if pa.types.is_nested(kind):
        raise InputError(f"Further fields must be text, numbers or times, got {_name_of(kind)}.")
    return (values if kind == values.type else values.cast(kind)).cast(pa.string())


def json_text(value: Any) -> str | None:
    """Returns the value of a further field: text as it is, null as None, anything else as JSON."""
    if value is None or isinstance(value, str):
        return value
    return json.dumps(value, ensure_ascii=False, default=float)


def field_values(value: Any, options: ReadOptions) -> tuple[Sequence[Any], str]:
    """Returns what a value in JSON has in the wanted fields, and why it cannot be used or ""."""
    if not isinstance(value, dict):
        return (), NOT_OBJECT
    user = value.get(options.user_field)
    texts = [value.get(name) for name in options.text_fields]
    reason = user_fault(user) or _text_fault(texts, options)
    if reason:
        return (), reason
    fields = [str(user), *texts]
    if options.group_field is not None:
        group = value.get(options.group_field)
        reason = group_fault(group)
        if reason:
            return (), reason
        fields.append(str(group))
    fields += [json_text(value.get(name)) for name in options.fields or ()]
    return fields, ""


def user_fault(user: Any) -> str:
    """Returns why a value cannot be a user, or ""."""
    if user is None:
        return NO_USER
    if user == "":
        return EMPTY_USER
    is_name = isinstance(user, str | int) and not isinstance(user, bool)
    return "" if is_name else BAD_USER


def _text_fault(texts: Sequence[Any], options: ReadOptions) -> str:
    """Returns why values in JSON cannot be the texts of a record, or ""."""
    present = [text for text in texts if text is not None]
    if not present:
        return NO_TEXT
    if not options.text_is_tokens:
        return "" if all(isinstance(text, str) for text in present) else BAD_TEXT
    for tokens in present:
        if not isinstance(tokens, list) or not all(isinstance(token, str) for token in tokens):
            return BAD_TOKENS
    return ""


def record_type(options: ReadOptions) -> type[msgspec.Struct]:
    """Returns a type that only usable objects have, and most of them do (f0, f1 and so on)."""
    kind: Any = list[str] if options.text_is_tokens else str
    user = Annotated[str, msgspec.Meta(min_length=1)] | int
    group = Annotated[str, msgspec.Meta(pattern=GROUP.pattern)]
    kinds = {"user_field": user, "text_field": kind, "group_field": group, "fields": str}
    wanted = enumerate(options.wanted_fields)
    fields = [(f"f{place}", kinds[x], msgspec.field(name=name)) for place, (x, name) in wanted]
    return msgspec.defstruct("Record", fields, gc=False)


def is_too_deep(line: bytes) -> bool:
    """Whether a line of JSON has more than `MOST_LEVELS` objects and lists within each other.

    The decoder gives up at a depth that depends on the interpreter, and on what it has done before.
    Whether a record counts must not depend on this, since it may follow from other users' records.

    >>> is_too_deep(b'{"a": ' + b"[" * 499 + b"]" * 499 + b"}")
    False
    >>> is_too_deep(b'{"a": ' + b"[" * 500 + b"]" * 500 + b"}")
    True
    """
    # A record has as many closing brackets.
    if len(line) <= 2 * MOST_LEVELS or line.count(b"[") + line.count(b"{") <= MOST_LEVELS:
        return False
    level = 0
    for token in _LEVELS.finditer(line):
        if token[0] in (b"[", b"{"):
            level += 1
        elif token[0] in (b"]", b"}"):
            level -= 1
        if level > MOST_LEVELS:
            return True
    return False


def whole_records(decoder: msgspec.json.Decoder, lines: bytes, limit: int) -> list[Any]:
    """Returns the records of JSON lines if each line is a usable one, else nothing.

    The decoder takes lines' ends for blanks, which may stand within a record, or be missing between
    two. But where one stands between } and {, one record ends and the next begins.

    Args:
      decoder: A decoder of `record_type`.
      lines: At least one line.
      limit: Bytes of the longest line.
    """
    try:
        data = lines.replace(b"\r\n", b"\n") if b"\r" in lines else lines
        # The decoder does not look at bytes of fields that it leaves out.
        data.decode()
        raw = np.frombuffer(data, np.uint8)
        starts = np.append(0, np.flatnonzero(raw[:-1] == ord("\n")) + 1)
        is_usual = (raw[starts] == ord("{")).all() and (raw[starts[1:] - 2] == ord("}")).all()
        stops = np.append(starts[1:], raw.size)
        for long in np.flatnonzero(stops - starts > 2 * MOST_LEVELS).tolist():
            if is_too_deep(data[starts[long] : stops[long]]):
                return []
        records = decoder.decode_lines(data) if raw.size <= limit and is_usual else []
    except (UnicodeDecodeError, msgspec.MsgspecError, RecursionError):
        return []
    return records if len(records) == starts.size else []


def _plain(kind: pa.DataType) -> pa.DataType:
    """Returns the type of a dictionary's values, and other types as they are."""
    return kind.value_type if isinstance(kind, pa.DictionaryType) else kind


def _may_be_text(kind: pa.DataType) -> bool:
    """Returns whether a column's values can be cast to strings without changing their meaning."""
    return is_text(kind) or pa.types.is_string_view(kind) or pa.types.is_null(kind)


def _name_of(kind: pa.DataType) -> str:
    """Returns a type's name for an error, without names of fields within it, which may be values."""
    return str(kind).partition("<")[0]


def interleaved(
    user: pa.Array, texts: Sequence[pa.Array], group: pa.Array | None = None
) -> pa.RecordBatch:
    """Makes a document of each text of each record: its user, the text, and its group if there is one.

    Texts that are null are no documents, unless the records have one text each.

    >>> interleaved(pa.array(["ann"]), [pa.array(["a"]), pa.array(["b"])])["text"].to_pylist()
    ['a', 'b']
    """
    if len(texts) == 1:
        columns = {"user": user, "text": texts[0], "group": group}
        return pa.RecordBatch.from_pydict({name: x for name, x in columns.items() if x is not None})
    # Texts are concatenated field by field, so that text f of record r is at f · rows + r. `order`,
    # (rows · fields,), sorts these indices by record, then by field.
    order = np.arange(len(user) * len(texts)).reshape(len(texts), len(user)).T.ravel()
    text = pa.concat_arrays(list(texts)).take(pa.array(order))
    present = np.flatnonzero(text.is_valid().to_numpy(zero_copy_only=False))
    record = pa.array(present // len(texts))
    group = None if group is None else group.take(record)
    return interleaved(user.take(record), [text.take(pa.array(present))], group)


def row_group_ranges(file: pq.ParquetFile, split_bytes: int) -> list[tuple[int, int]]:
    """Returns ranges of row groups of about `split_bytes`, each as (first, one after the last)."""
    ranges = []
    start = 0
    size = 0
    count = file.metadata.num_row_groups
    for group in range(count):
        size += file.metadata.row_group(group).total_byte_size
        if size >= split_bytes or group == count - 1:
            ranges.append((start, group + 1))
            start = group + 1
            size = 0
    return ranges


def checked_columns(
    user: pa.Array, *others: pa.Array, options: ReadOptions, records: np.ndarray | None = None
) -> tuple[list[pa.Array], list[tuple[int, str]], np.ndarray]:
    """Finds the records that can be used.

    Args:
      user: Users.
      others: The other columns that `ReadOptions.wanted_fields` has.
      options: How the file is read.
      records: (rows,) int64, ascending, the number of each row's record, all of whose rows are faulty
        if one is. None if each row is a record.

    Returns:
      The columns of usable rows; each faulty record with the first reason that applies; and the record
      of each usable row, (rows,) int64.

    Raises:
      InputError: A column has a type that cannot be read.
      pyarrow.ArrowInvalid: A text is not UTF-8, as the format demands.
    """
    count = len(options.text_fields)
    user = user_column(user, options.user_field)
    names = zip(others, options.text_fields, strict=False)
    texts = [text_column(column, name) for column, name in names]
    if any(is_list(text.type) != options.text_is_tokens for text in texts):
        raise InputError(
            f"The field {' and '.join(options.text_fields)} must hold lists of texts. {OF_TEXTS}"
            if options.text_is_tokens
            else f"The field {' and '.join(options.text_fields)} must hold text. {OF_LISTS}"
        )
    further = list(others[count:])
    if options.group_field is not None:
        further[0] = group_column(further[0], options.group_field)
    columns = [user, *texts, *map(as_strings, further)]
    for column in columns:
        column.validate(full=True)
    group = None if options.group_field is None else columns[count + 1]
    faults = record_faults(user, texts, group)
    size = _lengths(user) + sum(map(_text_bytes, texts))
    if records is not None:
        size = np.bincount(records, size)[records]
    faults.append((size > options.max_record_bytes, TOO_LONG))
    bad = np.logical_or.reduce([fault for fault, _ in faults])
    numbers = np.arange(len(user)) if records is None else records
    reasons = dict[int, str]()
    for row in np.flatnonzero(bad):
        reason = next(reason for fault, reason in faults if fault[row])
        reasons.setdefault(int(numbers[row]), reason)
    if records is not None:
        bad = np.isin(records, list(reasons))
    keep = pa.array(~bad)
    return [column.filter(keep) for column in columns], list(reasons.items()), numbers[~bad]


def _text_bytes(texts: pa.Array) -> np.ndarray:
    """Returns the bytes of each text, of a list those of its tokens and one for each: (n,) numbers."""
    if not is_list(texts.type):
        return _lengths(texts)
    rows = pc.call_function("list_parent_indices", [texts]).to_numpy()
    return np.bincount(rows, _lengths(texts.flatten()) + 1, len(texts))


def _mask(values: pa.Array) -> np.ndarray:
    return values.to_numpy(zero_copy_only=False).astype(bool)


def _lengths(values: pa.Array) -> np.ndarray:
    """Returns the bytes of each value, 0 for nulls: (n,) int64."""
    return pc.call_function("binary_length", [values]).fill_null(0).to_numpy().astype(np.int64)
