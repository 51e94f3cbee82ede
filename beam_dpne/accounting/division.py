"""Division of a budget among equal releases to come, before any of them is made."""

import dataclasses
import math
from collections.abc import Callable
from typing import TypeVar

from beam_dpne.accounting.composition import compose
from beam_dpne.accounting.expense import Plan, expense_of_plan
from beam_dpne.errors import UsageError

_MOST_RELEASES = 10_000
# ε of one release is rounded down to this many digits, so that it can be typed.
_DIGITS = 4
_STEPS = 40

_P = TypeVar("_P", bound=Plan)


def plan_of_each(whole: _P, releases: int) -> _P:
    """Returns the plan of each of so many equal releases, which together stay within a budget.

    Each has the same part of δ, and the largest ε, rounded down to four digits, with which the total
    of all releases is at most the ε of the budget at its δ (see `composition`). Its other
    parameters are those of `whole`.

    Args:
      whole: Plan with ε and δ of the whole budget.
      releases: Number of releases about the same users, at least 1.

    Raises:
      UsageError: There are too few or too many releases, or no release is possible within the budget.

    Example:
      >>> from beam_dpne import PrivacyPlan
      >>> year = PrivacyPlan(epsilon=8, delta=1.2e-6)
      >>> month = plan_of_each(year, 12)
      >>> month.epsilon, f"{month.delta:g}"
      (2.197, '1e-07')
    """
    if not 1 <= releases <= _MOST_RELEASES:
        raise UsageError(
            f"releases must be a whole number from 1 to {_MOST_RELEASES}, got releases={releases}."
        )
    if releases == 1:
        return whole
    delta = whole.delta / releases

    def planned(epsilon: float) -> _P:
        return dataclasses.replace(whole, epsilon=epsilon, delta=delta)

    def fits(epsilon: float) -> bool:
        try:
            plan = planned(epsilon)
        except ValueError:
            return False
        together = compose([expense_of_plan(plan)] * releases, delta=whole.delta)
        return together.epsilon <= whole.epsilon

    low = whole.epsilon / releases
    found = _rounded_down(_largest(fits, low, whole.epsilon), fits)
    if found is None:
        # The plan itself says which parameter does not suit so small a budget.
        planned(low)
        raise UsageError(
            f"releases must be so few that a release is possible within epsilon={whole.epsilon:g} and "
            f"delta={whole.delta:g}, got releases={releases}."
        )
    return planned(found)


def _largest(fits: Callable[[float], bool], low: float, high: float) -> float:
    """Returns a number next to the largest that fits, in [low, high]."""
    if fits(high):
        return high
    for _ in range(_STEPS):
        middle = (low + high) / 2
        low, high = (middle, high) if fits(middle) else (low, middle)
    return low


def _rounded_down(value: float, fits: Callable[[float], bool]) -> float | None:
    """Returns a number of a few digits at most as large that fits, or None."""
    unit = 10.0 ** (math.floor(math.log10(value)) - _DIGITS + 1)
    for steps in (0, 1):
        short = float(f"{(math.floor(value / unit) - steps) * unit:.{_DIGITS}g}")
        if short > 0 and fits(short):
            return short
    return None
