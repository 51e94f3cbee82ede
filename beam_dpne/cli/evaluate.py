"""The options of `beam-dpne evaluate`; what it does is in `evaluating`, which takes longer to load."""

import argparse
import dataclasses
from typing import Any

from beam_dpne.cli.options import FAILURE_LOG, Option, add_options, integers
from beam_dpne.cli.set_union_options import ITEMS_READING

K_ANONYMITY = (1, 2, 5, 10, 20, 50, 100)

EVALUATE_READING = tuple(
    dataclasses.replace(
        option,
        default=None,
        shown_default="that of the release",
        help="How texts become tokens: as the release had it, which its ledger names, unless it was "
        "a function of your own that is now elsewhere: package.module:function. Under another "
        "tokenizer, n-grams that users hold look spurious.",
    )
    if option.name == "tokenizer"
    else option
    for option in ITEMS_READING
    # The run that made the release has told of them.
    if option.name not in ("rejects", "max_rejected")
)

EVALUATE = (
    Option(
        name="release",
        path="directory",
        help="Directory of the release to judge, e.g. release/titles or gs://bucket/releases/2025-01, "
        "of n-grams or of items. Required; one that is incomplete or damaged is refused.",
    ),
    Option(
        name="k_anonymity",
        default=K_ANONYMITY,
        parse=integers,
        shown_default=",".join(map(str, K_ANONYMITY)),
        help="Numbers of users k, e.g. 1,10,100: how much of what at least k users hold is released. "
        "Numbers below 1 are refused.",
    ),
    Option(
        name="output",
        path="directory",
        help="Directory of the operator for tables (JSON, CSV) and plots (PNG), e.g. "
        "gs://bucket/evaluations; files of an earlier evaluation there are replaced. As private as the "
        "data, and refused inside a release. Without it the tables are only printed.",
    ),
    *FAILURE_LOG,
    Option(
        name="quiet", flag=True, help="No progress and no log lines on stderr; errors still are."
    ),
)


def add_evaluate(commands: "argparse._SubParsersAction[Any]") -> None:
    """Adds the command `evaluate` to a program."""
    parser = commands.add_parser(
        "evaluate",
        help="compare a release with the private data it came from; for the operator",
        description="Compares a release with the private data it came from: how much of it is real, "
        "how much of the data it covers. What it prints and writes is NOT private: it is as secret as "
        "the data, and for the operator only. The data must fit in memory: 10 million words and 9 "
        "lengths take 2 GB.",
        allow_abbrev=False,
    )
    add_options(parser, "reading", EVALUATE_READING)
    add_options(parser, "evaluating", EVALUATE)
    parser.set_defaults(command=_run)


def _run(given: argparse.Namespace, beam_arguments: list[str]) -> None:
    from beam_dpne.cli import evaluating

    evaluating.run_command(given, beam_arguments)
