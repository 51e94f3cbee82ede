"""Checks of the options of a run that need no library, so that their errors do not wait for Beam."""

import argparse

from beam_dpne.elements.threads import MOST_WORKERS
from beam_dpne.errors import UsageError

_LEAST_VALUES = (
    *(("side_input_limit", 1), ("partitions", 1)),
    *(("harness_timeout", 0), ("workers", 0)),
)


def check_running(parsed: argparse.Namespace) -> None:
    """Checks that input and output are given, and that numbers are in range.

    Args:
      parsed: the options of a program that publishes a release; those that are not given are None.

    Raises:
      UsageError: if one is missing or out of range.
    """
    for name in ("input", "output"):
        if not getattr(parsed, name):
            raise UsageError(f"{name} must be given: --{name} PATH.")
    for name, least in _LEAST_VALUES:
        value = getattr(parsed, name, None)
        if value is not None and value < least:
            raise UsageError(f"{name} must be at least {least}, got {name}={value}.")
    if (parsed.workers or 0) > MOST_WORKERS:
        raise UsageError(
            f"workers must be at most {MOST_WORKERS}, got workers={parsed.workers}; more threads than "
            "cores bring nothing."
        )
