"""The product beside the floor, on MSNBC and on the titles."""

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
from tests.benchmarks.workloads import Setting, Workload

_TIMES_THE_FLOOR = 2.5
_NOISE = 0.2  # of start-up, on a machine that others use


def measure_msnbc(setting: Setting) -> Report:
    """File to release on MSNBC."""
    runs = _runs(setting.msnbc, setting.repeats)
    return Report(_figures("msnbc", runs, product=20, floor=9, peak=1000))


def measure_titles(setting: Setting) -> Report:
    """File to release on Reddit titles."""
    runs = _runs(setting.reddit, setting.repeats)
    return Report(_figures("titles", runs, product=120, floor=None, peak=None))


def _runs(workload: Workload, repeats: int) -> dict[str, list[Run]]:
    commands = {
        "product, start-up": workload.product(workload.start_up),
        "floor, start-up": workload.floor(workload.start_up),
        "product": workload.product(workload.data),
        "floor": workload.floor(workload.data),
    }
    return interleaved(commands, repeats)


def _figures(
    name: str,
    runs: Mapping[str, Sequence[Run]],
    *,
    product: float,
    floor: float | None,
    peak: float | None,
) -> list[Figure]:
    start_ups = runs["product, start-up"], runs["floor, start-up"]
    return [
        Figure(name, "product, whole process", seconds(runs["product"]), "s", product),
        Figure(name, "floor, whole process", seconds(runs["floor"]), "s", floor),
        Figure(name, "product, start-up (one user)", seconds(start_ups[0]), "s"),
        Figure(name, "floor, start-up (one user)", seconds(start_ups[1]), "s"),
        *_ratios(name, runs),
        Figure(name, "product, peak memory", megabytes(runs["product"]), "MB", peak),
        Figure(name, "product, peak memory, start-up", megabytes(start_ups[0]), "MB"),
        Figure(name, "floor, peak memory", megabytes(runs["floor"]), "MB"),
    ]


def _ratios(name: str, runs: Mapping[str, Sequence[Run]]) -> list[Figure]:
    figures = []
    for what, of, target in (("time", seconds, _TIMES_THE_FLOOR), ("CPU time", cpu_seconds, None)):
        product, floor = of(runs["product"]), of(runs["floor"])
        start_ups = of(runs["product, start-up"]), of(runs["floor, start-up"])
        whole = ratios(product, floor)
        work = ratios(without(product, start_ups[0]), without(floor, start_ups[1]))
        clear = all(map(stands_out, (product, floor), start_ups, (_NOISE, _NOISE)))
        text = f"product / floor, {what}"
        figures += [
            Figure(name, f"{text}, whole processes", whole, "×", target),
            Figure(name, f"{text}, start-up taken off both", work, "×", target, clear),
        ]
    return figures
