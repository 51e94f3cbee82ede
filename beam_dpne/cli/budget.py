"""The two parameters without defaults, and what is said about a large δ."""

from collections.abc import Mapping
from typing import Any, Protocol

from beam_dpne.cli import display
from beam_dpne.errors import UsageError
from beam_dpne.mechanism.user_count import about_large_delta


class _Plan(Protocol):
    @property
    def delta(self) -> float: ...
    @property
    def public_user_count(self) -> int | None: ...


def require_budget(values: Mapping[str, Any], common: str = "1 to 4 is common for text") -> None:
    """Raises UsageError, with advice, unless epsilon and delta are given."""
    missing = [name for name in ("epsilon", "delta") if values[name] is None]
    if missing:
        raise UsageError(
            f"{' and '.join(missing)} must be given, there is no default: --epsilon is the privacy "
            f"budget of the whole run, {common}; --delta is well below one over "
            "the number of users, e.g. 1e-7 for a million users."
        )


def warn_of_large_delta(plan: _Plan) -> None:
    """Warns on stderr of a δ of 0.001 or more, also under --quiet: it is about the guarantee.

    A public number of users silences it, since a δ above one over that number is refused.
    """
    warning = about_large_delta(plan.delta)
    if warning is not None and plan.public_user_count is None:
        display.print_notice(
            f"beam-dpne: warning: {warning}. Take a delta well below one over the number of users; if "
            "their number is public and small, give --public_user_count."
        )
