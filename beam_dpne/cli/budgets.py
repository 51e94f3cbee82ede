"""`--budget FILE` of the programs: a run is reserved before it starts, and settled after it."""

import contextlib
import dataclasses
import json
from collections.abc import Iterator
from typing import Any, Protocol

from beam_dpne.accounting import budget_file
from beam_dpne.accounting.ledgers import read_counted
from beam_dpne.accounting.spending import program_of
from beam_dpne.cli import display
from beam_dpne.cli.failures import check_outside_releases
from beam_dpne.cli.runners import BeamOptions
from beam_dpne.errors import BeamDpneError, UsageError
from beam_dpne.release.files import has_ledger, real_path
from beam_dpne.release.ledger import ReleaseNotes


class SpendsBudget(Protocol):
    """The fields of a job that its budget needs."""

    @property
    def budget(self) -> str | None:
        """The file of the budget, or None."""
        ...

    @property
    def plan(self) -> Any:
        """The privacy parameters of the run."""
        ...

    @property
    def output(self) -> str:
        """The directory of the release."""
        ...

    @property
    def notes(self) -> ReleaseNotes:
        """The operator's notes on the release."""
        ...


@dataclasses.dataclass
class Expense:
    """The state of a run in its budget; the run sets `is_released` once its ledger is there."""

    is_released: bool = False


def check_budget(path: str, output: str, options: BeamOptions) -> None:
    """Checks before a run that its budget can be read, and that the run is made once.

    Raises:
      UsageError, BudgetError: A template is written, or the file is no budget or inside a release.
    """
    if options.is_template:
        raise UsageError(
            f"budget must be left out with a template, which is run many times, got budget={path}; the "
            "launcher of each run adds its ledger: beam-dpne account --budget FILE --add RELEASE."
        )
    check_outside_releases("budget", path, output)
    budget_file.read_budget(path)


def remark_on_prior(budget: str, public: str) -> None:
    """Prints a notice if public counts are a release that a budget does not have.

    Only the operator knows whether that release is about the same users.
    """
    if not has_ledger(real_path(public)):
        return
    prior = read_counted(public)
    if prior.sha256 not in {entry.sha256 for entry in budget_file.read_budget(budget).counted}:
        display.print_notice(
            f"beam-dpne: the public counts are a release that the budget does not have. If it is "
            f"about the same users, add it: beam-dpne account --budget {budget} --add {public}."
        )


@contextlib.contextmanager
def kept_budget(job: SpendsBudget) -> Iterator[Expense]:
    """Reserves a run in its budget, if it has one, and settles it if it released.

    A run that failed stays reserved, whatever the reason: only the operator can know that its job has
    ended and that nobody has read a file of it.

    Raises:
      BudgetError: The budget does not allow the run, which has not started.
    """
    expense = Expense()
    if job.budget is None:
        yield expense
        return
    identifier = budget_file.reserve(
        job.budget,
        program=program_of(job.plan),
        plan=json.loads(job.plan.to_json()),
        output=job.output,
        unit=job.notes.unit,
    )
    command = f"beam-dpne account --budget {job.budget}"
    try:
        yield expense
    except BaseException:
        display.print_notice(
            f"beam-dpne: the budget counts this run as spent (reservation {identifier}). If its job "
            f"has ended and nothing was published: {command} --give_back {identifier}."
        )
        raise
    if not expense.is_released:
        display.print_notice(
            f"beam-dpne: the budget counts this run as spent. Once its release is there: {command} "
            f"--settle {identifier}."
        )
        return
    try:
        budget_file.settle(job.budget, identifier)
    except BeamDpneError as error:
        # The release is complete, and its reservation still counts.
        display.print_notice(
            f"beam-dpne: warning: the budget could not be settled: {error} Later: {command} --settle "
            f"{identifier}."
        )
