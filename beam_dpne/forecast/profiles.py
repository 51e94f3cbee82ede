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
from beam_dpne.forecast.forecasting import Forecast, LengthForecast, Width
from beam_dpne.forecast.thresholds import UsersNeeded
from beam_dpne.ngrams.plan import PrivacyPlan

PROFILES = ("titles",)
# Parameters that a plan for a profile may have, since μ or T stands for them or they change nothing.
_FREE = ("epsilon", "delta", "max_length", "max_users", "public_user_count", "max_tokens_per_user")
_FIRST = ("strategy", "vocabulary_policy")


@dataclasses.dataclass(frozen=True, eq=False, kw_only=True)
class Profile:
    """Forecasts on a grid.

    Attributes:
      text: a description of the public text.
      public_users: number of its users.
      users: (u,) numbers of users, ascending.
      budgets: (b,) μ, ascending.
      tables: by T, the name of a number and the length, (u, b) float64 values; NaN where there is none.
    """

    text: str
    public_users: int
    users: np.ndarray
    budgets: np.ndarray
    tables: dict[int, dict[str, np.ndarray]]

    def forecast(self, plan: PrivacyPlan, users: int) -> Forecast:
        """Returns the forecast of a release of so many users under a plan.

        Raises:
          UsageError: the profile has no such plan or number of users.
        """
        self._check(plan, users)
        at = functools.partial(self._at, plan, users)
        lengths = []
        for length in range(1, plan.max_length + 1):
            widths = [
                Width(number, low, high)
                for number in (100, 1000, 10_000, 100_000)
                if (low := at(f"low{number}", length)) is not None
                and (high := at(f"high{number}", length)) is not None
            ]
            released = at("released", length) or 0.0
            needed = UsersNeeded(at("half", length), at("nearly", length))
            lengths.append(
                LengthForecast(
                    length=length, released=released, needed=needed, widths=tuple(widths)
                )
            )
        return Forecast(epsilon=plan.epsilon, lengths=tuple(lengths))

    def note(self, users: int) -> str:
        """Returns a sentence on the origin of the forecast."""
        return (
            f"From a table of simulations with {self.public_users:,} made-up users of {self.text}."
        )

    def _at(self, plan: PrivacyPlan, users: int, name: str, length: int) -> float | None:
        values = np.log(self.tables[plan.max_length][f"{name} {length}"])
        row, part = _place(np.log(self.users), math.log(users))
        column, along = _place(np.log(self.budgets), -math.log(plan.noise_stddev))
        total = 0.0
        for step, weight in ((0, 1 - part), (1, part)):
            for shift, also in ((0, 1 - along), (1, along)):
                if weight * also > 0:
                    total += weight * also * values[row + step, column + shift]
        return None if math.isnan(total) else math.exp(total)

    def _check(self, plan: PrivacyPlan, users: int) -> None:
        usual = PrivacyPlan(
            epsilon=plan.epsilon,
            delta=plan.delta,
            max_length=plan.max_length,
            max_tokens_per_user=plan.max_tokens_per_user,
        )
        # The strategy and the words come first, because defaults of other parameters follow from them.
        for name in (*_FIRST, *(field.name for field in dataclasses.fields(plan))):
            if name not in _FREE and getattr(plan, name) != getattr(usual, name):
                raise UsageError(
                    f"{name} must be left out with a built-in profile, which has the defaults, got "
                    f"{name}={getattr(plan, name)}. Give public text instead: --like FILE."
                )
        if plan.max_length not in self.tables:
            listed = ", ".join(map(str, sorted(self.tables)))
            raise UsageError(
                f"max_length must be {'one of ' if len(self.tables) > 1 else ''}{listed} with a "
                f"built-in profile, got max_length={plan.max_length}. Give public text "
                "instead: --like FILE."
            )
        if not self.users[0] <= users <= self.users[-1]:
            raise UsageError(
                f"users must be from {self.users[0]:,} to {self.users[-1]:,} with a built-in profile, "
                f"got users={users}. Give public text instead: --like FILE."
            )
        if not self.budgets[0] <= 1 / plan.noise_stddev <= self.budgets[-1]:
            raise UsageError(
                f"epsilon={plan.epsilon:g} with delta={plan.delta:g} is outside the built-in profile, "
                f"which has σ from {1 / self.budgets[-1]:.3g} to {1 / self.budgets[0]:.3g}, got "
                f"σ = {plan.noise_stddev:.3g}. Give other --epsilons, or public text: --like FILE."
            )


@functools.cache
def read_profile(name: str) -> Profile:
    """Returns a built-in profile, one of `PROFILES`."""
    file = importlib.resources.files("beam_dpne.forecast") / f"{name}.json"
    return profile_of(json.loads(file.read_text("utf-8")))


def profile_of(fields: dict[str, Any]) -> Profile:
    """Returns the profile that `profile_fields` has written."""
    return Profile(
        text=fields["text"],
        public_users=fields["public_users"],
        users=np.array(fields["users"]),
        budgets=np.array(fields["budgets"]),
        tables={
            int(most): {
                name: np.array(
                    [[math.nan if v is None else v for v in row] for row in rows], dtype=np.float64
                )
                for name, rows in table.items()
            }
            for most, table in fields["tables"].items()
        },
    )


def table_of(forecasts: Sequence[Sequence[Forecast]]) -> dict[str, list[list[float | None]]]:
    """Returns the table of forecasts on a grid, by users and budgets, as JSON types."""
    cells = [[_numbers(forecast) for forecast in row] for row in forecasts]
    names = sorted({name for row in cells for cell in row for name in cell})
    return {name: [[_rounded(cell.get(name)) for cell in row] for row in cells] for name in names}


def _numbers(forecast: Forecast) -> dict[str, float | None]:
    numbers: dict[str, float | None] = {}
    for length in forecast.lengths:
        end = f" {length.length}"
        # Less than a tenth of an n-gram is not more than 0.
        numbers["released" + end] = max(0.1, length.released or 0.0)
        numbers["half" + end], numbers["nearly" + end] = length.needed
        for number in (100, 1000, 10_000, 100_000):
            known = {width.users: width for width in length.widths}.get(number)
            numbers[f"low{number}{end}"] = None if known is None else max(0.1, known.low)
            numbers[f"high{number}{end}"] = None if known is None else known.high
    return numbers


def _rounded(value: float | None) -> float | None:
    return None if value is None else float(f"{value:.4g}")


def _place(points: np.ndarray, value: float) -> tuple[int, float]:
    """Returns the interval of a grid that contains a value, and the part of the way through it."""
    place = int(np.clip(np.searchsorted(points, value, side="right") - 1, 0, points.size - 2))
    part = (value - points[place]) / (points[place + 1] - points[place])
    return place, float(np.clip(part, 0.0, 1.0))
