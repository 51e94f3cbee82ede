"""`beam-dpne report`: a description of a release for its readers, and its record for a registry."""

import argparse
import dataclasses
import re
from collections.abc import Mapping
from typing import Any

from apache_beam.io.filesystems import FileSystems

from beam_dpne.cli import display
from beam_dpne.cli.options import options_of, with_defaults
from beam_dpne.cli.options_by_command import REPORT
from beam_dpne.errors import ReportError, UsageError
from beam_dpne.release.files import is_inside, release_around, release_folder
from beam_dpne.report.document import render_report
from beam_dpne.report.facts import read_facts
from beam_dpne.report.left_out import PARTS, PUBLIC
from beam_dpne.report.registry import Deployment, record_bytes, record_name, registry_record
from beam_dpne.storage.access import check_access, directory_at
from beam_dpne.storage.directories import Directory, reason

_OUTPUTS = {"html": "report.html", "markdown": "report.md"}
# The options of the record are the facts of a `Deployment`.
_FACTS = tuple(field.name for field in dataclasses.fields(Deployment))


def run_command(parsed: argparse.Namespace, _beam_arguments: list[str]) -> None:
    """Reads a release, and writes its report.

    Raises:
      UsageError: An option is wrong.
      ReleaseError: The release is incomplete, damaged or being replaced.
      ReportError: The report cannot be written.
    """
    values = with_defaults(parsed, options_of(REPORT))
    output_format, output = _format_and_output(values)
    _check(values, output)
    check_access([values["release"]], [])
    outputs = {"output": output}
    if values["registry"]:
        outputs["registry"] = values["registry"]
    facts, left_out = read_facts(values["release"]), _left_out(values)
    files: dict[str, bytes] = {}
    wanted_name = ""
    if values["registry"]:
        deployment = Deployment(**{name: values[name] for name in _FACTS})
        record = registry_record(facts, deployment, left_out=left_out)
        files["registry"], wanted_name = record_bytes(record), record_name(record)
    places = {
        option: _place(option, path, values["release"], overwrite=values["overwrite"])
        for option, path in outputs.items()
    }
    files["output"] = render_report(
        facts,
        output_format=output_format,
        left_out=left_out,
        top_rows=values["top_rows"],
        search_rows=values["search_rows"],
    )
    for option, data in files.items():
        directory, name = places[option]
        try:
            with directory.locked():
                directory.put(name, data)
        except OSError as error:
            raise _cannot_be_written(option, outputs[option], error) from None
    if values["quiet"]:
        return
    display.print_notice(f"beam-dpne: the report is in {outputs['output']}.")
    if values["registry"]:
        display.print_notice(
            f"beam-dpne: the record is in {outputs['registry']}. The registry wants the name "
            f"{wanted_name}."
        )


def _format_and_output(values: Mapping[str, Any]) -> tuple[str, str]:
    """Returns the format and the path of the report; one tells the other."""
    is_markdown = (values["output"] or "").lower().endswith(".md")
    output_format = values["format"] or ("markdown" if is_markdown else "html")
    return output_format, values["output"] or _OUTPUTS[output_format]


def _check(values: Mapping[str, Any], output: str) -> None:
    """Raises UsageError for options that are wrong whatever the release is."""
    if not values["release"]:
        raise UsageError("release must be given: beam-dpne report RELEASE.")
    for name in ("top_rows", "search_rows"):
        if values[name] < 0:
            raise UsageError(f"{name} must be at least 0, got {name}={values[name]}.")
    for name in values["leave_out"] or ():
        if name not in PARTS:
            raise UsageError(f"leave_out must name parts among {', '.join(PARTS)}, got {name!r}.")
    for name in _FACTS:
        if values[name] and not values["registry"]:
            raise UsageError(
                f"{name} must come with --registry FILE, whose record it is for, or be left out."
            )
    if values["registry"] and values["registry"] == output:
        raise UsageError(
            f"registry and output must be different files, got registry={values['registry']}."
        )


def _left_out(values: Mapping[str, Any]) -> frozenset[str]:
    return frozenset([*(PUBLIC if values["public"] else ()), *(values["leave_out"] or ())])


def _place(option: str, output: str, release: str, *, overwrite: bool) -> tuple[Directory, str]:
    """Returns the directory and the name of a file to write, which must not be in a release.

    Raises:
      UsageError: The file is in a release, or exists.
      ReportError: The directory cannot be read.
    """
    folder, name = _parent_and_name(output)
    if not name or output.endswith(("/", "\\")):
        raise UsageError(f"{option} must be the path of a file, got {option}={output}.")
    if is_inside(output, release_folder(release)) or release_around(folder) is not None:
        raise UsageError(
            f"{option} must be outside every release, got {option}={output}: a later release in the "
            "same directory would have a report of an earlier one beside it."
        )
    check_access([], [folder])
    directory = directory_at(folder)
    try:
        if name in directory.names() and not overwrite:
            raise UsageError(
                f"{option} must be a new file, got {option}={output}; give --overwrite."
            )
    except OSError as error:
        raise _cannot_be_written(option, output, error) from None
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


def _cannot_be_written(option: str, output: str, error: OSError) -> ReportError:
    return ReportError(
        f"{option} must be a file that can be written, got {option}={output}: {reason(error)}."
    )
