"""The ledger of n-gram probabilities: its mechanism, in numbers and in words."""

from collections.abc import Sequence
from typing import Any

from beam_dpne.bayesian.counting import NgramProbabilities
from beam_dpne.bayesian.plan import BayesianPlan
from beam_dpne.mechanism.group_privacy import GaussianNoise, groups_section
from beam_dpne.release.ledger import Contents

_MEANING = (
    "Each user adds to at most max_contributions distinct n-grams of the public vocabulary, and at "
    "most max_count to each. Every n-gram of the vocabulary gets Gaussian noise, rounded to whole "
    "counts, whether or not any user has it. Probabilities are computed from noisy and public counts "
    "alone."
)
_COLUMNS = {
    "meaning": "how a probability is computed",
    "max_count": "C, the largest number of times that one n-gram of one user counts",
    "max_contributions": "W, the largest number of distinct n-grams that one user adds",
    "public": "the number of n-grams in the public vocabulary, the number of words in each, and the "
    "SHA-256 of n-grams and counts (beam_dpne.PublicCounts.fingerprint); nothing protects them",
    "released": "number of n-grams with a probability, which are all n-grams of the public vocabulary",
    "sensitivity": "upper bound on the l2 distance by which one user moves all counts, C * sqrt(W)",
    "noise_stddev": "sigma, before the noise is rounded to whole counts",
}
_SLACK = (
    "This part of epsilon pays for floating-point arithmetic and for noise made of 128 bits. The "
    "probability of each noisy integer is right to a relative 2e-12, or to 1e-13 * sigma if that is "
    "more, outside far tails. The noise is calibrated for 999/1000 of epsilon, so that a thousandth of "
    "epsilon is left for it."
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
      TypeError: The plan is not one under which a release is private.
      ValueError: The probabilities are not those of a run under this plan.
    """
    (found,) = released
    _check(plan, found)
    noise = GaussianNoise(
        epsilon=plan.gaussian_epsilon,
        delta=plan.gaussian_delta,
        mu=plan.sensitivity / plan.noise_stddev,
    )
    return Contents(
        program="bayesian",
        sections={
            "mechanism_columns": _COLUMNS,
            "mechanism": {**_mechanism(found), "released": len(found)},
        },
        spent={},
        slack_meaning=_SLACK,
        columns=_FILE_COLUMNS,
        groups=groups_section(epsilon=plan.epsilon, delta=plan.delta, gaussian=noise),
        grounds={},
        not_protected=[_PUBLIC],
    )


def _mechanism(found: NgramProbabilities) -> dict[str, Any]:
    stated_elsewhere = ("numerical_slack", "gaussian_delta")
    numbers = {name: value for name, value in found.report.items() if name not in stated_elsewhere}
    return {"meaning": _MEANING, **numbers}


def _check(plan: BayesianPlan, found: NgramProbabilities) -> None:
    """Raises an error if the ledger would claim a guarantee that the run did not have."""
    if not isinstance(plan, BayesianPlan):
        raise TypeError(
            "plan must be a BayesianPlan, under which a release is private, got "
            f"{type(plan).__name__}."
        )
    wanted = plan.report()
    if any(found.report.get(name) != value for name, value in wanted.items()):
        raise ValueError("probabilities must be of a run under this plan.")
    if found.guarantee != plan.guarantee:
        raise ValueError("probabilities must have the guarantee of this plan.")
