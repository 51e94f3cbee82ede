"""python -m tests.benchmarks.coefficients [--titles PATH] [--strategy NAME]: costs of a run's steps.

Runs `beam-dpne ngrams` in this process on one thread, and prints for each step of the run in memory
its CPU seconds, with all that it calls, and microseconds for each token. deploy/README.md has such
figures.
"""

import argparse
import functools
import pathlib
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from typing import Any
from unittest import mock

from beam_dpne.cli.main import main as run
from beam_dpne.ngrams.in_memory import InMemory
from tests.benchmarks.__main__ import DEFAULT, ONE_ROUND, TITLES, product


def costs(titles: pathlib.Path, strategy: str) -> tuple[Counter[str], int]:
    """Returns the CPU seconds of each step, and the number of tokens."""
    seconds: Counter[str] = Counter()
    tokens = 0

    def timed(name: str, step: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(step)
        def measured(*args: Any, **kwargs: Any) -> Any:
            nonlocal tokens
            if name == "release":
                tokens = sum(int((batch.ids >= 0).sum()) for batch in args[1])
            begin = time.process_time()
            try:
                return step(*args, **kwargs)
            finally:
                seconds[name] += time.process_time() - begin

        return measured

    steps = {name: step for name, step in vars(InMemory).items() if callable(step)}
    wrapped = {name: timed(name, step) for name, step in steps.items() if name[0] != "_"}
    with tempfile.TemporaryDirectory() as work, mock.patch.multiple(InMemory, **wrapped):
        data = pathlib.Path(work) / "titles.jsonl.gz"
        data.symlink_to(titles.resolve())
        command = product("titles", data, strategy, "--workers=1", f"--output={work}/release")
        begin = time.process_time()
        status = run(command[2:])
        seconds["the whole run, with reading"] = time.process_time() - begin
    if status:
        raise RuntimeError(f"exit status {status}")
    return seconds, tokens


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.coefficients")
    parser.add_argument("--titles", type=pathlib.Path, default=TITLES, help="a larger corpus")
    parser.add_argument("--strategy", choices=(DEFAULT, ONE_ROUND), default=DEFAULT)
    given = parser.parse_args()
    seconds, tokens = costs(given.titles, given.strategy)
    for name, cost in seconds.most_common():
        print(f"{name:30}{cost:9.2f} s{1e6 * cost / tokens:9.3f} µs a token")


if __name__ == "__main__":
    main()
