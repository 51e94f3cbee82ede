"""The budget of a run: the run is noted before it starts, and settled when its release is published."""

import contextlib
import shlex
from collections.abc import Iterator
from typing import NamedTuple

from beam_dpne.accounting.budget import Budget, open_budget
from beam_dpne.accounting.expense import Plan, expense_of_plan
from beam_dpne.accounting.population import KeyDigests, Note, known_same_people
from beam_dpne.documents.private_run import PrivateRun
from beam_dpne.errors import BudgetError, ReleaseError
from beam_dpne.jobs.made import Made
from beam_dpne.jobs.parameters import Running, Writing
from beam_dpne.jobs.showing import Showing
from beam_dpne.lists.parameters import KnownLists, ListedPhrases
from beam_dpne.release.schema import ReleaseNotes


class Charge(NamedTuple):
    """The note of a run in its budget.

    Attributes:
      budget: the budget; None if the run has none.
      note: name of the note.
    """

    budget: Budget | None
    note: str

    def settle(self, ledger: bytes, showing: Showing) -> None:
        """Puts the ledger in the place of the note, or tells that the note stays and counts as much."""
        if self.budget is None:
            return
        try:
            self.budget.settle_note(self.note, ledger)
        except BudgetError as error:
            showing.tell(f"{error} Its note {self.note} stays and counts.")


@contextlib.contextmanager
def kept_budget(made: Made, private: PrivateRun, showing: Showing) -> Iterator[None]:
    """Notes a run in its budget, if it has one, and settles it if it released; else says what is left.

    The note of a run that failed stays, whatever the reason: only the operator can know that its job
    has ended and that nobody has read a file of it.

    Raises:
      BudgetError: The budget does not allow the run, which has not started.
    """
    path = made[Running].budget
    output = made[Writing].output
    if path is None:
        yield
        return
    budget = open_budget(path)
    command = f"beam-dpne account --budget {shlex.quote(path)}"
    note = checked_note(budget, made, private.plan, run_key=key_digests(private))
    left = (
        f"the budget counts this run as spent. Once its release is there: {command} "
        f"--settle {shlex.quote(output)}. If its job has ended and nothing was published: {command} "
        f"--remove {note}."
    )
    try:
        yield
    except BaseException:
        showing.tell(left)
        raise
    try:
        budget.settle(output)
    except BaseException as error:
        # A release that was published is whole, whatever its budget says of it.
        if isinstance(error, BudgetError):
            showing.tell(str(error))
        if note not in _released_in(budget):
            showing.tell(left)


@contextlib.contextmanager
def charged_budget(made: Made, private: PrivateRun, showing: Showing) -> Iterator[Charge]:
    """Notes a run whose release stays in memory; its caller settles the charge before it gives it back.

    The note of a run that failed stays, as of `kept_budget`. Of a release that was withheld nobody has
    seen a file, so that its note or its ledger is removed.

    Raises:
      BudgetError: The budget does not allow the run, which has not started.
    """
    path = made[Running].budget
    if path is None:
        yield Charge(None, "")
        return
    budget = open_budget(path)
    note = checked_note(budget, made, private.plan, run_key=key_digests(private))
    try:
        yield Charge(budget, note)
    except ReleaseError:
        if not budget.withdraw(note):
            showing.tell(f"its file {note} cannot be deleted from the budget {path}, and counts.")
        raise
    except BaseException:
        showing.tell(
            "the budget counts this run as spent. Nobody has seen a release of it, so that its note "
            f"may be removed: beam-dpne account --budget {shlex.quote(path)} --remove {note}."
        )
        raise


def rehearse_budget(made: Made, private: PrivateRun) -> None:
    """Checks that the budget of a run allows it, and notes nothing.

    Raises:
      BudgetError: The budget does not allow the run.
    """
    if path := made[Running].budget:
        keys = key_digests(private)
        checked_note(open_budget(path), made, private.plan, run_key=keys, is_rehearsal=True)


def checked_note(
    budget: Budget,
    made: Made,
    plan: Plan,
    *,
    run_key: KeyDigests | None = None,
    again: bool = False,
    is_rehearsal: bool = False,
) -> str:
    """Checks that a budget allows a run, and notes the run; returns the name of the note.

    Args:
      budget: the budget.
      made: the groups of parameters of the run.
      plan: its privacy parameters.
      run_key: the commitments to a run key that was given.
      again: whether a note of an earlier try of this run is taken over.
      is_rehearsal: whether the budget is only checked.

    Raises:
      BudgetError: The budget does not allow the run.
    """
    return budget.check_and_note(
        expense_of_plan(plan),
        program=plan.program,
        output=made[Writing].output if Writing in made else "",
        unit=made[ReleaseNotes].unit,
        same_people=same_people_of(made),
        run_key=run_key,
        again=again,
        is_rehearsal=is_rehearsal,
    )


def same_people_of(made: Made) -> tuple[str, ...]:
    """Returns the SHA-256 of the ledgers of releases about the same people among a run's lists."""
    lists = next((kind for kind in (KnownLists, ListedPhrases) if kind in made), None)
    return () if lists is None else known_same_people(made[lists])


def _released_in(budget: Budget) -> set[str]:
    """Returns the names of the releases whose ledgers a budget has, as far as it can be read."""
    with contextlib.suppress(Exception):
        return {name for name, run in budget.runs().items() if not isinstance(run, Note)}
    return set()


def key_digests(private: PrivateRun) -> KeyDigests | None:
    """Returns the commitments to a run key that was given; None for a fresh one."""
    if private.run_key is None:
        return None
    keys = private.run_keys()
    return KeyDigests(commitment=keys.own.commitment(), bound_commitment=keys.bound.commitment())
