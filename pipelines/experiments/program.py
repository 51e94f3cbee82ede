"""The program of a study: options, and a session that makes runs part by part and keeps results."""

import argparse
import os
import pathlib
import shutil
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from beam_dpne.cli import display
from beam_dpne.cli.main import Command, run_command
from beam_dpne.cli.options import Option, add_options, names, with_defaults
from beam_dpne.cli.parsing import OneLineParser
from beam_dpne.errors import UsageError
from beam_dpne.evaluation.plots import require_matplotlib
from beam_dpne.mechanism.randomness import RunKey
from pipelines.experiments.results import Results
from pipelines.experiments.study import SUMMARY, Study, write_summary
from pipelines.experiments.tables import cell_text

TITLES_FILE = "reddit_titles_sample.jsonl.gz"
_CACHE, _RUNS, _LEDGER = "cache", "runs", "ledger.json"
Values = Mapping[str, Any]
Report = Callable[..., None]


def common_options(parts: Sequence[str], quick: str) -> tuple[Option, ...]:
    """Returns the options that all programs of experiments have.

    Args:
      parts: values of `--parts`.
      quick: help of `--quick`.
    """
    return (
        Option(
            name="output",
            path="directory",
            help="Local directory for tables (CSV), pictures (PNG) and README.md. Required. Runs whose "
            "results are there are not made again, if data and parameters are the same.",
        ),
        Option(
            name="titles",
            path="file",
            help="Texts of users, JSON lines with user and text; without it, the sample that ships "
            "with this program. The texts of the papers are not available.",
        ),
        Option(
            name="parts",
            default=tuple(parts),
            parse=names,
            shown_default="all",
            help=f"Parts that are run, of {', '.join(parts)}, with commas between them.",
        ),
        Option(name="quick", flag=True, help=quick),
        Option(
            name="public_data",
            flag=True,
            help="Say that the data named by options are public: files and pictures then carry no "
            "mark of secrecy. The data that ship with this program are public without it.",
        ),
        Option(
            name="keep",
            flag=True,
            help="Keep the tokenized data in the output directory, as secret as the data; otherwise "
            "they are deleted at the end.",
        ),
        Option(name="quiet", flag=True, help="No progress on stderr."),
    )


def run_study(
    argv: Sequence[str],
    *,
    program: str,
    description: str | None,
    title: str,
    options: Sequence[Option],
    parts: Sequence[str],
    make: Callable[[Values, pathlib.Path, Report], Study],
) -> int:
    """Parses the options of a program of experiments, and runs it; returns the exit status.

    Args:
      argv: Arguments of the command line.
      program: Name of the program.
      description: Description for the help.
      title: First line of the summary.
      options: Options of the program.
      parts: Values of `--parts`.
      make: Function that returns the study, from the values of the options, the directory for tokenized
        data, and a function that reports progress; it checks the options of its program.
    """

    def command(arguments: argparse.Namespace, beam_arguments: list[str]) -> None:
        if beam_arguments:
            raise UsageError(f"{program} has no option {beam_arguments[0].split('=')[0]}.")
        values = with_defaults(arguments, options)
        _check(values, parts, title)
        require_matplotlib()
        _run(values, make)

    parser = OneLineParser(
        prog=program,
        description=description,
        allow_abbrev=False,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add_options(parser, "experiments", options)
    parser.set_defaults(command=command)
    return run_program(parser, argv)


def run_program(parser: argparse.ArgumentParser, argv: Sequence[str]) -> int:
    """Parses the arguments and runs the `command` that the parser sets as a default."""
    try:
        parsed, others = parser.parse_known_args(list(argv))
    except SystemExit as stop:
        return int(stop.code or 0)
    command = Command(
        name=parser.prog,
        summary="",
        description="",
        groups={},
        run=lambda _made, _others: parsed.command(parsed, others),
    )
    return run_command(command, [])


def fixed_key(number: int) -> RunKey:
    """Returns the public run key that a number stands for; 0 is that of samples of users."""
    return RunKey.from_hex(f"{number:064x}")


def _run(values: Values, make: Callable[[Values, pathlib.Path, Report], Study]) -> None:
    output = pathlib.Path(values["output"])
    started = time.monotonic()

    def report(text: str, begin: str | None = None, end: str = "\n") -> None:
        """Writes a line, or a part of one, on stderr."""
        if not values["quiet"]:
            if begin is None:
                begin = f"beam-dpne: {time.monotonic() - started:6.0f} s  "
            print(begin + text, end=end, file=sys.stderr, flush=True)

    try:
        study = make(values, output / _CACHE, report)
        results = Results(output / _RUNS, study.sources, study.keys)
        _make_runs(study, results, output, report)
    finally:
        if not values["keep"]:
            shutil.rmtree(output / _CACHE, ignore_errors=True)
        elif (output / _CACHE).is_dir():
            report(f"tokenized data, as secret as the data, are in {output / _CACHE}")
    for table in study.targets(results):
        rows = [[cell_text(cell) for cell in row] for row in table.rows]
        display.print_table(table.title, table.headings, rows)
    secrecy = "of public data" if study.is_public else "not private"
    print(f"Files, {secrecy}: {output} (start with {SUMMARY})")


def _make_runs(study: Study, results: Results, output: pathlib.Path, report: Report) -> None:
    """Makes the runs that have no result, part by part, and writes the summary after each."""
    for part in study.parts:
        try:
            runs = part.runs
            report(f"{part.name}: {len(runs)} runs")
            for number, run in enumerate(runs, start=1):
                if results.find(run) is not None:
                    continue
                report(f"{part.name} {number}/{len(runs)}: {run.description} …", end=" ")
                result = study.measure(run, study.key_of(run.key))
                results.keep(run, result)
                report(f"{result['seconds']:.1f} s", begin="")
        finally:
            write_summary(output, study, results, redraw=(part.name,))


def _check(values: Values, parts: Sequence[str], title: str) -> None:
    if not values["output"]:
        raise UsageError("output must be given: --output DIR.")
    unknown = [part for part in values["parts"] if part not in parts]
    if unknown or not values["parts"]:
        raise UsageError(f"parts must be of {', '.join(parts)}, got {','.join(unknown) or 'none'}.")
    _check_output(values["output"], title)


def _check_output(output: str, title: str) -> None:
    """Raises UsageError if an output is inside a release, or has a summary with another title."""
    folder = pathlib.Path(output).resolve()
    readme = folder / "README.md"
    if readme.is_file() and not readme.read_bytes().startswith(title.encode()):
        raise UsageError(
            f"output must be a directory of this program, got output={output}, whose README.md "
            "another program wrote; name another directory."
        )
    if any(os.path.lexists(above / _LEDGER) for above in (folder, *folder.parents)):
        raise UsageError(
            f"output must be outside every release, got output={output}: numbers "
            "counted on the data are as secret as the data."
        )
