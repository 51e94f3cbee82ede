"""Tracebacks of launcher and workers as they arrive here: exceptions, and errors that Beam logs."""

import collections
import contextlib
import logging
import threading
import traceback
from collections.abc import Iterator

_MOST_CHARACTERS = 8 * 2**20


def whole_chain(error: BaseException) -> str:
    """Returns an exception with all that led to it, also what `raise … from None` hides."""
    chain: list[BaseException] = []
    link: BaseException | None = error
    while link is not None and all(link is not seen for seen in chain):
        chain.append(link)
        link = link.__cause__ or link.__context__
    texts = (
        "".join(traceback.format_exception(type(one), one, one.__traceback__, chain=False))
        for one in reversed(chain)
    )
    return "\nWhich led to:\n\n".join(texts)


class ErrorRecords:
    """Error records of libraries during a run, in memory; of very many, the latest."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._texts: collections.deque[str] = collections.deque()
        self._characters = 0
        self._dropped = 0

    def text(self) -> str:
        """Returns the records, one after the other."""
        with self._lock:
            first = [f"({self._dropped} earlier records are left out.)"] if self._dropped else []
            return "".join(f"{text}\n" for text in (*first, *self._texts))

    def add(self, text: str) -> None:
        """Adds a record; a repeated one is kept once."""
        with self._lock:
            if self._texts and self._texts[-1] == text:
                return
            self._texts.append(text)
            self._characters += len(text)
            while self._characters > _MOST_CHARACTERS and len(self._texts) > 1:
                self._characters -= len(self._texts.popleft())
                self._dropped += 1

    @contextlib.contextmanager
    def caught(self) -> Iterator[None]:
        """Adds every error record; who got records until now gets the same ones as before."""
        root = logging.getLogger()
        handlers, level = root.handlers[:], root.level
        root.handlers[:] = [_Divert(self, handlers, level)]
        root.setLevel(min(level, logging.ERROR))
        try:
            yield
        finally:
            root.handlers[:] = handlers
            root.setLevel(level)


class _Divert(logging.Handler):
    """Stands in for the handlers of the root logger, whose level is lower than it was."""

    def __init__(self, records: ErrorRecords, handlers: list[logging.Handler], level: int) -> None:
        super().__init__()
        self.setFormatter(logging.Formatter("%(asctime)s %(name)s: %(message)s"))
        self._records, self._handlers, self._level = records, handlers, level

    def emit(self, record: logging.LogRecord) -> None:
        """Keeps an error, and hands on what the root's own level would have let pass."""
        if record.levelno >= logging.ERROR:
            self._records.add(self.format(record))
        if record.levelno < self._level and not _has_level(record.name):
            return
        others = self._handlers or ([logging.lastResort] if logging.lastResort else [])
        for handler in others:
            if record.levelno >= handler.level:
                handler.handle(record)


def _has_level(name: str) -> bool:
    """Whether a logger, or one above it but for the root, has a level."""
    logger: logging.Logger | None = logging.getLogger(name)
    while logger is not None and logger.parent is not None:
        if logger.level:
            return True
        logger = logger.parent
    return False
