"""Pictures of the experiments of the DPNE and DPSU papers."""

import itertools
import statistics
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from beam_dpne.evaluation.plots import Heading
from pipelines.experiments.experiments import Experiment
from pipelines.experiments.figures import RED, Drawers, draw_curve, empty_figure, name_panel, png_of
from pipelines.experiments.paper_parts import (
    BASELINES,
    DEFAULT_UNION,
    OTHER_POLICIES,
    OURS,
    OURS_EVEN,
    PAPER,
    PUBLISHED,
)
from pipelines.experiments.paper_tables import MAKERS, real_total, spurious_total
from pipelines.experiments.results import Results
from pipelines.experiments.runs import Result
from pipelines.experiments.tables import table_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_BLUE, _ORANGE, _LIGHT = "#2b6cb0", "#dd6b20", "#f6ad55"
_GREYS = ("#4a5568", "#718096", "#a0aec0")
_ANONYMITY = (10, 20, 50, 100)
_MARKERS = "osD^vP*X<>X8"


class _Style(NamedTuple):
    """How one curve looks."""

    color: Any
    marker: str = "o"
    linestyle: str = "-"
    linewidth: float = 1.8

    def options(self) -> dict[str, Any]:
        return {**self._asdict(), "markersize": 5}


_STYLES: Mapping[str, _Style] = {
    PAPER: _Style(_BLUE),
    OURS: _Style(_ORANGE, "s", linewidth=2.4),
    OURS_EVEN: _Style(_LIGHT, "s"),
    **{
        name: _Style(color, marker)
        for name, color, marker in zip(BASELINES, _GREYS, "^vD", strict=True)
    },
}
_POLICY_COLORS: Mapping[str, str] = {
    "count_laplace": "#a0aec0",
    "count_gaussian": "#718096",
    "weighted_laplace": "#90cdf4",
    "weighted_gaussian": "#2b6cb0",
    "policy_laplace": "#9ae6b4",
    "policy_gaussian": "#2f855a",
    "greedy": "#805ad5",
    OTHER_POLICIES[0]: _ORANGE,
    "mad": "#d69e2e",
    "mad2r": "#b7791f",
    "sips": "#e53e3e",
}


def _lengths(experiment: Experiment, results: Results, heading: Heading) -> bytes:
    """Real n-grams over their length, a curve for each algorithm."""
    figure, (axes,) = empty_figure(experiment.title, heading)
    for row, marker in zip(experiment.rows, itertools.cycle(_MARKERS)):
        measured = results.of(row)
        if measured:
            values = _by_length(measured)
            # Rows of one algorithm with several parameters differ by their markers.
            style = _STYLES.get(row.label, _Style(_BLUE, marker, ":", 1.2))
            _curve(axes, range(1, len(values) + 1), values, row.label, style)
    if experiment.comparable and experiment.printed is not None:
        for name, values in experiment.printed.rows.items():
            label = PAPER if name == "DPNE" else name
            style = _Style(_STYLES[label].color, "x", ":", 1.2)
            _curve(axes, range(1, len(values) + 1), values, f"paper: {name}", style)
    _label(axes, "words in the n-gram", "real n-grams, log scale", log_y=True)
    _whole_ticks(axes)
    return png_of(figure, axes, heading)


def _spurious(experiment: Experiment, results: Results, heading: Heading) -> bytes:
    """The share of spurious n-grams over η, below the diagonal."""
    figure, (axes,) = empty_figure(experiment.title, heading)
    etas = [row.at for row in experiment.rows if isinstance(row.at, float)]
    for label in (PAPER, OURS):
        rows = [row for row in experiment.rows if row.label == label and results.of(row)]
        shares = [
            statistics.median(
                spurious_total(found) / max(1, spurious_total(found) + real_total(found))
                for found in results.of(row)
            )
            for row in rows
        ]
        _curve(axes, [row.at for row in rows], shares, label, _STYLES[label])
    if experiment.printed is not None:
        printed = experiment.printed
        style = _Style(_GREYS[1], "x", ":", 1.2)
        _curve(axes, printed.columns, printed.rows["actual_ratio"], "paper, other data", style)
    axes.plot([min(etas), max(etas)], [min(etas), max(etas)], color=RED, linewidth=1, label="η")
    axes.set_xscale("log")
    axes.set_xticks(sorted(set(etas)), [f"{eta:g}" for eta in sorted(set(etas))])
    axes.minorticks_off()
    _label(axes, "η", "spurious share of what is released", log_y=True)
    axes.yaxis.set_major_formatter(lambda value, _: f"{value * 100:.3g} %")
    return png_of(figure, axes, heading)


def _sweep(experiment: Experiment, results: Results, heading: Heading) -> bytes:
    """Real n-grams over their length, a curve for each value; one panel for each algorithm."""
    labels = list(dict.fromkeys(row.label for row in experiment.rows))
    figure, panels = empty_figure(experiment.title, heading, len(labels))
    for axes, label in zip(panels, labels, strict=True):
        rows = [row for row in experiment.rows if row.label == label]
        for number, row in enumerate(rows):
            measured = results.of(row)
            if measured:
                values = _by_length(measured)
                name = (
                    f"{experiment.swept} = {row.at if isinstance(row.at, str) else f'{row.at:g}'}"
                )
                _curve(axes, range(1, len(values) + 1), values, name, _shade(number, len(rows)))
        name_panel(axes, label)
        _label(axes, "words in the n-gram", "real n-grams, log scale", log_y=True)
        _whole_ticks(axes)
    return png_of(figure, panels[0], heading)


def _union(experiment: Experiment, results: Results, heading: Heading) -> bytes:
    """Released items over Δ_0, a curve for each policy."""
    figure, (axes,) = empty_figure(experiment.title, heading)
    for number, policy in enumerate((*PUBLISHED, *OTHER_POLICIES)):
        rows = [row for row in experiment.rows if row.label == policy and results.of(row)]
        sizes = [statistics.mean(map(real_total, results.of(row))) for row in rows]
        ours = policy in OTHER_POLICIES
        style = _Style(
            _POLICY_COLORS[policy], _MARKERS[number], "-" if ours else "--", 2.2 if ours else 1.5
        )
        _curve(axes, [row.at for row in rows], sizes, policy, style)
    limits = sorted({row.at for row in experiment.rows if isinstance(row.at, int)})
    axes.set_xscale("log")
    axes.set_xticks(limits, [f"{limit:,}" for limit in limits])
    axes.minorticks_off()
    axes.set_ylim(bottom=0)
    _label(axes, "Δ_0, items that one user adds at most", "released words (mean over orders)")
    return png_of(figure, axes, heading, beside=True)


def _sizes(experiment: Experiment, results: Results, heading: Heading) -> bytes:
    """Size of the released set over the words of at least k users."""
    table = table_of(experiment, results, MAKERS)
    figure, (axes,) = empty_figure(experiment.title, heading)
    ks = [int(row[0] or 0) for row in table.rows]
    for place, column in enumerate(table.headings[2:], start=2):
        name = column.removeprefix("paper: ")
        color = _ORANGE if name == DEFAULT_UNION else _POLICY_COLORS.get(name, _GREYS[0])
        theirs = column.startswith("paper")
        style = _Style(color, "x", ":", 1.2) if theirs else _Style(color)
        label = f"{column}, other data" if theirs else column
        _curve(axes, ks, [row[place] for row in table.rows], label, style)
    axes.axhline(1, color=RED, linewidth=0.8)
    axes.set_xticks(ks)
    axes.set_ylim(bottom=0)
    axes.yaxis.set_major_formatter(lambda value, _: f"{value * 100:.3g} %")
    _label(axes, "k, users", "released over words of at least k users")
    return png_of(figure, axes, heading)


def _anonymity(experiment: Experiment, results: Results, heading: Heading) -> bytes:
    """Released share of what at least k users hold, a curve for each k."""
    figure, panels = empty_figure(experiment.title, heading, len(experiment.rows))
    for axes, row in zip(panels, experiment.rows, strict=True):
        for number, k in enumerate(_ANONYMITY):
            for found in results.of(row)[:1]:
                shares = [_share(level, k) for level in found["lengths"]]
                places = [place for place, share in enumerate(shares, 1) if share is not None]
                values = [share for share in shares if share is not None]
                _curve(axes, places, values, f"k = {k}", _shade(number, len(_ANONYMITY)))
        name_panel(axes, row.label)
        axes.set_ylim(0, 1.03)
        axes.yaxis.set_major_formatter(lambda value, _: f"{value * 100:.3g} %")
        _label(axes, "words in the n-gram", "released of what at least k users hold")
        _whole_ticks(axes)
    return png_of(figure, panels[0], heading)


def _targets(experiment: Experiment, results: Results, heading: Heading) -> bytes:
    """Each ratio as a bar, and what is asked as a line."""
    rows = [row for row in table_of(experiment, results, MAKERS).rows if row[3] and row[4]]
    figure, (axes,) = empty_figure("Targets: ours over what it is compared with", heading)
    places = range(len(rows))[::-1]
    colors = [_BLUE if row[5] == "yes" else RED for row in rows]
    ratios = [float(row[3] or 0) for row in rows]
    axes.barh(places, ratios, height=0.6, color=colors)
    for place, row, ratio in zip(places, rows, ratios, strict=True):
        sign, asked = str(row[4]).split()[:2]
        axes.plot([float(asked)] * 2, [place - 0.4, place + 0.4], color="black", linewidth=2)
        axes.annotate(
            f"{ratio:.2f} × ({sign} {asked})",
            (max(ratio, float(asked)), place),
            xytext=(6, 0),
            textcoords="offset points",
            va="center",
            fontsize=9,
        )
    axes.set_yticks(places, [_wrapped(str(row[0])) for row in rows], fontsize=8)
    axes.set_xlim(0, max([*ratios, 3]) * 1.3)
    axes.grid(axis="y", visible=False)
    axes.set_xlabel("times; the black line is what is asked")
    return png_of(figure, axes, heading)


def _by_length(measured: Sequence[Result]) -> list[float]:
    return [
        statistics.median(found["lengths"][place]["real"] for found in measured)
        for place in range(len(measured[0]["lengths"]))
    ]


def _share(level: Mapping[str, Any], k: int) -> float | None:
    present, released = next((counts for at, *counts in level["k_anonymity"] if at == k), (0, 0))
    return released / present if present else None


def _curve(axes: "Axes", xs: Sequence, ys: Sequence, label: str, style: _Style) -> None:
    draw_curve(axes, xs, ys, label, style.options())


def _shade(number: int, count: int) -> _Style:
    from matplotlib import colormaps

    return _Style(colormaps["viridis"](0.88 * number / max(1, count - 1)), _MARKERS[number])


def _label(axes: "Axes", x: str, y: str, *, log_y: bool = False) -> None:
    axes.set_xlabel(x)
    place = axes.get_subplotspec()
    if place is None or place.is_first_col():
        axes.set_ylabel(y)
    if log_y:
        axes.set_yscale("log")
        axes.yaxis.set_major_formatter(lambda value, _: f"{value:,g}")


def _whole_ticks(axes: "Axes") -> None:
    first, last = axes.dataLim.intervalx
    if last >= first:
        axes.set_xticks(range(int(first), int(last) + 1))


def _wrapped(text: str, width: int = 44) -> str:
    import textwrap

    return "\n".join(textwrap.wrap(text, width))


DRAWERS: Drawers = {
    "lengths": _lengths,
    "spurious": _spurious,
    "sweep": _sweep,
    "union": _union,
    "sizes": _sizes,
    "anonymity": _anonymity,
    "targets": _targets,
}
