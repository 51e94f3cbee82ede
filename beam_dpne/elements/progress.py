"""The progress of an embedded run, which the steps report and the display reads.

It holds only sizes and the names of stages; it never holds a user, an n-gram or a number of users.
"""

import threading
import time
from typing import NamedTuple


class Snapshot(NamedTuple):
    """The current stage, its n-gram length if it has one, and the bytes of input read so far."""

    stage: str
    length: int | None
    bytes_read: int


RELEASED = "released"
_START = Snapshot("", None, 0)


class _Board:
    """The latest `Snapshot`, behind a lock because a runner's workers are threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._shown = _START
        self._marks = {0: time.monotonic()}

    def advance_bytes(self, n: int) -> None:
        """Adds `n` bytes to the (compressed) input that was read."""
        with self._lock:
            self._shown = self._shown._replace(bytes_read=self._shown.bytes_read + n)

    def enter(self, stage: str, length: int | None = None) -> None:
        """Sets the stage that has begun, and its n-gram length."""
        with self._lock:
            self._shown = self._shown._replace(stage=stage, length=length)
            if stage == RELEASED and length is not None:
                self._marks.setdefault(length, time.monotonic())

    def marks(self) -> dict[int, float]:
        """Returns the time when each length was released, in monotonic seconds; key 0 is the start."""
        with self._lock:
            return dict(self._marks)

    def snapshot(self) -> Snapshot:
        """Returns the stage, its length and the bytes read."""
        with self._lock:
            return self._shown

    def reset(self) -> None:
        """Starts again, for a new run."""
        with self._lock:
            self._shown = _START
            self._marks = {0: time.monotonic()}


_board = _Board()
advance_bytes = _board.advance_bytes
enter = _board.enter
snapshot = _board.snapshot
reset = _board.reset
marks = _board.marks
