"""The ledger and the directory of a release: how they are found, read and checked."""

import contextlib
import json
import os
import re
import sys
from collections.abc import Iterator, Mapping
from typing import Any

from apache_beam.io.filesystems import FileSystems

from beam_dpne.errors import ReleaseError
from beam_dpne.release.parts import PART_NAME, PROGRAMS, Part
from beam_dpne.storage.access import directory_at
from beam_dpne.storage.directories import reason

SCHEMA = "beam_dpne/ledger/2"
SCHEMA_FAMILY = "beam_dpne/ledger/"
LEDGER_NAME = "ledger.json"


@contextlib.contextmanager
def as_release_error(failure: str) -> Iterator[None]:
    """Replaces other errors by a ReleaseError of one sentence, without messages of libraries."""
    try:
        yield
    except ReleaseError:
        raise
    except Exception as error:
        raise ReleaseError(f"{failure}: {reason(error)}.") from None


def read_ledger(path: str) -> dict[str, Any]:
    """Reads the ledger of a release.

    Args:
      path: Path of the release's directory, or of its `ledger.json`; local or on any Beam file system.

    Returns:
      The ledger as JSON types, in the order in which `whole_ledger` wrote its sections.

    Raises:
      ReleaseError: There is no ledger, or it is not a whole ledger of a readable schema.
    """
    return parse_ledger(read_ledger_bytes(path), ledger_path(path))


def read_ledger_bytes(path: str) -> bytes:
    """Reads the bytes of a release's ledger; see `read_ledger`.

    Raises:
      ReleaseError: There is no ledger, or it cannot be read.
    """
    file = ledger_path(path)
    with as_release_error(f"{file} cannot be read"):
        data = directory_at(release_folder(path)).read(LEDGER_NAME)
    if data is None:
        raise ReleaseError(
            f"{file} does not exist: there is no release, or its publication was not completed."
        )
    return data


def parse_ledger(data: bytes, path: str, *, section: str = "parts") -> dict[str, Any]:
    """Checks and returns a ledger's JSON.

    Args:
      data: The ledger.
      path: Its path, or another name for it in the messages of errors.
      section: Its last section: "parts" in a release, "rows" before its files are written.

    Raises:
      ReleaseError: It is not a whole ledger of a readable schema.
    """
    ledger = _json_object(data)
    if ledger is None or not is_ledger(data):
        raise ReleaseError(f"{path} is not a ledger of beam_dpne.")
    if ledger["schema"] != SCHEMA:
        raise ReleaseError(
            f"{path} has schema {ledger['schema']!r}; this version reads {SCHEMA}. Install the version "
            "of beam-dpne that wrote it, or a newer one, to read it."
        )
    program = PROGRAMS.get(str(ledger.get("program")))
    if program is None:
        raise ReleaseError(
            f"{path} is damaged: 'program' is missing or not one of {', '.join(PROGRAMS)}."
        )
    for name, kind in (_SECTIONS | program.sections | _ROWS_SECTIONS[section]).items():
        if not isinstance(ledger.get(name), kind):
            raise ReleaseError(f"{path} is damaged: {name!r} is missing or not a {kind.__name__}.")
    if not is_guarantee(ledger["guarantee"]):
        raise ReleaseError(
            f"{path} is damaged, or its release has no guarantee: 'guarantee' must state epsilon above "
            "0 and delta in (0, 1) as numbers."
        )
    pieces = ledger["parts"] if section == "parts" else []
    if section == "parts" and not (pieces and all(_is_part(part, program.stem) for part in pieces)):
        raise ReleaseError(f"{path} is damaged: 'parts' must list the files of the release.")
    released = program.released(ledger)
    if released is None:
        raise ReleaseError(
            f"{path} is damaged: {program.section!r} must state the number of released "
            f"{program.noun}."
        )
    stated = sum(part["rows"] for part in pieces) if pieces else ledger["rows"].get("count")
    if released != stated:
        raise ReleaseError(
            f"{path} is damaged: {section!r} does not state as many rows as were released."
        )
    return ledger


_SECTIONS: dict[str, type] = {
    "what": str,
    "program": str,
    "guarantee": dict,
    "not_protected": list,
    "plan": dict,
    "spent": dict,
    "run_key": dict,
    "tokenizer": str,
    "columns": dict,
    "versions": dict,
    "notes": dict,
    "groups": dict,
    "input": dict,
}
_ROWS_SECTIONS: dict[str, dict[str, type]] = {"parts": {"parts": list}, "rows": {"rows": dict}}


def is_ledger(data: bytes) -> bool:
    """Returns whether this is a ledger of this package, of any schema version."""
    schema = (_json_object(data) or {}).get("schema")
    return isinstance(schema, str) and schema.startswith(SCHEMA_FAMILY)


def listed_parts(data: bytes | None) -> frozenset[str]:
    """Returns the names of the parts that a ledger lists; none if there is no ledger."""
    parts = (_json_object(data or b"") or {}).get("parts")
    return frozenset(part["name"] for part in parts or () if _is_part(part, ""))


def _json_object(data: bytes) -> dict[str, Any] | None:
    try:
        value = json.loads(data)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def is_guarantee(guarantee: Mapping[str, Any]) -> bool:
    """Returns whether a guarantee states its budget in numbers; JSON of Python may also hold NaN."""
    budget = [guarantee.get(name) for name in ("epsilon", "delta")]
    return all(
        isinstance(value, int | float) and not isinstance(value, bool) and 0 < value < upper
        for value, upper in zip(budget, (sys.float_info.max, 1), strict=True)
    )


def _is_part(part: object, stem: str) -> bool:
    """Returns whether the description of a part is complete, with nothing besides.

    The pattern is also a guard, because another name could lead out of the release's directory.
    """
    return (
        isinstance(part, dict)
        and set(part) == set(Part._fields)
        and all(_is_count(part.get(name)) for name in ("rows", "bytes"))
        and bool(re.fullmatch(r"[0-9a-f]{64}", str(part.get("sha256"))))
        and bool(PART_NAME.fullmatch(str(part.get("name"))))
        and str(part.get("name")).startswith(stem)
    )


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def ledger_path(path: str) -> str:
    """Returns the path of a release's ledger, given that path or the release's directory."""
    last = re.split(r"[/\\]", path)[-1]
    return path if last == LEDGER_NAME else FileSystems.join(path, LEDGER_NAME)


def release_folder(path: str) -> str:
    """Returns the path of a release's directory, given that path or the release's ledger."""
    return ledger_path(path)[: -len(LEDGER_NAME)] or os.curdir


def is_local(path: str) -> bool:
    """Returns whether a path is on this machine, instead of on another Beam file system."""
    return FileSystems.get_scheme(path) is None


def absolute(path: str) -> str:
    """Returns a path that means the same in the working directory of another process."""
    return os.path.abspath(path) if is_local(path) else path


def real_path(path: str) -> str:
    """Returns a path without symbolic links and without slashes at its end."""
    return (os.path.realpath(path) if is_local(path) else path).rstrip("/")


def is_inside(path: str, folder: str) -> bool:
    """Returns whether a path is a directory, or somewhere in it."""
    return f"{real_path(path)}/".startswith(f"{real_path(folder)}/")


def has_ledger(folder: str) -> bool:
    """Returns whether a directory holds the ledger of a release; a broken link counts as one."""
    ledger = f"{folder}/{LEDGER_NAME}"
    return os.path.lexists(ledger) if is_local(folder) else FileSystems.exists(ledger)


def release_around(path: str) -> str | None:
    """Returns the directory of the release that a path is in, or None; links are followed.

    The path itself may be that directory; "" stands for the root.
    """
    return next(filter(has_ledger, _upwards(real_path(path))), None)


def _upwards(path: str) -> Iterator[str]:
    """Yields a path and all directories above it, the last of which is "" or a bucket's address.

    >>> list(_upwards("/a/b")), list(_upwards("gs://a/b"))
    (['/a/b', '/a', ''], ['gs://a/b', 'gs://a'])
    """
    scheme, separator, rest = path.rpartition("://")
    while rest:
        yield scheme + separator + rest.rstrip("/")
        rest = rest.rstrip("/").rpartition("/")[0]
    if not separator:
        yield ""
