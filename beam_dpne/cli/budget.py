"""The two parameters without defaults."""

from collections.abc import Mapping
from typing import Any

from beam_dpne.cli.errors import UsageError


def require_budget(values: Mapping[str, Any], common: str = "1 to 4 is common for text") -> None:
    """Raises UsageError, with advice, unless epsilon and delta are given."""
    missing = [name for name in ("epsilon", "delta") if values[name] is None]
    if missing:
        raise UsageError(
            f"{' and '.join(missing)} must be given, there is no default: --epsilon is the privacy "
            f"budget of the whole run, {common}; --delta is well below one over "
            "the number of users, e.g. 1e-7 for a million users."
        )
