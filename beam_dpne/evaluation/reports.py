"""Evaluations as files of the operator: tables, pictures, and where they must not be written."""

import contextlib
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from apache_beam.io.filesystems import FileSystems

from beam_dpne.errors import ReportError
from beam_dpne.evaluation.coverage import Coverage, Evaluation
from beam_dpne.evaluation.plots import plots
from beam_dpne.evaluation.secrecy import NOTICE, PREFIX, SECRET, table_text
from beam_dpne.release.ledger import LEDGER_NAME, ledger_path, reason
from beam_dpne.storage.access import directory_at

_COVERAGE = (
    *("released", "real", "spurious", "spurious_ratio", "occurrences", "occurrences_covered"),
    *("occurrence_share", "users", "mean_user_share", "median_user_share"),
)


def report_files(
    evaluation: Evaluation,
    facts: Mapping[str, Any],
    *,
    caption: str,
    spurious_fraction: float | None,
    noun: str = "n-grams",
) -> dict[str, bytes]:
    """Returns the files of an evaluation, each of which says that it is not private.

    Args:
      evaluation: of a release.
      facts: what was compared, as JSON types.
      caption: ε, δ, data and release, for the pictures (see `headings.caption_text`).
      spurious_fraction: η of the release, if it has one.
      noun: what is released.

    Returns:
      By name: the whole as JSON, one CSV of coverage and one of k-anonymity, both with a column that
      says so in every row, and the pictures.

    Raises:
      PlotsUnavailableError: matplotlib is not installed.
    """
    pictures = plots(evaluation, caption=caption, spurious_fraction=spurious_fraction, noun=noun)
    files = {
        "evaluation.json": _json(evaluation, facts),
        "coverage.csv": _csv(("length", *_COVERAGE), _coverage_rows(evaluation)),
        "k_anonymity.csv": _csv(
            ("length", "k", "held", "released", "share", "size_ratio"), _anonymity_rows(evaluation)
        ),
        **{f"{name}.png": picture for name, picture in pictures.items()},
    }
    return {PREFIX + name: data for name, data in files.items()}


def check_apart(output: str, release: str) -> None:
    """Checks that a directory is neither a release nor inside one.

    Links are followed, and every directory above is looked at.

    Args:
      output: directory for what is not private, local or on any Beam file system; may be missing.
      release: a release's directory, or its ledger.

    Raises:
      ReportError: if it is.
    """
    if not output:
        raise ReportError("output must be the path of a directory, got output=''.")
    own = _real(ledger_path(release)[: -len(LEDGER_NAME)] or os.curdir)
    for place in _upwards(_real(output)):
        if place == own or _is_release(place):
            raise ReportError(
                f"output must be outside every release, got output={output}, which is in "
                f"{place or '/'}: what is computed from the private data is as secret as they are."
            )


def check_writable(output: str) -> None:
    """Checks that files can be put into a directory; writes nothing that stays.

    Raises:
      ReportError: if they cannot.
    """
    with _told(output):
        directory = directory_at(output)
        directory.names()
        directory.probe()


def write_report(output: str, release: str, files: Mapping[str, bytes]) -> None:
    """Writes the files of an evaluation; those of an earlier one are replaced.

    Raises:
      ReportError: if the directory is inside a release, or cannot be written.
    """
    check_apart(output, release)
    with _told(output):
        directory = directory_at(output)
        with directory.locked():
            directory.names()
            for name, data in files.items():
                directory.put(name, data)


def _real(path: str) -> str:
    local = FileSystems.get_scheme(path) is None
    return (os.path.realpath(path) if local else path).rstrip("/")


def _upwards(path: str) -> Iterator[str]:
    """Yields a path and all above it; "" is the root, of a bucket the last is its address."""
    scheme, separator, rest = path.rpartition("://")
    while rest:
        yield scheme + separator + rest.rstrip("/")
        rest = rest.rstrip("/").rpartition("/")[0]
    if not separator:
        yield ""


def _is_release(place: str) -> bool:
    if FileSystems.get_scheme(place) is None:
        return os.path.lexists(f"{place}/{LEDGER_NAME}")
    return FileSystems.exists(f"{place}/{LEDGER_NAME}")


@contextlib.contextmanager
def _told(output: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise ReportError(
            f"output must be a directory that can be written, got output={output}: {reason(error)}."
        ) from None


def _json(evaluation: Evaluation, facts: Mapping[str, Any]) -> bytes:
    rows = [{"length": _name(row), **_values(row)} for row in evaluation.rows]
    for described, row in zip(rows, evaluation.rows, strict=True):
        described["k_anonymity"] = [own._asdict() for own in row.k_anonymity]
    whole = {"notice": NOTICE, **facts, "coverage": rows}
    return (json.dumps(whole, indent=2, ensure_ascii=False, allow_nan=False) + "\n").encode()


def _coverage_rows(evaluation: Evaluation) -> list[tuple[Any, ...]]:
    return [(_name(row), *_values(row).values()) for row in evaluation.rows]


def _anonymity_rows(evaluation: Evaluation) -> list[tuple[Any, ...]]:
    return [(_name(row), *own) for row in evaluation.rows for own in row.k_anonymity]


def _name(row: Coverage) -> int | str:
    return "all" if row.length is None else row.length


def _values(row: Coverage) -> dict[str, Any]:
    return {name: getattr(row, name) for name in _COVERAGE}


def _csv(headings: Sequence[str], rows: Sequence[Sequence[Any]]) -> bytes:
    return table_text(headings, rows, SECRET).encode()
