"""What the default strategy costs beside the paper's algorithm, on MSNBC and on the titles."""

from collections.abc import Mapping, Sequence

from tests.benchmarks.measure import Run, interleaved
from tests.benchmarks.report import (
    Figure,
    Report,
    cpu_seconds,
    megabytes,
    ratios,
    seconds,
    stands_out,
    without,
)
from tests.benchmarks.workloads import Setting

_STRATEGIES = ("one_round", "adaptive")
# Of the titles; MSNBC has one word for most of its lengths' candidates, and no targets of its own.
_TIMES_ONE_ROUND = 3.0
_MEMORY_OF_ONE_ROUND = 1.3
_NOISE = 0.2  # of start-up, on a machine that others use


def measure(setting: Setting) -> Report:
    """Both strategies in turn, so that what slows the machine slows both."""
    figures = []
    for workload in setting.workloads():
        commands = {
            f"{strategy}, start-up": workload.product(workload.start_up, strategy)
            for strategy in _STRATEGIES
        }
        commands |= {
            strategy: workload.product(workload.data, strategy) for strategy in _STRATEGIES
        }
        runs = interleaved(commands, setting.repeats)
        figures += _figures(workload.name, runs, has_targets=workload.name == "titles")
    return Report(figures)


def _figures(name: str, runs: Mapping[str, Sequence[Run]], *, has_targets: bool) -> list[Figure]:
    one_round, adaptive = (runs[strategy] for strategy in _STRATEGIES)
    start_ups = [runs[f"{strategy}, start-up"] for strategy in _STRATEGIES]
    time, memory = (_TIMES_ONE_ROUND, _MEMORY_OF_ONE_ROUND) if has_targets else (None, None)
    work = [
        without(seconds(own), seconds(start_up))
        for own, start_up in zip((adaptive, one_round), reversed(start_ups), strict=True)
    ]
    clear = all(
        stands_out(seconds(own), seconds(start_up), _NOISE)
        for own, start_up in zip((one_round, adaptive), start_ups, strict=True)
    )
    ratio = "adaptive / one_round"
    return [
        Figure(name, "one_round, whole process", seconds(one_round), "s"),
        Figure(name, "adaptive, whole process", seconds(adaptive), "s"),
        Figure(
            name,
            f"{ratio}, time, whole processes",
            ratios(*map(seconds, (adaptive, one_round))),
            "×",
            time,
        ),
        Figure(name, f"{ratio}, time, start-up taken off both", ratios(*work), "×", time, clear),
        Figure(
            name,
            f"{ratio}, CPU time, whole processes",
            ratios(*map(cpu_seconds, (adaptive, one_round))),
            "×",
        ),
        Figure(name, "one_round, peak memory", megabytes(one_round), "MB"),
        Figure(name, "adaptive, peak memory", megabytes(adaptive), "MB"),
        Figure(
            name,
            f"{ratio}, peak memory",
            ratios(*map(megabytes, (adaptive, one_round))),
            "×",
            memory,
        ),
    ]
