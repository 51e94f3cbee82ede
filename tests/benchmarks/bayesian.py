"""`beam-dpne bayesian` beside its floor: titles, a vocabulary of 50,000 trigrams, embedded.

The public text is made of the titles themselves, every fourth: for timing, that is all the same.
"""

import gzip
import json
import pathlib
from collections.abc import Mapping

from tests.benchmarks.measure import interleaved
from tests.benchmarks.report import Figure, Report, megabytes, ratios, seconds
from tests.benchmarks.workloads import Setting

_OPTIONS: Mapping[str, float] = {
    "epsilon": 0.1,
    "delta": 1e-7,
    "vocabulary_size": 50_000,
    "max_contributions": 30,
}
_TIMES_THE_FLOOR = 2.0
_NAME = "bayesian"


def measure(setting: Setting) -> Report:
    """File to release of trigram probabilities."""
    data = setting.reddit.data
    public = public_text(data, setting.work / "public.txt")
    given = ["--input", str(data), "--public", str(public)]
    given += [f"--{name}={value}" for name, value in _OPTIONS.items()]
    product = ["-m", "beam_dpne.cli.main", "bayesian", "--quiet"]
    floor = ["-m", "tests.benchmarks.bayesian_floor"]
    commands = {"product": [*product, *given], "floor": [*floor, *given]}
    runs = interleaved(commands, setting.repeats)
    times = {name: seconds(own) for name, own in runs.items()}
    whole = ratios(times["product"], times["floor"])
    return Report(
        [
            Figure(_NAME, "product, whole process", times["product"], "s"),
            Figure(_NAME, "floor, whole process", times["floor"], "s"),
            Figure(_NAME, "product / floor, time, whole processes", whole, "×", _TIMES_THE_FLOOR),
            Figure(_NAME, "product, peak memory", megabytes(runs["product"]), "MB"),
            Figure(_NAME, "floor, peak memory", megabytes(runs["floor"]), "MB"),
        ]
    )


def public_text(titles: pathlib.Path, target: pathlib.Path) -> pathlib.Path:
    """Every fourth title, one a line."""
    with gzip.open(titles) as lines, open(target, "w", encoding="utf-8") as kept:
        for number, line in enumerate(lines):
            if number % 4 == 0:
                kept.write(" ".join(json.loads(line)["text"].split()) + "\n")
    return target
