"""Fields that do not exist: found before the run where possible, and told without showing data."""

import re
from collections.abc import Sequence

from beam_dpne.io.options import InputError, ReadOptions

_IDENTIFIER = re.compile(r"[A-Za-z0-9_.\-]{1,64}", re.ASCII)
_SHOWN = 30


def require_fields(path: str, names: Sequence[str], options: ReadOptions) -> None:
    """Raises unless a header line has each wanted field once."""
    for option, field in (("user_field", options.user_field), ("text_field", options.text_field)):
        if names.count(field) > 1:
            raise InputError(
                f"{option} must name one field of {path}, got {option}={field!r}, which its "
                "header line holds more than once. Rename the fields or name them with --columns."
            )
        if field not in names:
            known = _known(names) or (
                "The first line does not look like a header: name the file's columns with "
                "--columns."
            )
            raise InputError(
                f"{option} must name a field of {path}, got {option}={field!r}. {known}"
            )


def require_keys(path: str, records: Sequence[Sequence[str]], options: ReadOptions) -> None:
    """Raises if none of a file's first JSON records has a wanted field."""
    for option, field in (("user_field", options.user_field), ("text_field", options.text_field)):
        if records and not any(field in keys for keys in records):
            known = _known(records[0]) or "Its fields do not look like names and are not shown."
            raise InputError(
                f"{option} must name a field of {path}, got {option}={field!r}, which its first "
                f"records lack. {known}"
            )


def _known(names: Sequence[str]) -> str | None:
    """Tells the fields of a file, unless one of them may be data."""
    if not names or not all(_IDENTIFIER.fullmatch(name) for name in names):
        return None
    more = ", …" if len(names) > _SHOWN else ""
    return f"It has the fields {', '.join(names[:_SHOWN])}{more}."
