"""Studies: experiments as lists of runs, and the program that makes them into tables in one folder.

NOT private: results are counted on the data, under public run keys. Only for public data.
"""

import argparse
import csv
import dataclasses
import pathlib
import statistics
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from beam_dpne.cli.display import print_table
from beam_dpne.errors import BeamDpneError
from beam_dpne.mechanism.randomness import RunKey
from pipelines.experiments.printed import PrintedTable

TITLES_FILE = "reddit_titles_sample.jsonl.gz"
NOTICE = (
    "NOT PRIVATE: counted on the data, under run keys that are the public numbers 1, 2, 3, …; only for "
    "public data."
)
SUMMARY = "README.md"
Cell = str | int | float | None
Result = Mapping[str, Any]


class Run(NamedTuple):
    """What is run: the name of the data, the parameters, and the number of the run key."""

    corpus: str
    plan: Any
    key: int


@dataclasses.dataclass(frozen=True, kw_only=True)
class Row:
    """One row of a table or one point of a curve: the same run under several keys.

    Attributes:
      label: Name of the row.
      plan: The parameters of the run.
      keys: Numbers of the run keys.
      at: Value of the parameter that is varied, or None.
    """

    label: str
    plan: Any
    keys: tuple[int, ...]
    at: float | str | None = None


# The rows of an experiment, each with the results of its runs.
Measured = Sequence[tuple[Row, Sequence[Result]]]
# Headings, rows and notes of a table.
Made = tuple[Sequence[str], Iterable[Sequence[Cell]], Sequence[str]]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Experiment:
    """One table.

    Attributes:
      part: The value of `--parts` that asks for it.
      name: Name of its file.
      title: Title of the table.
      corpus: Name of the data.
      table: Makes the table of the measured rows.
      rows: Rows of the table.
      swept: Name of the parameter that `Row.at` gives, as tables show it.
      printed: The paper's figures.
      notes: Sentences for the reader.
      is_short: Whether the table is short enough to be read; otherwise only its CSV is written.
    """

    part: str
    name: str
    title: str
    corpus: str
    table: Callable[["Experiment", Measured], Made]
    rows: tuple[Row, ...]
    swept: str = ""
    printed: PrintedTable | None = None
    notes: tuple[str, ...] = ()
    is_short: bool = True

    @property
    def values(self) -> list:
        """The values of the varied parameter, each once."""
        return list(dict.fromkeys(row.at for row in self.rows if row.at is not None))


@dataclasses.dataclass(frozen=True, kw_only=True)
class Study:
    """What a program runs and shows.

    Attributes:
      title: The first line of the summary.
      paragraphs: Text of the summary.
      data: Descriptions of the data, by name.
      experiments: The experiments that were asked for.
      measure: Makes a run under a run key, and returns its measurements.
    """

    title: str
    paragraphs: Sequence[str]
    data: Mapping[str, str]
    experiments: Sequence[Experiment]
    measure: Callable[[Run, RunKey], Result]


def fixed_key(number: int) -> RunKey:
    """Returns the public run key that a number stands for."""
    return RunKey.from_hex(f"{number:064x}")


def run_program(
    parser: argparse.ArgumentParser,
    argv: Sequence[str],
    parts: Sequence[str],
    study_of: Callable[[argparse.Namespace], Study],
) -> int:
    """Parses options, makes a study, and returns the exit status, which is 2 on wrong options.

    Args:
      parser: Has the options that only this program has.
      argv: The command line.
      parts: All values of `--parts`.
      study_of: Returns the study that the options ask for.
    """
    add = parser.add_argument
    add("--output", required=True, help="directory for tables and README.md")
    add("--titles", help="JSON lines with user and text, instead of the sample in the repository")
    add("--parts", default=",".join(parts), help=f"of {', '.join(parts)}, with commas")
    add("--quick", action="store_true", help="one key and few values, in minutes")
    add("--quiet", action="store_true", help="no progress on stderr")
    given = parser.parse_args(argv)
    given.parts = given.parts.split(",")
    try:
        if unknown := sorted(set(given.parts) - set(parts)):
            raise ValueError(f"parts must be of {', '.join(parts)}, got {', '.join(unknown)}.")
        _make(study_of(given), pathlib.Path(given.output), quiet=given.quiet)
    except (ValueError, OSError, BeamDpneError) as error:
        print(f"{parser.prog}: {error}", file=sys.stderr)
        return 2
    return 0


def _make(study: Study, output: pathlib.Path, *, quiet: bool) -> None:
    """Makes the runs, prints each table, and writes it as CSV and in a summary."""
    output.mkdir(parents=True, exist_ok=True)
    results: dict[Run, Result] = {}
    lines = [study.title, "", f"> **{NOTICE}**"]
    for paragraph in study.paragraphs:
        lines += ["", paragraph]
    lines += ["", "| data | |", "|---|---|"]
    lines += [f"| {name} | {about} |" for name, about in study.data.items()]
    for experiment in study.experiments:
        measured = []
        for row in experiment.rows:
            runs = [Run(experiment.corpus, row.plan, key) for key in row.keys]
            for run in runs:
                if run in results:
                    continue
                started = time.monotonic()
                results[run] = study.measure(run, fixed_key(run.key))
                if not quiet:
                    at = "" if row.at is None else f", {experiment.swept} = {row.at}"
                    seconds = f"{time.monotonic() - started:.1f} s"
                    print(
                        f"{experiment.name}: {row.label}{at}, key {run.key}: {seconds}",
                        file=sys.stderr,
                    )
            measured.append((row, [results[run] for run in runs]))
        lines += _show(experiment, measured, output)
    (output / SUMMARY).write_text("\n".join(lines) + "\n", encoding="utf-8")
    print(f"Files, not private: {output} (start with {SUMMARY})")


def _show(experiment: Experiment, measured: Measured, output: pathlib.Path) -> list[str]:
    """Prints a table, writes it as CSV, and returns its lines of the summary."""
    headings, made, notes = experiment.table(experiment, measured)
    rows = list(made)
    texts = [[cell_text(cell) for cell in row] for row in rows]
    with open(output / f"{experiment.name}.csv", "w", encoding="utf-8", newline="") as stream:
        csv.writer(stream).writerows([headings, *rows])
    lines = ["", f"## {experiment.title}", ""]
    if experiment.is_short:
        print_table(experiment.title, [dict(zip(headings, row, strict=True)) for row in texts])
        align = "|".join(["---", *["---:"] * (len(headings) - 1)])
        lines += [f"| {' | '.join(headings)} |", f"|{align}|"]
        lines += [f"| {' | '.join(row)} |" for row in texts]
    for note in (*notes, *experiment.notes):
        lines += ["", note]
    return [*lines, "", f"Table: [{experiment.name}.csv]({experiment.name}.csv)"]


def mean_of(results: Sequence[Result], name: str) -> float | None:
    """Returns the mean of a measured value over runs, or None if not every run has one."""
    values = [result[name] for result in results]
    return None if None in values else statistics.fmean(values)


def cell_text(cell: Cell) -> str:
    """Returns a cell as people read it."""
    if cell is None:
        return "–"
    if isinstance(cell, float):
        return f"{cell:,.0f}" if cell.is_integer() and abs(cell) >= 10 else f"{cell:,g}"
    return f"{cell:,}" if isinstance(cell, int) else cell
