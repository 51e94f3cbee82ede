"""The experiments of private n-gram probabilities in one command: tables in one folder.

NOT private: results are counted on the data, under run keys that are public. Only for public data.
"""

import argparse
import os
import pathlib
from collections.abc import Sequence

from pipelines.experiments import bayesian_parts, studies
from pipelines.experiments.bayesian_measuring import BayesianData, measure
from pipelines.experiments.corpora import titles_source
from pipelines.experiments.paper_probabilities import NO_GUARANTEE
from pipelines.experiments.studies import Study

PUBLIC_FILE = "reddit_titles_public_trigrams.tsv.gz"
_PARAGRAPHS = (
    "The figures and the table of Ramadan, Withers and Orr, *N-grams Bayesian Differential Privacy*, "
    "run again by `pipelines/reproduce_bayesian.py`, with ours beside them: δ = 1e-7; under "
    "every mechanism each user adds at most 1 to a trigram (C) and at most 30 trigrams (W), except "
    "where W is varied. KL divergence is from the distribution of all counts, without any limit.",
    "A threshold leaves zeros, whose divergence is infinite; the paper does not say what it did. Here "
    "the distribution of every mechanism is mixed with 1 % of the uniform one. *Best floor in "
    "hindsight* is the share that suits each mechanism best, chosen on the private data: no mechanism "
    "could do so.",
    f"**The paper's mechanism has {NO_GUARANTEE}. Its curves are no private releases at their ε. "
    "k-anonymity has no differential privacy guarantee either.**",
)


def main(argv: Sequence[str], data: pathlib.Path) -> int:
    """Runs the experiments and returns the exit status.

    Args:
      argv: Options.
      data: Folder of the data that ship with the repository.
    """
    parser = argparse.ArgumentParser(
        prog="reproduce_bayesian.py", description=__doc__, allow_abbrev=False
    )
    parser.add_argument(
        "--public",
        help="public text, one document a line, or a file of counts (default: the counts that ship)",
    )
    return studies.run_program(
        parser, argv, bayesian_parts.PARTS, lambda given: _study(given, data)
    )


def _study(given: argparse.Namespace, data: pathlib.Path) -> Study:
    if given.public and not os.path.isfile(given.public):
        raise ValueError(f"`public` must name an existing file, got `public={given.public}`.")
    known = data_of(given.titles, given.public, data)
    scale = bayesian_parts.QUICK if given.quick else bayesian_parts.DEFAULT
    everybody = len(known.corpus.users)
    largest = len(known.exact.public)
    experiments = bayesian_parts.all_experiments(scale.within(largest), everybody)
    return Study(
        title="# Private n-gram probabilities: experiments",
        paragraphs=_PARAGRAPHS,
        data={known.source.title: known.source.note},
        experiments=[each for each in experiments if each.part in given.parts],
        measure=lambda run, run_key: measure(run, known, run_key),
    )


def data_of(titles: str | None, public: str | None, data: pathlib.Path) -> BayesianData:
    """Returns the private and the public data that were given, or those that ship."""
    public = public or str(data / PUBLIC_FILE)
    sample = str(data / studies.TITLES_FILE)
    note = f"public: {os.path.basename(public)}"
    return BayesianData(titles_source(titles, sample, note), public)
