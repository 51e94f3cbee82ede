"""Tables of arguments that must be refused, in one test."""

import re
from collections.abc import Callable, Iterable


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
