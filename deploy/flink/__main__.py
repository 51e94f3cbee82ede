"""`python3 -m deploy.flink COMMAND`: a Flink cluster for Beam here; --help lists the commands."""

import argparse
import pathlib
import subprocess
import sys
from collections.abc import Callable

from deploy.downloads import DownloadError, MissingToolError, cache
from deploy.flink import memory
from deploy.flink.cluster import REFRESH_INTERVAL, Cluster, Ports, pools
from deploy.flink.jars import copy_jars
from deploy.flink.rest import task_counts
from deploy.processes import DaemonError

_DOCTOR = "Look at a cluster that is there already, and say line by line what works."
_DOCTOR_MORE = (
    " It changes nothing, and runs one small job without data. The exit status is 0 if a job would "
    "run, 1 if not, 2 for wrong options."
)


def main() -> int:
    """Does what the arguments say; returns the exit status."""
    parser = _parser()
    given = parser.parse_args()
    try:
        return given.do(given)
    except (MissingToolError, DownloadError, DaemonError, ValueError, OSError) as error:
        print(f"deploy.flink: {error}", file=sys.stderr)
        return 1


def _start(given: argparse.Namespace) -> int:
    first = given.job_port
    ports = Ports(
        rest=given.rest_port,
        rpc=given.rpc_port,
        job=first,
        artifact=first - 1,
        expansion=first - 2,
        workers=given.workers_port,
    )
    cluster = Cluster(given.state, ports=ports, slots=given.slots)
    cluster.start(
        task_managers=given.task_managers,
        python=given.python,
        refresh_interval=given.refresh_interval,
    )
    print(
        f"Started; logs are in {cluster.daemons.state}, Flink's page is http://{cluster.rest.address}"
    )
    print("Options of a job here:")
    print(" ".join(cluster.job_options(parallelism=given.task_managers * given.slots)))
    return 0


def _stop(given: argparse.Namespace) -> int:
    print("Stopped:", ", ".join(Cluster.at(given.state).stop()) or "nothing ran")
    return 0


def _status(given: argparse.Namespace) -> int:
    """Lists the daemons; the exit status is 1 unless there are some and all run."""
    cluster = Cluster.at(given.state)
    status = cluster.daemons.status()
    for name, pid in status.items():
        print(f"{name}: {'has died' if pid is None else f'runs as process {pid}'}")
    if not status:
        print("nothing was started")
        return 1
    for name, of in sorted(cluster.rest.task_managers().items()):
        print(f"{name}: registered, {of['freeSlots']} of {of['slotsNumber']} slots free")
    return 0 if None not in status.values() else 1


def _jobs(given: argparse.Namespace) -> int:
    rest = Cluster.at(given.state).rest
    for identity, of in rest.jobs().items():
        counts = task_counts(rest.job(identity))
        failures = len(rest.exceptions(identity))
        print(
            f"{identity} {of['name']}: {of['state']}, {of['duration'] / 1000:.1f} s, "
            f"{counts['vertices']} vertices, {counts['tasks']} tasks, {failures} failures"
        )
    return 0


def _add(given: argparse.Namespace) -> int:
    print("Started:", Cluster.at(given.state).start_task_manager())
    return 0


def _kill(given: argparse.Namespace) -> int:
    Cluster.at(given.state).daemons.kill(given.name)
    print("Killed:", given.name)
    return 0


def _jars(given: argparse.Namespace) -> int:
    copy_jars(given.folder)
    print(
        f"Written: {given.folder}/flink-lib, {given.folder}/job-server, {given.folder}/planner.jar"
    )
    return 0


def _doctor(given: argparse.Namespace) -> int:
    """Looks at a cluster that is there; Beam is imported only for this command."""
    from deploy.flink import doctor

    return doctor.main(given, given.parser)


def _memory(given: argparse.Namespace) -> int:
    """Runs a command; its exit status is ours."""
    cluster = Cluster.at(given.state)
    if None in cluster.daemons.status().values() or not cluster.daemons.names():
        raise DaemonError("memory needs a cluster that runs; see status.")
    names = pools(cluster.daemons)
    with memory.Sampler(cluster.daemons, pools=names, interval=given.interval) as sampler:
        try:
            status = subprocess.run(given.program, check=False).returncode if given.program else 0
            if not given.program:
                input("Sampling; press Enter to end.\n")
        except (KeyboardInterrupt, EOFError):
            status = 130
    print(memory.table(sampler.peaks))
    return status


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python3 -m deploy.flink",
        description="Starts and stops a Flink cluster for Beam on this machine, and watches it.",
        allow_abbrev=False,
    )
    commands = parser.add_subparsers(required=True, metavar="COMMAND")

    def command(name: str, do: Callable[[argparse.Namespace], int], text: str):
        one = commands.add_parser(name, help=text, description=text, allow_abbrev=False)
        one.set_defaults(do=do)
        one.add_argument(
            "--state",
            type=pathlib.Path,
            default=cache() / "state" / "flink",
            help="Folder of logs and pid files (%(default)s); another one for a second cluster.",
        )
        return one

    _add_start_options(command("start", _start, "Start the cluster, and print a job's options."))
    command("stop", _stop, "Stop the cluster.")
    command("status", _status, "List its processes; exit status 1 unless all run.")
    command("jobs", _jobs, "List its jobs with their states, times and numbers of tasks.")
    command("add", _add, "Start one more TaskManager.")
    kill = command("kill", _kill, "Kill a TaskManager (SIGKILL), as a crash would.")
    kill.add_argument("name", help="Its name in status, such as taskmanager-1.")
    jars = command("jars", _jars, "Write the jars of a real cluster's images into a folder.")
    jars.add_argument("folder", type=pathlib.Path, help="The folder; made if missing.")
    doctor = commands.add_parser(
        "doctor", help=_DOCTOR, description=_DOCTOR + _DOCTOR_MORE, allow_abbrev=False
    )
    doctor.set_defaults(do=_doctor, parser=doctor)
    _add_doctor_options(doctor)
    peak = command("memory", _memory, "Run a program and print the workers' peak memory meanwhile.")
    peak.add_argument(
        "--interval", type=float, default=0.25, help="Seconds between samples (%(default)s)."
    )
    peak.add_argument(
        "program", nargs="*", help="The program, after --; without it, sample until Enter."
    )
    return parser


def _add_start_options(start: argparse.ArgumentParser) -> None:
    start.add_argument("--task_managers", type=int, default=2, help="How many (%(default)s).")
    start.add_argument(
        "--slots", type=int, default=1, help="Tasks that each runs at a time (%(default)s)."
    )
    start.add_argument("--rest_port", type=int, default=Ports.rest, help="(%(default)s)")
    start.add_argument("--rpc_port", type=int, default=Ports.rpc, help="(%(default)s)")
    start.add_argument(
        "--job_port",
        type=int,
        default=Ports.job,
        help="Port of the job server (%(default)s); the two below it are taken as well.",
    )
    start.add_argument(
        "--workers_port", type=int, default=Ports.workers, help="Worker pool (%(default)s)."
    )
    start.add_argument(
        "--python",
        default=sys.executable,
        help="Python of the workers, which must have apache_beam and beam_dpne (%(default)s).",
    )
    start.add_argument(
        "--refresh_interval",
        type=_positive,
        default=REFRESH_INTERVAL,
        metavar="MS",
        help="Milliseconds for which Flink shows the state of a job unchanged (%(default)s).",
    )


def _add_doctor_options(parser: argparse.ArgumentParser) -> None:
    """Adds the doctor's options."""
    parser.add_argument(
        "--flink_master", required=True, metavar="HOST:8081", help="Flink's REST interface."
    )
    parser.add_argument(
        "--job_endpoint",
        metavar="HOST:8099",
        help="Beam's job server; without it no job is tried, and the exit status is 1.",
    )
    parser.add_argument(
        "--environment_type", default="EXTERNAL", help="As for a job (%(default)s)."
    )
    parser.add_argument(
        "--environment_config",
        metavar="HOST:50000",
        help="As for a job: the pool of workers as TaskManagers see it.",
    )
    parser.add_argument(
        "--parallelism", type=_positive, default=2, help="As for a job (%(default)s)."
    )
    parser.add_argument(
        "--temp_location", help="As for a job; a file is written there and deleted."
    )
    parser.add_argument(
        "--max_length", type=_positive, default=5, help="Longest n-grams of the job (%(default)s)."
    )
    parser.add_argument("--rounds", type=_positive, help="As for the job (3).")
    parser.add_argument(
        "--strategy", choices=("adaptive", "one_round"), default="adaptive", help="(%(default)s)"
    )
    parser.add_argument(
        "--harness_timeout",
        type=_positive,
        default=120,
        help="Seconds in which the small job must have ended (%(default)s).",
    )
    parser.add_argument(
        "--timeout",
        type=_positive,
        default=5,
        help="Seconds in which each service must answer (%(default)s).",
    )


def _positive(text: str) -> int:
    if not text.isdecimal() or not int(text):
        raise argparse.ArgumentTypeError(f"must be a whole number above 0, got {text!r}.")
    return int(text)


if __name__ == "__main__":
    sys.exit(main())
