"""A check of the privacy budget before a run starts: the releases of one population together.

Their total is that of `beam-dpne account`, see `beam_dpne.accounting.composition`.
"""

import json
import math
from typing import Any, ClassVar, Protocol

from airflow.sdk import ObjectStoragePath
from airflow.sdk.exceptions import AirflowException, AirflowFailException

from beam_dpne.airflow.folders import RemoteFolder, TryLaterError, local_folder
from beam_dpne.airflow.options import check_path
from beam_dpne.airflow.spending import note_start, started
from beam_dpne.errors import BudgetError


class BudgetCheck(Protocol):
    """A check that an operator makes before it starts a run; `Budget` is one."""

    def check(self, epsilon: float, delta: float, directory: str) -> None:
        """Returns if a run may spend this much, and raises AirflowFailException otherwise.

        Args:
          epsilon: ε of the run.
          delta: δ of the run.
          directory: Directory of the run's release.
        """
        ...


class Budget:
    """Largest (ε, δ) of the releases in a folder and the run that wants to start, all together.

    Releases are composed as `beam-dpne account` composes them, which is at most the sum of their ε and
    δ. A run without a ledger is added by its ε and δ.

    Every `ledger.json` in the folder counts, at any depth. So keep one folder for each population: all
    releases about users that may be the same people, of all programs. Make it once, with a file
    `population.txt`. A folder without this file may be misspelt or not mounted, and stops every run.

    Each try that starts leaves a note beside the run's directory, `RUN.started-….json`. The run is
    counted from then on, once, whether or not it publishes. So runs that start at the same time count
    each other. The operator's releases must be in the folder. A directory that cannot be listed, a
    link, or a ledger that is not whole stops every run.

    Args:
      releases: Path of the folder; a template.
      max_epsilon: Largest ε of all together, above 0.
      max_delta: δ of all together, above 0 and below 1.

    Raises:
      ValueError: A limit is out of range, or the path is relative.

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
            is_number = isinstance(value, int | float) and not isinstance(value, bool)
            if not is_number or not 0 < value < upper:
                raise ValueError(f"{name} must be in (0, {upper}), got {name}={value!r}.")
        check_path("releases of the budget", releases)
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

    def check(self, epsilon: float, delta: float, directory: str) -> None:
        """Notes that a run starts, or refuses it if it would exceed a limit.

        Args:
          epsilon: ε of the run.
          delta: δ of the run.
          directory: Directory of the run's release.

        Raises:
          AirflowFailException: The run would exceed a limit, or it cannot be said what was spent.
          AirflowException: The storage fails, or another run has started at the same time, so that a
            later try may start.
        """
        try:
            folder = local_folder(self.releases)
            if folder is None:
                path = ObjectStoragePath(self.releases)
                folder = RemoteFolder(path.fs, self.releases)
            cap = (self.max_epsilon, self.max_delta)
            note_start(folder, directory, started(epsilon, delta), cap)
        except TryLaterError as error:
            raise AirflowException(str(error)) from None
        except BudgetError as error:
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
