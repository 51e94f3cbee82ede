"""`python3 -m deploy.spark start|stop|status`: Spark for Beam on this machine."""

import argparse
import pathlib
import sys

from deploy.downloads import DownloadError, MissingToolError, cache
from deploy.processes import DaemonError
from deploy.spark.cluster import LOCAL, Ports, Spark


def main() -> int:
    """Does what the arguments say; returns the exit status."""
    given = _parser().parse_args()
    job = given.job_port
    ports = Ports(job=job, artifact=job - 1, expansion=job - 2)
    spark = Spark(given.state, ports=ports, master=None if given.cluster else given.master)
    try:
        return _COMMANDS[given.command](spark, given)
    except (MissingToolError, DownloadError, DaemonError, OSError) as error:
        print(f"deploy.spark: {error}", file=sys.stderr)
        return 1


def _start(spark: Spark, given: argparse.Namespace) -> int:
    spark.start(python=given.python)
    print(f"Started; logs are in {spark.daemons.state}. Options of a job here:")
    print(" ".join(spark.job_options()))
    return 0


def _stop(spark: Spark, _given: argparse.Namespace) -> int:
    print("Stopped:", ", ".join(spark.stop()) or "nothing ran")
    return 0


def _status(spark: Spark, _given: argparse.Namespace) -> int:
    """Lists the daemons; the exit status is 1 unless there are some and all run."""
    status = spark.daemons.status()
    for name, pid in status.items():
        print(f"{name}: {'has died' if pid is None else f'runs as process {pid}'}")
    if not status:
        print("nothing was started")
    return 0 if status and None not in status.values() else 1


_COMMANDS = {"start": _start, "stop": _stop, "status": _status}


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python3 -m deploy.spark",
        description="Starts Beam's job server for Spark, and a standalone Spark cluster if wanted.",
        allow_abbrev=False,
    )
    parser.add_argument("command", choices=sorted(_COMMANDS))
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
        default=Ports.job,
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
