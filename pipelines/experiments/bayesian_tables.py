"""Results of the experiments of private n-gram probabilities as tables, and the targets."""

from collections.abc import Sequence

from pipelines.experiments.bayesian_runs import (
    LABELS,
    BayesianRun,
)
from pipelines.experiments.experiments import Experiment, Row
from pipelines.experiments.tables import Cell, Made, Makers, Results, mean_of


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


def _rounded(value: float | None) -> float | None:
    return None if value is None else float(f"{value:.5g}")


MAKERS: Makers = {
    "divergence": _divergences,
    "perplexity": _perplexities,
    "running_text": _running_texts,
    "membership": _attacks,
    "counterexample": _attacks,
}
