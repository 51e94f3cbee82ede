"""Daemons of an engine: started with a log and a pid file, awaited, listed and stopped.

A state folder holds `NAME.log` and `NAME.pid` of each daemon. Each leads a process group of its own, so
that stopping it also stops what it has started. A pid file holds the start time of the process as well:
a pid that the system has given to another program since is not taken for the daemon.
"""

import contextlib
import functools
import os
import pathlib
import signal
import socket
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping, Sequence

Ready = Callable[[], bool]


class DaemonError(RuntimeError):
    """A daemon did not start; the message names its log and shows the end of it."""


class Daemons:
    """The daemons of one state folder.

    Attributes:
      state: the folder; made when the first daemon is started.
    """

    def __init__(self, state: pathlib.Path):
        self.state = pathlib.Path(state).absolute()

    def start(
        self,
        name: str,
        command: Sequence[str],
        *,
        ready: Ready | None = None,
        timeout: float = 60,
        environment: Mapping[str, str] | None = None,
    ) -> int:
        """Starts a daemon and returns its pid, once it is ready.

        Args:
          name: of its log and pid file.
          command: program and arguments.
          ready: says whether it answers, e.g. `answers(8081)`; asked until it does.
          timeout: seconds until it must be ready.
          environment: variables that it has besides ours.

        Raises:
          DaemonError: if one of this name runs already, or it ended or was not ready in time (it is
            stopped then).
        """
        if (pid := self.pid(name)) is not None:
            raise DaemonError(f"{name} runs already, as process {pid}; stop it first.")
        self.state.mkdir(parents=True, exist_ok=True)
        with self.log(name).open("ab") as log:
            process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env={**os.environ, **(environment or {})},
                start_new_session=True,
            )
        self._pid_file(name).write_text(f"{process.pid} {_started(process.pid)}\n")
        if ready is not None:
            self.wait(name, ready, timeout=timeout)
        return process.pid

    def wait(self, name: str, ready: Ready, *, timeout: float = 60) -> None:
        """Waits until a daemon is ready.

        Raises:
          DaemonError: if it ended or was not ready within `timeout` seconds (it is stopped then).
        """
        until = time.monotonic() + timeout
        while not ready():
            if self.pid(name) is None:
                self.stop(name)
                raise DaemonError(f"{name} ended before it was ready; {self._said(name)}")
            if time.monotonic() > until:
                self.stop(name)
                raise DaemonError(
                    f"{name} was not ready within {timeout:g} s, and was stopped; {self._said(name)}"
                )
            time.sleep(0.1)

    def stop(self, name: str, *, timeout: float = 10) -> None:
        """Ends a daemon and all that it has started; asked first, killed after `timeout` seconds."""
        if (pid := self.pid(name)) is not None:
            _signal_group(pid, signal.SIGTERM)
            until = time.monotonic() + timeout
            while self.pid(name) is not None and time.monotonic() < until:
                time.sleep(0.05)
        # What it has started may be left, also when it died before. No new process is given the
        # pid of a living group, so the group is still ours, if the machine has not been restarted.
        leader, started = self._recorded(name)
        if leader and started.endswith(_boot()) and _started(leader) in ("", started):
            _signal_group(leader, signal.SIGKILL)
        while self.pid(name) is not None:
            time.sleep(0.05)
        self._pid_file(name).unlink(missing_ok=True)

    def kill(self, name: str) -> None:
        """Ends a daemon with SIGKILL, and it alone, as a crash would."""
        if (pid := self.pid(name)) is not None:
            os.kill(pid, signal.SIGKILL)
            while self.pid(name) is not None:
                time.sleep(0.02)

    def pid(self, name: str) -> int | None:
        """Returns the process id of a daemon, None if it does not run."""
        pid, started = self._recorded(name)
        return pid if pid and _started(pid) == started else None

    def names(self) -> list[str]:
        """Returns the names of daemons that were started and not stopped, in the order of starting."""
        files = sorted(self.state.glob("*.pid"), key=lambda path: path.stat().st_mtime_ns)
        return [path.stem for path in files]

    def status(self) -> Mapping[str, int | None]:
        """Returns the process id of each of them, None where it has died since."""
        return {name: self.pid(name) for name in self.names()}

    def stop_all(self) -> list[str]:
        """Stops every daemon, the last started first; returns their names."""
        names = self.names()[::-1]
        for name in names:
            self.stop(name)
        return names

    def log(self, name: str) -> pathlib.Path:
        """Returns the path of a daemon's log."""
        return self.state / f"{name}.log"

    def _pid_file(self, name: str) -> pathlib.Path:
        return self.state / f"{name}.pid"

    def _recorded(self, name: str) -> tuple[int, str]:
        with contextlib.suppress(FileNotFoundError, ValueError):
            pid, started = self._pid_file(name).read_text().split()
            return int(pid), started
        return 0, ""

    def _said(self, name: str) -> str:
        lines = self.log(name).read_text(errors="replace").splitlines()[-15:]
        return "\n".join([f"its log is {self.log(name)}, which ends:", *lines])


def answers(port: int, *, host: str = "localhost", path: str | None = None) -> Ready:
    """Returns what says whether a port accepts connections, or with `path` answers HTTP with 200."""
    if path is not None:
        return lambda: _answers_http(f"http://{host}:{port}{path}")
    return lambda: _accepts(host, port)


def require_free_ports(*ports: int) -> None:
    """Checks that nobody listens on ports of this machine.

    Raises:
      DaemonError: if somebody does: our daemon would fail, or worse, we would talk to theirs.
    """
    taken = [str(port) for port in ports if _accepts("localhost", port)]
    if taken:
        raise DaemonError(
            f"ports must be free, got somebody listening on {', '.join(taken)}; "
            "stop that program, or choose other ports."
        )


def _accepts(host: str, port: int) -> bool:
    try:
        with socket.create_connection((host, port), timeout=1):
            return True
    except OSError:
        return False


def _answers_http(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=2) as response:
            return response.status == 200
    except (OSError, urllib.error.URLError, ValueError):
        return False


def _started(pid: int) -> str:
    """Returns when a process was started, in an opaque form; "" if it has ended, reaped or not."""
    with contextlib.suppress(ChildProcessError):
        os.waitpid(pid, os.WNOHANG)  # Our own dead child is reaped.
    if not pathlib.Path("/proc/self").exists():
        return _started_by_ps(pid)
    try:
        fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return ""
    return "" if fields[0] in "ZX" else f"{fields[19]}@{_boot()}"


def _started_by_ps(pid: int) -> str:
    """As `_started`, on systems without /proc, such as macOS."""
    command = ["ps", "-o", "stat=,lstart=", "-p", str(pid)]
    said = subprocess.run(command, capture_output=True, text=True, check=False).stdout.split()
    return "" if not said or said[0].startswith("Z") else f"{'-'.join(said[1:])}@{_boot()}"


@functools.cache
def _boot() -> str:
    """Returns what tells one run of this machine from the next, where the system says so."""
    try:
        return pathlib.Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return ""


def _signal_group(leader: int, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(leader, number)
