"""The ledgers of one population, read for their expense; parts of releases are never opened."""

import contextlib
import dataclasses
import hashlib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from beam_dpne.accounting.expense import Expense, expense_of_ledger
from beam_dpne.errors import BeamDpneError, BudgetError
from beam_dpne.release.reading import LEDGER_NAME, ledger_path, parse_ledger, real_path
from beam_dpne.storage.access import directory_at
from beam_dpne.storage.directories import reason


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
    def budget(self) -> tuple[str, float, float]:
        """Program, ε and δ of the run."""
        return self.program, self.expense.epsilon, self.expense.delta


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
    folder, _, name = file.rpartition("/")
    folder = folder if "/" in file else "."
    directory = directory_at(folder or "/")
    with as_budget_error(f"{file} cannot be read"):
        data = directory.read(name)
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
      BudgetError: A path is named twice, or the ledgers name different units.
    """
    places = [real_path(path.removesuffix(LEDGER_NAME)) for path in paths]
    for number, place in enumerate(places):
        if place in places[:number]:
            raise BudgetError(
                f"Each release must be named once, but {paths[number]} is named twice."
            )
    counted = [read_counted(path) for path in paths]
    for number, each in enumerate(counted):
        if not same_users:
            check_unit(each.unit, (other.unit for other in counted[:number]))
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


def remarks(counted: Sequence[CountedLedger]) -> list[str]:
    """Returns sentences that a reader of the total must know, one for each matter."""
    found = []
    for number, each in enumerate(counted):
        if each.sha256 in [other.sha256 for other in counted[:number]]:
            found.append(
                f"{each.path} has the same bytes as a ledger before it, and both are counted. Leave "
                "one out if it is a copy; two runs that released nothing also have equal ledgers."
            )
    given = sum(bool(each.ledger["run_key"].get("given")) for each in counted)
    if given > 1:
        found.append(
            f"{given} of the runs had a run key that was given. If two of them used the same key on "
            "different inputs, no total holds, because the key's noise can be subtracted."
        )
    return found


@contextlib.contextmanager
def as_budget_error(failure: str):
    """Replaces errors of storage and releases by a BudgetError of one sentence."""
    try:
        yield
    except Exception as error:
        why = str(error) if isinstance(error, BeamDpneError) else f"{reason(error)}."
        raise BudgetError(f"{failure}: {why}") from None


def _plain(unit: str) -> str:
    return " ".join(unit.split()).casefold()
