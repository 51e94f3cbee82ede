"""python -m tests.benchmarks.engines ENGINE [--data NAME ...] [--titles PATH] [--json PATH]

Launches whole jobs on an engine of this machine, and the same jobs on the embedded runner in turn, as
one step and as the graph that engines run. Each release must be the embedded one, byte for byte. Prints
seconds, CPU seconds and peak memory of launcher, engine and Python harnesses. Flink and Spark are
started for that and stopped afterwards, or with --state must run there. With --json the rows of each
job are written when they are there, and replace those of the same engine, data and strategy in that
file; rows with --small replace only those with --small.
"""

import argparse
import contextlib
import dataclasses
import gzip
import hashlib
import json
import pathlib
import secrets
import shutil
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from deploy.downloads import prism
from deploy.flink import cluster as flink
from deploy.processes import Daemons
from deploy.spark import cluster as spark
from tests.benchmarks import inputs, machine
from tests.benchmarks.measure import start_python
from tests.benchmarks.processes import KINDS, Sampler, as_json
from tests.benchmarks.workloads import DEFAULT, ONE_ROUND, Setting

EMBEDDED = {"embedded, one step": (), "embedded, graph": ("--workers=0",)}
TITLES, MSNBC, TEN_TIMES = "titles", "msnbc", "ten_times"
ENGINES = ("flink", "spark", "spark_cluster", "prism")
_PARALLELISM = 2
_COPIES = 10
_FIRST_PORT = 28081


@dataclasses.dataclass(frozen=True)
class Engine:
    """An engine that runs: the options of a job there, and its processes besides the launcher."""

    options: Sequence[str]
    daemons: Daemons | None = None

    def processes(self) -> list[int]:
        """Returns the process ids of its daemons that run."""
        status = self.daemons.status() if self.daemons else {}
        return [pid for pid in status.values() if pid]


@contextlib.contextmanager
def running(name: str, state: pathlib.Path | None) -> Iterator[Engine]:
    """Starts an engine and stops it at the end, or takes the one that runs with a state folder."""
    with contextlib.ExitStack() as stack:
        folder = state or pathlib.Path(stack.enter_context(tempfile.TemporaryDirectory()))
        if name == "prism":
            yield Engine(["--runner", "PrismRunner", "--prism_location", str(prism())])
            return
        if name == "flink":
            one = flink.Cluster.at(folder)
            options = one.job_options(parallelism=_PARALLELISM)
        else:
            one = spark.Spark(folder, master=None if name == "spark_cluster" else spark.LOCAL)
            options = one.job_options()
        if state is None:
            stack.callback(one.stop)
            one.start()
        yield Engine(options, one.daemons)


def command_of(data: str, strategy: str, setting: Setting) -> list[str]:
    """Returns the command of a job but for its engine, run key and output."""
    if data == MSNBC:
        return setting.msnbc.product(setting.msnbc.data, strategy)
    if data == TITLES:
        return setting.reddit.product(setting.reddit.data, strategy)
    return setting.reddit.product(ten_times(setting), strategy)


def measure(command: Sequence[str], engine: Engine, output: pathlib.Path) -> dict[str, Any]:
    """Runs a job; returns what it took, and the digests of the files of its release.

    Raises:
      RuntimeError: if it fails.
    """
    with tempfile.TemporaryFile() as log:
        begin = time.perf_counter()
        child = start_python([*command, "--output", str(output)], log)
        with child, Sampler(lambda: [child.pid, *engine.processes()]) as sampler:
            child.wait()
            seconds = time.perf_counter() - begin
        if child.returncode:
            log.seek(0)
            raise RuntimeError(
                f"{child.args} ended with {child.returncode}:\n{log.read().decode()}"
            )
    costs = as_json(sampler.costs)
    return {
        "seconds": round(seconds, 2),
        "cpu": round(sum(cost["cpu"] for cost in costs.values()), 2),
        "processes": costs,
        "release": digests(output),
    }


def digests(release: pathlib.Path) -> dict[str, str]:
    """Returns the SHA-256 of each file of a release, by name."""
    files = [path for path in sorted(release.rglob("*")) if path.is_file()]
    return {
        str(path.relative_to(release)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in files
    }


def compare(
    name: str, job: Sequence[str], engine: Engine, repeats: int, work: pathlib.Path
) -> list[dict[str, Any]]:
    """Runs a job embedded and on an engine in turn; returns the runs of each in their order."""
    local = Engine(())
    sides = {side: (local, options) for side, options in EMBEDDED.items()}
    sides[name] = engine, engine.options
    rows = [{"where": side, "runs": []} for side in sides]
    for repeat in range(repeats):
        for row, (side, (one, options)) in zip(rows, sides.items(), strict=True):
            output = work / "release"
            run = measure([*job, *options], one, output)
            shutil.rmtree(output)
            print(f"  {repeat + 1}: {side}: {_shown(run)}", file=sys.stderr, flush=True)
            row["runs"].append(run)
    expected = rows[0]["runs"][0]["release"]
    for row in rows:
        row["equal"] = all(run.pop("release") == expected for run in row["runs"])
    return rows


def main(arguments: Sequence[str] | None = None) -> int:
    """Measures, prints and records; the exit status is 1 if a release differs."""
    given = _parse(arguments)
    equal = True
    with tempfile.TemporaryDirectory() as folder, running(given.engine, given.state) as engine:
        work = pathlib.Path(folder)
        key = work / "run.key"
        key.touch(mode=0o600)
        key.write_text(secrets.token_hex(32))
        setting = Setting(given.titles, given.titles, given.small, given.repeats, work)
        for data in given.data:
            for strategy in given.strategies:
                print(f"{data}, {strategy}:", file=sys.stderr)
                job = [*command_of(data, strategy, setting), "--run_key_file", str(key)]
                about = machine.describe()
                rows = compare(given.engine, job, engine, given.repeats, work)
                equal = equal and all(row["equal"] for row in rows)
                if given.json:
                    part = {"data": data, "strategy": strategy, "rows": rows, **about}
                    part["command"] = shown_command(job, engine.options)
                    part |= {"engine": given.engine, "small": given.small}
                    record([part], given.json)
    return 0 if equal else 1


def shown_command(job: Sequence[str], options: Sequence[str]) -> str:
    """Returns a command without the folders of this machine."""
    words = ["python", *job, "--output", "release", *options]
    return " ".join(pathlib.Path(word).name if word.startswith("/") else word for word in words)


def record(found: Iterable[Mapping[str, Any]], path: pathlib.Path) -> None:
    """Writes parts into a file, where they replace those of the same engine, data and strategy.

    Parts of small data and of whole data do not replace each other.
    """
    old = json.loads(path.read_text(encoding="utf-8")) if path.exists() else []
    parts = {_key(part): part for part in [*old, *found]}
    ordered = [parts[key] for key in sorted(parts)]
    path.write_text(json.dumps(ordered, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


def _key(part: Mapping[str, Any]) -> tuple[str, str, str, bool]:
    return part["engine"], part["data"], part["strategy"], part["small"]


def ten_times(setting: Setting) -> pathlib.Path:
    """The titles ten times over, each time with other users; not compressed, so that it can be cut.

    The file is made once for a setting.
    """
    target = setting.work / "ten.jsonl"
    if not target.exists():
        packed = setting.work / "ten.jsonl.gz"
        inputs.more_users(setting.reddit.data, packed, times=_COPIES)
        with gzip.open(packed) as copies, target.open("wb") as file:
            shutil.copyfileobj(copies, file)
        packed.unlink()
    return target


def _shown(run: Mapping[str, Any]) -> str:
    memory = ", ".join(
        f"{kind} {run['processes'][kind]['cpu']:.1f} s CPU {run['processes'][kind]['megabytes']} MB"
        for kind in KINDS
        if kind in run["processes"]
    )
    return f"{run['seconds']:.1f} s, CPU {run['cpu']:.1f} s ({memory})"


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.engines", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("engine", choices=ENGINES)
    parser.add_argument(
        "--data", nargs="+", choices=(TITLES, MSNBC, TEN_TIMES), default=[TITLES, MSNBC]
    )
    parser.add_argument(
        "--strategies", nargs="+", choices=(DEFAULT, ONE_ROUND), default=[DEFAULT, ONE_ROUND]
    )
    parser.add_argument(
        "--titles",
        type=inputs.existing_file,
        default=inputs.TITLES,
        help="JSON lines of user and text, gzipped (default: the sample that is shipped)",
    )
    parser.add_argument("--small", action="store_true", help="a part of the data, for a quick look")
    parser.add_argument("--repeats", type=int, default=3, help="(%(default)s)")
    parser.add_argument("--state", type=pathlib.Path, help="of a Flink or Spark that runs")
    parser.add_argument("--json", type=inputs.in_a_folder, help="record the rows there")
    given = parser.parse_args(arguments)
    if given.repeats < 1:
        parser.error(f"argument --repeats: must be at least 1, got {given.repeats}")
    if given.state and (given.engine == "prism" or not given.state.is_dir()):
        parser.error(f"argument --state: must be of a Flink or Spark that runs, got {given.state}")
    return given


if __name__ == "__main__":
    sys.exit(main())
