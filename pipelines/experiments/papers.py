"""The experiments of two papers in one command: tables in one folder, with ours beside them.

NOT private: results are counted on the data, under run keys that are public. Only for public data.
"""

import argparse
import functools
import pathlib
from collections.abc import Sequence

from pipelines.experiments import paper_parts, paper_runs, studies
from pipelines.experiments.corpora import Data, Source, titles_source
from pipelines.experiments.studies import Study

MSNBC_FILE = "msnbc990928.seq.gz"
PARTS = ("msnbc", "titles", "spurious", "set_union", "sweeps", "best", "favour")
_PARAGRAPHS = (
    "The tables and figures of two papers, run again by `pipelines/reproduce_papers.py`, with ours "
    "beside them. DPNE: Kim et al., *Differentially Private n-gram Extraction* (NeurIPS 2021). DPSU: "
    "Gopi et al., *Differentially Private Set Union* (ICML 2020).",
    "All runs of n-grams are without numbers of users (`--count_share 0`), which the papers do not "
    "release, so that every method spends its whole budget on n-grams.",
)


def main(argv: Sequence[str], data: pathlib.Path) -> int:
    """Runs the experiments and returns the exit status.

    Args:
      argv: Options.
      data: Folder of the data that ship with the repository.
    """
    parser = argparse.ArgumentParser(
        prog="reproduce_papers.py", description=__doc__, allow_abbrev=False
    )
    return studies.run_program(parser, argv, PARTS, lambda given: _study(given, data))


def _study(given: argparse.Namespace, data: pathlib.Path) -> Study:
    sources = sources_of(given.titles, data)
    scale = paper_parts.QUICK if given.quick else paper_parts.DEFAULT
    # Experiments on one corpus follow each other, so that one is in memory at a time.
    data_of = functools.lru_cache(maxsize=1)(lambda name: Data(sources[name]))
    return Study(
        title="# The papers' experiments",
        paragraphs=_PARAGRAPHS,
        data={source.title: source.note for source in sources.values()},
        experiments=[
            experiment
            for experiment in paper_parts.all_experiments(scale)
            if experiment.part in given.parts
        ],
        measure=lambda run, run_key: paper_runs.measure(
            run.plan, data_of(run.corpus), run.key, run_key
        ),
    )


def sources_of(titles: str | None, data: pathlib.Path) -> dict[str, Source]:
    """Returns the data "msnbc" and "titles"."""
    msnbc = Source(
        path=str(data / MSNBC_FILE),
        title="MSNBC page visits",
        note="one document a user; the data of DPNE, Table 5",
        max_length=paper_parts.MSNBC["max_length"],
        input_format="sequences",
        tokenizer="whitespace",
    )
    sample = str(data / studies.TITLES_FILE)
    longest = paper_parts.TABLE_LENGTH
    return {
        "msnbc": msnbc,
        "titles": titles_source(titles, sample, "not the papers' data", longest),
    }
