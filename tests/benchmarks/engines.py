"""python -m tests.benchmarks.engines ENGINE [--data NAME ...] [--titles PATH] [--json PATH]

Launches whole jobs on an engine of this machine, and the same jobs on the embedded runner in turn, as
one step and as the graph that engines run. Each release must be the embedded one, byte for byte. Prints
seconds, CPU seconds and peak memory of launcher, engine and Python harnesses. Flink and Spark are
started for that and stopped afterwards, or with --state must run there. With --json the rows replace
those of the same engine, data and strategy in that file.
"""

import argparse
import contextlib
import dataclasses
import hashlib
import json
import pathlib
import secrets
import shutil
import subprocess
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
    return setting.reddit.product(_ten_times(setting), strategy)


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
    found = []
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
                found.append({"data": data, "strategy": strategy, "rows": rows, **about})
                found[-1]["command"] = shown_command(job, engine.options, work, given.titles)
    for part in found:
        part["engine"] = given.engine
        part["small"] = given.small
    if given.json:
        record(found, given.json)
    return 0 if all(row["equal"] for part in found for row in part["rows"]) else 1


def shown_command(
    job: Sequence[str], options: Sequence[str], work: pathlib.Path, titles: pathlib.Path
) -> str:
    """Returns a command without the paths of this machine."""
    words = " ".join(["python", *job, "--output release", *options])
    for path in (titles, inputs.MSNBC, work / "msnbc.seq.gz"):
        words = words.replace(str(path), path.name)
    return words.replace(f"{work}/", "")


def record(found: Iterable[Mapping[str, Any]], path: pathlib.Path) -> None:
    """Writes parts into a file, where they replace those of the same engine, data and strategy."""
    old = json.loads(path.read_text(encoding="utf-8")) if path.exists() else []
    parts = {_key(part): part for part in [*old, *found]}
    ordered = [parts[key] for key in sorted(parts)]
    path.write_text(json.dumps(ordered, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


def _key(part: Mapping[str, Any]) -> tuple[str, ...]:
    return part["engine"], part["data"], part["strategy"]


def _ten_times(setting: Setting) -> pathlib.Path:
    """The titles ten times over, each time with other users; not compressed, so that it can be cut."""
    packed = inputs.more_users(setting.reddit.data, setting.work / "ten.jsonl.gz", times=_COPIES)
    target = packed.with_suffix("")
    with target.open("wb") as file:
        subprocess.run(["gzip", "-dc", str(packed)], stdout=file, check=True)
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
        type=lambda path: pathlib.Path(path).resolve(strict=True),
        default=inputs.TITLES,
        help="JSON lines of user and text, gzipped (default: the sample that is shipped)",
    )
    parser.add_argument("--small", action="store_true", help="a part of the data, for a quick look")
    parser.add_argument("--repeats", type=int, default=3, help="(%(default)s)")
    parser.add_argument("--state", type=pathlib.Path, help="of a Flink or Spark that runs")
    parser.add_argument("--json", type=pathlib.Path, help="record the rows there")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    sys.exit(main())
