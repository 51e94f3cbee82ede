"""Where the product's time goes: functions by own CPU time, sampled over all its threads.

A sampler has no hooks in the code, so it costs little, and lines that spend their time in numpy or
Arrow count for the function they stand in. A line that keeps the interpreter's lock is seen when it
lets go, which may be a line later.
"""

import collections
import json
import linecache
import pathlib
import sys
import threading
import time
import types
from typing import NamedTuple

from tests.benchmarks.measure import run_module
from tests.benchmarks.report import Figure, Listing, Report
from tests.benchmarks.workloads import Setting, Workload

_INTERVAL = 0.002
_SWITCH_INTERVAL = 2e-5  # else the sampler waits until a thread lets go of the lock by itself
_TOP = 15


class Place(NamedTuple):
    """A line of a function."""

    file: str
    function: str
    line: int


class Profile(NamedTuple):
    """CPU seconds seen, and the top functions: seconds, function, busiest line."""

    seconds: float
    top: list[tuple[float, str, str]]


class Sampler(threading.Thread):
    """Charges each thread's CPU time to the line that it is found at."""

    def __init__(self):
        super().__init__(daemon=True)
        self.seconds: collections.Counter[Place] = collections.Counter()
        self._done = threading.Event()
        self._clocks: dict[int, float] = {}

    def run(self) -> None:
        while not self._done.wait(_INTERVAL):
            for thread, frame in sys._current_frames().items():
                if thread != self.ident:
                    self.seconds[_place(frame)] += self._advance(thread)

    def stop(self) -> collections.Counter[Place]:
        """Returns the seconds of each line."""
        self._done.set()
        self.join()
        return self.seconds

    def _advance(self, thread: int) -> float:
        try:
            now = time.clock_gettime(time.pthread_getcpuclockid(thread))
        except OSError:  # the thread ended after its frame was read
            return 0.0
        before = self._clocks.get(thread, now)
        self._clocks[thread] = now
        return max(0.0, now - before)


def measure(setting: Setting) -> Report:
    """One run of each workload under the sampler; no start of the interpreter."""
    figures, listings = [], []
    for workload in setting.workloads():
        profile = _profile(setting, workload)
        share = 100 * profile.top[0][0] / profile.seconds
        figures += [
            Figure("profile", f"{workload.name}, CPU time sampled", [profile.seconds], "s"),
            Figure("profile", f"{workload.name}, share of the busiest function", [share], "%"),
        ]
        rows = [(100 * row[0] / profile.seconds, *row) for row in profile.top]
        headings = ("%", "own seconds", "function", "its busiest line")
        listings.append(Listing(f"Profile, {workload.name}", headings, rows))
    return Report(figures, listings)


def look(target: str, product: list[str]) -> None:
    """Runs the product here under the sampler."""
    from tests.benchmarks.inside import run_program

    sys.setswitchinterval(_SWITCH_INTERVAL)
    sampler = Sampler()
    sampler.start()
    run_program(product)
    lines = sampler.stop()
    profile = Profile(lines.total(), _top_functions(lines))
    pathlib.Path(target).write_text(json.dumps(profile))


def _place(frame: types.FrameType) -> Place:
    """The line, or the one that called numpy: its wrappers tell nothing."""
    while "/numpy/" in frame.f_code.co_filename and frame.f_back is not None:
        frame = frame.f_back
    return Place(frame.f_code.co_filename, frame.f_code.co_name, frame.f_lineno or 0)


def _profile(setting: Setting, workload: Workload) -> Profile:
    target = setting.work / "profile.json"
    print(f"  profile of {workload.name}", file=sys.stderr)
    run_module("profiling", str(target), json.dumps(workload.product(workload.data)))
    return Profile(*json.loads(target.read_text()))


def _top_functions(lines: collections.Counter[Place]) -> list[tuple[float, str, str]]:
    functions: dict[tuple[str, str], collections.Counter[Place]] = {}
    for place, seconds in lines.items():
        functions.setdefault(place[:2], collections.Counter())[place] = seconds
    ordered = sorted(functions.items(), key=lambda item: -item[1].total())
    return [_describe(*item) for item in ordered[:_TOP]]


def _describe(
    function: tuple[str, str], lines: collections.Counter[Place]
) -> tuple[float, str, str]:
    file, name = function
    busiest = lines.most_common(1)[0][0]
    where = "/".join(pathlib.PurePath(file).parts[-2:])
    return lines.total(), f"{where}:{name}", linecache.getline(file, busiest.line).strip()


if __name__ == "__main__":
    look(sys.argv[1], json.loads(sys.argv[2]))
