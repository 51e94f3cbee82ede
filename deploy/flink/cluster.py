"""Starts and stops the daemons of a Flink cluster for Beam, all on this machine."""

import dataclasses
import json
import pathlib
import shutil
import subprocess
import sys
from collections.abc import Mapping

from deploy.downloads import flink_distribution
from deploy.flink.jars import flink_class_path, job_server_class_path
from deploy.flink.rest import Rest, until
from deploy.java import java_command
from deploy.processes import DaemonError, Daemons, answers, require_free_ports

HERE = pathlib.Path(__file__).parent
JOB_MANAGER, JOB_SERVER, WORKERS = "jobmanager", "jobserver", "workers"
# A job graph is serialized vertex in vertex; one of 26 lengths overflows Java's usual 1 MiB.
_THREAD_STACK = "-Xss16m"
_EXIT_WITHOUT_MEMORY = "-XX:+ExitOnOutOfMemoryError"
# Java only carries bytes here: its second compiler would take more time than it saves.
_SHORT_JOBS = ("-XX:TieredStopAtLevel=1",)
REFRESH_INTERVAL = 3000  # Flink's own default.
_SETTINGS = "cluster.json"
_ENTRYPOINT = "org.apache.flink.runtime.entrypoint.StandaloneSessionClusterEntrypoint"
_TASK_MANAGER = "org.apache.flink.runtime.taskexecutor.TaskManagerRunner"
_DRIVER = "org.apache.beam.runners.flink.FlinkJobServerDriver"
_MEMORY = "org.apache.flink.runtime.util.bash.BashJavaUtils"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Ports:
    """Where the daemons listen: Flink on this machine alone, Beam's on all addresses of it.

    Attributes:
      rest: Flink's REST interface and web page.
      rpc: JobManager, for TaskManagers.
      job: Beam's job server, for launchers.
      artifact: as `job`, for files that a job brings.
      expansion: as `job`, for transforms of other languages; unused.
      workers: Beam's worker pool, for TaskManagers.
    """

    rest: int = 8081
    rpc: int = 6123
    job: int = 8099
    artifact: int = 8098
    expansion: int = 8097
    workers: int = 50000


class Cluster:
    """A Flink cluster for Beam.

    Attributes:
      daemons: its processes, with logs and pid files in its state folder.
      ports: where they listen.
      slots: tasks that one TaskManager runs at the same time.
      rest: Flink's REST interface.
    """

    def __init__(self, state: pathlib.Path, *, ports: Ports | None = None, slots: int = 1):
        self.daemons = Daemons(state)
        self.ports = ports or Ports()
        self.slots = slots
        self.rest = Rest(f"localhost:{self.ports.rest}")

    @classmethod
    def at(cls, state: pathlib.Path) -> "Cluster":
        """Returns the cluster that was started with this state folder, or a new one."""
        try:
            settings = json.loads((state / _SETTINGS).read_text(encoding="utf-8"))
        except FileNotFoundError:
            return cls(state)
        return cls(state, ports=Ports(**settings["ports"]), slots=settings["slots"])

    def start(
        self,
        *,
        task_managers: int = 2,
        python: str = sys.executable,
        refresh_interval: int = REFRESH_INTERVAL,
    ) -> None:
        """Starts everything, and returns when all TaskManagers are registered.

        Args:
          task_managers: how many.
          python: the Python that runs the pipeline's steps; it must have apache_beam and beam_dpne.
          refresh_interval: how old a job's state may be that the REST interface shows, in ms.

        Raises:
          MissingToolError: if Java 17 or a tool for a download is missing.
          DaemonError: if it runs already, a port is taken, or a daemon does not start; all are
            stopped then.
          TimeoutError: if TaskManagers do not register; all are stopped then.
          ValueError: if `python` lacks a package.
        """
        if running := [name for name, pid in self.daemons.status().items() if pid]:
            raise DaemonError(f"{', '.join(running)} run already; stop them first.")
        require_packages(python)
        ports = dataclasses.asdict(self.ports)
        require_free_ports(*ports.values())
        self.stop()
        self._write_settings({"ports": ports, "slots": self.slots})
        try:
            self.start_job_manager(refresh_interval=refresh_interval)
            for _ in range(task_managers):
                self.start_task_manager()
            self.start_workers(python=python)
            self.start_job_server()
            self.wait_for_task_managers(task_managers)
        except BaseException:
            self.stop()
            raise

    def stop(self) -> list[str]:
        """Stops everything; returns the names of the daemons, the last started first."""
        stopped = self.daemons.stop_all()
        shutil.rmtree(self.daemons.state / "temporary", ignore_errors=True)
        return stopped

    def start_job_manager(self, *, refresh_interval: int = REFRESH_INTERVAL) -> None:
        """Starts the JobManager; raises DaemonError if it does not answer."""
        self._start_flink(
            JOB_MANAGER,
            _ENTRYPOINT,
            "GET_JM_RESOURCE_PARAMS",
            {
                "jobmanager.rpc.port": self.ports.rpc,
                "rest.port": self.ports.rest,
                "rest.bind-port": self.ports.rest,
                # Whoever reaches this port can run code.
                "rest.bind-address": "localhost",
                "web.refresh-interval": refresh_interval,
            },
        )
        self.daemons.wait(JOB_MANAGER, answers(self.ports.rest, path="/overview"), timeout=90)

    def start_task_manager(self) -> str:
        """Starts one more TaskManager, and returns its name, which is also its id in Flink."""
        number = 1
        while self.daemons.log(f"taskmanager-{number}").exists():
            number += 1
        name = f"taskmanager-{number}"
        self._start_flink(
            name,
            _TASK_MANAGER,
            "GET_TM_RESOURCE_PARAMS",
            {
                "jobmanager.rpc.port": self.ports.rpc,
                "taskmanager.numberOfTaskSlots": self.slots,
                "taskmanager.resource-id": name,
                # Flink's page and REST interface show it from there.
                "taskmanager.log.path": self.daemons.log(name),
            },
        )
        return name

    def wait_for_task_managers(self, number: int, *, timeout: float = 90) -> None:
        """Waits until so many TaskManagers are registered; raises TimeoutError after `timeout` s."""
        until(
            lambda: len(self.rest.task_managers()) >= number,
            timeout=timeout,
            what=f"registration of {number} TaskManagers (logs in {self.daemons.state})",
        )

    def start_job_server(self) -> None:
        """Starts Beam's job server; raises DaemonError if it does not listen."""
        artifacts = self._temporary("artifacts")
        command = java_command(
            _DRIVER,
            f"--flink-master=localhost:{self.ports.rest}",
            "--job-host=localhost",
            f"--job-port={self.ports.job}",
            f"--artifact-port={self.ports.artifact}",
            f"--expansion-port={self.ports.expansion}",
            f"--artifacts-dir={artifacts}",
            jars=job_server_class_path(),
            heap_megabytes=512,
            # JobManager and TaskManagers have Beam's jars in their class path.
            properties={**self._properties(), "beam_dpne.jars_in_lib": "true"},
            options=[_THREAD_STACK, *_SHORT_JOBS],
        )
        self.daemons.start(JOB_SERVER, command, ready=answers(self.ports.job), timeout=60)

    def start_workers(
        self, *, name: str = WORKERS, port: int | None = None, python: str = sys.executable
    ) -> None:
        """Starts a pool of workers: it forks a Python harness when a TaskManager asks.

        Args:
          name: of the daemon.
          port: where it listens; by default `ports.workers`.
          python: the Python of the harnesses; not checked.

        Raises:
          DaemonError: if it does not listen.
        """
        port = port or self.ports.workers
        pool = ["-m", "beam_dpne.engines.worker_pool", f"--service_port={port}"]
        self.daemons.start(
            name,
            [python, *pool],
            ready=answers(port),
            timeout=60,
            environment={"TMPDIR": str(self._temporary(name))},
        )

    def job_options(self, *, parallelism: int, workers_port: int | None = None) -> list[str]:
        """Returns the options that run a `beam-dpne` job here."""
        return [
            *("--runner", "PortableRunner"),
            *("--job_endpoint", f"localhost:{self.ports.job}"),
            *("--environment_type", "EXTERNAL"),
            *("--environment_config", f"localhost:{workers_port or self.ports.workers}"),
            *("--parallelism", str(parallelism)),
            # Stages run one after the other, so there may be more tasks than slots; see README.md.
            *("--execution_mode_for_batch", "BATCH"),
            # The launcher cancels a job there: Beam's job server would leave it running.
            *("--flink_master", self.rest.address),
        ]

    def _write_settings(self, settings: Mapping[str, object]) -> None:
        for log in self.daemons.state.glob("*.log"):
            log.unlink()
        self.daemons.state.mkdir(parents=True, exist_ok=True)
        (self.daemons.state / _SETTINGS).write_text(json.dumps(settings), encoding="utf-8")

    def _start_flink(
        self, name: str, main: str, memory_goal: str, settings: Mapping[str, object]
    ) -> None:
        """Starts a Java main of Flink, with the memory that Flink's own start script would give it."""
        java_options, memory_settings = self._memory(memory_goal, settings)
        temporary = self._temporary(name)
        settings = {"io.tmp.dirs": temporary, "blob.storage.directory": temporary, **settings}
        command = java_command(
            main,
            *("--configDir", str(HERE)),
            *memory_settings,
            *_dynamic(settings),
            jars=flink_class_path(),
            properties=self._properties(),
            options=[*java_options, _THREAD_STACK, _EXIT_WITHOUT_MEMORY, *_SHORT_JOBS],
        )
        self.daemons.start(name, command)

    def _memory(self, goal: str, settings: Mapping[str, object]) -> tuple[list[str], list[str]]:
        """Returns Java's options and Flink's settings for the memory that config.yaml grants."""
        home = flink_distribution()
        jars = [next((home / "lib").glob("flink-dist-*.jar")), home / "bin" / "bash-java-utils.jar"]
        command = java_command(
            _MEMORY, goal, "--configDir", str(HERE), *_dynamic(settings), jars=jars
        )
        ended = subprocess.run(command, capture_output=True, text=True, check=False)
        if ended.returncode:
            said = "\n".join(ended.stderr.splitlines()[-5:] or ended.stdout.splitlines()[-5:])
            raise DaemonError(f"memory settings of {HERE / 'config.yaml'} do not add up:\n{said}")
        mark = "BASH_JAVA_UTILS_EXEC_RESULT:"
        java_options, flink_settings = (
            line.removeprefix(mark).split()
            for line in ended.stdout.splitlines()
            if line.startswith(mark)
        )
        return java_options, flink_settings

    def _properties(self) -> dict[str, str]:
        return {
            "log4j.configurationFile": str(HERE / "log4j.properties"),
            "java.io.tmpdir": str(self._temporary("java")),
        }

    def _temporary(self, name: str) -> pathlib.Path:
        folder = self.daemons.state / "temporary" / name
        folder.mkdir(parents=True, exist_ok=True)
        return folder


def pools(daemons: Daemons) -> tuple[str, ...]:
    """Returns the names of a cluster's worker pools."""
    return tuple(name for name in daemons.names() if name.startswith(WORKERS))


def require_packages(python: str) -> None:
    """Checks that a Python can run the pipeline's steps.

    Raises:
      ValueError: if it cannot be started, or lacks apache_beam or beam_dpne.
    """
    check = [python, "-c", "import apache_beam, beam_dpne"]
    try:
        ended = subprocess.run(check, capture_output=True, text=True, check=False)
        said = ended.stderr.strip().splitlines()[-1:] if ended.returncode else None
    except OSError as error:
        said = [str(error)]
    if said is not None:
        raise ValueError(
            f"python must have apache_beam and beam_dpne, got {python}: {' '.join(said)}; name one "
            "that has, with --python."
        )


def _dynamic(settings: Mapping[str, object]) -> list[str]:
    return [part for name, value in settings.items() for part in ("-D", f"{name}={value}")]
