"""Fields that do not exist: found before the run where possible, and told without showing data."""

import re
from collections.abc import Sequence

from beam_dpne.errors import InputError
from beam_dpne.reading.options import ReadOptions

_IDENTIFIER = re.compile(r"[A-Za-z0-9_.\-]{1,64}", re.ASCII)
_SHOWN = 30


def require_fields(path: str, names: Sequence[str], options: ReadOptions) -> None:
    """Raises unless a header line has each wanted field once."""
    for option, field in options.wanted_fields:
        if names.count(field) > 1:
            raise InputError(
                f"{option} must name one field of {path}, got {option}={field!r}, which its "
                "header line holds more than once. Rename the fields or name them with --columns."
            )
        if field not in names:
            known = (_known(names) if _is_header(names, options) else None) or (
                f"Its first line has {len(names)} column{'s' * (len(names) != 1)}, which are not "
                "shown, since without a header line they would be data. "
                f"{_other_delimiter(names)}With a header line, name its fields with --user_field and "
                "--text_field; only without one, name the columns with --columns."
            )
            raise InputError(
                f"{option} must name a field of {path}, got {option}={field!r}. {known}"
            )


def require_no_quotes(path: str, names: Sequence[str]) -> None:
    """Raises if all names of a header line without quoting are in quotes."""
    if names and all(is_quoted(name) for name in names):
        raise InputError(
            f"quoting must say whether quotes are part of the fields of {path}, whose header line has "
            "each field in quotes. Give --quoting quoted if they only enclose fields, --quoting none "
            "if they are part of them."
        )


def is_quoted(value: str) -> bool:
    """Whether a field begins and ends with a quote."""
    return len(value) > 1 and value[0] == value[-1] == '"'


def require_keys(path: str, records: Sequence[Sequence[str]], options: ReadOptions) -> None:
    """Raises if none of a file's first JSON records has a wanted field; of several texts, any."""
    for option, fields in (
        ("user_field", [options.user_field]),
        ("text_field", list(options.text_fields)),
    ):
        if records and not any(field in keys for keys in records for field in fields):
            common = [key for key in records[0] if all(key in keys for keys in records)]
            shown = len(records) > 1 or _is_header(common, options)
            known = (_known(common) if shown else None) or (
                "Its fields are not shown, since they may be data."
            )
            raise InputError(
                f"{option} must name a field of {path}, got {option}={','.join(fields)!r}, which its "
                f"first records lack. {known}"
            )


def _other_delimiter(names: Sequence[str]) -> str:
    """Says which other delimiter the one column of a first line seems to have, if any."""
    if len(names) != 1:
        return ""
    signs = {"semicolon": ";", "tab": "\t", "pipe": "|", "comma": ","}
    found = [name for name, sign in signs.items() if sign in names[0]]
    if not found:
        return ""
    return f"If fields are separated by another sign, try --delimiter {found[0]} first. "


def _is_header(names: Sequence[str], options: ReadOptions) -> bool:
    """Whether names are surely names: one is wanted, or the user says that there are fields."""
    wanted = {options.user_field, *options.text_fields}
    return bool(wanted & set(names)) or wanted != {"user", "text"}


def _known(names: Sequence[str]) -> str | None:
    """Tells the fields of a file, unless one of them may be data."""
    if not names or not all(_IDENTIFIER.fullmatch(name) for name in names):
        return None
    more = ", …" if len(names) > _SHOWN else ""
    return f"It has the fields {', '.join(names[:_SHOWN])}{more}."
