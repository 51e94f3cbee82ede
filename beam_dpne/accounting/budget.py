"""A budget: a cap on (ε, δ) for one population, and the releases that count towards it.

A release counts from the moment in which its run is allowed to start. Its entry is then *reserved*.
When the run is done, the entry becomes *released*, with the SHA-256 of the ledger, from which the
expense is read from then on. A failed run stays reserved, since nobody can prove from outside what it
has shown; the operator can have it *returned* if nothing was published, or *charged* for good. A
release whose ledger is gone is charged, too. Then it costs what its ledger stated, which its entry
keeps: a plan cannot tell, since a later version may calibrate other noise for the same plan.
"""

import dataclasses
import datetime
import json
import math
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from beam_dpne.accounting.composition import Total, compose
from beam_dpne.accounting.spending import Spending, spending_of_json, spending_of_sums
from beam_dpne.errors import BudgetError

SCHEMA = "beam_dpne/budget/1"
RESERVED, RELEASED, CHARGED, RETURNED = "reserved", "released", "charged", "returned"
STATES = (RESERVED, RELEASED, CHARGED, RETURNED)
_WHAT = (
    "The privacy budget of one population, kept by beam-dpne. Every release counts that is reserved, "
    "released or charged; a returned one has published nothing. Do not edit the list by hand."
)
_IDENTIFIER = re.compile(r"[0-9a-f]{12}")
_NOT_KEPT = "the budget does not have the parts of its expense, which earlier versions did not keep"
_SHA256 = re.compile(r"[0-9a-f]{64}")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Entry:
    """One release of a budget.

    Attributes:
      id: Twelve hexadecimal digits that name the entry.
      state: "reserved", "released", "charged" or "returned".
      program: Program of the run.
      plan: Plan of the run, as JSON types.
      ledger: Path of the ledger that the run writes or has written.
      sha256: SHA-256 of that ledger, hexadecimal; None unless the entry has been released.
      date: Day of the reservation in UTC, e.g. "2026-03-31".
      spending: The expense that its ledger stated when it was settled or added, and before that the
        expense of the plan when it was reserved. None in files of versions that did not keep it.
    """

    id: str
    state: str
    program: str
    plan: Mapping[str, Any]
    ledger: str
    sha256: str | None
    date: str
    spending: Spending | None = None

    @property
    def counts(self) -> bool:
        """Whether the release counts towards the cap."""
        return self.state != RETURNED


@dataclasses.dataclass(frozen=True, kw_only=True)
class Budget:
    """A cap for one population, with its releases in the order of their reservations.

    Attributes:
      population: Name of the population, e.g. "customers of the shop".
      unit: The operator's noun for one user, e.g. "a customer"; None if it is not stated.
      epsilon: Largest ε of all releases together, at `delta`.
      delta: δ of the total, in (0, 1).
      until: Last day on which a run may start, in UTC; None without an end.
      entries: The releases.

    Raises:
      BudgetError: A value is out of its range.

    Example:
      >>> budget = Budget(population="customers", epsilon=8, delta=1e-6)
      >>> parse_budget(budget_bytes(budget), "budget.json") == budget
      True
    """

    population: str
    epsilon: float
    delta: float
    unit: str | None = None
    until: str | None = None
    entries: tuple[Entry, ...] = ()

    def __post_init__(self):
        for name in ("population", "unit"):
            value = getattr(self, name)
            if value is None and name == "unit":
                continue
            if not isinstance(value, str) or not value.strip() or not value.isprintable():
                raise BudgetError(f"{name} must be one line of text, got {name}={value!r}.")
        for name, upper in (("epsilon", math.inf), ("delta", 1.0)):
            value = getattr(self, name)
            is_number = isinstance(value, int | float) and not isinstance(value, bool)
            if not is_number or not 0 < value < upper:
                raise BudgetError(f"{name} must be in (0, {upper:g}), got {name}={value!r}.")
        if self.until is not None:
            as_date("until", self.until)

    @property
    def counted(self) -> tuple[Entry, ...]:
        """The releases that count towards the cap."""
        return tuple(entry for entry in self.entries if entry.counts)

    def entry(self, identifier: str) -> Entry:
        """Returns the entry with this name.

        Raises:
          BudgetError: There is none.
        """
        for entry in self.entries:
            if entry.id == identifier:
                return entry
        raise BudgetError(
            f"The budget has no release {identifier}; beam-dpne account --budget FILE lists them."
        )

    def with_entry(self, changed: Entry) -> "Budget":
        """Returns the budget with an entry in place of the one of the same name, or at the end."""
        entries = tuple(changed if entry.id == changed.id else entry for entry in self.entries)
        if changed not in entries:
            entries = (*entries, changed)
        return dataclasses.replace(self, entries=entries)

    def total(self, spendings: Sequence[Spending]) -> Total | None:
        """Returns what releases spend together at the δ of the cap; None without releases."""
        return compose(spendings, delta=self.delta) if spendings else None

    def check_open(self, today: datetime.date) -> None:
        """Raises BudgetError if no run may start any more."""
        if self.until is not None and today > as_date("until", self.until):
            raise BudgetError(
                f"The budget of {self.population!r} ended on {self.until}, so the run was not started. "
                "What was spent stays spent; make a new budget for the time to come."
            )

    def check_spent(self, spendings: Sequence[Spending]) -> None:
        """Raises BudgetError if the releases so far exceed the cap."""
        total = self.total(spendings)
        if total is not None and total.epsilon > self.epsilon:
            raise BudgetError(
                f"The budget of {self.population!r} is below what is spent: {_cap(self)}, and its "
                f"{_releases(len(spendings))} {_spent(total)}."
            )

    def check_room(self, spendings: Sequence[Spending], wanted: Spending) -> None:
        """Raises BudgetError if a run would exceed the cap.

        Args:
          spendings: The expenses of the releases so far.
          wanted: The expense of the run.
        """
        self.check_spent(spendings)
        together = compose([*spendings, wanted], delta=self.delta)
        if together.epsilon > self.epsilon:
            before = self.total(spendings)
            so_far = (
                "It has no releases yet"
                if before is None
                else (f"Its {_releases(len(spendings))} {_spent(before)}")
            )
            raise BudgetError(
                f"The budget of {self.population!r} does not allow this run: {_cap(self)}. {so_far}, "
                f"and with this run of epsilon {wanted.epsilon:g} and delta {wanted.delta:g} the total "
                f"would have {_spent(together)}, so it was not started."
            )


def spendings_of(
    entries: Sequence[Entry], of_ledger: Callable[[Entry], Spending]
) -> list[Spending]:
    """Returns the expenses of releases; `of_ledger` has those that state one in a ledger.

    The others have the expense that their entries keep. Without one, ε and δ are added up, which holds
    whatever noise the run had.
    """
    return [
        of_ledger(entry)
        if entry.state == RELEASED
        else entry.spending or spending_of_sums(entry.plan, _NOT_KEPT)
        for entry in entries
    ]


def as_date(name: str, text: object) -> datetime.date:
    """Returns a day given as text.

    Raises:
      BudgetError: It is not a day.

    >>> as_date("until", "2026-12-31")
    datetime.date(2026, 12, 31)
    """
    if isinstance(text, str) and re.fullmatch(r"\d{4}-\d\d-\d\d", text):
        try:
            return datetime.date.fromisoformat(text)
        except ValueError:
            pass
    raise BudgetError(f"{name} must be a day, e.g. 2026-12-31, got {name}={text!r}.")


def budget_bytes(budget: Budget) -> bytes:
    """Returns a budget as indented UTF-8 JSON; inverse of `parse_budget`."""
    value = {
        "schema": SCHEMA,
        "what": _WHAT,
        "population": budget.population,
        "unit": budget.unit,
        "cap": {"epsilon": budget.epsilon, "delta": budget.delta},
        "until": budget.until,
        "releases": [dataclasses.asdict(entry) for entry in budget.entries],
    }
    return (json.dumps(value, indent=2, ensure_ascii=False, allow_nan=False) + "\n").encode()


def parse_budget(data: bytes, path: str) -> Budget:
    """Reads a budget.

    Raises:
      BudgetError: It is not a whole budget of this schema.
    """
    try:
        value = json.loads(data)
    except (ValueError, RecursionError):
        value = None
    if not isinstance(value, dict) or not str(value.get("schema")).startswith("beam_dpne/budget/"):
        raise BudgetError(f"{path} is not a budget of beam_dpne.")
    if value["schema"] != SCHEMA:
        raise BudgetError(f"{path} has schema {value['schema']!r}; this version reads {SCHEMA}.")
    try:
        budget = Budget(
            population=value["population"],
            unit=value["unit"],
            epsilon=value["cap"]["epsilon"],
            delta=value["cap"]["delta"],
            until=value["until"],
            entries=tuple(_entry(each) for each in value["releases"]),
        )
    except BudgetError as error:
        raise BudgetError(f"{path} is damaged: {error}") from None
    except (KeyError, TypeError):
        raise BudgetError(f"{path} is damaged: one of its fields is missing or wrong.") from None
    names = [entry.id for entry in budget.entries]
    if len(set(names)) < len(names):
        raise BudgetError(f"{path} is damaged: two of its releases have the same id.")
    return budget


def _entry(value: Mapping[str, Any]) -> Entry:
    spending = value.get("spending")
    entry = Entry(**{**value, "spending": None if spending is None else spending_of_json(spending)})
    as_date("date", entry.date)
    is_whole = (
        isinstance(entry.id, str)
        and _IDENTIFIER.fullmatch(entry.id)
        and entry.state in STATES
        and isinstance(entry.program, str)
        and isinstance(entry.plan, dict)
        and isinstance(entry.ledger, str)
        and (entry.sha256 is None or _SHA256.fullmatch(str(entry.sha256)))
        and (entry.sha256 is not None or entry.state != RELEASED)
        and (
            entry.spending is None
            or (entry.spending.epsilon, entry.spending.delta)
            == (entry.plan.get("epsilon"), entry.plan.get("delta"))
        )
    )
    if not is_whole:
        raise BudgetError("one of its releases is not whole.")
    return entry


def _cap(budget: Budget) -> str:
    return f"its cap is epsilon {budget.epsilon:g} at delta {budget.delta:g}"


def _releases(count: int) -> str:
    return "1 release has" if count == 1 else f"{count} releases have"


def _spent(total: Total) -> str:
    epsilon = "no finite epsilon" if math.isinf(total.epsilon) else f"epsilon {total.epsilon:.6g}"
    return f"{epsilon} at delta {total.delta:g}"
