"""A check of the privacy budget before a run starts, by the budget that `beam-dpne account` shows."""

import json

from airflow.sdk import ObjectStoragePath
from airflow.sdk.exceptions import AirflowFailException


def note_start(budget: str, epsilon: float, delta: float, program: str, directory: str) -> None:
    """Notes that a run starts, or refuses it if it would exceed the cap of a budget.

    Raises:
      AirflowFailException: The run would exceed the cap, or it cannot be said what was spent.
    """
    # Beam takes two seconds to load, and the parsing of DAGs imports this module.
    from beam_dpne.accounting.budget import open_budget
    from beam_dpne.accounting.expense import Expense
    from beam_dpne.errors import BeamDpneError

    try:
        spent = Expense(epsilon=epsilon, delta=delta, reason="there is no ledger yet")
        open_budget(budget).check_and_note(spent, program=program, output=directory, again=True)
    except BeamDpneError as error:
        raise AirflowFailException(str(error)) from None


def planned_budget(plan: str) -> tuple[float, float]:
    """Returns ε and δ of a file with a plan.

    Raises:
      AirflowFailException: The file has none.
    """
    try:
        found = json.loads(ObjectStoragePath(plan).read_bytes())
        return float(found["epsilon"]), float(found["delta"])
    except (OSError, ValueError, TypeError, KeyError):
        raise AirflowFailException(
            f"{plan} must be a plan as beam-dpne plan writes it, with epsilon and delta."
        ) from None
