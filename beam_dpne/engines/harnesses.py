"""Settings of harnesses, the Python processes in which the steps of an engine's job run."""

import contextlib
import ctypes
import os

# The number of glibc's malloc.h for the largest number of arenas.
_M_ARENA_MAX = -8
_ARENAS = 2
_IDLE_SECONDS = 2.0


def drop_idle_processors() -> None:
    """Lets harnesses that start in this process drop what has processed a bundle after 2 to 4 seconds.

    Beam keeps it for one to two minutes, for another bundle of the same step: the step with its last
    element and side inputs, and a buffer of output that was up to 10 MB. A job of this package has
    many short steps, so that most of them come in one minute. Ten times the titles with 187 stages
    on Flink needed 1.6 GB in a harness with the minute, and .9 GB with these seconds.
    """
    from apache_beam.runners.worker import sdk_worker

    sdk_worker.DEFAULT_BUNDLE_PROCESSOR_CACHE_SHUTDOWN_THRESHOLD_S = _IDLE_SECONDS


def limit_arenas() -> None:
    """Lets the threads of this process share two arenas of memory, where the C library is glibc.

    A harness has many threads. With an arena for each of them, the memory that one thread has freed
    is of no use to the others. MALLOC_ARENA_MAX in the environment comes first. Arenas that there are
    when this is called stay.
    """
    if os.environ.get("MALLOC_ARENA_MAX"):
        return
    with contextlib.suppress(AttributeError, OSError):
        ctypes.CDLL(None).mallopt(_M_ARENA_MAX, _ARENAS)
