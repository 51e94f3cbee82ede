"""Tokenizers that another process finds by name."""

import os
import threading
import time

import pyarrow.compute as pc

LOCK = threading.Lock()
CANARY = "zebra4711"
_PROCESS = os.getpid()
# A run looks at its first records before it begins, which are fewer.
MANY = 5000


def waiting_words(texts):
    """Splits at blanks, in a fork once it has the lock."""
    if os.getpid() != _PROCESS:
        with LOCK:
            pass
    return pc.utf8_split_whitespace(texts)


def failing_words(texts):
    """Fails with an error that quotes a text, after an error in a thread that nobody handles."""

    def fail(kind):
        raise kind(texts[0].as_py())

    if len(texts) > MANY:
        thread = threading.Thread(target=fail, args=(OSError,))
        thread.start()
        thread.join()
        fail(KeyError)
    return pc.utf8_split_whitespace(texts)


def slow_words(texts):
    """Takes its time for many texts."""
    if len(texts) > MANY:
        time.sleep(30)
    return pc.utf8_split_whitespace(texts)


for each in (waiting_words, failing_words, slow_words):
    each.version = "1"
