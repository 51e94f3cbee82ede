"""The programs of experiments: their options, the runs of each experiment, and tables of the results.

NOT private: results are counted on the data, under public run keys. Only for public data.
"""

import argparse
import csv
import pathlib
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from beam_dpne.cli.display import print_table
from beam_dpne.errors import BeamDpneError
from beam_dpne.mechanism.randomness import RunKey
from pipelines.experiments.experiments import Experiment, Part
from pipelines.experiments.runs import AnyRun
from pipelines.experiments.tables import Makers, Results, Table, cell_text, markdown_rows, table_of

TITLES_FILE = "reddit_titles_sample.jsonl.gz"
NOTICE = (
    "NOT PRIVATE: counted on the data, under run keys that are the public numbers 1, 2, 3, …; only for "
    "public data."
)
SUMMARY = "README.md"


class Study(NamedTuple):
    """What a program runs and shows.

    Attributes:
      title: the first line of the summary.
      paragraphs: text of the summary.
      data: descriptions of the data, by name.
      parts: the parts that were asked for.
      makers: functions that make tables, by kind.
      measure: makes a run under a run key and returns its result.
    """

    title: str
    paragraphs: Sequence[str]
    data: Mapping[str, str]
    parts: Sequence[Part]
    makers: Makers
    measure: Callable[[Any, RunKey], dict[str, Any]]


def fixed_key(number: int) -> RunKey:
    """Returns the public run key that a number stands for; 0 is that of samples of users."""
    return RunKey.from_hex(f"{number:064x}")


def numbers(text: str) -> tuple[int, ...]:
    """Returns whole numbers with commas between them."""
    return tuple(int(part) for part in text.split(","))


def names(text: str) -> tuple[str, ...]:
    """Returns names with commas between them."""
    return tuple(part for part in text.split(",") if part)


def program(name: str, description: str | None) -> argparse.ArgumentParser:
    """Returns the parser of a program, without options."""
    return argparse.ArgumentParser(
        prog=name,
        description=description,
        allow_abbrev=False,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )


def add_study_options(parser: argparse.ArgumentParser, parts: Sequence[str]) -> None:
    """Adds the options that all studies have."""
    parser.add_argument("--output", required=True, help="directory for tables and README.md")
    parser.add_argument(
        "--titles", help="JSON lines with user and text, instead of the sample in the repository"
    )
    parser.add_argument(
        "--parts", type=names, default=tuple(parts), help=f"of {', '.join(parts)}, with commas"
    )
    parser.add_argument("--quick", action="store_true", help="one key and few values, in minutes")
    parser.add_argument("--quiet", action="store_true", help="no progress on stderr")


def run(
    parser: argparse.ArgumentParser,
    argv: Sequence[str],
    command: Callable[[argparse.Namespace], None],
) -> int:
    """Parses the options, runs a command, and returns the exit status, which is 2 on wrong options."""
    given = parser.parse_args(argv)
    try:
        command(given)
    except (ValueError, OSError, BeamDpneError) as error:
        print(f"{parser.prog}: {error}", file=sys.stderr)
        return 2
    return 0


def check_parts(given: argparse.Namespace, parts: Sequence[str]) -> None:
    """Raises ValueError for parts that a study does not have."""
    if unknown := sorted(set(given.parts) - set(parts)):
        raise ValueError(f"parts must be of {', '.join(parts)}, got {', '.join(unknown)}.")


def run_study(study: Study, given: argparse.Namespace) -> None:
    """Makes the runs part by part, prints each table, and writes it as CSV and in a summary."""
    output, results = pathlib.Path(given.output), Results()
    output.mkdir(parents=True, exist_ok=True)
    lines = [study.title, "", f"> **{NOTICE}**"]
    for paragraph in study.paragraphs:
        lines += ["", paragraph]
    lines += ["", "| data | |", "|---|---|"]
    lines += [f"| {name} | {about} |" for name, about in study.data.items()]
    for part in study.parts:
        _make(study, part, results, quiet=given.quiet)
        for experiment in part.experiments:
            table = table_of(experiment, results, study.makers)
            lines += _show(table, experiment, output)
    (output / SUMMARY).write_text("\n".join(lines) + "\n", encoding="utf-8")
    print(f"Files, not private: {output} (start with {SUMMARY})")


def _make(study: Study, part: Part, results: Results, *, quiet: bool) -> None:
    runs: list[AnyRun] = [one for one in part.runs if one not in results]
    for number, one in enumerate(runs, start=1):
        started = time.monotonic()
        results[one] = study.measure(one, fixed_key(one.key))
        if not quiet:
            seconds = time.monotonic() - started
            about = f"{part.name} {number}/{len(runs)}: {one.description}"
            print(f"{about}: {seconds:.1f} s", file=sys.stderr, flush=True)


def _show(table: Table, experiment: Experiment, output: pathlib.Path) -> list[str]:
    """Prints a table, writes it as CSV, and returns its lines of the summary."""
    rows = [[cell_text(cell) for cell in row] for row in table.rows]
    if experiment.is_short:
        print_table(table.title, table.headings, rows)
    with open(output / f"{table.name}.csv", "w", encoding="utf-8", newline="") as stream:
        csv.writer(stream).writerows([table.headings, *table.rows])
    lines = ["", f"## {table.title}", ""]
    lines += markdown_rows(table) if experiment.is_short else []
    for note in table.notes:
        lines += ["", note]
    return [*lines, "", f"Table: [{table.name}.csv]({table.name}.csv)"]
