"""Small messages from a worker to its engine, so that the engine's memory is bounded.

An engine's Java side queues up to 100 messages of a worker before it makes the worker wait, and Beam
fills a message to 10 MB before it sends it: a fast step before a slow sort takes 1 GB of heap, and an
engine that runs out of memory there may leave the job hanging. With 1 MB it is 100 MB.
"""

import functools

from apache_beam.runners.worker import data_plane

_STREAM = "SizeBasedBufferingClosableOutputStream"
_SIZE = "_DEFAULT_SIZE_FLUSH_THRESHOLD"
MESSAGE_BYTES = 2**20


def bound_messages() -> None:
    """Makes this process send messages of about `MESSAGE_BYTES`; to be called in a step's setup.

    Beam has no option for it. Where a future Beam has no such stream, nothing is done.
    """
    stream = getattr(data_plane, _STREAM, None)
    if isinstance(stream, type) and hasattr(data_plane, _SIZE):
        bounded = functools.partial(stream, size_flush_threshold=MESSAGE_BYTES)
        setattr(data_plane, _STREAM, bounded)
        setattr(data_plane, _SIZE, MESSAGE_BYTES)
