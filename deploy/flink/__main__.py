"""`python3 -m deploy.flink COMMAND`: a Flink cluster for Beam here; --help lists the commands."""

import argparse
import pathlib
import sys

from deploy.downloads import DeployError, cache
from deploy.flink import doctor
from deploy.flink.cluster import Cluster, Ports
from deploy.flink.jars import copy_jars
from deploy.processes import print_status


def main() -> int:
    """Does what the arguments say; returns the exit status."""
    try:
        given = _parser().parse_args()
        return given.do(given) or 0
    except (DeployError, OSError) as error:
        print(f"deploy.flink: {error}", file=sys.stderr)
        return 1


def _start(given: argparse.Namespace) -> None:
    ports = Ports(
        rest=given.rest_port, rpc=given.rpc_port, job=given.job_port, workers=given.workers_port
    )
    cluster = Cluster(
        given.state, ports=ports, slots=given.slots, refresh_interval=given.refresh_interval
    )
    cluster.start(task_managers=given.task_managers, python=given.python)
    print(
        f"Started; logs are in {cluster.daemons.state}, Flink's page is http://{cluster.rest.address}"
    )
    print("Options of a job here:")
    print(" ".join(cluster.job_options(parallelism=given.task_managers * given.slots)))


def _stop(given: argparse.Namespace) -> None:
    print("Stopped:", ", ".join(Cluster.at(given.state).daemons.stop_all()) or "nothing ran")


def _status(given: argparse.Namespace) -> int:
    cluster = Cluster.at(given.state)
    if cluster.daemons.pid("jobmanager"):
        for name, of in sorted(cluster.rest.task_managers().items()):
            print(f"{name}: registered, {of['freeSlots']} of {of['slotsNumber']} slots free")
    return print_status(cluster.daemons)


def _add(given: argparse.Namespace) -> None:
    print("Started:", Cluster.at(given.state).start_task_manager())


def _kill(given: argparse.Namespace) -> None:
    Cluster.at(given.state).daemons.kill(given.name)
    print("Killed:", given.name)


def _jars(given: argparse.Namespace) -> None:
    copy_jars(given.folder)
    print(f"Written: {given.folder}/flink-lib, {given.folder}/job-server")


def _doctor(given: argparse.Namespace) -> int:
    return doctor.look(given.flink_master, rounds=given.rounds, parallelism=given.parallelism)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python3 -m deploy.flink",
        description="Starts and stops a Flink cluster for Beam on this machine, and looks at others.",
        allow_abbrev=False,
    )
    commands = parser.add_subparsers(required=True, metavar="COMMAND")

    def command(name: str, do, text: str) -> argparse.ArgumentParser:
        one = commands.add_parser(name, help=text, description=text, allow_abbrev=False)
        one.set_defaults(do=do)
        return one

    start = command("start", _start, "Start the cluster, and print a job's options.")
    for name, default, text in (
        ("task_managers", 2, "How many (%(default)s)."),
        ("slots", 1, "Tasks that each runs at a time (%(default)s)."),
        ("rest_port", Ports.rest, "Flink's REST interface and page (%(default)s)."),
        ("rpc_port", Ports.rpc, "JobManager (%(default)s)."),
        ("job_port", Ports.job, "Job server (%(default)s); it takes the two below as well."),
        ("workers_port", Ports.workers, "Worker pool (%(default)s)."),
        (
            "refresh_interval",
            3000,
            "Milliseconds for which Flink shows a job unchanged (%(default)s).",
        ),
    ):
        start.add_argument(f"--{name}", type=int, default=default, help=text)
    start.add_argument(
        "--python",
        default=sys.executable,
        help="Python of the workers, which must have apache_beam and beam_dpne (%(default)s).",
    )
    local = [
        start,
        command("stop", _stop, "Stop the cluster."),
        command("status", _status, "List its processes; exit status 1 unless all run."),
        command("add", _add, "Start one more TaskManager."),
        command("kill", _kill, "Kill a TaskManager (SIGKILL), as a crash would."),
    ]
    local[-1].add_argument("name", help="Its name in status, such as taskmanager-1.")
    for one in local:
        one.add_argument(
            "--state",
            type=pathlib.Path,
            default=cache() / "state" / "flink",
            help="Folder of logs and pid files (%(default)s); another one for a second cluster.",
        )
    jars = command("jars", _jars, "Write the jars of a real cluster's images into a folder.")
    jars.add_argument("folder", type=pathlib.Path, help="The folder; made if missing.")
    look = command("doctor", _doctor, "Say line by line whether a cluster runs our jobs.")
    look.add_argument(
        "--flink_master", required=True, metavar="HOST:8081", help="Flink's REST interface."
    )
    look.add_argument("--parallelism", type=int, default=2, help="As for a job (%(default)s).")
    look.add_argument(
        "--rounds",
        type=int,
        default=15,
        help="Rounds of all lengths together (%(default)s, those of five lengths by default).",
    )
    return parser


if __name__ == "__main__":
    sys.exit(main())
