"""Messages in the words of calls: keywords for parameters, and calls for commands of a shell."""

import functools
import json
import re
import shlex

from beam_dpne.api.keywords import CALLS, SHORTER
from beam_dpne.jobs.made import parameters_in
from beam_dpne.validation import PATTERNS, Parameter

# A word of a command line, in quotes if a shell needs them.
_WORD = r"""(?!--)(?:'[^']*'|"[^"]*"|[^\s'"])+"""
# What has other words in Python. Names in quotes and within paths are the user's own.
_NAMED = re.compile(
    rf"""
    # a command with what it is given
    (?<![/\w'"])beam-dpne\ (?P<command>\w+)
    (?P<given>(?:\ {_WORD}){{0,2}}?(?:\ --\w+(?:\ {_WORD})?)+(?<![.:;,]))?
    # what `account` calls releases
    | (?P<releases>`ledgers`)
    # a parameter with the value that it should have, and not one that was given
    | (?<![Gg]ot\ )`(?P<parameter>\w+)=(?P<text>[^`]+)`
    # the name of an option with a word that may be its value, or one of the longer names
    | (?<![/\w'".-])(?:--(?=[a-z_])|(?=(?:{"|".join(SHORTER)})\b))(?P<name>\w+)(?:\ (?P<word>\w+))?
    # what a switch must be
    | (?P<switch>\btrue\ or\ false\b)
    """,
    re.VERBOSE,
)


def with_keywords(text: str) -> str:
    r"""Returns a message with the keywords and calls of Python for parameters and commands of a shell.

    >>> with_keywords("user_field must be given: text for --like, or --tokenizer item.")
    'user must be given: text for like, or tokenizer="item".'
    >>> with_keywords("--rejects DIR lists them; got `user_field='x'`. Set `user_field=author`.")
    'rejects="DIR" lists them; got `user=\'x\'`. Set `user="author"`.'
    >>> with_keywords("beam-dpne account --budget b --add RELEASE.")
    'beam_dpne.account("RELEASE", budget="b", add=True).'
    >>> with_keywords("Make one: beam-dpne series create s --epsilon E.")
    'Make one: beam-dpne series create s --epsilon E (in a shell, since no call does it).'
    """
    return _NAMED.sub(_keyword_of, text)


def _keyword_of(found: re.Match[str]) -> str:
    if found["command"]:
        return _call_of(found)
    if found["parameter"]:
        name = found["parameter"]
        return f"`{SHORTER.get(name, name)}={_literal(found['text'])}`"
    if found["releases"]:
        return "releases"
    if found["switch"]:
        return "True or False"
    name, word = found["name"], found["word"]
    keyword = SHORTER.get(name, name)
    if found[0].startswith("--"):
        known = _parameters().get(name, Parameter())
        if word and (word.isupper() or word in (*known.choices, *known.names)):
            return f'{keyword}="{word}"'
        if known.kind is bool:
            keyword = f"{keyword}=True"
    return keyword if word is None else f"{keyword} {with_keywords(word)}"


def _call_of(found: re.Match[str]) -> str:
    """Returns the call that does what a command does with its options, or the command if none does."""
    call = CALLS.get(found["command"])
    given = found["given"]
    if call is None:
        return f"{found[0]} (in a shell, since no call does it)" if given else found[0]
    if given is None:
        return f"beam_dpne.{call.name}"
    known = _parameters()
    positional: list[str] = []
    named: list[str] = []
    try:
        words = iter(shlex.split(given))
    except ValueError:
        # What a user has named looks like a command.
        return found[0]
    for word in words:
        name = word.removeprefix("--")
        if name == word:
            positional.append(_quoted(word))
            continue
        kind = known[name].kind if name in known else str
        value = "True" if kind is bool else next(words, "VALUE")
        if kind is str:
            value = _quoted(value)
        named.append(f"{SHORTER.get(name, name)}={value}")
    return f"beam_dpne.{call.name}({', '.join([*positional, *named])})"


def _literal(text: str) -> str:
    """Returns the value in a message as Python has it."""
    if text in ("true", "false"):
        return text.capitalize()
    if re.match(r"""['"\[]""", text) or re.fullmatch(PATTERNS[float], text):
        return text
    if "," in text:
        return f"[{', '.join(map(_literal, text.split(',')))}]"
    return _quoted(text)


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


@functools.cache
def _parameters() -> dict[str, Parameter]:
    """Returns the parameters of all calls by the names that they have in messages."""
    groups = (call.load_groups() for call in CALLS.values())
    return {name: each for group in groups for name, each in parameters_in(group).items()}
