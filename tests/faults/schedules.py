"""Which faults strike where: a schedule is asked at each point of each step of each attempt."""

import errno
import hashlib
import re
import threading
import time
from collections.abc import Callable, Collection, Iterable
from typing import NamedTuple

SETUP = "setup"
START = "start_bundle"
BEFORE = "before output"
BETWEEN = "between outputs"
FINISH = "finish_bundle"
LOST = "result lost"
POINTS = (SETUP, START, BEFORE, BETWEEN, FINISH, LOST)

# Part of every message of a fault: whatever a program prints must not have it.
CANARY = "canary zebra 4711"
_ERRORS = (
    lambda: RuntimeError(CANARY),
    lambda: MemoryError(CANARY),
    lambda: OSError(errno.EIO, CANARY),
    lambda: ConnectionResetError(CANARY),
    lambda: TimeoutError(CANARY),
    lambda: KeyError(CANARY),
)


class Fault(NamedTuple):
    """A fault that struck: what kind, and at which step of the pipeline."""

    kind: str
    step: str


class Attempt(threading.local):
    """The attempt that this thread is at: the name of its bundle, and how many came before."""

    bundle = ""
    number = 0


attempt = Attempt()


def kind_of(step: str) -> str:
    """The kind of a step: the steps of all lengths, and of all rounds, are one kind."""
    return re.sub(r"/\d+(?=/)", "/k", step)


def chance(seed: int, *names: object) -> float:
    """A number in [0, 1) that depends on the seed and the names alone."""
    digest = hashlib.blake2b(repr((seed, *names)).encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big") / 2**64


class Schedule:
    """No faults; a base for those that strike.

    Attributes:
      faults: those that struck, in order; a lost result has one for each step of its bundle.
      count: how many struck; a lost result is one.
    """

    def __init__(self) -> None:
        self.faults: list[Fault] = []
        self.count = 0
        self._lock = threading.Lock()

    def begin(self, steps: Collection[str]) -> None:
        """Is told the steps of a pipeline before it runs."""

    def reach(self, step: str, point: str) -> None:
        """Is called within a call of a DoFn; raises where a fault strikes."""
        if self._strikes(step, point):
            self._record([Fault(point, step)])
            raise _ERRORS[int(len(_ERRORS) * chance(0, step, point, len(self.faults)))]()

    def failed(self) -> None:
        """Is told that an attempt failed, before the next one."""

    def loses(self, steps: Iterable[str]) -> bool:
        """Whether the result of a bundle of these steps, which succeeded, is lost."""
        steps = list(steps)
        # A list, since each step that is to lose a result once has lost one now.
        lost = any([self._strikes(step, LOST) for step in steps])
        if lost:
            self._record([Fault(LOST, step) for step in steps])
        return lost

    def _strikes(self, _step: str, _point: str) -> bool:
        return False

    def _record(self, faults: list[Fault]) -> None:
        with self._lock:
            self.faults.extend(faults)
            self.count += 1


class EveryPoint(Schedule):
    """One fault at each point of each step.

    Attributes:
      pending: the points that no attempt has reached yet, with their steps.
    """

    def __init__(self) -> None:
        super().__init__()
        self.pending: set[Fault] = set()

    def begin(self, steps: Collection[str]) -> None:
        self.pending = {Fault(point, step) for step in steps for point in POINTS}

    def _strikes(self, step: str, point: str) -> bool:
        with self._lock:
            fault = Fault(point, step)
            strikes = fault in self.pending
            self.pending.discard(fault)
            return strikes


class Keyed(Schedule):
    """Faults at random, by a seed: the same bundles fail at the same points in every run.

    Attributes:
      seed: of the schedule.
      rate: of the points of an attempt, those at which it fails.
      failures: attempts of one bundle that fail, at most.
      delay: seconds that a step waits at a point, at most; one point of eight waits.
    """

    def __init__(self, seed: int, *, rate: float, failures: int = 3, delay: float = 0.0) -> None:
        super().__init__()
        self.seed, self.rate, self.failures, self.delay = seed, rate, failures, delay

    def reach(self, step: str, point: str) -> None:
        wait = self._draw("wait", step, point)
        if wait < 1 / 8:
            time.sleep(8 * wait * self.delay)
        super().reach(step, point)

    def _strikes(self, step: str, point: str) -> bool:
        return attempt.number < self.failures and self._draw("fail", step, point) < self.rate

    def _draw(self, *names: object) -> float:
        return chance(self.seed, attempt.bundle, attempt.number, *names)


class Always(Schedule):
    """A fault at one point of one step in every attempt: until attempts are exhausted."""

    def __init__(self, step: str, point: str) -> None:
        super().__init__()
        self._fault = Fault(point, step)

    def _strikes(self, step: str, point: str) -> bool:
        return self._fault == Fault(point, step)


class Once(Schedule):
    """Something of the caller's happens at one point of one step, the first time it is reached."""

    def __init__(self, step: str, point: str, act: Callable[[], object]) -> None:
        super().__init__()
        self._fault, self._act = Fault(point, step), act

    def reach(self, step: str, point: str) -> None:
        if self._fault == Fault(point, step) and not self.count:
            self._record([self._fault])
            self._act()
