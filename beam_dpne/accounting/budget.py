"""A budget: a folder with a cap on (ε, δ) for one population, and a file for each run that counts.

`budget.json` names the population and the cap. Before a run starts, it writes a *note* with its expense
into a file of its own; when its release is published, a copy of the ledger replaces the note. Both
count, and so does every ledger that somebody copies into the folder under a name that ends in `.json`.
A failed run leaves its note, since nobody can see from outside what it has shown; the operator removes
it.

Two runs that start at the same time cannot pass the cap together. Each writes its note before it adds
up all files, so that at least one of them sees both; a run that does not see its own note does not
start. This needs no locks, and works on every file system that lists a file once it is written.
"""

import dataclasses
import datetime
import hashlib
import json
import math
import re
import shlex
import uuid
from collections.abc import Mapping, Sequence
from typing import Annotated

import msgspec
from msgspec import Meta

from beam_dpne.accounting.composition import Total
from beam_dpne.accounting.expense import Expense
from beam_dpne.accounting.population import (
    Counted,
    CountedLedger,
    KeyDigests,
    Note,
    check_together,
    check_unit,
    counted_ledger,
    read_counted,
    total_of,
    void_by_its_key,
)
from beam_dpne.documents.state_files import BUDGET_NAME, as_budget_error, read_state
from beam_dpne.errors import BudgetError
from beam_dpne.release.places import LEDGER_NAME, check_outside, real_path
from beam_dpne.release.reading import is_ledger
from beam_dpne.storage.directories import Directory, absolute_path, directory_at

_SUFFIX = ".json"
# What the note of a release in memory is called.
_IN_MEMORY = "in-memory"


class Cap(msgspec.Struct, frozen=True, kw_only=True):
    """The largest (ε, δ) of all runs together."""

    epsilon: Annotated[float, Meta(gt=0)]
    delta: Annotated[float, Meta(gt=0, lt=1)]


class _File(msgspec.Struct, kw_only=True, tag_field="schema", tag="beam_dpne/budget/2"):
    """The content of `budget.json`."""

    what: str = (
        "The cap on the privacy budget of one population. Every other file in this folder whose name "
        "ends in .json is the ledger of a release about it, or the note of a run that has started."
    )
    population: str
    cap: Cap


@dataclasses.dataclass(frozen=True, kw_only=True)
class Budget:
    """A cap for one population; its runs are read from its folder each time.

    Attributes:
      path: Folder of the budget, local or on any Beam file system.
      population: Name of the population, e.g. "customers of the shop".
      cap: Largest (ε, δ) of all runs together.
    """

    path: str
    population: str
    cap: Cap

    def runs(self) -> dict[str, Counted]:
        """Returns all runs that count, by the names of their files without ".json".

        Raises:
          BudgetError: A file cannot be read, or is neither a ledger nor a note.
        """
        directory = directory_at(self.path)
        with as_budget_error(f"the budget {self.path} cannot be read"):
            files = sorted(name for name in directory.names() if _counts(name))
        return {name.removesuffix(_SUFFIX): read_run(directory, name) for name in files}

    def total(self, runs: Mapping[str, Counted]) -> Total | None:
        """Returns what runs spend together at the δ of the cap; None without runs.

        Raises:
          BudgetError: The runs have no total (see `population.check_together`).
        """
        return total_of(runs, self.cap.delta) if runs else None

    def check_and_note(
        self,
        expense: Expense,
        *,
        program: str,
        output: str,
        unit: str | None = None,
        same_people: Sequence[str] = (),
        run_key: KeyDigests | None = None,
        again: bool = False,
        is_rehearsal: bool = False,
    ) -> str:
        """Notes that a run starts, or refuses it if it would exceed the cap.

        Args:
          expense: Expense of the run.
          program: Program of the run.
          output: Directory of the release to come; "" of one that stays in memory.
          unit: The operator's noun for one user of the run, or None.
          same_people: SHA-256 of the ledgers of those known releases that are about the same people.
          run_key: Commitments to the run key, if one was given.
          again: Whether all tries that publish in this directory are one run, of which at most one
            publishes; then the note of an earlier try stands for this one, too.
          is_rehearsal: Whether the run does not start, so that nothing is noted.

        Returns:
          The name of the note, for `remove`.

        Raises:
          BudgetError: The run would exceed the cap, names another unit than the runs so far, knows a
            release about the same people that is not in the budget, or it cannot be said what was
            spent.
        """
        place = absolute_path(output).rstrip("/") if output else ""
        today = datetime.datetime.now(datetime.UTC).date().isoformat()
        note = Note(
            program=program,
            output=place,
            date=today,
            unit=unit,
            expense=expense,
            same_people=tuple(same_people),
            run_key=run_key,
        )
        name = _name_of(place or _IN_MEMORY, place if again else uuid.uuid4().hex)
        runs = self.runs()
        check_unit(unit, [run.unit for run in runs.values()])
        if name in runs:
            earlier = runs[name]
            if not isinstance(earlier, Note) or earlier.expense != expense:
                raise BudgetError(
                    f"{name} in the budget {self.path} must be the note of an earlier try of this run, "
                    "with the same expense. If the run has published nothing, remove it."
                )
            every = tuple(sorted({*earlier.same_people, *same_people}))
            note = msgspec.structs.replace(earlier, same_people=every)
            self._check_cap({**runs, name: note})
            if note != earlier and not is_rehearsal:
                self._write(name, json_bytes(note))
            return name
        self._check_cap({**runs, name: note}, new=name)
        if is_rehearsal:
            return name
        self._write(name, json_bytes(note))
        try:
            seen = self.runs()
            if name not in seen:
                raise BudgetError(
                    f"The folder {self.path} does not show a file that was just written to it, so it "
                    "cannot keep a budget."
                )
            self._check_cap(seen, new=name)
        except BaseException:
            # Nothing has started. If the note cannot be deleted, the run counts as started.
            self.withdraw(name)
            raise
        return name

    def settle(self, output: str) -> None:
        """Replaces the note of a run by a copy of the ledger that the run has published.

        Nothing is left to do if the budget has this ledger. The note of a later run to the same
        directory, which has failed, then stays.

        Args:
          output: Directory of the release.

        Raises:
          BudgetError: There is no whole ledger, or no note of its run; or the ledger is in the budget
            now, and the budget has no total (see `population.check_together`).
        """
        runs = self.runs()
        place = absolute_path(output).rstrip("/")
        found = read_counted(output)
        own = _note_of(found, place, runs)
        if own is not None:
            # A release is spent, so its ledger is recorded before anything is said against it.
            self._write(own, found.data)
            runs[own] = found
        elif not _is_among(found, runs):
            raise BudgetError(
                f"The budget {self.path} has no note of a run that publishes in {output} with this "
                "program, epsilon and delta. Add the release: beam-dpne account --budget FOLDER --add "
                "RELEASE."
            )
        check_together(runs)

    def settle_note(self, note: str, ledger: bytes) -> None:
        """Replaces a note by the ledger of a release in memory.

        Raises:
          BudgetError: The ledger cannot be written; the note stays, and counts.
        """
        self._write(note, ledger)

    def withdraw(self, name: str) -> bool:
        """Removes the file of a run of which nobody has seen anything; returns whether it is gone."""
        directory = directory_at(self.path)
        file = name + _SUFFIX
        # A directory of a bucket deletes only what it has read.
        directory.read(file)
        directory.remove([file])
        return not directory.has(file)

    def add(self, ledgers: Sequence[CountedLedger]) -> None:
        """Adds releases that were made without the budget; they count even above the cap.

        Raises:
          BudgetError: A ledger is in the budget already, or with these ledgers the budget has no total
            (see `population.check_together`).
        """
        runs = self.runs()
        for ledger in ledgers:
            if _is_among(ledger, runs) and ledger.is_one_run:
                raise BudgetError(f"{ledger.path} is in the budget already, or named twice.")
            runs[ledger.path] = ledger
        check_together(runs)
        for ledger in ledgers:
            place = absolute_path(ledger.path).removesuffix(f"/{LEDGER_NAME}").removesuffix(_SUFFIX)
            self._write(_name_of(place, uuid.uuid4().hex), ledger.data)

    def remove(self, name: str) -> None:
        """Removes the note of a failed run, or the ledger of a void release, which then does not count.

        The operator states that the run has ended, and that nobody has read a file of it.

        Raises:
          BudgetError: There is no such note and no such void release, or the output directory of the
            note has files that the run may have published.
        """
        runs = self.runs()
        run = runs.get(name)
        if isinstance(run, CountedLedger) and name in void_by_its_key(runs):
            if not self.withdraw(name):
                raise BudgetError(f"{name} cannot be deleted from the budget {self.path}.")
            return
        if not isinstance(run, Note):
            raise BudgetError(
                f"The budget {self.path} has no note {name}. Its notes are shown by: beam-dpne account "
                f"--budget {shlex.quote(self.path)}."
            )
        output = run.output
        with as_budget_error(f"{output} cannot be read"):
            left = directory_at(output).names() if output else []
        known: set[str] = set()
        if LEDGER_NAME in left and _is_among(found := read_counted(output), runs):
            known = {LEDGER_NAME, *(part.name for part in found.release.parts)}
        if set(left) - known:
            raise BudgetError(
                f"{name} must be the note of a run that has published nothing, but {output} has files. "
                "Settle it if they are a whole release; otherwise delete them, if nobody has read them."
            )
        if not self.withdraw(name):
            raise BudgetError(f"{name} cannot be deleted from the budget {self.path}.")

    def _write(self, name: str, data: bytes) -> None:
        with as_budget_error(f"the budget {self.path} cannot be written"):
            directory_at(self.path).put(name + _SUFFIX, data)

    def _check_cap(self, runs: Mapping[str, Counted], new: str | None = None) -> None:
        """Raises BudgetError if runs exceed the cap together; `new` is one that wants to start."""
        total = self.total(runs)
        if total is None or total.epsilon <= self.cap.epsilon:
            return
        before = self.total({name: run for name, run in runs.items() if name != new})
        spent_before = "nothing" if before is None else spent_text(before)
        raise BudgetError(
            f"The budget of {self.population!r} does not allow this run: its cap is epsilon "
            f"{self.cap.epsilon:g} at delta {self.cap.delta:g}. Its runs so far have spent "
            f"{spent_before}, and the total would be {spent_text(total)}. The run was not started."
        )


def create_budget(path: str, *, population: str, epsilon: float, delta: float) -> Budget:
    """Makes a folder with a new budget.

    Raises:
      BudgetError: The folder has a budget, or cannot be written.
      UsageError: It is in the directory of a release, with which it would be published.
    """
    check_outside("budget", path)
    cap = Cap(epsilon=epsilon, delta=delta)
    file = _File(population=population, cap=cap)
    directory = directory_at(path)
    with as_budget_error(f"the budget {path} cannot be written"), directory.locked():
        if directory.read(BUDGET_NAME) is not None:
            raise BudgetError(f"`budget` must be a new folder, got {path}, which has a budget.")
        directory.replace(BUDGET_NAME, json_bytes(file), seen=None)
    return Budget(path=path, population=population, cap=cap)


def open_budget(path: str) -> Budget:
    """Returns the budget in a folder; its runs are not read.

    Raises:
      BudgetError: There is none, or it is damaged.
    """
    command = (
        f"beam-dpne account --budget {shlex.quote(path)} --create --population NAME --epsilon E "
        "--delta D"
    )
    file = read_state(path, BUDGET_NAME, _File, option="budget", command=command)
    return Budget(path=path, population=file.population, cap=file.cap)


def _counts(name: str) -> bool:
    return name.endswith(_SUFFIX) and name != BUDGET_NAME and not name.startswith(".")


def read_run(directory: Directory, name: str) -> Counted:
    """Reads the ledger or the note in a file.

    Raises:
      BudgetError: It is neither, or cannot be read.
    """
    path = directory.path_of(name)
    with as_budget_error(f"{path} cannot be read, so it cannot be said what was spent"):
        data = directory.read(name) or b""
        if is_ledger(data):
            return counted_ledger(data, path)
        return msgspec.json.decode(data, type=Note)


def json_bytes(value: msgspec.Struct) -> bytes:
    """Returns a value as indented JSON."""
    whole = msgspec.to_builtins(value)
    return (json.dumps(whole, indent=2, ensure_ascii=False, allow_nan=False) + "\n").encode()


def _name_of(place: str, distinct: str) -> str:
    """Returns a name for the file of a run: readable, and different for different texts."""
    readable = re.sub(r"[^\w.-]+", "-", real_path(place).rpartition("/")[2]).lstrip(".")[:40]
    return f"{readable or 'run'}-{hashlib.sha256(distinct.encode()).hexdigest()[:12]}"


def _note_of(ledger: CountedLedger, place: str, runs: Mapping[str, Counted]) -> str | None:
    """Returns the name of the note of the run that published a ledger in a place, if there is one.

    A note of another run key is of another try, which counts beside this release. A note that states
    no key may be of any run. It is taken only if no note states the key of the ledger, and not for a
    ledger that the budget has, which would be counted once with it.
    """
    notes = {
        name: run.run_key
        for name, run in runs.items()
        if isinstance(run, Note) and run.output == place and _budget(run) == _budget(ledger)
    }
    keys = [ledger.run_key]
    if ledger.run_key is None or not _is_among(ledger, runs):
        keys.append(None)
    return next((name for key in keys for name, stated in notes.items() if stated == key), None)


def _is_among(ledger: CountedLedger, runs: Mapping[str, Counted]) -> bool:
    known = {run.sha256 for run in runs.values() if isinstance(run, CountedLedger)}
    return ledger.sha256 in known


def spent_text(total: Total) -> str:
    """Returns ε and δ of a total for a message."""
    epsilon = "no finite epsilon" if math.isinf(total.epsilon) else f"epsilon {total.epsilon:.6g}"
    return f"{epsilon} at delta {total.delta:g}"


def _budget(run: Counted) -> tuple[str, float, float]:
    return run.program, run.expense.epsilon, run.expense.delta
