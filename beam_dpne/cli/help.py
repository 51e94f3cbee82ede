"""Help on a terminal, from the definitions of commands and parameters, and messages in its words.

`--help` shows on two screens an example, the parameters that most runs need with their first sentence,
and one line about each other option. `--help-all` has all that is known of every parameter.
"""

import re
import shutil
import textwrap
from collections.abc import Iterable, Mapping
from typing import Any

from beam_dpne.validation import Parameter, Parameters, parameters_of

# Characters of the column with options, and of the longest line.
_COLUMN = 26
_WIDEST = 100
_CLAUSE = 79 - _COLUMN
# A name of a parameter in a message, alone or with its value.
_NAMED = re.compile(r"`(\w+)(=[^`]*)?`")


def help_of(command: Any, groups: Mapping[str, Iterable[type[Parameters]]], *, whole: bool) -> str:
    """Returns the help of a `commands.Command`, with every parameter and its whole text if wanted."""
    positional = command.positional
    titles = {
        title: [each for kind in kinds for each in parameters_of(kind)]
        for title, kinds in groups.items()
    }
    every = [each for kinds in titles.values() for each in kinds]
    first = [each for each in every if each.required or each.essential]
    called = [each for each in every if each.required or each.name == positional]
    called.sort(key=lambda each: each.name != positional)
    words = [
        _option(each, positional) if each.required else f"[{_option(each, positional)}]"
        for each in called
    ]
    lines = [*_wrapped(f"usage: beam-dpne {command.name} {' '.join(words)} …", "  "), ""]
    lines += [*_wrapped(command.description), "", *_as_command(command.example), ""]
    if first and not whole:
        for each in first:
            lines += _row(_option(each, positional), _sentence(each))
        lines.append("")
    for title, parameters in titles.items():
        shown = [each for each in parameters if whole or (each.in_short_help and each not in first)]
        if shown:
            lines.append(f"{title}:")
        for each in shown:
            lines += _row(_option(each, positional), _all_of(each) if whole else _clause(each))
    if not whole:
        more = sum(not each.in_short_help for each in every)
        lines += ["", *_wrapped(_about_whole_help(more))]
    return re.sub(r"\n{3,}", "\n\n", "\n".join(lines))


def _about_whole_help(more: int) -> str:
    """Returns the sentence about `--help-all`, which shows so many more options."""
    if not more:
        return "--help-all shows whole texts."
    noun = "option" if more == 1 else "options"
    return f"--help-all shows whole texts, and {more} more {noun}."


def overview(commands: Iterable[Any]) -> str:
    """Returns the help of the program, which lists its commands."""
    lines = ["usage: beam-dpne COMMAND [options]", ""]
    lines += _wrapped("Differentially private n-grams and sets of items from private text.")
    lines += ["", *_as_command(next(iter(commands)).example), "", "commands:"]
    for command in commands:
        lines += _row(command.name, command.description.partition(". ")[0].rstrip("."))
    lines += ["", *_wrapped("beam-dpne COMMAND --help shows a command, and --version the version.")]
    return "\n".join(lines)


def as_options(
    message: str,
    parameters: Mapping[str, Parameter],
    positional: str,
    in_file: Mapping[str, str],
) -> str:
    """Returns a message, which has parameters in backticks, with the options of a command instead.

    Names that are no parameters of the command stand there as they are.

    Args:
      message: The message.
      parameters: The parameters of the command by name.
      positional: The name of the one whose value is given without an option.
      in_file: The names of those that a file gives, each with the path of the file.

    >>> told = "`delta` must be small, got `delta=1`."
    >>> as_options(told, {"delta": Parameter()}, "", {})
    '--delta must be small, got --delta=1.'
    >>> as_options(told, {"delta": Parameter()}, "", {"delta": "a.json"})
    'delta (in a.json) must be small, got delta=1.'
    """

    def as_option(found: re.Match[str]) -> str:
        name, value = found[1], found[2] or ""
        if name in in_file and not value:
            return f"{name} (in {in_file[name]})"
        if name in in_file or name not in parameters:
            return f"{name}{value}"
        return f"{name.upper()}{value}" if name == positional else f"--{name}{value}"

    return _NAMED.sub(as_option, message)


def _option(each: Parameter, positional: str) -> str:
    """Returns an option with the word for its value."""
    if each.name == positional:
        name = each.name.upper()
        return f"{name} …" if each.several else name
    return f"--{each.name} {each.shown_value}".rstrip()


def _sentence(each: Parameter) -> str:
    text = re.split(r"(?<=\.) (?=[A-ZΑ-Ω])", each.help)[0]
    return f"{text} (required)" if each.required else f"{text}{_short_default(each)}"


def _clause(each: Parameter) -> str:
    """Returns the first clause of a text, and of a long one what stands before its last comma."""
    text = re.split(r"[:;] |\. (?=[A-ZΑ-Ω])", each.help)[0].rstrip(".")
    default = _short_default(each)
    while len(text + default) > _CLAUSE and ", " in text:
        text = text.rpartition(", ")[0]
    return f"{text}{default}"


def _short_default(each: Parameter) -> str:
    text = each.shown_default
    return "" if text in ("none", "false") or each.default_text else f" (default: {text})"


def _all_of(each: Parameter) -> str:
    text = each.help
    if each.choices:
        text = f"{text} One of: {', '.join(each.choices)}."
    if each.required:
        return f"{text} (required)"
    return text if each.shown_default == "none" else f"{text} (default: {each.shown_default})"


def _row(name: str, text: str) -> list[str]:
    indent = " " * _COLUMN
    if len(name) + 4 > _COLUMN:
        return [f"  {name}", *_wrapped(f"{indent}{text}", indent)]
    return _wrapped(f"  {name:{_COLUMN - 4}}  {text}", indent)


def _as_command(example: str) -> list[str]:
    """Returns a command whose lines end with a backslash, between options."""
    # An option and its value stay together.
    words = re.sub(r" (--\w+) (?!--)", r" \1\0", example)
    lines = " \\\n".join(_wrapped(f"  {words}", "    ", 3))
    return lines.replace("\0", " ").split("\n")


def _wrapped(text: str, indent: str = "", beside: int = 0) -> list[str]:
    width = min(_WIDEST, shutil.get_terminal_size().columns) - 1 - beside
    wrapper = textwrap.TextWrapper(width, subsequent_indent=indent, break_long_words=False)
    wrapper.break_on_hyphens = False
    return wrapper.wrap(text)
