"""The options of the programs, defined once: for the parser, the help, and launch templates."""

import argparse
import dataclasses
from collections.abc import Callable, Sequence
from typing import Any


@dataclasses.dataclass(frozen=True, kw_only=True)
class Option:
    """One option of a program.

    Attributes:
      name: without dashes.
      help: what it is, a sensible value, what happens when it is wrong.
      default: value when it is left out; None: none.
      parse: from text to value.
      choices: the only values, if they are few.
      repeatable: may be given several times.
      flag: takes no value.
    """

    name: str
    help: str
    default: Any = None
    parse: Callable[[str], Any] = str
    choices: Sequence[str] = ()
    repeatable: bool = False
    flag: bool = False

    @property
    def default_text(self) -> str:
        """The default as the help and the README's table show it."""
        if self.flag:
            return "off"
        return "none" if self.default is None else str(self.default)


def integers(text: str) -> int | tuple[int, ...]:
    """Parses `10` or `10,20,20`."""
    values = tuple(int(part) for part in text.split(","))
    return values[0] if len(values) == 1 else values


def numbers(text: str) -> tuple[float, ...]:
    """Parses `0.5,0.25,0.25`."""
    return tuple(float(part) for part in text.split(","))


def names(text: str) -> tuple[str, ...]:
    """Parses `user,text`."""
    return tuple(part.strip() for part in text.split(","))


READING = (
    Option(
        name="input",
        repeatable=True,
        help="File or glob to read, local or on any Beam file system; may be given several times. "
        "Gzip, bzip2 and zstd are decompressed by extension.",
    ),
    Option(
        name="input_format",
        default="auto",
        choices=("auto", "jsonl", "csv", "tsv", "parquet", "sequences"),
        help="Format of the input. auto goes by the extension. sequences: each line is one user of "
        "their own, tokens separated by blanks.",
    ),
    Option(name="user_field", default="user", help="Field that names the user of a record."),
    Option(name="text_field", default="text", help="Field that holds the text of a record."),
    Option(
        name="columns",
        parse=names,
        help="Names of all columns, in order and separated by commas, of CSV or TSV files that have "
        "no header line, e.g. user,text.",
    ),
    Option(
        name="tokenizer",
        default="words",
        help="words (runs of letters, digits, marks, _ and inner apostrophes, lower-cased), "
        "whitespace, tokens (the text field is a list of tokens already), or package.module:function "
        "over an Arrow string array, which must treat each text alone. For sequences the default is "
        "whitespace.",
    ),
    Option(
        name="max_record_bytes",
        default=16 * 2**20,
        parse=int,
        help="A record above this size is rejected, in bytes.",
    ),
    Option(
        name="rejects",
        help="Directory of the operator for rejected records: file, position and reason, without "
        "their text. As private as the data.",
    ),
    Option(
        name="strict",
        flag=True,
        help="Fail at the first rejected record instead of going on without it.",
    ),
)

PRIVACY = (
    Option(
        name="epsilon",
        parse=float,
        help="Privacy budget ε > 0 of the whole run, per user. Required; 1 to 4 is common for text.",
    ),
    Option(
        name="delta",
        parse=float,
        help="Privacy budget δ in (0, 1) of the whole run, per user. Required; well below one over "
        "the number of users, e.g. 1e-7 for a million users.",
    ),
    Option(name="max_length", default=5, parse=int, help="Words in the longest n-gram, T ≥ 1."),
    Option(
        name="max_contributions",
        default=100,
        parse=integers,
        help="Distinct n-grams that one user adds at one length, Δ ≥ 1: one number, or one for each "
        "length, e.g. 10,20,20.",
    ),
    Option(
        name="spurious_fraction",
        default=0.01,
        parse=float,
        help="Tolerated n-grams that nobody holds, η in (0, 1): at most this fraction of the "
        "released n-grams one word shorter, in expectation.",
    ),
    Option(
        name="pruning",
        default="both",
        choices=("both", "single"),
        help="Which n-grams are candidates: both: prefix and suffix were released; single: prefix "
        "and last word were released.",
    ),
    Option(
        name="valid_count",
        default="exact",
        choices=("exact", "estimate"),
        help="How candidates are counted: exact, or estimate as in the paper.",
    ),
    Option(
        name="strategy",
        default="one_round",
        choices=("one_round",),
        help="How users spend their budget. one_round: the paper's, once per length.",
    ),
    Option(
        name="vocabulary_delta_share",
        default=0.5,
        parse=float,
        help="Part of delta for single words that only one user holds, in (0, 1); the rest goes "
        "into the noise.",
    ),
    Option(
        name="noise_growth",
        default=1.0,
        parse=float,
        help="Noise of each length over that of the length before, c > 0; below 1 favours long "
        "n-grams.",
    ),
    Option(
        name="budget_shares",
        parse=numbers,
        help="Share of the budget for each length, summing to 1, e.g. 0.2,0.4,0.4; instead of "
        "noise_growth.",
    ),
    Option(
        name="max_tokens_per_user",
        default=1_000_000,
        parse=int,
        help="Tokens of one user that are looked at; of users with more, a random part of their "
        "documents is.",
    ),
    Option(
        name="plan",
        help="JSON file with all of these privacy parameters, as written by `beam-dpne plan`; "
        "instead of the single ones.",
    ),
)

WRITING = (
    Option(
        name="output",
        help="Directory of the release: ngrams-* files and ledger.json, written last.",
    ),
    Option(
        name="output_format",
        default="jsonl",
        choices=("jsonl", "tsv", "parquet"),
        help="Format of the n-gram files.",
    ),
    Option(
        name="overwrite",
        flag=True,
        help="Replace a release that is already in the output directory.",
    ),
)

RUNNING = (
    Option(
        name="partitions",
        parse=int,
        help="Parts into which users are divided; a worker holds one at a time. Default: by the "
        "size of the input. Does not change the release.",
    ),
    Option(
        name="run_key_file",
        help="File with the run key, 64 hexadecimal digits. The same key and input give the same "
        "release under the same parameters. Keep it as secret as the data; one key on two different "
        "inputs voids the guarantee. Default: a fresh key.",
    ),
    Option(
        name="quiet", flag=True, help="No progress and no log lines on stderr; errors still are."
    ),
)

PLAN_OUTPUT = (
    Option(name="output", help="File for the plan as JSON; without it the JSON is not written."),
)


def add_options(parser: argparse.ArgumentParser, title: str, options: Sequence[Option]) -> None:
    """Adds a titled group of options to a parser; options left out become None."""
    group = parser.add_argument_group(title)
    for option in options:
        text = f"{option.help} (default: {option.default_text})".replace("%", "%%")
        flag = f"--{option.name}"
        if option.flag:
            group.add_argument(flag, action="store_true", default=None, help=text)
        elif option.choices:
            group.add_argument(flag, choices=option.choices, help=text)
        else:
            action = "append" if option.repeatable else "store"
            group.add_argument(flag, type=option.parse, action=action, metavar="X", help=text)


def with_defaults(given: argparse.Namespace, options: Sequence[Option]) -> dict[str, Any]:
    """Returns the values of options, defaults for those left out."""
    values = {}
    for option in options:
        value = getattr(given, option.name)
        if value is None:
            value = False if option.flag else option.default
        values[option.name] = value
    return values
