"""Time and memory of the product as the number of users grows."""

from collections.abc import Mapping, Sequence

from tests.benchmarks import inputs
from tests.benchmarks.measure import Run, interleaved
from tests.benchmarks.report import (
    Figure,
    Listing,
    Report,
    cpu_seconds,
    megabytes,
    ratios,
    seconds,
    stands_out,
    without,
)
from tests.benchmarks.workloads import Setting

_TIME_PER_LINEAR = 8.5 / 8  # 8 times the users may take 8.5 times as long
_PARTS = (8, 4, 2, 1)
_TIMES = 4


def measure(setting: Setting) -> Report:
    """MSNBC at 1/8 to 1 of its users; titles once and four times over."""
    msnbc, titles = _msnbc_runs(setting), _titles_runs(setting)
    figures = [
        *_figures("MSNBC", msnbc, ("1/8", "1"), max(_PARTS)),
        *_figures("titles", titles, ("1", str(_TIMES)), _TIMES),
    ]
    return Report(figures, [_listing("MSNBC", msnbc), _listing("titles", titles)])


def _msnbc_runs(setting: Setting) -> dict[str, list[Run]]:
    workload = setting.msnbc
    commands = {"start-up": workload.product(workload.start_up)}
    for part in _PARTS:
        target = setting.work / f"part{part}.seq.gz"
        data = inputs.some_users(workload.data, target, step=part)
        commands["1" if part == 1 else f"1/{part}"] = workload.product(data)
    return interleaved(commands, setting.repeats)


def _titles_runs(setting: Setting) -> dict[str, list[Run]]:
    workload = setting.reddit
    more = inputs.more_users(workload.data, setting.work / "more.jsonl.gz", times=_TIMES)
    commands = {
        "start-up": workload.product(workload.start_up),
        "1": workload.product(workload.data),
        str(_TIMES): workload.product(more),
    }
    return interleaved(commands, setting.repeats)


def _figures(
    name: str, runs: Mapping[str, Sequence[Run]], ends: tuple[str, str], times: int
) -> list[Figure]:
    """Growth from the fewest users to `times` as many, start-up taken off both."""
    figures = []
    for what, of, target, noise in (
        ("time", seconds, times * _TIME_PER_LINEAR, 0.2),
        ("CPU time", cpu_seconds, None, 0.2),
        ("peak memory", megabytes, float(times), 0.05),
    ):
        few, many, start_up = (of(runs[size]) for size in (*ends, "start-up"))
        growth = ratios(without(many, start_up), without(few, start_up))
        clear = stands_out(few, start_up, noise)
        text = f"{name}, {what} above start-up, {times} × the users"
        figures.append(Figure("growth", text, growth, "×", target, clear))
    return figures


def _listing(name: str, runs: Mapping[str, Sequence[Run]]) -> Listing:
    rows = []
    for share, of_share in runs.items():
        figures = (Figure("", "", of(of_share), "") for of in (seconds, cpu_seconds, megabytes))
        rows.append((share, *(figure.median for figure in figures)))
    return Listing(f"Growth, {name}: medians", ("users", "seconds", "CPU seconds", "peak MB"), rows)
