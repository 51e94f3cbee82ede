"""Pictures of the experiments of private n-gram probabilities, as PNG; each says of what it is."""

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from beam_dpne.evaluation.headings import PANEL_NAME, Heading, draw_heading, png_bytes
from pipelines.experiments.bayesian_parts import Curve, Experiment
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
from pipelines.experiments.bayesian_tables import Find, value_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

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
_RED, _GRID, _DPI = "#c53030", "#e2e8f0", 150
_KL = "KL from the private distribution, nats"


def figure_of(experiment: Experiment, find: Find, heading: Heading) -> bytes | None:
    """Draws an experiment as PNG, of the results that are there; None if there are none or no picture.

    Args:
      experiment: what to draw.
      find: results.
      heading: what was spent, on which data, and how secret they are.
    """
    draw = _DRAWERS.get(experiment.kind)
    if draw is None or not any(find(run) is not None for run in experiment.runs):
        return None
    return draw(experiment, find, heading)


def _divergences(experiment: Experiment, find: Find, heading: Heading) -> bytes:
    """Two panels: the floor that all get, and the one that suits each best."""
    figure, panels = _empty(experiment.title, heading, 2)
    names = ("all mixed with 1 % uniform", "each with the floor best for it in hindsight")
    for axes, name, measured in zip(panels, names, ("divergence", "best_floor"), strict=True):
        for curve in experiment.curves:
            _draw(axes, curve, measured, find)
        axes.annotate(name, (0.99, 1.0), xycoords="axes fraction", ha="right", va="bottom")
        _scales(axes, experiment)
        axes.set_yscale("log")
        axes.yaxis.set_major_formatter(lambda value, _: f"{value:g}")
        axes.yaxis.set_minor_formatter(lambda value, _: "")
    panels[0].set_ylabel(_KL + ", log scale")
    return _png(figure, panels[0], heading)


def _attacks(experiment: Experiment, find: Find, heading: Heading) -> bytes:
    """The paper's probability, and the bound of ε against what is claimed."""
    measured = ["probability", "epsilon_bound"]
    first = experiment.curves[0]
    if value_of(first, 0, "probability", find) is None:
        measured = measured[1:]
    figure, panels = _empty(experiment.title, heading, len(measured), shared=False)
    for axes, name in zip(panels, measured, strict=True):
        for curve in experiment.curves:
            _draw(axes, curve, name, find)
        _scales(axes, experiment)
        if name == "probability":
            axes.set_ylim(0, 1.03)
            axes.set_ylabel("inference probability")
        else:
            claimed = [at for at, _ in first.points]
            axes.plot(claimed, claimed, color=_RED, linewidth=1, label="claimed ε")
            axes.set_yscale("symlog", linthresh=0.1)
            axes.set_ylim(bottom=0)
            axes.yaxis.set_major_formatter(lambda value, _: f"{value:g}")
            axes.set_ylabel("lower bound of ε by the likelihood ratio")
    return _png(figure, panels[-1], heading)


def _perplexities(experiment: Experiment, find: Find, heading: Heading) -> bytes:
    """A bar for each mechanism, a panel for each vocabulary."""
    places = range(len(experiment.curves[0].points))
    figure, panels = _empty(experiment.title, heading, len(places), rows=2)
    names = [curve.mechanism for curve in experiment.curves][::-1]
    for axes, place in zip(panels, places, strict=True):
        run = experiment.curves[0].points[place][1][0]
        found = {
            curve.mechanism: value_of(curve, place, "perplexity", find)
            for curve in experiment.curves
        }
        values = [found[name] or 0.0 for name in names]
        axes.barh(range(len(names)), values, color=[_STYLES[name]["color"] for name in names])
        for row, value in enumerate(values):
            axes.annotate(f" {value:.3g}", (value, row), va="center", fontsize=8)
        axes.set_yticks(range(len(names)), [LABELS[name] for name in names], fontsize=8)
        axes.set_xlim(0, 1.15 * max([*values, 1.0]))
        axes.grid(axis="y", visible=False)
        whose = "held-out users" if run.held_out else "all users"
        axes.set_xlabel(f"perplexity, {run.vocabulary_size:,} trigrams, {whose}", fontsize=9)
    return _png(figure, panels[0], heading)


def _draw(axes: "Axes", curve: Curve, measured: str, find: Find) -> None:
    points = [
        (at, value)
        for place, (at, _) in enumerate(curve.points)
        if (value := value_of(curve, place, measured, find)) is not None
    ]
    if points:
        xs, ys = zip(*points, strict=True)
        axes.plot(xs, ys, label=LABELS[curve.mechanism], markersize=5, **_STYLES[curve.mechanism])


def _scales(axes: "Axes", experiment: Experiment) -> None:
    values = sorted({at for curve in experiment.curves for at, _ in curve.points})
    if values[0] > 0:
        axes.set_xscale("log")
    else:
        axes.set_xscale("symlog", linthresh=min(value for value in values if value > 0))
    axes.set_xticks(values, [_short(value) for value in values], fontsize=8)
    axes.minorticks_off()
    axes.set_xlabel(experiment.varied)


def _short(value: float) -> str:
    """Returns a number with K or M."""
    for size, unit in ((10**6, "M"), (10**3, "K")):
        if value >= size:
            return f"{value / size:.3g}{unit}"
    return f"{value:g}"


def _empty(
    title: str, heading: Heading, panels: int, *, rows: int = 1, shared: bool = True
) -> "tuple[Figure, Sequence[Axes]]":
    """Returns a figure that says what it shows, and panels."""
    from matplotlib.figure import Figure

    width = 7.0 if panels == 1 else 11.5
    figure = Figure(figsize=(width, 5.4 + 2.4 * (rows - 1)), dpi=_DPI, layout="constrained")
    columns = panels // rows
    sharing = "row" if rows > 1 else shared
    axes = figure.subplots(rows, columns, sharey=sharing, squeeze=False).ravel()
    for own in axes:
        own.spines[["top", "right"]].set_visible(False)
        own.grid(color=_GRID, linewidth=0.8)
        own.set_axisbelow(True)
    draw_heading(figure, axes[0], title, heading, below=PANEL_NAME if panels > 1 else 0.0)
    return figure, list(axes)


def _png(figure: "Figure", axes: "Axes", heading: Heading) -> bytes:
    handles, labels = axes.get_legend_handles_labels()
    if handles:
        figure.legend(
            handles, labels, loc="outside lower center", ncols=3, frameon=False, fontsize=9
        )
    return png_bytes(figure, heading)


_DRAWERS: Mapping[str, Callable[[Experiment, Find, Heading], bytes]] = {
    "divergence": _divergences,
    "membership": _attacks,
    "counterexample": _attacks,
    "perplexity": _perplexities,
}
