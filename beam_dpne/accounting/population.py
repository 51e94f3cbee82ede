"""Releases about one population: which ledgers belong into one total, and which runs count once.

Wherever releases are added up, all of these hold, or there is no total (`check_together`):

1. A run that knew a release about the same people is composed with the ledger of that release. That
   ledger is among the others, and so must be those that *it* names, and so on.
2. Of each series no two releases have one number, and all state the same series. Each user then takes
   part in so many of its releases at most as they state, whichever of them are among the others.
3. Two releases whose run keys were bound to one context have the same noise. Of one input they are one
   release, which counts once. Of two inputs, their difference is free of noise, and no total holds.

Ledgers are read here for their numbers; parts of releases are never opened.
"""

import dataclasses
import hashlib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec

from beam_dpne.accounting.composition import Together, Total, compose
from beam_dpne.accounting.expense import Expense, expense_of_ledger
from beam_dpne.documents.participants import SeriesPlace
from beam_dpne.documents.state_files import as_budget_error
from beam_dpne.errors import BudgetError
from beam_dpne.lists.parameters import KnownLists, ListedPhrases
from beam_dpne.reading.options import names_of
from beam_dpne.release.places import is_release, ledger_path
from beam_dpne.release.reading import (
    Release,
    described_release,
    read_ledger_bytes,
    released_in,
)
from beam_dpne.release.schema import plain_unit
from beam_dpne.storage.directories import directory_at
from beam_dpne.storage.paths import split


class KeyDigests(msgspec.Struct, frozen=True, kw_only=True):
    """The commitments to a run key, as a ledger states them.

    Attributes:
      commitment: Commitment to the key.
      bound_commitment: Commitment to the key bound to the context of the run.
    """

    commitment: str
    bound_commitment: str


class Note(msgspec.Struct, frozen=True, kw_only=True, tag_field="schema", tag="beam_dpne/start/1"):
    """The start of a run that has not published a release, as far as its budget knows.

    Attributes:
      program: Program of the run.
      output: Directory of the release to come; "" of one that stays in memory.
      date: Day of the start in UTC, e.g. "2026-03-31".
      unit: The operator's noun for one user, or None.
      expense: Expense of the run.
      same_people: SHA-256 of the ledgers of those known releases that are about the same people; none
        in notes of older versions.
      run_key: Commitments to a run key that was given; None for a fresh key, and where they were not
        known before the run.
      series: The place of the release in a series, if it is of one.
      users: What one user is, for runs of a series.
    """

    program: str
    output: str
    date: str
    unit: str | None
    expense: Expense
    same_people: tuple[str, ...] = ()
    run_key: KeyDigests | None = None
    series: SeriesPlace | None = None
    users: str | None = None


@dataclasses.dataclass(frozen=True, kw_only=True)
class CountedLedger:
    """A ledger that counts in a total.

    Attributes:
      path: Path of the file.
      data: Its bytes.
      release: The release that it describes, whose files may be elsewhere or gone.
      expense: The expense that it states.
    """

    path: str
    data: bytes = dataclasses.field(repr=False)
    release: Release = dataclasses.field(repr=False)
    expense: Expense

    @property
    def sha256(self) -> str:
        """SHA-256 of the file, hexadecimal."""
        return self.release.ledger_sha256

    @property
    def program(self) -> str:
        """Program of the run."""
        return self.release.program

    @property
    def unit(self) -> str | None:
        """The operator's noun for one user, or None."""
        return self.release.unit

    @property
    def same_people(self) -> tuple[str, ...]:
        """SHA-256 of the ledgers of those known releases that are about the same people."""
        lists = self.release.public_lists
        return tuple(each["sha256"] for each in lists if each.get("same_people"))

    @property
    def run_key(self) -> KeyDigests | None:
        """The commitments to the run key; None in ledgers of older versions."""
        key = self.release.ledger["run_key"]
        if "commitment" not in key or "bound_commitment" not in key:
            return None
        return KeyDigests(commitment=key["commitment"], bound_commitment=key["bound_commitment"])

    @property
    def series(self) -> SeriesPlace | None:
        """The place of the release in a series, if it is of one."""
        return place_of(self.release.ledger.get("series"))

    @property
    def users(self) -> str | None:
        """What one user is, for releases of a series."""
        return self.release.ledger.get("series", {}).get("users")

    @property
    def released(self) -> list[Any]:
        """Everything that was released: the digest of the rows, and the numbers of the ledger."""
        return released_in(self.release.ledger)

    @property
    def is_one_run(self) -> bool:
        """Whether an equal ledger is certainly of the same run.

        Two runs of older versions that released nothing may have equal ledgers.
        """
        return self.run_key is not None or self.release.num_rows > 0


Counted = Note | CountedLedger


def total_of(runs: Mapping[str, Counted], delta: float | None = None) -> Total:
    """Returns the (ε, δ) of runs about one population together.

    Args:
      runs: Notes and ledgers, by names for messages.
      delta: As in `compose`.

    Raises:
      BudgetError: There is no total (see `check_together`), or `compose` refuses.
    """
    check_together(runs)
    repeats = repeated(runs)
    counted = {name: run for name, run in runs.items() if name not in repeats}
    alone = [run.expense for run in counted.values() if run.series is None]
    together = [
        Together(
            expenses=[run.expense for run in members.values()],
            most=next(iter(members)).releases_per_user,
        )
        for members in _members_of_series(counted).values()
    ]
    return compose(alone, series=together, delta=delta)


def check_together(runs: Mapping[str, Counted]) -> None:
    """Raises BudgetError if runs have no total.

    A ledger is missing, or one key met two inputs, or two releases had one place in a series.
    """
    ledgers = {run.sha256 for run in runs.values() if isinstance(run, CountedLedger)}
    for name, run in runs.items():
        if missing := sorted({*run.same_people} - ledgers):
            told = f"The run to {run.output}" if isinstance(run, Note) else f"The run of {name}"
            raise BudgetError(
                f"{told} knows a release about the same people, whose budget counts as well, but the "
                f"ledger of that release is missing (its SHA-256 is {', '.join(missing)}). Add that "
                "release to the budget: beam-dpne account --budget FOLDER --add RELEASE. Without a "
                "budget, name it beside the others."
            )
    for name, other in void_by_its_key(runs).items():
        raise BudgetError(
            f"{other} and {name} were released under one run key with the same parameters, and are not "
            "the same release: the key met two inputs. The difference of the two is free of noise, so "
            "THEIR GUARANTEE IS VOID, and no total holds. Let nobody see them together, and take a "
            "fresh key for each input. If nobody has seen one of them, delete it, and take it out of "
            "the budget: beam-dpne account --budget FOLDER --remove NAME. Only if the input was the "
            "same, and the versions of packages in the ledgers differ, they are one release: then take "
            "one of the ledgers out in the same way."
        )


def _members_of_series(
    runs: Mapping[str, Counted],
) -> dict[str, dict[SeriesPlace, Counted]]:
    """Returns the releases of each series by their places, of runs without those that repeat another.

    Raises:
      BudgetError: Two of them have one number, or state different series under one name.
    """
    found: dict[str, dict[SeriesPlace, Counted]] = {}
    for name, run in runs.items():
        place = run.series
        if place is None:
            continue
        members = found.setdefault(place.id, {})
        first = next(iter(members), place)
        if msgspec.structs.replace(first, number=place.number) != place:
            raise BudgetError(
                f"{name} states another budget of its series than others of that series."
            )
        if place.number in {each.number for each in members}:
            raise BudgetError(
                f"{name} is release {place.number} of its series, as another one is: the participants "
                "of one of them are not recorded, so that no total holds. A series has one folder; "
                "let nobody use a copy of it."
            )
        members[place] = run
    return found


def place_of(section: Mapping[str, Any] | None) -> SeriesPlace | None:
    """Returns the place in a series that a ledger states in its section, if it has one."""
    return None if section is None else msgspec.convert(section, SeriesPlace)


def void_by_its_key(runs: Mapping[str, Counted]) -> dict[str, str]:
    """Returns the releases that void each other: they have one key and context, and are not the same.

    Returns:
      For the name of each such release that of another one: for a later one the first of its key, and
      for the first one the last that differs from it.
    """
    first: dict[str, tuple[str, CountedLedger]] = {}
    found: dict[str, str] = {}
    for name, run in runs.items():
        if not isinstance(run, CountedLedger) or run.run_key is None:
            continue
        other, ledger = first.setdefault(run.run_key.bound_commitment, (name, run))
        if run.released != ledger.released:
            found |= {name: other, other: name}
    return found


def repeated(runs: Mapping[str, Counted]) -> set[str]:
    """Returns the names of the runs that repeat another one under its key, and cost nothing.

    Of several runs with one key and context, one is the first, and all others repeat it. The first is a
    release if there is one among them, and else a run that has only started.
    """
    seen: set[str] = set()
    found: set[str] = set()
    for kind in (CountedLedger, Note):
        for name, run in runs.items():
            if not isinstance(run, kind) or run.run_key is None:
                continue
            if run.run_key.bound_commitment in seen:
                found.add(name)
            seen.add(run.run_key.bound_commitment)
    return found


def of_one_key(runs: Mapping[str, Counted]) -> list[list[str]]:
    """Returns the keys with which runs under different parameters were made.

    Returns:
      For each such key, the name of one run for each of the different parameters.
    """
    by_key: dict[str, dict[str, str]] = {}
    for name, run in runs.items():
        if run.run_key is not None:
            names = by_key.setdefault(run.run_key.commitment, {})
            names.setdefault(run.run_key.bound_commitment, name)
    return [[*names.values()] for names in by_key.values() if len(names) > 1]


def known_same_people(asked: KnownLists | ListedPhrases) -> tuple[str, ...]:
    """Returns the SHA-256 of the ledgers of the releases among a run's lists about the same people.

    Args:
      asked: The parameters of the run.

    Raises:
      FileNotFoundError, ReleaseError: A list or a ledger is not there, or cannot be read.
    """
    if isinstance(asked, ListedPhrases):
        releases = [asked.phrases] if asked.phrases_same_people else []
    elif asked.known_same_people:
        releases = [path for path in names_of(asked.known or ()) if is_release("known", path)]
    else:
        releases = []
    return tuple(hashlib.sha256(read_ledger_bytes(path)).hexdigest() for path in releases)


def counted_ledger(data: bytes, path: str) -> CountedLedger:
    """Returns the ledger that a file of this path holds.

    Raises:
      ReleaseError: It is not a whole ledger of a readable schema.
      BudgetError: Its numbers contradict each other.
    """
    release = described_release(data, path, folder=split(path)[0])
    expense = expense_of_ledger(release.ledger, path)
    return CountedLedger(path=path, data=data, release=release, expense=expense)


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
    """Reads the ledgers of releases about one population; `total_of` says whether they have a total.

    Args:
      paths: Paths as in `read_counted`.
      same_users: Whether the operator states that all units of the ledgers are the same users.

    Raises:
      BudgetError: A release of an older version is named twice, or the ledgers name different units.
    """
    return population_of(map(read_counted, paths), same_users=same_users)


def population_of(
    ledgers: Iterable[CountedLedger], *, same_users: bool = False
) -> list[CountedLedger]:
    """Returns ledgers about one population, as `read_population` does, which reads them first."""
    counted: list[CountedLedger] = []
    for found in ledgers:
        is_old = found.is_one_run and found.run_key is None
        if is_old and found.sha256 in {each.sha256 for each in counted}:
            raise BudgetError(f"Each release must be named once, but {found.path} is named twice.")
        if not same_users:
            check_unit(found.unit, (each.unit for each in counted))
        counted.append(found)
    return counted


def check_unit(unit: str | None, others: Iterable[str | None]) -> None:
    """Raises BudgetError if a unit is named, and others are, and it is none of them."""
    named = {plain_unit(other) for other in others if other is not None}
    if unit is not None and named and plain_unit(unit) not in named:
        raise BudgetError(
            f"Releases must be about the same users, but their notes name {min(named)!r} and "
            f"{plain_unit(unit)!r}. Compose releases of one population only; if each of these units is "
            "the same person, give --same_users."
        )
