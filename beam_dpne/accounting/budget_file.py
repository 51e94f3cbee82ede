"""A budget in a file, which launchers on several machines may change at the same time.

Each change reads the file, computes, and replaces the file only if it is still the one that was read.
Local files are changed under a lock of their directory, and on gs:// the write names the generation
that it replaces; then one of two launchers wins, and the other one reads the file again. Other file
systems have neither, and a budget there is refused. So is a local path without locks; where several
machines share a local path, their locks must work across machines.
"""

import contextlib
import dataclasses
import datetime
import importlib.util
import random
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from apache_beam.io.filesystems import FileSystems

from beam_dpne.accounting.budget import (
    CHARGED,
    RELEASED,
    RESERVED,
    RETURNED,
    Budget,
    Entry,
    as_date,
    budget_bytes,
    parse_budget,
    spendings_of,
)
from beam_dpne.accounting.ledgers import CountedLedger, check_units, read_counted
from beam_dpne.accounting.spending import Spending, spending_of_parameters
from beam_dpne.errors import BudgetError, ReleaseError
from beam_dpne.release.files import (
    LEDGER_NAME,
    PART_NAME,
    absolute,
    ledger_path,
    listed_parts,
    real_path,
)
from beam_dpne.storage.access import directory_at
from beam_dpne.storage.directories import Directory, reason

_ATTEMPTS = 20
_LONGEST_PAUSE = 0.5


def read_budget(path: str) -> Budget:
    """Reads a budget; its ledgers are not looked at.

    Raises:
      BudgetError: There is none, or it is damaged.
    """
    directory, name = _place(path)
    with _storage_errors(path):
        data = directory.read(name)
    return _parsed(data, path)


def create_budget(path: str, budget: Budget, *, today: datetime.date | None = None) -> None:
    """Writes a new budget.

    Args:
      path: Path of the file.
      budget: The budget, without releases.
      today: The day in UTC; None asks the clock.

    Raises:
      BudgetError: The file exists, or the budget has ended already.
    """
    day = today or _today()
    if budget.until is not None and day > as_date("until", budget.until):
        raise BudgetError(f"until must be {day} or a later day, got until={budget.until}.")
    directory, name = _place(path)
    with _storage_errors(path), directory.locked():
        if directory.has(name):
            raise BudgetError(f"budget must be a new file, got {path}, which exists.")
        # Reading tells an object store which generation the write expects: none.
        seen = directory.read(name)
        try:
            directory.replace(name, budget_bytes(budget), seen=seen)
        except ReleaseError:
            raise BudgetError(f"budget must be a new file, got {path}, which exists.") from None


def expenses(budget: Budget) -> list[Spending]:
    """Returns the expenses of all releases that count, after a check of every ledger.

    Raises:
      BudgetError: A ledger is missing, or has other bytes than when it was settled.
    """
    return spendings_of(budget.counted, _checked_spending)


def reserve(
    path: str,
    *,
    program: str,
    plan: Mapping[str, Any],
    output: str,
    unit: str | None = None,
    today: datetime.date | None = None,
) -> str:
    """Reserves the expense of a run that wants to start.

    Releases of the budget that the run would replace in its output directory become charged.

    Args:
      path: Path of the budget.
      program: Program of the run.
      plan: Plan of the run, as JSON types.
      output: Directory of the release to come.
      unit: The operator's noun for one user of the run, or None.
      today: The day in UTC; None asks the clock.

    Returns:
      The id of the entry.

    Raises:
      BudgetError: The run would exceed the cap, the budget has ended or is of another unit, or one of
        its ledgers is missing or was changed. The budget stays as it was.
    """
    day = today or _today()
    entry = Entry(
        id=uuid.uuid4().hex[:12],
        state=RESERVED,
        program=program,
        plan=plan,
        ledger=ledger_path(absolute(output)),
        sha256=None,
        date=day.isoformat(),
    )

    def with_reservation(budget: Budget) -> Budget:
        budget.check_open(day)
        check_units([budget.unit, unit])
        wanted = spending_of_parameters(program, plan)
        budget.check_room(expenses(budget), wanted)
        for other in budget.counted:
            if other.state == RELEASED and real_path(other.ledger) == real_path(entry.ledger):
                budget = budget.with_entry(dataclasses.replace(other, state=CHARGED))
        return budget.with_entry(dataclasses.replace(entry, spending=wanted))

    _change(path, with_reservation)
    return entry.id


def settle(path: str, identifier: str) -> None:
    """Notes the ledger of a run that is done, or of a release that was moved back to its place.

    Raises:
      BudgetError: There is no such entry, or the ledger is missing, of another plan, or not the one
        that the release had before.
    """

    def settled(budget: Budget) -> Budget:
        entry = budget.entry(identifier)
        _require(entry, "settled", RESERVED, CHARGED)
        found = read_counted(entry.ledger)
        if (found.ledger["program"], found.ledger["plan"]) != (entry.program, dict(entry.plan)):
            raise BudgetError(
                f"Release {entry.id} of the budget cannot be settled: {found.path} is the ledger "
                "of a run under another plan."
            )
        if entry.sha256 not in (None, found.sha256):
            raise BudgetError(
                f"Release {entry.id} of the budget cannot be settled: {found.path} is not the ledger "
                "that it had before."
            )
        return budget.with_entry(
            dataclasses.replace(entry, state=RELEASED, sha256=found.sha256, spending=found.spending)
        )

    _change(path, settled)


def charge(path: str, identifier: str) -> None:
    """Counts a release for good by the expense that its entry keeps, whatever became of its files.

    Raises:
      BudgetError: There is no such entry.
    """

    def charged(budget: Budget) -> Budget:
        entry = budget.entry(identifier)
        _require(entry, "charged", RESERVED, RELEASED)
        return budget.with_entry(dataclasses.replace(entry, state=CHARGED))

    _change(path, charged)


def give_back(path: str, identifier: str) -> None:
    """Returns the reservation of a failed run whose output directory has no file of it.

    The operator states that the run has ended on its engine, and that nobody has read a file of it.

    Raises:
      BudgetError: There is no such reservation, or a file of the run may be there.
    """

    def returned(budget: Budget) -> Budget:
        entry = budget.entry(identifier)
        _require(entry, "given back", RESERVED)
        found = _files_of_run(entry, budget)
        if found:
            raise BudgetError(
                f"Release {entry.id} of the budget cannot be given back: its directory has {found}, "
                f"which the run may have published. Use --settle {entry.id} if the release is whole, "
                f"or --charge {entry.id}."
            )
        return budget.with_entry(dataclasses.replace(entry, state=RETURNED))

    _change(path, returned)


def add(path: str, ledgers: Sequence[CountedLedger], *, today: datetime.date | None = None) -> None:
    """Adds releases that were made without the budget; they count even above the cap.

    Raises:
      BudgetError: A ledger is in the budget already, or names another unit.
    """
    day = (today or _today()).isoformat()

    def with_ledgers(budget: Budget) -> Budget:
        check_ledgers(budget, ledgers)
        for each in ledgers:
            file = absolute(each.path)
            if any(real_path(entry.ledger) == real_path(file) for entry in budget.counted):
                raise BudgetError(f"{each.path} is in the budget already.")
            budget = budget.with_entry(
                Entry(
                    id=uuid.uuid4().hex[:12],
                    state=RELEASED,
                    program=each.ledger["program"],
                    plan=each.ledger["plan"],
                    ledger=file,
                    sha256=each.sha256,
                    date=day,
                    spending=each.spending,
                )
            )
        return budget

    _change(path, with_ledgers)


def check_ledgers(budget: Budget, ledgers: Sequence[CountedLedger]) -> None:
    """Raises BudgetError if ledgers are of another unit than a budget's."""
    check_units([budget.unit, *(each.unit for each in ledgers)])


def _checked_spending(entry: Entry) -> Spending:
    """Returns the expense of a released entry from its ledger, whose hash the budget has."""
    remedy = (
        "Restore it, or count the release without it: beam-dpne account --budget FILE --charge "
        f"{entry.id}."
    )
    with _as_budget_error(f"The ledger of release {entry.id} of the budget cannot be used", remedy):
        found = read_counted(entry.ledger)
        if found.sha256 != entry.sha256:
            raise BudgetError(f"{entry.ledger} was changed or replaced since it was settled.")
    return found.spending


@contextlib.contextmanager
def _as_budget_error(failure: str, remedy: str):
    try:
        yield
    except (BudgetError, ReleaseError) as error:
        raise BudgetError(f"{failure}: {error} {remedy}") from None


def _files_of_run(entry: Entry, budget: Budget) -> str | None:
    """Returns the name of a file that an unsettled run may have left in its directory, or None.

    Files of a release that the budget knows by its ledger's hash are of an earlier run.
    """
    directory = directory_at(entry.ledger[: -len(LEDGER_NAME)])
    names = directory.names()
    known: frozenset[str] = frozenset()
    if LEDGER_NAME in names:
        found = read_counted(entry.ledger)
        if found.sha256 not in {other.sha256 for other in budget.entries}:
            return LEDGER_NAME
        known = listed_parts(directory.read(LEDGER_NAME))
    # Temporary files have the name of a part, or of the ledger, within theirs.
    return next(
        (
            name
            for name in sorted(names)
            if name not in known and (PART_NAME.search(name) or f".{LEDGER_NAME}.tmp-" in name)
        ),
        None,
    )


def _require(entry: Entry, verb: str, *states: str) -> None:
    if entry.state not in states:
        raise BudgetError(
            f"Release {entry.id} of the budget cannot be {verb}; it is {entry.state}."
        )


def _change(path: str, change: Callable[[Budget], Budget]) -> None:
    """Replaces a budget by a changed one, if nobody else has changed it meanwhile."""
    for attempt in range(_ATTEMPTS):
        # A directory on an object store remembers the generations that it has read.
        directory, name = _place(path)
        with _storage_errors(path):
            if not directory.has(name):
                raise _missing(path)
            with directory.locked():
                seen = directory.read(name)
                data = budget_bytes(change(_parsed(seen, path)))
                try:
                    directory.replace(name, data, seen=seen)
                except ReleaseError:
                    # Another launcher has replaced the file; its entry must count, too.
                    time.sleep(random.uniform(0, _LONGEST_PAUSE) * (attempt + 1))
                    continue
        return
    raise BudgetError(
        f"The budget {path} was changed by others {_ATTEMPTS} times while it was read; try again."
    )


def _parsed(data: bytes | None, path: str) -> Budget:
    if data is None:
        raise _missing(path)
    return parse_budget(data, path)


def _missing(path: str) -> BudgetError:
    return BudgetError(
        f"budget must be an existing file, got {path}. Make one: beam-dpne account --budget {path} "
        "--create --population NAME --epsilon E --delta D."
    )


def _place(path: str) -> tuple[Directory, str]:
    """Returns the directory and the name of a budget.

    Raises:
      BudgetError: The path is no file's, or two launchers could change a file there at once.
    """
    scheme = FileSystems.get_scheme(path)
    whole = absolute(path)
    folder, _, name = whole.rpartition("/")
    if not path or not name or (scheme is not None and folder.endswith(":/")):
        raise BudgetError(f"budget must be the path of a file, got budget={path!r}.")
    if scheme not in (None, "gs"):
        raise BudgetError(
            f"budget must be a local file or begin with gs://, got {path}: elsewhere two launchers "
            "could change it at the same time."
        )
    if scheme is None and importlib.util.find_spec("fcntl") is None:
        raise BudgetError("budget must be on gs://, since this system has no locks of files.")
    return directory_at(folder or "/"), name


@contextlib.contextmanager
def _storage_errors(path: str):
    """Replaces the storage's errors by a BudgetError of one sentence."""
    try:
        yield
    except OSError as error:
        raise BudgetError(f"The budget {path} cannot be used ({reason(error)}).") from None


def _today() -> datetime.date:
    return datetime.datetime.now(datetime.timezone.utc).date()
