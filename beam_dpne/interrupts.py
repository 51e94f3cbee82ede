"""Signals that end a run: Ctrl-C and SIGTERM become `KeyboardInterrupt`, which no callback can lose."""

import signal
import sys
import threading
from collections.abc import Sequence
from types import FrameType
from typing import Any

_AGAIN_SECONDS = 0.05


class Interrupts:
    """A context in which signals raise `KeyboardInterrupt` in the main thread and are remembered.

    Beam wraps the errors of a bundle, so the type of an exception does not show that a signal raised
    it: `received` does. Python calls a handler wherever the main thread happens to be. In a finalizer,
    or in the callback of a weak reference, it drops the exception after a message on stderr, and the
    run would go on. Here the exception is then raised again a moment later. A second signal, also
    another one of them, ends the process at once.

    Only signals that nobody has handled or ignored (nohup) are changed, and only in the main thread.
    The signal SIGALRM is used only after another one was lost; else the caller's alarm is kept.

    Attributes:
      received: The number of the signal that was received, or 0.
    """

    def __init__(self, numbers: Sequence[int] = (signal.SIGINT, signal.SIGTERM)) -> None:
        self.received = 0
        self._numbers = numbers
        self._before: dict[int, Any] = {}
        self._alarm_before: Any = None
        self._report_unraisable: Any = None

    def __enter__(self) -> "Interrupts":
        if threading.current_thread() is threading.main_thread():
            for number in self._numbers:
                usual = signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL
                if signal.getsignal(number) == usual:
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
            signal.signal(each, signal.SIG_DFL)
        raise KeyboardInterrupt

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
