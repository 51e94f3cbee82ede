"""Jobs in processes of their own, killed by the kernel's hand at a chosen place.

`python -m tests.faults.jobs` imports the program once, then forks one process for each line of its
stdin, a JSON object with the fields of `Job`, and answers with one line each, the fields of `Done`.
"""

import contextlib
import dataclasses
import importlib
import json
import os
import pathlib
import resource
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any

from tests.conftest import ROOT
from tests.faults.schedules import Once

_CHANGES = frozenset(
    {"os.rename", "os.remove", "os.mkdir", "os.rmdir", "os.truncate", "os.link", "os.symlink"}
)
_POLL_SECONDS = 0.005
_READY = "ready\n"
# Arrays are asked of the kernel one by one, so that a limit on memory is felt at once.
_ALLOCATORS = {
    "MALLOC_MMAP_THRESHOLD_": "65536",
    "MALLOC_ARENA_MAX": "1",
    "ARROW_DEFAULT_MEMORY_POOL": "system",
}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Job:
    """A program to run and what happens to it.

    Attributes:
      arguments: of `beam-dpne`.
      said: path to which `.out` and `.err` are appended.
      step: where `at_step` happens; its label.
      point: of the step.
      at_step: "kill"; "memory", then the process can have no more of it; or "" for nothing.
      attempts: of a bundle; a new attempt gets all memory back.
      folder: whose changes are counted.
      kill_at_change: the process is killed before this one of the changes to `folder`, from 1; 0 for
        never.
      kill_after: seconds after which the process is killed; 0 for never.
      file_bytes: largest file that can be written; 0 for any.
      kill_in_write: whether a larger one kills, instead of giving an error.
    """

    arguments: Sequence[str]
    said: str
    step: str = ""
    point: str = ""
    at_step: str = ""
    attempts: int = 1
    folder: str = ""
    kill_at_change: int = 0
    kill_after: float = 0.0
    file_bytes: int = 0
    kill_in_write: bool = False


@dataclasses.dataclass(frozen=True, kw_only=True)
class Done:
    """What came of a job.

    Attributes:
      status: exit status, or the number of the signal that killed it, below 0.
      seconds: it took.
      changes: to the job's folder; 0 if it was killed.
      reached: whether the job got to its step and point, if it has those.
      out: what it printed.
      err: what it said.
    """

    status: int
    seconds: float
    changes: int
    reached: bool
    out: str
    err: str


class Jobs:
    """Runs jobs, one at a time; a context.

    With `disk`, a directory, the jobs find a file system of `disk_bytes` of its own mounted there,
    which goes when they do; whoever started them finds it at `self.disk`.
    """

    def __init__(
        self, temporary: pathlib.Path, disk: pathlib.Path | None = None, disk_bytes: int = 0
    ) -> None:
        self._temporary = temporary
        self._number = 0
        self._mounted = disk
        self._disk_bytes = disk_bytes
        self._mounts = _mounting(disk, disk_bytes) if disk else []

    @property
    def disk(self) -> pathlib.Path:
        """Where the mounted directory is from outside."""
        return pathlib.Path(f"/proc/{self._server.pid}/root{self._mounted}")

    def __enter__(self) -> "Jobs":
        environment = {**os.environ, **_ALLOCATORS, "TMPDIR": str(self._temporary)}
        self._server = subprocess.Popen(
            [*self._mounts, sys.executable, "-m", "tests.faults.jobs"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=ROOT,
            env=environment,
        )
        assert self._server.stdout
        assert self._server.stdout.readline() == _READY, "the server of jobs does not start"
        return self

    def __exit__(self, *_: object) -> None:
        assert self._server.stdin
        self._server.stdin.close()
        self._server.wait(timeout=60)

    def run(self, *arguments: str, **settings: Any) -> Done:
        """Runs `beam-dpne` with these arguments; the settings are fields of `Job`."""
        self._number += 1
        said = self._temporary / f"said{self._number}"
        job = Job(arguments=arguments, said=str(said), **settings)
        assert self._server.stdin
        assert self._server.stdout
        self._server.stdin.write(json.dumps(dataclasses.asdict(job)) + "\n")
        self._server.stdin.flush()
        line = self._server.stdout.readline()
        assert line, "the server of jobs is gone"
        return Done(**json.loads(line))


def _mounting(folder: pathlib.Path, size: int) -> list[str]:
    """What to put in front of a command so that it has a small file system of its own.

    Raises:
      RuntimeError: if this machine grants nobody a mount.
    """
    mount = 'mount -t tmpfs -o "size=$1" tmpfs "$0" && shift && exec "$@"'
    for how in ("-m", "-rm"):
        command = ["unshare", how, "sh", "-c", mount, str(folder), str(size)]
        if (
            shutil.which("unshare")
            and not subprocess.run([*command, "true"], check=False).returncode
        ):
            return command
    raise RuntimeError(
        "A full disk needs `unshare` of util-linux and the right to mount a file system: be root with "
        "CAP_SYS_ADMIN, or allow unprivileged user namespaces."
    )


def _serve() -> None:
    import beam_dpne.cli.programs
    import tests.faults.runner  # noqa: F401

    assert beam_dpne.cli.programs
    print(_READY, end="", flush=True)
    for line in sys.stdin:
        job = Job(**json.loads(line))
        start = time.monotonic()
        child = os.fork()
        if child == 0:
            sys.exit(_run(job))
        status = _wait(child, job.kill_after)
        done = Done(
            status=status,
            seconds=time.monotonic() - start,
            changes=int(_text(f"{job.said}.changes") or 0),
            reached=os.path.exists(f"{job.said}.reached"),
            out=_text(f"{job.said}.out"),
            err=_text(f"{job.said}.err"),
        )
        print(json.dumps(dataclasses.asdict(done)), flush=True)


def _wait(child: int, kill_after: float) -> int:
    """The child's exit status, or the signal's number below 0."""
    deadline = time.monotonic() + kill_after if kill_after else float("inf")
    while True:
        pid, status = os.waitpid(child, os.WNOHANG)
        if pid:
            return os.waitstatus_to_exitcode(status)
        if time.monotonic() >= deadline:
            os.kill(child, signal.SIGKILL)
        time.sleep(_POLL_SECONDS)


def _run(job: Job) -> int:
    """In the forked process: the program, with what is to happen to it."""
    from beam_dpne.cli.main import main
    from tests.faults.conftest import runner_in_place
    from tests.faults.runner import Disturbance, FaultyRunner

    _redirect(job.said)
    if job.file_bytes:
        signal.signal(signal.SIGXFSZ, signal.SIG_DFL if job.kill_in_write else signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (job.file_bytes, job.file_bytes))
    changes = _Changes(job.folder, job.kill_at_change)
    if job.folder:
        sys.addaudithook(changes.hear)
    in_place: contextlib.AbstractContextManager[object] = contextlib.nullcontext()
    if job.at_step:
        schedule = (
            Shortage(job) if job.at_step == "memory" else Once(job.step, job.point, _die(job))
        )
        alone = Disturbance(bundles=1, workers=1, attempts=job.attempts)
        in_place = runner_in_place(FaultyRunner(schedule, alone))
    with in_place:
        status = main(job.arguments)
    if job.folder:
        pathlib.Path(f"{job.said}.changes").write_text(str(changes.count))
    return status


def _redirect(said: str) -> None:
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    for number, name in ((1, "out"), (2, "err")):
        os.dup2(os.open(f"{said}.{name}", os.O_WRONLY | os.O_CREAT, 0o600), number)


def _die(job: Job) -> Callable[[], None]:
    def die() -> None:
        pathlib.Path(f"{job.said}.reached").touch()
        os.kill(os.getpid(), signal.SIGKILL)

    return die


class Shortage(Once):
    """From one point of one step on the process gets no more memory; a retry gets it again."""

    def __init__(self, job: Job) -> None:
        super().__init__(job.step, job.point, self._limit)
        self._job = job

    def _limit(self) -> None:
        pathlib.Path(f"{self._job.said}.reached").touch()
        pages = int(pathlib.Path("/proc/self/statm").read_text().split()[0])
        now = pages * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (now, resource.RLIM_INFINITY))

    def failed(self) -> None:
        resource.setrlimit(resource.RLIMIT_AS, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))


class _Changes:
    """Counts the changes to a folder; kills the process before one of them."""

    def __init__(self, folder: str, kill_at: int) -> None:
        self.count = 0
        self._folder, self._kill_at = folder, kill_at

    def hear(self, event: str, arguments: tuple[Any, ...]) -> None:
        """An audit hook: Python tells it of each call of the operating system before it is made."""
        if event == "open":
            # The flags; a file is opened for writing, or it is a directory's descriptor for reading.
            if not isinstance(arguments[2], int) or not arguments[2] & (os.O_WRONLY | os.O_RDWR):
                return
        elif event not in _CHANGES:
            return
        if str(arguments[0]).startswith(self._folder):
            self.count += 1
            if self.count == self._kill_at:
                os.kill(os.getpid(), signal.SIGKILL)


def _text(path: str) -> str:
    return pathlib.Path(path).read_text() if os.path.exists(path) else ""


if __name__ == "__main__":
    # Under its own name, since it is there that the classes of this module are looked up.
    importlib.import_module("tests.faults.jobs")._serve()
