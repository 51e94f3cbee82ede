"""A process-local board on which an embedded run shows how far it is.

Only sizes and the names of stages are ever put here: no user, gram or count of users.
"""

import threading
import time
from typing import NamedTuple


class Snapshot(NamedTuple):
    """What the board shows: the stage, its gram length if it has one, and bytes of input read."""

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
        """Adds `n` bytes of (compressed) input to those read."""
        with self._lock:
            self._shown = self._shown._replace(bytes_read=self._shown.bytes_read + n)

    def enter(self, stage: str, length: int | None = None) -> None:
        """Names the stage that began, and the gram length that it works on."""
        with self._lock:
            self._shown = self._shown._replace(stage=stage, length=length)
            if stage == RELEASED and length is not None:
                self._marks.setdefault(length, time.monotonic())

    def marks(self) -> dict[int, float]:
        """Returns when each length was released, in monotonic seconds; 0 is the start of the run."""
        with self._lock:
            return dict(self._marks)

    def snapshot(self) -> Snapshot:
        """Returns what the board shows."""
        with self._lock:
            return self._shown

    def reset(self) -> None:
        """Clears the board for a new run."""
        with self._lock:
            self._shown = _START
            self._marks = {0: time.monotonic()}


_board = _Board()
advance_bytes = _board.advance_bytes
enter = _board.enter
snapshot = _board.snapshot
reset = _board.reset
marks = _board.marks
