"""The expense of one release: the numbers that count when releases are composed.

**The parts of a release.** With one user and without, a release differs in four ways, which a ledger
states apart (section `spent`).

1. Its noise, in all rounds of all lengths, is as private as one Gaussian mechanism with
   sensitivity/σ = μ. This part is compared with a *hybrid* run, in which no word (item) is found to
   which only this user gives weight.
2. δ_T bounds the probability that such a word is found, in the run with the user, and in the run
   without the user if its weights were there. It is a probability of an event, so δ_T adds up.
3. Floating point multiplies probabilities by at most exp(±s/2), s the numerical slack. It adds s to ε,
   and multiplies δ by e^s.
4. Events that the slack does not cover (far tails) have probabilities a in the one world and b in the
   other, and cost a + b e^ε in δ. The ledger states this for the ε_i of the release. In a composition
   with a larger ε they cost a + b e^ε ≤ (a + b e^{ε_i}) e^{ε − ε_i}.

`composition` says why the parts of several releases add up, and `population` which releases do.
"""

import math
import types
from collections.abc import Mapping
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from beam_dpne.bayesian.plan import ProbabilitiesPlan
from beam_dpne.errors import BudgetError
from beam_dpne.mechanism import gaussian
from beam_dpne.mechanism.gaussian import usable_delta, usable_epsilon
from beam_dpne.ngrams.plan import NgramsPlan
from beam_dpne.phrase_counts.plan import PhraseCountsPlan
from beam_dpne.set_union.plan import SetUnionPlan

Plan = NgramsPlan | SetUnionPlan | ProbabilitiesPlan | PhraseCountsPlan
PLANS: Mapping[str, type[Plan]] = {
    kind.program: kind for kind in (NgramsPlan, SetUnionPlan, ProbabilitiesPlan, PhraseCountsPlan)
}
# Stated and recomputed noise may differ by this much, relatively; plans raise noise by 1e-10.
_TOLERANCE = 1e-6
_NotNegative = Annotated[float, Meta(ge=0)]


class Expense(msgspec.Struct, frozen=True, kw_only=True):
    """The expense of one release for one user.

    Attributes:
      epsilon: ε of the release.
      delta: δ of the release.
      mu: Sensitivity over σ of its Gaussian noise, all rounds together.
      lone_delta: δ_T, the probability that a word or an item is found which one user alone has, and no
        known list.
      slack: The part of ε that pays for floating point.
      remainder: The part of δ, at ε, that pays for events outside the slack.

    Example:
      >>> from beam_dpne import NgramsPlan
      >>> spent = expense_of_plan(NgramsPlan(epsilon=4, delta=1e-7))
      >>> round(spent.mu, 4), f"{spent.lone_delta:.3g}"
      (0.767, '9.95e-09')
    """

    epsilon: Annotated[float, Meta(gt=0)]
    delta: Annotated[float, Meta(gt=0, lt=1)]
    mu: Annotated[float, Meta(gt=0)]
    lone_delta: _NotNegative
    slack: _NotNegative
    remainder: _NotNegative


def expense_of_plan(plan: Any) -> Expense:
    """Returns the expense of a run under a plan, which is known before the run.

    A ledger may state a number that is too small. So what the parts leave of δ counts as remainder, and
    μ counts as at least what the usable ε and the δ of the noise allow: a part that is stated too small
    makes another one larger.

    Args:
      plan: A plan, or the same numbers as a ledger states them.

    Raises:
      ValueError: The noise is weaker than the guarantee needs, or the parts exceed δ.
    """
    epsilon = plan.epsilon
    delta = plan.delta
    slack = plan.numerical_slack
    if slack >= epsilon:
        raise ValueError("its numerical slack is not below epsilon")
    explained = math.exp(slack) * (plan.gaussian_delta + plan.vocabulary_delta)
    if explained > delta * (1 + _TOLERANCE):
        raise ValueError("the parts of its delta exceed delta")
    if plan.gaussian_delta <= 0:
        raise ValueError("its Gaussian noise has no delta")
    least = _mu_of(usable_epsilon(epsilon), plan.gaussian_delta)
    most = _mu_of(epsilon - slack, plan.gaussian_delta)
    if plan.mu > most * (1 + _TOLERANCE):
        raise ValueError("its noise is too small for its epsilon and delta")
    # What a plan reserves of δ costs nothing but the far tails.
    usable = math.exp(slack) * usable_delta(epsilon=epsilon, delta=delta)
    remainder = max(plan.far_tails, usable - explained)
    return Expense(
        epsilon=epsilon,
        delta=delta,
        mu=max(plan.mu, least),
        lone_delta=plan.vocabulary_delta,
        slack=slack,
        remainder=remainder,
    )


def _mu_of(epsilon: float, delta: float) -> float:
    """Returns the largest sensitivity over σ with which Gaussian noise is (ε, δ)-DP."""
    return 1 / gaussian.gaussian_noise_stddev(epsilon=epsilon, delta=delta)


def expense_of_ledger(ledger: Mapping[str, Any], path: str) -> Expense:
    """Returns the expense that a ledger states, after checks that its numbers fit together.

    Args:
      ledger: A whole ledger (see `beam_dpne.release.reading.read_ledger`).
      path: Its path, for messages.

    Raises:
      BudgetError: Its numbers contradict each other.
    """
    spent = ledger["spent"]
    group = ledger["groups"]["sizes"][0]
    stated = types.SimpleNamespace(
        epsilon=ledger["guarantee"]["epsilon"],
        delta=ledger["guarantee"]["delta"],
        mu=group["gaussian_mu"] / group["users"],
        gaussian_delta=spent["gaussian_delta"],
        vocabulary_delta=spent.get("vocabulary_delta", 0.0),
        numerical_slack=spent["numerical_slack"],
        far_tails=spent["far_tails"],
    )
    try:
        return expense_of_plan(stated)
    except ValueError as error:
        raise BudgetError(
            f"{path} is damaged: {error}. Restore the file that its run wrote."
        ) from None
