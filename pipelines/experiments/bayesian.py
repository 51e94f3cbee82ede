"""The experiments of private n-gram probabilities in one command: tables in one folder.

NOT private: results are counted on the data, under run keys that are public. Only for public data.
"""

import argparse
import os
import pathlib
import tempfile
from collections.abc import Sequence

from beam_dpne.reading.options import ReadOptions
from pipelines.experiments import bayesian_parts, bayesian_tables, runner
from pipelines.experiments.bayesian_measuring import BayesianData, measure
from pipelines.experiments.corpora import Source
from pipelines.experiments.experiments import Part
from pipelines.experiments.paper_probabilities import NO_GUARANTEE

PUBLIC_FILE = "reddit_titles_public_trigrams.tsv.gz"
EXPERIMENTS = (
    *("epsilon", "users", "users_paper_limit", "contributions", "vocabulary", "public_quality"),
    *("k_anonymity", "perplexity", "running_text", "membership", "counterexample"),
)
_INTRODUCTION = (
    "The figures and the table of Ramadan, Withers and Orr, *N-grams Bayesian Differential Privacy*, "
    "run again by `pipelines/reproduce_bayesian.py`, with ours beside them: δ = 1e-7; under "
    "every mechanism each user adds at most 1 to a trigram (C) and at most 30 trigrams (W), except "
    "where W is varied. KL divergence is from the distribution of all counts, without any limit."
)
_ZEROS = (
    "A threshold leaves zeros, whose divergence is infinite; the paper does not say what it did. Here "
    "the distribution of every mechanism is mixed with 1 % of the uniform one. *Best floor in "
    "hindsight* is the share that suits each mechanism best, chosen on the private data: no mechanism "
    "could do so."
)
_PAPER = (
    f"The paper's mechanism has {NO_GUARANTEE}. Its curves are no private releases at their ε; the "
    "experiment `counterexample` shows what its noise reveals. k-anonymity has no differential privacy "
    "guarantee either."
)


def main(argv: Sequence[str], data: pathlib.Path) -> int:
    """Runs the experiments and returns the exit status.

    Args:
      argv: options.
      data: folder of the data that ship with the repository.
    """
    parser = runner.program("reproduce_bayesian.py", __doc__)
    runner.add_study_options(parser, EXPERIMENTS)
    parser.add_argument(
        "--public",
        help="public text, one document a line, or a file of counts (default: the counts that ship)",
    )
    return runner.run(parser, argv, lambda given: _command(given, data))


def _command(given: argparse.Namespace, data: pathlib.Path) -> None:
    runner.check_parts(given, EXPERIMENTS)
    if given.public and not os.path.isfile(given.public):
        raise ValueError(f"public must name an existing file, got public={given.public}.")
    public = given.public or str(data / PUBLIC_FILE)
    private = source_of(given.titles or str(data / runner.TITLES_FILE), public)
    with tempfile.TemporaryDirectory() as cache:
        known = BayesianData(private, public, pathlib.Path(cache))
        scale = bayesian_parts.QUICK if given.quick else bayesian_parts.DEFAULT
        everybody, largest = len(known.corpus.users), len(known.exact.public)
        experiments = bayesian_parts.all_experiments(scale.within(largest), everybody)
        study = runner.Study(
            title="# Private n-gram probabilities: experiments",
            paragraphs=(_INTRODUCTION, _ZEROS, f"**{_PAPER}**"),
            data={private.title: private.note},
            parts=[
                Part(name=experiment.name, experiments=(experiment,))
                for experiment in experiments
                if experiment.name in given.parts
            ],
            makers=bayesian_tables.MAKERS,
            measure=lambda run, run_key: measure(run, known, run_key),
        )
        runner.run_study(study, given)


def source_of(path: str, public: str) -> Source:
    """Returns the private texts, and how they are read."""
    name = os.path.basename(path)
    return Source(
        path=path,
        title=f"titles ({name})",
        note=f"{name}, tokenizer words; public: {os.path.basename(public)}",
        reading=ReadOptions(),
        tokenizer="words",
    )
