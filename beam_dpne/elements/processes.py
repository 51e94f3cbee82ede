"""Forks of this process that work on all cores, whatever holds Python's lock.

A fork begins with all that its parent holds, in pages that both share until one of them writes there:
a function and its data need not be sent. Requests and answers lie in memory that has no name and that
the receiver maps, so that arrays are written once and read where they are; the system frees it with
the last process that maps it, even after SIGKILL.

A lock that another thread holds during a fork stays locked in the fork. So forks compute, and do not
use Beam, whose threads hold some.
"""

import contextlib
import ctypes
import errno
import functools
import gc
import io
import operator
import os
import pickle
import signal
import socket
import subprocess
import sys
import time
import traceback
import types
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from multiprocessing import connection
from typing import Any, TypeVar

from beam_dpne.elements import progress
from beam_dpne.elements.nameless_files import read, written
from beam_dpne.elements.processor import numpy_settings
from beam_dpne.errors import RunError

# What a fork sends: a value of its answer, the end of the answer, an error, progress.
_VALUE, _END, _ERROR, _PROGRESS = b"VEX."
# Linux sends at most 253 files with a message; a message that is not the last one has this text.
_FILES_OF_A_MESSAGE, _MORE = 250, b"+"
# So long is waited for files that are on their way to forks.
_SECONDS_ON_THE_WAY = 0.01
# PR_SET_PDEATHSIG of Linux.
_END_WITH_PARENT = 1
# What the C library's mallopt calls M_TRIM_THRESHOLD and M_MMAP_THRESHOLD, with the bytes that are
# kept: so many at the end of the heap, and arrays of at most so many, the most that it accepts.
_KEPT = {-1: 2**26, -3: 2**25}
# What a new process runs; it finds modules where its parent does.
_BEGINS = (
    "import sys; _, handle, parent, *sys.path = sys.argv; "
    "from beam_dpne.elements.processes import serve_parent; "
    "serve_parent(int(handle), int(parent))"
)
_In = TypeVar("_In")
_Out = TypeVar("_Out")


class Processes:
    """Forks that answer requests, until they are closed.

    A fork computes one value in advance while the caller uses another.

    Example:
      >>> with contextlib.closing(Processes(lambda name: (name * n for n in (1, 2)), 2)) as forks:
      ...     sorted(forks.stream("abc"))
      ['a', 'aa', 'b', 'bb', 'c', 'cc']
    """

    def __init__(self, answer: Callable[..., Iterable[Any]], most: int) -> None:
        """Forks nothing yet.

        Args:
          answer: maps a request, and what `gather` has kept for it, to values; what it changes stays in
            its fork.
          most: the largest number of forks.
        """
        self._answer = answer
        self._most = most
        self._forks: dict[Any, int] = {}
        self._busy: set[Any] = set()
        self._gathered: list[int] = []

    def offer(self, request: Any) -> Generator[Any, None, None]:
        """Gives a request to a fork that is idle, or a new one; yields what others answer till then."""
        while len(self._busy) == self._most:
            yield from self._answered(read)
        idle = self._forks.keys() - self._busy
        self._send([idle.pop() if idle else self._fork()], request)

    def rest(self) -> Generator[Any, None, None]:
        """Yields what is left of the answers."""
        while self._busy:
            yield from self._answered(read)

    def stream(self, requests: Iterable[Any]) -> Generator[Any, None, None]:
        """Yields the values of the answers to all requests, in any order."""
        for request in requests:
            yield from self.offer(request)
        yield from self.rest()

    def all(self, request: Any) -> Generator[Any, None, None]:
        """Yields the values of the answers of all forks to one request, in any order."""
        yield from self.rest()
        self._send(list(self._forks), request, self._gathered)
        self._drop_gathered()
        yield from self.rest()

    def gather(self, request: Any) -> None:
        """Gives a request to all forks, which are idle, and keeps their answers, one of each, unread.

        With the next request to all forks each of them is given all of these answers, which stay where
        they are.
        """
        self._send(list(self._forks), request)
        while self._busy:
            self._gathered += self._answered(int)

    def _drop_gathered(self) -> None:
        while self._gathered:
            os.close(self._gathered.pop())

    def _fork(self) -> socket.socket:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        # A signal must not end a fork in what its parent does at its end.
        mask = signal.pthread_sigmask(signal.SIG_BLOCK, (signal.SIGINT, signal.SIGTERM))
        parent = os.getpid()
        try:
            fork = os.fork()
        except OSError as error:
            signal.pthread_sigmask(signal.SIG_SETMASK, mask)
            ours.close()
            theirs.close()
            raise RunError(
                f"The system does not start another process of this run ({error.strerror}). Give a "
                "smaller number of workers."
            ) from None
        if fork == 0:
            try:
                _end_with(parent)
                signal.signal(signal.SIGINT, signal.SIG_IGN)
                signal.signal(signal.SIGTERM, signal.SIG_DFL)
                signal.pthread_sigmask(signal.SIG_SETMASK, mask)
                ours.close()
                # No garbage is collected among what the parent holds, whose pages are shared.
                gc.freeze()
                progress.forward_to(lambda steps: _say_progress(theirs, steps))
                _serve(theirs, self._answer)
            finally:
                os._exit(0)
        # A signal that waits is raised when `close` knows the fork.
        self._forks[ours] = fork
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        theirs.close()
        return ours

    def _send(self, forks: list[socket.socket], request: Any, gathered: Sequence[int] = ()) -> None:
        with written(request) as file:
            for each in forks:
                _tell(each, [file, *gathered])
                self._busy.add(each)

    def _answered(self, value_in: Callable[[int], _Out]) -> Generator[_Out, None, None]:
        """Waits until a fork has said something, and yields the value in its file, if it is one."""
        for each in connection.wait(list(self._busy)):
            said, files = _heard(each)
            if said[0] == _PROGRESS:
                progress.take(pickle.loads(said[1:]))  # noqa: S301
            elif said[0] == _END:
                self._busy.remove(each)
            else:
                if said[0] == _ERROR:
                    raise read(files[0])
                yield value_in(files[0])
                _tell(each)

    def close(self) -> None:
        """Ends all forks, whatever they do; after an error or an early end, it must follow."""
        for fork in self._forks.values():
            with contextlib.suppress(ProcessLookupError):
                os.kill(fork, signal.SIGKILL)
        for each, fork in self._forks.items():
            with contextlib.suppress(ChildProcessError):
                os.waitpid(fork, 0)
            each.close()
        self._forks.clear()
        self._busy.clear()
        self._drop_gathered()


@contextlib.contextmanager
def _alive() -> Iterator[None]:
    try:
        yield
    except ConnectionError:
        raise RunError(
            "The system ended a process of this run, most likely for want of memory. Give the run more "
            "memory, or a smaller number of workers."
        ) from None


@_alive()
def _tell(fork: Any, files: Sequence[int] = ()) -> None:
    while len(files) > _FILES_OF_A_MESSAGE:
        _send_files(fork, _MORE, files[:_FILES_OF_A_MESSAGE])
        files = files[_FILES_OF_A_MESSAGE:]
    _send_files(fork, b".", files)


def _send_files(fork: Any, text: bytes, files: Sequence[int]) -> None:
    """Sends a message with files, once so many that wait for other forks are no longer on their way."""
    while True:
        try:
            socket.send_fds(fork, [text], files)
        except OSError as error:
            # What a user who is not root has on the way is limited, as what a process has open.
            if error.errno != errno.ETOOMANYREFS:
                raise
            time.sleep(_SECONDS_ON_THE_WAY)
        else:
            return


@_alive()
def _heard(fork: Any) -> tuple[bytes, list[int]]:
    said, files = _taken(fork, 2**16, 1)
    if not said:
        raise ConnectionResetError
    return said, files


def _taken(sender: socket.socket, most_bytes: int, most_files: int) -> tuple[bytes, list[int]]:
    """Returns a message and the files that come with it.

    Raises:
      RunError: the system gives this process no more files, so that some of them are lost.
    """
    said, files, flags, _ = socket.recv_fds(sender, most_bytes, most_files)
    if flags & socket.MSG_CTRUNC:
        for file in files:
            os.close(file)
        raise RunError(
            "A process of this run must have more files open than the system allows. Raise the limit "
            "(ulimit -n), or give a smaller number of workers."
        )
    return said, files


class _New(Processes):
    """One process of a new interpreter, which begins with nothing of this one."""

    _process: "subprocess.Popen[bytes] | None" = None

    def _fork(self) -> socket.socket:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        handle = str(theirs.fileno())
        try:
            # It has a group of its own, so that Ctrl-C reaches this process alone, which ends it.
            process = subprocess.Popen(
                [sys.executable, "-c", _BEGINS, handle, str(os.getpid()), *sys.path],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                pass_fds=[theirs.fileno()],
                process_group=0,
                env={**os.environ, **numpy_settings()},
            )
        except OSError as error:
            ours.close()
            raise RunError(
                f"The system does not start another process of this run ({error.strerror}). Give "
                "`workers=1`."
            ) from None
        finally:
            theirs.close()
        self._forks[ours] = process.pid
        self._process = process
        return ours

    def close(self) -> None:
        """Ends the process, and all that it has forked with it."""
        super().close()
        if self._process is not None:
            self._process.wait()


def in_new_process(function: Callable[..., _Out], *arguments: Any) -> _Out:
    """Returns the value of a function in a new process, which may fork.

    A fork of this process could wait for ever, since it has the locks of other threads, and none of the
    threads. After an error or an interrupt the new process has ended, with all that it has forked.

    Raises:
      RunError: the process cannot be started, or was ended.
      Exception: what the function raises.
    """
    with contextlib.closing(_New(iter, 1)) as processes:
        values = list(processes.stream([(function, arguments)]))
    return values[0]


def can_be_sent(value: object) -> bool:
    """Whether a new process of this system can be given a value; not so a function of a notebook."""
    if not can_fork() or not sys.executable:
        return False
    of_main = _OfMain()
    try:
        of_main.dump(value)
    except Exception:
        return False
    return not of_main.found


class _OfMain(pickle.Pickler):
    """Looks for functions and classes of `__main__`, which another process does not have.

    Attributes:
      found: whether there is one.
    """

    def __init__(self) -> None:
        super().__init__(io.BytesIO(), protocol=5, buffer_callback=lambda _: None)
        self.found = False

    def reducer_override(self, obj: Any) -> Any:
        """Notes where a function or a class is defined, and leaves all objects as they are."""
        if isinstance(obj, type | types.FunctionType) and obj.__module__ == "__main__":
            self.found = True
        return NotImplemented


def serve_parent(handle: int, parent: int) -> None:
    """Answers calls of the process that has started this one, until it ends."""
    _end_with(parent)
    keep_freed_memory()
    with socket.socket(fileno=handle) as theirs:
        progress.mirror_to(lambda snapshot: _say_progress(theirs, snapshot))
        _serve(theirs, _called)


def _called(call: tuple[Callable[..., _Out], tuple[Any, ...]]) -> Iterator[_Out]:
    """Yields the value of a function for its arguments."""
    function, arguments = call
    yield function(*arguments)


def keep_freed_memory() -> None:
    """Has this process and its forks use memory that they free for the arrays that they make next.

    Else the C library gives large arrays back to the system, which clears each page that it gives out
    anew. That took a third of the system's time of a run, and a larger part with many processes.
    """
    # Only the C library of GNU keeps memory so.
    library = ctypes.CDLL(None) if sys.platform == "linux" else None
    if hasattr(library, "mallopt"):
        for parameter, size in _KEPT.items():
            library.mallopt(parameter, size)


@functools.cache
def can_fork() -> bool:
    """Whether this system has what forks need: Linux, and memory without a name, `memfd_create`.

    Some containers refuse it, and Python lacks it where it was made for old systems. A file would do,
    but what is written there is as secret as the data, and must not reach a disk.
    """
    if sys.platform != "linux":
        return False
    try:
        os.close(os.memfd_create("beam_dpne"))
    except (AttributeError, OSError):
        return False
    return True


def most_forks(workers: int, parts: int) -> int:
    """Returns how many forks have work, if it has so many parts; with 0, this process does it."""
    most = min(workers, parts)
    return most if most > 1 and can_fork() else 0


def answers(
    answer: Callable[[_In], Generator[_Out, None, None]], requests: Iterable[_In], workers: int
) -> Generator[_Out, None, None]:
    """Yields the values of the answers to requests, of which forks take so many at the same time.

    Requests that are generated are generated here, while forks answer those before.

    One worker answers here, in order. At the end, also after an error or if this is closed, no fork is
    left and the answers are closed.
    """
    if most := most_forks(workers, operator.length_hint(requests, workers)):
        with contextlib.closing(Processes(answer, most)) as forks:
            yield from forks.stream(requests)
        return
    for request in requests:
        with contextlib.closing(answer(request)) as values:
            yield from values


def _end_with(parent: int) -> None:
    """Has the system end this fork with its parent, also in the middle of a computation.

    Else what it holds of the data would stay for so long, and so would the locks of the run. Closed
    sockets alone do not tell it: forks that were made later hold the parent's ends, too.
    """
    ctypes.CDLL(None).prctl(_END_WITH_PARENT, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(0)


def _serve(parent: socket.socket, answer: Callable[..., Iterable[Any]]) -> None:
    """Answers requests until the parent has ended."""
    while True:
        is_done = True
        try:
            files = _received(parent)
            if not files:
                return
            for value in answer(*map(read, files)):
                # The parent says when it is done with a value; the next one is computed meanwhile.
                is_done = is_done or bool(parent.recv(1))
                _say(parent, _VALUE, value)
                is_done = False
        except BaseException as error:
            # The parent raises it, and its traceback of this process would be lost.
            note = "".join(traceback.format_exception(error))
            raised: BaseException = RuntimeError(type(error).__name__)
            with contextlib.suppress(Exception):
                raised = pickle.loads(pickle.dumps(error))  # noqa: S301
            raised.add_note(note)
            _say(parent, _ERROR, raised)
        else:
            is_done = is_done or bool(parent.recv(1))
            progress.tell_all()
            parent.send(bytes([_END]))


def _received(parent: socket.socket) -> list[int]:
    """Returns the files of a request, and of what comes with it; none if the parent has ended."""
    files: list[int] = []
    said = _MORE
    try:
        while said == _MORE:
            said, more = _taken(parent, 1, _FILES_OF_A_MESSAGE)
            files += more
    except RunError:
        # The error itself is told in a file.
        for file in files:
            os.close(file)
        raise
    return files


def _say_progress(parent: socket.socket, said: list[progress.Step] | progress.Snapshot) -> None:
    parent.send(bytes([_PROGRESS]) + pickle.dumps(said))


def _say(parent: socket.socket, kind: int, value: Any) -> None:
    """Sends a value or an error, after the progress that led to it."""
    progress.tell_all()
    with written(value) as file:
        _send_files(parent, bytes([kind]), [file])
