"""Checks of privacy parameters and of public words that need more than the parameters themselves."""

from collections.abc import Sequence
from typing import Protocol

from beam_dpne.bayesian.public_counts_files import same_file
from beam_dpne.cli import display
from beam_dpne.errors import UsageError
from beam_dpne.reading.files import InputFile
from beam_dpne.validation import about_large_delta


class SpendsDelta(Protocol):
    """The privacy parameters of a run, which the plans of all programs have."""

    @property
    def delta(self) -> float:
        """δ of the whole run."""
        ...

    @property
    def public_user_count(self) -> int | None:
        """Number of users of the input if it is public, else None."""
        ...


def warn_of_large_delta(plan: SpendsDelta) -> None:
    """Warns on stderr, even with --quiet, of a δ of 0.001 or more, which weakens the guarantee.

    There is no warning if the number of users is public, since a δ above one over that number is
    refused.
    """
    warning = about_large_delta(plan.delta)
    if warning is not None and plan.public_user_count is None:
        display.print_notice(
            f"beam-dpne: warning: {warning}. Take a delta well below one over the number of users; if "
            "their number is public and small, give --public_user_count."
        )


def check_public(name: str, path: str, files: Sequence[InputFile]) -> None:
    """Raises UsageError if a public file is one of the private ones, or has the same text."""
    for file in files:
        if same_file(path, file.path):
            raise UsageError(
                f"{name} must not be private data, got {name}={path}, which is the same as an input, "
                f"{file.path}. Give data that anybody may see."
            )
