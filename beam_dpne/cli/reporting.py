"""`beam-dpne report`: a description of a release for its readers."""

import argparse
from collections.abc import Mapping
from typing import Any

from beam_dpne.cli import display
from beam_dpne.cli.options import options_of, with_defaults
from beam_dpne.cli.options_by_command import REPORT
from beam_dpne.errors import UsageError
from beam_dpne.release.beside import OutputFile
from beam_dpne.report.document import PARTS, PUBLIC, render_report
from beam_dpne.report.facts import Facts
from beam_dpne.storage.access import check_access

_OUTPUTS = {"html": "report.html", "markdown": "report.md"}


def run_command(parsed: argparse.Namespace, _beam_arguments: list[str]) -> None:
    """Reads a release, and writes its report.

    Raises:
      UsageError: An option is wrong, or the report cannot be written.
      ReleaseError: The release is incomplete, damaged or being replaced.
    """
    values = with_defaults(parsed, options_of(REPORT))
    output_format, output = _format_and_output(values)
    _check(values)
    check_access([values["release"]], [])
    facts = Facts.read(values["release"])
    file = OutputFile.at(output, release=values["release"], overwrite=values["overwrite"])
    data = render_report(
        facts,
        output_format=output_format,
        left_out=_left_out(values),
        top_rows=values["top_rows"],
        search_rows=values["search_rows"],
    )
    file.write(data)
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
