"""The input of a run: its files, how they are read, and the tokenizer of its texts."""

import contextlib
import dataclasses
import functools
import json
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from beam_dpne.documents.masks import TextRules, advice
from beam_dpne.documents.run_keys import tokenizer_identity
from beam_dpne.documents.tokenizers import Tokenizer, resolve_tokenizer
from beam_dpne.errors import InputError, UsageError
from beam_dpne.jobs.made import Made
from beam_dpne.jobs.parameters import Input, Tokenizing
from beam_dpne.jobs.showing import Showing
from beam_dpne.lists.left_out import read_stop_list
from beam_dpne.reading.encodings import are_utf8
from beam_dpne.reading.files import InputFile, match_inputs
from beam_dpne.reading.frames import Frame, frame_file
from beam_dpne.reading.ids import is_text
from beam_dpne.reading.options import (
    FORMATS,
    Grouping,
    ReadOptions,
    extension_of,
    format_of,
    names_of,
    one_or_several,
)
from beam_dpne.reading.records import FirstRecords, check_fields, names_without_wanted
from beam_dpne.validation import first_names, made_from, parameters_of, told_value

# Fewer users are not judged. Nearly each record has a user of its own if so many have.
_FEWEST_USERS = 100
_SHARE = 0.99
OF_RECORDS = (
    "have a user of their own. If --user_field names records and not people, each record would be its "
    "own user, and no person would be protected."
)
# Details of a ledger's input that are not texts.
_OF_JSON = {"columns", "where", "max_record_bytes"}
# Those that hold for a frame, too.
_OF_FRAMES = ("where", "max_record_bytes")
# Parameters that are true or false, and say what a user is.
_OF_USERS = ("normalize_users", "record_is_user")
OF_HEADERS = (
    "The name of the user field is a user, as where a header line is read as a record: leave --columns "
    "out for files with a header line, and take out such lines further below."
)
OF_UTF8 = (
    "The first texts are of UTF-8, and are read by another encoding, which makes several letters of "
    "one: leave --encoding out."
)
OF_QUOTES = (
    "Some of the first records have a blank before an opening quote, so that the quotes are read as "
    "part of the field: take the blanks beside the delimiters out."
)
_AFTER_BLANKS = pc.MatchSubstringOptions(r'(?s)^\s+".*"\s*$')
SECRET = "This line is for the operator only; it is as secret as the data."


def tokenizer_name(made: Made) -> str:
    """Returns the tokenizer of the parameters; its default depends on the format of the input."""
    default = "whitespace" if made[ReadOptions].input_format == "sequences" else "words"
    return made[Tokenizing].name(default)


def reading_of(made: Made) -> ReadOptions:
    """Returns how a run reads its input, before the tokenizer is known."""
    group_field = made[Grouping].group_field if Grouping in made else None
    return dataclasses.replace(made[ReadOptions], group_field=group_field)


def with_rules(tokenizing: Tokenizing, tokenizer: str | Tokenizer) -> str | Tokenizer:
    """Returns a tokenizer with the separator, masks and list of the parameters, if any is given.

    Raises:
      UsageError, ValueError, InputError: if they cannot be used.
    """
    separator = tokenizing.item_separator
    mask = tokenizing.mask or ()
    fold = tokenizing.fold or ()
    keep = tokenizing.keep or ()
    stop_list = read_stop_list(tokenizing.stop_list) if tokenizing.stop_list else ()
    if not (separator or mask or fold or keep or stop_list):
        return tokenizer
    return TextRules(
        tokenizer=tokenizer,
        item_separator=separator,
        mask=mask,
        fold=fold,
        keep=keep,
        stop_list=stop_list,
    )


def with_cause(tokenizer: str | Tokenizer) -> str | Tokenizer:
    """Returns a tokenizer with the same tokens and the same name, whose errors keep their cause.

    `tokenize` withholds the errors of a tokenizer that a user wrote. An engine reports a worker's
    traceback as text, so the cause must be in the traceback if the operator wants a failure log. It
    is never printed on stderr.

    Args:
      tokenizer: a name, or a function; a tokenizer of this package is returned unchanged.

    >>> with_cause("words")
    'words'
    """
    if isinstance(tokenizer, str) and ":" not in tokenizer:
        return tokenizer
    kept = functools.partial(resolve_tokenizer(tokenizer))
    # The run key is bound to name and version, which must be those of the tokenizer itself.
    identity = tokenizer_identity(tokenizer)
    vars(kept).update(
        tokenizer_name=identity["name"], version=identity["version"], keeps_cause=True
    )
    return kept


def read_inputs(
    reading: ReadOptions,
    inputs: str | Sequence[str] | Frame,
    tokenizer: str | Tokenizer,
    *,
    showing: Showing,
    shows_fields: bool = False,
) -> tuple[list[InputFile], ReadOptions, FirstRecords]:
    """Returns the files of inputs, whose fields are checked, how they are read, and first records.

    Args:
      reading: how the files are read, before the tokenizer is known.
      inputs: their paths, globs or folders, or a frame, which is the one file then.
      tokenizer: the tokenizer of the texts.
      showing: how the operator is told what the first texts look like.
      shows_fields: whether an error may name the fields that a file has, which may be data.

    Raises:
      InputError, FileNotFoundError: if there are no such files or fields.
    """
    reading = dataclasses.replace(reading, text_is_tokens=tokenizer == "tokens")
    if isinstance(inputs, Frame):
        file, reading = frame_file(inputs, reading)
        files = [file]
    else:
        files = match_inputs(names_of(inputs))
    try:
        first = check_fields(files, reading)
    except InputError as error:
        lacking = [file for file in files if file.path == error.path]
        is_shown = lacking and shows_fields and showing.names_fields
        names = names_without_wanted(lacking[0], reading) if is_shown else ()
        if not "".join(names).isprintable() or all(name in str(error) for name in names):
            raise
        raise type(error)(
            f"{error.beside} It has the fields {first_names(names)}. {SECRET}"
        ) from None
    if isinstance(tokenizer, str) and not showing.quiet:
        for note in advice(first.texts, tokenizer):
            showing.advise(f"{note} {SECRET}")
    named = reading.encoding
    if named and is_text(first.texts.type) and are_utf8(first.texts.to_pylist(), named):
        showing.advise(f"{OF_UTF8} {SECRET}")
    is_quoted = any(reading.is_quoted(format_of(file.path, reading.input_format)) for file in files)
    if is_quoted and any(map(_are_after_blanks, (first.users, first.texts))):
        showing.advise(f"{OF_QUOTES} {SECRET}")
    return files, reading, first


def _are_after_blanks(fields: pa.Array) -> bool:
    """Whether one of some fields has blanks and then quotes around it, as CSV does not read them."""
    if not is_text(fields.type):
        return False
    found = pc.call_function("match_substring_regex", [fields], _AFTER_BLANKS)
    return bool(np.any(found.to_numpy(zero_copy_only=False)))


def are_of_records(documents: int, users: int, reading: ReadOptions) -> bool:
    """Whether there are nearly as many users as records, as where the user field numbers them."""
    return users >= _FEWEST_USERS and documents * _SHARE <= users * len(reading.text_fields)


def has_user_of_header(users: pa.Array, reading: ReadOptions) -> bool:
    """Whether the name of the user field is a user, (n,) strings, as a header line makes it one."""
    name = ",".join(reading.user_fields).casefold()
    return any(user.strip().casefold() == name for user in users.unique().to_pylist())


def notes_on_users(first: FirstRecords, reading: ReadOptions) -> list[str]:
    """Returns sentences about users of the first records that may be no people; sequences have none."""
    found: list[str] = []
    if reading.record_is_user or not is_text(first.users.type):
        return found
    if are_of_records(len(first.users), len(first.users.unique()), reading):
        found.append(f"Nearly all of the first records {OF_RECORDS}")
    if has_user_of_header(first.users, reading):
        found.append(OF_HEADERS)
    return found


def as_released(made: Made, ledger: Mapping[str, Any]) -> tuple[ReadOptions, str]:
    """Returns how the input of a release was read, and the name of its tokenizer.

    Raises:
      UsageError: a parameter is given that changes the users or the words of the release.
    """
    told = ledger["input"]
    reading = made[ReadOptions]
    tokenizer = made[Tokenizing].tokenizer
    stated: dict[str, Any] = {"tokenizer": tokenizer}
    decided: dict[str, Any] = {}
    with contextlib.suppress(ValueError):  # A tokenizer that is not found here has to be given.
        resolve_tokenizer(ledger["tokenizer"])
        decided["tokenizer"] = ledger["tokenizer"]
    if told["format"] not in ("rows", "sequences"):
        stated["text_field"] = reading.text_fields
        decided["text_field"] = tuple(told["text_fields"])
        stated |= {name: getattr(reading, name) for name in _OF_USERS}
        decided |= {name: name in told["details"] for name in _OF_USERS}
        if told["user_field"] is not None:
            stated["user_field"] = one_or_several(reading.user_fields)
            decided["user_field"] = one_or_several(names_of(told["user_field"]))
    for name in made.given & decided.keys():
        if stated[name] != decided[name]:
            raise UsageError(
                f"`{name}` must be that of the release, {told_value(decided[name])}, got "
                f"`{name}={told_value(stated[name])}`. Leave it out."
            )
    usual = dict(told["details"])
    for name in usual.keys() & _OF_JSON:
        usual[name] = json.loads(usual[name])
    is_frame = Input not in made
    if is_frame:
        usual = {name: value for name, value in usual.items() if name in _OF_FRAMES}
    is_named = is_frame or all(map(extension_of, names_of(made[Input].input)))
    if told["format"] == "sequences" or (told["format"] in FORMATS and not is_named):
        usual["input_format"] = told["format"]
    free = {each.name for each in parameters_of(ReadOptions)} - made.given
    taken = {name: value for name, value in (usual | decided).items() if name in free}
    values = vars(reading) | taken | {"group_field": told.get("group_field")}
    return made_from(ReadOptions, values), tokenizer or ledger["tokenizer"]
