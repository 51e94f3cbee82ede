"""A check of the privacy budget before a run starts: the releases of one population, added up.

This is basic composition: for the users of one population, ε and δ of all releases about them add up.
"""

import json
import math
from decimal import Decimal
from typing import Any, ClassVar, Protocol

from airflow.sdk import ObjectStoragePath
from airflow.sdk.exceptions import AirflowFailException

from beam_dpne.airflow.releases import ledgers_under


class BudgetCheck(Protocol):
    """A check that an operator makes before it starts a run; `Budget` is one."""

    def check(self, epsilon: float, delta: float) -> None:
        """Returns if a run may spend this much, and raises AirflowFailException otherwise."""
        ...


class Budget:
    """Largest sums of ε and δ over the releases in a folder and the run that wants to start.

    Every `ledger.json` in the folder counts, at any depth. So keep one folder for each population: all
    releases about users that may be the same people, of all programs.

    It knows only releases whose ledgers are there. A release that was deleted, moved or replaced is
    spent all the same and not counted. Two runs that start at the same time do not see each other, and
    may exceed the limits together; give their tasks one Airflow pool with one slot that includes
    deferred tasks. A file that is not a whole ledger stops every run.

    Args:
      releases: Path of the folder; a template.
      max_epsilon: Largest sum of ε, above 0.
      max_delta: Largest sum of δ, above 0 and below 1.

    Raises:
      ValueError: A limit is out of range.

    Example:
      >>> Budget(releases="/releases/customers", max_epsilon=10, max_delta=1e-5).max_epsilon
      10
    """

    template_fields: ClassVar[tuple[str, ...]] = ("releases",)

    def __init__(self, *, releases: str, max_epsilon: float, max_delta: float):
        for name, value, upper in (
            ("max_epsilon", max_epsilon, math.inf),
            ("max_delta", max_delta, 1),
        ):
            if isinstance(value, bool) or not 0 < value < upper:
                raise ValueError(f"{name} must be in (0, {upper}), got {name}={value}.")
        self.releases = releases
        self.max_epsilon = max_epsilon
        self.max_delta = max_delta

    def serialize(self) -> dict[str, Any]:
        """Returns the limits, for Airflow's view of the task."""
        return {
            "releases": self.releases,
            "max_epsilon": self.max_epsilon,
            "max_delta": self.max_delta,
        }

    def check(self, epsilon: float, delta: float) -> None:
        """Refuses a run that would exceed a limit.

        Args:
          epsilon: ε of the run.
          delta: δ of the run.

        Raises:
          AirflowFailException: The run would exceed a limit, or a ledger cannot be read.
        """
        guarantees = [ledger["guarantee"] for ledger in ledgers_under(self.releases)]
        for name, wanted, limit in (
            ("epsilon", epsilon, self.max_epsilon),
            ("delta", delta, self.max_delta),
        ):
            # Decimals add up as a person adds them: ten times 0.1 is 1.
            spent = sum((_exact(guarantee[name]) for guarantee in guarantees), Decimal())
            if spent + _exact(wanted) > _exact(limit):
                raise AirflowFailException(
                    f"The budget of {self.releases} has {name} {limit}. Its {len(guarantees)} releases "
                    f"have spent {spent}, and this run would spend {wanted} more, so it was not "
                    "started."
                )


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


def _exact(value: float) -> Decimal:
    return Decimal(repr(float(value)))
