"""python -m tests.benchmarks.coefficients [--titles PATH] [--strategy NAME] [--partitions P].

Runs `beam-dpne ngrams` as a graph in this process, and prints for each length and round: the calls and
CPU seconds of the kernels of its steps, the entries that they take, and those that they return, or the
bytes that `BatchCoder` makes. A graph on the embedded runner has one bundle. deploy/README.md has such
figures.
"""

import argparse
import functools
import inspect
import json
import pathlib
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable
from typing import Any
from unittest import mock

import numpy as np

from beam_dpne.cli.main import main as run
from beam_dpne.counts import estimates, measuring
from beam_dpne.documents import blocks
from beam_dpne.documents import steps as documents
from beam_dpne.elements.coders import BatchCoder
from beam_dpne.ngrams import candidates, decisions, histogram, range_steps, released_rows, spending
from tests.benchmarks.__main__ import DEFAULT, ONE_ROUND, TITLES, product

_KERNELS = (
    (documents._TokenizeAndPartition, "process finish_bundle"),
    (blocks, "lay_out_positions"),
    (spending, "contribute keep_present prune_invalid"),
    (candidates, "prune_invalid extract_grams"),
    (histogram, "sum_contributions sum_pieces cut_by_hash_range merge_shards shard_open"),
    (range_steps, "_held _draw"),
    (decisions, "decide present_part merge_present released_part merge_released"),
    (measuring, "sum_batch_of measure"),
    (estimates, "estimate_users"),
    (released_rows.ReleasedRows, "slice _order"),
    (BatchCoder, "encode"),
)


def _entries(value: Any) -> int:
    return max(len(getattr(value, name, ())) for name in ("keys", "ids", "codes", "rows"))


def costs(titles: pathlib.Path, strategy: str, partitions: int) -> dict[tuple[str, ...], Any]:
    """Returns calls, CPU seconds, entries and results of each kernel, by length and round."""
    found: dict[tuple[str, ...], Any] = defaultdict(lambda: np.zeros(4))

    encode = BatchCoder.encode

    def timed(step: Callable[..., Any]) -> Callable[..., Any]:
        def measured(*args: Any, **kwargs: Any) -> Any:
            begin = time.thread_time()
            result: Any = step(*args, **kwargs)
            if inspect.isgenerator(result):
                result = iter(list(result))
            seconds = time.thread_time() - begin
            of = next((each for each in (*args[::-1], result) if hasattr(each, "length")), None)
            where = [str(getattr(of, name, "")) for name in ("length", "round")]
            kind = type(args[-1]).__name__ if step is encode else ""
            made = len(result) if step is encode else _entries(result)
            found[step.__name__, kind, *where] += (1, seconds, _entries(args[-1]), made)
            return result

        return functools.wraps(step)(measured)

    with tempfile.TemporaryDirectory() as work:
        data = pathlib.Path(work) / "titles.jsonl.gz"
        data.symlink_to(titles.resolve())
        command = product(
            "titles", data, strategy, "--runner=FnApiRunner", f"--output={work}/release"
        )
        plan = pathlib.Path(command[command.index("--plan") + 1])
        plan.write_text(json.dumps({**json.loads(plan.read_text()), "partitions": partitions}))
        for owner, names in _KERNELS:
            for name in names.split():
                mock.patch.object(owner, name, timed(getattr(owner, name))).start()
        status = run(command[2:])
    if status:
        raise RuntimeError(f"exit status {status}")
    return found


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.coefficients")
    parser.add_argument("--titles", type=pathlib.Path, default=TITLES, help="a larger corpus")
    parser.add_argument("--strategy", choices=(DEFAULT, ONE_ROUND), default=DEFAULT)
    parser.add_argument("--partitions", type=int, default=16)
    for name, values in sorted(costs(**vars(parser.parse_args())).items()):
        line = "{:45}{:8.0f} calls {:8.3f} s {:11.0f} entries {:11.0f}"
        print(line.format(" ".join(name), *values))


if __name__ == "__main__":
    main()
