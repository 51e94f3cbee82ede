"""The progress of a run on this machine: its drivers say it, and the display reads it.

Only drivers, Beam's steps and readers of files say something; a pure function that takes long is given
a callback (`advancing`).

It holds only sizes, the names of stages and how many of their parts are done; it never holds a user or
an n-gram. How many parts there are, and how fast they are done, may follow from the number of users: so
what is shown is for the operator alone, as the run time is.
"""

import contextlib
import operator
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple, TypeVar

_Item = TypeVar("_Item")


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
# Steps wait at most so long for the next one, and so many of them, until they are told.
_SECONDS_BETWEEN, _MOST_UNTOLD = 0.1, 500


class Step(NamedTuple):
    """What a process says of its work, and a fork of its parent's.

    Attributes:
      bytes_read: bytes of the (compressed) input that were read.
      place: the stage, its n-gram length and its round, of which a part begins; None if none does.
      is_done: whether a part is done.
    """

    bytes_read: int = 0
    place: tuple[str, int | None, int] | None = None
    is_done: bool = False


class _Now:
    """How far the run of this process is.

    Attributes:
      shown: what the display reads.
      items: number of the items that are mapped, 0 if there are none.
      tell: what takes the steps of a fork, some at a time; None in the process that counts them.
      untold: the steps of a fork that were not told yet.
      place: the stage that a fork has entered last.
      told: when some were told last, in seconds of a clock.
      mirror: what takes each snapshot, where another process shows them; else None.
      lock: steps come from several threads.
    """

    def __init__(self) -> None:
        self.shown = _START
        self.items = 0
        self.tell: Callable[[list[Step]], Any] | None = None
        self.untold: list[Step] = []
        self.place: tuple[str, int | None, int] | None = None
        self.told = 0.0
        self.mirror: Callable[[Snapshot], Any] | None = None
        self.lock = threading.Lock()


_now = _Now()


def forward_to(tell: Callable[[list[Step]], Any]) -> None:
    """Has the steps of this process told to a function.

    Steps of one stage within a tenth of a second are told together: each message wakes the process that
    counts them, which would have little else to do with many forks.
    """
    # The lock of the parent may be held for ever.
    _now.tell = tell
    _now.untold, _now.place, _now.told = [], None, 0.0
    _now.mirror = None
    _now.lock = threading.Lock()


def mirror_to(show: Callable[[Snapshot], Any]) -> None:
    """Has the progress of this process shown by another one, to which a function gives it."""
    _now.mirror = show


def tell_all() -> None:
    """Tells what was not told yet, in a fork."""
    if _now.tell is not None and _now.untold:
        untold, _now.untold = _now.untold, []
        _now.told = time.monotonic()
        _now.tell(untold)


def take(said: list[Step] | Snapshot) -> None:
    """Takes what another process has said: some steps of a fork, or all that a new process shows."""
    if isinstance(said, Snapshot):
        with _now.lock:
            _show(said)
    else:
        for step in said:
            repeat(step)


def _show(shown: Snapshot) -> None:
    _now.shown = shown
    if _now.mirror is not None:
        _now.mirror(shown)


def repeat(step: Step) -> None:
    """Takes a step, of this process or of a fork."""
    with _now.lock:
        shown = _now.shown
        done = shown.done + int(step.is_done)
        shown = shown._replace(bytes_read=shown.bytes_read + step.bytes_read, done=done)
        if step.place is not None:
            stage, length, number = step.place
            entered = shown._replace(stage=stage, length=length, round=number)
            if entered == shown:
                # The next part of the stage has begun, so one more is done.
                entered = entered._replace(done=done + 1)
            else:
                entered = entered._replace(parts=_now.items, done=0)
            shown = entered
        _show(shown)


def _say(step: Step) -> None:
    if _now.tell is None:
        repeat(step)
        return
    _now.untold.append(step)
    # What is entered is shown while it lasts.
    has_moved = step.place not in (None, _now.place)
    _now.place = step.place or _now.place
    is_late = time.monotonic() - _now.told >= _SECONDS_BETWEEN
    if has_moved or is_late or len(_now.untold) >= _MOST_UNTOLD:
        tell_all()


def advance_bytes(n: int) -> None:
    """Adds `n` bytes to the (compressed) input that was read."""
    _say(Step(bytes_read=n))


def advance() -> None:
    """Adds one to the parts that are done."""
    _say(Step(is_done=True))


def enter(stage: str, length: int | None = None, round_number: int = 0) -> None:
    """Sets the stage that has begun, its n-gram length and its round.

    Where that is the stage already, its next part has begun, and one more is done.
    """
    _say(Step(place=(stage, length, round_number)))


def parts(
    items: Iterable[_Item], stage: str, length: int | None = None, round_number: int = 0
) -> Iterator[_Item]:
    """Yields the items; each is a part of a stage, which it enters."""
    with counting(items):
        for item in items:
            enter(stage, length, round_number)
            yield item


def advancing(items: Iterable[_Item]) -> Iterator[_Item]:
    """Yields the items; each is a part of the stage that has begun."""
    with counting(items):
        for item in items:
            yield item
            advance()


@contextlib.contextmanager
def counting(items: Iterable[Any]) -> Iterator[None]:
    """Makes the items the parts of the stage; work on one of them enters the stage, or advances."""
    _now.items = operator.length_hint(items)
    with _now.lock:
        _show(_now.shown._replace(parts=_now.items, done=0))
    try:
        yield
    finally:
        _now.items = 0


def snapshot() -> Snapshot:
    """Returns how far the run is."""
    return _now.shown


def reset() -> None:
    """Starts again, for a new run."""
    _now.shown = _START
