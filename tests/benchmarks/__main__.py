"""python -m tests.benchmarks [--titles PATH] [--small] [--only NAME ...] [--repeats N] [--json PATH]

Measures whole processes of the product and of the floor in turn, and prints the medians beside
their targets. A missed target is a finding, not a failure: the exit status is 0. The targets are for
all of MSNBC and for the full set of titles: of the sample that is shipped, and with --small, start-up
is nearly all of the time.
"""

import argparse
import json
import os
import pathlib
import platform
import sys
import tempfile
from collections.abc import Sequence

import psutil

from tests.benchmarks import (
    bayesian,
    beam_yaml,
    comparison,
    growth,
    inputs,
    levels,
    passes,
    profiling,
    report,
    strategies,
)
from tests.benchmarks.workloads import Setting

BENCHMARKS = {
    "msnbc": comparison.measure_msnbc,
    "titles": comparison.measure_titles,
    "bayesian": bayesian.measure,
    "strategies": strategies.measure,
    "growth": growth.measure,
    "passes": passes.measure,
    "levels": levels.measure,
    "profile": profiling.measure,
    "yaml": beam_yaml.measure,
}


def main(arguments: Sequence[str] | None = None) -> int:
    given = _parse(arguments)
    found: dict[str, report.Report] = {}
    machine = _machine()
    with tempfile.TemporaryDirectory() as work:
        setting = Setting(given.titles, given.small, given.repeats, pathlib.Path(work))
        for name in given.only:
            print(f"{name}:", file=sys.stderr)
            found[name] = BENCHMARKS[name](setting)
    heading = f"Medians of {given.repeats}, titles: {given.titles.name}, {_describe(machine)}"
    report.print_reports(list(found.values()), heading)
    if given.json:
        _write_json(given, machine, found)
    return 0


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument(
        "--titles",
        type=lambda path: pathlib.Path(path).resolve(strict=True),
        default=inputs.TITLES,
        help="JSON lines of user and text, gzipped (default: the sample that is shipped)",
    )
    parser.add_argument("--small", action="store_true", help="a part of the data, for a quick look")
    parser.add_argument(
        "--only", nargs="+", choices=BENCHMARKS, default=list(BENCHMARKS), help="(default: all)"
    )
    parser.add_argument("--repeats", type=int, help="(default: 3, with --small 1)")
    parser.add_argument("--json", type=pathlib.Path, help="also write everything there")
    given = parser.parse_args(arguments)
    if given.repeats is None:
        given.repeats = 1 if given.small else 3
    if given.repeats < 1:
        parser.error(f"argument --repeats: must be at least 1, got {given.repeats}")
    return given


def _machine() -> dict[str, float | int | str]:
    return {
        "processors": os.cpu_count() or 0,
        "memory_gigabytes": round(psutil.virtual_memory().total / 1e9, 1),
        "python": platform.python_version(),
        "load_at_start": round(os.getloadavg()[0], 2),
    }


def _describe(machine: dict[str, float | int | str]) -> str:
    return "{processors} processors, Python {python}, load {load_at_start} at start".format(
        **machine
    )


def _write_json(given: argparse.Namespace, machine: dict, found: dict[str, report.Report]) -> None:
    content = {
        "machine": machine,
        "repeats": given.repeats,
        "small": given.small,
        "titles": given.titles.name,
        "benchmarks": {name: result.as_json() for name, result in found.items()},
    }
    given.json.write_text(json.dumps(content, indent=1, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    sys.exit(main())
