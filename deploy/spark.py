"""`python3 -m deploy.spark start|stop|status`: Spark for Beam on this machine (spark.md)."""

import argparse
import json
import pathlib
import sys
import urllib.request
from collections.abc import Mapping

from deploy.downloads import DeployError, cache, spark_jars
from deploy.processes import (
    WORKER_POOL,
    Daemons,
    java,
    java_command,
    job_server_command,
    listens,
    print_status,
    require_free_ports,
)

LOCAL = "local[2]"
JOB_PORT = 8199
MASTER_PORT = 7077
MASTER_WEB = 8080
WORKER_WEB = 8082
POOL_PORT = 8190
# Spark listens on the address of the machine's name otherwise, its web pages on all.
_THIS_MACHINE = {"SPARK_LOCAL_IP": "127.0.0.1"}


class Spark:
    """Spark for Beam: a job server, and if wanted a cluster of its own.

    Attributes:
      daemons: its processes, with logs and pid files in its state folder.
      job_port: of Beam's job server; the two ports below are its own, too.
      master: Spark's name of the master that runs the jobs: `local[2]` (the job server itself, two
        tasks at a time) or `spark://HOST:PORT`; None: a standalone cluster, started here.
    """

    def __init__(
        self, state: pathlib.Path, *, job_port: int = JOB_PORT, master: str | None = LOCAL
    ):
        self.daemons = Daemons(state)
        self.job_port = job_port
        self.master = master

    def start(self, *, python: str = sys.executable) -> None:
        """Starts Beam's job server; before it master, worker and Beam's worker pool, if wanted.

        Args:
          python: the Python that runs the pipeline's steps; it must have apache_beam and beam_dpne.

        Raises:
          DeployError: if a tool is missing, a download fails, a port is taken, or a daemon does not
            start; everything is stopped then.
        """
        java()
        spark_jars()
        require_free_ports(*(self.job_port - below for below in range(3)))
        try:
            if self.master is None:
                require_free_ports(MASTER_PORT, MASTER_WEB, WORKER_WEB, POOL_PORT)
                self._start_cluster(python)
            self._start_job_server()
        except BaseException:
            self.daemons.stop_all()
            raise

    def job_options(self) -> list[str]:
        """Returns the options that run a `beam-dpne` job here."""
        options = ["--runner", "PortableRunner", "--job_endpoint", f"localhost:{self.job_port}"]
        if self.master is not None and self.master.startswith("local"):
            return [*options, "--environment_type", "LOOPBACK"]
        pool = f"localhost:{POOL_PORT}"
        options += ["--environment_type", "EXTERNAL", "--environment_config", pool]
        if self.master is None:
            # Executors have all jars; else the job server sends 300 MB to each, for every job.
            options += ["--files_to_stage", str(next(spark_jars().glob("slf4j-api-*.jar")))]
        return options

    def cluster_state(self) -> Mapping:
        """Returns the master's state, such as `aliveworkers`, `activeapps` and `completedapps`."""
        url = f"http://localhost:{MASTER_WEB}/json/"
        with urllib.request.urlopen(url, timeout=10) as response:
            return json.load(response)

    def _start_cluster(self, python: str) -> None:
        home = self.daemons.temporary("spark")
        # Executors get the jars of SPARK_HOME.
        (home / "jars").symlink_to(spark_jars())
        settings = {
            **_THIS_MACHINE,
            "SPARK_HOME": str(home),
            "SPARK_SCALA_VERSION": "2.12",
            "SPARK_LOCAL_DIRS": str(self.daemons.temporary("local")),
        }
        master = ["--port", str(MASTER_PORT), "--webui-port", str(MASTER_WEB)]
        worker = ["--webui-port", str(WORKER_WEB), "--cores", "2", "--memory", "1024m"]
        worker += ["--work-dir", str(self.daemons.temporary("work")), self._url()]
        for name, main, arguments, is_ready in (
            ("master", "master.Master", master, self.cluster_state),
            ("worker", "worker.Worker", worker, lambda: self.cluster_state()["aliveworkers"] > 0),
        ):
            command = java_command(
                f"org.apache.spark.deploy.{main}",
                *("--host", "localhost", *arguments),
                jars=[spark_jars()],
                options=["-Xmx256m", self._java_folder()],
            )
            self.daemons.start(name, command, ready=is_ready, environment=settings)
        self._start_pool(python)

    def _start_pool(self, python: str) -> None:
        pool = [WORKER_POOL, f"--service_port={POOL_PORT}"]
        folder = {"TMPDIR": str(self.daemons.temporary("workers"))}
        self.daemons.start("workers", [python, *pool], ready=listens(POOL_PORT), environment=folder)

    def _start_job_server(self) -> None:
        local = self.daemons.temporary("local")
        command = job_server_command(
            "org.apache.beam.runners.spark.SparkJobServerDriver",
            self.job_port,
            self.daemons,
            f"--spark-master-url={self.master or self._url()}",
            jars=[spark_jars()],
            options=[
                # It is also the driver of every job, through which all side inputs go, and keeps
                # what it has of a job for two minutes. A full heap would leave the launcher waiting.
                *("-Xmx2048m", "-XX:+ExitOnOutOfMemoryError", self._java_folder()),
                *("-Dspark.driver.host=localhost", "-Dspark.executor.memory=1024m"),
                f"-Dspark.local.dir={local}",
            ],
        )
        ready = listens(self.job_port)
        self.daemons.start("jobserver", command, ready=ready, environment=_THIS_MACHINE)

    def _url(self) -> str:
        return f"spark://localhost:{MASTER_PORT}"

    def _java_folder(self) -> str:
        return f"-Djava.io.tmpdir={self.daemons.temporary('java')}"


def main() -> int:
    """Does what the arguments say; returns the exit status."""
    try:
        given = _parser().parse_args()
        spark = Spark(
            given.state, job_port=given.job_port, master=None if given.cluster else given.master
        )
        if given.command == "status":
            return print_status(spark.daemons)
        if given.command == "stop":
            print("Stopped:", ", ".join(spark.daemons.stop_all()) or "nothing ran")
            return 0
        spark.start(python=given.python)
    except DeployError as error:
        print(f"deploy.spark: {error}", file=sys.stderr)
        return 1
    print(f"Started; logs are in {spark.daemons.state}. Options of a job here:")
    print(" ".join(spark.job_options()))
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python3 -m deploy.spark",
        description="Starts Beam's job server for Spark, and a standalone Spark cluster if wanted.",
        allow_abbrev=False,
    )
    parser.add_argument("command", choices=["start", "status", "stop"])
    parser.add_argument(
        "--state",
        type=pathlib.Path,
        default=cache() / "state" / "spark",
        help="Folder of logs and pid files (%(default)s); another one for a second Spark.",
    )
    where = parser.add_mutually_exclusive_group()
    where.add_argument(
        "--master", default=LOCAL, help="Spark master that runs the jobs (%(default)s)."
    )
    where.add_argument(
        "--cluster", action="store_true", help="Start a master and a worker here, and use them."
    )
    parser.add_argument(
        "--job_port",
        type=int,
        default=JOB_PORT,
        help="Port of the job server (%(default)s); the two below it are taken as well.",
    )
    parser.add_argument(
        "--python",
        default=sys.executable,
        help="With --cluster: Python of the workers, which must have beam_dpne (%(default)s).",
    )
    return parser


if __name__ == "__main__":
    sys.exit(main())
