"""Columns of users and texts: their types, those of JSON objects, documents, row groups of Parquet."""

import json
import re
from collections.abc import Iterable, Sequence
from typing import Annotated, Any

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from beam_dpne.errors import InputError
from beam_dpne.reading.ids import (
    decoded,
    id_column,
    id_text,
    is_binary,
    may_be_text,
    name_of_type,
    normalized,
    normalized_column,
    of_within,
    plain_type,
    plain_values,
)
from beam_dpne.reading.options import ReadOptions
from beam_dpne.reading.rejects import (
    BAD_GROUP,
    BAD_TEXT,
    BAD_TOKENS,
    BAD_USER,
    EMPTY_USER,
    GROUPS_OF_LIST,
    NO_GROUP,
    NO_TEXT,
    NO_USER,
    NOT_DECODED,
    NOT_OBJECT,
    OF_LISTS,
    OF_TEXTS,
    TOO_LONG,
    USER_WITH_FIELDS,
    USERS_OF_LIST,
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


def is_list(kind: pa.DataType) -> bool:
    """Returns whether a type is list or large_list."""
    return pa.types.is_list(kind) or pa.types.is_large_list(kind)


# The rows that cannot be used for one reason, (n,) bool, and the reason.
Fault = tuple[np.ndarray, str]


def user_column(users: pa.Array, name: str) -> tuple[pa.Array, Fault]:
    """Returns users as strings by `id_column`, and which of them identify nobody; nulls stay.

    Raises:
      InputError: The column has a type that identifies nobody.
    """
    texts, is_bad = id_column(users, name, "user")
    return texts, (is_bad, BAD_USER)


def group_column(groups: pa.Array, name: str) -> tuple[pa.Array, Fault]:
    """Returns groups as strings by `id_column`, and which of them are no names; nulls stay.

    Raises:
      InputError: The column has a type that names nothing.
    """
    texts, is_bad = id_column(groups, name, "group")
    return texts, (is_bad, BAD_GROUP)


def _remedy_of_text(kind: pa.DataType) -> str:
    """Returns what to do about a column of texts with a type that cannot be read."""
    member = kind.value_type if is_list(kind) else kind
    if pa.types.is_struct(member) or pa.types.is_map(member):
        return of_within("text")
    if pa.types.is_nested(kind):
        return "Convert the members of the lists to text before."
    return "Name the field of the texts with `text_field`, or convert the column to text before."


def group_fault(group: object) -> str:
    """Returns the reason why a record with this group cannot be used, or ""."""
    if group is None or group == "":
        return NO_GROUP
    if isinstance(group, list):
        return GROUPS_OF_LIST
    text = id_text(group)
    return BAD_GROUP if text is None or not GROUP.match(text) else ""


def record_faults(
    users: Sequence[pa.Array], texts: Sequence[pa.Array], groups: pa.Array | None = None
) -> list[Fault]:
    """Returns which records in columns cannot be used; `field_values` tells it of records in JSON.

    Args:
      users: the columns of users, (n,) strings each.
      texts: the columns of texts, (n,) strings or lists of strings each.
      groups: (n,) strings; None without groups.
    """
    faults: list[Fault] = []
    for ids in users:
        is_null = _mask(ids.is_null())
        faults += [(is_null, NO_USER), (~is_null & (_lengths(ids) == 0), EMPTY_USER)]
    faults.append((np.logical_and.reduce([_mask(text.is_null()) for text in texts]), NO_TEXT))
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


def text_column(texts: pa.Array, name: str) -> tuple[pa.Array, Fault]:
    """Returns texts as strings, or lists of tokens as lists of strings, and which are not UTF-8.

    Nulls stay, and a text that is not UTF-8 is null.

    Raises:
      InputError: The column has another type.
    """
    values = plain_values(texts)
    kind = values.type
    if may_be_text(kind) or is_binary(kind):
        strings, is_bad = decoded(values)
        return strings, (is_bad, NOT_DECODED)
    if is_list(kind) and may_be_text(plain_type(kind.value_type)):
        return _token_column(values)
    raise InputError(
        f"A text must be text or a list of texts, got {name_of_type(kind)} in {name!r}. "
        f"{_remedy_of_text(kind)}"
    )


def _token_column(values: pa.Array) -> tuple[pa.Array, Fault]:
    """Returns lists of tokens as lists of strings, and which have a token that is not UTF-8."""
    tokens = values.cast(pa.list_(pa.string()))
    texts, is_bad = decoded(tokens.flatten())
    if not is_bad.any():
        return tokens, (np.zeros(len(values), bool), NOT_DECODED)
    rows = pc.call_function("list_parent_indices", [tokens]).to_numpy()
    has_bad = np.bincount(rows, is_bad, len(tokens)) > 0
    sizes = pc.call_function("list_value_length", [tokens]).fill_null(0).to_numpy()
    offsets = pa.array(np.append(0, np.cumsum(sizes)), pa.int32())
    lists = pa.ListArray.from_arrays(offsets, texts, mask=tokens.is_null())
    return lists, (has_bad, NOT_DECODED)


def as_strings(values: pa.Array) -> pa.Array:
    """Casts values to string; dictionaries are decoded, and values with parts are refused."""
    plain = plain_values(values)
    if pa.types.is_nested(plain.type):
        kind = name_of_type(plain.type)
        raise InputError(f"Further fields must be text, numbers or times, got {kind}.")
    return plain.cast(pa.string())


def json_text(value: Any) -> str | None:
    """Returns the value of a further field: text as it is, null as None, anything else as JSON."""
    if value is None or isinstance(value, str):
        return value
    return json.dumps(value, ensure_ascii=False, default=float)


def field_values(value: Any, options: ReadOptions) -> tuple[list[Any], str]:
    """Returns what a value in JSON has in the wanted fields, and why it cannot be used or ""."""
    if not isinstance(value, dict):
        return [], NOT_OBJECT
    users: list[str] = []
    if not options.record_is_user:
        for name in options.user_fields:
            user, reason = _user_of(value.get(name), options)
            if reason:
                return [], reason
            users.append(user)
    texts = [value.get(name) for name in options.text_fields]
    reason = _text_fault(texts, options)
    if reason:
        return [], reason
    fields = [*users, *texts]
    if options.group_field is not None:
        group = value.get(options.group_field)
        reason = group_fault(group)
        if reason:
            return [], reason
        fields.append(id_text(group))
    fields += [json_text(value.get(name)) for name in options.fields or ()]
    return fields, ""


def _user_of(value: object, options: ReadOptions) -> tuple[str, str]:
    """Returns the text of a user in JSON, and why it cannot be one or ""."""
    if value is None:
        return "", NO_USER
    text = id_text(value)
    if text is None:
        parts = {list: USERS_OF_LIST, dict: USER_WITH_FIELDS}
        return "", parts.get(type(value), BAD_USER)
    if options.normalize_users:
        text = normalized(text)
    return text, "" if text else EMPTY_USER


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


def users_of_records(number: int, places: Iterable[int]) -> pa.Array:
    """Returns a user for each record of a file: the file's number, and the record's place in it."""
    return pa.array([f"{number}:{place}" for place in places], pa.string())


def checked_columns(
    columns: Sequence[pa.Array], options: ReadOptions, records: np.ndarray | None = None
) -> tuple[list[pa.Array], list[tuple[int, str]], np.ndarray]:
    """Finds the records that can be used.

    Args:
      columns: The columns that `ReadOptions.wanted_fields` has.
      options: How the file is read.
      records: (rows,) int64, ascending, the number of each row's record, all of whose rows are faulty
        if one is. None if each row is a record.

    Returns:
      The columns of usable rows; each faulty record with the first reason that applies; and the record
      of each usable row, (rows,) int64.

    Raises:
      InputError: A column has a type that cannot be read.
      pyarrow.ArrowInvalid: A further field is not UTF-8, as the format demands.
    """
    found: dict[str, list[pa.Array]] = {}
    faults: list[Fault] = []
    for column, (option, name) in zip(columns, options.wanted_fields, strict=True):
        if option == "user_field":
            values, fault = user_column(column, name)
            if options.normalize_users:
                values = normalized_column(values)
            faults.append(fault)
        elif option == "text_field":
            values, fault = text_column(column, name)
            faults.append(fault)
        elif option == "group_field":
            values, fault = group_column(column, name)
            faults.append(fault)
        else:
            values = as_strings(column)
            values.validate(full=True)
        found.setdefault(option, []).append(values)
    users = found.get("user_field", [])
    texts = found["text_field"]
    if any(is_list(text.type) != options.text_is_tokens for text in texts):
        raise InputError(
            f"The field {' and '.join(options.text_fields)} must hold lists of texts. {OF_TEXTS}"
            if options.text_is_tokens
            else f"The field {' and '.join(options.text_fields)} must hold text. {OF_LISTS}"
        )
    (group,) = found.get("group_field", [None])
    faults += record_faults(users, texts, group)
    # (rows,) bytes of each record.
    size = sum(map(_lengths, users), start=np.zeros(len(texts[0]), np.int64))
    size = sum(map(_text_bytes, texts), start=size)
    if records is not None:
        size = np.bincount(records, size)[records]
    faults.append((size > options.max_record_bytes, TOO_LONG))
    bad = np.logical_or.reduce([fault for fault, _ in faults])
    numbers = np.arange(len(texts[0])) if records is None else records
    reasons = dict[int, str]()
    for row in np.flatnonzero(bad):
        reason = next(reason for fault, reason in faults if fault[row])
        reasons.setdefault(int(numbers[row]), reason)
    if records is not None:
        bad = np.isin(records, list(reasons))
    keep = pa.array(~bad)
    usable = [column.filter(keep) for each in found.values() for column in each]
    return usable, list(reasons.items()), numbers[~bad]


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
