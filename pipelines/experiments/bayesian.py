"""The experiments of private n-gram probabilities in one command: tables, pictures and a summary.

Not private: results are counted on the data, under run keys that are public. Only for public data.
"""

import functools
import hashlib
import os
import pathlib
from collections.abc import Sequence

from beam_dpne.cli.options import Option
from beam_dpne.errors import UsageError
from beam_dpne.reading.options import ReadOptions
from pipelines.experiments import bayesian_figures, bayesian_parts, bayesian_tables
from pipelines.experiments.bayesian_measuring import BayesianData, measure
from pipelines.experiments.corpora import Source
from pipelines.experiments.experiments import Part
from pipelines.experiments.paper_probabilities import NO_GUARANTEE
from pipelines.experiments.program import (
    TITLES_FILE,
    Report,
    Values,
    common_options,
    fixed_key,
    run_study,
)
from pipelines.experiments.study import Study

PUBLIC_FILE = "reddit_titles_public_trigrams.tsv.gz"
EXPERIMENTS = (
    *("epsilon", "users", "users_paper_limit", "contributions", "vocabulary", "public_quality"),
    *("k_anonymity", "perplexity", "running_text", "membership", "counterexample", "pipeline"),
)
OPTIONS = (
    *common_options(
        EXPERIMENTS, "Few values and a small vocabulary: to see that it works, in seconds."
    ),
    Option(
        name="public",
        path="file",
        help="Public text, one document a line, or a file of counts; without it, the counts that "
        "ship with this program.",
    ),
)
TITLE = "# Private n-gram probabilities: experiments"
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
    """Runs the experiments.

    Args:
      argv: options.
      data: folder of the data that ship with the repository.
    """
    return run_study(
        argv,
        program="reproduce_bayesian.py",
        description=__doc__,
        title=TITLE,
        options=OPTIONS,
        parts=EXPERIMENTS,
        make=functools.partial(_make, data=data),
    )


def _make(values: Values, cache: pathlib.Path, report: Report, *, data: pathlib.Path) -> Study:
    if values["public"] and not os.path.isfile(values["public"]):
        raise UsageError(f"public must name an existing file, got public={values['public']}.")
    public = values["public"] or str(data / PUBLIC_FILE)
    is_public = values["public_data"] or not values["titles"]
    private = source_of(values["titles"] or str(data / TITLES_FILE), public, is_public=is_public)
    known = BayesianData(private, public, cache)
    report("reading and counting …")
    scale = bayesian_parts.QUICK if values["quick"] else bayesian_parts.DEFAULT
    everybody, largest = len(known.corpus.users), len(known.exact.public)
    experiments = bayesian_parts.all_experiments(scale.within(largest), everybody)
    public_digest = hashlib.sha256(pathlib.Path(public).read_bytes()).hexdigest()
    return Study(
        title=TITLE,
        paragraphs=(_INTRODUCTION, _ZEROS, f"**{_PAPER}**"),
        sources={bayesian_parts.CORPUS: private},
        parts=tuple(
            Part(name=experiment.name, experiments=(experiment,))
            for experiment in experiments
            if experiment.name in values["parts"]
        ),
        makers=bayesian_tables.MAKERS,
        drawers=bayesian_figures.DRAWERS,
        measure=lambda run, run_key: measure(run, known, run_key),
        key_of=fixed_key,
        keys=f"numbers, public {public_digest}",
        overview=bayesian_parts.targets_of(experiments),
        columns={"of the paper's mechanism": NO_GUARANTEE},
    )


def source_of(path: str, public: str, *, is_public: bool = False) -> Source:
    """Returns the private texts, and how they are read."""
    name = os.path.basename(path)
    return Source(
        path=path,
        title=f"titles ({name})",
        note=f"{name}, tokenizer words; public: {os.path.basename(public)}",
        reading=ReadOptions(),
        tokenizer="words",
        is_public=is_public,
    )
