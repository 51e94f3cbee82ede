"""The program of a study: options, and a session that makes runs part by part and keeps results."""

import dataclasses
import os
import pathlib
import shutil
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any, cast

from beam_dpne.cli import display
from beam_dpne.cli.commands import Command
from beam_dpne.cli.main import run_command
from beam_dpne.errors import UsageError
from beam_dpne.evaluation.plots import require_matplotlib
from beam_dpne.mechanism.randomness import RunKey
from beam_dpne.validation import Parameter, Parameters
from pipelines.experiments.results import Results
from pipelines.experiments.study import SUMMARY, Study, write_summary
from pipelines.experiments.tables import cell_text

TITLES_FILE = "reddit_titles_sample.jsonl.gz"
_CACHE, _RUNS, _LEDGER = "cache", "runs", "ledger.json"
Values = Mapping[str, Any]
Report = Callable[..., None]


@dataclasses.dataclass(frozen=True, kw_only=True)
class StudyOptions(Parameters):
    """The options that all programs of experiments have; a subclass adds `parts`, and its own."""

    output: Annotated[
        str,
        Parameter(
            path="directory",
            help="Local directory for tables (CSV), pictures (PNG) and README.md. Runs whose "
            "results are there are not made again, if data and parameters are the same.",
        ),
    ]
    titles: Annotated[
        str | None,
        Parameter(
            path="file",
            help="Texts of users, JSON lines with user and text; without it, the sample that "
            "ships with this program. The texts of the papers are not available.",
        ),
    ] = None
    quick: Annotated[
        bool, Parameter(help="Few values: to see that it works, in minutes or seconds.")
    ] = False
    public_data: Annotated[
        bool,
        Parameter(
            help="Say that the data named by options are public: files and pictures then carry no "
            "mark of secrecy. The data that ship with this program are public without it."
        ),
    ] = False
    keep: Annotated[
        bool,
        Parameter(
            help="Keep the tokenized data in the output directory, as secret as the data; "
            "otherwise they are deleted at the end."
        ),
    ] = False
    quiet: Annotated[bool, Parameter(help="No progress on stderr.")] = False


def run_study(
    argv: Sequence[str],
    *,
    program: str,
    description: str | None,
    title: str,
    options: type[StudyOptions],
    make: Callable[[Values, pathlib.Path, Report], Study],
) -> int:
    """Parses the options of a program of experiments, and runs it; returns the exit status.

    Args:
      argv: Arguments of the command line.
      program: Name of the program.
      description: Description for the help.
      title: First line of the summary.
      options: Options of the program.
      make: Function that returns the study, from the values of the options, the directory for tokenized
        data, and a function that reports progress; it checks the options of its program.
    """

    def command(values: Values) -> None:
        _check_output(values["output"], title)
        require_matplotlib()
        _run(values, make)

    return run_program(argv, program, description, options, command)


def run_program(
    argv: Sequence[str],
    program: str,
    description: str | None,
    options: type[Parameters],
    command: Callable[[Values], None],
) -> int:
    """Runs a function on the values of a program's options; returns the exit status."""
    of_program = Command(
        name=program,
        prog=program,
        summary="",
        description=description or "",
        groups={"options": (options,)},
        run=lambda made, _: command(dataclasses.asdict(cast("Any", made[options]))),
    )
    return run_command(of_program, argv)


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
