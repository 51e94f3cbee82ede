"""The progress of an embedded run, which the steps report and the display reads.

It holds only sizes and the names of stages; it never holds a user, an n-gram or a number of users.
"""

import threading
import types
from typing import NamedTuple


class Snapshot(NamedTuple):
    """The current stage, its n-gram length if it has one, and the bytes of input read so far."""

    stage: str
    length: int | None
    bytes_read: int


RELEASED = "released"
_START = Snapshot("", None, 0)
# A runner's workers are threads.
_lock = threading.Lock()
_now = types.SimpleNamespace(shown=_START)


def advance_bytes(n: int) -> None:
    """Adds `n` bytes to the (compressed) input that was read."""
    with _lock:
        _now.shown = _now.shown._replace(bytes_read=_now.shown.bytes_read + n)


def enter(stage: str, length: int | None = None) -> None:
    """Sets the stage that has begun, and its n-gram length."""
    with _lock:
        _now.shown = _now.shown._replace(stage=stage, length=length)


def snapshot() -> Snapshot:
    """Returns the stage, its length and the bytes read."""
    return _now.shown


def reset() -> None:
    """Starts again, for a new run."""
    with _lock:
        _now.shown = _START
