"""A signal ends a run wherever Python calls its handler."""

import contextlib
import os
import signal
import subprocess
import sys
import time
import weakref

import apache_beam as beam
import pytest
from apache_beam.runners.portability.fn_api_runner import FnApiRunner

from beam_dpne import engines
from beam_dpne.interrupts import Interrupts


class _Signals:
    """An object whose finalizer is interrupted by a signal."""

    def __init__(self, number):
        self._number = number

    def __del__(self):
        os.kill(os.getpid(), self._number)
        time.sleep(0)


class _Referred:
    """An object with a weak reference to it."""


def _sleep_without(*objects):
    """Drops the last references to objects one after the other, and sleeps."""
    left = list(objects)
    del objects
    while left:
        left.pop(0)
    time.sleep(5)


@pytest.mark.usefixtures("hangups")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_during_a_finalizer_still_interrupts(number, capsys):
    with Interrupts() as interrupts:
        with pytest.raises(KeyboardInterrupt):
            _sleep_without(_Signals(number))
        assert interrupts.received == number
    assert capsys.readouterr().err == ""


def test_a_signal_during_the_callback_of_a_weak_reference_still_interrupts():
    called = []

    def call(_reference):
        called.append(True)
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(0)

    def sleep():
        referred = _Referred()
        reference = weakref.ref(referred, call)
        del referred
        time.sleep(5)
        return reference

    with Interrupts(), pytest.raises(KeyboardInterrupt):
        sleep()
    assert called == [True]


def test_a_signal_that_is_lost_twice_still_interrupts():
    class Sleeps:
        def __del__(self):
            ended.append(False)
            time.sleep(0.3)  # The exception that is raised again falls into this finalizer.
            ended[0] = True

    ended = []
    with Interrupts(), pytest.raises(KeyboardInterrupt):
        _sleep_without(_Signals(signal.SIGTERM), Sleeps())
    assert ended == [False]


def test_ctrl_c_of_another_handler_is_not_lost_either():
    """The handler of Python itself, which engines.run leaves in place."""
    with Interrupts([signal.SIGTERM]), pytest.raises(KeyboardInterrupt):
        _sleep_without(_Signals(signal.SIGINT))


def test_other_errors_of_finalizers_are_reported_as_before(monkeypatch):
    reported = []
    monkeypatch.setattr(sys, "unraisablehook", lambda error: reported.append(error.exc_type))

    class Breaks:
        def __del__(self):
            raise RuntimeError("broken")

    with Interrupts() as interrupts:
        breaks = Breaks()
        del breaks
    assert (reported, interrupts.received) == ([RuntimeError], 0)


def test_handlers_and_the_hook_are_those_of_before_at_the_end():
    def current():
        numbers = (signal.SIGINT, signal.SIGTERM)
        return [*map(signal.getsignal, numbers), sys.unraisablehook]

    before = current()
    with Interrupts():
        assert current() != before
    assert current() == before


def test_handlers_of_others_are_kept():
    before = signal.signal(signal.SIGTERM, signal.SIG_IGN)
    try:
        with Interrupts() as interrupts:
            os.kill(os.getpid(), signal.SIGTERM)
            time.sleep(0.1)
        assert interrupts.received == 0
    finally:
        signal.signal(signal.SIGTERM, before)


@pytest.mark.parametrize("first", ["SIGTERM", "SIGINT"])
def test_a_second_signal_ends_the_process_at_once(first):
    program = (
        "import os, signal, time\n"
        "from beam_dpne.interrupts import Interrupts\n"
        "with Interrupts():\n"
        "    try:\n"
        f"        os.kill(os.getpid(), signal.{first})\n"
        "        time.sleep(5)\n"
        "    except KeyboardInterrupt:\n"
        "        os.kill(os.getpid(), signal.SIGTERM)\n"
        "        time.sleep(5)\n"
    )
    assert (
        subprocess.run([sys.executable, "-c", program], check=False).returncode == -signal.SIGTERM
    )


AT_ONCE = """
import os, signal, sys, time
from beam_dpne.interrupts import Interrupts

def at_once():
    print("called", flush=True)
    if sys.argv[1] == "hangs":
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(5)

with Interrupts(at_once=at_once):
    try:
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(5)
    except KeyboardInterrupt:
        os.kill(os.getpid(), signal.SIGHUP)
        time.sleep(5)
"""


@pytest.mark.usefixtures("hangups")
@pytest.mark.parametrize(("how", "ended_by"), [("ends", signal.SIGHUP), ("hangs", signal.SIGTERM)])
def test_a_second_signal_has_a_last_call_and_a_third_one_does_not_wait_for_it(how, ended_by):
    command = [sys.executable, "-c", AT_ONCE, how]
    ended = subprocess.run(command, check=False, capture_output=True, text=True, timeout=4)
    assert (ended.returncode, ended.stdout, ended.stderr) == (-ended_by, "called\n", "")


def test_a_signal_that_is_ignored_stays_so():
    """As SIGHUP is under nohup."""
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with Interrupts() as interrupts:
            os.kill(os.getpid(), signal.SIGHUP)
            time.sleep(0.1)
        assert interrupts.received == 0
    finally:
        signal.signal(signal.SIGHUP, before)


# A program that says when it begins to load its modules.
LOADS = """
import sys
from beam_dpne.cli import start

class Finder:
    def find_spec(self, name, *_):
        if name == "beam_dpne.cli.main":
            sys.meta_path.remove(self)
            print("loads", flush=True)

sys.meta_path.insert(0, Finder())
sys.exit(start.main())
"""


def test_ctrl_c_while_the_program_loads_shows_no_traceback():
    command = [sys.executable, "-c", LOADS, "ngrams"]
    statuses = []
    for milliseconds in (1, 2, 4, 6, 8, 12, 20, 40, 60):
        piped = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
        with subprocess.Popen(command, **piped) as process:
            assert process.stdout.readline() == "loads\n"
            time.sleep(milliseconds / 1000)
            process.send_signal(signal.SIGINT)
            _, err = process.communicate(timeout=30)
        assert "Traceback" not in err
        statuses.append(process.returncode)
    assert -signal.SIGINT in statuses
    assert set(statuses) <= {-signal.SIGINT, 128 + signal.SIGINT, 2}


def test_the_alarm_of_a_caller_still_comes():
    came = []
    before = signal.signal(signal.SIGALRM, lambda *_: came.append(True))
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.2)
        with Interrupts():
            pass
        time.sleep(0.4)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert came == [True]


def test_a_lost_signal_is_not_raised_after_the_run_has_ended():
    before = signal.getsignal(signal.SIGALRM)
    with Interrupts() as interrupts:
        sender = _Signals(signal.SIGTERM)
        del sender
        interrupts.settle()
        assert interrupts.received == signal.SIGTERM
        time.sleep(0.2)
    assert signal.getsignal(signal.SIGALRM) == before


def test_sigterm_that_a_library_drops_still_ends_the_process(monkeypatch):
    ended = []
    monkeypatch.setattr(signal, "raise_signal", ended.append)

    def drops(_element):
        with contextlib.suppress(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGTERM)
            time.sleep(1)

    pipeline = beam.Pipeline(runner=FnApiRunner())
    _ = pipeline | beam.Create([1]) | beam.Map(drops)
    engines.run(pipeline)
    assert ended == [signal.SIGTERM]
