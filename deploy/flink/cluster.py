"""Starts and stops the daemons of a Flink cluster for Beam, all on this machine."""

import dataclasses
import json
import pathlib
import sys
from collections.abc import Mapping

from deploy.downloads import DeployError, flink_distribution, run
from deploy.flink.jars import flink_class_path, job_server_class_path
from deploy.flink.rest import Rest
from deploy.processes import (
    WORKER_POOL,
    Daemons,
    java,
    java_command,
    job_server_command,
    listens,
    require_free_ports,
    until,
)

HERE = pathlib.Path(__file__).parent
DRIVER = "org.apache.beam.runners.flink.FlinkJobServerDriver"
# A job graph is serialized vertex in vertex; one of 26 lengths overflows Java's usual 1 MiB.
THREAD_STACK = "-Xss16m"
# Java's usual collector looks through the heap all the time where elements are megabytes, which took
# half of the CPU time of TaskManagers.
COLLECTOR = "-XX:+UseSerialGC"
_RUNTIME = "org.apache.flink.runtime"
_SETTINGS = "cluster.json"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Ports:
    """Where the daemons listen: Flink on this machine alone, Beam's on all addresses of it.

    Attributes:
      rest: Flink's REST interface and web page.
      rpc: JobManager, for TaskManagers.
      job: Beam's job server, for launchers; the two below are its own, too.
      workers: Beam's worker pool, for TaskManagers.
    """

    rest: int = 8081
    rpc: int = 6123
    job: int = 8099
    workers: int = 50000


class Cluster:
    """A Flink cluster for Beam.

    Attributes:
      daemons: its processes, with logs and pid files in its state folder.
      ports: where they listen.
      slots: tasks that one TaskManager runs at the same time.
      refresh_interval: milliseconds for which Flink shows the state of a job unchanged.
      rest: Flink's REST interface.
    """

    def __init__(
        self,
        state: pathlib.Path,
        *,
        ports: Ports | None = None,
        slots: int = 1,
        refresh_interval: int = 3000,
    ):
        self.daemons = Daemons(state)
        self.ports = ports or Ports()
        self.slots = slots
        self.refresh_interval = refresh_interval
        self.rest = Rest(f"localhost:{self.ports.rest}")

    @classmethod
    def at(cls, state: pathlib.Path) -> "Cluster":
        """Returns the cluster that was started with this state folder, or a new one."""
        try:
            settings = json.loads((state / _SETTINGS).read_text(encoding="utf-8"))
        except FileNotFoundError:
            return cls(state)
        return cls(state, ports=Ports(**settings["ports"]), slots=settings["slots"])

    def start(self, *, task_managers: int = 2, python: str = sys.executable) -> None:
        """Starts everything, and waits until TaskManagers have registered.

        Args:
          task_managers: how many.
          python: the Python that runs the pipeline's steps; it must have apache_beam and beam_dpne.

        Raises:
          DeployError: if a tool is missing, it runs already, a port is taken, or a daemon does not
            start; all are stopped then.
          TimeoutError: if TaskManagers do not register; all are stopped then.
        """
        if running := [name for name, pid in self.daemons.status().items() if pid]:
            raise DeployError(f"{', '.join(running)} run already; stop them first.")
        java()
        run([python, "-c", "import apache_beam, beam_dpne"])
        ports = self.ports
        require_free_ports(
            ports.rest, ports.rpc, ports.workers, *range(ports.job - 2, ports.job + 1)
        )
        self.daemons.state.mkdir(parents=True, exist_ok=True)
        settings = {"ports": dataclasses.asdict(ports), "slots": self.slots}
        (self.daemons.state / _SETTINGS).write_text(json.dumps(settings), encoding="utf-8")
        try:
            self._start_job_manager()
            for _ in range(task_managers):
                self.start_task_manager()
            self._start_workers(python)
            self._start_job_server()
            until(
                lambda: len(self.rest.task_managers()) >= task_managers,
                timeout=90,
                what=f"registration of {task_managers} TaskManagers (logs in {self.daemons.state})",
            )
        except BaseException:
            self.daemons.stop_all()
            raise

    def start_task_manager(self) -> str:
        """Starts one more TaskManager, and returns its name, which is also its id in Flink."""
        number = 1
        while self.daemons.log(f"taskmanager-{number}").exists():
            number += 1
        name = f"taskmanager-{number}"
        settings = {
            "taskmanager.numberOfTaskSlots": self.slots,
            "taskmanager.resource-id": name,
            # Flink's page and REST interface show it from there.
            "taskmanager.log.path": self.daemons.log(name),
        }
        main = f"{_RUNTIME}.taskexecutor.TaskManagerRunner"
        self._start_flink(name, main, "GET_TM_RESOURCE_PARAMS", settings)
        return name

    def job_options(self, *, parallelism: int) -> list[str]:
        """Returns the options that run a `beam-dpne` job here."""
        return [
            *("--runner", "PortableRunner"),
            *("--job_endpoint", f"localhost:{self.ports.job}"),
            *("--environment_type", "EXTERNAL"),
            *("--environment_config", f"localhost:{self.ports.workers}"),
            *("--parallelism", str(parallelism)),
            # Stages run one after the other, so there may be more tasks than slots; see README.md.
            *("--execution_mode_for_batch", "BATCH"),
            # The launcher cancels a job there: Beam's job server would leave it running.
            *("--flink_master", self.rest.address),
        ]

    def _start_job_manager(self) -> None:
        settings = {
            "rest.port": self.ports.rest,
            "rest.bind-port": self.ports.rest,
            # Whoever reaches this port can run code.
            "rest.bind-address": "localhost",
            "web.refresh-interval": self.refresh_interval,
        }
        main = f"{_RUNTIME}.entrypoint.StandaloneSessionClusterEntrypoint"
        self._start_flink("jobmanager", main, "GET_JM_RESOURCE_PARAMS", settings)
        until(lambda: self.rest.get("/overview"), timeout=90, what="an answer of the JobManager")

    def _start_workers(self, python: str) -> None:
        port = self.ports.workers
        pool = [python, WORKER_POOL, f"--service_port={port}"]
        folder = {"TMPDIR": str(self.daemons.temporary("workers"))}
        self.daemons.start("workers", pool, ready=listens(port), environment=folder)

    def _start_job_server(self) -> None:
        command = job_server_command(
            DRIVER,
            self.ports.job,
            self.daemons,
            f"--flink-master={self.rest.address}",
            jars=job_server_class_path(),
            # JobManager and TaskManagers have Beam's jars in their class path.
            options=["-Xmx512m", "-Dbeam_dpne.jars_in_lib=true", *self._java_options()],
        )
        self.daemons.start("jobserver", command, ready=listens(self.ports.job))

    def _start_flink(
        self, name: str, main: str, memory_goal: str, settings: Mapping[str, object]
    ) -> None:
        """Starts a Java main of Flink, with the memory that Flink's own start script would give it."""
        temporary = self.daemons.temporary(name)
        settings = {
            "jobmanager.rpc.port": self.ports.rpc,
            "io.tmp.dirs": temporary,
            "blob.storage.directory": temporary,
            **settings,
        }
        given = [f"-D{key}={value}" for key, value in settings.items()]
        java_memory, flink_memory = _memory(memory_goal, given)
        command = java_command(
            main,
            *("--configDir", str(HERE)),
            *flink_memory,
            *given,
            jars=flink_class_path(),
            options=[*java_memory, "-XX:+ExitOnOutOfMemoryError", *self._java_options()],
        )
        self.daemons.start(name, command)

    def _java_options(self) -> list[str]:
        return [
            THREAD_STACK,
            # Java only carries bytes here: its second compiler would take more time than it saves.
            "-XX:TieredStopAtLevel=1",
            COLLECTOR,
            f"-Dlog4j.configurationFile={HERE / 'log4j.properties'}",
            f"-Djava.io.tmpdir={self.daemons.temporary('java')}",
        ]


def _memory(goal: str, settings: list[str]) -> tuple[list[str], list[str]]:
    """Returns Java's options and Flink's settings for the memory that config.yaml grants."""
    home = flink_distribution()
    jars = [next((home / "lib").glob("flink-dist-*.jar")), home / "bin" / "bash-java-utils.jar"]
    main = f"{_RUNTIME}.util.bash.BashJavaUtils"
    said = run(java_command(main, goal, "--configDir", str(HERE), *settings, jars=jars))
    mark = "BASH_JAVA_UTILS_EXEC_RESULT:"
    java_options, flink_settings = (
        line.removeprefix(mark).split() for line in said.splitlines() if line.startswith(mark)
    )
    return java_options, flink_settings
