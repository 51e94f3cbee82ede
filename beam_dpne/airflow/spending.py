"""What the runs about one population have spent, as a folder of releases shows it, and one run more.

A run is counted by its ledger, and from its start by notes beside its directory, one for each try. A
note is written before the total is taken, so that of two runs that start at the same time at least one
sees the other. `beam_dpne.accounting` has the expense of a ledger and decides whether a run would
exceed the cap. This module does not import Airflow.
"""

import contextlib
import json
import re
import uuid
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from beam_dpne.airflow.folders import Folder, TryLaterError, storage_errors
from beam_dpne.errors import BudgetError, ReleaseError

# Beam takes two seconds to load, and the parsing of DAGs imports this module; so do the functions.
if TYPE_CHECKING:
    from beam_dpne.accounting.spending import Spending

# A person puts this file into the folder. A folder that is misspelt, or not mounted, has none.
MARK = "population.txt"
# A note's name after that of its run's directory. Each try has another, so that a try which is refused
# takes back its note and not that of another try.
_STARTED = ".started-{}.json"
_NOTE = re.compile(r"(.+)\.started-[^/]*\.json", re.DOTALL)
_LEDGER = "/ledger.json"


_NO_LEDGER = "they have no ledger yet, or their tries had different budgets"


def started(epsilon: Any, delta: Any) -> "Spending":
    """Returns the expense of a run of which only ε and δ are known.

    Raises:
      BudgetError: One is no number in its range.
    """
    from beam_dpne.accounting.spending import Spending
    from beam_dpne.release.files import is_guarantee

    if not is_guarantee({"epsilon": epsilon, "delta": delta}):
        raise BudgetError(
            "epsilon must be a number above 0 and delta one in (0, 1), got "
            f"epsilon={epsilon!r} and delta={delta!r}."
        )
    return Spending(epsilon=float(epsilon), delta=float(delta), reason=_NO_LEDGER)


def note_start(
    folder: Folder, directory: str, wanted: "Spending", cap: tuple[float, float]
) -> None:
    """Notes the start of a run in a folder of releases, if the cap of its budget allows the run.

    The note stays, whatever becomes of the run. Another try of the run is not counted a second time.

    Args:
      folder: Folder of all releases of the population.
      directory: Directory of the run's release.
      wanted: Expense of the run.
      cap: Largest ε of all runs together, and the δ at which it holds.

    Raises:
      BudgetError: The run would exceed the cap, or it cannot be said what was spent.
      TryLaterError: The storage fails, or another run has started at the same time.
    """
    own = folder.name_of(directory)
    if own is None:
        raise BudgetError(
            f"releases of the operator must be in the folder of its budget, {folder.path}, got "
            f"{directory}: the budget would not see this run's release. Give the budget a folder that "
            "holds the releases of all operators about the population, written in the same way."
        )
    before = _spent_by_run(folder)
    wanted = _of_tries([*before.get(own, []), wanted])
    if (exceeded := _exceeded(folder.path, before, own, wanted, cap)) is not None:
        raise BudgetError(exceeded)
    note = own + _STARTED.format(uuid.uuid4().hex[:16])
    with storage_errors(f"{note} cannot be written"):
        pair = {"epsilon": wanted.epsilon, "delta": wanted.delta}
        folder.write(note, json.dumps(pair).encode())
    try:
        after = _spent_by_run(folder)
        seen = _of_tries(after[own]) if own in after else None
        if seen is None or seen.epsilon < wanted.epsilon or seen.delta < wanted.delta:
            raise TryLaterError(
                f"{note} was written, and the storage does not show it. The budget cannot be kept on "
                "this storage."
            )
        if (exceeded := _exceeded(folder.path, after, own, seen, cap)) is not None:
            raise TryLaterError(f"Another run has started at the same time. {exceeded}")
    except BaseException:
        # Nothing has started. If the note cannot be taken back, the run counts as started.
        with contextlib.suppress(Exception):
            folder.delete(note)
        raise


def _spent_by_run(folder: Folder) -> dict[str, "list[Spending]"]:
    """Returns the expenses that a run's ledger and notes state, by the name of its directory.

    Raises:
      BudgetError: A ledger or a note is not whole, or the folder is not marked.
      TryLaterError: The storage fails.
    """
    found: dict[str, list[Spending]] = {}
    root = folder.name_of(f"{folder.path.rstrip('/')}/{MARK}")
    marked = False
    with storage_errors(f"{folder.path} cannot be listed"):
        try:
            names = list(folder.names())
        except FileNotFoundError:
            names = []  # It is not marked either.
    for name in names:
        marked |= name == root
        if name.endswith(_LEDGER):
            run, spent = name.removesuffix(_LEDGER), _of_ledger(folder, name)
        elif (note := _NOTE.fullmatch(name)) is not None:
            run, spent = note[1], _of_note(folder, name)
        else:
            continue
        if spent is not None:
            found.setdefault(run, []).append(spent)
    if not marked:
        raise BudgetError(
            f"{folder.path} must be a folder with the file {MARK}, which shows that it holds the "
            f"releases of a population, and there is none. If the path is right and its storage is "
            f"mounted, make the folder and write {MARK} into it once; any text will do."
        )
    return found


def _of_ledger(folder: Folder, name: str) -> "Spending":
    from beam_dpne.accounting.spending import spending_of_ledger
    from beam_dpne.release.files import parse_ledger

    with storage_errors(f"{name} cannot be read"):
        data = folder.read(name)
    try:
        return spending_of_ledger(parse_ledger(data, name), name)
    except (BudgetError, ReleaseError) as error:
        raise BudgetError(
            f"{error} It cannot be said what was spent, so look at it before going on."
        ) from None


def _of_note(folder: Folder, name: str) -> "Spending | None":
    """Returns what a note says, or None if it was taken back just now."""
    with storage_errors(f"{name} cannot be read"):
        try:
            data = folder.read(name)
        except FileNotFoundError:
            return None
    try:
        note = json.loads(data)
        return started(note["epsilon"], note["delta"])
    except (ValueError, TypeError, LookupError, RecursionError, BudgetError):
        raise BudgetError(
            f"{name} must be a note with epsilon and delta of a run that started, and it is damaged. "
            "Look at it before going on."
        ) from None


def _of_tries(spent: "Sequence[Spending]") -> "Spending":
    """Returns the one expense that counts for a run, whose tries and ledger state several.

    It has the largest ε and the largest δ. If a ledger states both, its parts are known, too.
    """
    epsilon, delta = max(each.epsilon for each in spent), max(each.delta for each in spent)
    largest = [each for each in spent if (each.epsilon, each.delta) == (epsilon, delta)]
    return next((each for each in largest if each.reason is None), started(epsilon, delta))


def _exceeded(
    path: str,
    spent_by_run: "Mapping[str, Sequence[Spending]]",
    own: str,
    wanted: "Spending",
    cap: tuple[float, float],
) -> str | None:
    """Returns a sentence if the other runs and this one together exceed the cap, or else None."""
    from beam_dpne.accounting.budget import Budget

    epsilon, delta = cap
    others = [_of_tries(spent) for run, spent in spent_by_run.items() if run != own]
    try:
        budget = Budget(population=path, epsilon=epsilon, delta=delta)
        budget.check_room(others, wanted)
    except BudgetError as error:
        return f"{error} Runs that have started count as releases."
    return None
