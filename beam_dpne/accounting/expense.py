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

`composition` says why the parts of several releases add up. Ledgers are read here for their numbers;
parts of releases are never opened.
"""

import dataclasses
import functools
import hashlib
import math
import types
from collections.abc import Iterable, Mapping, Sequence
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from beam_dpne.bayesian.plan import BayesianPlan
from beam_dpne.errors import BudgetError
from beam_dpne.mechanism import gaussian
from beam_dpne.mechanism.gaussian import usable_delta, usable_epsilon
from beam_dpne.ngrams.plan import PrivacyPlan
from beam_dpne.release.reading import as_release_error, ledger_path, parse_ledger
from beam_dpne.set_union.plan import SetUnionPlan
from beam_dpne.storage.directories import directory_at
from beam_dpne.storage.paths import split

Plan = PrivacyPlan | SetUnionPlan | BayesianPlan
PLANS: Mapping[str, type[PrivacyPlan] | type[SetUnionPlan] | type[BayesianPlan]] = {
    kind.program: kind for kind in (PrivacyPlan, SetUnionPlan, BayesianPlan)
}
# Stated and recomputed noise may differ by this much, relatively; plans raise noise by 1e-10.
_TOLERANCE = 1e-6
as_budget_error = functools.partial(as_release_error, kind=BudgetError)
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
      >>> from beam_dpne import PrivacyPlan
      >>> spent = expense_of_plan(PrivacyPlan(epsilon=4, delta=1e-7))
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

    Whatever of ε and δ no part explains is in the remainder, and noise counts as at least as strong as
    its ε and δ allow. So numbers of a ledger that are too small in one place are too large in another.

    Args:
      plan: A plan, or the same numbers as a ledger states them.

    Raises:
      ValueError: The noise is weaker than the guarantee needs, or the parts exceed δ.
    """
    epsilon, delta, slack = plan.epsilon, plan.delta, plan.numerical_slack
    if slack >= epsilon:
        raise ValueError("its numerical slack is not below epsilon")
    explained = math.exp(slack) * (plan.gaussian_delta + plan.vocabulary_delta)
    if explained > delta * (1 + _TOLERANCE):
        raise ValueError("the parts of its delta exceed delta")
    if plan.gaussian_delta <= 0:
        raise ValueError("its Gaussian noise has no delta")
    least, most = (
        1 / gaussian.gaussian_noise_stddev(epsilon=each, delta=plan.gaussian_delta)
        for each in (usable_epsilon(epsilon), epsilon - slack)
    )
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


def expense_of_ledger(ledger: Mapping[str, Any], path: str) -> Expense:
    """Returns the expense that a ledger states, after checks that its numbers fit together.

    Args:
      ledger: A whole ledger (see `beam_dpne.release.reading.read_ledger`).
      path: Its path, for messages.

    Raises:
      BudgetError: Its numbers contradict each other.
    """
    spent, group = ledger["spent"], ledger["groups"]["sizes"][0]
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


@dataclasses.dataclass(frozen=True, kw_only=True)
class CountedLedger:
    """A ledger that counts in a total.

    Attributes:
      path: Path of the file.
      data: Its bytes.
      ledger: The ledger as JSON types.
      expense: The expense that it states.
    """

    path: str
    data: bytes = dataclasses.field(repr=False)
    ledger: Mapping[str, Any] = dataclasses.field(repr=False)
    expense: Expense

    @property
    def sha256(self) -> str:
        """SHA-256 of the file, hexadecimal."""
        return hashlib.sha256(self.data).hexdigest()

    @property
    def program(self) -> str:
        """Program of the run."""
        return self.ledger["program"]

    @property
    def unit(self) -> str | None:
        """The operator's noun for one user, or None."""
        return self.ledger.get("notes", {}).get("unit")

    @property
    def is_empty(self) -> bool:
        """Whether nothing was released; the ledgers of two such runs may be equal."""
        return not any(part["rows"] for part in self.ledger["parts"])


def counted_ledger(data: bytes, path: str) -> CountedLedger:
    """Returns the ledger that a file of this path holds.

    Raises:
      ReleaseError: It is not a whole ledger of a readable schema.
      BudgetError: Its numbers contradict each other.
    """
    ledger = parse_ledger(data, path)
    return CountedLedger(
        path=path, data=data, ledger=ledger, expense=expense_of_ledger(ledger, path)
    )


def read_counted(path: str) -> CountedLedger:
    """Reads one ledger.

    Args:
      path: Path of a release's directory, or of a ledger with any name that ends in .json; local or on
        any Beam file system.

    Raises:
      BudgetError: There is no ledger, it is not a whole one of a readable schema, or its numbers
        contradict each other.
    """
    file = path if path.endswith(".json") else ledger_path(path.rstrip("/") or path)
    with as_budget_error(f"{file} cannot be read"):
        folder, name = split(file)
        data = directory_at(folder).read(name)
        if data is None:
            raise BudgetError(
                f"{file} does not exist. Name a release's directory, or its ledger. A release that was "
                "deleted is spent all the same, so keep its ledger."
            )
        return counted_ledger(data, file)


def read_population(paths: Sequence[str], *, same_users: bool = False) -> list[CountedLedger]:
    """Reads the ledgers of releases about one population.

    Args:
      paths: Paths as in `read_counted`.
      same_users: Whether the operator states that all units of the ledgers are the same users.

    Raises:
      BudgetError: A release is named twice, the ledgers name different units, or a ledger names a
        known release about the same people that is not among them.
    """
    counted: list[CountedLedger] = []
    for path in paths:
        found = read_counted(path)
        if not found.is_empty and found.sha256 in {each.sha256 for each in counted}:
            raise BudgetError(f"Each release must be named once, but {path} is named twice.")
        if not same_users:
            check_unit(found.unit, (each.unit for each in counted))
        counted.append(found)
    named = {each.sha256 for each in counted}
    for each in counted:
        for known in each.ledger.get("known", {}).get("lists", ()):
            if known.get("same_people") and known["sha256"] not in named:
                raise BudgetError(
                    f"{each.path} is of a run that knew a release about the same people, whose ledger "
                    f"has the SHA-256 {known['sha256']}. Name that release as well."
                )
    return counted


def check_unit(unit: str | None, others: Iterable[str | None]) -> None:
    """Raises BudgetError if a unit is named, and others are, and it is none of them."""
    named = {_plain(other) for other in others if other is not None}
    if unit is not None and named and _plain(unit) not in named:
        raise BudgetError(
            f"Releases must be about the same users, but their notes name {min(named)!r} and "
            f"{_plain(unit)!r}. Compose releases of one population only; if each of these units is the "
            "same person, give --same_users."
        )


def _plain(unit: str) -> str:
    return " ".join(unit.split()).casefold()
