"""The papers' experiments in one command: tables, pictures and a summary in one folder.

Not private: results are counted on the data, under run keys that are public. Only for public data.
"""

import argparse
import functools
import os
import pathlib
import shutil
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from beam_dpne.cli.main import OneLineParser, run_program
from beam_dpne.cli.options import FAILURE_LOG, Option, add_options, names, with_defaults
from beam_dpne.errors import UsageError

MSNBC_FILE = "msnbc990928.seq.gz"
TITLES_FILE = "reddit_titles_sample.jsonl.gz"
PARTS = ("targets", "msnbc", "titles", "spurious", "set_union", "sweeps")
OPTIONS = (
    Option(
        name="output",
        path="directory",
        help="Local directory for tables (CSV), pictures (PNG) and README.md. Required. What an "
        "earlier run measured there is not measured again, if data and parameters are the same.",
    ),
    Option(
        name="msnbc",
        path="file",
        help="The MSNBC data, if not the file that ships with this program.",
    ),
    Option(
        name="titles",
        path="file",
        help="Texts of users, JSON lines with user and text; without it, the sample that ships with "
        "this program. The paper's own texts are not to be had.",
    ),
    Option(
        name="parts",
        default=PARTS,
        parse=names,
        shown_default="all",
        help=f"What to run, of {', '.join(PARTS)}, with commas between them.",
    ),
    Option(
        name="full",
        flag=True,
        help="Everything at full size, with more keys and values; hours instead of one.",
    ),
    Option(
        name="quick", flag=True, help="One key and few values: to see that it works, in minutes."
    ),
    Option(
        name="run_key_file",
        path="file",
        help="A file with 64 hexadecimal digits from which the run keys follow, instead of the numbers "
        "1, 2, 3.",
    ),
    Option(
        name="public_data",
        flag=True,
        help="Say that the given files are public: files and pictures then carry no mark of secrecy. "
        "The data that ship with this program are public without it.",
    ),
    Option(
        name="keep",
        flag=True,
        help="Keep the tokenized data in the output directory, as secret as the data; otherwise they "
        "are deleted at the end.",
    ),
    *FAILURE_LOG,
    Option(name="quiet", flag=True, help="No progress on stderr."),
)
_CACHE, _RUNS, _LEDGER = "cache", "runs", "ledger.json"
_SAMPLE = 10


def main(argv: Sequence[str], data: pathlib.Path) -> int:
    """Runs the experiments.

    Args:
      argv: options.
      data: folder of the data that ship with the repository.
    """
    return run_experiments(
        argv, "reproduce_papers.py", __doc__, OPTIONS, functools.partial(_run, data=data)
    )


def run_experiments(
    argv: Sequence[str],
    program: str,
    description: str | None,
    options: Sequence[Option],
    run: Callable[[dict[str, Any]], None],
) -> int:
    """Parses the options of a program of experiments, and runs it; returns the exit status.

    Args:
      argv: what was given.
      program: its name.
      description: for the help.
      options: those that it has.
      run: gets their values.
    """

    def command(given: argparse.Namespace, beam_arguments: list[str]) -> None:
        if beam_arguments:
            raise UsageError(f"{program} has no option {beam_arguments[0].split('=')[0]}.")
        run(with_defaults(given, options))

    parser = OneLineParser(
        prog=program,
        description=description,
        allow_abbrev=False,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add_options(parser, "experiments", options)
    parser.set_defaults(command=command)
    return run_program(parser, argv)


def _run(values: dict[str, Any], data: pathlib.Path) -> None:
    """Checks the options, makes the runs part by part, and writes the summary after each."""
    _check(values)
    from beam_dpne.evaluation.plots import require_matplotlib

    require_matplotlib()
    output = pathlib.Path(values["output"])
    session = _Session(values, output, data)
    try:
        for part in session.parts:
            session.run_part(part)
    finally:
        session.write()
        if session.is_done and not values["keep"]:
            shutil.rmtree(output / _CACHE, ignore_errors=True)
        elif (output / _CACHE).is_dir():
            session.tell(f"tokenized data, as secret as the data, are in {output / _CACHE}")
    session.show()


class _Session:
    """One invocation: data, keys, results, and what is shown of the progress."""

    def __init__(self, values: Mapping, output: pathlib.Path, data: pathlib.Path):
        from beam_dpne.storage.run_key_file import RunKeyFile
        from pipelines.experiments import parts, summary
        from pipelines.experiments.corpora import Corpora
        from pipelines.experiments.results import Results
        from pipelines.experiments.runs import length_of

        self._output = output
        self._quiet = values["quiet"]
        self._started = time.monotonic()
        key_file = values["run_key_file"]
        self._base = RunKeyFile.checked(key_file) if key_file else None
        self._keys_note = summary.SECRET_KEYS if key_file else summary.FIXED_KEYS
        self._sources = sources_of(values, data)
        scale = parts.FULL if values["full"] else parts.QUICK if values["quick"] else parts.DEFAULT
        sweeps = "titles_tenth" if "titles_tenth" in self._sources else "titles"
        chosen = parts.all_parts(scale, titles="titles", sweeps=sweeps)
        self.parts = [part for part in chosen if part.name in values["parts"]]
        keys = self._base.sub_key("experiments").hex() if self._base else "numbers"
        self._results = Results(output / _RUNS, self._sources, keys)
        longest: dict[str, int] = {}
        for run in (run for part in self.parts for run in part.runs):
            longest[run.corpus] = max(longest.get(run.corpus, 1), length_of(run))
        cache = output / _CACHE
        self._corpora = Corpora(self._sources, cache, self._key(0), longest)

    @property
    def is_done(self) -> bool:
        """Whether there is a result for every run."""
        return all(self._results.find(run) for part in self.parts for run in part.runs)

    def run_part(self, part) -> None:
        """Makes the runs of a part that have no result, and writes the summary."""
        from pipelines.experiments.measuring import measure

        runs = part.runs
        self.tell(f"{part.name}: {len(runs)} runs")
        for number, run in enumerate(runs, start=1):
            if self._results.find(run) is not None:
                continue
            self.tell(f"{part.name} {number}/{len(runs)}: {run.description} …", end=" ")
            result = measure(run, self._corpora, self._key(run.key))
            self._results.keep(run, result)
            self.tell(f"{result['seconds']:.1f} s", begin="")
        self.write()

    def write(self) -> None:
        """Writes what there is so far."""
        from pipelines.experiments.summary import write_summary

        write_summary(
            self._output, self.parts, self._results, self._sources, keys_note=self._keys_note
        )

    def show(self) -> None:
        """Prints the targets, if they were run, and where everything is."""
        from beam_dpne.cli import display
        from pipelines.experiments.summary import SUMMARY, cell_text
        from pipelines.experiments.tables import table_of

        for part in self.parts:
            for experiment in part.experiments if part.name == "targets" else ():
                table = table_of(experiment, self._results)
                rows = [[cell_text(cell) for cell in row] for row in table.rows]
                display.print_rows(table.title, table.headings, rows)
        print(f"{files_line(self._sources.values())}: {self._output} (start with {SUMMARY})")

    def tell(self, text: str, begin: str | None = None, end: str = "\n") -> None:
        """Writes a line, or a part of one, on stderr."""
        if not self._quiet:
            if begin is None:
                begin = f"beam-dpne: {time.monotonic() - self._started:6.0f} s  "
            print(begin + text, end=end, file=sys.stderr, flush=True)

    def _key(self, number: int):
        """The run key that a number stands for; 0 is that of samples of users."""
        from beam_dpne.mechanism.randomness import RunKey

        if self._base is not None:
            return self._base.bound_to(f"experiment {number}")
        return RunKey.from_hex(f"{number:064x}")


def sources_of(values: Mapping, data: pathlib.Path) -> dict:
    """Returns the data by name: "msnbc", "titles", and "titles_tenth" for sweeps unless all is full.

    The sample that ships with the repository is not cut down further.
    """
    from beam_dpne import reading
    from pipelines.experiments.corpora import Source

    visits = reading.ReadOptions(input_format="sequences")
    given = values["titles"]
    path = given or str(data / TITLES_FILE)
    name = os.path.basename(path)
    note = f"{name}, tokenizer words; not the papers' data"
    said = bool(values.get("public_data"))
    title = f"titles ({name})" if given else "titles (the sample in the repository)"
    texts = Source(
        path=path,
        title=title,
        note=note,
        reading=reading.ReadOptions(),
        tokenizer="words",
        is_public=said or not given,
    )
    sources = {
        "msnbc": Source(
            path=values["msnbc"] or str(data / MSNBC_FILE),
            title="MSNBC page visits",
            note="one document a user; the data of DPNE, Table 5",
            reading=visits,
            tokenizer="whitespace",
            is_public=said or not values["msnbc"],
        ),
        "titles": texts,
    }
    if given and not values["full"]:
        sources["titles_tenth"] = Source(
            path=path,
            title=f"a keyed tenth of the users of titles ({name})",
            note="each user is in it with probability 1/10",
            reading=texts.reading,
            tokenizer=texts.tokenizer,
            one_in=_SAMPLE,
            is_public=texts.is_public,
        )
    return sources


def files_line(sources: Iterable) -> str:
    """Returns what a program of experiments says of its files at the end."""
    is_public = all(source.is_public for source in sources)
    return "Files, of public data" if is_public else "Files, not private"


def _check(values: Mapping) -> None:
    from pipelines.experiments.summary import TITLE

    if not values["output"]:
        raise UsageError("output must be given: --output DIR.")
    unknown = [part for part in values["parts"] if part not in PARTS]
    if unknown or not values["parts"]:
        raise UsageError(f"parts must be of {', '.join(PARTS)}, got {','.join(unknown) or 'none'}.")
    if values["full"] and values["quick"]:
        raise UsageError("full and quick must not be given together.")
    check_output(values["output"], TITLE)


def check_output(output: str, title: str) -> None:
    """Raises UsageError if an output is inside a release, or has a summary with another title."""
    place = pathlib.Path(output).resolve()
    readme = place / "README.md"
    if readme.is_file() and not readme.read_bytes().startswith(title.encode()):
        raise UsageError(
            f"output must be a directory of this program's, got output={output}, whose README.md is "
            "not; name another one."
        )
    if any(os.path.lexists(above / _LEDGER) for above in (place, *place.parents)):
        raise UsageError(
            f"output must be outside every release, got output={output}: what is counted "
            "on the data is as secret as they are."
        )
