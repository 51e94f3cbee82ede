"""Results of the experiments of private n-gram probabilities as tables, and the targets."""

import statistics
from collections.abc import Callable, Sequence
from typing import Any

from pipelines.experiments.bayesian_parts import TARGET_EPSILON, Curve, Experiment
from pipelines.experiments.bayesian_runs import (
    ANONYMITY,
    COUNTS,
    LABELS,
    LAPLACE,
    LAPLACE_PUBLIC,
    PUBLIC,
    BayesianRun,
)
from pipelines.experiments.runs import Result
from pipelines.experiments.tables import Cell, Table

Find = Callable[[BayesianRun], Result | None]

_LOWER_BY = 0.85


def value_of(curve: Curve, place: int, name: str, find: Find) -> float | None:
    """Returns the mean over keys of a measured value at a point of a curve; None if there is none."""
    results = [find(run) for run in curve.points[place][1]]
    values = [result[name] for result in results if result is not None]
    if not values or any(value is None for value in values):
        return None
    return statistics.fmean(values)


def table_of(experiment: Experiment, find: Find) -> Table:
    """Returns the table of an experiment; cells that are not measured yet are empty."""
    return _TABLES[experiment.kind](experiment, find)


def targets_of(experiments: Sequence[Experiment], find: Find) -> Table:
    """Returns what was asked for beside what was measured."""
    named = {experiment.name: experiment for experiment in experiments}
    rows = _divergence_targets(named["epsilon"], find)
    rows += _users_targets(named["users"], "W = 30", find)
    rows += _users_targets(named["users_paper_limit"], "W = |U|/1000", find)
    rows += _perplexity_targets(named["perplexity"], find)
    return Table(
        name="targets",
        title="Targets",
        headings=("what", "ours", "compared with", "ratio", "asked", "met"),
        rows=tuple(rows),
        notes=(
            "Every mechanism's distribution is mixed with 1 % of the uniform one, so that zeros have a "
            "divergence. *Best floor*: for each mechanism the share that suits it best in hindsight, "
            "chosen on the private data; that is more than any baseline could really do.",
        ),
    )


def _divergences(experiment: Experiment, find: Find) -> Table:
    values = list(dict.fromkeys(at for curve in experiment.curves for at, _ in curve.points))
    rows = []
    for measured, suffix in (("divergence", ""), ("best_floor", ", best floor in hindsight")):
        for curve in experiment.curves:
            cells = [_rounded(value_of(curve, place, measured, find)) for place in _places(curve)]
            rows.append((LABELS[curve.mechanism] + suffix, *cells))
    headings = ("mechanism", *(f"{experiment.varied} = {at:,g}" for at in values))
    return _table(experiment, headings, rows)


def _perplexities(experiment: Experiment, find: Find) -> Table:
    rows = [
        (
            LABELS[curve.mechanism],
            *(_rounded(value_of(curve, place, "perplexity", find)) for place in _places(curve)),
        )
        for curve in experiment.curves
    ]
    words = ("words judged",), ("sentences",)
    first = experiment.curves[0]
    for (label,), name in zip(words, ("words", "sentences"), strict=True):
        counts = (value_of(first, place, name, find) for place in _places(first))
        rows.append((label, *(None if count is None else int(count) for count in counts)))
    settings = [runs[0] for _, runs in first.points]
    names = (
        f"{run.vocabulary_size:,} trigrams, {'held out' if run.held_out else 'all'}"
        for run in settings
    )
    return _table(experiment, ("mechanism", *names), rows)


def _attacks(experiment: Experiment, find: Find) -> Table:
    rows = []
    for curve in experiment.curves:
        for place, (at, _) in enumerate(curve.points):
            found = [
                _rounded(value_of(curve, place, name, find))
                for name in ("probability", "epsilon_bound")
            ]
            rows.append((LABELS[curve.mechanism], at, *found))
    headings = ("mechanism", "ε claimed", "inference probability", "ε at least")
    return _table(experiment, headings, rows)


def _pipelines(experiment: Experiment, find: Find) -> Table:
    names = ("pipeline_seconds", "cpu_seconds", "peak_bytes", "divergence", "difference")
    rows = []
    for curve in experiment.curves:
        for place, (at, _) in enumerate(curve.points):
            found = [value_of(curve, place, name, find) for name in names]
            rows.append((LABELS[curve.mechanism], at, *map(_rounded, found)))
    headings = ("mechanism", "ε", "seconds", "CPU seconds", "peak bytes", "KL", "difference")
    return _table(experiment, headings, rows)


def _divergence_targets(experiment: Experiment, find: Find) -> list[tuple[Cell, ...]]:
    rows: list[tuple[Cell, ...]] = []
    for measured, floor in (("divergence", "floor of 1 %"), ("best_floor", "best floor")):
        ours = _at(experiment, COUNTS, TARGET_EPSILON, measured, find)
        better = _better_laplace(experiment, TARGET_EPSILON, measured, find)
        rows.append(
            _target(
                f"KL at ε = 0.1, against the better Laplace, {floor}", ours, better, 1 - _LOWER_BY
            )
        )
        public = _at(experiment, PUBLIC, TARGET_EPSILON, measured, find)
        rows.append(_target(f"KL at ε = 0.1, against public only, {floor}", ours, public, 1.0))
    return rows


def _users_targets(experiment: Experiment, limit: str, find: Find) -> list[tuple[Cell, ...]]:
    """Where the target is met: with the floor that all get, and with the baseline's best."""
    rows = []
    for at, _ in experiment.curves[0].points:
        for measured, floor in (("divergence", "floor of 1 %"), ("best_floor", "best floor")):
            ours = _at(experiment, COUNTS, at, measured, find)
            better = _better_laplace(experiment, at, measured, find)
            name = f"the same with {at:,.0f} users, {limit}, {floor}"
            rows.append(_target(name, ours, better, 1 - _LOWER_BY))
    return rows


def _perplexity_targets(experiment: Experiment, find: Find) -> list[tuple[Cell, ...]]:
    table = table_of(experiment, find)
    by_name = {row[0]: row[1:] for row in table.rows}
    rows = []
    for heading, ours, theirs in zip(
        table.headings[1:], by_name[LABELS[COUNTS]], by_name[LABELS[ANONYMITY]], strict=True
    ):
        name = f"perplexity at ε = 0.2, against k-anonymity with K = 50, {heading}"
        rows.append(_target(name, _number(ours), _number(theirs), 1.0))
    return rows


def _target(name: str, ours: float | None, theirs: float | None, most: float) -> tuple[Cell, ...]:
    if ours is None or theirs is None:
        return name, _rounded(ours), _rounded(theirs), None, f"≤ {most:.2f} ×", "not measured"
    met = "yes" if ours / theirs <= most else "no"
    return name, _rounded(ours), _rounded(theirs), round(ours / theirs, 4), f"≤ {most:.2f} ×", met


def _better_laplace(experiment: Experiment, at: float, measured: str, find: Find) -> float | None:
    found = [_at(experiment, name, at, measured, find) for name in (LAPLACE, LAPLACE_PUBLIC)]
    known = [value for value in found if value is not None]
    return min(known) if len(known) == len(found) else None


def _at(experiment: Experiment, name: str, at: float, measured: str, find: Find) -> float | None:
    for curve in experiment.curves:
        for place, (own, _) in enumerate(curve.points):
            if (curve.mechanism, own) == (name, at):
                return value_of(curve, place, measured, find)
    return None


def _places(curve: Curve) -> range:
    return range(len(curve.points))


def _number(cell: Cell) -> float | None:
    return float(cell) if isinstance(cell, int | float) else None


def _rounded(value: float | None) -> float | None:
    return None if value is None else float(f"{value:.5g}")


def _table(experiment: Experiment, headings: Sequence[str], rows: Sequence[tuple]) -> Table:
    return Table(
        name=experiment.name,
        title=experiment.title,
        headings=tuple(headings),
        rows=tuple(rows),
        notes=experiment.notes,
    )


_TABLES: dict[str, Callable[[Experiment, Find], Any]] = {
    "divergence": _divergences,
    "perplexity": _perplexities,
    "membership": _attacks,
    "counterexample": _attacks,
    "pipeline": _pipelines,
}
