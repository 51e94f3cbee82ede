"""python -m tests.benchmarks [--titles PATH] [--public_text PATH] [--only NAME ...] [--json PATH]

Measures whole processes of the product and of the floor in turn, and prints the medians of their
ratios beside their targets. A missed target is a finding, not a failure: the exit status is 0. The
targets are for all of MSNBC, for the full set of titles and for the full public text: of the sample
that is shipped, and with --small, start-up is nearly all of the time.
"""

import argparse
import json
import os
import pathlib
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tests.benchmarks import (
    bayesian,
    beam_yaml,
    growth,
    inputs,
    levels,
    machine,
    passes,
    profiling,
    report,
    table,
)
from tests.benchmarks.workloads import Setting

_Parts = Mapping[str, Callable[[Setting], report.Report]]

TABLE: _Parts = {
    "start_up": table.measure_start_up,
    "msnbc": table.measure_msnbc,
    "titles": table.measure_titles,
    "long_users": table.measure_long_users,
    "protocol": table.measure_protocol,
}
OTHERS: _Parts = {
    "bayesian": bayesian.measure,
    "growth": growth.measure,
    "passes": passes.measure,
    "levels": levels.measure,
    "profile": profiling.measure,
    "yaml": beam_yaml.measure,
}
BENCHMARKS: _Parts = {**TABLE, **OTHERS}


def main(arguments: Sequence[str] | None = None) -> int:
    given = _parse(arguments)
    found: dict[str, report.Report] = {}
    run = machine.describe()
    with tempfile.TemporaryDirectory() as work:
        texts = given.titles, given.public_text
        setting = Setting(*texts, given.small, given.repeats, pathlib.Path(work))
        for name in given.only:
            print(f"{name}:", file=sys.stderr)
            found[name] = BENCHMARKS[name](setting)
    run["load_at_end"] = round(os.getloadavg()[0], 2)
    titles = f"titles: {given.titles.name}"
    heading = f"Medians of {given.repeats}, {titles}, {machine.in_one_line(run)}"
    report.print_reports(list(found.values()), heading)
    for sentence in about_targets(given):
        print(sentence)
    if given.json:
        _write_json(given, run, found)
    return 0


def about_targets(given: argparse.Namespace) -> list[str]:
    """Says of which data the targets are, where other data were measured."""
    if given.small:
        return ["The data were cut, so the verdicts count for nothing: targets are for full data."]
    sentences = []
    parts = (("titles", "titles", given.titles), ("long_users", "public text", given.public_text))
    for part, name, path in parts:
        if part in given.only and path == inputs.TITLES:
            sentences.append(
                f"The targets of the {name} are for the full {name}; this is the shipped sample, of "
                "which start-up is nearly all of the time, so its verdicts count for nothing."
            )
    return sentences


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument(
        "--titles",
        type=inputs.existing_file,
        default=inputs.TITLES,
        help="JSON lines of user and text, gzipped (default: the sample that is shipped)",
    )
    parser.add_argument(
        "--public_text",
        type=inputs.existing_file,
        default=inputs.TITLES,
        help="texts for made-up users of 2,000 words each, one a line, or JSON lines of text "
        "(default: the sample that is shipped)",
    )
    parser.add_argument("--small", action="store_true", help="a part of the data, for a quick look")
    parser.add_argument(
        "--only",
        nargs="+",
        choices=BENCHMARKS,
        default=list(TABLE),
        help=f"(default: {' '.join(TABLE)})",
    )
    parser.add_argument("--repeats", type=int, help="(default: 5, with --small 1)")
    parser.add_argument("--json", type=inputs.in_a_folder, help="also write everything there")
    given = parser.parse_args(arguments)
    if given.repeats is None:
        given.repeats = 1 if given.small else 5
    if given.repeats < 1:
        parser.error(f"argument --repeats: must be at least 1, got {given.repeats}")
    return given


def _write_json(
    given: argparse.Namespace, run: dict[str, Any], found: dict[str, report.Report]
) -> None:
    content = {
        **run,
        "repeats": given.repeats,
        "small": given.small,
        "titles": given.titles.name,
        "public_text": given.public_text.name,
        "benchmarks": {name: result.as_json() for name, result in found.items()},
    }
    given.json.write_text(json.dumps(content, indent=1, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    sys.exit(main())
