"""`beam-dpne report`: a description of a release for its readers."""

import argparse
import re
from collections.abc import Mapping
from typing import Any

from apache_beam.io.filesystems import FileSystems

from beam_dpne.cli import display
from beam_dpne.cli.options import options_of, with_defaults
from beam_dpne.cli.options_by_command import REPORT
from beam_dpne.errors import ReportError, UsageError
from beam_dpne.release.files import is_inside, release_around, release_folder
from beam_dpne.report.document import PARTS, PUBLIC, render_report
from beam_dpne.report.facts import Facts
from beam_dpne.storage.access import check_access, directory_at
from beam_dpne.storage.directories import Directory, reason

_OUTPUTS = {"html": "report.html", "markdown": "report.md"}


def run_command(parsed: argparse.Namespace, _beam_arguments: list[str]) -> None:
    """Reads a release, and writes its report.

    Raises:
      UsageError: An option is wrong.
      ReleaseError: The release is incomplete, damaged or being replaced.
      ReportError: The report cannot be written.
    """
    values = with_defaults(parsed, options_of(REPORT))
    output_format, output = _format_and_output(values)
    _check(values)
    check_access([values["release"]], [])
    facts = Facts.read(values["release"])
    directory, name = _place(output, values["release"], overwrite=values["overwrite"])
    data = render_report(
        facts,
        output_format=output_format,
        left_out=_left_out(values),
        top_rows=values["top_rows"],
        search_rows=values["search_rows"],
    )
    try:
        with directory.locked():
            directory.put(name, data)
    except OSError as error:
        raise _cannot_be_written(output, error) from None
    if not values["quiet"]:
        display.print_notice(f"beam-dpne: the report is in {output}.")


def _format_and_output(values: Mapping[str, Any]) -> tuple[str, str]:
    """Returns the format and the path of the report; one tells the other."""
    is_markdown = (values["output"] or "").lower().endswith(".md")
    output_format = values["format"] or ("markdown" if is_markdown else "html")
    return output_format, values["output"] or _OUTPUTS[output_format]


def _check(values: Mapping[str, Any]) -> None:
    """Raises UsageError for options that are wrong whatever the release is."""
    if not values["release"]:
        raise UsageError("release must be given: beam-dpne report RELEASE.")
    for name in ("top_rows", "search_rows"):
        if values[name] < 0:
            raise UsageError(f"{name} must be at least 0, got {name}={values[name]}.")
    for name in values["leave_out"] or ():
        if name not in PARTS:
            raise UsageError(f"leave_out must name parts among {', '.join(PARTS)}, got {name!r}.")


def _left_out(values: Mapping[str, Any]) -> frozenset[str]:
    return frozenset([*(PUBLIC if values["public"] else ()), *(values["leave_out"] or ())])


def _place(output: str, release: str, *, overwrite: bool) -> tuple[Directory, str]:
    """Returns the directory and the name of a file to write, which must not be in a release.

    Raises:
      UsageError: The file is in a release, or exists.
      ReportError: The directory cannot be read.
    """
    folder, name = _parent_and_name(output)
    if not name or output.endswith(("/", "\\")):
        raise UsageError(f"output must be the path of a file, got output={output}.")
    if is_inside(output, release_folder(release)) or release_around(folder) is not None:
        raise UsageError(
            f"output must be outside every release, got output={output}: a later release in the "
            "same directory would have a report of an earlier one beside it."
        )
    check_access([], [folder])
    directory = directory_at(folder)
    try:
        if name in directory.names() and not overwrite:
            raise UsageError(f"output must be a new file, got output={output}; give --overwrite.")
    except OSError as error:
        raise _cannot_be_written(output, error) from None
    return directory, name


def _parent_and_name(output: str) -> tuple[str, str]:
    """Returns the directory of a file, "." for a name alone, and the name.

    >>> _parent_and_name("report.html"), _parent_and_name("/notes/may.md")
    (('.', 'report.html'), ('/notes', 'may.md'))
    """
    if FileSystems.get_scheme(output) is None and not re.search(r"[/\\]", output):
        return ".", output
    folder, name = FileSystems.split(output)
    return folder, name


def _cannot_be_written(output: str, error: OSError) -> ReportError:
    return ReportError(
        f"output must be a file that can be written, got output={output}: {reason(error)}."
    )
