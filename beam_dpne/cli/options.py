"""What an option is, and the options for input, output and running that several commands share.

Each option is defined once for the parser, the help, the documentation and the launch forms.
`options_by_command` has the options for privacy and the complete table of each command.
"""

import argparse
import dataclasses
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from beam_dpne.elements.threads import MOST_WORKERS


@dataclasses.dataclass(frozen=True, kw_only=True)
class Option:
    """One option of a program.

    Attributes:
      name: without dashes.
      help: its meaning, a sensible value, and the consequence of a wrong one.
      default: its value when it is left out, or None.
      parse: function from text to value; one of those below, each of which has a pattern.
      choices: all allowed values, if they are few.
      repeatable: whether it may be given several times.
      flag: whether it is on or off; it is on if it is given without a value.
      path: "files" or "file" if the value names files to read, "directory" if it names a directory to
        write, else "".
      form_pattern: replaces the pattern of `parse`.
      shown_default: describes the default in words, where it depends on other options.
      positional: whether its value, or with repeatable its values, come without the name.
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
    positional: bool = False

    @property
    def default_text(self) -> str:
        """The default as the help and the documentation show it."""
        if self.shown_default:
            return self.shown_default
        if self.flag:
            return "off"
        return "none" if self.default is None else str(self.default)

    @property
    def pattern(self) -> str:
        """Regular expression of the texts that a launch form may send.

        The parser accepts each of them, and the program refuses all others. The pattern is in the
        syntax that Python, Java and RE2 share, and must match the whole text.
        """
        return self.form_pattern or _PATTERNS[boolean if self.flag else self.parse]


# The options of a command, by the title under which its help and its launch form show them.
Table = Mapping[str, Sequence[Option]]


def boolean(text: str) -> bool:
    """Parses `true` and `false`."""
    return {"true": True, "false": False}[_matched(text, "true|false")]


def integer(text: str) -> int:
    """Parses `10`; refuses blanks, underscores and digits of other scripts, as launch forms do."""
    return int(_matched(text, f"-?{_INTEGER}"))


def number(text: str) -> float:
    """Parses `0.5` and `1e-7`; the checks of values refuse numbers that are not finite."""
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
    """Parses the name of one field, which may hold commas; each further option adds one."""
    return [text]


def addresses(text: str) -> list[str]:
    """Parses one path, or several full addresses separated by commas, since a form has one field.

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
_PATTERNS: Mapping[Callable[[str], Any], str] = {
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


def add_options(
    parser: argparse.ArgumentParser,
    title: str,
    options: Sequence[Option],
    *,
    bare_flags: bool = False,
) -> None:
    """Adds a titled group of options to a parser; options left out become None.

    Args:
      parser: the parser.
      title: the title of the group.
      options: the options.
      bare_flags: whether flags take no value, so that a positional argument may follow them.
    """
    group = parser.add_argument_group(title)
    for option in options:
        text = f"{option.help} (default: {option.default_text})".replace("%", "%%")
        flag = f"--{option.name}"
        if option.positional:
            nargs = "*" if option.repeatable else "?"
            group.add_argument(option.name, nargs=nargs, metavar=option.name.upper(), help=text)
        elif option.flag and bare_flags:
            group.add_argument(flag, action="store_true", default=None, help=text)
        elif option.flag:
            group.add_argument(
                flag, nargs="?", const=True, type=boolean, metavar="true|false", help=text
            )
        elif option.choices:
            group.add_argument(flag, choices=option.choices, help=text)
        else:
            action = "extend" if option.repeatable else "store"
            group.add_argument(flag, type=option.parse, action=action, metavar="X", help=text)


def add_table(parser: argparse.ArgumentParser, table: Table) -> None:
    """Adds all options of a table, each group under its name."""
    bare_flags = any(option.positional for option in options_of(table))
    for title, options in table.items():
        add_options(parser, title, options, bare_flags=bare_flags)


def add_program(parser: argparse.ArgumentParser, table: Table) -> None:
    """Adds all options of a program whose `output` is the directory of a release."""
    add_table(parser, table)
    parser.set_defaults(publishes=True)


def options_of(table: Table) -> tuple[Option, ...]:
    """Returns the options of all groups of a table, in order."""
    return tuple(option for options in table.values() for option in options)


def with_defaults(parsed: argparse.Namespace, options: Sequence[Option]) -> dict[str, Any]:
    """Returns the values of options by name; those left out have their defaults."""
    values = {}
    for option in options:
        value = getattr(parsed, option.name)
        if value is None:
            value = False if option.flag else option.default
        values[option.name] = value
    return values


_NOTE_LIMIT = "More than 200 characters, or more than one line, are refused."
_NOTE = r"[^\x00-\x1f\x7f]{1,200}"
_DELIMITER = r"[\x01-\x09\x0b\x0c\x0e-!#-\x7f]|\\t|comma|semicolon|tab|pipe|colon|space"
_NAME = "[A-Za-z_][A-Za-z0-9_]*"
_DOTTED = f"{_NAME}(\\.{_NAME})*"

# The options for reading come before and after the one for the tokenizer.
INPUT = (
    Option(
        name="input",
        parse=addresses,
        repeatable=True,
        path="files",
        help="Files to read, by path or glob, or a folder, local or on any Beam file system, e.g. "
        "gs://bucket/notes/*.jsonl.gz. To read several, give the option again, or give full "
        "addresses with commas between. A folder stands for the files in it, which must have one "
        "format; folders within it and names that begin with . or _ are left out. Gzip, bzip2 and "
        "zstd are decompressed by extension; archives such as .zip are refused. A run whose files "
        "are missing is refused before it starts.",
    ),
    Option(
        name="input_format",
        default="auto",
        choices=("auto", "jsonl", "json", "csv", "tsv", "parquet", "sequences"),
        help="Format of the input. auto chooses by the extension, which fits most files. jsonl has one "
        "object in each line. json is one array of objects, or one object in each line. sequences "
        "has one user in each line, whose tokens are separated by blanks. With a wrong format the "
        "fields are not found and the run is refused, or its records are rejected.",
    ),
    Option(
        name="user_field",
        default="user",
        form_pattern=_FIELD,
        help="Field that names the user of a record, e.g. user_id. All records with the same value are "
        "protected together, so the value must identify one person; otherwise the guarantee "
        "protects something else. A field that does not exist is refused.",
    ),
    Option(
        name="text_field",
        default="text",
        parse=field,
        repeatable=True,
        help="Field that holds the text of a record, e.g. body. To read several, give the option "
        "again: each text is then a document of its user, and a text that is null or missing is "
        "skipped. A field that does not exist is refused.",
    ),
    Option(
        name="encoding",
        form_pattern="[A-Za-z0-9][A-Za-z0-9_.-]*",
        shown_default="UTF-8; UTF-16 by byte order mark in CSV and TSV with a header, and in JSON",
        help="Encoding of files other than Parquet, by Python's name, e.g. latin-1, cp1252, utf-16-le "
        "or shift_jis. Records that cannot be decoded are rejected. An unknown name is refused, "
        "and so is an encoding in which one text may change how later lines are read, e.g. "
        "iso2022_jp. Without this option, a byte order mark of UTF-16 is recognized only where the "
        "file does not begin with a user's record.",
    ),
    Option(
        name="delimiter",
        form_pattern=_DELIMITER,
        shown_default="comma, TSV tab",
        help="Character between the fields of CSV or TSV files: one ASCII character, or one of the "
        "names comma, semicolon, tab, pipe, colon and space. A quote and a line end are refused, "
        "and so is this option for other formats.",
    ),
    Option(
        name="quoting",
        default="auto",
        choices=("auto", "quoted", "none"),
        help="Whether the fields of CSV or TSV files may be enclosed in quotes. auto allows quotes in "
        "CSV; in TSV it reads a quote as an ordinary character, and refuses a file whose fields "
        "are enclosed in quotes. quoted allows them in both formats, and none in neither. quoted "
        "and none are refused for other formats.",
    ),
    Option(
        name="columns",
        parse=names,
        help="Names of all columns of CSV or TSV files that have no header line, in order and "
        "separated by commas, e.g. user,text. Leave it out for files with a header line, which "
        "would otherwise be read as a record.",
    ),
)


def tokenizer_option(noun: str, **meanings: str) -> Option:
    """Returns the option for the tokenizer.

    Args:
      noun: name of its results in the plural.
      meanings: by name, the tokenizers that treat the text field differently for each command.
    """
    explained = "".join(f"{name} means that {meaning}. " for name, meaning in meanings.items())
    return Option(
        name="tokenizer",
        default="words",
        form_pattern=tokenizer_pattern(*meanings),
        help=f"How texts become {noun}. words fits most languages with blanks: it takes runs of "
        "letters, digits, their marks, _ and inner apostrophes, lower-cased. unicode_words fits text "
        f"without blanks, such as Chinese, Japanese or Thai, where most characters become {noun} by "
        "themselves; it uses Unicode's word boundaries and needs the extra unicode. whitespace "
        f"splits at blanks. {explained}package.module:function names a function over an Arrow string "
        "array, which must treat each text alone, or the guarantee is void. The default for sequences "
        "is whitespace. An unknown name is refused.",
    )


def tokenizer_pattern(*names: str) -> str:
    """Returns the regular expression of the tokenizers of all commands, and of those named here."""
    return "|".join(("words", "unicode_words", "whitespace", *names, f"{_DOTTED}:{_DOTTED}"))


RECORDS = (
    Option(
        name="max_record_bytes",
        default=16 * 2**20,
        parse=integer,
        help="Size in bytes above which a record is rejected, 1 to 1073741824. It bounds the memory "
        "that a worker needs at once. The default fits nearly every text.",
    ),
    Option(
        name="rejects",
        path="directory",
        help="Directory of the operator for a list of rejected records, e.g. gs://bucket/rejects. The "
        "list has file, position and reason of each, without its text. It is as private as the "
        "data, and refused inside a release. Without this option rejected records are only "
        "counted.",
    ),
    Option(
        name="max_rejected",
        default=0.05,
        parse=number,
        help="Largest share of the records that may be rejected, 0 to 1. Above it the run fails before "
        "publishing, and reports how many records were rejected for which reason. 1 publishes the "
        "release whatever was rejected. This check finds files that are read in a wrong format or "
        "encoding.",
    ),
    Option(
        name="strict",
        flag=True,
        help="Fail at the first rejected record instead of continuing without it. A failed run "
        "publishes nothing.",
    ),
)


def writing(parts: str, noun: str) -> tuple[Option, ...]:
    """Returns the options for writing a release.

    Args:
      parts: the beginning of its files' names.
      noun: name of its rows in the plural.
    """
    return (
        Option(
            name="output",
            path="directory",
            help="Directory of the release, e.g. gs://bucket/releases/2025-01. The run writes "
            f"{parts}-* files there and, last, ledger.json. Use a new directory for each run; one with "
            "files in it is refused.",
        ),
        Option(
            name="output_format",
            default="jsonl",
            choices=("jsonl", "tsv", "parquet"),
            help=f"Format of the files of {noun}. Choose the one that their reader needs; the release "
            "is the same.",
        ),
        Option(
            name="overwrite",
            flag=True,
            help="Replace a release that is already in the output directory. The budget of the first "
            "release stays spent: for anybody who has seen both releases, the budgets of the two runs "
            "add up.",
        ),
        Option(
            name="title",
            form_pattern=_NOTE,
            help="Name of the release, e.g. 'Support phrases, spring 2025'. It is published in the "
            f"ledger and changes nothing else. {_NOTE_LIMIT}",
        ),
        Option(
            name="contact",
            form_pattern=_NOTE,
            help="Address for questions of readers of the release, e.g. privacy@example.com. It is "
            f"published in the ledger and changes nothing else. {_NOTE_LIMIT}",
        ),
        Option(
            name="unit",
            form_pattern=_NOTE,
            help="Noun for one user, with its article, e.g. 'a customer'. The ledger states that the "
            "guarantee is for each of them, so each value of user_field must stand for one. It "
            f"changes nothing else. {_NOTE_LIMIT}",
        ),
    )


BUDGET = Option(
    name="budget",
    help="Folder with the budget of the population, e.g. budgets/customers, as made by `beam-dpne "
    "account --budget FOLDER --create`. A run that would exceed the cap together with the runs so far "
    "is refused before it starts. A run counts from its start; if it fails, it counts until you remove "
    "its note. Without this option no budget is kept.",
)

FAILURE_LOG = (
    Option(
        name="failure_log",
        help="File for the whole failure of a run, e.g. private/failure.log. It gets the tracebacks of "
        "the launcher and, where the engine hands them on, of its workers; stderr withholds them "
        "because they may quote texts. With this option the engine's logs hold errors of your "
        "tokenizer, too. The file is as private as the data, can be read by its owner alone, and is "
        "refused inside a release. A run that succeeds or is interrupted leaves no such file.",
    ),
    Option(
        name="failure_log_remote",
        flag=True,
        help="Allow failure_log in a bucket, e.g. gs://bucket/private/failure.log, where only the "
        "bucket's access rules protect it from others. Without this option such a path is "
        "refused.",
    ),
)

QUIET = Option(
    name="quiet",
    flag=True,
    help="Print no progress and no log lines on stderr; errors are still printed.",
)

RUNNING = (
    Option(
        name="partitions",
        shown_default="by the size of the input",
        parse=integer,
        help="Number of parts into which users are divided, at least 1. A worker holds one part at a "
        "time, so too few parts fill its memory. The number does not change the release.",
    ),
    Option(
        name="workers",
        shown_default=f"the cores that this process may use, at most {MOST_WORKERS}; 0 on an engine",
        parse=integer,
        help="Number of threads in which one worker reads, tokenizes and, with ngrams, does all "
        "lengths in one step. More threads than its cores bring nothing. With 0 ngrams is a graph of "
        "many steps, which an engine spreads over its workers; the embedded runner takes up to twice "
        "as long with it. On an engine, one step is faster than the graph if the corpus fits into the "
        "memory of one worker: see Engines. The number does not change the release.",
    ),
    Option(
        name="run_key_file",
        shown_default="a fresh key for each run",
        path="file",
        help="File with the run key, 64 hexadecimal digits, e.g. gs://bucket/secret/run.key, which the "
        "launcher and every worker can read. The same key and input give the same release under "
        "the same parameters, tokenizer and way of reading. If one of these or the mechanism "
        "version differs, the noise is independent. Keep the key as secret as the data. Using one "
        "key on two different inputs voids the guarantee, and so does using it with two of your "
        "tokenizers that have the same name and version.",
    ),
    Option(
        name="side_input_limit",
        default=64 * 2**20,
        parse=integer,
        help="Size in bytes above which a set of n-grams reaches the workers as a file. Such a set is "
        "released, or still undecided between two rounds. The file is in the run's temporary "
        "location; each worker fetches it once and maps it into memory. Smaller sets are sent to "
        "the workers directly, so a larger limit needs more memory on every worker. The temporary "
        "location is as private as the data. The limit does not change the release.",
    ),
    Option(
        name="harness_timeout",
        default=120,
        parse=integer,
        help="Seconds from the start of a job on an engine until its workers must have done a first "
        "step. A job whose workers cannot start is cancelled instead of hanging. Raise it where "
        "workers take long to start; 0 means no limit.",
    ),
    BUDGET,
    *FAILURE_LOG,
    QUIET,
)
