"""Results of the experiments of private n-gram probabilities as tables, and the targets."""

from collections.abc import Sequence

from pipelines.experiments.bayesian_parts import TARGET_EPSILON
from pipelines.experiments.bayesian_runs import (
    ANONYMITY,
    COUNTS,
    LABELS,
    LAPLACE,
    LAPLACE_PUBLIC,
    PRIVATE,
    PUBLIC,
    BayesianRun,
)
from pipelines.experiments.experiments import Experiment, Row
from pipelines.experiments.results import Results
from pipelines.experiments.tables import TARGET_HEADINGS, Cell, Made, Makers, mean_of

_LOWER_BY = 0.85
_FLOORS = (("divergence", "floor of 1 %"), ("best_floor", "best floor"))


def setting_of(row: Row) -> BayesianRun:
    """Returns the first run of a row."""
    run = row.runs[0]
    if not isinstance(run, BayesianRun):
        raise TypeError(f"row must be of runs of probabilities, got {type(run).__name__}.")
    return run


def _cells(rows: Sequence[Row], name: str, results: Results) -> list[Cell]:
    return [_rounded(mean_of(results.of(row), name)) for row in rows]


def _divergences(experiment: Experiment, results: Results) -> Made:
    rows = [
        (LABELS[label] + suffix, *_cells(experiment.curve(label), measured, results))
        for measured, suffix in (("divergence", ""), ("best_floor", ", best floor in hindsight"))
        for label in experiment.labels
    ]
    values = (f"{experiment.swept} = {at:,g}" for at in experiment.values)
    return ("mechanism", *values), rows, ()


def _perplexities(experiment: Experiment, results: Results) -> Made:
    rows: list[Sequence[Cell]] = [
        (LABELS[label], *_cells(experiment.curve(label), "perplexity", results))
        for label in experiment.labels
    ]
    first = experiment.curve(experiment.labels[0])
    for label, name in (("words judged", "words"), ("sentences", "sentences")):
        counts = (mean_of(results.of(row), name) for row in first)
        rows.append((label, *(None if count is None else int(count) for count in counts)))
    return ("mechanism", *vocabularies(experiment)), rows, ()


def vocabularies(experiment: Experiment) -> list[str]:
    """Returns the name of each vocabulary of the perplexities, and of the users that are judged."""
    settings = map(setting_of, experiment.curve(experiment.labels[0]))
    return [
        f"{run.vocabulary_size:,} trigrams, {'held out' if run.held_out else 'all'}"
        for run in settings
    ]


def _attacks(experiment: Experiment, results: Results) -> Made:
    names = ("probability", "epsilon_bound")
    headings = ("mechanism", "ε claimed", "inference probability", "ε at least")
    return headings, _by_row(experiment, names, results), ()


def _pipelines(experiment: Experiment, results: Results) -> Made:
    names = ("pipeline_seconds", "cpu_seconds", "peak_bytes", "divergence", "difference")
    headings = ("mechanism", "ε", "seconds", "CPU seconds", "peak bytes", "KL", "difference")
    return headings, _by_row(experiment, names, results), ()


def _running_texts(experiment: Experiment, results: Results) -> Made:
    names = ("perplexity", "with_unknown", "own_words", "unknown")
    headings = (
        *("mechanism", "ε", "perplexity of known words", "of all words"),
        *("of known words, own single words", "unknown words"),
    )
    return headings, _by_row(experiment, names, results), ()


def _by_row(experiment: Experiment, names: Sequence[str], results: Results) -> list[Sequence[Cell]]:
    """One line for each mechanism and value, with several measured values."""
    return [
        (LABELS[label], row.at, *(_rounded(mean_of(results.of(row), name)) for name in names))
        for label in experiment.labels
        for row in experiment.curve(label)
    ]


def _targets(experiment: Experiment, results: Results) -> Made:
    """Requirements beside measurements; rows are called after the experiment that they are of."""

    def measured(name: str, label: str, at: float | None, value: str) -> float | None:
        row = experiment.row(f"{name}: {label}", at)
        return None if row is None else mean_of(results.of(row), value)

    def better_laplace(name: str, at: float, value: str) -> float | None:
        found = [measured(name, label, at, value) for label in (LAPLACE, LAPLACE_PUBLIC)]
        known = [one for one in found if one is not None]
        return min(known) if len(known) == len(found) else None

    rows = []
    for value, floor in _FLOORS:
        at = TARGET_EPSILON
        ours = measured("epsilon", COUNTS, at, value)
        title = f"KL at ε = 0.1, against the better Laplace, {floor}"
        rows.append(_target(title, ours, better_laplace("epsilon", at, value), 1 - _LOWER_BY))
        public = measured("epsilon", PUBLIC, at, value)
        rows.append(_target(f"KL at ε = 0.1, against public only, {floor}", ours, public, 1.0))
    for name, limit in (("users", "W = 30"), ("users_paper_limit", "W = |U|/1000")):
        for row in experiment.curve(f"{name}: {COUNTS}"):
            at = float(row.at or 0)
            for value, floor in _FLOORS:
                title = f"the same with {at:,.0f} users, {limit}, {floor}"
                ours = measured(name, COUNTS, at, value)
                laplace = better_laplace(name, at, value)
                rows.append(_target(title, ours, laplace, 1 - _LOWER_BY))
    for row in experiment.curve(f"perplexity: {COUNTS}"):
        run, at = setting_of(row), float(row.at or 0)
        judged = "held out" if run.held_out else "all"
        title = (
            "perplexity at ε = 0.2, against k-anonymity with K = 50, "
            f"{run.vocabulary_size:,} trigrams, {judged}"
        )
        ours = measured("perplexity", COUNTS, at, "perplexity")
        theirs = measured("perplexity", ANONYMITY, at, "perplexity")
        rows.append(_target(title, ours, theirs, 1.0))
    for row in experiment.curve(f"running_text: {COUNTS}"):
        at = float(row.at or 0)
        ours = measured("running_text", COUNTS, at, "perplexity")
        title = f"perplexity of running text at ε = {at:g}, against"
        own = measured("running_text", COUNTS, at, "own_words")
        rows.append(_target(f"{title} its own single words", ours, own, 1.0))
        if at >= 1:
            public = measured("running_text", PUBLIC, at, "perplexity")
            rows.append(_target(f"{title} the public model", ours, public, 1.0))
        if at >= 4:
            exact = measured("running_text", PRIVATE, at, "perplexity")
            rows.append(_target(f"{title} the exact distribution", ours, exact, 1.15))
    return TARGET_HEADINGS, rows, ()


def _target(name: str, ours: float | None, theirs: float | None, most: float) -> Sequence[Cell]:
    compared = (name, _rounded(ours), _rounded(theirs))
    if ours is None or theirs is None:
        return *compared, None, f"≤ {most:.2f} ×", "not measured"
    met = "yes" if ours / theirs <= most else "no"
    return *compared, round(ours / theirs, 4), f"≤ {most:.2f} ×", met


def _rounded(value: float | None) -> float | None:
    return None if value is None else float(f"{value:.5g}")


MAKERS: Makers = {
    "divergence": _divergences,
    "perplexity": _perplexities,
    "running_text": _running_texts,
    "membership": _attacks,
    "counterexample": _attacks,
    "pipeline": _pipelines,
    "targets": _targets,
}
