"""python docs/make_performance.py

Writes docs/performance.md from the runs of the benchmarks that are recorded in the repository.
"""

import json
import pathlib
import sys
from typing import Any

PAGE = pathlib.Path(__file__).with_name("performance.md")
ROOT = PAGE.parents[1]
sys.path.insert(0, str(ROOT))

from tests.benchmarks.machine import in_words  # noqa: E402
from tests.benchmarks.report import number  # noqa: E402

RECORDED = ROOT / "tests" / "benchmarks" / "recorded"
_NO_BREAK = "\N{NO-BREAK SPACE}"
_BEGINNING = """# Time and memory

This page shows the last recorded run of the benchmarks. Times depend on the machine, so the
targets are ratios of times that were measured in turn on the same machine. The command
`python docs/make_performance.py` writes this page from `tests/benchmarks/recorded/table.json`
and `tests/benchmarks/recorded/small.json`, and a test compares it with them.
"""
_MEASURED = """
## How it is measured

Every measurement is a whole process: a fresh child that starts Python, reads the file, makes
the release and writes it. The processes of a part of the table run in turn, again and again,
and each ratio is taken between two processes of the same turn, so that whatever slows the
machine slows both. Each process runs once before that without being measured, so that Python
has written its bytecode and the files are in the system's cache. The table gives the median
ratio, and the lowest and the highest. CPU time is the user and system time of the process and
its children. Peak memory is that of the process tree.

- The **floor** is `tests/benchmarks/floor.py`: the paper's algorithm in one numpy process, with
  numpy's ordinary generator and without exact arithmetic, on the same input and with as many
  rows of output. It is tuned for time alone, and its output has no guarantee.
- **one_round** is the paper's strategy, and **default** is `adaptive`. On MSNBC ε = 1, T = 6
  and Δ = 10; on the titles ε = 4, T = 7 and Δ = 100; δ = 1e-7. The default strategy has no Δ.
- **Without start-up** means that the time of the same command for one user is taken off both
  sides.
- **Start-up** is a run for one user of the titles. An error of a parameter is `--max_length 0`.
- **Workers** are the threads of a run on the embedded runner (`--workers`); all other rows have
  its default, the cores of the machine, where the floor uses one. **The graph of engines** is
  `--workers 0`: the steps as an engine runs them, on one thread, as the embedded runner did until
  it got workers.
- **2,000 words a user** is public text, dealt to made-up users as
  `pipelines/experiments/dealing.py` does it for the tables of [results](results.md); ε = 4, T =
  5 and Δ = 100.
- **import apache_beam** takes longer where more packages are installed, because Beam imports some
  that it finds, such as pandas and those of Google Cloud: in one environment with all extras it
  took 1.3 s of user CPU time, and 0.5 s in one without any. The ratios to it are smaller in the
  first: a run for one user took 0.9 times as long as the import there, and 1.5 times without
  extras, where `one_round` is at the limit of its target. So each recording names the extras
  whose packages are all installed.
- A ratio is "too small to tell" where a process hardly takes longer than its start-up. All
  targets are for the full data: the repository ships MSNBC, and a sample of the titles.

## The protocol of the paper's program

The authors of DPNE published a program for PySpark
([differentially-private-ngram-extraction](https://github.com/microsoft/differentially-private-ngram-extraction)).
Its scripts make a line of JSON of each user of MSNBC, whose text is the numbers of the visited
categories (`scripts/convert_msnbc.py`); they leave out texts of more than 400 words, split the
others by NLTK (`dpne/tokenize_text.py` with `max_num_tokens` 400), write all n-grams of each
length (`dpne/split_ngrams.py`), and release some (`dpne/extract_dpne.py`). We found no running
times in that repository or in the paper, so that this page has none of that program.

The part "protocol" measures the floor and our program on the same input with the same words:
those lines of JSON, without the 47 of 989,818 users who have more than 400 visits, split by the
tokenizer `words`. NLTK splits lines of numbers into the same words. Parameters are those of the
paper's experiment (ε = 1, δ = 1e-7, T = 6, Δ = 10, η = 0.01). The script `run.sh` of the
published program has others: δ = 0.5, η = 0.1, the most frequent n-grams of a user instead of
random ones, and |V_k| estimated from samples. To measure that program itself, run its three
steps on the same lines, with the fields renamed to `author` and `content`.

## To repeat it

This needs more packages than a run, psutil for one: `.venv/bin/pip install -e '.[dev]'`.

```sh
.venv/bin/python -m tests.benchmarks --titles TITLES --public_text PUBLIC \\
  --json tests/benchmarks/recorded/table.json
.venv/bin/python docs/make_performance.py
```

`TITLES` has lines of `{"user", "text"}`, gzipped, and `PUBLIC` has one text a line. Without
them, the sample that is shipped stands in for both. Use a machine that does nothing else. With
`--only` and the name of a part, other parts of the benchmarks are measured, such as growth with
the number of users, profiles, and Beam YAML beside the program; `--help` lists them.
"""
_SMALL = """
## The small instance of CI

`.ci/run` measures a small instance (MSNBC, eight copies of the sample of titles, one user) and
fails if a ratio is 1.5 times the recorded one and at least .06 above it. Its ratios are of user CPU
seconds, medians of three, since these depend little on what else a machine does, and start-up is
taken off where a line says so. A ratio that looks worse is measured a second time, and judged by
the median of both.
The first command runs the small
instance alone, and the second records it:

```sh
.venv/bin/python -m tests.benchmarks.regression
.venv/bin/python -m tests.benchmarks.regression --record
```

Record it again after a change that makes the program faster, because the check would let it
become slower again unnoticed.

"""


def performance_page() -> str:
    """Returns the page of time and memory."""
    run, small = (_recorded(name) for name in ("table", "small"))
    return "".join(
        [_BEGINNING, _last_run(run), _processes(run), _MEASURED, _SMALL, _small_ratios(small)]
    )


def _recorded(name: str) -> dict[str, Any]:
    return json.loads((RECORDED / f"{name}.json").read_text(encoding="utf-8"))


def _last_run(run: dict[str, Any]) -> str:
    head = ("part", "ratio", "target", "median", "lowest to highest", "verdict")
    parts = run["benchmarks"].values()
    rows = [_figure(figure) for part in parts for figure in part["figures"]]
    omitted = [f"\nNot measured: {reason}.\n" for part in parts for reason in part["omitted"]]
    return f"\n## The last run\n\n{_about(run)}\n{_table(head, rows)}{''.join(omitted)}"


def _about(run: dict[str, Any]) -> str:
    repeats = "one run each" if run["repeats"] == 1 else f"medians of {run['repeats']}"
    load = f"{run['load_at_start']} before and {run['load_at_end']} after the run"
    sentences = [
        _machine(run),
        f"The load of the machine was {load}.",
        f"Titles: `{run['titles']}`; public text: `{run['public_text']}`; {repeats}.",
    ]
    if run["small"]:
        sentences.append("The data were cut, so that most ratios are those of start-up.")
    if _was_busy(run):
        sentences.append("Other programs kept the machine busy: only CPU times and memory count.")
    return " ".join(sentences) + "\n"


def _was_busy(run: dict[str, Any]) -> bool:
    """Returns whether there was more load than the benchmarks make themselves."""
    cores = run["machine"]["cores"]
    return run["load_at_start"] > cores / 2 or run["load_at_end"] > cores + 1


def _machine(run: dict[str, Any]) -> str:
    machine, versions = run["machine"], dict(run["versions"])
    mechanism = versions.pop("mechanism")
    names = {"python": "Python", "apache-beam": "Beam"}
    listed = ", ".join(f"{names.get(name, name)} {number}" for name, number in versions.items())
    return (
        f"{run['date']}: {machine['processor']}, {machine['cores']} cores, "
        f"{machine['memory_gigabytes']:.0f} GB, {machine['system']}; {listed}, mechanism version "
        f"{mechanism}; {in_words(run.get('extras'))}."
    )


def _figure(figure: dict[str, Any]) -> tuple[str, ...]:
    unit, target, values = figure["unit"], figure["target"], figure["values"]
    sign = "≥" if figure["at_least"] else "≤"
    wanted = "" if target is None else f"{sign} {number(target)} {unit}"
    measured = f"{number(figure['median'], apart_from=target)} {unit}"
    span = f"{number(min(values))} to {number(max(values))}"
    kept = (text.replace(" ", _NO_BREAK) for text in (wanted, measured, span, figure["verdict"]))
    return figure["benchmark"], figure["what"], *kept


def _processes(run: dict[str, Any]) -> str:
    head = ("part", "process", "seconds", "CPU seconds", "peak memory, MB")
    rows = [
        (part["figures"][0]["benchmark"], row[0], *map(number, row[1:]))
        for part in run["benchmarks"].values()
        for listing in part["listings"]
        for row in listing["rows"]
    ]
    return f"\nThe medians of the processes themselves:\n\n{_table(head, rows)}"


def _small_ratios(small: dict[str, Any]) -> str:
    rows = [(name, number(ratio)) for name, ratio in small["ratios"].items()]
    return f"{_table(('user CPU seconds', 'recorded'), rows)}\n{_machine(small)}\n"


def _table(head: tuple[str, ...], rows: list[tuple[str, ...]]) -> str:
    lines = [head, ("---",) * len(head), *rows]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


if __name__ == "__main__":
    PAGE.write_text(performance_page(), encoding="utf-8")
