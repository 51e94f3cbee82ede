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
      InputError: if there is no such file, it has no text, or a line of JSON has none.
    """
    if not os.path.isfile(path):
        raise InputError(f"public_text must name an existing file, got {path}.")
    is_json = ".jsonl" in os.path.basename(path)
    with (gzip.open if path.endswith(".gz") else open)(path, "rt", encoding="utf-8") as lines:
        texts = [line.rstrip("\n") for line in lines]
    if is_json:
        texts = [_text_of(line, number, path) for number, line in enumerate(texts, 1)]
    if not any(text.strip() for text in texts):
        raise InputError(f"public_text must have texts, got {path}, which has none.")
    return texts


def _text_of(line: str, number: int, path: str) -> str:
    try:
        text = json.loads(line)["text"]
    except (ValueError, KeyError, TypeError):
        text = None
    if not isinstance(text, str):
        raise InputError(
            f"Each line of public_text must be JSON with a string in the field text, got another in "
            f"line {number} of {path}."
        )
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
