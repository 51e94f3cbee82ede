"""Starts and stops the daemons of Spark for Beam, all on this machine."""

import dataclasses
import json
import os
import pathlib
import shutil
import stat
import sys
import urllib.request
from collections.abc import Mapping, Sequence

from deploy.downloads import maven_jars, versions
from deploy.java import java, java_command
from deploy.processes import Daemons, Ready, answers, require_free_ports

MASTER, WORKER, WORKERS, JOB_SERVER = "master", "worker", "workers", "jobserver"
LOCAL = "local[2]"
_MASTER = "org.apache.spark.deploy.master.Master"
_WORKER = "org.apache.spark.deploy.worker.Worker"
_DRIVER = "org.apache.beam.runners.spark.SparkJobServerDriver"
_START_SECONDS = 120
_SCALA = "2.12"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Ports:
    """Where the daemons listen: Spark on this machine alone, Beam on all addresses of it.

    Attributes:
      job: Beam's job server, for launchers.
      artifact: as `job`, for files that a job brings.
      expansion: as `job`, for transforms of other languages; unused.
      master: Spark's master, for workers and the job server; of a cluster only, like the rest.
      web: web page of the master, and its state as JSON under /json/.
      worker_web: web page of the worker.
      workers: Beam's worker pool, for executors.
    """

    job: int = 8199
    artifact: int = 8198
    expansion: int = 8197
    master: int = 7077
    web: int = 8080
    worker_web: int = 8082
    workers: int = 50100


class Spark:
    """Spark for Beam: a job server, and if wanted a cluster of its own.

    Attributes:
      daemons: its processes, with logs and pid files in its state folder.
      ports: where they listen.
      master: Spark's name of the master that runs the jobs: `local[2]` (the job server itself, two
        tasks at a time) or `spark://HOST:PORT`; None: a standalone cluster, started here.
    """

    def __init__(
        self, state: pathlib.Path, *, ports: Ports | None = None, master: str | None = LOCAL
    ):
        self.daemons = Daemons(state)
        self.ports = ports or Ports()
        self.master = master

    def start(
        self, *, cores: int = 2, executor_megabytes: int = 1024, python: str = sys.executable
    ) -> None:
        """Starts Beam's job server; before it master, worker and Beam's worker pool, if wanted.

        Args:
          cores: tasks that the worker runs at the same time.
          executor_megabytes: heap of an executor, in MiB.
          python: the Python that runs the pipeline's steps; it must have apache_beam and beam_dpne.

        Raises:
          MissingToolError: if Java 17 is missing, or Maven, which is needed once.
          DownloadError: if the jars cannot be fetched.
          DaemonError: if a port is taken, or a daemon does not start; everything is stopped then.
        """
        java()
        spark_jars()
        ports = self.ports
        require_free_ports(ports.job, ports.artifact, ports.expansion)
        if self.master is None:
            require_free_ports(ports.master, ports.web, ports.worker_web, ports.workers)
        try:
            if self.master is None:
                self._start_master()
                self._start_worker(cores, executor_megabytes)
                self._start_pool(python)
            self._start_job_server(executor_megabytes)
        except BaseException:
            self.stop()
            raise

    def stop(self) -> list[str]:
        """Stops everything; returns the names of the daemons, the last started first."""
        stopped = self.daemons.stop_all()
        shutil.rmtree(self.daemons.state / "temporary", ignore_errors=True)
        return stopped

    def job_options(self) -> list[str]:
        """Returns the options that run a `beam-dpne` job here."""
        options = ["--runner", "PortableRunner", "--job_endpoint", f"localhost:{self.ports.job}"]
        if self.master is not None and self.master.startswith("local"):
            return [*options, "--environment_type", "LOOPBACK"]
        pool = f"localhost:{self.ports.workers}"
        options += ["--environment_type", "EXTERNAL", "--environment_config", pool]
        if self.master is None:
            # Executors have all jars; else the job server sends 300 MB to each, for every job.
            options += ["--files_to_stage", str(next(spark_jars().glob("slf4j-api-*.jar")))]
        return options

    def cluster_state(self) -> Mapping:
        """Returns the master's state, such as `aliveworkers`, `activeapps` and `completedapps`.

        Raises:
          OSError: if it does not answer.
        """
        url = f"http://localhost:{self.ports.web}/json/"
        with urllib.request.urlopen(url, timeout=10) as response:
            return json.load(response)

    def _start_master(self) -> None:
        command = java_command(
            _MASTER,
            *("--host", "localhost", "--port", str(self.ports.master)),
            *("--webui-port", str(self.ports.web)),
            jars=[spark_jars()],
            heap_megabytes=256,
            properties=self._properties(),
        )
        self._start_daemon(MASTER, command, answers(self.ports.web, path="/json/"))

    def _start_worker(self, cores: int, megabytes: int) -> None:
        home = self._temporary("spark")
        # Executors get the jars of SPARK_HOME.
        (home / "jars").symlink_to(spark_jars())
        command = java_command(
            _WORKER,
            *("--host", "localhost", "--webui-port", str(self.ports.worker_web)),
            *("--cores", str(cores), "--memory", f"{megabytes}m"),
            *("--work-dir", str(self._temporary("work"))),
            self._url(),
            jars=[spark_jars()],
            heap_megabytes=256,
            properties=self._properties(),
        )
        environment = {
            "SPARK_HOME": str(home),
            "SPARK_SCALA_VERSION": _SCALA,
            "SPARK_LOCAL_DIRS": str(self._temporary("local")),
        }
        self._start_daemon(WORKER, command, self._has_worker, environment)

    def _start_pool(self, python: str) -> None:
        # The pool starts `python` from PATH, which may well be another one, or none.
        folder = self._temporary("bin")
        wrapper = folder / "python"
        wrapper.write_text(f'#!/bin/sh\nexec "{python}" "$@"\n', encoding="utf-8")
        wrapper.chmod(wrapper.stat().st_mode | stat.S_IXUSR)
        path = os.pathsep.join([str(folder), os.environ.get("PATH", os.defpath)])
        port = self.ports.workers
        pool = ["-m", "apache_beam.runners.worker.worker_pool_main", f"--service_port={port}"]
        environment = {"PATH": path, "TMPDIR": str(self._temporary(WORKERS))}
        self._start_daemon(WORKERS, [python, *pool], answers(port), environment)

    def _start_job_server(self, executor_megabytes: int) -> None:
        artifacts = self._temporary("artifacts")
        command = java_command(
            _DRIVER,
            f"--spark-master-url={self.master or self._url()}",
            "--job-host=localhost",
            f"--job-port={self.ports.job}",
            f"--artifact-port={self.ports.artifact}",
            f"--expansion-port={self.ports.expansion}",
            f"--artifacts-dir={artifacts}",
            jars=[spark_jars()],
            # It is also the driver of every job, through which all side inputs go, and keeps what it
            # has of a job for two minutes after it. A full heap would leave the launcher waiting.
            heap_megabytes=2048,
            options=["-XX:+ExitOnOutOfMemoryError"],
            properties={
                **self._properties(),
                "spark.local.dir": str(self._temporary("local")),
                "spark.driver.host": "localhost",
                "spark.executor.memory": f"{executor_megabytes}m",
            },
        )
        self._start_daemon(JOB_SERVER, command, answers(self.ports.job))

    def _start_daemon(
        self,
        name: str,
        command: Sequence[str],
        ready: Ready,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        # Spark listens on the address of the machine's name otherwise, its web pages on all.
        settings = {"SPARK_LOCAL_IP": "127.0.0.1", **(environment or {})}
        self.daemons.start(name, command, ready=ready, timeout=_START_SECONDS, environment=settings)

    def _has_worker(self) -> bool:
        return self.cluster_state()["aliveworkers"] > 0

    def _url(self) -> str:
        return f"spark://localhost:{self.ports.master}"

    def _properties(self) -> dict[str, str]:
        return {"java.io.tmpdir": str(self._temporary("java"))}

    def _temporary(self, name: str) -> pathlib.Path:
        folder = self.daemons.state / "temporary" / name
        folder.mkdir(parents=True, exist_ok=True)
        return folder


def spark_jars() -> pathlib.Path:
    """Returns the folder of the jars of Spark and of Beam's job server; see `maven_jars`."""
    of = versions()
    artifact, beam, spark = (
        of[key] for key in ("BEAM_SPARK_ARTIFACT", "BEAM_SPARK_VERSION", "SPARK_VERSION")
    )
    return maven_jars(
        f"{artifact}-{beam}-spark-{spark}",
        [
            f"org.apache.beam:{artifact}:{beam}",
            f"org.apache.spark:spark-sql_{_SCALA}:{spark}",
            f"org.apache.spark:spark-streaming_{_SCALA}:{spark}",
            # Beam asks for an older one, under which Spark logs nothing.
            f"org.slf4j:slf4j-api:{of['SLF4J_VERSION']}",
        ],
    )
