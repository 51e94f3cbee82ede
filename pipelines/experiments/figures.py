"""Pictures of experiments as PNG; each states its budgets and the secrecy of its data."""

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from beam_dpne.evaluation.plots import PANEL_NAME, Heading, draw_heading, png_bytes
from pipelines.experiments.experiments import Experiment
from pipelines.experiments.results import Results

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

RED = "#c53030"
_GRID, _DPI = "#e2e8f0", 150
_HEIGHT, _MORE_HEIGHT = 5.4, 2.4
# How many letters of labels fit below a figure, lines and gaps taken off.
_LEGEND_LETTERS = 110
Drawers = Mapping[str, Callable[[Experiment, Results, Heading], bytes]]


def figure_of(
    experiment: Experiment, results: Results, heading: Heading, drawers: Drawers
) -> bytes | None:
    """Draws the results of an experiment as PNG; returns None without results or without a drawer.

    Args:
      experiment: The experiment.
      results: Results so far.
      heading: Budgets and data, and the mark of the data's secrecy.
      drawers: Functions that draw pictures, by kind.
    """
    draw = drawers.get(experiment.kind)
    if draw is None or not any(results.of(row) for row in experiment.rows):
        return None
    return draw(experiment, results, heading)


def empty_figure(
    title: str, heading: Heading, panels: int = 1, *, rows: int = 1, shared: bool = True
) -> "tuple[Figure, Sequence[Axes]]":
    """Returns a figure with its title and heading, and empty panels, which may share an axis."""
    from matplotlib.figure import Figure

    size = (8.4 if panels == 1 else 11.0, _HEIGHT + _MORE_HEIGHT * (rows - 1))
    figure = Figure(figsize=size, dpi=_DPI, layout="constrained")
    sharing = "row" if rows > 1 else shared
    panel = figure.subplots(rows, panels // rows, sharey=sharing, squeeze=False).ravel()
    for axes in panel:
        axes.spines[["top", "right"]].set_visible(False)
        axes.grid(color=_GRID, linewidth=0.8)
        axes.set_axisbelow(True)
    draw_heading(figure, panel[0], title, heading, below=PANEL_NAME if panels > 1 else 0.0)
    return figure, list(panel)


def draw_curve(axes: "Axes", xs: Sequence, ys: Sequence, label: str, style: Mapping) -> None:
    """Draws a curve without missing values and without zeros, which a log scale cannot show."""
    points: list[tuple[Any, Any]] = [(x, y) for x, y in zip(xs, ys, strict=True) if y]
    if points:
        axes.plot(*zip(*points, strict=True), label=label, **style)


def name_panel(axes: "Axes", name: str) -> None:
    """Writes the name of a panel above its right end."""
    axes.annotate(
        name,
        (0.99, 1.0),
        xycoords="axes fraction",
        ha="right",
        va="bottom",
        fontsize=10,
        fontweight="bold",
    )


def png_of(figure: "Figure", axes: "Axes", heading: Heading, *, beside: bool = False) -> bytes:
    """Returns a figure as PNG, with the legend of one of its panels below or beside it."""
    handles, labels = axes.get_legend_handles_labels()
    look: dict[str, Any] = {"frameon": False, "fontsize": 9}
    if beside:
        axes.legend(handles, labels, loc="center left", bbox_to_anchor=(1.0, 0.5), **look)
    elif handles:
        columns = max(1, min(5, _LEGEND_LETTERS // max(map(len, labels))))
        figure.legend(handles, labels, loc="outside lower center", ncols=columns, **look)
    return png_bytes(figure, heading)
