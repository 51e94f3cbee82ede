"""Where strings, brackets and lists are in a text of JSON that comes in pieces.

Nothing is decoded here but the names of fields around a list, so that a record is cut out whatever it
holds: one that cannot be decoded is a fault of its own.
"""

import json

import numpy as np

from beam_dpne.reading.files import BrokenText

BLANKS = b" \t\r\n"
BROKEN = (
    "is not a well-formed JSON array. The file is truncated, a quote or a bracket is not closed, or "
    "text follows the array."
)
OPENED = "[]"
# The bit by which braces differ from square brackets.
_BRACKET_BIT = 0x20
_OPENING = b"{["
_CLOSING = b"}]"
_SIGNS = np.frombuffer(b"{}[],:", np.uint8)


class Structure:
    """What a text has had so far, up to the end of a piece.

    Attributes:
      depth: Number of brackets that are open.
      in_string: Whether a string is.
    """

    def __init__(self) -> None:
        self.depth = 0
        self.in_string = False
        self._is_escaped = False

    def of(self, raw: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Takes the next piece, (n,) bytes.

        Returns:
          (n,) bool, which bytes are in no string; (n,) int32, how many brackets are open after each.
        """
        outside = ~self._strings(raw)
        bracket = raw | _BRACKET_BIT
        change = (bracket == ord("{")).view(np.int8) - (bracket == ord("}")).view(np.int8)
        depth = self.depth + np.cumsum(change * outside, dtype=np.int32)
        self.depth = int(depth[-1])
        return outside, depth

    def _strings(self, raw: np.ndarray) -> np.ndarray:
        """Returns which bytes are in strings; of the quotes around one the first is: (n,) bool."""
        is_quote = raw == ord('"')
        is_backslash = raw == ord("\\")
        if self._is_escaped or is_backslash.any():
            is_quote &= ~self._escaped(is_backslash)
        within = (np.cumsum(is_quote) + self.in_string) % 2 == 1
        self.in_string = bool(within[-1])
        return within

    def _escaped(self, is_backslash: np.ndarray) -> np.ndarray:
        """Returns which bytes follow an odd number of backslashes: (n,) bool."""
        places = np.arange(is_backslash.size)
        # (n,) the last place before each one that has no backslash; −2 stands for an escape before.
        begin = -2 if self._is_escaped else -1
        last = np.maximum.accumulate(np.where(is_backslash, begin, places))
        before = np.append(begin, last[:-1])
        self._is_escaped = bool((places[-1] - last[-1]) % 2)
        return (places - 1 - before) % 2 == 1


class ListCutter(Structure):
    """Cuts the members of a list, which is within objects, out of a text.

    Several values may follow each other, each with such a list. Where a field within these objects is
    no part of the way to the list, only its quotes and brackets count.
    """

    def __init__(self, path: str, limit: int) -> None:
        """Begins before the text.

        Args:
          path: Path of the list, as the option `records` has it.
          limit: Bytes above which only the beginning of a member is held, which is then too long.
        """
        super().__init__()
        self._path = path.removesuffix(OPENED)
        # A name may have dots of its own, so that the list may be less deep than this.
        self._most_levels = 1 + self._path.count(".") + self._path.count(OPENED) + 1
        self._most = limit
        # The paths of the containers that are open, and the bracket that closes each.
        self._open: list[tuple[str, int]] = []
        # How deep the list is that is wanted, while it is open.
        self._list_level = 0
        # What was read since the last bracket, comma or colon, if it is a name or a member of the list.
        self._begun = bytearray()
        self._name = ""
        self._is_value = False
        # Whether a bracket was the last sign, and closed a value.
        self._is_closed = False
        self._is_further = False
        self._has_begun = False
        self._has_list = False

    @property
    def is_absent(self) -> bool:
        """Whether the text so far has something, and not the list."""
        return self._has_begun and not self._has_list

    def cut(self, data: bytes) -> list[bytes]:
        """Takes the next piece of the text, and returns the members that end in it.

        Raises:
          BrokenText: The text is malformed around the list.
        """
        raw = np.frombuffer(data, np.uint8)
        outside, depth = self.of(raw)
        # (n,) the number of containers that are open around or by each bracket, comma and colon.
        level = depth + np.isin(raw, np.frombuffer(_CLOSING, np.uint8))
        found = list[bytes]()
        begin = 0
        is_sign = outside & np.isin(raw, _SIGNS) & (level <= self._most_levels)
        for place in np.flatnonzero(is_sign).tolist():
            is_deeper = level[place] > self._list_level or data[place] == ord(":")
            if self._list_level and is_deeper:
                continue
            self._add(data[begin:place])
            begin = place + 1
            self._take(data[place], found)
        self._add(data[begin:])
        return found

    def close(self) -> None:
        """Ends the text.

        Raises:
          BrokenText: Something is open.
        """
        if self._open or self.in_string or self._begun:
            raise BrokenText(BROKEN)

    def _add(self, data: bytes) -> None:
        """Adds to what was read, as far as it is wanted and not too long yet."""
        if not self._is_value or self._list_level:
            begun = data if self._begun else data.lstrip(BLANKS)
            self._begun += begun[: max(0, self._most + 1 - len(self._begun))]

    def _take(self, sign: int, found: list[bytes]) -> None:
        """Takes a bracket, comma or colon, and what stands before it."""
        text = bytes(self._begun)
        self._begun.clear()
        is_begun = sign in _OPENING or sign == ord(":")
        if self._is_closed and (text or (self._open and is_begun)):
            raise BrokenText(BROKEN)
        self._is_closed = False
        if sign in _OPENING:
            self._enter(sign, text)
        elif not self._open:
            raise BrokenText(BROKEN)
        elif sign == ord(":"):
            self._name = _name(text)
            self._is_value = True
        elif self._list_level:
            self._end_member(sign, text, found)
        elif text:
            raise BrokenText(BROKEN)
        elif sign == ord(","):
            self._is_value = self._open[-1][1] == ord("]")
        if sign in _CLOSING:
            self._leave(sign)

    def _enter(self, sign: int, text: bytes) -> None:
        if text:
            raise BrokenText(BROKEN)
        self._has_begun = True
        above, end = self._open[-1] if self._open else ("", 0)
        path = above
        if end == ord("]"):
            path = f"{above}{OPENED}"
        elif end:
            path = f"{above}.{self._name}".removeprefix(".")
        self._open.append((path, ord("]") if sign == ord("[") else ord("}")))
        self._is_value = sign == ord("[")
        if sign == ord("[") and path == self._path:
            self._list_level = len(self._open)
            self._is_further = False
            self._has_list = True

    def _leave(self, sign: int) -> None:
        if self._open.pop()[1] != sign:
            raise BrokenText(BROKEN)
        self._list_level = 0
        self._is_value = False
        self._is_closed = True

    def _end_member(self, sign: int, text: bytes, found: list[bytes]) -> None:
        """Adds a member of the list; a list without members has one that is blank."""
        if text or sign == ord(",") or self._is_further:
            found.append(text)
        self._is_further = True


def _name(text: bytes) -> str:
    """Returns the name of a field; a name that is no Unicode text is that of no path."""
    try:
        name = json.loads(text.decode(errors="replace"))
    except ValueError:
        name = None
    if not isinstance(name, str):
        raise BrokenText(BROKEN)
    return name
