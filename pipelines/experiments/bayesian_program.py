"""The experiments of private n-gram probabilities in one command: tables, pictures and a summary.

Not private: results are counted on the data, under run keys that are public. Only for public data.
"""

import functools
import hashlib
import os
import pathlib
import shutil
import sys
import time
from collections.abc import Mapping, Sequence
from typing import Any

from beam_dpne.cli.options import FAILURE_LOG, Option, names
from beam_dpne.errors import UsageError
from pipelines.experiments.program import TITLES_FILE, check_output, files_line, run_experiments

PUBLIC_FILE = "reddit_titles_public_trigrams.tsv.gz"
EXPERIMENTS = (
    *("epsilon", "users", "users_paper_limit", "contributions", "vocabulary", "public_quality"),
    *("k_anonymity", "perplexity", "membership", "counterexample", "pipeline"),
)
OPTIONS = (
    Option(
        name="output",
        path="directory",
        help="Local directory for tables (CSV), pictures (PNG) and README.md. Required. What an "
        "earlier run measured there is not measured again, if data and parameters are the same.",
    ),
    Option(
        name="titles",
        path="file",
        help="Private texts, JSON lines with user and text; without it, the sample that ships with "
        "this program.",
    ),
    Option(
        name="public",
        path="file",
        help="Public text, one document a line, or a file of counts; without it, the counts that "
        "ship with this program.",
    ),
    Option(
        name="parts",
        default=EXPERIMENTS,
        parse=names,
        shown_default="all",
        help=f"What to run, of {', '.join(EXPERIMENTS)}, with commas between them.",
    ),
    Option(
        name="quick",
        flag=True,
        help="Few values and a small vocabulary: to see that it works, in seconds.",
    ),
    Option(
        name="public_data",
        flag=True,
        help="Say that the given titles are public: files and pictures then carry no mark of secrecy. "
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
_CACHE, _RUNS = "cache", "runs"


def main(argv: Sequence[str], data: pathlib.Path) -> int:
    """Runs the experiments.

    Args:
      argv: options.
      data: folder of the data that ship with the repository.
    """
    return run_experiments(
        argv, "reproduce_bayesian.py", __doc__, OPTIONS, functools.partial(_run, data=data)
    )


def _run(values: dict[str, Any], data: pathlib.Path) -> None:
    """Checks the options, runs experiment by experiment, and writes the summary after each."""
    _check(values)
    from beam_dpne.evaluation.plots import require_matplotlib

    require_matplotlib()
    session = _Session(values, data)
    try:
        session.run()
    finally:
        session.write()
        session.clean(keep=values["keep"])
    print(f"{files_line([session.private])}: {values['output']} (start with README.md)")


class _Session:
    """One invocation: data, results, and what is shown of the progress."""

    def __init__(self, values: Mapping[str, Any], data: pathlib.Path):
        from pipelines.experiments import bayesian_parts
        from pipelines.experiments.bayesian_measuring import BayesianData
        from pipelines.experiments.results import Results

        self._output = pathlib.Path(values["output"])
        self._quiet = values["quiet"]
        self._chosen = values["parts"]
        self._started = time.monotonic()
        public = values["public"] or str(data / PUBLIC_FILE)
        self.private = private = source_of(
            values["titles"] or str(data / TITLES_FILE),
            public,
            is_public=values["public_data"] or not values["titles"],
        )
        public_digest = hashlib.sha256(pathlib.Path(public).read_bytes()).hexdigest()
        keys = f"numbers, public {public_digest}"
        self._results = Results(self._output / _RUNS, {"titles": private}, keys)
        self._data = BayesianData(private, public, self._output / _CACHE)
        self.tell("reading and counting …")
        scale = bayesian_parts.QUICK if values["quick"] else bayesian_parts.DEFAULT
        everybody = len(self._data.corpus.users)
        largest = len(self._data.exact.public)
        self._all = bayesian_parts.all_experiments(scale.within(largest), everybody)

    def run(self) -> None:
        """Makes the runs that have no result."""
        from beam_dpne.mechanism.randomness import RunKey
        from pipelines.experiments.bayesian_measuring import measure

        for experiment in self._all:
            if experiment.name not in self._chosen:
                continue
            runs = experiment.runs
            for number, run in enumerate(runs, start=1):
                if self._results.find(run) is not None:
                    continue
                self.tell(f"{experiment.name} {number}/{len(runs)}: {run.description} …", end=" ")
                result = measure(run, self._data, RunKey.from_hex(f"{run.key:064x}"))
                self._results.keep(run, result)
                self.tell(f"{result['seconds']:.1f} s", begin="")
            self.write(redraw=(experiment.name,))

    def write(self, redraw: Sequence[str] = ()) -> None:
        """Writes what there is so far, and some pictures."""
        from pipelines.experiments.bayesian_summary import write_summary

        write_summary(
            self._output,
            self._all,
            self._chosen,
            self._results.find,
            private=self._data.private,
            redraw=redraw,
        )

    def clean(self, *, keep: bool) -> None:
        """Removes the tokenized data, unless they are to be kept."""
        if not keep:
            shutil.rmtree(self._output / _CACHE, ignore_errors=True)
        elif (self._output / _CACHE).is_dir():
            self.tell(f"tokenized data, as secret as the data, are in {self._output / _CACHE}")

    def tell(self, text: str, begin: str | None = None, end: str = "\n") -> None:
        """Writes a line, or a part of one, on stderr."""
        if not self._quiet:
            if begin is None:
                begin = f"beam-dpne: {time.monotonic() - self._started:6.0f} s  "
            print(begin + text, end=end, file=sys.stderr, flush=True)


def source_of(path: str, public: str, *, is_public: bool = False):
    """Returns the private texts, and how they are read."""
    from beam_dpne import reading
    from pipelines.experiments.corpora import Source

    name = os.path.basename(path)
    return Source(
        path=path,
        title=f"titles ({name})",
        note=f"{name}, tokenizer words; public: {os.path.basename(public)}",
        reading=reading.ReadOptions(),
        tokenizer="words",
        is_public=is_public,
    )


def _check(values: Mapping[str, Any]) -> None:
    from pipelines.experiments.bayesian_summary import TITLE

    if not values["output"]:
        raise UsageError("output must be given: --output DIR.")
    unknown = [part for part in values["parts"] if part not in EXPERIMENTS]
    if unknown or not values["parts"]:
        raise UsageError(
            f"parts must be of {', '.join(EXPERIMENTS)}, got {','.join(unknown) or 'none'}."
        )
    if values["public"] and not os.path.isfile(values["public"]):
        raise UsageError(f"public must name an existing file, got public={values['public']}.")
    check_output(values["output"], TITLE)
