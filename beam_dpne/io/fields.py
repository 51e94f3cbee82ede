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
            known = (_known(names) if _is_header(names, options) else None) or (
                f"Its first line has {len(names)} columns; they are not shown, since without a "
                "header line they would be data. With one, name its fields with --user_field and "
                "--text_field; without, name the columns with --columns."
            )
            raise InputError(
                f"{option} must name a field of {path}, got {option}={field!r}. {known}"
            )


def require_keys(path: str, records: Sequence[Sequence[str]], options: ReadOptions) -> None:
    """Raises if none of a file's first JSON records has a wanted field."""
    for option, field in (("user_field", options.user_field), ("text_field", options.text_field)):
        if records and not any(field in keys for keys in records):
            common = [key for key in records[0] if all(key in keys for keys in records)]
            shown = len(records) > 1 or _is_header(common, options)
            known = (_known(common) if shown else None) or (
                "Its fields are not shown, since they may be data."
            )
            raise InputError(
                f"{option} must name a field of {path}, got {option}={field!r}, which its first "
                f"records lack. {known}"
            )


def _is_header(names: Sequence[str], options: ReadOptions) -> bool:
    """Whether names are surely names: one is wanted, or the user says that there are fields."""
    wanted = {options.user_field, options.text_field}
    return bool(wanted & set(names)) or wanted != {"user", "text"}


def _known(names: Sequence[str]) -> str | None:
    """Tells the fields of a file, unless one of them may be data."""
    if not names or not all(_IDENTIFIER.fullmatch(name) for name in names):
        return None
    more = ", …" if len(names) > _SHOWN else ""
    return f"It has the fields {', '.join(names[:_SHOWN])}{more}."
