"""A function on many arrays at once: threads, whose results come in the order of the arrays.

numpy and Arrow let go of the interpreter's lock in sorts, searches and string kernels, so that threads
use several cores where elements hold arrays of many users.
"""

import collections
import concurrent.futures
import os
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Generic, TypeVar

_In = TypeVar("_In")
_Out = TypeVar("_Out")

# Far more threads than cores only take memory.
MOST_WORKERS = 256


def usable_cores() -> int:
    """Returns the number of cores that this process may use, at least 1."""
    if hasattr(os, "sched_getaffinity"):
        return max(1, len(os.sched_getaffinity(0)))
    return os.cpu_count() or 1


def map_in_threads(
    function: Callable[[_In], _Out], items: Iterable[_In], workers: int
) -> list[_Out]:
    """Returns the results of a function for all items, in their order.

    With one worker nothing runs in another thread. An error of the function is raised here, and items
    that nobody has begun are left out.

    Args:
      function: a function without side effects, which may run for several items at the same time.
      items: the items.
      workers: the number of threads, at least 1.

    Example:
      >>> map_in_threads(abs, [-1, 2, -3], workers=2)
      [1, 2, 3]
    """
    items = list(items)
    if workers == 1 or len(items) < 2:
        return [function(item) for item in items]
    with concurrent.futures.ThreadPoolExecutor(min(workers, len(items))) as pool:
        tasks = [pool.submit(function, item) for item in items]
        try:
            return [task.result() for task in tasks]
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise


class TaskQueue(Generic[_Out]):
    """Calls that run in threads, whose results are taken in the order in which they were given.

    With one worker each call runs at once, in the thread that gives it.

    Example:
      >>> queue = TaskQueue(workers=2)
      >>> [result for n in (-1, 2, -3) for result in queue.put(abs, n)] + list(queue.drain())
      [1, 2, 3]
      >>> queue.close()
    """

    def __init__(self, workers: int):
        self._pool = concurrent.futures.ThreadPoolExecutor(workers) if workers > 1 else None
        self._most = workers
        self._tasks: collections.deque[concurrent.futures.Future[_Out]] = collections.deque()

    def put(self, function: Callable[..., _Out], *arguments: Any) -> Iterator[_Out]:
        """Gives a call; yields results of earlier ones, so that at most `workers` calls wait."""
        if self._pool is None:
            yield function(*arguments)
            return
        self._tasks.append(self._pool.submit(function, *arguments))
        while len(self._tasks) > self._most:
            yield self._tasks.popleft().result()

    def drain(self) -> Iterator[_Out]:
        """Yields the results of all calls that were given."""
        while self._tasks:
            yield self._tasks.popleft().result()

    def close(self) -> None:
        """Ends the threads; calls that nobody has begun are left out, and no call is waited for.

        After `drain` all threads are idle. After an error a call may go on to its own end.
        """
        self._tasks.clear()
        if self._pool is not None:
            self._pool.shutdown(wait=False, cancel_futures=True)
