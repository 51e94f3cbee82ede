"""CPU time and memory of the programs that take part in a job: launcher, engine, Python harnesses."""

import contextlib
import dataclasses
import threading
from collections.abc import Callable, Iterable, Mapping

import psutil

_SAMPLE_SECONDS = 0.1
_SAMPLES_PER_LISTING = 5  # to list descendants reads every process of the machine
LAUNCHER, ENGINE, HARNESS = "launcher", "engine", "harness"
KINDS = (LAUNCHER, ENGINE, HARNESS)


@dataclasses.dataclass
class Cost:
    """What one kind of process took.

    Attributes:
      cpu: User and system seconds of all processes of this kind together.
      peak: Most resident memory that one process of this kind had, in bytes.
    """

    cpu: float = 0.0
    peak: int = 0


class Sampler(threading.Thread):
    """Samples processes and their descendants until its context ends; a peak of .1 s may be missed.

    Attributes:
      costs: what each kind of process took, once the context has ended.
      together: most resident memory of all processes at one time, in bytes. Pages that a harness
        shares with the pool from which it was forked count in both.
    """

    def __init__(self, roots: Callable[[], Iterable[int]]):
        """Takes a function that returns the processes with which a listing begins."""
        super().__init__(daemon=True)
        self.costs: dict[str, Cost] = {}
        self.together = 0
        self._roots = roots
        self._ended = threading.Event()
        self._before: dict[psutil.Process, float] = {}
        self._last: dict[psutil.Process, tuple[str, float, int]] = {}
        self._known: dict[psutil.Process, str] = {}
        self._samples = 0

    def __enter__(self) -> "Sampler":
        self._before = {process: cpu for process, _, cpu, _ in self._sample()}
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self.join()
        for process, (kind, cpu, peak) in self._last.items():
            cost = self.costs.setdefault(kind, Cost())
            cost.cpu += cpu - self._before.get(process, 0.0)
            cost.peak = max(cost.peak, peak)

    def run(self) -> None:
        """Samples; called by `start`."""
        while True:
            self._take()
            if self._ended.wait(_SAMPLE_SECONDS):
                return self._take()

    def _take(self) -> None:
        together = 0
        for process, kind, cpu, resident in self._sample():
            _, _, peak = self._last.get(process, ("", 0.0, 0))
            self._last[process] = kind, cpu, max(peak, resident)
            together += resident
        self.together = max(self.together, together)

    def _sample(self) -> list[tuple[psutil.Process, str, float, int]]:
        found = []
        if self._samples % _SAMPLES_PER_LISTING == 0:
            kinds = {process: kind_of(process) for process in self._processes()}
            self._known = {process: kind for process, kind in kinds.items() if kind}
        self._samples += 1
        for process, kind in self._known.items():
            with contextlib.suppress(psutil.Error), process.oneshot():
                times, resident = process.cpu_times(), process.memory_info().rss
                found.append((process, kind, times.user + times.system, resident))
        return found

    def _processes(self) -> set[psutil.Process]:
        found = set()
        for pid in self._roots():
            with contextlib.suppress(psutil.Error):
                root = psutil.Process(pid)
                found |= {root, *root.children(recursive=True)}
        return found


def kind_of(process: psutil.Process) -> str | None:
    """Returns whether a process is Python of the launcher or of a pool, or else the engine's program.

    It is None for a process that has ended. It is also None while a process has no command line, which
    is so while the system takes its memory back, and for a moment when it begins to run a program.
    """
    try:
        name, command = process.name(), process.cmdline()
    except psutil.Error:
        return None
    if not command:
        return None
    if "python" not in f"{name} {command[:1]}" and not name.startswith("harness:"):
        return ENGINE
    pools = ("worker_pool", "worker_pool_main", "sdk_worker_main")
    return HARNESS if any(part.endswith(pools) for part in command) else LAUNCHER


def as_json(costs: Mapping[str, Cost]) -> dict[str, dict[str, float]]:
    """Returns costs as JSON has them, in seconds and MB."""
    return {
        kind: {"cpu": round(of.cpu, 2), "megabytes": round(of.peak / 1e6)}
        for kind, of in costs.items()
    }
