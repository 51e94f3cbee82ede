"""`--budget FOLDER` of the programs: a run is noted before it starts, and settled after it."""

import contextlib
import dataclasses
from collections.abc import Iterator
from typing import Any

from beam_dpne.accounting.budget import open_budget
from beam_dpne.accounting.expense import CountedLedger, expense_of_plan, program_of, read_counted
from beam_dpne.cli import display
from beam_dpne.cli.runners import BeamOptions
from beam_dpne.errors import BudgetError, UsageError
from beam_dpne.release.reading import check_outside, has_ledger, real_path


@dataclasses.dataclass
class Outcome:
    """What became of a run; the run sets `is_released` once its ledger is there."""

    is_released: bool = False


def check_budget(path: str, output: str, options: BeamOptions) -> None:
    """Checks before a run that its budget can be read, and that the run is made once.

    Raises:
      UsageError, BudgetError: A template is written, or the folder has no budget or is in a release.
    """
    if options.is_template:
        raise UsageError(
            f"budget must be left out with a template, which is run many times, got budget={path}; the "
            "launcher of each run adds its ledger: beam-dpne account --budget FOLDER --add RELEASE."
        )
    check_outside("budget", path, output)
    open_budget(path)


def remark_on_prior(budget: str, public: str) -> None:
    """Prints a notice if public counts are a release that a budget does not have.

    Only the operator knows whether that release is about the same users.
    """
    if not has_ledger(real_path(public)):
        return
    runs = open_budget(budget).runs().values()
    known = {run.sha256 for run in runs if isinstance(run, CountedLedger)}
    if read_counted(public).sha256 not in known:
        display.print_notice(
            f"beam-dpne: the public counts are a release that the budget does not have. If it is "
            f"about the same users, add it: beam-dpne account --budget {budget} --add {public}."
        )


@contextlib.contextmanager
def kept_budget(path: str | None, plan: Any, output: str, unit: str | None) -> Iterator[Outcome]:
    """Notes a run in its budget, if it has one, and settles it if it released.

    The note of a run that failed stays, whatever the reason: only the operator can know that its job
    has ended and that nobody has read a file of it.

    Args:
      path: folder of the budget, or None.
      plan: privacy parameters of the run.
      output: directory of the release.
      unit: the operator's noun for one user, or None.

    Raises:
      BudgetError: The budget does not allow the run, which has not started.
    """
    outcome = Outcome()
    if path is None:
        yield outcome
        return
    budget = open_budget(path)
    name = budget.check_and_note(
        expense_of_plan(plan),
        program=program_of(plan),
        output=output,
        unit=unit,
    )
    command = f"beam-dpne account --budget {path}"
    try:
        yield outcome
    except BaseException:
        display.print_notice(
            f"beam-dpne: the budget counts this run as spent (note {name}). If its job has ended and "
            f"nothing was published: {command} --remove {name}."
        )
        raise
    later = f"Once its release is there: {command} --settle {output}."
    if not outcome.is_released:
        display.print_notice(f"beam-dpne: the budget counts this run as spent. {later}")
        return
    try:
        budget.settle(output)
    except BudgetError as error:
        # The release is complete, and its note still counts.
        display.print_notice(f"beam-dpne: the budget could not be settled: {error} {later}")
