"""What is said of an argument of the command line that nobody knows."""

from collections.abc import Collection

from beam_dpne.errors import UsageError
from beam_dpne.validation import did_you_mean


def unknown_argument(argument: str, known: Collection[str]) -> UsageError:
    """Returns the error about an argument that is none of the known options."""
    option, _, _ = argument.partition("=")
    if option.startswith("-"):
        hint = did_you_mean(option.lstrip("-"), known, "--")
        return UsageError(f"there is no option {option}.{hint} See --help.")
    remedy = "If a glob became it, quote the glob, or give --input once for each file."
    return UsageError(
        f"there is no argument {argument}. {remedy if 'input' in known else 'See --help.'}"
    )
