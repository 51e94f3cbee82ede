"""The part of a run's budget that the measurement of users has: its checks, which all plans share."""

import math

from beam_dpne.counts.rule import CountNoise

_LEAST_SHARE, _MOST_SHARE = 1e-6, 0.9
# With more noise on the totals of groups, a cell of the least private class of users might leave int64.
_MOST_STDDEV = 2.0**26


def check_count_share(count_share: float) -> None:
    """Checks the part of the budget that measures users; raises ValueError."""
    if not (count_share == 0 or _LEAST_SHARE <= count_share <= _MOST_SHARE):
        raise ValueError(
            f"count_share must be 0, or from {_LEAST_SHARE} to {_MOST_SHARE}, got "
            f"count_share={count_share}."
        )


def check_count_noise(count_share: float, noise: CountNoise | None) -> None:
    """Checks that the noise of the measurement fits into integers; raises ValueError."""
    if noise is not None and max(noise.row_stddev, noise.group_stddev) > _MOST_STDDEV:
        raise ValueError(
            f"count_share must be larger, or 0, with so small a budget: the noise on a number of "
            f"users would have a standard deviation of {noise.row_stddev:.2g}, got "
            f"count_share={count_share}."
        )


def required_noise(noise: CountNoise | None) -> CountNoise:
    """Returns the noise of a measurement; raises ValueError if the plan has none."""
    if noise is None:
        raise ValueError("count_share must be above 0 to count users, got count_share=0.0.")
    return noise


def count_mu(row_stddev: float, group_stddev: float) -> float:
    """Returns the μ of a measurement with this noise: √(1/σ_A² + 1/σ_B²)."""
    return math.hypot(1 / row_stddev, 1 / group_stddev)
