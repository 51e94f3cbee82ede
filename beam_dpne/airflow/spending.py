"""What the runs about one population have spent, as a folder of releases shows it, and one run more.

A run is counted by its ledger, and from its start by notes beside its directory, one for each try. A
note is written before the sum is taken, so that of two runs that start at the same time at least
one sees the other. This module does not import Airflow.
"""

import contextlib
import json
import re
import uuid
from collections.abc import Mapping
from decimal import ROUND_CEILING, Context, Decimal
from fractions import Fraction
from typing import Any, NamedTuple

from beam_dpne.airflow.folders import BudgetError, Folder, TryLaterError, storage_errors

# A person puts this file into the folder. A folder that is misspelt, or not mounted, has none.
MARK = "population.txt"
# A note's name after that of its run's directory. Each try has another, so that a try which is refused
# takes back its note and not that of another try.
_STARTED = ".started-{}.json"
_NOTE = re.compile(r"(.+)\.started-[^/]*\.json", re.DOTALL)
_LEDGER = "/ledger.json"


class Spent(NamedTuple):
    """A pair of ε and δ, exact.

    Numbers of floating point stand for the decimal numbers that they are printed as, so that ten times
    0.1 is 1, and sums are not rounded.
    """

    epsilon: Fraction
    delta: Fraction

    @classmethod
    def of(cls, epsilon: Any, delta: Any) -> "Spent":
        """Returns a pair of numbers.

        Raises:
          BudgetError: One is no number in its range.
        """
        # Beam takes two seconds to load, and the parsing of DAGs imports this module.
        from beam_dpne.release.files import is_guarantee

        if not is_guarantee({"epsilon": epsilon, "delta": delta}):
            raise BudgetError(
                "epsilon must be a number above 0 and delta one in (0, 1), got "
                f"epsilon={epsilon!r} and delta={delta!r}."
            )
        return cls(_exact(epsilon), _exact(delta))

    def at_least(self, other: "Spent") -> "Spent":
        """Returns the larger ε and the larger δ of two pairs."""
        return Spent(*map(max, self, other))

    def written(self) -> bytes:
        """Returns the pair as JSON."""
        return json.dumps({"epsilon": float(self.epsilon), "delta": float(self.delta)}).encode()


def note_start(folder: Folder, directory: str, wanted: Spent, limit: Spent) -> None:
    """Notes the start of a run in a folder of releases, if the folder's limits allow the run.

    The note stays, whatever becomes of the run. Another try of the run is not counted a second time.

    Args:
      folder: Folder of all releases of the population.
      directory: Directory of the run's release.
      wanted: ε and δ of the run.
      limit: Largest sums of ε and δ.

    Raises:
      BudgetError: The run would exceed a limit, or it cannot be said what was spent.
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
    if own in before:
        wanted = wanted.at_least(before[own])
    if (exceeded := _exceeded(folder.path, before, own, wanted, limit)) is not None:
        raise BudgetError(exceeded)
    note = own + _STARTED.format(uuid.uuid4().hex[:16])
    with storage_errors(f"{note} cannot be written"):
        folder.write(note, wanted.written())
    try:
        after = _spent_by_run(folder)
        if own not in after or after[own] != after[own].at_least(wanted):
            raise TryLaterError(
                f"{note} was written, and the storage does not show it. The budget cannot be kept on "
                "this storage."
            )
        if (exceeded := _exceeded(folder.path, after, own, after[own], limit)) is not None:
            raise TryLaterError(f"Another run has started at the same time. {exceeded}")
    except BaseException:
        # Nothing has started. If the note cannot be taken back, the run counts as started.
        with contextlib.suppress(Exception):
            folder.delete(note)
        raise


def _spent_by_run(folder: Folder) -> dict[str, Spent]:
    """Returns ε and δ of each run, by the name of its directory.

    Raises:
      BudgetError: A ledger or a note is not whole, or the folder is not marked.
      TryLaterError: The storage fails.
    """
    found: dict[str, Spent] = {}
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
            found[run] = spent.at_least(found.get(run, spent))
    if not marked:
        raise BudgetError(
            f"{folder.path} must be a folder with the file {MARK}, which shows that it holds the "
            f"releases of a population, and there is none. If the path is right and its storage is "
            f"mounted, make the folder and write {MARK} into it once; any text will do."
        )
    return found


def _of_ledger(folder: Folder, name: str) -> Spent:
    from beam_dpne.errors import ReleaseError
    from beam_dpne.release.files import parse_ledger

    with storage_errors(f"{name} cannot be read"):
        data = folder.read(name)
    try:
        guarantee = parse_ledger(data, name)["guarantee"]
    except ReleaseError as error:
        raise BudgetError(
            f"{error} It cannot be said what was spent, so look at it before going on."
        ) from None
    return Spent.of(guarantee["epsilon"], guarantee["delta"])


def _of_note(folder: Folder, name: str) -> Spent | None:
    """Returns what a note says, or None if it was taken back just now."""
    with storage_errors(f"{name} cannot be read"):
        try:
            data = folder.read(name)
        except FileNotFoundError:
            return None
    try:
        note = json.loads(data)
        return Spent.of(note["epsilon"], note["delta"])
    except (ValueError, TypeError, LookupError, RecursionError, BudgetError):
        raise BudgetError(
            f"{name} must be a note with epsilon and delta of a run that started, and it is damaged. "
            "Look at it before going on."
        ) from None


def _exceeded(
    path: str, spent_by_run: Mapping[str, Spent], own: str, wanted: Spent, limit: Spent
) -> str | None:
    """Returns a sentence if the other runs and this one together exceed a limit, or else None."""
    others = [spent for run, spent in spent_by_run.items() if run != own]
    for place, name in enumerate(Spent._fields):
        spent = sum((other[place] for other in others), Fraction())
        if spent + wanted[place] > limit[place]:
            return (
                f"The budget of {path} has {name} {float(limit[place])}. Its {len(others)} other "
                f"releases and started runs have spent {_printed(spent)}, and this run would spend "
                f"{_printed(wanted[place])} more, so it was not started."
            )
    return None


def _exact(number: float) -> Fraction:
    return Fraction(number if isinstance(number, int) else repr(float(number)))


def _printed(number: Fraction) -> Decimal:
    """Returns a number for messages; it is never too small."""
    context = Context(prec=12, rounding=ROUND_CEILING)
    return context.divide(Decimal(number.numerator), Decimal(number.denominator))
