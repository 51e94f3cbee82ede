"""What becomes of an error of a call: a message without data, and a traceback without our frames.

Notebooks can show the variables of all frames of a traceback. So an error is raised anew where the call
began, without the frames in which private texts were at hand, and without an error before it.
"""

import contextlib
import sys
import threading
from collections.abc import Callable, Iterator
from typing import TypeVar

from beam_dpne.api.messages import with_keywords
from beam_dpne.elements import progress
from beam_dpne.errors import RunError, is_ours, printable_reason

_Out = TypeVar("_Out")


def withheld(run: Callable[[], _Out]) -> _Out:
    """Returns what a function returns; its errors are raised anew, from here.

    Raises:
      BeamDpneError, ValueError, FileNotFoundError: as the function, with the names of keywords.
      RunError: of another error, whose message may quote data.
      BaseException: what the caller raises to end all, e.g. in a handler of a signal.
    """
    progress.reset()
    try:
        with _hooks_kept():
            return run()
    except KeyboardInterrupt:
        raised: BaseException = KeyboardInterrupt()
    except Exception as error:
        raised = _anew(error)
    except BaseException as error:
        # It is the caller's own, which may look for this very object.
        raised = error.with_traceback(None)
        raised.__cause__ = raised.__context__ = None
    finally:
        progress.reset()
    # Within the block above, the first error would be kept as what was handled.
    raise raised


def _anew(error: Exception) -> Exception:
    kind = type(error)
    is_early = kind in (ValueError, FileNotFoundError, TypeError) and not progress.snapshot().stage
    if kind is TypeError and is_early:
        return TypeError(str(error))
    if not is_ours(kind) and not is_early:
        return RunError(printable_reason(error))
    return kind(with_keywords(str(error)))


class _Kept:
    """The hooks of the caller, while calls are at work, which may be of several threads.

    Attributes:
      calls: how many calls are at work.
      hooks: what prints errors that nobody handles, as it was before the first of them.
      lock: calls begin and end in several threads.
    """

    def __init__(self) -> None:
        self.calls = 0
        self.hooks = (threading.excepthook, sys.unraisablehook)
        self.lock = threading.Lock()


_kept = _Kept()


@contextlib.contextmanager
def _hooks_kept() -> Iterator[None]:
    """Puts back what prints errors that nobody handles, when no call is at work that withholds them."""
    with _kept.lock:
        if not _kept.calls:
            _kept.hooks = (threading.excepthook, sys.unraisablehook)
        _kept.calls += 1
    try:
        yield
    finally:
        with _kept.lock:
            _kept.calls -= 1
            if not _kept.calls:
                threading.excepthook, sys.unraisablehook = _kept.hooks
