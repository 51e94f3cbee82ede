"""Makes the page of time and memory from the runs of the benchmarks that are recorded.

The build of the site calls it; `python docs/make_performance.py` writes
docs/research/performance.md alone.
"""

import json
import pathlib
import statistics
from collections.abc import Iterable, Sequence
from typing import Any

PAGE = pathlib.Path(__file__).parent / "research" / "performance.md"
RECORDED = PAGE.parents[2] / "tests" / "benchmarks" / "recorded"
BEGINNING = """# Time and memory

Times depend on the machine, so the benchmarks measure ratios: every measurement is a fresh process
that reads the file, makes the release and writes it, and the processes of a part run in turn, so
that whatever slows the machine slows all of them. Each runs once before without being measured.

- The **floor** is `tests/benchmarks/floor.py`: the paper's algorithm in one numpy process, with
  numpy's ordinary generator and without exact arithmetic, on the same input. It is tuned for time
  alone, and its output has no guarantee.
- **one_round** is the paper's strategy, and **default** is `adaptive`. On MSNBC ε = 1, T = 6 and
  Δ = 10; on the titles ε = 4, T = 7 and Δ = 100; δ = 1e-7. The default strategy has no Δ.
- **Without start-up** means that the time of the same command for one user is taken off both sides.
- **Workers** are the processes of a run on this machine (`--workers`). **Graph**, which older
  recordings call 0 workers, is the pipeline of engines on Beam's embedded runner, in one process. The
  peak memory is that of the largest process, which shares some of it with the others.
- **Reading** takes little more than a second for 100 MB of text: 1.2 CPU seconds for 90 MB of titles
  from gzip (35 MB) or from plain lines, 1.7 from zstd (33 MB). Of these .2 are gzip's decompression,
  which is one process's; what is decompressed is parsed and tokenized by all. Only a
  JSON array, a mailbox, and CSV from a quote on that stands where none is expected are parsed by one
  process to their end, so that with many cores a large file of these kinds takes longer than all the
  rest: write it as several ones, or as Parquet.
- **Many cores**: without `--workers` a run has a process for each core, but one for each 8 MiB of text
  or 2 MiB of sequences at most. One file of titles, from gzip, on the two cores of a Zen 4 (in the
  night of 2026-11-29; medians of three runs in turn up to 10^7 words; 10^8 words were run once):

  | words | processes | seconds | CPU seconds | largest process, MB |
  | --- | --- | --- | --- | --- |
  | 10^5 | 1 | 1.2 | 1.4 | 183 |
  | 10^6 | 1 | 1.9 | 2.1 | 264 |
  | | 2 | 2.4 | 3.4 | 177 |
  | 10^7 | 1 | 10.1 | 10.3 | 717 |
  | | 2 | 8.2 | 13.7 | 389 |
  | | 16 | 11.3 | 20.4 | 238 |
  | 10^8 | 1 | 115.7 | 115.9 | 5,647 |
  | | 2 | 62.3 | 115.1 | 1,926 |
  | | 16 | 69.3 | 132.8 | 569 |

  The machine's speed changed by half within the hour: single runs of 10^7 words took 9.5 to 13.0
  seconds in one process, 7.7 to 8.3 in two, and 11.1 to 12.2 in sixteen, and an hour before 8.0 to
  11.3, 5.5 to 6.9 and 8.3 to 9.9. Of 10^8 words in 16 processes 8.2 CPU seconds were the launcher's,
  which nobody shares (it reads the file, merges, draws, and learns for estimates), and 124.6 its
  forks'. So 16 cores, with as fast a memory for each, would take about 8.2 + 124.6/16 = 16 seconds,
  7.2 times less than one. 2.7 seconds of the launcher's are reading, beside which forks parse.
- **import apache_beam** takes longer where more packages are installed, because Beam imports some
  that it finds. The ratios to it are smaller there.

## The last run

"""
SMALL = """
## The small instance of CI

`.ci/run` measures MSNBC, eight copies of the sample of titles, and one user, and fails if a ratio of
user CPU seconds is 1.5 times the recorded one and at least .06 above it. A ratio that looks worse is
measured a second time.

"""
COMMANDS = """
## To repeat it

```sh
.venv/bin/python -m tests.benchmarks --titles TITLES --json tests/benchmarks/recorded/table.json
.venv/bin/python -m tests.benchmarks --check
.venv/bin/python -m tests.benchmarks --record
```

`TITLES` has lines of `{"user", "text"}`, gzipped. Without it the sample that is shipped stands in, of
which start-up is nearly all of the time. The second command measures the small instance, and the third
records it. Use a machine that does nothing else.
"""


def page() -> str:
    """Returns the page of time and memory."""
    run, small = (
        json.loads((RECORDED / f"{name}.json").read_text()) for name in ("table", "small")
    )
    ratios = [
        (row["part"], row["what"], _target(row), *_spread(row["values"])) for row in run["ratios"]
    ]
    processes = [
        (one["part"], one["process"], *(f"{one[key]:.1f}" for key in ("wall", "cpu", "megabytes")))
        for one in run["processes"]
    ]
    return "".join(
        [
            f"{BEGINNING}{_about(run)} Titles: `{run['titles']}`; medians of {run['repeats']}.\n\n",
            _table(("part", "ratio", "target", "median", "lowest to highest"), ratios),
            "\n",
            _table(("part", "process", "seconds", "CPU seconds", "peak memory, MB"), processes),
            f"{SMALL}{_about(small)}\n\n",
            _table(
                ("ratio", "recorded"), ((name, f"{of:.2f}") for name, of in small["ratios"].items())
            ),
            COMMANDS,
        ]
    )


def _about(run: dict[str, Any]) -> str:
    versions = ", ".join(f"{name} {version}" for name, version in run["versions"].items())
    return f"{run['date']}: {run['machine']}, load {run['load']} at start; {versions}."


def _target(row: dict[str, Any]) -> str:
    sign = "≥" if "workers" in row["part"] else "≤"
    return "" if row["target"] is None else f"{sign} {row['target']}"


def _spread(values: Sequence[float]) -> tuple[str, str]:
    return f"{statistics.median(values):.2f}", f"{min(values):.2f} to {max(values):.2f}"


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [head, ("---",) * len(head), *rows]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
