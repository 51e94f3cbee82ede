"""An evaluation as files of the operator, tables and pictures, which must not be in a release."""

import contextlib
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from beam_dpne.errors import ReportError
from beam_dpne.evaluation.coverage import Coverage, Evaluation
from beam_dpne.evaluation.plots import plots
from beam_dpne.evaluation.secrecy import NOTICE, PREFIX, SECRET, table_text
from beam_dpne.release.ledger import LEDGER_NAME, ledger_path, reason
from beam_dpne.release.paths import is_inside, real_path, release_around
from beam_dpne.storage.access import directory_at

_COVERAGE = (
    *("released", "real", "spurious", "spurious_ratio", "occurrences", "occurrences_covered"),
    *("occurrence_share", "users", "mean_user_share", "median_user_share"),
)


def report_files(
    evaluation: Evaluation,
    compared: Mapping[str, Any],
    *,
    caption: str,
    spurious_fraction: float | None,
    noun: str = "n-grams",
) -> dict[str, bytes]:
    """Returns the files of an evaluation, each of which says that it is not private.

    Args:
      evaluation: of a release.
      compared: description of the release and the data, as JSON types.
      caption: ε, δ, data and release, for the pictures (see `headings.caption_text`).
      spurious_fraction: η of the release, if it has one.
      noun: what is released.

    Returns:
      The bytes of each file by its name: all figures as JSON; one CSV of coverage and one of
      k-anonymity, which say in a column of every row that they are not private; and the pictures.

    Raises:
      PlotsUnavailableError: matplotlib is not installed.
    """
    pictures = plots(evaluation, caption=caption, spurious_fraction=spurious_fraction, noun=noun)
    files = {
        "evaluation.json": _json(evaluation, compared),
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
      output: directory for files that are not private, local or on any Beam file system; it may be
        missing.
      release: a release's directory, or its ledger.

    Raises:
      ReportError: if it is one, or inside one.
    """
    if not output:
        raise ReportError("output must be the path of a directory, got output=''.")
    judged = real_path(ledger_path(release)[: -len(LEDGER_NAME)] or os.curdir)
    folder = judged if is_inside(output, judged) else release_around(output)
    if folder is not None:
        raise ReportError(
            f"output must be outside every release, got output={output}, which is in "
            f"{folder or '/'}: what is computed from the private data is as secret as they are."
        )


def check_writable(output: str) -> None:
    """Checks that files can be put into a directory; writes nothing that stays.

    Raises:
      ReportError: if they cannot.
    """
    with _writing_to(output):
        directory = directory_at(output)
        directory.names()
        directory.probe()


def write_report(output: str, release: str, files: Mapping[str, bytes]) -> None:
    """Writes the files of an evaluation; those of an earlier one are replaced.

    Raises:
      ReportError: if the directory is inside a release, or cannot be written.
    """
    check_apart(output, release)
    with _writing_to(output):
        directory = directory_at(output)
        with directory.locked():
            directory.names()
            for name, data in files.items():
                directory.put(name, data)


@contextlib.contextmanager
def _writing_to(output: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise ReportError(
            f"output must be a directory that can be written, got output={output}: {reason(error)}."
        ) from None


def _json(evaluation: Evaluation, compared: Mapping[str, Any]) -> bytes:
    rows = [{"length": _name(row), **_values(row)} for row in evaluation.rows]
    for described, row in zip(rows, evaluation.rows, strict=True):
        described["k_anonymity"] = [anonymity._asdict() for anonymity in row.k_anonymity]
    whole = {"notice": NOTICE, **compared, "coverage": rows}
    return (json.dumps(whole, indent=2, ensure_ascii=False, allow_nan=False) + "\n").encode()


def _coverage_rows(evaluation: Evaluation) -> list[tuple[Any, ...]]:
    return [(_name(row), *_values(row).values()) for row in evaluation.rows]


def _anonymity_rows(evaluation: Evaluation) -> list[tuple[Any, ...]]:
    return [(_name(row), *each) for row in evaluation.rows for each in row.k_anonymity]


def _name(row: Coverage) -> int | str:
    return "all" if row.length is None else row.length


def _values(row: Coverage) -> dict[str, Any]:
    return {name: getattr(row, name) for name in _COVERAGE}


def _csv(headings: Sequence[str], rows: Sequence[Sequence[Any]]) -> bytes:
    return table_text(headings, rows, SECRET).encode()
