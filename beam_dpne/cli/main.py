"""The program `beam-dpne`: sub-commands, exit statuses, and errors as one line.

Exit status: 0 done, 1 the run failed, 2 a parameter is wrong, 130 interrupted.
"""

import argparse
import logging
import os
import sys
from collections.abc import Callable, Sequence

from beam_dpne.cli.errors import RunError, UsageError
from beam_dpne.cli.options import (
    PLAN_OUTPUT,
    PRIVACY,
    READING,
    RUNNING,
    WRITING,
    add_options,
)
from beam_dpne.version import __version__

INTERRUPTED = 130
Command = Callable[[argparse.Namespace, list[str]], None]


def main(argv: Sequence[str] | None = None) -> int:
    """Runs `beam-dpne` with these arguments (those of the process by default)."""
    arguments = sys.argv[1:] if argv is None else list(argv)
    try:
        given, beam_arguments = _parser().parse_known_args(arguments)
    except SystemExit as stop:
        return int(stop.code or 0)
    return guarded(given.command, given, beam_arguments)


def guarded(command: Command, given: argparse.Namespace, beam_arguments: list[str]) -> int:
    """Runs a command and turns what can go wrong into an exit status and one line on stderr."""
    _quiet_libraries()
    try:
        command(given, beam_arguments)
    except KeyboardInterrupt:
        print("beam-dpne: interrupted; nothing was published.", file=sys.stderr)
        return INTERRUPTED
    except (UsageError, ValueError, FileNotFoundError) as error:
        print(f"beam-dpne: error: {error}", file=sys.stderr)
        return 2
    except RunError as error:
        print(f"beam-dpne: the run failed: {error}", file=sys.stderr)
        return 1
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="beam-dpne",
        description="Differentially private n-grams from private text, on Apache Beam.",
        allow_abbrev=False,
    )
    parser.add_argument("--version", action="version", version=f"beam-dpne {__version__}")
    commands = parser.add_subparsers(title="commands", required=True, metavar="COMMAND")
    ngrams = commands.add_parser(
        "ngrams",
        help="release the n-grams that many users share",
        description="Releases the n-grams that many users share, with user-level (ε, δ)-"
        "differential privacy. Options of Apache Beam (--runner, …) may follow.",
        allow_abbrev=False,
    )
    add_ngram_options(ngrams)
    ngrams.set_defaults(command=_ngrams)
    plan = commands.add_parser(
        "plan",
        help="show the noise that privacy parameters need, and write them to a file",
        description="Prints what each length of a run would spend, and writes the plan as JSON.",
        allow_abbrev=False,
    )
    add_options(plan, "privacy", PRIVACY)
    add_options(plan, "writing", PLAN_OUTPUT)
    plan.set_defaults(command=_plan)
    return parser


def add_ngram_options(parser: argparse.ArgumentParser) -> None:
    """Adds all options of `beam-dpne ngrams`."""
    add_options(parser, "reading", READING)
    add_options(parser, "privacy", PRIVACY)
    add_options(parser, "writing", WRITING)
    add_options(parser, "running", RUNNING)


def _ngrams(given: argparse.Namespace, beam_arguments: list[str]) -> None:
    from beam_dpne.cli import ngrams

    ngrams.run_command(given, beam_arguments)


def _plan(given: argparse.Namespace, beam_arguments: list[str]) -> None:
    from beam_dpne.cli import plans

    plans.run_command(given, beam_arguments)


def _quiet_libraries() -> None:
    """Sends our own log lines to stderr; libraries' lines may quote data and stay silent."""
    logging.getLogger().setLevel(logging.CRITICAL + 1)
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")


if __name__ == "__main__":
    sys.exit(main())
