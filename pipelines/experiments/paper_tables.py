"""From results to tables: medians over keys, beside what the papers print."""

import statistics
from collections.abc import Callable, Sequence
from typing import Any

from pipelines.experiments.printed import PrintedTable
from pipelines.experiments.studies import Cell, Experiment, Made, Measured, Result

PAPER = "DPNE (one_round)"
OURS = "ours (adaptive)"
_MEDIANS = (
    "Medians over keys; n-grams that some user holds, spurious ones apart (medians too; 'expected at "
    "most' is the mechanism's own bound). The paper counts what is released.",
    "DPSU-single spends the whole budget on each length: not a release, no total.",
)


def _total(name: str) -> Callable[[Result], float]:
    """Returns the function that adds up a number over all lengths of a result."""
    return lambda result: sum(row[name] for row in result["lengths"])


_real, _spurious, _released = map(_total, ("real", "spurious", "released"))


def _bound(result: Result) -> float:
    return round(_total("spurious_bound")(result), 1)


def lengths(experiment: Experiment, measured: Measured) -> Made:
    """One row of ours, and of the paper's where there is one: real n-grams of each length."""
    longest = _longest(measured)
    headings = (
        *("algorithm", *map(str, range(1, longest + 1))),
        *("real", "spurious", "expected at most", "keys", "seconds"),
    )
    rows = []
    for row, found in measured:
        is_release = row.label != "DPSU-single"
        totals = (
            _median(found, each) if is_release else None for each in (_real, _spurious, _bound)
        )
        seconds = _median(found, lambda result: round(result["seconds"], 1))
        rows.append((row.label, *_by_length(found, longest), *totals, len(found), seconds))
    for name, values in (experiment.printed.rows if experiment.printed else {}).items():
        shown = (*values[:longest], *(None,) * (longest - len(values)))
        total = None if name == "DPSU-single" else sum(value or 0 for value in values[:longest])
        rows.append((f"paper: {name}", *shown, total, None, None, None, None))
    return headings, rows, (*_MEDIANS, *_printed_notes(experiment.printed))


def spurious_share(experiment: Experiment, measured: Measured) -> Made:
    """The share of spurious n-grams over η."""
    columns = ("spurious", "released", "share")
    headings = ("η", *(f"{label}: {name}" for label in (PAPER, OURS) for name in columns))
    printed = experiment.printed
    known = dict(zip(printed.columns, printed.rows["actual_ratio"], strict=True)) if printed else {}
    rows = []
    for eta in experiment.values:
        cells: list[Cell] = [eta]
        for label in (PAPER, OURS):
            found = _at(measured, label, eta)
            share = _median(found, lambda each: _spurious(each) / max(1, _released(each)))
            cells += [
                _median(found, _spurious),
                _median(found, _released),
                share and round(share, 5),
            ]
        rows.append((*cells, known.get(eta)))
    return (*headings, "paper, other data"), rows, _printed_notes(printed)


def sweep(experiment: Experiment, measured: Measured) -> Made:
    """Real n-grams of each length over the values of a parameter."""
    longest = _longest(measured)
    headings = (
        *("algorithm", experiment.swept, *map(str, range(1, longest + 1))),
        *("real", "spurious", "keys"),
    )
    rows = [
        (
            *(row.label, row.at, *_by_length(found, longest)),
            *(_median(found, _real), _median(found, _spurious), len(found)),
        )
        for row, found in measured
    ]
    return headings, rows, ["Medians over keys; real n-grams of each length."]


def union(experiment: Experiment, measured: Measured) -> Made:
    """Means and standard deviations over Δ_0, as the paper has them."""
    limits = experiment.values
    headings = ("policy", *(f"Δ_0 = {limit:g}" for limit in limits), "orders")
    rows: list[Sequence[Cell]] = []
    for policy in dict.fromkeys(row.label for row, _ in measured):
        found = [_at(measured, policy, limit) for limit in limits]
        cells = [_mean_text([int(_real(one)) for one in each]) for each in found]
        rows.append((policy, *cells, max(map(len, found))))
    printed = experiment.printed
    for name, values in (printed.rows if printed else {}).items():
        known = dict(zip(printed.columns if printed else (), values, strict=True))
        rows.append((f"paper: {name}", *(known.get(limit) for limit in limits), None))
    notes = [
        "Means ± standard deviations over orders of the users (keys). Published policies with a "
        "sequence of users have one shard, as in the paper; ours two. 'mad' and 'mad2r' are our "
        "variants, with proofs, of Chen et al. 2025; 'sips' is DP-SIPS, Swanberg et al. 2023.",
        "The paper's figures are of other data: compare shapes.",
    ]
    return headings, rows, [*notes, *_printed_notes(printed)]


def sizes(experiment: Experiment, measured: Measured) -> Made:
    """The size of each released set over the number of words of at least k users."""
    present = {k: count for k, count, _ in measured[0][1][0]["lengths"][0]["k_anonymity"]}
    columns = {row.label: statistics.median(map(_real, found)) for row, found in measured}
    printed = experiment.printed
    theirs = {
        name: row for name, row in (printed.rows if printed else {}).items() if name != "held"
    }
    headings = ("k", "words of at least k users", *columns, *(f"paper: {name}" for name in theirs))
    rows = []
    for place, k in enumerate(printed.columns if printed else ()):
        ours = [round(size / max(1, present[k]), 3) for size in columns.values()]
        rows.append((int(k), present[k], *ours, *(row[place] for row in theirs.values())))
    shown = ", ".join(f"{label} {size:,.0f}" for label, size in columns.items())
    notes = [f"Sizes of the released sets (medians over orders): {shown}."]
    return headings, rows, [*notes, *_printed_notes(printed)]


def anonymity(experiment: Experiment, measured: Measured) -> Made:
    """The released share of what at least k users hold, length by length."""
    rows = [
        (row.label, level["length"], k, present, count, round(count / present, 4))
        for row, found in measured
        for level in found[0]["lengths"]
        for k, present, count in level["k_anonymity"]
        if present
    ]
    headings = ("algorithm", "length", "k", "held", "released", "share")
    return headings, rows, ["Of the first key."]


def _longest(measured: Measured) -> int:
    return max(len(result["lengths"]) for _, found in measured for result in found)


def _by_length(found: Sequence[Result], longest: int) -> list[Cell]:
    return [
        _median(found, lambda result, i=i: result["lengths"][i]["real"]) for i in range(longest)
    ]


def _at(measured: Measured, label: str, at: Any) -> Sequence[Result]:
    """Returns the results of the row of a name and a value."""
    return next(found for row, found in measured if (row.label, row.at) == (label, at))


def _median(found: Sequence[Result], value: Callable[[Result], float]) -> Any:
    """Returns the median of a value over runs, as an integer where it is one."""
    middle = statistics.median(map(value, found))
    return int(middle) if middle == int(middle) else middle


def _mean_text(numbers: Sequence[int]) -> Cell:
    mean = round(statistics.mean(numbers))
    return f"{mean:,} ± {round(statistics.stdev(numbers))}" if len(numbers) > 1 else mean


def _printed_notes(printed: PrintedTable | None) -> list[str]:
    if printed is None:
        return []
    noted = printed.notes[:1].upper() + printed.notes[1:]
    return [f"{printed.source}, on {printed.data}. {noted}".strip()]
