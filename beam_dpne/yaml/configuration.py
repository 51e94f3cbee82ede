"""The keys of the YAML transforms, which are options of the programs, from the programs' tables.

A key has the name, type, default and help of its option. `LEFT_OUT` has the options that are no keys.
"""

import argparse
import contextlib
import dataclasses
import difflib
import inspect
import itertools
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Optional

from beam_dpne.cli import options_by_command as tables
from beam_dpne.cli.options import (
    INPUT,
    RECORDS,
    Option,
    Table,
    addresses,
    field,
    integer,
    integers,
    names,
    number,
    numbers,
    writing,
)
from beam_dpne.documents.row_types import KINDS
from beam_dpne.errors import UsageError

PARTITIONS = 8

_READER = "ReadDocuments, which reads files, has it"
_LAUNCHER = "the launcher of the pipeline does this"
# Options of the programs that no YAML transform has, each with the reason.
LEFT_OUT: Mapping[str, str] = {
    "input": "the rows are the input of the transform",
    "input_format": _READER,
    "encoding": _READER,
    "delimiter": _READER,
    "quoting": _READER,
    "columns": _READER,
    "max_record_bytes": _READER,
    "rejects": _READER,
    "max_rejected": _READER,
    "strict": _READER,
    "side_input_limit": "sets of n-grams stay inside the pipeline",
    "workers": "the runner of the pipeline spreads the steps over its workers",
    "harness_timeout": _LAUNCHER,
    "budget": _LAUNCHER,
    "failure_log": _LAUNCHER,
    "failure_log_remote": _LAUNCHER,
    "quiet": _LAUNCHER,
    "arpa": "a language model is written after a run, which the pipeline describes only",
}
# Phrases of help texts that hold for a command line, and the phrases that hold for YAML.
REWORDED: Mapping[str, str] = {
    "give the option again: each text": "give a list: each text",
    "To read several, give the option again, or give full addresses with commas between.": "It may be "
    "a list.",
    " sequences has one user in each line, whose tokens are separated by blanks.": "",
    "in order and separated by commas, e.g. user,text.": "in order, e.g. [user, text].",
    "Above it the run fails before publishing, and reports": "Above it the run fails before any row is "
    "passed on, and reports",
    "1 publishes the release whatever was rejected.": "With 1 nothing waits, and rows are passed on "
    "while files are still read.",
    " The default for sequences is whitespace.": "",
    "or one for each length, e.g. 10,20,20.": "or a list with one for each length, e.g. [10, 20, 20].",
    "the private data; one of the input files is refused.": "the private data.",
    "Using one key on two different inputs voids": "Rows that pass another filter are another input. "
    "Using one key on two different inputs voids",
}
# Advice in errors that holds for Python, and the advice that holds for YAML.
ADVICE: Mapping[str, str] = {
    KINDS: "rows with a schema",
    "Read the files by name, with ReadDocuments of beam_dpne.reading (in Beam YAML, too), "
    "ReadFromParquetBatched, or ReadFromParquet without as_rows, which gives dicts.": "Read the files "
    "by name, with ReadDocuments.",
    "ReadFromParquet(as_rows=True)": "ReadFromParquet",
    "for example with beam.Map.": "for example with MapToFields.",
    "convert the users to int before.": "convert the users with MapToFields before.",
    "Convert it before.": "Convert it with MapToFields before.",
    "apply beam.WindowInto(GlobalWindows()) before": "give windowing: {type: global}",
    "Apply beam.WindowInto(GlobalWindows()) before": "Give windowing: {type: global}",
    "add beam_dpne.engines.FLINK_OPTIONS, which are": "add",
    "to the pipeline's options.": "to the command line, or without dashes to options: in the file.",
}
_REQUIRED = "It is required."
_TYPES: Mapping[Callable[[str], Any], Any] = {
    addresses: Sequence[str],
    names: Sequence[str],
    str: str,
    integer: int,
    number: float,
    integers: Sequence[int],
    numbers: Sequence[float],
    field: Sequence[str],
}
_WANTED: Mapping[Callable[[str], Any], str] = {
    addresses: "a path, or a list of paths",
    names: "a list of names, e.g. [user, text]",
    str: "text, in quotes if YAML reads it as something else",
    integer: "an integer, e.g. 10",
    number: "a number, e.g. 0.5",
    integers: "an integer or a list of integers, e.g. [10, 20]",
    numbers: "a number or a list of numbers, e.g. [0.5, 0.5]",
    field: "the name of a field, or a list of names",
}
_LISTS = (integers, numbers, field, addresses, names)
_NUMBERS = (integer, number, integers, numbers)


@dataclasses.dataclass(frozen=True)
class Keys:
    """The keys of the configuration of one YAML transform.

    Attributes:
      transform: name of the transform.
      options: its keys, as options.
      required: names of the keys that must be given.
    """

    transform: str
    options: Sequence[Option]
    required: Sequence[str]

    @property
    def signature(self) -> inspect.Signature:
        """Keyword parameters for the keys, by which Beam builds the schema of the configuration."""
        return inspect.Signature([self._parameter(option) for option in self.options])

    @property
    def arguments(self) -> str:
        """The section `Args` of a docstring, which Beam shows as the documentation of the keys."""
        lines = [f"  {option.name}: {self._help(option)}" for option in self.options]
        return "\n".join(["Args:", *lines])

    def parse(self, configuration: Mapping[str, Any]) -> argparse.Namespace:
        """Returns the values of all options by name, as the parser of the program returns them.

        Keys that are left out, or null, have the value None.

        Raises:
          UsageError: a key is unknown, or its value has a wrong type.
        """
        known = {option.name: option for option in self.options}
        for name in configuration:
            if name not in known:
                raise UsageError(self._unknown(str(name)))
        values = {
            option.name: _parsed(option, configuration.get(option.name))
            for option in known.values()
        }
        return argparse.Namespace(**values)

    def _help(self, option: Option) -> str:
        text = worded(option.help).replace(f" {_REQUIRED}", "")
        if option.name in self.required:
            replaced = any(other.name == "plan" for other in self.options)
            return f"{text} It is required{', unless plan is given' if replaced else ''}."
        if option.default_text == "none":
            return text
        return f"{text} The default is {'false' if option.flag else option.default_text}."

    def _parameter(self, option: Option) -> inspect.Parameter:
        kind = inspect.Parameter.KEYWORD_ONLY
        hint = bool if option.flag else _TYPES[option.parse]
        if option.name in self.required:
            return inspect.Parameter(option.name, kind, annotation=hint)
        return inspect.Parameter(option.name, kind, annotation=Optional[hint], default=None)  # noqa: UP045

    def _unknown(self, name: str) -> str:
        """Returns the error for a key that does not exist."""
        known = [option.name for option in self.options]
        if name in LEFT_OUT:
            return (
                f"{self.transform} has no key {name}, which is an option of the program only: "
                f"{LEFT_OUT[name]}."
            )
        if name in {option.name for option in RELEASE.options}:
            return f"{self.transform} has no key {name}, which is a key of WriteRelease."
        near = next((each for each in known if _letters(each) == _letters(name)), None)
        # Names such as users, user_id and textColumn mean the field.
        if (field := re.match("(user|text)s?(?![a-z])", name)) and f"{field[1]}_field" in known:
            near = f"{field[1]}_field"
        near = near or next(iter(difflib.get_close_matches(name, known, n=1)), None)
        question = f" Did you mean {near}?" if near else ""
        return f"{self.transform} has no key {name}.{question} Its keys are {', '.join(known)}."


def _letters(name: str) -> str:
    return re.sub(r"[\W_]", "", name).lower()


def worded(text: str) -> str:
    """Returns a help text of a program with the words for YAML."""
    for phrase, replacement in REWORDED.items():
        text = text.replace(phrase, replacement)
    return text


@contextlib.contextmanager
def in_words_of_yaml() -> Iterator[None]:
    """Replaces errors that name options as `--name`, or give advice for Python, by errors for YAML."""
    try:
        yield
    except (TypeError, ValueError) as error:
        message = str(error)
        for phrase, replacement in ADVICE.items():
            message = message.replace(phrase, replacement)
        message = re.sub(r"(?<![\w-])--(?=[a-z_]+(?!\w|=))", "", message)
        if message == str(error):
            raise
        raise UsageError(message) from None


def _parsed(option: Option, value: Any) -> Any:
    """Returns a value of YAML as the program's parser returns it, or None for null.

    Numbers come as numbers or, from a template or without a point (1e-6), as text.

    Raises:
      UsageError: the program's parser would refuse it.
    """
    if value is None:
        return None
    if option.flag:
        if isinstance(value, bool) or value in ("true", "false"):
            return value in (True, "true")
        raise UsageError(f"{option.name} must be true or false, got {option.name}={value!r}.")
    parts = value if isinstance(value, list | tuple) and option.parse in _LISTS else [value]
    try:
        if not parts:
            raise ValueError("the list is empty")
        texts = [_text(part, option.parse in _NUMBERS) for part in parts]
        if option.repeatable or (option.parse is names and isinstance(value, list | tuple)):
            found = texts
        else:
            found = option.parse(",".join(texts))
    except ValueError:
        raise UsageError(
            f"{option.name} must be {_WANTED[option.parse]}, got {option.name}={value!r}."
        ) from None
    if option.choices and found not in option.choices:
        near = difflib.get_close_matches(str(found), option.choices, n=1)
        question = f" Did you mean {near[0]}?" if near else ""
        raise UsageError(
            f"{option.name} must be one of {', '.join(option.choices)}, got "
            f"{option.name}={found!r}.{question}"
        )
    return found


def _text(value: Any, is_number: bool) -> str:
    """Returns a value of YAML as it stands on a command line.

    Raises:
      ValueError: it has another type.
    """
    if isinstance(value, str):
        return value
    if is_number and isinstance(value, int | float) and not isinstance(value, bool):
        return repr(value)
    raise ValueError("the value has the wrong type")


def _for_rows(option: Option) -> Option:
    """Returns an option of a program as a transform of rows has it."""
    if option.name == "text_field":
        skipped = "a text that is null or missing is skipped"
        assert skipped in option.help
        fails = "a text that is null is skipped, and a row without any text fails the run"
        return dataclasses.replace(option, help=option.help.replace(skipped, fails))
    if option.name == "partitions":
        return dataclasses.replace(option, default=PARTITIONS, shown_default="")
    return option


def _private(transform: str, table: Table, *required: str) -> Keys:
    """Returns the keys of a private transform, which are all options but those for writing."""
    groups = [table[name] for name in ("privacy", "reading", "running")]
    options = [_for_rows(option) for option in itertools.chain(*groups)]
    offered = [option for option in options if option.name not in LEFT_OUT]
    names = ("epsilon", "delta", *required)
    return Keys(transform, sorted(offered, key=lambda option: option.name not in names), names)


_FIELDS = Option(
    name="fields",
    parse=field,
    repeatable=True,
    help="Further fields of the rows, for steps between reading and the private transform, e.g. "
    "country. A value that is null or missing is null, and every other value is text: numbers, times "
    "and truth values of Parquet files as Arrow writes them, and lists, objects, numbers and truth "
    "values of JSON as JSON. A field that does not exist is refused. Without this key the rows have "
    "the user and the texts only.",
)
_TEXT_IS_TOKENS = Option(
    name="text_is_tokens",
    flag=True,
    help="Whether each text is a list of tokens, in JSON or Parquet. Then give the private transform "
    "the tokenizer tokens. Texts of the other kind are rejected, and columns of it are refused.",
)


def _for_reading(option: Option) -> Option:
    """Returns an option of the programs as the reader of rows has it."""
    if option.name != "input_format":
        return option
    kinds = [kind for kind in option.choices if kind != "sequences"]
    return dataclasses.replace(option, choices=kinds)


READ = Keys(
    "ReadDocuments",
    [*map(_for_reading, INPUT), _FIELDS, _TEXT_IS_TOKENS, *RECORDS],
    ("input",),
)
NGRAMS = _private("PrivateNgrams", tables.NGRAMS)
SET_UNION = _private("PrivateSetUnion", tables.SET_UNION)
BAYESIAN = _private("BayesianCounts", tables.BAYESIAN, "public")
RELEASE = Keys(
    "WriteRelease", writing("ngrams-*, items-* or probabilities", "the rows"), ("output",)
)
ALL = (READ, NGRAMS, SET_UNION, BAYESIAN, RELEASE)
