"""The options of the programs, defined once: for the parser, the help, and launch templates."""

import argparse
import dataclasses
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from beam_dpne.set_union.policies import VOCABULARY_POLICIES


@dataclasses.dataclass(frozen=True, kw_only=True)
class Option:
    """One option of a program.

    Attributes:
      name: without dashes.
      help: what it is, a sensible value, what happens when it is wrong.
      default: value when it is left out; None: none.
      parse: from text to value; one of the functions below, each of which has a pattern.
      choices: the only values, if they are few.
      repeatable: may be given several times.
      flag: on or off; without a value it is on.
      path: what the value names, "files" or "file" to read, a "directory" to write; "" is neither.
      form_pattern: instead of the pattern of `parse`.
      shown_default: the default in words, where it depends on other options.
    """

    name: str
    help: str
    default: Any = None
    parse: Callable[[str], Any] = str
    choices: Sequence[str] = ()
    repeatable: bool = False
    flag: bool = False
    path: str = ""
    form_pattern: str = ""
    shown_default: str = ""

    @property
    def default_text(self) -> str:
        """The default as the help and the README's table show it."""
        if self.shown_default:
            return self.shown_default
        if self.flag:
            return "off"
        return "none" if self.default is None else str(self.default)

    @property
    def pattern(self) -> str:
        """Regular expression of the texts that a launch form may send.

        The parser takes each of them; what does not match, the program refuses. It is written in
        the syntax that Python, Java and RE2 share, for a match of the whole text.
        """
        return self.form_pattern or PATTERNS[boolean if self.flag else self.parse]


def boolean(text: str) -> bool:
    """Parses `true` and `false`."""
    return {"true": True, "false": False}[_matched(text, "true|false")]


def integer(text: str) -> int:
    """Parses `10`; no blanks, underscores or digits of other scripts, which forms do not know."""
    return int(_matched(text, f"-?{_INTEGER}"))


def number(text: str) -> float:
    """Parses `0.5` and `1e-7`; what is not finite is for the checks of values to refuse."""
    return float(_matched(text, f"-?({_NUMBER}|inf|nan)"))


def integers(text: str) -> int | tuple[int, ...]:
    """Parses `10` or `10,20,20`."""
    values = tuple(integer(part) for part in text.split(","))
    return values[0] if len(values) == 1 else values


def numbers(text: str) -> tuple[float, ...]:
    """Parses `0.5,0.25,0.25`."""
    return tuple(number(part) for part in text.split(","))


def names(text: str) -> tuple[str, ...]:
    """Parses `user,text`."""
    return tuple(part.strip() for part in text.split(","))


def field(text: str) -> list[str]:
    """Parses the name of one field, commas and all; each further option adds one."""
    return [text]


def addresses(text: str) -> list[str]:
    """Parses one path, or several full addresses with commas between: a form has one field.

    >>> addresses("gs://bucket/a.csv, gs://bucket/b,c.csv")
    ['gs://bucket/a.csv', 'gs://bucket/b,c.csv']
    """
    return re.split(r",\s*(?=[A-Za-z][-+.A-Za-z0-9]*://)", text)


def _matched(text: str, pattern: str) -> str:
    if not re.fullmatch(pattern, text):
        raise ValueError("the text does not match")
    return text


_INTEGER = "[0-9]{1,18}"
_NUMBER = r"([0-9]+\.?[0-9]*|\.[0-9]+)([eE][-+]?[0-9]{1,4})?"
_LINE = r"[^\r\n]+"
_FIELD = r"[^\x00-\x1f\"\\]+"
_NOTE = r"[^\x00-\x1f\x7f]{1,200}"
_DELIMITER = r"[\x01-\x09\x0b\x0c\x0e-!#-\x7f]|\\t|comma|semicolon|tab|pipe|colon|space"
NAME_PATTERN = "[A-Za-z_][A-Za-z0-9_]*"
PATTERNS: Mapping[Callable[[str], Any], str] = {
    str: _LINE,
    boolean: "true|false",
    integer: _INTEGER,
    number: _NUMBER,
    integers: f"{_INTEGER}(,{_INTEGER})*",
    numbers: f"{_NUMBER}(,{_NUMBER})*",
    names: _LINE,
    field: _FIELD,
    addresses: _LINE,
}


READING = (
    Option(
        name="input",
        parse=addresses,
        repeatable=True,
        path="files",
        help="Files to read, by path or glob, or a folder, local or on any Beam file system, e.g. "
        "gs://bucket/notes/*.jsonl.gz. Several: give the option again, or full addresses with commas "
        "between. A folder stands for the files in it, which must have one format; folders within it "
        "and names that begin with . or _ do not count. Gzip, bzip2 and zstd are decompressed by "
        "extension; archives such as .zip are refused. A run whose files are missing is refused before "
        "it starts.",
    ),
    Option(
        name="input_format",
        default="auto",
        choices=("auto", "jsonl", "json", "csv", "tsv", "parquet", "sequences"),
        help="Format of the input. auto goes by the extension, which fits most files. jsonl: one "
        "object a line; json: one array of objects, or lines of them. sequences: each "
        "line is one user of their own, tokens separated by blanks. Under a wrong format the fields "
        "are not found and the run is refused, or its records are rejected.",
    ),
    Option(
        name="user_field",
        default="user",
        form_pattern=_FIELD,
        help="Field that names the user of a record, e.g. user_id; all records with one value are "
        "protected together, so a field that does not tell people apart protects something else. "
        "A field that does not exist is refused.",
    ),
    Option(
        name="text_field",
        default="text",
        parse=field,
        repeatable=True,
        help="Field that holds the text of a record, e.g. body. Several: give the option again; each "
        "text is then a document of its user, and one that is null or missing is left out. A field "
        "that does not exist is refused.",
    ),
    Option(
        name="encoding",
        form_pattern="[A-Za-z0-9][A-Za-z0-9_.-]*",
        shown_default="UTF-8; UTF-16 by byte order mark in CSV and TSV with a header, and in JSON",
        help="Encoding of files other than Parquet, by Python's name, e.g. latin-1, cp1252, utf-16-le "
        "or shift_jis. Records that cannot be decoded are rejected; an unknown name is refused, and so "
        "is an encoding in which one text may change how later lines are read, e.g. iso2022_jp. "
        "Without it, a mark of UTF-16 counts only where the file does not begin with a user's record.",
    ),
    Option(
        name="delimiter",
        form_pattern=_DELIMITER,
        shown_default="comma, TSV tab",
        help="Character between the fields of CSV or TSV files: one ASCII character, or comma, "
        "semicolon, tab, pipe, colon or space. A quote, a line end and other formats are refused.",
    ),
    Option(
        name="quoting",
        default="auto",
        choices=("auto", "quoted", "none"),
        help="Whether fields of CSV or TSV files may be enclosed in quotes. auto: those of CSV may, "
        "and in TSV a quote is text like any other; quoted; none. A TSV file whose fields are in "
        "quotes is refused under auto; so are quoted and none for other formats.",
    ),
    Option(
        name="columns",
        parse=names,
        help="Names of all columns, in order and separated by commas, of CSV or TSV files that have "
        "no header line, e.g. user,text. Leave it out for files with one: the header would be read "
        "as a record.",
    ),
    Option(
        name="tokenizer",
        default="words",
        form_pattern=f"words|unicode_words|whitespace|tokens|{NAME_PATTERN}(\\.{NAME_PATTERN})*:{NAME_PATTERN}(\\.{NAME_PATTERN})*",
        help="How texts become tokens. words (runs of letters, digits, their marks, _ and inner "
        "apostrophes, lower-cased) fits most languages with blanks; unicode_words (Unicode's word "
        "boundaries; extra unicode) fits text without blanks, such as Chinese, Japanese or Thai, where "
        "most characters become tokens by themselves; whitespace; tokens (the text field is a list of "
        "tokens already); or package.module:function over an Arrow string array, which must treat "
        "each text alone, or the guarantee is void. For sequences the default is whitespace. An "
        "unknown name is refused.",
    ),
    Option(
        name="max_record_bytes",
        default=16 * 2**20,
        parse=integer,
        help="A record above this size is rejected, in bytes, 1 to 1073741824; it bounds what a "
        "worker holds at once. The default fits nearly every text.",
    ),
    Option(
        name="rejects",
        path="directory",
        help="Directory of the operator for rejected records, e.g. gs://bucket/rejects: file, position "
        "and reason, without their text. As private as the data, and refused inside a release. "
        "Without it they are only counted.",
    ),
    Option(
        name="max_rejected",
        default=0.05,
        parse=number,
        help="Share of the records that may be rejected, 0 to 1. Above it the run fails before "
        "publishing, and says how many records were rejected for which reason; 1 publishes whatever "
        "is left. Files read in a wrong format or encoding are found this way.",
    ),
    Option(
        name="strict",
        flag=True,
        help="Fail at the first rejected record instead of going on without it; a failed run "
        "publishes nothing.",
    ),
)

PUBLIC_USER_COUNT = Option(
    name="public_user_count",
    parse=integer,
    help="Number of users of the input, where it is public, e.g. 50000; it must never be counted in "
    "the private data. A delta above one over it is refused. Without it, a delta of 0.001 and more "
    "is warned about. Does not change the release.",
)

PRIVACY = (
    Option(
        name="epsilon",
        parse=number,
        help="Privacy budget ε > 0 of the whole run, per user. Required; 1 to 4 is common for text, "
        "above 10 little is protected, and a smaller one releases fewer n-grams.",
    ),
    Option(
        name="delta",
        parse=number,
        help="Privacy budget δ in (0, 1) of the whole run, per user. Required; well below one over "
        "the number of users, e.g. 1e-7 for a million users. A larger one may expose single users.",
    ),
    Option(
        name="max_length",
        default=5,
        parse=integer,
        help="Words in the longest n-gram, T, 1 to 100. More lengths share the same budget, so that "
        "each has more noise.",
    ),
    Option(
        name="strategy",
        default="adaptive",
        choices=("adaptive", "one_round"),
        help="How users spend their budget. adaptive: each user divides one budget among lengths and "
        "rounds by what it holds, which releases about twice as much. one_round: the paper's, once per "
        "length.",
    ),
    Option(
        name="max_contributions",
        parse=integers,
        shown_default="300, one_round 100",
        help="Distinct n-grams that one user adds at one length (in each of its rounds), Δ ≥ 1: one "
        "number, or one for each length, e.g. 10,20,20. About what a typical user holds is sensible; "
        "more than users hold raises the threshold for nothing. It must not be read off the private "
        "data.",
    ),
    Option(
        name="spurious_fraction",
        default=0.01,
        parse=number,
        help="Tolerated n-grams that nobody holds, η in (0, 1): at most this fraction of the "
        "released n-grams one word shorter, in expectation. Larger releases more of both kinds.",
    ),
    Option(
        name="pruning",
        default="both",
        choices=("both", "single"),
        help="Which n-grams are candidates: both: prefix and suffix were released; single: prefix "
        "and last word were released. With both they are fewer, and the threshold is lower; the "
        "privacy is the same.",
    ),
    Option(
        name="valid_count",
        default="exact",
        choices=("exact", "estimate"),
        help="How candidates are counted: exact, or estimate as in the paper, which pruning=single "
        "refuses.",
    ),
    Option(
        name="rounds",
        parse=integer,
        shown_default="3, one_round none",
        help="Rounds of each length of two words and more, 1 to 3: later ones spend only on what is "
        "still open, so that more is released, and each is a pass over the data. Refused with "
        "one_round.",
    ),
    Option(
        name="user_budgets",
        choices=("individual", "even"),
        shown_default="individual, one_round none",
        help="How a user's budget is divided among lengths. individual: by what the user holds; even: "
        "the same for each length, which needs ordinary composition only, and releases less. Refused "
        "with one_round.",
    ),
    Option(
        name="vocabulary_policy",
        choices=VOCABULARY_POLICIES,
        shown_default="rounds, one_round weighted_gaussian",
        help="How single words are found. The defaults are the strategies' own; public: they are given "
        "with --vocabulary; weighted_gaussian and screened_gaussian are policies of beam-dpne "
        "set-union, which take the share of one length.",
    ),
    Option(
        name="vocabulary_delta_share",
        parse=number,
        shown_default="0.1, one_round 0.5",
        help="Part of delta for single words that only one user holds, in (0, 1); the rest goes "
        "into the noise. A small share raises the threshold of single words, a large one all noise.",
    ),
    Option(
        name="noise_growth",
        parse=number,
        shown_default="1, adaptive none",
        help="Noise of each length over that of the length before, c > 0, e.g. 0.8; below 1 favours "
        "long n-grams, 1 treats all alike. One far from 1 leaves some length no budget and is "
        "refused, and so is any with adaptive.",
    ),
    Option(
        name="budget_shares",
        parse=numbers,
        help="Share of the budget for each length, summing to 1, e.g. 0.2,0.4,0.4 for max_length=3; "
        "instead of noise_growth. Another number of shares, or another sum, is refused, and so are "
        "any with adaptive.",
    ),
    Option(
        name="max_tokens_per_user",
        default=1_000_000,
        parse=integer,
        help="Tokens of one user that are looked at, at least 1; of users with more, a random part of "
        "their documents is. So many that the numerical slack would pass epsilon/1000 are refused.",
    ),
    Option(
        name="max_users",
        default=10_000_000,
        parse=integer,
        help="Users that the input has at most, at least 1: a promise of yours, never checked against "
        "the data. Under the vocabulary_policy screened_gaussian the bound on rounding and the number "
        "of shards rest on it; with others it is ignored. Choose a round number well above what is "
        "known in public.",
    ),
    PUBLIC_USER_COUNT,
    Option(
        name="plan",
        path="file",
        help="JSON file with all of these privacy parameters, as written by `beam-dpne plan`, e.g. "
        "gs://bucket/plan.json; instead of the single ones, which are refused beside it.",
    ),
)

VOCABULARY = (
    Option(
        name="vocabulary",
        path="file",
        help="File with a public vocabulary, one token a line as the tokenizer writes it, e.g. "
        "gs://bucket/words.txt: single words are then given instead of found, cost nothing and are "
        "not released. It must not be made from the private data. An empty file is refused.",
    ),
)

WRITING = (
    Option(
        name="output",
        path="directory",
        help="Directory of the release, e.g. gs://bucket/releases/2025-01: ngrams-* files and "
        "ledger.json, written last. A new one for each run; one with files in it is refused.",
    ),
    Option(
        name="output_format",
        default="jsonl",
        choices=("jsonl", "tsv", "parquet"),
        help="Format of the n-gram files, whichever their reader wants; the release is the same.",
    ),
    Option(
        name="overwrite",
        flag=True,
        help="Replace a release that is already in the output directory. The first one stays spent: "
        "whoever has seen both knows what two runs tell.",
    ),
    Option(
        name="title",
        form_pattern=_NOTE,
        help="What the release is, e.g. 'Support phrases, spring 2025', for the ledger, with which it "
        "is published. It changes nothing else. More than 200 characters, or more than one line, are "
        "refused.",
    ),
    Option(
        name="contact",
        form_pattern=_NOTE,
        help="Whom readers of the release may ask, e.g. privacy@example.com, for the ledger, with "
        "which it is published. It changes nothing else. More than 200 characters, or more than one "
        "line, are refused.",
    ),
    Option(
        name="unit",
        form_pattern=_NOTE,
        help="What one user stands for, with its article, e.g. 'a customer': the ledger says that the "
        "guarantee is for each of them, so it must be what one value of user_field stands for. It "
        "changes nothing else. More than 200 characters, or more than one line, are refused.",
    ),
)

FAILURE_LOG = (
    Option(
        name="failure_log",
        help="File for the whole failure of a run, e.g. private/failure.log: the tracebacks of the "
        "launcher and, where the engine hands them on, of its workers, which stderr withholds because "
        "they may quote texts. The engine's own logs then hold what a tokenizer of yours raised, too. "
        "The file is as private as the data, readable by its owner alone, and refused inside a "
        "release. A run that ends well or is interrupted leaves none.",
    ),
    Option(
        name="failure_log_remote",
        flag=True,
        help="Allow failure_log in a bucket, e.g. gs://bucket/private/failure.log, where only the "
        "bucket's own access rules keep it from others. Without it such a path is refused.",
    ),
)

RUNNING = (
    Option(
        name="partitions",
        parse=integer,
        help="Parts into which users are divided, at least 1; a worker holds one at a time, so too "
        "few fill its memory. Default: by the size of the input. Does not change the release.",
    ),
    Option(
        name="run_key_file",
        path="file",
        help="File with the run key, 64 hexadecimal digits, e.g. gs://bucket/secret/run.key, which "
        "the launcher and every worker can read. The same key and input give the same "
        "release under the same parameters, tokenizer and way of reading; where any of them, or the "
        "mechanism version, differs, the noise is another one. Keep it as secret as the data. One key "
        "on two different inputs voids the guarantee; so does one key on two tokenizers of your own "
        "with the same name and version. Default: a fresh key.",
    ),
    Option(
        name="side_input_limit",
        default=64 * 2**20,
        parse=integer,
        help="A set above this size, in bytes, released or still open between two rounds, reaches the "
        "workers as a file in the run's temporary location, which each fetches once and maps into "
        "memory; a larger one needs more memory on every worker. That location is as private as the "
        "data. Does not change the release.",
    ),
    Option(
        name="harness_timeout",
        default=120,
        parse=integer,
        help="Seconds after the start of a job on an engine until its workers must have done a "
        "first step; a job whose workers cannot start is cancelled instead of hanging. Raise it where "
        "workers take long to start; 0: no limit.",
    ),
    *FAILURE_LOG,
    Option(
        name="quiet", flag=True, help="No progress and no log lines on stderr; errors still are."
    ),
)

NGRAMS = (*READING, *PRIVACY, *VOCABULARY, *WRITING, *RUNNING)


PLAN_OUTPUT = (
    Option(
        name="output",
        help="File for the plan as JSON, e.g. plan.json or gs://bucket/plan.json; without it the "
        "JSON is not written.",
    ),
)


def add_options(parser: argparse.ArgumentParser, title: str, options: Sequence[Option]) -> None:
    """Adds a titled group of options to a parser; options left out become None."""
    group = parser.add_argument_group(title)
    for option in options:
        text = f"{option.help} (default: {option.default_text})".replace("%", "%%")
        flag = f"--{option.name}"
        if option.flag:
            given = {"nargs": "?", "const": True, "type": boolean, "metavar": "true|false"}
            group.add_argument(flag, help=text, **given)
        elif option.choices:
            group.add_argument(flag, choices=option.choices, help=text)
        else:
            action = "extend" if option.repeatable else "store"
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
