"""`beam-dpne show`: a first look at a release."""

import io
import sys

import pyarrow as pa

from beam_dpne.cli import display
from beam_dpne.cli.settings import Showing
from beam_dpne.exports.writing import csv_text
from beam_dpne.jobs.made import Made
from beam_dpne.release.first_look import FIRST_ROWS, Choice, FirstLook, first_look
from beam_dpne.release.parts import PROGRAMS, render_parts
from beam_dpne.release.reading import Release, read_release
from beam_dpne.release.wording import shown
from beam_dpne.storage.directories import check_access


def show(made: Made, _beam_arguments: list[str]) -> None:
    """Prints rows of a release, as a first look or as lines for other programs.

    Raises:
      UsageError: A parameter is wrong.
      ReleaseError: The release is incomplete, damaged or being replaced.
    """
    asked = made[Showing]
    check_access([asked.release], [])
    release = read_release(asked.release)
    top = asked.top
    if top is None and asked.format == "table":
        top = FIRST_ROWS
    choice = Choice(length=asked.length, group=asked.group, at_least=asked.at_least, top=top)
    if asked.format == "table":
        _print_look(first_look(release, choice))
    else:
        _write(_lines(release, choice.rows(release), asked.format))


def _print_look(look: FirstLook) -> None:
    if look.rows:
        display.print_table(shown(look.title), look.rows)
    else:
        display.print_line(shown(look.title))
    for line in (look.size, look.shown, look.guarantee, look.limits):
        if line:
            display.print_line(shown(line, 1000))
    count = len(look.not_protected)
    display.print_line(f"The ledger has all {count} limits of the guarantee, as not_protected.")


def _lines(release: Release, rows: pa.Table, name: str) -> bytes:
    """Returns all columns of rows as CSV that spreadsheets can open without risk, or as JSON lines."""
    if name == "csv":
        return csv_text(rows).encode()
    return next(render_parts(PROGRAMS[release.program], rows, name, max(1, len(rows))))[1]


def _write(data: bytes) -> None:
    """Writes UTF-8 to stdout, whatever encoding a terminal has."""
    sys.stdout.flush()
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.buffer.write(data)
        sys.stdout.buffer.flush()
    else:
        sys.stdout.write(data.decode())
