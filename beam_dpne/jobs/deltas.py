"""What a run says of a δ that protects little."""

from beam_dpne.errors import UsageError
from beam_dpne.jobs.showing import Showing
from beam_dpne.mechanism.plan import GaussianPlan
from beam_dpne.validation import TOO_LARGE_DELTA, about_large_delta


def refuse_too_large_delta(plan: GaussianPlan) -> None:
    """Raises UsageError for a δ of 0.01 or more, unless the number of users is public.

    Within such a guarantee a program might publish all that one user in a hundred has written. Plans
    take it, for experiments on public data.
    """
    if plan.delta >= TOO_LARGE_DELTA and plan.public_user_count is None:
        raise UsageError(
            f"`delta` must be below {TOO_LARGE_DELTA:g}, got `delta={plan.delta:g}`: publishing "
            f"everything about one user in {int(1 / plan.delta)} would be within the guarantee. "
            "Take one well below one over the number of users, e.g. 1e-7 for a million; if their "
            "number is public and small, give `public_user_count`."
        )


def large_delta_of(plan: GaussianPlan) -> str | None:
    """Returns a warning of a δ of 0.001 or more, which weakens the guarantee; None of a smaller one.

    There is no warning if the number of users is public, since a δ above one over that number is
    refused.
    """
    return None if plan.public_user_count is not None else about_large_delta(plan.delta)


def warn_of_large_delta(plan: GaussianPlan, showing: Showing) -> None:
    """Warns of a large δ, also who wants no advice."""
    if warning := large_delta_of(plan):
        showing.tell(
            f"warning: {warning}. Take a delta well below one over the number of users; if "
            "their number is public and small, give --public_user_count."
        )
