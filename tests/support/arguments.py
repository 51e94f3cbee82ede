"""Arguments of commands as they are parsed, and tables of what must be refused."""

import argparse
import re
from collections.abc import Callable, Iterable, Sequence

from beam_dpne.cli.commands import COMMANDS


def parsed(arguments: Sequence[str]) -> tuple[argparse.Namespace, list[str]]:
    """Returns the texts of the options of a command, and the arguments that are Beam's."""
    command = next(each for each in COMMANDS if each.name == arguments[0])
    return command.parser().parse_known_args(list(arguments[1:]))


def refusal(
    make: Callable, *arguments, error: type[Exception] = ValueError, **parameters
) -> str | None:
    """Returns the message of the error that a call raises; None if it raises none."""
    try:
        make(*arguments, **parameters)
    except error as refused:
        return str(refused)
    return None


def not_refused(
    make: Callable, cases: Iterable[tuple[dict, str]], error: type[Exception] = ValueError
) -> list[tuple[dict, str, str | None]]:
    """Returns the cases, parameters and a pattern of the message, that fail, with what was said."""
    said = [(wrong, words, refusal(make, error=error, **wrong)) for wrong, words in cases]
    return [case for case in said if case[2] is None or not re.search(case[1], case[2])]
