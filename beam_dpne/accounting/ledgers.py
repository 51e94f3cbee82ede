"""The ledgers of one population, read for their expense; parts of releases are never opened."""

import dataclasses
import hashlib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from beam_dpne.accounting.spending import Spending, spending_of_ledger
from beam_dpne.errors import BudgetError
from beam_dpne.release.files import (
    LEDGER_NAME,
    as_release_error,
    ledger_path,
    parse_ledger,
    real_path,
)
from beam_dpne.storage.access import directory_at


@dataclasses.dataclass(frozen=True, kw_only=True)
class CountedLedger:
    """A ledger that counts in a total.

    Attributes:
      path: Path of the file.
      sha256: SHA-256 of its bytes, hexadecimal.
      ledger: The ledger as JSON types.
      spending: The expense that it states.
      missing: Number of its parts that are not beside it.
    """

    path: str
    sha256: str
    ledger: Mapping[str, Any] = dataclasses.field(repr=False)
    spending: Spending
    missing: int = 0

    @property
    def unit(self) -> str | None:
        """The operator's noun for one user, or None."""
        return self.ledger.get("notes", {}).get("unit")

    @property
    def title(self) -> str | None:
        """The operator's name of the release, or None."""
        return self.ledger.get("notes", {}).get("title")


def read_counted(path: str) -> CountedLedger:
    """Reads one ledger.

    Args:
      path: Path of a release's directory, or of a ledger with any name that ends in .json; local or on
        any Beam file system.

    Raises:
      ReleaseError: There is no ledger, or it is not a whole one of a readable schema.
      BudgetError: Its numbers contradict each other.
    """
    file = path if path.endswith(".json") else ledger_path(path.rstrip("/") or path)
    folder, _, name = file.rpartition("/")
    folder = folder if "/" in file else "."
    directory = directory_at(folder or "/")
    with as_release_error(f"{file} cannot be read"):
        data = directory.read(name)
    if data is None:
        raise BudgetError(
            f"{file} does not exist. Name a release's directory, or its ledger. A release that was "
            "deleted is spent all the same, so keep its ledger."
        )
    with as_release_error(f"{file} cannot be read"):
        ledger = parse_ledger(data, file)
        beside = name == LEDGER_NAME
        missing = sum(not directory.has(part["name"]) for part in ledger["parts"]) if beside else 0
    return CountedLedger(
        path=file,
        sha256=hashlib.sha256(data).hexdigest(),
        ledger=ledger,
        spending=spending_of_ledger(ledger, file),
        missing=missing,
    )


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
    if not same_users:
        check_units(each.unit for each in counted)
    return counted


def check_units(units: Iterable[str | None]) -> None:
    """Raises BudgetError unless all units that are named are the same."""
    named = sorted({" ".join(unit.split()).casefold() for unit in units if unit is not None})
    if len(named) > 1:
        raise BudgetError(
            f"The ledgers must be about the same users, but their notes name {named[0]!r} and "
            f"{named[1]!r}. Compose releases of one population only; if each of these units is the "
            "same person, give --same_users."
        )


def remarks(counted: Sequence[CountedLedger]) -> list[str]:
    """Returns sentences that a reader of the total must know, one for each matter."""
    found = []
    for number, each in enumerate(counted):
        if each.missing:
            found.append(
                f"{each.path}: {each.missing} of its files {'is' if each.missing == 1 else 'are'} "
                "missing. The release is spent all the "
                "same, since somebody may have read it."
            )
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
