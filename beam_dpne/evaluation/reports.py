"""The files of an evaluation, tables and pictures for the operator, which must not be in a release."""

import contextlib
import dataclasses
import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from beam_dpne.errors import ReportError
from beam_dpne.evaluation.counts import CountQuality
from beam_dpne.evaluation.coverage import Anonymity, Coverage, Evaluation
from beam_dpne.evaluation.secrecy import NOTICE, PREFIX, SECRET, table_text
from beam_dpne.release.files import is_inside, real_path, release_around, release_folder
from beam_dpne.storage.access import directory_at
from beam_dpne.storage.directories import reason

_COVERAGE = (
    *("released", "real", "spurious", "spurious_ratio", "occurrences", "occurrences_covered"),
    *("occurrence_share", "pairs", "pairs_covered", "missing_mass", "missing_occurrences"),
    *("users", "mean_user_share", "median_user_share"),
)
_COUNTS = tuple(field.name for field in dataclasses.fields(CountQuality) if field.name != "length")


def report_files(
    evaluation: Evaluation,
    counts: Sequence[CountQuality],
    compared: Mapping[str, Any],
    picture: bytes,
) -> dict[str, bytes]:
    """Returns the files of an evaluation, each of which says that it is not private.

    Args:
      evaluation: Evaluation of a release.
      counts: Quality of its numbers of users and scores, of each length and of all together.
      compared: Description of the release and the data, as JSON types.
      picture: The picture of the evaluation.

    Returns:
      The bytes of each file by its name: all figures as JSON; one CSV each of coverage, of k-anonymity
      and of the quality of counts, which say in a column of every row that they are not private; and
      the picture.
    """
    files = {
        "evaluation.json": _json(evaluation, counts, compared),
        "coverage.csv": _csv(("length", *_COVERAGE), _coverage_rows(evaluation)),
        "k_anonymity.csv": _csv(("length", *Anonymity._fields), _anonymity_rows(evaluation)),
        "counts.csv": _csv(("length", *_COUNTS), _count_rows(counts)),
        "evaluation.png": picture,
    }
    return {PREFIX + name: data for name, data in files.items()}


def check_apart(output: str, release: str) -> None:
    """Checks that a directory is neither a release nor inside one.

    Links are followed, and all directories above are checked too.

    Args:
      output: Directory for files that are not private, local or on any Beam file system; it may be
        missing.
      release: Path of a release's directory, or of its ledger.

    Raises:
      ReportError: The directory is a release, or inside one.
    """
    if not output:
        raise ReportError("output must be the path of a directory, got output=''.")
    judged = real_path(release_folder(release))
    folder = judged if is_inside(output, judged) else release_around(output)
    if folder is not None:
        raise ReportError(
            f"output must be outside every release, got output={output}, which is in "
            f"{folder or '/'}: files computed from the private data are as secret as the data."
        )


def check_writable(output: str) -> None:
    """Checks that files can be written into a directory, and leaves none there.

    Raises:
      ReportError: No file can be written there.
    """
    with _writing_to(output):
        directory = directory_at(output)
        directory.names()
        directory.probe()


def write_report(output: str, release: str, files: Mapping[str, bytes]) -> None:
    """Writes the files of an evaluation; those of an earlier one are replaced.

    Raises:
      ReportError: The directory is inside a release, or cannot be written.
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


def _json(
    evaluation: Evaluation, counts: Sequence[CountQuality], compared: Mapping[str, Any]
) -> bytes:
    rows = [
        {
            "length": _name(row),
            **_values(row),
            "k_anonymity": [anonymity._asdict() for anonymity in row.k_anonymity],
        }
        for row in evaluation.rows
    ]
    qualities = [dict(zip(("length", *_COUNTS), row, strict=True)) for row in _count_rows(counts)]
    whole = {"notice": NOTICE, **compared, "coverage": rows, "counts": qualities}
    return (json.dumps(whole, indent=2, ensure_ascii=False, allow_nan=False) + "\n").encode()


def _coverage_rows(evaluation: Evaluation) -> list[tuple[Any, ...]]:
    return [(_name(row), *_values(row).values()) for row in evaluation.rows]


def _anonymity_rows(evaluation: Evaluation) -> list[tuple[Any, ...]]:
    return [(_name(row), *each) for row in evaluation.rows for each in row.k_anonymity]


def _count_rows(counts: Sequence[CountQuality]) -> list[tuple[Any, ...]]:
    return [(_name(row), *(getattr(row, name) for name in _COUNTS)) for row in counts]


def _name(row: Coverage | CountQuality) -> int | str:
    return "all" if row.length is None else row.length


def _values(row: Coverage) -> dict[str, Any]:
    return {name: getattr(row, name) for name in _COVERAGE}


def _csv(headings: Sequence[str], rows: Sequence[Sequence[Any]]) -> bytes:
    return table_text(headings, rows, SECRET).encode()
