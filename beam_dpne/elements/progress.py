"""The progress of an embedded run, which the steps report and the display reads.

It holds only sizes, the names of stages and how many of their parts are done; it never holds a user, an
n-gram or a number of users.
"""

import contextlib
import operator
import threading
import types
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple, TypeVar

_In = TypeVar("_In")
_Out = TypeVar("_Out")


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
_START = Snapshot("", None, 0)
# A runner's workers are threads.
_lock = threading.Lock()
_now = types.SimpleNamespace(shown=_START)


def _set(**fields: Any) -> None:
    with _lock:
        _now.shown = _now.shown._replace(**fields)


def advance_bytes(n: int) -> None:
    """Adds `n` bytes to the (compressed) input that was read."""
    with _lock:
        _now.shown = _now.shown._replace(bytes_read=_now.shown.bytes_read + n)


def enter(stage: str, length: int | None = None, round_number: int = 0) -> None:
    """Sets the stage that has begun, its n-gram length and its round."""
    _set(stage=stage, length=length, round=round_number)


@contextlib.contextmanager
def counting(
    function: Callable[[_In], _Out], items: Iterable[_In]
) -> Iterator[Callable[[_In], _Out]]:
    """Yields the function, whose calls for the items count as parts that are done."""

    def counted(item: _In) -> _Out:
        result = function(item)
        with _lock:
            _now.shown = _now.shown._replace(done=_now.shown.done + 1)
        return result

    _set(parts=operator.length_hint(items), done=0)
    try:
        yield counted
    finally:
        _set(parts=0)


def snapshot() -> Snapshot:
    """Returns how far the run is."""
    return _now.shown


def reset() -> None:
    """Starts again, for a new run."""
    with _lock:
        _now.shown = _START
