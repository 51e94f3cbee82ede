"""`beam-dpne compare`: what changed between two releases."""

import pyarrow as pa

from beam_dpne.cli import display
from beam_dpne.cli.settings import Comparing
from beam_dpne.errors import UsageError
from beam_dpne.exports.writing import csv_text
from beam_dpne.jobs.made import Made
from beam_dpne.release.changes import compare_releases, differences, told_changes
from beam_dpne.release.parts import PROGRAMS, render_parts
from beam_dpne.release.places import check_outside
from beam_dpne.release.publishing import write_file
from beam_dpne.release.reading import read_release
from beam_dpne.storage.directories import check_access

_SUFFIXES = (".jsonl", ".csv", ".parquet")


def compare(made: Made, _beam_arguments: list[str]) -> None:
    """Prints what changed between two releases, and writes it to the file `output`.

    Raises:
      UsageError: A parameter is wrong, or the releases cannot be compared.
      ReleaseError: A release is incomplete, damaged or being replaced.
    """
    asked = made[Comparing]
    releases = asked.releases
    output = asked.output
    if len(releases) != 2:
        raise UsageError(f"`releases` must be two, the old and the new one, got {len(releases)}.")
    if output is not None and not output.lower().endswith(_SUFFIXES):
        raise UsageError(f"`output` must end in {', '.join(_SUFFIXES)}, got `output={output}`.")
    if output is not None:
        check_outside("output", output)
    check_access(releases, [])
    old, new = map(read_release, releases)
    changes = compare_releases(old, new)
    tables, sentences = told_changes(changes, 5, differences(old, new), program=new.program)
    if old.ledger_sha256 == new.ledger_sha256:
        display.print_line("Both are the same release, so that nothing can have changed.")
    for title, rows in tables.items():
        display.print_table(title, rows)
    for sentence in sentences:
        display.print_line(sentence)
    if output is not None:
        write_file(output, _rendered(changes, output), release=new.path, overwrite=asked.overwrite)
        display.print_notice(f"the changes are in {output}.")


def _rendered(changes: pa.Table, output: str) -> bytes:
    suffix = output.lower().rpartition(".")[2]
    if suffix == "csv":
        return csv_text(changes).encode()
    return next(render_parts(PROGRAMS["ngrams"], changes, suffix, max(1, len(changes))))[1]
