"""Peak memory of a Flink cluster's TaskManagers and of their Python harnesses, sampled from /proc."""

import dataclasses
import pathlib
import re
import threading
from collections.abc import Mapping

from deploy.processes import Daemons

# The name that the pool gives a harness, with the port of its TaskManager.
_HARNESS = re.compile(r"harness:(\d+)")
_LISTENS = "0A"
ELSEWHERE = "(port closed)"


@dataclasses.dataclass(frozen=True)
class Memory:
    """Resident memory, in KiB.

    Attributes:
      resident: all of it, as `ps` shows it.
      anonymous: the part that is not a mapped file; files can be dropped and read again.
      processes: how many processes that is.
    """

    resident: int = 0
    anonymous: int = 0
    processes: int = 0

    def __add__(self, other: "Memory") -> "Memory":
        return self._by_field(other, int.__add__)

    def peak(self, other: "Memory") -> "Memory":
        """Returns the larger value of each field."""
        return self._by_field(other, max)

    def _by_field(self, other: "Memory", function) -> "Memory":
        pairs = zip(dataclasses.astuple(self), dataclasses.astuple(other), strict=True)
        return Memory(*(function(ours, theirs) for ours, theirs in pairs))


@dataclasses.dataclass(frozen=True)
class WorkerMemory:
    """Memory of one worker: its TaskManager, and all of its harnesses together."""

    task_manager: Memory = Memory()
    harnesses: Memory = Memory()

    def peak(self, other: "WorkerMemory") -> "WorkerMemory":
        """Returns the larger value of each field."""
        return WorkerMemory(
            self.task_manager.peak(other.task_manager), self.harnesses.peak(other.harnesses)
        )


class Sampler(threading.Thread):
    """Samples the memory of a cluster until `stop`; a context manager starts and stops it.

    Attributes:
      interval: seconds between samples. Harnesses are added up within one sample; a peak shorter
        than the interval may be missed.
      peaks: of each worker, by the name of its TaskManager.
    """

    def __init__(self, daemons: Daemons, *, pools: tuple[str, ...], interval: float = 0.25):
        super().__init__(daemon=True)
        self.interval = interval
        self.peaks: dict[str, WorkerMemory] = {}
        self._daemons = daemons
        self._pools = pools
        self._ended = threading.Event()
        self._owners: dict[int, str] = {}

    def run(self) -> None:
        """Samples; called by `start`."""
        while True:
            for name, memory in sample(self._daemons, self._pools, self._owners).items():
                self.peaks[name] = self.peaks.get(name, WorkerMemory()).peak(memory)
            if self._ended.wait(self.interval):
                return

    def stop(self) -> None:
        """Ends the sampling."""
        self._ended.set()
        self.join()

    def __enter__(self) -> "Sampler":
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()


def sample(
    daemons: Daemons, pools: tuple[str, ...], owners: dict[int, str] | None = None
) -> Mapping[str, WorkerMemory]:
    """Returns the memory of each worker now, by the name of its TaskManager.

    A harness belongs to the TaskManager that listens on the port that it was started with. If none
    does, its TaskManager is gone, or has closed the port because the job has ended, which the harness
    outlives for a moment. Such harnesses count as `ELSEWHERE`, unless their TaskManager runs and
    `owners` knows it.

    Args:
      daemons: of the cluster.
      pools: names of its worker pools.
      owners: the TaskManagers that were found to listen, by port; what is found now is added to it.

    Raises:
      OSError: on systems without /proc.
    """
    status = daemons.status()
    task_managers = {
        name: pid for name, pid in status.items() if pid and name.startswith("taskmanager-")
    }
    # A port is open before its harness is started, so that it is found if it is looked for later.
    started = [harness for pool in pools for harness in _harnesses(status.get(pool))]
    owners = {} if owners is None else owners
    owners.update(_owners_of_ports(task_managers))
    harnesses: dict[str, Memory] = {}
    for pid, port in started:
        owner = owners.get(port, ELSEWHERE)
        owner = owner if owner in task_managers else ELSEWHERE
        harnesses[owner] = harnesses.get(owner, Memory()) + _memory(pid)
    workers = {name: _memory(pid) for name, pid in task_managers.items()}
    return {
        name: WorkerMemory(workers.get(name, Memory()), harnesses.get(name, Memory()))
        for name in [*workers, *(harnesses.keys() - workers.keys())]
    }


def table(peaks: Mapping[str, WorkerMemory]) -> str:
    """Returns the peaks as lines of text, in MiB."""
    lines = [
        f"{'peak resident memory, MiB':28}{'TaskManager':>12}{'harnesses':>12}{'not files':>12}"
    ]
    for name, of in sorted(peaks.items()):
        values = (of.task_manager.resident, of.harnesses.resident, of.harnesses.anonymous)
        shown = "".join(f"{value / 1024:12.0f}" for value in values)
        lines.append(f"{name:28}{shown}   at most {of.harnesses.processes} harness(es) at a time")
    return "\n".join(lines)


def _memory(pid: int) -> Memory:
    try:
        lines = pathlib.Path(f"/proc/{pid}/status").read_text().splitlines()
    except (FileNotFoundError, ProcessLookupError):
        return Memory()
    of = {name: value.split() for name, _, value in (line.partition(":") for line in lines)}
    if "VmRSS" not in of:  # It has just ended.
        return Memory()
    return Memory(int(of["VmRSS"][0]), int(of["RssAnon"][0]), 1)


def _harnesses(pool: int | None) -> list[tuple[int, int]]:
    """Returns the pid of each harness that a pool has started, and the port that it talks to."""
    names = ((pid, _read(f"/proc/{pid}/comm")) for pid in (_children(pool) if pool else ()))
    return [(pid, int(match.group(1))) for pid, name in names if (match := _HARNESS.match(name))]


def _children(pid: int) -> list[int]:
    tasks = pathlib.Path(f"/proc/{pid}/task")
    if not tasks.exists():
        return []
    return [int(child) for task in tasks.iterdir() for child in _read(f"{task}/children").split()]


def _owners_of_ports(processes: Mapping[str, int]) -> dict[int, str]:
    """Returns which of some processes listens on a port, by port."""
    listeners = {}
    for line in (_read("/proc/net/tcp") + _read("/proc/net/tcp6")).splitlines():
        fields = line.split()
        if len(fields) > 9 and fields[3] == _LISTENS:
            listeners[f"socket:[{fields[9]}]"] = int(fields[1].rpartition(":")[2], 16)
    owners = {}
    for name, pid in processes.items():
        for target in _open_files(pid):
            if target in listeners:
                owners[listeners[target]] = name
    return owners


def _open_files(pid: int) -> list[str]:
    try:
        return [_link(file) for file in pathlib.Path(f"/proc/{pid}/fd").iterdir()]
    except (FileNotFoundError, ProcessLookupError):
        return []


def _link(path: pathlib.Path) -> str:
    try:
        return str(path.readlink())
    except OSError:
        return ""


def _read(path: str) -> str:
    try:
        return pathlib.Path(path).read_text(errors="replace")
    except (FileNotFoundError, ProcessLookupError):
        return ""
