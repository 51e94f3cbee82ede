"""Checks of the options of a run that do not need Apache Beam, which takes seconds to load."""

import argparse
from collections.abc import Sequence
from typing import NoReturn

from beam_dpne.cli.options import options_of
from beam_dpne.cli.options_by_command import BAYESIAN, NGRAMS, SET_UNION
from beam_dpne.elements.threads import MOST_WORKERS
from beam_dpne.errors import UsageError

_LEAST_VALUES = (
    *(("side_input_limit", 1), ("partitions", 1)),
    *(("harness_timeout", 0), ("workers", 0)),
)


def check_arguments(arguments: Sequence[str]) -> None:
    """Checks that no argument is certainly one that Beam does not know either.

    Only Beam knows its options and those of its runners, so that any other unknown option is refused
    when Beam is loaded (`runners.beam_options`).

    Args:
      arguments: what a program does not know itself.

    Raises:
      UsageError: if the first one is no option, or one is an option of another program of ours.
    """
    if arguments and not arguments[0].startswith("-"):
        refuse_argument(arguments[0])
    ours = {option.name for table in (NGRAMS, SET_UNION, BAYESIAN) for option in options_of(table)}
    for argument in arguments:
        flag = argument.partition("=")[0]
        if flag.startswith("--") and flag[2:] in ours:
            raise UsageError(
                f"there is no option {flag} here; it is of another command, see beam-dpne --help."
            )


def refuse_argument(argument: str) -> NoReturn:
    """Raises UsageError about an argument that belongs to no option."""
    raise UsageError(f"there is no argument {argument!r}; name input files with --input.")


def check_tokenizer(parsed: argparse.Namespace) -> None:
    """Checks that the tokenizer can be found, if one is named.

    Raises:
      ValueError: if its name is unknown, or it cannot be imported.
    """
    if parsed.tokenizer is not None:
        # It needs Arrow, which no other check here does.
        from beam_dpne.documents.tokenizers import resolve_tokenizer

        resolve_tokenizer(parsed.tokenizer)


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
