"""Lists of records within one object of JSON: their paths, and those that a text begins with."""

import contextlib
import re
from typing import NamedTuple

import ijson

from beam_dpne.reading.files import TextFile

_LOOKED_AT = 2**20
_PIECE = 2**12
_MEMBER = "item"
# The parser dies of integers that are longer than Python reads, and paths grow with each level.
_LONG_NUMBER = re.compile(rb"[0-9]{400,}")
_MOST_LEVELS = 100


def prefix_of(records: str | None) -> str:
    """Returns what ijson calls the members of the list at a path; None is an array of records.

    >>> prefix_of(None), prefix_of("statuses"), prefix_of("chats.list[].messages")
    ('item', 'statuses.item', 'chats.list.item.messages.item')
    """
    path = (records or "").removesuffix("[]").replace("[]", f".{_MEMBER}")
    return f"{path}.{_MEMBER}".removeprefix(".").removeprefix(".")


def path_of(prefix: str) -> str:
    """Returns the path of the list whose members ijson calls so.

    >>> path_of("statuses.item"), path_of("chats.list.item.messages.item"), path_of("item")
    ('statuses', 'chats.list[].messages', '[]')
    """
    whole = f".{prefix}".replace(f".{_MEMBER}", "[]").removeprefix(".")
    return whole.removesuffix("[]") or "[]"


class Beginning(NamedTuple):
    """What a text of JSON begins with.

    Attributes:
      lists: Paths of lists of objects, as secret as the data.
      is_one: Whether no second value was met after the first one.
    """

    lists: list[str]
    is_one: bool


def beginning_of(text: TextFile) -> Beginning:
    """Returns what is known of JSON from the beginning of its text."""
    lists = dict[str, None]()
    values = 0
    events = ijson.sendable_list()
    parser = ijson.parse_coro(events, multiple_values=True)
    left = _LOOKED_AT
    with contextlib.suppress(ijson.JSONError, RecursionError, UnicodeEncodeError):
        while left > 0 and (piece := text.read(_PIECE)):
            left -= len(piece)
            parser.send(_LONG_NUMBER.sub(b"1", piece.encode()))
            for prefix, event, _ in events:
                if prefix.count(".") > _MOST_LEVELS:
                    left = 0
                values += prefix == "" and event.startswith("start_")
                if event == "start_map" and prefix.endswith(_MEMBER):
                    lists[path_of(prefix)] = None
            del events[:]
    return Beginning([path for path in lists if path != "[]"], values < 2)
