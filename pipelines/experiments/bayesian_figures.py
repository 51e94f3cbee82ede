"""Pictures of the experiments of private n-gram probabilities."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from beam_dpne.evaluation.plots import Heading
from pipelines.experiments.bayesian_runs import (
    ANONYMITY,
    COUNTS,
    LABELS,
    LAPLACE,
    LAPLACE_PUBLIC,
    LOG_GLOBAL,
    PAPER,
    PRIVATE,
    PUBLIC,
    PUBLIC_PLUS_ONE,
)
from pipelines.experiments.bayesian_tables import setting_of
from pipelines.experiments.experiments import Experiment
from pipelines.experiments.figures import RED, Drawers, empty_figure, name_panel, png_of
from pipelines.experiments.results import Results
from pipelines.experiments.tables import mean_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_STYLES: Mapping[str, dict[str, Any]] = {
    COUNTS: {"color": "#dd6b20", "marker": "s", "linewidth": 2.6, "zorder": 5},
    LOG_GLOBAL: {"color": "#f6ad55", "marker": "D", "linewidth": 1.8},
    PAPER: {"color": "#2b6cb0", "marker": "o", "linewidth": 1.8},
    LAPLACE: {"color": "#4a5568", "marker": "^", "linewidth": 1.5},
    LAPLACE_PUBLIC: {"color": "#a0aec0", "marker": "v", "linewidth": 1.5},
    PUBLIC: {"color": "#2f855a", "linestyle": "--", "linewidth": 1.8},
    PUBLIC_PLUS_ONE: {"color": "#9ae6b4", "linestyle": "--", "linewidth": 1.5},
    ANONYMITY: {"color": "#805ad5", "marker": "P", "linewidth": 1.8},
    PRIVATE: {"color": "#c53030", "linestyle": ":", "linewidth": 1.5},
}
_KL = "KL from the private distribution, nats"


def _divergences(experiment: Experiment, results: Results, heading: Heading) -> bytes:
    """Two panels: the floor that all get, and the one that suits each best."""
    figure, panels = empty_figure(experiment.title, heading, 2)
    names = ("all mixed with 1 % uniform", "each with the floor best for it in hindsight")
    for axes, name, measured in zip(panels, names, ("divergence", "best_floor"), strict=True):
        _draw(axes, experiment, measured, results)
        name_panel(axes, name)
        _scales(axes, experiment)
        axes.set_yscale("log")
        axes.yaxis.set_major_formatter(lambda value, _: f"{value:g}")
        axes.yaxis.set_minor_formatter(lambda value, _: "")
    panels[0].set_ylabel(_KL + ", log scale")
    return png_of(figure, panels[0], heading)


def _attacks(experiment: Experiment, results: Results, heading: Heading) -> bytes:
    """The paper's probability, and the bound of ε against the claimed one."""
    measured = ["probability", "epsilon_bound"]
    if mean_of(results.of(experiment.rows[0]), "probability") is None:
        measured = measured[1:]
    figure, panels = empty_figure(experiment.title, heading, len(measured), shared=False)
    for axes, name in zip(panels, measured, strict=True):
        _draw(axes, experiment, name, results)
        _scales(axes, experiment)
        if name == "probability":
            axes.set_ylim(0, 1.03)
            axes.set_ylabel("inference probability")
        else:
            claimed = sorted(experiment.values)
            axes.plot(claimed, claimed, color=RED, linewidth=1, label="claimed ε")
            axes.set_yscale("symlog", linthresh=0.1)
            axes.set_ylim(bottom=0)
            axes.yaxis.set_major_formatter(lambda value, _: f"{value:g}")
            axes.set_ylabel("lower bound of ε by the likelihood ratio")
    return png_of(figure, panels[-1], heading)


def _perplexities(experiment: Experiment, results: Results, heading: Heading) -> bytes:
    """A bar for each mechanism, a panel for each vocabulary."""
    values = experiment.values
    figure, panels = empty_figure(experiment.title, heading, len(values), rows=2)
    names = experiment.labels[::-1]
    for axes, at in zip(panels, values, strict=True):
        rows = [row for name in names for row in experiment.curve(name) if row.at == at]
        run = setting_of(rows[0])
        bars = [mean_of(results.of(row), "perplexity") or 0.0 for row in rows]
        axes.barh(range(len(names)), bars, color=[_STYLES[name]["color"] for name in names])
        for position, value in enumerate(bars):
            axes.annotate(f" {value:.3g}", (value, position), va="center", fontsize=8)
        axes.set_yticks(range(len(names)), [LABELS[name] for name in names], fontsize=8)
        axes.set_xlim(0, 1.15 * max([*bars, 1.0]))
        axes.grid(axis="y", visible=False)
        whose = "held-out users" if run.held_out else "all users"
        axes.set_xlabel(f"perplexity, {run.vocabulary_size:,} trigrams, {whose}", fontsize=9)
    return png_of(figure, panels[0], heading)


def _draw(axes: "Axes", experiment: Experiment, measured: str, results: Results) -> None:
    """Draws a curve for each mechanism; a measured 0 is a point of it, as on a symlog scale."""
    for label in experiment.labels:
        found = [(row.at, mean_of(results.of(row), measured)) for row in experiment.curve(label)]
        points = [(at, value) for at, value in found if value is not None]
        if points:
            xs, ys = zip(*points, strict=True)
            axes.plot(xs, ys, label=LABELS[label], markersize=5, **_STYLES[label])


def _scales(axes: "Axes", experiment: Experiment) -> None:
    values = sorted(experiment.values)
    if values[0] > 0:
        axes.set_xscale("log")
    else:
        axes.set_xscale("symlog", linthresh=min(value for value in values if value > 0))
    axes.set_xticks(values, [_short(value) for value in values], fontsize=8)
    axes.minorticks_off()
    axes.set_xlabel(experiment.swept)


def _short(value: float) -> str:
    """Returns a number with K or M."""
    for size, unit in ((10**6, "M"), (10**3, "K")):
        if value >= size:
            return f"{value / size:.3g}{unit}"
    return f"{value:g}"


DRAWERS: Drawers = {
    "divergence": _divergences,
    "membership": _attacks,
    "counterexample": _attacks,
    "perplexity": _perplexities,
}
