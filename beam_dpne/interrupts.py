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
    run would go on. Here the exception is then raised again a moment later. A second signal ends the
    process at once.

    Only signals that nobody has handled or ignored (nohup) are changed, and only in the main thread.
    The signal SIGALRM is used, and only after another one was lost.

    Attributes:
      received: The number of the signal that was received, or 0.
    """

    def __init__(self, numbers: Sequence[int] = (signal.SIGINT, signal.SIGTERM)) -> None:
        self.received = 0
        self._numbers = numbers
        self._before: dict[int, Any] = {}
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
        self._raise_again(0)
        sys.unraisablehook = self._report_unraisable
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _receive(self, number: int, _frame: FrameType | None) -> None:
        self.received = number
        signal.signal(number, signal.SIG_DFL)
        raise KeyboardInterrupt

    def _keep(self, unraisable: Any) -> None:
        """Raises a lost `KeyboardInterrupt` again soon; leaves every other error to the hook before."""
        if self.received and issubclass(unraisable.exc_type, KeyboardInterrupt):
            self._raise_again(_AGAIN_SECONDS)
        else:
            self._report_unraisable(unraisable)

    def _raise_again(self, seconds: float) -> None:
        """Sets the alarm that raises `KeyboardInterrupt`, or switches it off with 0."""
        if not hasattr(signal, "setitimer"):  # Windows has no alarm.
            return
        if seconds:
            signal.signal(signal.SIGALRM, _interrupt)
        signal.setitimer(signal.ITIMER_REAL, seconds)


def _interrupt(_number: int, _frame: FrameType | None) -> None:
    raise KeyboardInterrupt
