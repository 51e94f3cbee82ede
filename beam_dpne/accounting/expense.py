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

`composition` says why the parts of several releases add up.

**Releases that cannot be divided into parts.** Where a ledger lacks one of these numbers, only its ε
and δ are used, and `Expense.reason` says why.
"""

import dataclasses
import math
from collections.abc import Mapping
from typing import Any

from beam_dpne.bayesian.plan import BayesianPlan
from beam_dpne.errors import BudgetError
from beam_dpne.mechanism import gaussian
from beam_dpne.mechanism.finite_noise import usable_delta, usable_epsilon
from beam_dpne.ngrams.plan import PrivacyPlan
from beam_dpne.set_union.plan import SetUnionPlan
from beam_dpne.validation import ADJACENCY

Plan = PrivacyPlan | SetUnionPlan | BayesianPlan
PLANS: Mapping[str, type[PrivacyPlan] | type[SetUnionPlan] | type[BayesianPlan]] = {
    "ngrams": PrivacyPlan,
    "set-union": SetUnionPlan,
    "bayesian": BayesianPlan,
}
# Stated and recomputed noise may differ by this much, relatively; plans raise noise by 1e-10.
_TOLERANCE = 1e-6
_NOT_STATED = "not all of the noise is stated as Gaussian noise"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Expense:
    """The expense of one release for one user.

    Attributes:
      epsilon: ε of the release.
      delta: δ of the release.
      mu: Sensitivity over σ of its Gaussian noise, all rounds together.
      lone_delta: δ_T, the probability that anything is found which one user alone has.
      slack: The part of ε that pays for floating point.
      remainder: The part of δ, at ε, that pays for events outside the slack.
      reason: Reason why only ε and δ may be used, or None if the parts are known.

    Raises:
      BudgetError: A number is out of its range.

    Example:
      >>> from beam_dpne import PrivacyPlan
      >>> spent = expense_of_plan(PrivacyPlan(epsilon=4, delta=1e-7))
      >>> round(spent.mu, 4), f"{spent.lone_delta:.3g}", spent.reason is None
      (0.767, '9.95e-09', True)
    """

    epsilon: float
    delta: float
    mu: float = 0.0
    lone_delta: float = 0.0
    slack: float = 0.0
    remainder: float = 0.0
    reason: str | None = None

    def __post_init__(self):
        for name in ("epsilon", "delta", "mu", "lone_delta", "slack", "remainder"):
            value = getattr(self, name)
            is_number = isinstance(value, int | float) and not isinstance(value, bool)
            if not is_number or not 0 <= value < math.inf:
                raise BudgetError(f"its {name} is not a finite number of at least 0")
        if not (self.epsilon > 0 and 0 < self.delta < 1):
            raise BudgetError("its epsilon is not above 0, or its delta is not in (0, 1)")
        if self.reason is None and not self.mu:
            raise BudgetError("it has no noise")


def program_of(plan: Plan) -> str:
    """Returns the name of the program that runs a plan."""
    return next(program for program, kind in PLANS.items() if isinstance(plan, kind))


def expense_of_plan(plan: Plan) -> Expense:
    """Returns the expense of a run under a plan, which is known before the run."""
    if isinstance(plan, PrivacyPlan):
        mu = 1 / plan.noise_stddev
    elif isinstance(plan, SetUnionPlan):
        mu = plan.sensitivity / plan.composed_noise_scale
    else:
        mu = plan.sensitivity / plan.noise_stddev
    return _divided(
        epsilon=plan.epsilon,
        delta=plan.delta,
        mu=mu,
        gaussian_delta=plan.gaussian_delta,
        lone_delta=0.0 if isinstance(plan, BayesianPlan) else plan.vocabulary_delta,
        slack=plan.numerical_slack,
        far_tails=plan.far_tails,
    )


def expense_of_ledger(ledger: Mapping[str, Any], path: str) -> Expense:
    """Returns the expense that a ledger states, after checks that its numbers fit together.

    Args:
      ledger: A whole ledger (see `beam_dpne.release.reading.read_ledger`).
      path: Its path, for messages.

    Raises:
      BudgetError: Its numbers contradict each other, or it is about another kind of neighbours.
    """
    guarantee, plan, spent = ledger["guarantee"], ledger["plan"], ledger["spent"]
    budget = {name: guarantee[name] for name in ("epsilon", "delta")}
    if any(plan.get(name) != value for name, value in budget.items()):
        raise _damaged(path, "guarantee and plan state different budgets")
    if plan.get("adjacency") != ADJACENCY:
        raise BudgetError(
            f"{path} must be of releases whose neighbours differ in one user, but its plan has another "
            "adjacency; such releases cannot be composed with others."
        )
    try:
        numbers = {
            "mu": _stated_mu(ledger),
            "gaussian_delta": spent["gaussian_delta"],
            "lone_delta": 0.0 if ledger["program"] == "bayesian" else spent["vocabulary_delta"],
            "slack": spent["numerical_slack"],
            "far_tails": spent["far_tails"],
        }
    except (KeyError, TypeError, ZeroDivisionError):
        return Expense(**budget, reason=_NOT_STATED)
    for name, value in numbers.items():
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        if not is_number or not 0 <= value < math.inf:
            raise _damaged(path, f"its {name} is not a finite number of at least 0")
    try:
        return _divided(**budget, **numbers)
    except ValueError as error:
        raise _damaged(path, str(error)) from None


def _divided(
    *,
    epsilon: float,
    delta: float,
    mu: float,
    gaussian_delta: float,
    lone_delta: float,
    slack: float,
    far_tails: float,
) -> Expense:
    """Returns an expense in parts.

    Whatever of ε and δ no part explains is in the remainder, and noise counts as at least as strong as
    its ε and δ allow. So numbers of a ledger that are too small in one place are too large in another.

    Raises:
      ValueError: The noise is weaker than the guarantee needs, or the parts exceed δ.
    """
    if slack >= epsilon:
        raise ValueError("its numerical slack is not below epsilon")
    explained = math.exp(slack) * (gaussian_delta + lone_delta)
    if explained > delta * (1 + _TOLERANCE):
        raise ValueError("the parts of its delta exceed delta")
    if gaussian_delta <= 0:
        raise ValueError("its Gaussian noise has no delta")
    least, most = (
        1 / gaussian.gaussian_noise_stddev(epsilon=each, delta=gaussian_delta)
        for each in (usable_epsilon(epsilon), epsilon - slack)
    )
    if mu > most * (1 + _TOLERANCE):
        raise ValueError("its noise is too small for its epsilon and delta")
    # What a plan reserves of δ costs nothing but the far tails.
    usable = math.exp(slack) * usable_delta(epsilon=epsilon, delta=delta)
    remainder = max(far_tails, usable - explained)
    return Expense(
        epsilon=epsilon,
        delta=delta,
        mu=max(mu, least),
        lone_delta=lone_delta,
        slack=slack,
        remainder=remainder,
    )


def _stated_mu(ledger: Mapping[str, Any]) -> float:
    """Returns sensitivity over σ of all noise that a ledger states.

    Raises:
      KeyError, TypeError, ZeroDivisionError: It states no such numbers, or other noise.
    """
    if ledger["program"] == "ngrams":
        return 1 / ledger["spent"]["composed_noise_stddev"]
    mechanism = ledger["mechanism"]
    scale = "composed_noise_scale" if ledger["program"] == "set-union" else "noise_stddev"
    return mechanism["sensitivity"] / mechanism[scale]


def _damaged(path: str, why: str) -> BudgetError:
    return BudgetError(f"{path} is damaged: {why}. Restore the file that its run wrote.")
