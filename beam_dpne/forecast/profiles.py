"""Built-in profiles: forecasts of public text for many numbers of users and budgets, made beforehand.

A profile is a table made by `python -m pipelines.forecast_profile` from simulations, for plans with the
default parameters. Between the points of its grid, logarithms are interpolated linearly in the
logarithms of the number of users and of μ = 1/σ, which stands for ε and δ together.
"""

import bisect
import dataclasses
import functools
import importlib.resources
import math
from collections.abc import Sequence
from typing import Any

import msgspec
import numpy as np

from beam_dpne.errors import UsageError
from beam_dpne.forecast.forecasting import LengthForecast, Width
from beam_dpne.forecast.needed_users import UsersNeeded
from beam_dpne.ngrams.plan import NgramsPlan

PROFILES = ("titles",)
WIDTHS = (100, 1000, 10_000, 100_000)


@dataclasses.dataclass(frozen=True, eq=False, kw_only=True)
class Profile:
    """Forecasts on a grid, for plans with one longest length.

    Attributes:
      text: a description of the public text.
      public_users: number of its users.
      max_length: T of the plans.
      users: (u,) numbers of users, ascending.
      budgets: (b,) μ, ascending.
      table: (u, b, T, 11) for each length of the forecasts: released n-grams, users that an n-gram
        needs (two), and the interval around 100, 1,000, 10,000 and 100,000 users; None where there is
        no number.
    """

    text: str
    public_users: int
    max_length: int
    users: Sequence[int]
    budgets: Sequence[float]
    table: Sequence[Any]

    def forecast(self, plan: NgramsPlan, users: int) -> tuple[LengthForecast, ...]:
        """Returns the forecast of a release of so many users under a plan.

        Raises:
          UsageError: the profile has no such plan or number of users.
        """
        self._check(plan, users)
        of_budgets = _between(self.users, users, np.log(np.array(self.table, dtype=np.float64)))
        logs = _between(self.budgets, 1 / plan.noise_stddev, of_budgets)
        lengths = []
        for released, *others in np.exp(logs).tolist():
            half, nearly, *ends = (None if math.isnan(each) else each for each in others)
            widths = (
                Width(number, low, high)
                for number, low, high in zip(WIDTHS, ends[::2], ends[1::2], strict=True)
                if low is not None and high is not None
            )
            lengths.append(LengthForecast(released, UsersNeeded(half, nearly), tuple(widths)))
        return tuple(lengths)

    @property
    def note(self) -> str:
        """A sentence on the origin of the forecast."""
        return (
            f"From a table of simulations with {self.public_users:,} made-up users of {self.text}."
        )

    @property
    def budgets_told(self) -> str:
        """What noise its plans have."""
        least, most = 1 / self.budgets[-1], 1 / self.budgets[0]
        return f"the built-in profile has σ from {least:.3g} to {most:.3g}"

    def has_budget_of(self, plan: NgramsPlan) -> bool:
        """Whether it has the noise of a plan."""
        return self.budgets[0] <= 1 / plan.noise_stddev <= self.budgets[-1]

    def _check(self, plan: NgramsPlan, users: int) -> None:
        remedy = "Give public text instead: --like FILE."
        # These may differ from the profile's, since μ stands for them or they change nothing.
        usual = NgramsPlan(
            max_length=self.max_length,
            epsilon=plan.epsilon,
            delta=plan.delta,
            public_user_count=plan.public_user_count,
            max_tokens_per_user=plan.max_tokens_per_user,
        )
        # The strategy comes first, because defaults of other parameters follow from it.
        names = ("strategy", *(field.name for field in dataclasses.fields(plan)))
        others = [name for name in names if getattr(plan, name) != getattr(usual, name)]
        if others:
            raise UsageError(
                f"`{others[0]}` must be {getattr(usual, others[0])} with a built-in profile, got "
                f"`{others[0]}={getattr(plan, others[0])}`. {remedy}"
            )
        if not self.users[0] <= users <= self.users[-1]:
            raise UsageError(
                f"`users` must be from {self.users[0]:,} to {self.users[-1]:,} with a built-in "
                f"profile, got `users={users}`. {remedy}"
            )
        if not self.has_budget_of(plan):
            raise UsageError(
                f"`epsilon={plan.epsilon:g}` with `delta={plan.delta:g}` must be a budget of the "
                f"profile, got σ = {plan.noise_stddev:.3g}; {self.budgets_told}. {remedy}"
            )


@functools.cache
def read_profile(name: str) -> Profile:
    """Returns a built-in profile, one of `PROFILES`."""
    file = importlib.resources.files("beam_dpne.forecast") / f"{name}.json"
    return msgspec.json.decode(file.read_bytes(), type=Profile)


def _between(points: Sequence[float], at: float, values: np.ndarray) -> np.ndarray:
    """Returns values between points, linearly in their logarithm; at a point, no other counts.

    Args:
      points: (n,) ascending.
      at: from the first point to the last.
      values: (n, …) float64.
    """
    place = min(bisect.bisect_right(points, at), len(points) - 1)
    part = math.log(at / points[place - 1]) / math.log(points[place] / points[place - 1])
    if part in (0, 1):
        return values[place - 1 + int(part)]
    return (1 - part) * values[place - 1] + part * values[place]
