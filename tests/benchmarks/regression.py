"""python -m tests.benchmarks.regression [--record]

CI's small instance: CPU seconds of the product over those of the floor in the same run, beside the
ratios that are recorded in `recorded/small.json`. A ratio 1.5 times the recorded one and .06 above
it is a failure. `--record` replaces the recorded ratios. User CPU seconds hardly depend on what
else the machine does: of the floor on titles they vary by a tenth, where system seconds vary
fourfold, since the kernel finds memory now fast, now slowly. A ratio that looks worse is measured a
second time, and judged by the median of both.
"""

import argparse
import json
import pathlib
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tests.benchmarks import inputs, machine
from tests.benchmarks.measure import Run
from tests.benchmarks.report import Figure, user_seconds
from tests.benchmarks.table import (
    ERROR,
    FLOOR,
    IMPORT,
    Ratio,
    one_user,
    run_all,
    start_up_commands,
)
from tests.benchmarks.workloads import DEFAULT, ONE_ROUND, Workload

RECORDED = pathlib.Path(__file__).with_name("recorded") / "small.json"
WORSE = 1.5
# The system counts CPU time in steps of .01 s, of which an error of a parameter takes six. Four more
# of them are .06 of the time of an import.
COARSE = 0.06
_REPEATS = 3
_TIMES_THE_SAMPLE = 8
_DATA = ("MSNBC", "titles")

_Runs = dict[str, list[Run]]


def _rows() -> list[Ratio]:
    start_ups = (one_user(ONE_ROUND), one_user(DEFAULT), ERROR)
    rows = [Ratio(f"{name} / {IMPORT}", name, IMPORT, of=user_seconds) for name in start_ups]
    for data in _DATA:
        rows += [
            Ratio(
                f"{strategy} / {FLOOR}, {data}, without start-up",
                f"{strategy}, {data}",
                f"{FLOOR}, {data}",
                of=user_seconds,
                start_ups=(one_user(strategy), one_user(FLOOR)),
                is_work=True,
            )
            for strategy in (ONE_ROUND, DEFAULT)
        ]
    return rows


ROWS = _rows()


def measured(repeats: int = _REPEATS) -> _Runs:
    """Runs the small instance: MSNBC, the sample of titles eight times over, and one user."""
    with tempfile.TemporaryDirectory() as work:
        folder = pathlib.Path(work)
        one = inputs.some_records(inputs.TITLES, folder / "one.jsonl.gz", count=1)
        many = folder / "many.jsonl.gz"
        inputs.more_users(inputs.TITLES, many, times=_TIMES_THE_SAMPLE)
        titles = Workload("titles", many, one)
        start_up = start_up_commands(titles)
        start_up[one_user(FLOOR)] = titles.floor(one)
        run_all(start_up, 1, warm_up=False)  # bytecode is written
        commands = dict(start_up)
        workloads = Workload("msnbc", inputs.MSNBC, one), titles
        for name, workload in zip(_DATA, workloads, strict=True):
            commands[f"{FLOOR}, {name}"] = workload.floor(workload.data)
            for strategy in (ONE_ROUND, DEFAULT):
                commands[f"{strategy}, {name}"] = workload.product(workload.data, strategy)
        return run_all(commands, repeats, warm_up=False)


def figures_of(runs: Mapping[str, Sequence[Run]]) -> list[Figure]:
    """All ratios of the small instance."""
    return [row.figure("small", runs) for row in ROWS]


def worse(figures: Sequence[Figure], recorded: Mapping[str, float]) -> list[str]:
    """What is wrong: ratios that are 1.5 times the recorded one and .06 above it, or not recorded."""
    found = []
    for figure in figures:
        if figure.what not in recorded:
            found.append(f"{figure.what}: {figure.median:.2f}, and nothing is recorded")
            continue
        was = recorded[figure.what]
        if figure.median >= max(WORSE * was, was + COARSE):
            found.append(f"{figure.what}: {figure.median:.2f}, recorded {was:.2f}")
    return found


def check(
    recorded: Mapping[str, float], measure: Callable[[], _Runs] = measured
) -> tuple[list[Figure], list[str]]:
    """Returns all ratios, and a message for each that is too high.

    If any is, all are measured a second time, and the median of both decides.
    """
    runs = measure()
    figures = figures_of(runs)
    wrong = worse(figures, recorded)
    if wrong:
        again = measure()
        figures = figures_of({name: [*runs[name], *again[name]] for name in runs})
        wrong = worse(figures, recorded)
    return figures, wrong


def recorded_ratios() -> dict[str, float]:
    """The ratios that are recorded in the repository."""
    return _recorded()["ratios"]


def _recorded() -> dict[str, Any]:
    return json.loads(RECORDED.read_text(encoding="utf-8"))


def environments() -> str:
    """The extras here and those of the recording: Beam imports some of their packages, if it can."""
    here, there = machine.extras(), _recorded().get("extras")
    return f"Environment: {machine.in_words(here)}; recorded with: {machine.in_words(there)}."


def record() -> list[Figure]:
    """Measures, and replaces the recorded ratios."""
    run = machine.describe()
    figures = figures_of(measured())
    run["ratios"] = {figure.what: round(figure.median, 3) for figure in figures}
    RECORDED.write_text(json.dumps(run, indent=1) + "\n", encoding="utf-8")
    return figures


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.regression")
    parser.add_argument("--record", action="store_true", help="replace the recorded ratios")
    if parser.parse_args(arguments).record:
        figures, wrong = record(), []
    else:
        figures, wrong = check(recorded_ratios())
    for figure in figures:
        span = f"{min(figure.values):.2f} to {max(figure.values):.2f}"
        print(f"{figure.what}: {figure.median:.2f} ({span})")
    print(environments())
    for message in wrong:
        print(f"Worse: {message}", file=sys.stderr)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
