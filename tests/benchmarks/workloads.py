"""The programs that are measured, and on what: the product's commands and the floor's."""

import dataclasses
import functools
import pathlib
from collections.abc import Mapping

from tests.benchmarks import inputs
from tests.benchmarks.measure import answer, run_module

_SMALL_USERS = 20_000
_SMALL_TITLES = 10_000
_MSNBC_PRIVACY = {"epsilon": 1, "delta": 1e-7, "max_length": 6, "max_contributions": 10}
_TITLES_PRIVACY = {"epsilon": 4, "delta": 1e-7, "max_length": 7, "max_contributions": 100}
LONG_USERS_PRIVACY = {"epsilon": 4, "delta": 1e-7, "max_length": 5, "max_contributions": 100}
PROTOCOL_PRIVACY = _MSNBC_PRIVACY
ONE_ROUND = "one_round"  # the paper's algorithm, and the floor's
DEFAULT = "default"
_STRATEGIES = {ONE_ROUND: "one_round", DEFAULT: "adaptive"}
_WORKERS = """
from beam_dpne.cli.options_by_command import NGRAMS
print(any(option.name == "workers" for options in NGRAMS.values() for option in options))
"""


@dataclasses.dataclass(frozen=True)
class Workload:
    """One experiment: its data, and the same for one user, which takes start-up only."""

    name: str
    data: pathlib.Path
    start_up: pathlib.Path

    def product(self, data: pathlib.Path, strategy: str = ONE_ROUND) -> list[str]:
        """The product's command, but for --output; the default strategy has no Δ."""
        if self.name == "msnbc":
            script = ["pipelines/msnbc.py", "--input", str(data), "--quiet"]
            return [*script, f"--strategy={_STRATEGIES[strategy]}"]
        return product_on_records(data, _TITLES_PRIVACY, strategy)

    def floor(self, data: pathlib.Path) -> list[str]:
        """The floor's command, but for --output."""
        if self.name == "msnbc":
            kind = ["sequences", "--category_names"]
            return [*_floor(data), *kind, *_flags(_MSNBC_PRIVACY)]
        return floor_on_records(data, _TITLES_PRIVACY)


@dataclasses.dataclass(frozen=True)
class Setting:
    """What a run of the benchmarks was asked for, and a directory for its files."""

    titles: pathlib.Path
    public_text: pathlib.Path
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

    @functools.cached_property
    def long_users(self) -> pathlib.Path:
        """Public texts of made-up users who have 2,000 words each."""
        target = self.work / "long_users.jsonl"
        run_module("dealt", str(self.public_text), str(target))
        return target

    @functools.cached_property
    def protocol(self) -> pathlib.Path:
        """MSNBC as JSON lines."""
        return inputs.msnbc_records(self.msnbc.data, self.work / "protocol.jsonl.gz")


def has_workers() -> bool:
    """Whether the program can be told how many cores to use."""
    return answer(_WORKERS) == "True"


def product_on_records(
    data: pathlib.Path, privacy: Mapping[str, float], strategy: str = ONE_ROUND
) -> list[str]:
    """The command of `pipelines/ngrams.py` on JSON lines; the default strategy has no Δ."""
    script = ["pipelines/ngrams.py", "--input", str(data), "--tokenizer", "words", "--quiet"]
    given = dict(privacy)
    if strategy == DEFAULT:
        del given["max_contributions"]
    return [*script, f"--strategy={_STRATEGIES[strategy]}", *_flags(given)]


def floor_on_records(data: pathlib.Path, privacy: Mapping[str, float]) -> list[str]:
    """The floor's command on JSON lines, but for --output."""
    return [*_floor(data), "jsonl", *_flags(privacy)]


def _floor(data: pathlib.Path) -> list[str]:
    floor = ["-m", "tests.benchmarks.floor", "--input", str(data)]
    return [*floor, "--spurious_fraction", "0.01", "--input_format"]


def _flags(values: Mapping[str, float]) -> list[str]:
    return [f"--{name}={value}" for name, value in values.items()]
