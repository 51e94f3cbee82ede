"""On what a guarantee rests beyond its statement: theorems, compositions, promises; for ledgers."""

from typing import Any

from beam_dpne.ngrams.plan import PrivacyPlan
from beam_dpne.set_union.plan import SetUnionPlan
from beam_dpne.set_union.policies import LAPLACE_POLICIES

_INDIVIDUAL_BUDGETS = (
    "Every user has one budget for the whole run, mu^2 with mu = 1 / composed_noise_stddev. A "
    "contribution costs the sum of its squared weights, as the integers that were sent; over all "
    "lengths and rounds a user's costs add up to at most mu^2, whatever was released on the way. What "
    "a user has left is a private state: it decides what this user sends next, and reaches everybody "
    "else only through sums with noise of deviation 1. By the theorem on fully adaptive composition "
    "with individual budgets for Gaussian noise, the whole run is as private as one Gaussian mechanism "
    "of sensitivity mu and noise of deviation 1."
)
_REFERENCES = (
    "A. Smith and A. Thakurta (2022): Fully Adaptive Composition for Gaussian Differential Privacy",
    "A. Koskela, M. Tobaben and A. Honkela (2022): Individual Privacy Accounting with Gaussian "
    "Differential Privacy",
    "V. Feldman and T. Zrnic (2021): Individual Privacy Accounting via a Rényi Filter",
)
_PROMISE = (
    "That the input has at most max_users users is the operator's promise, never checked against the "
    "data, since to refuse or to drop users would tell their number. With more users, what rounding "
    "adds to the sensitivity, and the numerical slack, could pass the bounds that are stated here."
)
FAR_TAILS_MEANING = (
    "What noise that is so far out that its 128 bits no longer give it the right probability may cost "
    "of delta: the probability of such noise, times 1 + exp(epsilon) for the two worlds with and "
    "without a user. It is subtracted from delta before the noise is calibrated."
)
_ADDED = (
    "The words were found by a set union with a part of epsilon and delta of its own; what the longer "
    "n-grams cost is added to it."
)
_TOGETHER = (
    "The words were found by a set union whose Gaussian noise is one part of the run's: squares of "
    "sensitivity over noise add up to 1 / composed_noise_stddev^2 over all lengths."
)


def individual_budgets(plan: PrivacyPlan) -> dict[str, Any]:
    """Returns on what the guarantee rests where a reviewer would look for ordinary composition."""
    if plan.user_budgets != "individual":
        return {}
    return {
        "individual_budgets": {
            "statement": _INDIVIDUAL_BUDGETS,
            "mu": 1 / plan.noise_stddev,
            "references": list(_REFERENCES),
        }
    }


def promises(plan: SetUnionPlan) -> dict[str, Any]:
    """Returns what the operator promises, where the guarantee of a set union needs it."""
    if not plan.update_policy.has_cutoff:
        return {}
    return {"promise": {"max_users": plan.max_users, "meaning": _PROMISE}}


def union_composition(plan: PrivacyPlan) -> dict[str, Any]:
    """Returns how a set union that finds the words is composed with the longer n-grams."""
    if not plan.has_union_vocabulary:
        return {}
    is_apart = plan.vocabulary_policy in LAPLACE_POLICIES
    return {"composition": _ADDED if is_apart else _TOGETHER}
