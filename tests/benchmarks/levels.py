"""What each length costs, beside the positions that are left to it."""

import json
import pathlib
import statistics
import sys

from tests.benchmarks.measure import run_module
from tests.benchmarks.report import Figure, Listing, Report
from tests.benchmarks.workloads import Setting, Workload


def measure(setting: Setting) -> Report:
    """Seconds of each length of the product, and the candidate positions of the floor."""
    figures, listings = [], []
    for workload in setting.workloads():
        found = [_measure_once(setting, workload) for _ in range(setting.repeats)]
        listing, figure = _summary(workload.name, found)
        listings.append(listing)
        figures.append(figure)
    return Report(figures, listings)


def look(target: str, product: list[str], floor: list[str]) -> None:
    """Runs both programs here and writes a list of (seconds, positions), one for each length."""
    from beam_dpne.elements import progress
    from tests.benchmarks import floor as floors
    from tests.benchmarks.inside import run_program

    run_program(product)
    marks = progress.marks()
    positions = floors.candidate_positions([*floor[2:], "--output", "unused"])
    lengths = range(1, max(marks) + 1)
    positions += [0] * (len(lengths) - len(positions))  # the floor stops where nothing is valid
    rows = [(marks[k] - marks[k - 1], positions[k - 1]) for k in lengths]
    pathlib.Path(target).write_text(json.dumps(rows))


def _measure_once(setting: Setting, workload: Workload) -> list[tuple[float, int]]:
    target = setting.work / "levels.json"
    print(f"  levels of {workload.name}", file=sys.stderr)
    commands = workload.product(workload.data), workload.floor(workload.data)
    run_module("levels", str(target), *map(json.dumps, commands))
    return json.loads(target.read_text())


def _summary(name: str, found: list[list[tuple[float, int]]]) -> tuple[Listing, Figure]:
    rows = []
    for length, of_length in enumerate(zip(*found, strict=True), start=1):
        seconds = statistics.median(row[0] for row in of_length)
        rows.append((length, seconds, int(statistics.median(row[1] for row in of_length))))
    headings = ("length", "seconds", "candidate positions left")
    title = f"Levels, {name} (length 1 includes reading, tokenizing and the shuffle by user)"
    falls = [run[-1][0] / run[1][0] for run in found]
    what = f"{name}, seconds of length {len(rows)} over length 2"
    return Listing(title, headings, rows), Figure("levels", what, falls, "×", 1.0)


if __name__ == "__main__":
    look(sys.argv[1], json.loads(sys.argv[2]), json.loads(sys.argv[3]))
