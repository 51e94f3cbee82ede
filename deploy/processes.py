"""Daemons of an engine: started with a log and a pid file, awaited, listed and stopped.

A state folder holds `NAME.log` and `NAME.pid` of each daemon. Each leads a process group of its own, so
that stopping it also stops what it has started. A pid file holds the start time of the process as well:
a pid that the system has given to another program since is not taken for the daemon.
"""

import contextlib
import os
import pathlib
import re
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

import psutil

from deploy.downloads import DeployError, require

T = TypeVar("T")
JAVA_RELEASE = 17
# Java 17 closes its own packages; Flink, Spark and Kryo look into them.
OPENED = (
    *("java.lang", "java.lang.invoke", "java.util", "java.util.concurrent"),
    *("java.util.concurrent.atomic", "java.nio", "java.net", "java.io", "java.time"),
    *("sun.nio.ch", "sun.nio.cs", "sun.util.calendar", "sun.security.action"),
)


WORKER_POOL = str(pathlib.Path(__file__).with_name("worker_pool.py"))


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
        ready: Callable[[], object] = lambda: True,
        timeout: float = 90,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        """Starts a daemon, and returns when it is ready.

        Args:
          name: of its log and pid file.
          command: program and arguments.
          ready: says whether it answers; asked until it does.
          timeout: seconds until it must be ready.
          environment: variables that it has besides ours.

        Raises:
          DeployError: if one of this name runs already, or it ended or was not ready in time (it is
            stopped then); the message shows the end of its log.
        """
        if pid := self.pid(name):
            raise DeployError(f"{name} runs already, as process {pid}; stop it first.")
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
        started = psutil.Process(process.pid).create_time()
        self._pid_file(name).write_text(f"{process.pid} {started}\n")

        def is_ready() -> bool:
            if process.poll() is not None:
                raise DeployError(f"{name} ended before it was ready")
            return bool(ready())

        try:
            until(is_ready, timeout=timeout, what=f"readiness of {name}")
        except (TimeoutError, DeployError) as error:
            self.stop(name)
            said = "\n".join(self.log(name).read_text(errors="replace").splitlines()[-15:])
            raise DeployError(f"{error}; the log {self.log(name)} ends:\n{said}") from None
        # Python warns of objects of processes that go on, as a daemon does.
        process.returncode = 0

    def stop(self, name: str, *, timeout: float = 10) -> None:
        """Ends a daemon and all that it has started; asked first, killed after `timeout` seconds."""
        if process := self._process(name):
            _signal_group(process.pid, signal.SIGTERM)
            with contextlib.suppress(psutil.TimeoutExpired):
                process.wait(timeout)
            _signal_group(process.pid, signal.SIGKILL)
        self._pid_file(name).unlink(missing_ok=True)

    def kill(self, name: str) -> None:
        """Ends a daemon with SIGKILL, and it alone, as a crash would."""
        if process := self._process(name):
            process.kill()
            process.wait()

    def pid(self, name: str) -> int | None:
        """Returns the process id of a daemon, None if it does not run."""
        process = self._process(name)
        return process.pid if process else None

    def status(self) -> Mapping[str, int | None]:
        """Returns the process id of each that was started and not stopped, None if it has died."""
        files = sorted(self.state.glob("*.pid"), key=lambda path: path.stat().st_mtime_ns)
        return {path.stem: self.pid(path.stem) for path in files}

    def stop_all(self) -> list[str]:
        """Stops every daemon, the last started first; returns their names."""
        names = list(self.status())[::-1]
        for name in names:
            self.stop(name)
        shutil.rmtree(self.state / "temporary", ignore_errors=True)
        return names

    def log(self, name: str) -> pathlib.Path:
        """Returns the path of a daemon's log."""
        return self.state / f"{name}.log"

    def temporary(self, name: str) -> pathlib.Path:
        """Returns a folder for a daemon's files, which `stop_all` deletes."""
        folder = self.state / "temporary" / name
        folder.mkdir(parents=True, exist_ok=True)
        return folder

    def _pid_file(self, name: str) -> pathlib.Path:
        return self.state / f"{name}.pid"

    def _process(self, name: str) -> psutil.Process | None:
        with contextlib.suppress(FileNotFoundError, ValueError, psutil.Error):
            pid, started = self._pid_file(name).read_text().split()
            process = psutil.Process(int(pid))
            if process.status() != psutil.STATUS_ZOMBIE and process.create_time() == float(started):
                return process
        return None


def until(found: Callable[[], T | None], *, timeout: float, what: str, interval: float = 0.1) -> T:
    """Asks until there is an answer that is neither None nor False, and returns it.

    Raises:
      TimeoutError: if there is none within `timeout` seconds.
    """
    end = time.monotonic() + timeout
    while time.monotonic() < end:
        with contextlib.suppress(OSError):
            answer = found()
            if answer is not None and answer is not False:
                return answer
        time.sleep(interval)
    raise TimeoutError(f"{what} did not happen within {timeout:g} s")


def listens(port: int) -> Callable[[], bool]:
    """Returns what says whether somebody accepts connections at a port of this machine."""

    def accepts() -> bool:
        with contextlib.suppress(OSError), socket.create_connection(("localhost", port), timeout=1):
            return True
        return False

    return accepts


def require_free_ports(*ports: int) -> None:
    """Raises DeployError if somebody listens on ports of this machine."""
    taken = [str(port) for port in ports if listens(port)()]
    if taken:
        raise DeployError(
            f"ports must be free, got somebody listening on {', '.join(taken)}; "
            "stop that program, or choose other ports."
        )


def java() -> str:
    """Returns the path of Java 17: that of JAVA_HOME, or else the first in PATH."""
    home = os.environ.get("JAVA_HOME")
    remedy = (
        f"install openjdk-{JAVA_RELEASE}-jre-headless, or set JAVA_HOME to a Java {JAVA_RELEASE}"
    )
    path = require(str(pathlib.Path(home, "bin", "java")) if home else "java", remedy)
    said = subprocess.run([path, "-version"], capture_output=True, text=True, check=False).stderr
    release = re.search(r'version "(\d+)', said)
    if not release or int(release.group(1)) != JAVA_RELEASE:
        raise DeployError(f"java must be release {JAVA_RELEASE}, got another at {path}; {remedy}.")
    return path


def java_command(
    main: str, *arguments: str, jars: Sequence[pathlib.Path], options: Sequence[str] = ()
) -> list[str]:
    """Returns the command that starts a Java main class.

    Args:
      main: the class.
      *arguments: those of the program.
      jars: folders, of which every jar is taken, or single jars; earlier ones win.
      options: those of the Java machine.
    """
    opened = [f"--add-opens=java.base/{package}=ALL-UNNAMED" for package in OPENED]
    class_path = os.pathsep.join(str(path / "*" if path.is_dir() else path) for path in jars)
    return [java(), *opened, *options, "-cp", class_path, main, *arguments]


def job_server_command(
    driver: str, job_port: int, daemons: Daemons, *arguments: str, **java_settings
) -> list[str]:
    """Returns the command of one of Beam's job servers; it also takes the two ports below its own."""
    return java_command(
        driver,
        "--job-host=localhost",
        f"--job-port={job_port}",
        f"--artifact-port={job_port - 1}",
        f"--expansion-port={job_port - 2}",
        f"--artifacts-dir={daemons.temporary('artifacts')}",
        *arguments,
        **java_settings,
    )


def print_status(daemons: Daemons) -> int:
    """Prints the daemons; returns 1 unless there are some and all run."""
    status = daemons.status()
    for name, pid in status.items():
        print(f"{name}: runs as process {pid}" if pid else f"{name}: has died")
    if not status:
        print("nothing was started")
    return 0 if status and all(status.values()) else 1


def _signal_group(leader: int, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(leader, number)
