"""The programs that are measured, and on what: the product's commands and the floor's."""

import dataclasses
import functools
import pathlib
from collections.abc import Mapping

from tests.benchmarks import inputs

_SMALL_USERS = 20_000
_SMALL_TITLES = 10_000
_MSNBC_PRIVACY = {"epsilon": 1, "delta": 1e-7, "max_length": 6, "max_contributions": 10}
_TITLES_PRIVACY = {"epsilon": 4, "delta": 1e-7, "max_length": 7, "max_contributions": 100}
_PAPER = "one_round"  # the floor's algorithm too


@dataclasses.dataclass(frozen=True)
class Workload:
    """One experiment: its data, and the same for one user, which takes start-up only."""

    name: str
    data: pathlib.Path
    start_up: pathlib.Path

    def product(self, data: pathlib.Path, strategy: str = _PAPER) -> list[str]:
        """The product's command, but for --output; another strategy has Δ by default."""
        if self.name == "msnbc":
            script = ["pipelines/msnbc.py", "--input", str(data), "--quiet"]
            return [*script, f"--strategy={strategy}"]
        privacy = dict(_TITLES_PRIVACY)
        if strategy != _PAPER:
            del privacy["max_contributions"]
        return product_on_records(data, privacy, strategy)

    def floor(self, data: pathlib.Path) -> list[str]:
        """The floor's command, but for --output."""
        floor = ["-m", "tests.benchmarks.floor", "--input", str(data)]
        floor += ["--spurious_fraction", "0.01", "--input_format"]
        if self.name == "msnbc":
            return [*floor, "sequences", "--category_names", *_flags(_MSNBC_PRIVACY)]
        return [*floor, "jsonl", *_flags(_TITLES_PRIVACY)]


@dataclasses.dataclass(frozen=True)
class Setting:
    """What a run of the benchmarks was asked for, and a directory for its files."""

    titles: pathlib.Path
    small: bool
    repeats: int
    work: pathlib.Path

    def workloads(self) -> list[Workload]:
        return [self.msnbc, self.reddit]

    @functools.cached_property
    def msnbc(self) -> Workload:
        data = self.work / "msnbc.seq.gz"
        data = inputs.some_users(inputs.MSNBC, data, count=_SMALL_USERS if self.small else None)
        start_up = inputs.some_users(inputs.MSNBC, self.work / "one.seq.gz", count=1)
        return Workload("msnbc", data, start_up)

    @functools.cached_property
    def reddit(self) -> Workload:
        data = self.titles
        if self.small:
            data = inputs.some_records(data, self.work / "few.jsonl.gz", count=_SMALL_TITLES)
        start_up = inputs.some_records(self.titles, self.work / "one.jsonl.gz", count=1)
        return Workload("titles", data, start_up)


def product_on_records(
    data: pathlib.Path, privacy: Mapping[str, float], strategy: str = _PAPER
) -> list[str]:
    """The command of `pipelines/ngrams.py` on JSON lines, but for --output."""
    script = ["pipelines/ngrams.py", "--input", str(data), "--tokenizer", "words", "--quiet"]
    return [*script, f"--strategy={strategy}", *_flags(privacy)]


def _flags(values: Mapping[str, float]) -> list[str]:
    return [f"--{name}={value}" for name, value in values.items()]
