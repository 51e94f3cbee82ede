"""Peak memory of many passes over positions that all survive."""

from tests.benchmarks import inputs
from tests.benchmarks.measure import interleaved
from tests.benchmarks.report import Figure, Report, megabytes, ratios, seconds
from tests.benchmarks.workloads import Setting, product_on_records

_FEW, _MANY = 7, 26
_TARGET = 1.3


def measure(setting: Setting) -> Report:
    """A corpus of one repeated word, at T = 7 and at T = 26."""
    users, words = (400, 100) if setting.small else (4_000, 1_000)
    data = inputs.one_word(setting.work / "one_word.jsonl", users=users, words=words)
    privacy = {"epsilon": 4, "delta": 1e-7, "max_contributions": 100}
    commands = {
        f"T = {length}": product_on_records(data, {**privacy, "max_length": length})
        for length in (_FEW, _MANY)
    }
    few, many = interleaved(commands, setting.repeats).values()
    growth = ratios(megabytes(many), megabytes(few))
    figures = [
        Figure("passes", f"peak memory, T = {_FEW}", megabytes(few), "MB"),
        Figure("passes", f"peak memory, T = {_MANY}", megabytes(many), "MB"),
        Figure("passes", f"peak memory, T = {_MANY} over T = {_FEW}", growth, "×", _TARGET),
        Figure("passes", f"time, T = {_FEW}", seconds(few), "s"),
        Figure("passes", f"time, T = {_MANY}", seconds(many), "s"),
    ]
    return Report(figures)
