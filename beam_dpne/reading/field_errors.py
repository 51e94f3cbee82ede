"""Errors about fields that files lack.

They name the fields of a file only if they cannot be data, or are nearly what was asked for: the first
line of a CSV file without a header line is a user's record.
"""

import re
from collections.abc import Sequence

import pyarrow as pa

from beam_dpne.errors import AbsentFieldError
from beam_dpne.reading import text_formats
from beam_dpne.reading.files import WorkItem
from beam_dpne.reading.held import FRAME
from beam_dpne.reading.nested import conditions_of
from beam_dpne.reading.options import DELIMITED, ReadOptions
from beam_dpne.reading.row_groups import paths_of, place_of
from beam_dpne.validation import MOST_TOLD, did_you_mean, first_names, told_name

# What ends the error about a frame, whose columns may be the first record of a file without a header.
_OF_FRAMES = (
    " Its columns are not shown, since they may be data: look at frame.columns, and name them with "
    "`user_field` and `text_field`. If they are a record, read the file again as one without a header "
    "line."
)
_NOT_SHOWN = " Its fields are not shown, since they may be data: look at its first line."
_IDENTIFIER = re.compile(r"[A-Za-z0-9_.\-]{1,64}", re.ASCII)


def named_fields(options: ReadOptions) -> tuple[tuple[str, str], ...]:
    """Returns pairs of a parameter and a field that it names: what is wanted, then the conditions."""
    conditions = (("where", each.path) for each in conditions_of(options.conditions))
    return (*options.wanted_fields, *conditions)


def require_fields(
    names: Sequence[str], item: WorkItem, options: ReadOptions, schema: pa.Schema | None = None
) -> None:
    """Raises InputError unless a file has each wanted field once.

    Args:
      names: Names of the columns.
      item: The file, whose path may have fields, too.
      options: How it is read.
      schema: The columns' types, if there may be fields within them.
    """
    given = dict(item.file.fields)
    for option, field in named_fields(options):
        count = names.count(field)
        if count > 1:
            why = f"which is there {count} times"
        elif count or field in given or (schema is not None and place_of(schema, field)):
            continue
        else:
            why = "which is absent"
        there = names if schema is None else paths_of(schema)
        raise absent_field(option, field, why, item, names=[*there, *given], options=options)


def absent_field(
    option: str,
    field: str,
    why: str,
    item: WorkItem,
    *,
    names: Sequence[str],
    options: ReadOptions,
) -> AbsentFieldError:
    """Returns the error about a field, which names the fields that are there.

    The first line of CSV may be a user's record instead of a header, and so may the columns of a frame
    that was made of it. Of these only such fields are named as are nearly what the operator has asked
    for, and have no digits, as ids do.
    """
    is_frame = item.file.path == FRAME
    if item.kind in DELIMITED and (
        remedy := text_formats.remedy_of_delimiter(names, item.kind, options)
    ):
        return AbsentFieldError(
            f"{item.file.path} must have its fields apart, got a line without them. {remedy}",
            path=item.file.path,
        )
    padded = [name for name in names if name.strip() != name]
    names = [name for name in names if _IDENTIFIER.fullmatch(name)]
    # The last part of a path may name something else: id_str of a message instead of its user's.
    like = [name for name in names if ("." in name) == ("." in field)]
    if is_frame or item.kind in DELIMITED:
        like = [name for name in like if not re.search(r"\d", name)]
    told = "" if field in names else did_you_mean(field.replace("[]", ""), like)
    given = sum(name == option for name, _ in named_fields(options))
    # What is nearly a name that is there is a name itself.
    got = f"`{option}={field!r}`" if told else f"`{option}={told_name(field)}`"
    if given > MOST_TOLD:
        got = f"one of {given:,} names"
    # Of fields within fields those are told that are in the same one.
    outer = field.partition(".")[0].removesuffix("[]")
    beside = [name for name in like if "." not in field or name.partition(".")[0] == outer]
    names = beside or [name for name in names if "." not in name]
    # What is left out where the operator is shown the fields.
    there = ""
    if item.kind in DELIMITED and any(name.strip().strip('"') == field for name in padded):
        told = (
            " It is there with a blank beside it: take the blanks beside the delimiters out of the "
            "header line and the others."
        )
    elif not told and is_frame:
        told = _OF_FRAMES
    elif not told and item.kind in DELIMITED:
        there = _NOT_SHOWN
        told = (
            " Name them with `user_field` and `text_field`. If the file has no header "
            "line, set `columns` to the names of all its fields; if another sign stands between "
            "them, set `delimiter` to it."
        )
    elif not told and names:
        there = f" It has the fields {first_names(names)}."
    said = f"`{option}` must name a field of {item.file.path}, got {got}, {why}."
    return AbsentFieldError(f"{said}{there}{told}", path=item.file.path, beside=f"{said}{told}")
