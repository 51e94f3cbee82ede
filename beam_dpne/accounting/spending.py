"""The expense of one release: the mechanism that stands for it when releases are composed.

**The parts of a release.** With one user and without, a release differs in four ways, which a ledger
states apart (section `spent`).

1. Its noise, in all rounds of all lengths, is as private as one Gaussian mechanism with
   sensitivity/σ = μ, or as Laplace noise with ℓ1 sensitivity/λ = ε_L; where items with Laplace noise
   have numbers of users, as both, since those have Gaussian noise. This part is compared with a
   *hybrid* run, in which no word (item) is found to which only this user gives weight.
2. δ_T bounds the probability that such a word is found, in the run with the user, and in the run
   without the user if its weights were there. It is a probability of an event, so δ_T adds up.
3. Floating point multiplies probabilities by at most exp(±s/2), s the numerical slack. It adds s to ε,
   and multiplies δ by e^s.
4. Events that the slack does not cover (far tails; failures of Hoeffding's bound) have probabilities a
   in the one world and b in the other, and cost a + b e^ε in δ. The ledger states this for the ε_i of
   the release. In a composition with a larger ε they cost a + b e^ε ≤ (a + b e^{ε_i}) e^{ε − ε_i}.

`composition` says why the parts of several releases add up.

**Releases that cannot be divided into parts.** Where a ledger lacks one of these numbers, only its ε
and δ are used, and `Spending.reason` says why.
"""

import dataclasses
import math
from collections.abc import Mapping
from typing import Any

from beam_dpne.bayesian.plan import BayesianPlan
from beam_dpne.counts.budget import count_mu
from beam_dpne.counts.rule import CountNoise
from beam_dpne.errors import BudgetError
from beam_dpne.mechanism import gaussian
from beam_dpne.ngrams.plan import PrivacyPlan
from beam_dpne.set_union.plan import SetUnionPlan
from beam_dpne.set_union.policies import SPARE
from beam_dpne.validation import ADJACENCY

Plan = PrivacyPlan | SetUnionPlan | BayesianPlan
PLANS: Mapping[str, type[PrivacyPlan] | type[SetUnionPlan] | type[BayesianPlan]] = {
    "ngrams": PrivacyPlan,
    "set-union": SetUnionPlan,
    "bayesian": BayesianPlan,
}
# Stated and recomputed noise may differ by this much, relatively; plans raise noise by 1e-10.
_TOLERANCE = 1e-6
_OLD_SCHEMA = "its ledger does not state the cost of far tails, which schema 1 lacks"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Spending:
    """The expense of one release for one user.

    Attributes:
      epsilon: ε of the release.
      delta: δ of the release.
      mu: Sensitivity over σ of its Gaussian noise, all rounds together; 0 without Gaussian noise.
      laplace: ℓ1 sensitivity over λ of its Laplace noise; 0 without Laplace noise.
      lone_delta: δ_T, the probability that anything is found which one user alone has.
      slack: The part of ε that pays for floating point.
      remainder: The part of δ, at ε, that pays for events outside the slack.
      reason: Reason why only ε and δ may be used, or None if the parts are known.

    Example:
      >>> from beam_dpne import PrivacyPlan
      >>> spent = spending_of_plan(PrivacyPlan(epsilon=4, delta=1e-7))
      >>> round(spent.mu, 4), f"{spent.lone_delta:.3g}", spent.reason is None
      (0.7678, '1e-08', True)
    """

    epsilon: float
    delta: float
    mu: float = 0.0
    laplace: float = 0.0
    lone_delta: float = 0.0
    slack: float = 0.0
    remainder: float = 0.0
    reason: str | None = None

    @property
    def kind(self) -> str:
        """The way in which the release is composed: "gaussian", "laplace" or "sum"."""
        if self.reason is not None:
            return "sum"
        return "laplace" if self.laplace else "gaussian"


def program_of(plan: Plan) -> str:
    """Returns the name of the program that runs a plan."""
    return next(program for program, kind in PLANS.items() if isinstance(plan, kind))


def spending_of_plan(plan: Plan) -> Spending:
    """Returns the expense of a run under a plan, which is known before the run.

    Raises:
      TypeError: It is not a plan under which releases are private.
    """
    common: dict[str, Any] = {
        "epsilon": plan.epsilon,
        "delta": plan.delta,
        "slack": plan.numerical_slack,
        "far_tails": plan.far_tails,
        "gaussian_delta": plan.gaussian_delta,
    }
    if isinstance(plan, PrivacyPlan):
        return _divided(
            **common,
            stated=1 / plan.noise_stddev,
            lone_delta=plan.vocabulary_delta,
            has_union_vocabulary=plan.has_union_vocabulary,
        )
    if isinstance(plan, SetUnionPlan):
        return _divided(
            **common,
            stated=plan.sensitivity / plan.composed_noise_scale,
            lone_delta=plan.vocabulary_delta,
            has_laplace=plan.noise_kind == "laplace",
            count_share=plan.count_part,
            mu_of_counts=_mu_of(plan.count_noise),
        )
    if isinstance(plan, BayesianPlan):
        return _divided(**common, stated=plan.sensitivity / plan.noise_stddev, lone_delta=0.0)
    raise TypeError(f"plan must be a plan of a private release, got {type(plan).__name__}.")


def spending_of_ledger(ledger: Mapping[str, Any], path: str) -> Spending:
    """Returns the expense that a ledger states, after checks that its numbers fit together.

    Args:
      ledger: A whole ledger (see `beam_dpne.release.files.read_ledger`).
      path: Its path, for messages.

    Raises:
      BudgetError: Its numbers contradict each other, or it is about another kind of neighbours.
    """
    guarantee, plan, spent = ledger["guarantee"], ledger["plan"], ledger["spent"]
    epsilon, delta = (_positive(guarantee, name, path) for name in ("epsilon", "delta"))
    if delta >= 1:
        raise _damaged(path, "its delta is not below 1")
    for name, value in (("epsilon", epsilon), ("delta", delta)):
        if plan.get(name) != value:
            raise _damaged(path, f"guarantee and plan state different values of {name}")
    if plan.get("adjacency") != ADJACENCY:
        raise BudgetError(
            f"{path} must be of releases whose neighbours differ in one user, but its plan has another "
            "adjacency; such releases cannot be composed with others."
        )
    if "far_tails" not in spent:
        return Spending(epsilon=epsilon, delta=delta, reason=_OLD_SCHEMA)
    try:
        stated, has_laplace = _stated_noise(ledger)
        numbers = {
            "count_share": plan.get("count_share", 0.0),
            "mu_of_counts": _stated_count_mu(ledger),
            "gaussian_delta": spent["gaussian_delta"],
            "lone_delta": 0.0 if ledger["program"] == "bayesian" else spent["vocabulary_delta"],
            "slack": spent["numerical_slack"],
            "far_tails": spent["far_tails"],
        }
    except (KeyError, TypeError, ZeroDivisionError):
        return Spending(
            epsilon=epsilon, delta=delta, reason="its ledger does not state all of its noise"
        )
    for name, value in (*numbers.items(), ("noise", stated)):
        if (
            isinstance(value, bool)
            or not isinstance(value, int | float)
            or not 0 <= value < math.inf
        ):
            raise _damaged(path, f"its {name} is not a finite number of at least 0")
    try:
        return _divided(
            epsilon=epsilon,
            delta=delta,
            stated=stated,
            has_laplace=has_laplace,
            has_union_vocabulary="vocabulary_columns" in ledger,
            **numbers,
        )
    except ValueError as error:
        raise _damaged(path, str(error)) from None


def spending_of_parameters(program: str, parameters: Mapping[str, Any]) -> Spending:
    """Returns the expense of a run under a plan in its JSON form, which any version may have written.

    A plan that this version does not read has its ε and δ only.

    Raises:
      BudgetError: There is no such program, or the plan has no ε and δ.
    """
    kind = PLANS.get(program)
    if kind is None:
        raise BudgetError(f"program must be one of {', '.join(PLANS)}, got program={program!r}.")
    try:
        # Plans of earlier versions, which counted no users, have no such parameter.
        counted: dict[str, Any] = {} if kind is BayesianPlan else {"count_share": 0.0}
        return spending_of_plan(kind(**(counted | dict(parameters))))
    except (TypeError, ValueError):
        return spending_of_sums(parameters, "this version does not read the plan of the run")


def spending_of_sums(parameters: Mapping[str, Any], reason: str) -> Spending:
    """Returns the expense of a run of which only ε and δ are used.

    Args:
      parameters: The plan of the run in its JSON form.
      reason: Reason why its parts are not used.

    Raises:
      BudgetError: The plan has no ε and δ.

    >>> spending_of_sums({"epsilon": 2, "delta": 1e-6}, "nothing else is known").kind
    'sum'
    """
    epsilon, delta = (_positive(parameters, name, "A plan") for name in ("epsilon", "delta"))
    if delta >= 1:
        raise _damaged("A plan", "its delta is not below 1")
    return Spending(epsilon=epsilon, delta=delta, reason=reason)


def spending_of_json(value: Mapping[str, Any]) -> Spending:
    """Returns an expense from its fields as JSON types; inverse of `dataclasses.asdict`.

    Raises:
      TypeError: A field is missing, unknown or not a number.
      BudgetError: A number is out of its range.

    >>> spent = spending_of_sums({"epsilon": 2, "delta": 1e-6}, "nothing else is known")
    >>> spending_of_json(dataclasses.asdict(spent)) == spent
    True
    """
    names = {field.name for field in dataclasses.fields(Spending)}
    if not isinstance(value, Mapping) or set(value) != names:
        raise TypeError("An expense has other fields.")
    numbers = {name: number for name, number in value.items() if name != "reason"}
    if not all(type(number) in (int, float) for number in numbers.values()):
        raise TypeError("An expense has a field that is not a number.")
    in_range = all(0 <= number < math.inf for number in numbers.values()) and (
        value["epsilon"] > 0 and 0 < value["delta"] < 1
    )
    reason = value["reason"]
    if not in_range or not (reason is None or (isinstance(reason, str) and reason)):
        raise BudgetError("the expense of one of its releases is out of range.")
    if reason is None and value["mu"] == value["laplace"] == 0:
        raise BudgetError("the expense of one of its releases has no noise.")
    return Spending(**value)


def _divided(
    *,
    epsilon: float,
    delta: float,
    stated: float,
    lone_delta: float,
    slack: float,
    far_tails: float,
    gaussian_delta: float,
    has_laplace: bool = False,
    has_union_vocabulary: bool = False,
    count_share: float = 0.0,
    mu_of_counts: float = 0.0,
) -> Spending:
    """Returns an expense in parts; `stated` is sensitivity over scale of the noise.

    The noise of numbers of users is a part of Gaussian noise. Beside Laplace noise it stands apart, and
    has the part `count_share` of ε, all of `gaussian_delta`, and μ = `mu_of_counts`.

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
    if has_laplace and not 0 <= count_share < 1:
        raise ValueError("its count_share is not in [0, 1)")
    if has_laplace:
        laplace = _at_least(stated, (1 - count_share) * (epsilon - slack))
        needed = _mu_needed(count_share * (epsilon - slack), gaussian_delta) if count_share else 0.0
        mu = _at_least(mu_of_counts, needed)
    else:
        laplace, mu = 0.0, _at_least(stated, _mu_needed(epsilon - slack, gaussian_delta))
    remainder = max(far_tails, delta - explained)
    if has_union_vocabulary:
        # The failures of Hoeffding's bound in the words' set union, whose δ is below 2 δ_T and whose
        # own ε is below that of the run.
        remainder += 3 * SPARE * 2 * lone_delta * math.exp(min(epsilon, 700.0))
    return Spending(
        epsilon=epsilon,
        delta=delta,
        mu=mu,
        laplace=laplace,
        lone_delta=lone_delta,
        slack=slack,
        remainder=remainder,
    )


def _mu_needed(epsilon: float, delta: float) -> float:
    """Returns the μ of Gaussian noise that is just enough; raises ValueError without a δ."""
    if not 0 < delta < 1:
        raise ValueError("its Gaussian noise has no delta")
    return 1 / gaussian.gaussian_noise_stddev(epsilon=epsilon, delta=delta)


def _at_least(stated: float, needed: float) -> float:
    """Returns the larger of two strengths of noise, of which the stated one must not exceed the other.

    Raises:
      ValueError: The noise is weaker than the guarantee needs.
    """
    if stated > needed * (1 + _TOLERANCE):
        raise ValueError("its noise is too small for its epsilon and delta")
    return max(stated, needed)


def _mu_of(noise: CountNoise | None) -> float:
    return 0.0 if noise is None else count_mu(noise.row_stddev, noise.group_stddev)


def _stated_count_mu(ledger: Mapping[str, Any]) -> float:
    """Returns μ of the numbers of users that a ledger states, 0 without any.

    Raises:
      KeyError, TypeError, ZeroDivisionError: It states no such numbers.
    """
    if "counts" not in ledger:
        return 0.0
    return count_mu(ledger["counts"]["row_noise_stddev"], ledger["counts"]["group_noise_stddev"])


def _stated_noise(ledger: Mapping[str, Any]) -> tuple[float, bool]:
    """Returns sensitivity over scale of all noise that a ledger states, and whether it is Laplace's.

    Raises:
      KeyError, TypeError, ZeroDivisionError: It states no such numbers.
    """
    if ledger["program"] == "ngrams":
        return 1 / ledger["spent"]["composed_noise_stddev"], False
    mechanism = ledger["mechanism"]
    if mechanism["noise"] not in ("gaussian", "laplace"):
        raise KeyError("noise")
    scale = "composed_noise_scale" if ledger["program"] == "set-union" else "noise_stddev"
    return mechanism["sensitivity"] / mechanism[scale], mechanism["noise"] == "laplace"


def _positive(section: Mapping[str, Any], name: str, path: str) -> float:
    value = section.get(name)
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < math.inf:
        raise _damaged(path, f"its {name} is not a finite number above 0")
    return float(value)


def _damaged(path: str, why: str) -> BudgetError:
    return BudgetError(f"{path} is damaged: {why}. Restore the file that its run wrote.")
