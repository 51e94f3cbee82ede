"""Built-in profiles: forecasts of public text for many numbers of users and budgets, made beforehand.

A profile is a table made by `python -m pipelines.forecast_profile` from simulations, for plans with the
default parameters. Between the points of its grid, logarithms are interpolated linearly in the
logarithms of the number of users and of μ = 1/σ, which stands for ε and δ together.
"""

import dataclasses
import functools
import importlib.resources
import json
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from beam_dpne.errors import UsageError
from beam_dpne.forecast.forecasting import LengthForecast, Width
from beam_dpne.forecast.simulation import UsersNeeded
from beam_dpne.ngrams.plan import PrivacyPlan

PROFILES = ("titles",)
# Parameters that a plan for a profile may have, since μ stands for them or they change nothing.
_FREE = ("epsilon", "delta", "public_user_count", "max_tokens_per_user")
_WIDTHS = (100, 1000, 10_000, 100_000)


@dataclasses.dataclass(frozen=True, eq=False, kw_only=True)
class Profile:
    """Forecasts on a grid, for plans with one longest length.

    Attributes:
      text: a description of the public text.
      public_users: number of its users.
      max_length: T of the plans.
      users: (u,) numbers of users, ascending.
      budgets: (b,) μ, ascending.
      table: by the name of a number and the length, (u, b) values; NaN or None where there is none.
    """

    text: str
    public_users: int
    max_length: int
    users: Sequence[int]
    budgets: Sequence[float]
    table: dict[str, Any]

    def forecast(self, plan: PrivacyPlan, users: int) -> tuple[LengthForecast, ...]:
        """Returns the forecast of a release of so many users under a plan.

        Raises:
          UsageError: the profile has no such plan or number of users.
        """
        self._check(plan, users)
        at = functools.partial(self._at, users, 1 / plan.noise_stddev)
        lengths = []
        for length in range(1, plan.max_length + 1):
            widths = (
                Width(number, low, high)
                for number in _WIDTHS
                if (low := at(f"low{number} {length}")) is not None
                and (high := at(f"high{number} {length}")) is not None
            )
            needed = UsersNeeded(at(f"half {length}"), at(f"nearly {length}"))
            released = at(f"released {length}") or 0.0
            lengths.append(LengthForecast(released, needed, tuple(widths)))
        return tuple(lengths)

    @property
    def note(self) -> str:
        """A sentence on the origin of the forecast."""
        return (
            f"From a table of simulations with {self.public_users:,} made-up users of {self.text}."
        )

    def _at(self, users: int, budget: float, name: str) -> float | None:
        values = np.log(np.array(self.table[name], dtype=np.float64))
        total = 0.0
        for row, part in _around(np.log(self.users), math.log(users)):
            for column, share in _around(np.log(self.budgets), math.log(budget)):
                total += part * share * float(values[row, column])
        return None if math.isnan(total) else math.exp(total)

    def _check(self, plan: PrivacyPlan, users: int) -> None:
        remedy = "Give public text instead: --like FILE."
        usual = PrivacyPlan(
            max_length=self.max_length, **{name: getattr(plan, name) for name in _FREE}
        )
        # The strategy comes first, because defaults of other parameters follow from it.
        names = ("strategy", *(field.name for field in dataclasses.fields(plan)))
        others = [name for name in names if getattr(plan, name) != getattr(usual, name)]
        if others:
            raise UsageError(
                f"{others[0]} must be {getattr(usual, others[0])} with a built-in profile, got "
                f"{others[0]}={getattr(plan, others[0])}. {remedy}"
            )
        if not self.users[0] <= users <= self.users[-1]:
            raise UsageError(
                f"users must be from {self.users[0]:,} to {self.users[-1]:,} with a built-in profile, "
                f"got users={users}. {remedy}"
            )
        if not self.budgets[0] <= 1 / plan.noise_stddev <= self.budgets[-1]:
            raise UsageError(
                f"epsilon={plan.epsilon:g} with delta={plan.delta:g} is outside the built-in profile, "
                f"which has σ from {1 / self.budgets[-1]:.3g} to {1 / self.budgets[0]:.3g}, got "
                f"σ = {plan.noise_stddev:.3g}. {remedy}"
            )


@functools.cache
def read_profile(name: str) -> Profile:
    """Returns a built-in profile, one of `PROFILES`."""
    file = importlib.resources.files("beam_dpne.forecast") / f"{name}.json"
    return Profile(**json.loads(file.read_text("utf-8")))


def table_of(forecasts: Sequence[Sequence[Sequence[LengthForecast]]]) -> dict[str, list]:
    """Returns the table of forecasts on a grid, by users and budgets, as JSON types."""
    cells = [[_numbers(forecast) for forecast in row] for row in forecasts]
    return {name: [[cell[name] for cell in row] for row in cells] for name in cells[0][0]}


def _numbers(forecast: Sequence[LengthForecast]) -> dict[str, float | None]:
    numbers: dict[str, float | None] = {}
    for length, each in enumerate(forecast, 1):
        # Less than a tenth of an n-gram is not more than 0.
        numbers[f"released {length}"] = max(0.1, each.released)
        numbers[f"half {length}"], numbers[f"nearly {length}"] = each.needed
        known = {width.users: width for width in each.widths}
        for users in _WIDTHS:
            width = known.get(users)
            numbers[f"low{users} {length}"] = None if width is None else max(0.1, width.low)
            numbers[f"high{users} {length}"] = None if width is None else width.high
    return {name: value and float(f"{value:.4g}") for name, value in numbers.items()}


def _around(points: np.ndarray, value: float) -> list[tuple[int, float]]:
    """Returns the points of a grid beside a value, with their shares; a point alone has share 1."""
    place = int(np.clip(np.searchsorted(points, value, side="right") - 1, 0, points.size - 2))
    part = float(np.clip((value - points[place]) / (points[place + 1] - points[place]), 0.0, 1.0))
    return [(at, share) for at, share in ((place, 1 - part), (place + 1, part)) if share > 0]
