"""The ledger of n-gram probabilities: the mechanism, and what is said of the public counts."""

from collections.abc import Sequence

from beam_dpne.bayesian.grams import NgramProbabilities
from beam_dpne.bayesian.plan import ProbabilitiesPlan
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


def bayesian_contents(plan: ProbabilitiesPlan, released: Sequence[NgramProbabilities]) -> Contents:
    """Returns the contents of the ledger of n-gram probabilities, which are one element."""
    (found,) = released
    mechanism = ProbabilityMechanism(
        meaning=_MEANING,
        max_count=plan.max_count,
        max_contributions=plan.contribution_limit,
        public=found.public,
        sensitivity=plan.sensitivity,
        noise_stddev=plan.noise_stddev,
        released=len(found),
    )
    columns = {
        "ngram": "the words, joined by one blank; see beam_dpne.join_tokens",
        "probability": "a number with nine significant digits; all probabilities sum to 1 up to that "
        "rounding",
    }
    return Contents(found=mechanism, columns=columns, not_protected=[_PUBLIC])
