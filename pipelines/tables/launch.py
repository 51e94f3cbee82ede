"""The part that the recipes of this folder share: their options, the private transform, the run."""

import argparse
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import apache_beam as beam

from beam_dpne import NgramsPlan, PrivateNgrams, PrivateNgramsResult
from beam_dpne.jobs.engine import beam_options

Read = Callable[[beam.Pipeline, argparse.Namespace], Any]
Write = Callable[[PrivateNgramsResult, argparse.Namespace], object]


def launch(
    read: Read,
    write: Write,
    description: str | None,
    arguments: Sequence[str] | None = None,
    *,
    others: Mapping[str, str] | None = None,
) -> int:
    """Reads documents, releases their n-grams, writes the rows and the ledger; returns 0.

    Args:
      read: Adds the step that reads documents, with the parsed options.
      write: Adds the steps that write a release, with the parsed options.
      description: First paragraphs of the help text.
      arguments: Command line; by default that of the process. Options that are not listed here are
        Beam's, such as --runner. The runner is the embedded one by default.
      others: Names and help texts of further required options.
    """
    parser = _parser(description)
    for name, text in (others or {}).items():
        parser.add_argument(f"--{name}", required=True, help=text)
    given, for_beam = parser.parse_known_args(arguments)
    options = beam_options(for_beam)
    plan = NgramsPlan(epsilon=given.epsilon, delta=given.delta, max_length=given.max_length)
    release = PrivateNgrams(plan=plan, user_field=given.user_field, text_field=given.text_field)
    # As a context manager, Beam starts and stops the processes of transforms in Java.
    with beam.Pipeline(runner=options.runner, options=options.pipeline_options) as pipeline:
        result: Any = read(pipeline, given) | release
        write(result, given)
    return 0


def _parser(description: str | None) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        description=description,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument(
        "--input", required=True, help="table, or pattern of files, with private data"
    )
    parser.add_argument("--output", required=True, help="new table or new directory of the release")
    parser.add_argument("--epsilon", required=True, type=float, help="budget ε of the whole run")
    parser.add_argument("--delta", required=True, type=float, help="budget δ of the whole run")
    parser.add_argument("--max_length", type=int, default=5, help="words in the longest n-gram")
    parser.add_argument("--user_field", default="user", help="field that names the protected user")
    parser.add_argument("--text_field", default="text", help="field with the text")
    return parser
