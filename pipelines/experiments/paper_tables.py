"""From results to tables: medians over keys, beside what the papers print."""

import statistics
from collections.abc import Callable, Sequence
from typing import Any

from pipelines.experiments.experiments import Experiment
from pipelines.experiments.paper_parts import (
    OTHER_POLICIES,
    OURS,
    PAPER,
    PUBLISHED,
)
from pipelines.experiments.printed import PrintedTable
from pipelines.experiments.runs import Result
from pipelines.experiments.tables import Cell, Makers, Results


def real_total(result: Result) -> int:
    """Returns how many n-grams of a run are real, of all lengths."""
    return sum(row["real"] for row in result["lengths"])


def spurious_total(result: Result) -> int:
    """Returns how many n-grams of a run nobody holds, of all lengths."""
    return sum(row["spurious"] for row in result["lengths"])


def median_real(results: Sequence[Result]) -> float | None:
    """Returns the median over runs of the real n-grams of all lengths, None of no runs."""
    return statistics.median(map(real_total, results)) if results else None


def _lengths(experiment: Experiment, results: Results) -> Any:
    """One row of ours, and of the paper's where there is one: real n-grams of each length."""
    longest = max((len(found["lengths"]) for found in _all(experiment, results)), default=0)
    headings = (
        "algorithm",
        *map(str, range(1, longest + 1)),
        "real",
        "spurious",
        "expected at most",
    )
    headings += ("keys", "seconds")
    rows = []
    for row in experiment.rows:
        measured = results.of(row)
        if not measured:
            continue
        is_single = row.label == "DPSU-single"
        rows.append(
            (
                row.label,
                *(
                    _median(measured, lambda found, i=i: found["lengths"][i]["real"])
                    for i in range(longest)
                ),
                None if is_single else median_real(measured),
                None if is_single else _median(measured, spurious_total),
                None if is_single else _median(measured, _bound),
                len(measured),
                _median(measured, lambda found: round(found["seconds"], 1)),
            )
        )
    for name, values in (experiment.printed.rows if experiment.printed else {}).items():
        shown = (*values[:longest], *(None,) * (longest - len(values)))
        total = None if name == "DPSU-single" else sum(value or 0 for value in values[:longest])
        rows.append((f"paper: {name}", *shown, total, None, None, None, None))
    return headings, rows, _length_notes(experiment)


def _length_notes(experiment: Experiment) -> list[str]:
    notes = [
        "Medians over keys; n-grams that some user holds, spurious ones apart (medians too; 'expected "
        "at most' is the mechanism's own bound). The paper counts what is released.",
        "DPSU-single spends the whole budget on each length: not a release, no total.",
    ]
    if experiment.printed is not None and not experiment.comparable:
        notes.append(
            "The paper's figures are of other data (Reddit posts of 1.2 million users), which are not "
            "available: compare shapes and ratios, not sizes."
        )
    return [*notes, *_printed_notes(experiment.printed)]


def _spurious_share(experiment: Experiment, results: Results) -> Any:
    columns = ("spurious", "released", "share")
    headings = ("η", *(f"{label}: {name}" for label in (PAPER, OURS) for name in columns))
    headings += ("paper, other data",)
    printed = experiment.printed
    known = dict(zip(printed.columns, printed.rows["actual_ratio"], strict=True)) if printed else {}
    rows = []
    for eta in experiment.values:
        cells: list[Cell] = [eta]
        for label in (PAPER, OURS):
            measured = _found(experiment, results, label, eta)
            released = _median(measured, _released)
            spurious = _median(measured, spurious_total)
            share = _median(
                measured, lambda found: spurious_total(found) / max(1, _released(found))
            )
            cells += [spurious, released, share and round(share, 5)]
        rows.append((*cells, known.get(eta)))
    return headings, rows, _printed_notes(printed)


def _sweep(experiment: Experiment, results: Results) -> Any:
    longest = max((len(found["lengths"]) for found in _all(experiment, results)), default=0)
    headings = (
        "algorithm",
        experiment.swept,
        *map(str, range(1, longest + 1)),
        "real",
        "spurious",
        "keys",
    )
    rows = []
    for row in experiment.rows:
        measured = results.of(row)
        if measured:
            lengths = (
                _median(measured, lambda found, i=i: found["lengths"][i]["real"])
                for i in range(longest)
            )
            rows.append(
                (
                    row.label,
                    row.at,
                    *lengths,
                    median_real(measured),
                    _median(measured, spurious_total),
                    len(measured),
                )
            )
    return headings, rows, ["Medians over keys; real n-grams of each length."]


def _union(experiment: Experiment, results: Results) -> Any:
    """Means and standard deviations, as the paper has them."""
    limits = experiment.values
    headings = ("policy", *(f"Δ_0 = {limit:g}" for limit in limits), "orders")
    rows = []
    for policy in (*PUBLISHED, *OTHER_POLICIES):
        found = [_found(experiment, results, policy, limit) for limit in limits]
        if any(found):
            cells = [_mean_text([real_total(one) for one in measured]) for measured in found]
            rows.append((policy, *cells, max(map(len, found))))
    printed = experiment.printed
    for name, values in (printed.rows if printed else {}).items():
        known = dict(zip(printed.columns if printed else (), values, strict=True))
        rows.append((f"paper: {name}", *(known.get(limit) for limit in limits), None))
    notes = [
        "Means ± standard deviations over orders of the users (keys). Published policies with a "
        "sequence of users have one shard, as in the paper; ours two. 'mad' and 'mad2r' are our "
        "variants, with proofs, of Chen et al. 2025; 'sips' is DP-SIPS, Swanberg et al. 2023.",
        "The paper's figures are of other data (posts of 223,388 users of r/AskReddit): compare "
        "shapes.",
    ]
    return headings, rows, [*notes, *_printed_notes(experiment.printed)]


def _sizes(experiment: Experiment, results: Results) -> Any:
    present: dict[int, int] = {}
    columns = {}
    for row in experiment.rows:
        measured = results.of(row)
        if measured:
            present |= {k: count for k, count, _ in measured[0]["lengths"][0]["k_anonymity"]}
            columns[row.label] = statistics.median(map(real_total, measured))
    headings = ("k", "words of at least k users", *columns)
    printed = experiment.printed
    shown = [name for name in (printed.rows if printed else {}) if name != "held"]
    headings += tuple(f"paper: {name}" for name in shown)
    rows = []
    for k in (int(k) for k in (printed.columns if printed else present)):
        if k not in present:
            continue
        place = printed.columns.index(k) if printed else 0
        theirs = [printed.rows[name][place] for name in shown] if printed else []
        ours = [round(size / max(1, present[k]), 3) for size in columns.values()]
        rows.append((k, present[k], *ours, *theirs))
    sizes = ", ".join(f"{label} {size:,.0f}" for label, size in columns.items())
    notes = [f"Sizes of the released sets (medians over orders): {sizes}."]
    return headings, rows, [*notes, *_printed_notes(printed)]


def _anonymity(experiment: Experiment, results: Results) -> Any:
    headings = ("algorithm", "length", "k", "held", "released", "share")
    rows = []
    for row in experiment.rows:
        for found in results.of(row)[:1]:
            for level in found["lengths"]:
                rows += [
                    (row.label, level["length"], k, present, count, round(count / present, 4))
                    for k, present, count in level["k_anonymity"]
                    if present
                ]
    return headings, rows, ["Of the first key."]


def _all(experiment: Experiment, results: Results) -> list[Result]:
    return [found for row in experiment.rows for found in results.of(row)]


def _found(experiment: Experiment, results: Results, label: str, at: Any = None) -> list[Result]:
    """Returns the results of a row; of the only row of that label, if it has a value of its own."""
    rows = [row for row in experiment.rows if row.label == label and at in (None, row.at)]
    return results.of(rows[0]) if rows else []


def _released(found: Result) -> int:
    return sum(row["released"] for row in found["lengths"])


def _bound(found: Result) -> float:
    return round(sum(row["spurious_bound"] for row in found["lengths"]), 1)


def _median(found: Sequence[Result], value: Callable[[Result], float]) -> Any:
    """Returns the median of a value over runs, as an integer where it is one."""
    if not found:
        return None
    middle = statistics.median(map(value, found))
    return int(middle) if middle == int(middle) and not isinstance(middle, bool) else middle


def _mean_text(sizes: Sequence[int]) -> Cell:
    if not sizes:
        return None
    mean = round(statistics.mean(sizes))
    return f"{mean:,} ± {round(statistics.stdev(sizes))}" if len(sizes) > 1 else mean


def _printed_notes(printed: PrintedTable | None) -> list[str]:
    if printed is None:
        return []
    noted = printed.notes[:1].upper() + printed.notes[1:]
    return [f"{printed.source}, on {printed.data}. {noted}".strip()]


MAKERS: Makers = {
    "lengths": _lengths,
    "spurious": _spurious_share,
    "sweep": _sweep,
    "union": _union,
    "sizes": _sizes,
    "anonymity": _anonymity,
}
