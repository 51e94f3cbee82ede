"""Public texts dealt to made-up users; how much text a user holds decides which method is ahead."""

import gzip
import hashlib
import json
import os
import pathlib
from collections.abc import Iterable, Iterator

from beam_dpne.errors import InputError

SHORT, LONG = "dealt_short", "dealt_long"
WORDS_OF_LONG = 2000


def texts_of(path: str) -> list[str]:
    """Returns the texts of a file: the field `text` of JSON lines (.jsonl), else whole lines.

    Raises:
      InputError: if a line of JSON has no text.
    """
    is_json = ".jsonl" in os.path.basename(path)
    with (gzip.open if path.endswith(".gz") else open)(path, "rt", encoding="utf-8") as lines:
        stripped = [line.rstrip("\n") for line in lines]
    return (
        [_text_of(line, number) for number, line in enumerate(stripped, 1)] if is_json else stripped
    )


def _text_of(line: str, number: int) -> str:
    try:
        text = json.loads(line)["text"]
    except (ValueError, KeyError, TypeError):
        text = None
    if not isinstance(text, str):
        raise InputError(f"Line {number} must be JSON with a string in the field text.")
    return text


def deal(texts: Iterable[str], words: int) -> Iterator[tuple[str, str]]:
    """Yields pairs of a made-up user and a text, in an order that depends on the texts alone.

    Args:
      texts: the texts.
      words: how many blank-separated words a user has before the next user begins; 0 gives each text
        to a user of its own.

    >>> list(deal(["a b", "c d", "e f"], 0)) == list(deal(["e f", "a b", "c d"], 0))
    True
    >>> [user for user, _ in deal(["a b", "c d", "e f"], 3)]
    ['user 0', 'user 0', 'user 1']
    """
    ordered = sorted(texts, key=lambda text: hashlib.sha256(text.encode()).digest())
    user = held = 0
    for text in ordered:
        yield f"user {user}", text
        held += len(text.split())
        if held >= words:
            user, held = user + 1, 0


def write_dealt(path: str, words: int, file: pathlib.Path) -> str:
    """Writes the texts of a file as JSON lines of made-up users, and returns the path."""
    with open(file, "w", encoding="utf-8") as lines:
        for user, text in deal(texts_of(path), words):
            lines.write(json.dumps({"user": user, "text": text}, ensure_ascii=False) + "\n")
    return str(file)
