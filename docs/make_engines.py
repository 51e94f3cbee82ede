"""python docs/make_engines.py

Writes the table of times in docs/engines.md from the runs that are recorded in the repository.
"""

import json
import pathlib
import statistics
from collections.abc import Mapping, Sequence
from typing import Any

PAGE = pathlib.Path(__file__).with_name("engines.md")
RECORDED = PAGE.parents[1] / "tests" / "benchmarks" / "recorded" / "engines.json"
BEGIN = "<!-- The lines to the next comment are written by docs/make_engines.py. -->\n"
END = "<!-- The end of what docs/make_engines.py writes. -->\n"
_DATA = {"titles": "titles, T = 7", "msnbc": "MSNBC, T = 6", "ten_times": "ten times the titles"}
_KINDS = ("launcher", "engine", "harness")
_HEAD = (
    "data, strategy",
    "where",
    "seconds",
    "CPU seconds",
    *(f"{kind}: CPU, peak MB" for kind in _KINDS),
)


def page() -> str:
    """Returns the page with the table of the recorded runs."""
    before, _, rest = PAGE.read_text(encoding="utf-8").partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}{written()}{END}{after}"


def written() -> str:
    """Returns the table, and with what and when it was measured."""
    parts = [part for part in json.loads(RECORDED.read_text("utf-8")) if not part["small"]]
    lines = [_HEAD, ("---",) * len(_HEAD), *(row for part in parts for row in _rows(part))]
    table = "".join(f"| {' | '.join(line)} |\n" for line in lines)
    return f"\n{_about(parts)}\n{table}\n{_equal(parts)}\n\n"


def _rows(part: Mapping[str, Any]) -> list[tuple[str, ...]]:
    what = f"{_DATA[part['data']]}, {part['strategy']}"
    return [
        (
            what,
            row["where"],
            _median(row["runs"], "seconds"),
            _median(row["runs"], "cpu"),
            *(_process(row["runs"], kind) for kind in _KINDS),
        )
        for row in part["rows"]
    ]


def _equal(parts: Sequence[Mapping[str, Any]]) -> str:
    """Says whether all releases were that of the embedded runner in one step."""
    other = [
        f"{part['data']}, {part['strategy']}, {row['where']}"
        for part in parts
        for row in part["rows"]
        if not row["equal"]
    ]
    if other:
        return f"These releases differ from that of the embedded runner: {'; '.join(other)}."
    return "Each release had the bytes of the embedded release in one step with the same run key."


def _median(runs: Sequence[Mapping[str, Any]], name: str) -> str:
    return f"{statistics.median(run[name] for run in runs):.1f}"


def _process(runs: Sequence[Mapping[str, Any]], kind: str) -> str:
    costs = [run["processes"][kind] for run in runs if kind in run["processes"]]
    if not costs:
        return ""
    cpu = statistics.median(cost["cpu"] for cost in costs)
    return f"{cpu:.1f} s, {max(cost['megabytes'] for cost in costs):,}"


def _about(parts: Sequence[Mapping[str, Any]]) -> str:
    newest = max(parts, key=lambda part: part["date"])
    machine, versions = newest["machine"], newest["versions"]
    repeats = sorted({len(row["runs"]) for part in parts for row in part["rows"]})
    of = "one run each" if repeats == [1] else f"medians of {repeats[0]} to {repeats[-1]} runs"
    return (
        f"{newest['date']}: {machine['processor']}, {machine['cores']} cores, "
        f"{machine['memory_gigabytes']:.0f} GB, {machine['system']}; Python {versions['python']}, "
        f"Beam {versions['apache-beam']}, mechanism version {versions['mechanism']}; {of}.\n"
    )


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
