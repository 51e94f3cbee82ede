"""Signals that end a run: Ctrl-C, SIGTERM and SIGHUP become `KeyboardInterrupt`.

No callback can lose it.
"""

import signal
import sys
import threading
from collections.abc import Callable, Sequence
from types import FrameType
from typing import Any

_AGAIN_SECONDS = 0.05
# Windows has no SIGHUP, which a terminal sends when it is closed.
_ENDING = tuple(
    getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name)
)
_UNHANDLED = (signal.SIG_DFL, signal.default_int_handler)


def _nothing() -> None:
    pass


class Interrupts:
    """A context in which signals raise `KeyboardInterrupt` in the main thread and are remembered.

    Beam wraps the errors of a bundle, so the type of an exception does not show that a signal raised
    it: `received` does. Python calls a handler wherever the main thread happens to be. In a finalizer,
    or in the callback of a weak reference, it drops the exception after a message on stderr, and the
    run would go on. Here the exception is then raised again a moment later. A second signal, also
    another one of them, ends the process after a last call of `at_once`, and a third one without it.

    Only signals that nobody has handled or ignored (nohup) are changed, and only in the main thread.
    The signal SIGALRM is used only after another one was lost; else the caller's alarm is kept.

    Attributes:
      received: The number of the signal that was received, or 0.
    """

    def __init__(
        self, numbers: Sequence[int] = _ENDING, at_once: Callable[[], None] = _nothing
    ) -> None:
        """Prepares the context.

        Args:
          numbers: The signals.
          at_once: Is called on a second signal, when the context of the run may not end any more.
        """
        self.received = 0
        self._numbers = numbers
        self._at_once = at_once
        self._before: dict[int, Any] = {}
        self._alarm_before: Any = None
        self._report_unraisable: Any = None

    def __enter__(self) -> "Interrupts":
        if threading.current_thread() is threading.main_thread():
            for number in self._numbers:
                if signal.getsignal(number) in _UNHANDLED:
                    self._before[number] = signal.signal(number, self._receive)
        if self._before:
            self._report_unraisable = sys.unraisablehook
            sys.unraisablehook = self._keep
        return self

    def __exit__(self, *_: object) -> None:
        if not self._before:
            return
        self.settle()
        sys.unraisablehook = self._report_unraisable
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def settle(self) -> None:
        """Raises a lost signal no more, since the run has ended."""
        if self._alarm_before is not None:
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, self._alarm_before)
            self._alarm_before = None

    def _receive(self, number: int, _frame: FrameType | None) -> None:
        self.received = number
        for each in self._before:
            signal.signal(each, self._end_at_once)
        raise KeyboardInterrupt

    def _end_at_once(self, number: int, _frame: FrameType | None) -> None:
        for each in self._before:
            signal.signal(each, signal.SIG_DFL)
        try:
            self._at_once()
        finally:
            signal.raise_signal(number)

    def _keep(self, unraisable: Any) -> None:
        """Raises a lost `KeyboardInterrupt` again soon; leaves every other error to the hook before."""
        # Ctrl-C counts also where another handler than this one has raised the exception.
        if issubclass(unraisable.exc_type, KeyboardInterrupt):
            self._raise_again()
        else:
            self._report_unraisable(unraisable)

    def _raise_again(self) -> None:
        """Sets the alarm that raises `KeyboardInterrupt`."""
        if not hasattr(signal, "setitimer"):  # Windows has no alarm.
            return
        before = signal.signal(signal.SIGALRM, _interrupt)
        if self._alarm_before is None:
            self._alarm_before = before
        signal.setitimer(signal.ITIMER_REAL, _AGAIN_SECONDS)


def _interrupt(_number: int, _frame: FrameType | None) -> None:
    raise KeyboardInterrupt
