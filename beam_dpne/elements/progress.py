"""The progress of an embedded run, which the steps report and the display reads.

It holds only sizes, the names of stages and how many of their parts are done; it never holds a user or
an n-gram. How many parts there are, and how fast they are done, may follow from the number of users: so
what is shown is for the operator alone, as the run time is.
"""

import contextlib
import functools
import operator
import threading
import types
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple


class Snapshot(NamedTuple):
    """The current stage, its n-gram length if it has one, and how far it is.

    Attributes:
      round: number of the round of the length, 0 if there is none.
      bytes_read: bytes of input that were read so far.
      parts: number of parts of what is being done, 0 if it is not known.
      done: number of parts that are done.
    """

    stage: str
    length: int | None
    bytes_read: int
    round: int = 0
    parts: int = 0
    done: int = 0


RELEASED = "released"
# The ledger of the release is in place, so that the run cannot fail any more.
PUBLISHED = "published"
_START = Snapshot("", None, 0)
# Expected: the number of parts of a stage, by its name; items: that of the items that are mapped, or 0.
# A runner's workers are threads. Tell: what takes the steps of a fork, or None.
_now = types.SimpleNamespace(shown=_START, expected={}, items=0, tell=None, lock=threading.Lock())


def _told(step: Callable[..., None]) -> Callable[..., None]:
    """Makes a step of a fork known to its parent, which shows it."""

    @functools.wraps(step)
    def tell(*arguments: Any) -> None:
        _now.tell(step.__name__, *arguments) if _now.tell else step(*arguments)

    return tell


def forward_to(tell: Callable[..., Any]) -> None:
    """Has the steps of this process told to a function: for each a name, and its arguments."""
    # The lock of the parent may be held for ever.
    _now.tell = tell
    _now.lock = threading.Lock()


def repeat(name: str, *arguments: Any) -> None:
    """Repeats a step of a fork."""
    globals()[name](*arguments)


def _set(**fields: Any) -> None:
    with _now.lock:
        _now.shown = _now.shown._replace(**fields)


@_told
def advance_bytes(n: int) -> None:
    """Adds `n` bytes to the (compressed) input that was read."""
    with _now.lock:
        _now.shown = _now.shown._replace(bytes_read=_now.shown.bytes_read + n)


@_told
def advance() -> None:
    """Adds one to the parts that are done."""
    with _now.lock:
        _now.shown = _now.shown._replace(done=_now.shown.done + 1)


def expect(**parts: int) -> None:
    """Says in how many parts stages will come; each part enters its stage."""
    _now.expected.update(parts)


@_told
def enter(stage: str, length: int | None = None, round_number: int = 0) -> None:
    """Sets the stage that has begun, its n-gram length and its round.

    Where that is the stage already, its next part has begun, and one more is done.
    """
    place = {"stage": stage, "length": length, "round": round_number}
    if _now.shown == _now.shown._replace(**place):
        advance()
    else:
        _set(**place, parts=_now.items or _now.expected.get(stage, 0), done=0)


@contextlib.contextmanager
def counting(items: Iterable[Any]) -> Iterator[None]:
    """Makes the items the parts of the stage; work on one of them enters the stage, or advances."""
    _now.items = operator.length_hint(items)
    _set(parts=_now.items, done=0)
    try:
        yield
    finally:
        _now.items = 0


def snapshot() -> Snapshot:
    """Returns how far the run is."""
    return _now.shown


def reset() -> None:
    """Starts again, for a new run."""
    _now.expected.clear()
    _now.shown = _START
