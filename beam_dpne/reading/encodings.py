"""Encodings of texts: those that are read, and those that the first bytes of a text show."""

import codecs
import contextlib
from collections.abc import Sequence

from beam_dpne.errors import InputError
from beam_dpne.validation import did_you_mean

# Encodings without a state that outlasts a line. With such a state, one user's text could change how
# the lines of all later users are read, and no bound on a user's contribution would hold.
ENCODINGS = (
    *("utf-8", "utf-8-sig", "utf-16", "utf-16-le", "utf-16-be", "ascii"),
    *(f"iso8859-{part}" for part in (*range(1, 12), *range(13, 17))),
    *(f"cp{page}" for page in (437, 850, 852, 866, 874, *range(1250, 1259))),
    *("koi8-r", "koi8-u", "mac-roman", "cp932", "shift_jis", "euc_jp", "cp949", "euc_kr"),
    *("gb2312", "gbk", "gb18030", "big5"),
)
# Encodings that read a text with a mark, the one that is advised first. That of UTF-32, which begins as
# another one, is looked for before it.
_MARKS: dict[bytes, tuple[str, ...]] = {
    codecs.BOM_UTF32_LE: (),
    codecs.BOM_UTF32_BE: (),
    codecs.BOM_UTF16_LE: ("utf-16", "utf-16-le"),
    codecs.BOM_UTF16_BE: ("utf-16", "utf-16-be"),
    codecs.BOM_UTF8: ("utf-8",),
}
# The same of texts without a mark, by the bytes of each four that are NUL in ASCII's characters.
_NULS: dict[tuple[int, ...], tuple[str, ...]] = {
    (1, 2, 3): (),
    (0, 1, 2): (),
    (1, 3): ("utf-16-le", "utf-16"),
    (0, 2): ("utf-16-be",),
}
_LOOKED_AT = 256
_SHARE = 0.25


def canonical_encoding(name: str) -> str:
    """Returns Python's name of an encoding of `ENCODINGS`.

    Raises:
      ValueError: The encoding is another one.

    >>> canonical_encoding("Latin-1"), canonical_encoding("UTF8")
    ('iso8859-1', 'utf-8')
    """
    with contextlib.suppress(LookupError, ValueError):
        found = codecs.lookup(name).name
        if found in ENCODINGS:
            return found
    raise ValueError(
        f"`encoding` must be one in which each line can be read alone, got `encoding={name!r}`. "
        f"Possible are {', '.join(ENCODINGS)}. Convert other files to "
        f"utf-8.{did_you_mean(name, ENCODINGS)}"
    )


def encodings_in(head: bytes) -> tuple[str, ...] | None:
    r"""Returns the encodings that read a text which begins so; None if its first bytes show none.

    There are none of `ENCODINGS` for UTF-32.

    >>> encodings_in(b"\xff\xfeu\0s\0"), encodings_in("user,text".encode("utf-16-be"))
    (('utf-16', 'utf-16-le'), ('utf-16-be',))
    >>> encodings_in("user,text".encode("utf-32")), encodings_in(b"user,text")
    ((), None)
    """
    for mark, encodings in _MARKS.items():
        if head.startswith(mark):
            return encodings
    shown = head[: min(_LOOKED_AT, len(head) // 4 * 4)]
    counts = [shown[place::4].count(0) for place in range(4)]
    for places, encodings in _NULS.items():
        are_nul = [count for place, count in enumerate(counts) if place in places]
        if sum(are_nul) == sum(counts) and min(are_nul) * 4 > _SHARE * len(shown):
            return encodings
    return None


def are_utf8(texts: Sequence[str | None], encoding: str) -> bool:
    r"""Whether texts that were read by an encoding are texts in UTF-8, some of them beyond ASCII.

    >>> are_utf8(["café".encode().decode("cp1252"), "tea"], "cp1252"), are_utf8(["café"], "cp1252")
    (True, False)
    """
    beyond = [text for text in texts if text is not None and not text.isascii()]
    try:
        for text in beyond:
            text.encode(encoding).decode()
    except UnicodeError:
        return False
    return bool(beyond)


def refuse_encoding(path: str, named: str | None, used: str, head: bytes) -> None:
    """Raises InputError if a text that cannot be used begins as one of another encoding.

    Args:
      path: The file.
      named: The encoding that was named, or None.
      used: The one by which it was read.
      head: Its first bytes, decompressed.
    """
    found = encodings_in(head)
    if found is None and used.startswith("utf-16") and head and 0 not in head:
        found = ("utf-8",)
    if found is None or canonical_encoding(used) in found:
        return
    given = "`encoding` was not given" if named is None else f"got `encoding={named!r}`"
    told = "convert it to UTF-8, since UTF-32 is not read"
    if found:
        told = f"set `encoding={found[0]}`"
    raise InputError(
        f"`encoding` must be that of {path}, whose first bytes show another one; {given}: {told}."
    )
