"""How a program runs as the whole of its process, while its modules are loaded and after that.

While modules are loaded, Ctrl-C ends it without a traceback; then `Interrupts` takes signals. Until
then, no garbage is collected either: nearly all that is made stays until the end of the process, and
looking at it again and again would take a quarter of the time of a small run.
"""

import gc
import signal
import threading
from collections.abc import Callable

# Set while nothing is collected because of `run`.
_is_loading = threading.Event()


def run(program: Callable[[], int]) -> int:
    """Runs a program as the whole of this process, and returns the exit status.

    Args:
      program: loads its modules, calls `collect_garbage`, and does its work.
    """
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    if gc.isenabled():
        _is_loading.set()
        gc.disable()
    try:
        return program()
    finally:
        collect_garbage()


def collect_garbage() -> None:
    """Lets garbage be collected again, but not what was loaded until now; it stays until the end."""
    if _is_loading.is_set():
        _is_loading.clear()
        gc.freeze()
        gc.enable()
