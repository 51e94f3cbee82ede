"""Whole child processes, measured: wall time, CPU time, peak memory of the process tree."""

import contextlib
import dataclasses
import os
import pathlib
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Mapping, Sequence
from types import MappingProxyType

import psutil

from tests.benchmarks.inputs import ROOT

_SAMPLE_SECONDS = 0.02
_SAMPLES_PER_LISTING = 10  # to list a tree is dear: it reads every process of the machine
_MAXRSS_BYTES = 1 if sys.platform == "darwin" else 1024


@dataclasses.dataclass(frozen=True)
class Run:
    """Cost of one child: seconds, user and system seconds, bytes, user seconds."""

    wall: float
    cpu: float
    peak: float
    user: float


class _MemoryWatch(threading.Thread):
    """Samples the resident memory of a process and its descendants; shared pages count in each."""

    def __init__(self, pid: int):
        super().__init__(daemon=True)
        self._root = psutil.Process(pid)
        self._done = threading.Event()
        self._peak = 0

    def run(self) -> None:
        samples, tree = 0, [self._root]
        while not self._done.wait(_SAMPLE_SECONDS):
            if samples % _SAMPLES_PER_LISTING == 0:
                with contextlib.suppress(psutil.Error):
                    tree = [self._root, *self._root.children(recursive=True)]
            samples += 1
            self._peak = max(self._peak, sum(map(_resident, tree)))

    def stop(self) -> int:
        """Returns the peak, in bytes."""
        self._done.set()
        self.join()
        return self._peak


def run(command: Sequence[str], status: int = 0, output: pathlib.Path | None = None) -> Run:
    """Runs Python with these arguments and --output, which by default is fresh and thrown away.

    Raises:
      RuntimeError: if its exit status is another.
    """
    with tempfile.TemporaryDirectory() as work, tempfile.TemporaryFile() as log:
        target = str(output or pathlib.Path(work) / "output")
        start = time.perf_counter()
        with start_python([*command, "--output", target], log) as child:
            watch = _MemoryWatch(child.pid)
            watch.start()
            _, ended, usage = os.wait4(child.pid, 0)
            wall = time.perf_counter() - start
            child.returncode = os.waitstatus_to_exitcode(ended)
            sampled = watch.stop()
        _check(child, log, status)
    largest = usage.ru_maxrss * _MAXRSS_BYTES  # of one process; sampling may miss a short peak
    cpu = usage.ru_utime + usage.ru_stime
    return Run(wall, cpu, max(sampled, largest), usage.ru_utime)


def run_module(module: str, *arguments: str) -> None:
    """Runs a module of the benchmarks in a process of its own."""
    with tempfile.TemporaryFile() as log:
        with start_python(["-m", f"tests.benchmarks.{module}", *arguments], log) as child:
            child.wait()
        _check(child, log)


def answer(code: str) -> str:
    """Runs a line of Python in a new process, and returns what it prints.

    A library that this process imported would show up in the peak memory of its children.
    """
    with tempfile.TemporaryFile() as log, tempfile.TemporaryFile() as printed:
        with start_python(["-c", code], log, printed) as child:
            child.wait()
        _check(child, log)
        printed.seek(0)
        return printed.read().decode().strip()


def start_python(command: Sequence[str], log, output=subprocess.DEVNULL) -> subprocess.Popen:
    """Starts Python in the repository, with the repository's packages; bytecode is kept."""
    path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
    environment = {**os.environ, "PYTHONPATH": path}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)  # to compile again is no start-up of a user
    return subprocess.Popen(
        [sys.executable, *command],
        cwd=ROOT,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=output,
        stderr=log,
    )


def interleaved(
    commands: Mapping[str, Sequence[str]],
    repeats: int,
    *,
    warm_up: bool = False,
    statuses: Mapping[str, int] = MappingProxyType({}),
) -> dict[str, list[Run]]:
    """Runs the commands in turn, again and again: what slows the machine slows all of them.

    Args:
      commands: arguments of Python by name.
      repeats: how often each is measured.
      warm_up: whether each runs once before that.
      statuses: exit statuses that are not 0 and right.
    """
    runs: dict[str, list[Run]] = {name: [] for name in commands}
    for repeat in range(0 if warm_up else 1, repeats + 1):
        for name, command in commands.items():
            turn = f"{repeat} of {repeats}" if repeat else "before"
            print(f"  {turn}: {name}", end="", file=sys.stderr, flush=True)
            found = run(command, statuses.get(name, 0))
            print(f", {found.wall:.2f} s", file=sys.stderr)
            if repeat:
                runs[name].append(found)
    return runs


def _resident(process: psutil.Process) -> int:
    try:
        return process.memory_info().rss
    except psutil.Error:  # it has ended
        return 0


def _check(child: subprocess.Popen, log, status: int = 0) -> None:
    if child.returncode != status:
        log.seek(0)
        raise RuntimeError(f"{child.args} exited with {child.returncode}:\n{log.read().decode()}")
