"""Forks that answer requests: all cores, nothing lost, and none left behind."""

import errno
import itertools
import mmap
import os
import pathlib
import resource
import signal
import subprocess
import sys
import time
import types
from contextlib import closing

import numpy as np
import pyarrow as pa
import pytest

from beam_dpne.elements import processes, progress
from beam_dpne.elements.processes import (
    Processes,
    answers,
    can_be_sent,
    in_new_process,
    most_forks,
)
from beam_dpne.errors import InputError, RunError, printable_reason
from tests.conftest import ROOT

SECONDS = 120


def wait_until(is_so) -> None:
    end = time.monotonic() + SECONDS
    while not is_so():
        assert time.monotonic() < end
        time.sleep(0.01)


@pytest.fixture
def shared():
    """A byte for each of some flags, which forks write and all processes see."""
    return mmap.mmap(-1, 64)


@pytest.fixture(autouse=True)
def no_fork_is_left():
    yield
    with pytest.raises(ChildProcessError):
        os.waitpid(-1, os.WNOHANG)


def test_every_value_of_every_answer_comes_once():
    with closing(Processes(range, 3)) as forks:
        assert sorted(forks.stream(range(20))) == sorted(n for m in range(20) for n in range(m))


@pytest.mark.parametrize("size", [0, 1, 1000, 3_000_000])
def test_arrays_arrive_as_they_are_and_cannot_be_written(size):
    numbers, words = np.arange(size), pa.array([f"w{n % 7}" for n in range(size % 5000)])
    given = {
        "numbers": numbers,
        "part": numbers[::3],
        "words": words,
        "table": numbers.reshape(-1, 1),
    }
    batch = pa.RecordBatch.from_arrays([words], ["words"])
    with closing(Processes(lambda request: [request], 1)) as forks:
        ((found, other),) = forks.stream([(given, batch)])
    for name in ("numbers", "part", "table"):
        assert np.array_equal(found[name], given[name])
    assert found["words"] == words
    assert other == batch
    if size:
        with pytest.raises(ValueError, match="read-only"):
            found["numbers"][0] = 1


def test_forks_work_at_the_same_time(shared):
    def meet(number: int):
        shared[number] = 1
        wait_until(lambda: shared[0] and shared[1])
        yield number

    with closing(Processes(meet, 2)) as forks:
        assert sorted(forks.stream(range(2))) == [0, 1]


def test_one_value_is_computed_in_advance_and_no_further(shared):
    def count(_):
        for number in range(5):
            shared[0] = number + 1
            yield number

    with closing(Processes(count, 1)) as forks:
        values = forks.stream([None])
        assert next(values) == 0
        wait_until(lambda: shared[0] == 2)
        time.sleep(0.1)
        assert shared[0] == 2
        assert list(values) == [1, 2, 3, 4]


def test_a_fork_begins_with_what_its_parent_has_and_keeps_what_it_is_given():
    kept = ["parent's"]

    def keep(request):
        if request is None:
            yield list(kept)
        else:
            kept.append(request)

    with closing(Processes(keep, 3)) as forks:
        assert list(forks.stream("abcdef")) == []
        found = list(forks.all(None))
    assert kept == ["parent's"]
    assert all(each[0] == "parent's" for each in found)
    assert sorted(given for each in found for given in each[1:]) == list("abcdef")


@pytest.mark.parametrize("most", [250, 2])
def test_all_forks_are_given_what_all_have_answered_however_many_they_are(most, monkeypatch):
    monkeypatch.setattr(processes, "_FILES_OF_A_MESSAGE", most)
    before = len(os.listdir("/proc/self/fd"))

    def answer(request, *gathered):
        yield request, sorted(gathered)

    with closing(Processes(answer, 5)) as forks:
        assert len(list(forks.stream(range(5)))) == 5
        forks.gather("one")
        assert list(forks.all("two")) == [("two", [("one", [])] * 5)] * 5
        # What was gathered is given once.
        assert list(forks.all("three")) == [("three", [])] * 5
        forks.gather("four")
    assert len(os.listdir("/proc/self/fd")) == before


MANY_FORKS = """
import resource, time
from contextlib import closing
from beam_dpne.elements.processes import Processes

resource.setrlimit(resource.RLIMIT_NOFILE, (90, 90))

def answer(request, *gathered):
    if not gathered:
        time.sleep(0.01)
    yield len(gathered)

with closing(Processes(answer, 24)) as forks:
    list(forks.stream(range(24)))
    for _ in range(20):
        forks.gather("one")
        assert list(forks.all("two")) == [24] * 24
"""


def test_many_forks_of_a_plain_user_are_given_what_is_gathered():
    """What such a user has on the way between processes is limited, as what a process has open."""
    command = [sys.executable, "-c", MANY_FORKS]
    if os.geteuid() == 0:
        command = ["setpriv", "--bounding-set", "-sys_resource,-sys_admin", *command]
    ended = subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=300
    )
    assert ended.returncode == 0, ended.stderr


@pytest.mark.parametrize("most", [250, 2])
def test_files_that_a_fork_cannot_open_end_the_run_and_are_not_left_out(most, monkeypatch):
    """Else a fork would go on without the sums of some of the others."""
    monkeypatch.setattr(processes, "_FILES_OF_A_MESSAGE", most)

    def answer(request, *gathered):
        if request == "one":
            # Two more files can be opened.
            taken = {*map(int, os.listdir("/proc/self/fd"))}
            free = (number for number in itertools.count() if number not in taken)
            hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
            resource.setrlimit(
                resource.RLIMIT_NOFILE, (next(itertools.islice(free, 2, None)), hard)
            )
        yield len(gathered)

    with closing(Processes(answer, 6)) as forks:
        list(forks.stream(range(6)))
        forks.gather("one")
        with pytest.raises(RunError, match=r"more files open than the system allows.*ulimit -n"):
            list(forks.all("two"))


def test_no_more_forks_than_there_is_work_for():
    with closing(Processes(lambda _: [os.getpid()], 8)) as forks:
        assert len(set(forks.stream([1]))) == 1
        assert len(list(forks.all(2))) == 1
    assert (most_forks(4, 3), most_forks(4, 1), most_forks(1, 4), most_forks(4, 9)) == (3, 0, 0, 4)


def test_an_error_of_a_fork_is_raised_with_its_traceback():
    def fail(number):
        yield number
        raise InputError("x.csv cannot be read.")

    with closing(Processes(fail, 2)) as forks, pytest.raises(InputError, match=r"x.csv") as caught:
        list(forks.stream(range(4)))
    assert printable_reason(caught.value) == "x.csv cannot be read."
    assert "in fail" in caught.value.__notes__[0]


def test_a_fork_that_the_system_ends_ends_the_run():
    def end(_):
        os.kill(os.getpid(), signal.SIGKILL)
        yield

    with closing(Processes(end, 2)) as forks, pytest.raises(RunError, match="want of memory"):
        list(forks.stream(range(2)))


CALLER = """
import os, sys, time
from contextlib import closing
from beam_dpne.elements.processes import Processes

def answer(_):
    yield os.getpid()
    time.sleep(int(sys.argv[1]))

with closing(Processes(answer, 2)) as forks:
    for pid in forks.stream(range(2)):
        print(pid, flush=True)
    input()
"""


@pytest.mark.parametrize("seconds", ["0", "1000"], ids=["idle", "at work"])
def test_forks_end_with_a_caller_that_is_killed(seconds):
    """Else the data stay in memory, and the lock of the run stays for the run that repeats it."""
    run = [sys.executable, "-c", CALLER, seconds]
    with subprocess.Popen(run, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as parent:
        pids = {parent.stdout.readline().strip() for _ in range(2)}
        assert all(pathlib.Path("/proc", pid).exists() for pid in pids)
        parent.kill()
    wait_until(lambda: not any(is_alive(pid) for pid in pids))


def is_alive(pid: str) -> bool:
    status = pathlib.Path("/proc", pid, "stat")
    return status.exists() and status.read_text().rpartition(")")[2].split()[0] != "Z"


def test_the_steps_of_a_fork_are_those_of_its_parent():
    progress.reset()

    def step(number):
        progress.enter("users", 2, 1)
        progress.advance_bytes(10)
        return []

    with progress.counting(range(4)), closing(Processes(step, 2)) as forks:
        assert list(forks.stream(range(4))) == []
    now = progress.snapshot()
    assert (now.stage, now.length, now.round, now.parts) == ("users", 2, 1, 4)
    assert (now.done, now.bytes_read) == (3, 40)
    progress.reset()


def test_forks_tell_all_their_steps_in_few_messages(monkeypatch):
    messages = []
    take = progress.take
    monkeypatch.setattr(progress, "take", lambda said: messages.append(said) or take(said))
    progress.reset()

    def step(number):
        for _ in range(2_000):
            progress.advance_bytes(1)
        yield number
        # What is said after the last value is told, too.
        progress.advance()

    with progress.counting(range(3)), closing(Processes(step, 2)) as forks:
        told = [progress.snapshot().bytes_read for _ in forks.stream(range(3))]
    now = progress.snapshot()
    progress.reset()
    # Each value comes after what its fork has said before it.
    assert told[0] >= 2_000
    assert (now.bytes_read, now.done) == (6_000, 3)
    assert 3 <= len(messages) <= 60


class Odd(Exception):
    """It cannot be pickled."""

    def __init__(self):
        super().__init__(lambda: 1)


def test_an_error_that_cannot_travel_is_named():
    def fail(_):
        raise Odd
        yield

    with (
        closing(Processes(fail, 1)) as forks,
        pytest.raises(RuntimeError, match=r"^Odd") as caught,
    ):
        list(forks.stream([1]))
    assert "raise Odd" in caught.value.__notes__[0]


def _file_of(array: np.ndarray) -> str:
    """Returns the file in which an array lies."""
    for line in pathlib.Path("/proc/self/maps").read_text().splitlines():
        place, *_ = line.split()
        start, end = (int(number, 16) for number in place.split("-"))
        if start <= array.ctypes.data < end:
            return line
    raise AssertionError("the array lies nowhere")


def test_what_forks_are_told_and_say_lies_in_files_without_names():
    """Private texts in named files would stay when a process is killed."""
    array = np.arange(10**5)

    def answer(told):
        yield _file_of(told), told

    with closing(Processes(answer, 1)) as forks:
        ((asked, said),) = forks.stream([array])
        assert "/memfd:beam_dpne" in asked
        assert "/memfd:beam_dpne" in _file_of(said)


@pytest.mark.parametrize("later", ["the next value", "the next request"])
def test_a_fork_that_is_ended_later_ends_the_run_too(later):
    with closing(Processes(lambda _: [os.getpid(), 2, 3], 1)) as forks:
        answer = forks.stream([1, 2])
        pid = next(answer)
        if later == "the next request":
            assert [next(answer), next(answer)] == [2, 3]
        os.kill(pid, signal.SIGKILL)
        time.sleep(0.2)
        with pytest.raises(RunError):
            list(answer)


def test_somebody_else_may_reap_forks():
    before = signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    try:
        with closing(Processes(lambda request: [request], 2)) as forks:
            assert sorted(forks.stream(range(5))) == list(range(5))
    finally:
        signal.signal(signal.SIGCHLD, before)


def test_a_lock_of_another_thread_does_not_stop_a_fork():
    def step(_):
        with progress.counting(range(3)):
            yield 1

    with progress._now.lock, closing(Processes(step, 1)) as forks:
        assert list(forks.stream([1])) == [1]


def test_a_fork_that_cannot_be_made_is_told_and_leaves_signals_as_they_were(monkeypatch):
    def refuse():
        raise BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN))

    monkeypatch.setattr(os, "fork", refuse)
    with closing(Processes(range, 1)) as forks, pytest.raises(RunError, match="smaller number"):
        list(forks.stream([1]))
    assert signal.pthread_sigmask(signal.SIG_BLOCK, ()) & {signal.SIGINT, signal.SIGTERM} == set()


def test_signals_end_forks_and_only_the_parent_hears_an_interrupt(shared):
    def sleep(_):
        shared[0] = 1
        wait_until(lambda: shared[1])
        yield os.getpid()

    with closing(Processes(sleep, 1)) as forks:
        answer = forks.offer(1)
        assert list(answer) == []
        wait_until(lambda: shared[0])
        (fork,) = forks._forks.values()
        os.kill(fork, signal.SIGINT)
        time.sleep(0.1)
        shared[1] = 1
        assert list(forks.rest()) == [fork]
        os.kill(fork, signal.SIGTERM)
        assert os.waitpid(fork, 0)[1] == signal.SIGTERM
    assert signal.pthread_sigmask(signal.SIG_BLOCK, ()) & {signal.SIGINT, signal.SIGTERM} == set()


def in_forks(numbers):
    """What a new process does that forks: squares, and progress of its own and of its forks."""

    def squares(number):
        progress.advance_bytes(number)
        yield number * number

    with progress.counting(numbers):
        progress.enter("users", 2)
        return sorted(answers(squares, numbers, 2)), os.getppid()


def test_a_new_process_gives_the_value_of_a_function_and_its_progress():
    progress.reset()
    found, parent = in_new_process(in_forks, [1, 2, 3])
    assert (found, parent) == ([1, 4, 9], os.getpid())
    now = progress.snapshot()
    assert (now.stage, now.length, now.parts, now.bytes_read) == ("users", 2, 3, 6)
    progress.reset()


def stay(folder):
    """Names this process and its forks by files, and does not end."""

    def name(_):
        pathlib.Path(folder, str(os.getpid())).touch()
        time.sleep(1000)
        yield

    pathlib.Path(folder, str(os.getpid())).touch()
    list(answers(name, [1, 2], 2))


def test_a_new_process_and_its_forks_end_with_a_caller_that_is_killed(tmp_path):
    code = (
        "import sys; from beam_dpne.elements.processes import in_new_process; "
        "from tests.elements.test_processes import stay; in_new_process(stay, sys.argv[1])"
    )
    with subprocess.Popen([sys.executable, "-c", code, tmp_path], cwd=ROOT) as caller:
        try:
            wait_until(lambda: len(list(tmp_path.iterdir())) == 3)
        finally:
            caller.kill()
    wait_until(lambda: not any(is_alive(path.name) for path in tmp_path.iterdir()))


def faults_of_freed_arrays() -> tuple[int, int]:
    """The faults of the first and of the last turn in which ten arrays of 3 MB are made and freed."""
    faults = []
    for _ in range(5):
        before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
        for array in [np.ones(3 * 2**17) for _ in range(10)]:
            del array
        faults.append(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
    return faults[0], faults[-1]


def test_a_new_process_makes_arrays_in_memory_that_it_has_freed():
    first, last = in_new_process(faults_of_freed_arrays)
    # 30 MB are 7,680 pages; without the thresholds the system clears all of them in each turn.
    assert first > 7000
    assert last < 100


def fail(text):
    raise InputError(text)


def end_itself():
    os.kill(os.getpid(), signal.SIGKILL)


def test_an_error_in_a_new_process_is_raised_and_its_end_is_noticed():
    with pytest.raises(InputError, match="no such field"):
        in_new_process(fail, "no such field")
    with pytest.raises(RunError, match="want of memory"):
        in_new_process(end_itself)


def test_only_what_another_process_can_find_is_sent_to_it():
    found = types.FunctionType(fail.__code__, {}, "fail")
    found.__module__ = "__main__"
    for value, expected in ((fail, True), (found, False), (lambda: 1, False)):
        assert can_be_sent([value, pa.table({"a": [1]})]) is expected
