"""The ledger of n-gram probabilities: its mechanism, in numbers and in words."""

from collections.abc import Sequence

from beam_dpne.bayesian.counting import NgramProbabilities
from beam_dpne.bayesian.plan import BayesianPlan
from beam_dpne.mechanism.gaussian import GaussianNoise
from beam_dpne.release.ledger import Contents
from beam_dpne.release.schema import ProbabilityMechanism

_MEANING = (
    "Each user adds to at most max_contributions distinct n-grams of the public vocabulary, and at "
    "most max_count to each. Every n-gram of the vocabulary gets Gaussian noise, rounded to whole "
    "counts, whether or not any user has it. Probabilities are computed from noisy and public counts "
    "alone."
)
_PUBLIC = (
    "The public counts are not protected: every n-gram in them gets a probability. If they were made "
    "from the private data, the release reveals whatever they reveal of those data. If they are a "
    "private release of the same data, both releases count: beam-dpne account computes their total "
    "epsilon and delta from both ledgers, and no total is above the sums."
)
_FILE_COLUMNS = {
    "ngram": "the words, joined by one blank; see beam_dpne.join_tokens",
    "probability": "a number with nine significant digits; all probabilities sum to 1 up to that "
    "rounding",
    "order": "by falling probability, then by the bytes of the n-gram",
}


def bayesian_contents(plan: BayesianPlan, released: Sequence[NgramProbabilities]) -> Contents:
    """Returns the contents of the ledger of n-gram probabilities.

    Args:
      plan: Plan of the run.
      released: The released probabilities, as one element.

    Raises:
      ValueError: The probabilities are not those of a run under this plan.
    """
    (found,) = released
    if any(found.report.get(name) != value for name, value in plan.report().items()):
        raise ValueError("probabilities must be of a run under this plan.")
    return Contents(
        program="bayesian",
        found=ProbabilityMechanism(
            meaning=_MEANING,
            max_count=plan.max_count,
            max_contributions=plan.contribution_limit,
            public=found.report["public"],
            sensitivity=plan.sensitivity,
            noise_stddev=plan.noise_stddev,
            released=len(found),
        ),
        counts=None,
        noise=GaussianNoise(
            epsilon=plan.gaussian_epsilon,
            delta=plan.gaussian_delta,
            mu=plan.sensitivity / plan.noise_stddev,
        ),
        spent={},
        columns=_FILE_COLUMNS,
        grounds={},
        not_protected=[_PUBLIC],
    )
