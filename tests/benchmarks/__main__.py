"""python -m tests.benchmarks [--titles PATH] [--json PATH] [--check | --record]

Measures whole processes in turn and prints the medians of their ratios: start-up over the import of
Beam, the product over the numpy program in `floor.py`, the default strategy over `one_round`, and more
workers over one. Without --titles, the sample that is shipped stands in, of which start-up is nearly
all of the time.

--check measures a small instance, and fails if a ratio of user CPU seconds is 1.5 times the recorded
one and .06 above it; such ratios hardly depend on what else the machine does. --record replaces the
recorded ratios.
"""

import argparse
import dataclasses
import datetime
import gzip
import importlib.metadata
import itertools
import json
import os
import pathlib
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from beam_dpne.elements.processor import numpy_settings
from beam_dpne.ngrams.plan import NgramsPlan

ROOT = pathlib.Path(__file__).parents[2]
MSNBC = ROOT / "pipelines" / "data" / "msnbc990928.seq.gz"
TITLES = ROOT / "pipelines" / "data" / "reddit_titles_sample.jsonl.gz"
SMALL = pathlib.Path(__file__).with_name("recorded") / "small.json"
WORSE, COARSE = 1.5, 0.06
_COPIES = 8  # of the sample, in the small instance
_PRIVACY = {
    "MSNBC": {"epsilon": 1, "delta": 1e-7, "max_length": 6, "max_contributions": 10},
    "titles": {"epsilon": 4, "delta": 1e-7, "max_length": 7, "max_contributions": 100},
}
FLOOR, ONE_ROUND, DEFAULT = "floor", "one_round", "default"
IMPORT, ERROR = "import apache_beam", "error of a parameter"

Commands = Mapping[str, Sequence[str]]


class Run(NamedTuple):
    """The cost of a process: seconds, those of the CPU, those of the user's code, peak memory."""

    wall: float
    cpu: float
    user: float
    megabytes: float


Runs = Mapping[str, Sequence[Run]]


@dataclasses.dataclass(frozen=True)
class Ratio:
    """A row: a quantity of one process over that of another, within each repeat.

    Attributes:
      part: what the processes read.
      above: the process whose quantity is divided.
      below: the process by whose quantity it is divided.
      target: what the median should be at most; at least if it is a speed-up.
      of: the quantity, a field of `Run`.
      is_work: whether the usual start-up is taken off both.
    """

    part: str
    above: str
    below: str
    target: float | None = None
    of: str = "wall"
    is_work: bool = False

    @property
    def name(self) -> str:
        kinds = {"wall": "time", "cpu": "CPU time", "user": "user CPU time", "megabytes": "memory"}
        return f"{self.above} / {self.below}, {kinds[self.of]}{', without start-up' * self.is_work}"

    def values(self, runs: Runs) -> list[float]:
        """One ratio for each repeat."""
        above, below = (self._quantities(runs, name) for name in (self.above, self.below))
        return [a / b for a, b in zip(above, below, strict=True)]

    def _quantities(self, runs: Runs, name: str) -> list[float]:
        found = [getattr(run, self.of) for run in runs[name]]
        if self.is_work:
            usual = statistics.median(getattr(run, self.of) for run in runs[one_user(name)])
            found = [max(one - usual, 1e-3) for one in found]
        return found


def one_user(name: str) -> str:
    """The name of a process whose data are one user's."""
    return f"{name.split(',', maxsplit=1)[0]}, one user"


def product(part: str, data: pathlib.Path, strategy: str, *options: str) -> list[str]:
    """The product's command, but for --output."""
    privacy = dict(_PRIVACY[part])
    if strategy == DEFAULT:  # It has no limit of contributions.
        del privacy["max_contributions"]
    plan = NgramsPlan(**privacy, strategy="adaptive" if strategy == DEFAULT else strategy)
    path = data.with_name(f"{part}-{strategy}.json")
    path.write_text(plan.to_json())
    kind = ["--input_format=sequences"] if data.name.endswith(".seq.gz") else ["--tokenizer=words"]
    program = ["-m", "beam_dpne", "ngrams", "--input", str(data), "--plan", str(path), "--quiet"]
    return [*program, *kind, *options]


def floor(part: str, data: pathlib.Path) -> list[str]:
    """The command of the numpy program, but for --output."""
    kind = "sequences" if data.name.endswith(".seq.gz") else "jsonl"
    command = ["-m", "tests.benchmarks.floor", "--input", str(data), "--input_format", kind]
    flags = [f"--{name}={value}" for name, value in _PRIVACY[part].items()]
    return [*command, *flags, "--spurious_fraction=0.01"]


def programs(part: str, data: pathlib.Path, suffix: str = "") -> dict[str, list[str]]:
    """The floor and both strategies on the same data."""
    return {
        f"{FLOOR}{suffix}": floor(part, data),
        f"{ONE_ROUND}{suffix}": product(part, data, ONE_ROUND),
        f"{DEFAULT}{suffix}": product(part, data, DEFAULT),
    }


def start_up(one: pathlib.Path) -> dict[str, list[str]]:
    """Processes of which start-up is all."""
    return {
        IMPORT: ["-c", "import apache_beam"],
        ERROR: [*product("titles", one, ONE_ROUND), "--epsilon=-1"],
        **programs("titles", one, ", one user"),
    }


def table(titles: pathlib.Path, work: pathlib.Path) -> Mapping[str, tuple[Commands, list[Ratio]]]:
    """The processes and rows of each part of the table."""
    one = first_records(titles, work / "one.jsonl.gz")
    parts = {"start-up": (start_up(one), _start_up_rows("wall"))}
    for part, source, most in (("MSNBC", MSNBC, 2.5), ("titles", titles, 2.0)):
        data = work / f"{part}.{'seq' if source == MSNBC else 'jsonl'}.gz"
        data.symlink_to(source.resolve())
        commands = {**programs(part, data), **programs("titles", one, ", one user")}
        rows = [
            Ratio(part, ONE_ROUND, FLOOR, most),
            Ratio(part, ONE_ROUND, FLOOR, is_work=True),
            Ratio(part, ONE_ROUND, FLOOR, of="cpu"),
            Ratio(part, DEFAULT, ONE_ROUND, 1.3),
            Ratio(part, DEFAULT, ONE_ROUND, 1.3, of="cpu"),
            Ratio(part, DEFAULT, ONE_ROUND, 1.3, of="megabytes"),
        ]
        parts[part] = commands, rows
    workers = {
        f"{DEFAULT}, graph": "--runner=FnApiRunner",
        f"{DEFAULT}, 1 worker": "--workers=1",
        f"{DEFAULT}, 2 workers": "--workers=2",
    }
    commands = {name: product("titles", data, DEFAULT, flag) for name, flag in workers.items()}
    graph, one_worker, two = workers
    rows = [Ratio("graph", graph, one_worker, 1.35), Ratio("workers", one_worker, two, 1.55)]
    return {**parts, "workers": (commands, rows)}


def small(work: pathlib.Path) -> tuple[Commands, list[Ratio]]:
    """CI's instance: MSNBC, the sample of titles eight times over, and one user."""
    one = first_records(TITLES, work / "one.jsonl.gz")
    many = copies(TITLES, work / "many.jsonl.gz")
    msnbc = work / "msnbc.seq.gz"
    msnbc.symlink_to(MSNBC)
    data = {"MSNBC": msnbc, "titles": many}
    commands = start_up(one)
    for part, path in data.items():
        commands.update(programs(part, path, f", {part}"))
    rows = _start_up_rows("user")
    for part in data:
        for strategy in (ONE_ROUND, DEFAULT):
            above, below = f"{strategy}, {part}", f"{FLOOR}, {part}"
            rows.append(Ratio(part, above, below, of="user", is_work=True))
    return commands, rows


def _start_up_rows(of: str) -> list[Ratio]:
    targets = {one_user(DEFAULT): 0.6, one_user(ONE_ROUND): 0.6, ERROR: 0.4}
    return [Ratio("start-up", name, IMPORT, target, of) for name, target in targets.items()]


def first_records(source: pathlib.Path, target: pathlib.Path, count: int = 1) -> pathlib.Path:
    """Writes the first records."""
    with gzip.open(source) as lines, gzip.open(target, "wb") as kept:
        kept.writelines(itertools.islice(lines, count))
    return target


def copies(source: pathlib.Path, target: pathlib.Path) -> pathlib.Path:
    """Writes all records several times over, each time with other names of users."""
    with gzip.open(target, "wb", 6) as kept:
        for copy in range(_COPIES):
            with gzip.open(source) as lines:
                for record in map(json.loads, lines):
                    record["user"] = f"{copy}-{record['user']}"
                    kept.write(json.dumps(record, ensure_ascii=False).encode() + b"\n")
    return target


def run(command: Sequence[str], *, status: int = 0) -> Run:
    """Runs Python with these arguments and an --output that is thrown away."""
    # The floor has what our programs set themselves.
    environment = {**os.environ, **numpy_settings()}
    with tempfile.TemporaryDirectory() as work, tempfile.TemporaryFile() as log:
        begin = time.perf_counter()
        child = subprocess.Popen(
            [sys.executable, *command, "--output", f"{work}/output"],
            cwd=ROOT,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=log,
        )
        _, ended, usage = os.wait4(child.pid, 0)
        wall = time.perf_counter() - begin
        child.returncode = os.waitstatus_to_exitcode(ended)
        if child.returncode != status:
            log.seek(0)
            raise RuntimeError(f"{command} exited with {child.returncode}:\n{log.read().decode()}")
    peak = usage.ru_maxrss / (1e6 if sys.platform == "darwin" else 1e3)
    return Run(wall, usage.ru_utime + usage.ru_stime, usage.ru_utime, peak)


def in_turn(commands: Commands, repeats: int) -> Runs:
    """Runs the commands in turn, so that what slows the machine slows all; one turn is not counted."""
    runs: dict[str, list[Run]] = {name: [] for name in commands}
    for repeat in range(repeats + 1):
        for name, command in commands.items():
            print(f"  {repeat} of {repeats}: {name}", file=sys.stderr, flush=True)
            found = run(command, status=2 if name == ERROR else 0)
            if repeat:
                runs[name].append(found)
    return runs


def describe() -> dict[str, Any]:
    """Where and with what a run is made; it does not name the machine."""
    packages = ("apache-beam", "numpy", "pyarrow", "scipy", "beam-dpne")
    versions = {name: importlib.metadata.version(name) for name in packages}
    return {
        "date": datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%d %H:%M UTC"),
        "machine": f"{platform.machine()}, {os.cpu_count()} cores, {platform.system()}",
        "versions": {"python": platform.python_version(), **versions},
        "load": round(os.getloadavg()[0], 2),
    }


def measured_table(titles: pathlib.Path, repeats: int) -> dict[str, Any]:
    """Measures the table; prints its rows and returns all as JSON has it."""
    found = {**describe(), "repeats": repeats, "titles": titles.name, "ratios": [], "processes": []}
    with tempfile.TemporaryDirectory() as work:
        for part, (commands, rows) in table(titles, pathlib.Path(work)).items():
            runs = in_turn(commands, repeats)
            for row in rows:
                values = [round(value, 3) for value in row.values(runs)]
                of = {"part": row.part, "what": row.name, "target": row.target, "values": values}
                found["ratios"].append(of)
                print(f"{part}: {row.name}: {statistics.median(values):.2f} ({row.target})")
            found["processes"] += [
                {"part": part, "process": name, **_medians(each)} for name, each in runs.items()
            ]
    return found


def _medians(runs: Sequence[Run]) -> dict[str, float]:
    columns = zip(Run._fields, zip(*runs, strict=True), strict=True)
    return {field: round(statistics.median(values), 2) for field, values in columns}


def measured_small(repeats: int = 2) -> dict[str, float]:
    """Measures CI's instance; returns the median of each ratio by its name."""
    with tempfile.TemporaryDirectory() as work:
        commands, rows = small(pathlib.Path(work))
        runs = in_turn(commands, repeats)
    return {row.name: round(statistics.median(row.values(runs)), 3) for row in rows}


def worse(found: Mapping[str, float], recorded: Mapping[str, float]) -> list[str]:
    """What is wrong: ratios that are 1.5 times the recorded one and .06 above it, or not recorded."""
    return [
        f"{name}: {ratio:.2f}, recorded {recorded.get(name)}"
        for name, ratio in found.items()
        if name not in recorded or ratio >= max(WORSE * recorded[name], recorded[name] + COARSE)
    ]


def check(measure: Callable[[], Mapping[str, float]] = measured_small) -> list[str]:
    """Returns what is worse than recorded; what looks worse is measured a second time."""
    recorded = json.loads(SMALL.read_text(encoding="utf-8"))["ratios"]
    found = measure()
    if worse(found, recorded):
        again = measure()
        found = {name: min(ratio, again[name]) for name, ratio in found.items()}
    print("".join(f"{name}: {ratio:.2f} ({recorded.get(name)})\n" for name, ratio in found.items()))
    return worse(found, recorded)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--titles", type=pathlib.Path, default=TITLES, help="a larger corpus")
    parser.add_argument("--repeats", type=int, default=5, help="(%(default)s)")
    parser.add_argument("--json", type=pathlib.Path, help="file for the table")
    parser.add_argument("--check", action="store_true", help="measure the small instance")
    parser.add_argument("--record", action="store_true", help="replace its recorded ratios")
    given = parser.parse_args(arguments)
    if given.check:
        wrong = check()
        print("\n".join(wrong), file=sys.stderr)
        return int(bool(wrong))
    if given.record:
        content, path = {**describe(), "ratios": measured_small()}, SMALL
    else:
        content, path = measured_table(given.titles, given.repeats), given.json
    if path:
        path.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
