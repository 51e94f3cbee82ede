"""What δ means for a number of users: which δ is refused, and what is said about a large one."""

from beam_dpne.validation import check_integer

LARGE_DELTA = 1e-3


def check_user_count(delta: float, public_user_count: int | None) -> None:
    """Refuses a δ above one over the public number of users; None is an unknown number.

    Raises:
      ValueError: naming both.
    """
    if public_user_count is None:
        return
    check_integer("public_user_count", public_user_count, 1)
    if delta * public_user_count > 1:
        raise ValueError(
            f"delta must be at most 1/public_user_count={1 / public_user_count:.3g}, got {delta=} and "
            f"{public_user_count=}: with more, a run that publishes everything about one user would "
            "be within the guarantee. Lower delta to well below that."
        )


def about_large_delta(delta: float) -> str | None:
    """Returns what a δ of 0.001 or more allows, in words; None for a smaller one.

    >>> about_large_delta(0.01)
    'delta=0.01 is large: publishing everything about one user in 100 would be within the guarantee'
    """
    if delta < LARGE_DELTA:
        return None
    return (
        f"{delta=:g} is large: publishing everything about one user in {max(1, int(1 / delta))} would "
        "be within the guarantee"
    )
