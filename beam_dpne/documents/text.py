"""The text of n-grams and items: tokens are escaped, so that a line of a file holds each of them."""

import re
from collections.abc import Sequence

SEPARATOR = " "
EMPTY_TOKEN = "\\e"
_ESCAPES = {"\\": "\\\\", " ": "\\s", "\t": "\\t", "\n": "\\n", "\r": "\\r"}
_UNESCAPES = {escape[1]: plain for plain, escape in _ESCAPES.items()} | {"e": ""}

_IN_TOKEN = re.compile(r"[\\ \t\n\r]")
_IN_ITEM = re.compile(r"[\\\t\n\r]")


def join_tokens(tokens: Sequence[str]) -> str:
    r"""Returns the text of an n-gram: its escaped tokens, joined by one blank.

    In a token, a backslash is written as `\\`, a blank as `\s`, a tab as `\t`, a line feed as `\n`,
    and a carriage return as `\r`. The empty token is written as `\e`. Inverse of `split_ngram`.

    >>> join_tokens(["New York", "", "a\\b"])
    'New\\sYork \\e a\\\\b'
    """
    return SEPARATOR.join(escape_token(token) for token in tokens)


def split_ngram(ngram: str) -> tuple[str, ...]:
    r"""Returns the tokens of an n-gram; inverse of `join_tokens`.

    Raises:
      ValueError: on an escape that `join_tokens` does not write.

    >>> split_ngram("New\\sYork \\e a\\\\b")
    ('New York', '', 'a\\b')
    """
    return tuple(_unescape_token(part) for part in ngram.split(SEPARATOR))


def escape_token(token: str) -> str:
    """Returns one token as `join_tokens` writes it."""
    return _escaped(token, _IN_TOKEN)


def escape_item(item: str) -> str:
    r"""Returns an item of a set union as one line without tabs, the form that tsv files have.

    It is escaped like a token of an n-gram, except that a blank stays one. Inverse of `unescape_item`.

    >>> escape_item("New York\t\\")
    'New York\\t\\\\'
    """
    return _escaped(item, _IN_ITEM)


def unescape_item(line: str) -> str:
    r"""Returns an item from its line; inverse of `escape_item`.

    Raises:
      ValueError: on an unknown escape.

    >>> unescape_item("New York\\t\\\\") == "New York\t\\"
    True
    """
    return _unescape_token(line)


def _escaped(text: str, special: re.Pattern[str]) -> str:
    return special.sub(lambda match: _ESCAPES[match.group()], text) or EMPTY_TOKEN


def _unescape_token(part: str) -> str:
    if not part:
        raise ValueError("An n-gram has an empty token that is not written as \\e.")

    def plain(match: re.Match[str]) -> str:
        letter = match.group(1)
        if letter not in _UNESCAPES or (letter == "e" and part != EMPTY_TOKEN):
            raise ValueError("An n-gram has a backslash that starts no known escape.")
        return _UNESCAPES[letter]

    return re.sub(r"\\(.?)", plain, part, flags=re.DOTALL)
