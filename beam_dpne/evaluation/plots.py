"""Pictures of an evaluation as PNG; they are as secret as the data, and a banner in each says so."""

import importlib.util
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from beam_dpne.errors import PlotsUnavailableError
from beam_dpne.evaluation.coverage import Coverage, Evaluation
from beam_dpne.evaluation.headings import Heading, draw_heading, png_bytes
from beam_dpne.evaluation.secrecy import SECRET

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_BLUE, _ORANGE, _GREY = "#2b6cb0", "#dd6b20", "#718096"
_INCHES, _DPI = (7.2, 4.6), 150
_ROOM_ABOVE = 1.12
_SHARES: Sequence[tuple[str, str, Callable[[Coverage], float | None]]] = (
    ("of all occurrences", _BLUE, lambda row: row.occurrence_share),
    ("of a user's, mean over users", _ORANGE, lambda row: row.mean_user_share),
    ("of a user's, median over users", _GREY, lambda row: row.median_user_share),
)


def require_matplotlib() -> None:
    """Raises PlotsUnavailableError if matplotlib is missing; it is not imported."""
    if importlib.util.find_spec("matplotlib") is None:
        raise PlotsUnavailableError(
            "plots need matplotlib, which is not installed: pip install 'beam-dpne[plots]'."
        )


def plots(
    evaluation: Evaluation,
    *,
    caption: str,
    spurious_fraction: float | None,
    noun: str = "n-grams",
) -> dict[str, bytes]:
    """Returns all pictures of an evaluation: the bytes of a PNG by its name without extension.

    Args:
      evaluation: of a release.
      caption: ε, δ, data and release, for every picture (see `headings.caption_text`).
      spurious_fraction: η of the release, if it has one.
      noun: what is released.

    Raises:
      PlotsUnavailableError: matplotlib is not installed.
    """
    require_matplotlib()
    if len(evaluation.lengths) == 1:
        row = evaluation.lengths[0]
        return {
            "released": single_released_plot(row, caption, noun),
            "k_anonymity": size_plot(row, caption),
            "occurrences": single_occurrence_plot(row, caption, noun),
        }
    return {
        "released": released_plot(evaluation, caption),
        "spurious": spurious_plot(evaluation, caption, spurious_fraction),
        "k_anonymity": anonymity_plot(evaluation, caption),
        "occurrences": occurrence_plot(evaluation, caption),
    }


def released_plot(evaluation: Evaluation, caption: str) -> bytes:
    """Draws the number of released n-grams of each length, real and spurious."""
    rows = evaluation.lengths
    figure, axes = _empty("Released n-grams", caption, "n-grams", rows)
    places = range(len(rows))
    real, spurious = [row.real for row in rows], [row.spurious for row in rows]
    axes.bar(places, real, color=_BLUE, label="held by at least one user")
    axes.bar(places, spurious, bottom=real, color=_ORANGE, label="spurious: held by nobody")
    for place, row in zip(places, rows, strict=True):
        _write_above(axes, place, row.released, f"{row.released:,}")
    axes.set_ylim(0, max(1, *(row.released for row in rows)) * _ROOM_ABOVE)
    axes.yaxis.set_major_formatter(lambda value, _: f"{value:,.0f}")
    return _png(figure, axes, caption, legend=True)


def spurious_plot(evaluation: Evaluation, caption: str, spurious_fraction: float | None) -> bytes:
    """Draws the share that η bounds: spurious n-grams over released n-grams one word shorter.

    Single words are never spurious.
    """
    rows = evaluation.lengths
    figure, axes = _empty(
        "Spurious n-grams: released, held by nobody",
        caption,
        "over released n-grams one word shorter",
        rows,
    )
    shorter = [0, *(row.released for row in rows[:-1])]
    ratios = [
        row.spurious / before if before else 0.0 for row, before in zip(rows, shorter, strict=True)
    ]
    axes.bar(range(len(rows)), ratios, color=_ORANGE)
    for place, (row, ratio) in enumerate(zip(rows, ratios, strict=True)):
        _write_above(axes, place, ratio, f"{row.spurious:,}")
    top = max(*ratios, spurious_fraction or 0.0, 1e-4)
    axes.set_ylim(0, top * _ROOM_ABOVE)
    _percent(axes)
    if spurious_fraction is not None:
        label = f"η = {spurious_fraction:g}, tolerated per n-gram one word shorter, in expectation"
        axes.axhline(spurious_fraction, color=_GREY, linestyle="--", linewidth=1.2, label=label)
    return _png(figure, axes, caption, legend=spurious_fraction is not None)


def anonymity_plot(evaluation: Evaluation, caption: str) -> bytes:
    """Draws, for several k, the released share of the n-grams of k users (DPNE, Figure 4)."""
    from matplotlib import colormaps

    rows = evaluation.lengths
    figure, axes = _empty(
        "Coverage of what at least k users hold", caption, "released of these", rows
    )
    ks = [own.k for own in rows[0].k_anonymity]
    for number, k in enumerate(ks):
        shares = [row.k_anonymity[number].share for row in rows]
        colour = colormaps["viridis"](0.9 * number / max(1, len(ks) - 1))
        known = [(place, share) for place, share in enumerate(shares) if share is not None]
        label = f"k = {k:,}"
        axes.plot(*_columns(known), marker="o", markersize=4, color=colour, label=label)
    axes.set_ylim(0, 1.03)
    _percent(axes)
    return _png(figure, axes, caption, legend=True, beside=True)


def single_released_plot(row: Coverage, caption: str, noun: str) -> bytes:
    """Draws the numbers of real and of spurious rows in a release of one length."""
    figure, axes = _empty(f"Released {noun}", caption, noun, ())
    names = ("held by at least one user", "spurious: held by nobody")
    values = (row.real, row.spurious)
    axes.bar(names, values, width=0.5, color=(_BLUE, _ORANGE))
    for place, value in enumerate(values):
        _write_above(axes, place, value, f"{value:,}")
    axes.set_ylim(0, max(1, *values) * _ROOM_ABOVE)
    axes.yaxis.set_major_formatter(lambda value, _: f"{value:,.0f}")
    return _png(figure, axes, caption, legend=False)


def single_occurrence_plot(row: Coverage, caption: str, noun: str) -> bytes:
    """Draws the share of occurrences that a release of one length covers."""
    figure, axes = _empty(f"Occurrences that released {noun} cover", caption, "covered", ())
    for place, (label, colour, share_of) in enumerate(_SHARES):
        share = share_of(row) or 0.0
        axes.bar(label, share, width=0.5, color=colour)
        _write_above(axes, place, share, f"{share:.1%}")
    axes.set_ylim(0, _ROOM_ABOVE)
    _percent(axes)
    return _png(figure, axes, caption, legend=False)


def size_plot(row: Coverage, caption: str) -> bytes:
    """Draws coverage over k, for a release of one length: both measures (DPSU, Table 2)."""
    figure, axes = _empty("Coverage of what at least k users hold", caption, "of these", ())
    known = [own for own in row.k_anonymity if own.held]
    ks, places = [own.k for own in known], range(len(known))
    shares = [own.share or 0.0 for own in known]
    axes.plot(places, shares, marker="o", color=_BLUE, label="released")
    sizes = [own.size_ratio or 0.0 for own in known]
    label = "size of the whole release over their number"
    axes.plot(places, sizes, marker="s", color=_GREY, linestyle="--", label=label)
    axes.set_xticks(places, [f"{k:,}" for k in ks])
    axes.set_xlabel("k, users")
    axes.set_yscale("log")
    _percent(axes)
    axes.axhline(1, color=_GREY, linewidth=0.8)
    return _png(figure, axes, caption, legend=True)


def occurrence_plot(evaluation: Evaluation, caption: str) -> bytes:
    """Draws the share of all occurrences that released n-grams cover, also user by user."""
    rows = evaluation.rows
    figure, axes = _empty("Occurrences that released n-grams cover", caption, "covered", rows)
    width = 0.27
    for number, (label, colour, share_of) in enumerate(_SHARES):
        places = [place + (number - 1) * width for place in range(len(rows))]
        shares = [share_of(row) or 0.0 for row in rows]
        axes.bar(places, shares, width=width * 0.92, color=colour, label=label)
    axes.set_ylim(0, 1)
    _percent(axes)
    return _png(figure, axes, caption, legend=True)


def _empty(title: str, caption: str, unit: str, rows: Sequence[Coverage]) -> "tuple[Figure, Axes]":
    """Returns a figure with banner and caption, and axes with one position for each row."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=_INCHES, dpi=_DPI, layout="constrained")
    axes = figure.add_subplot()
    draw_heading(figure, axes, title, Heading(caption, SECRET))
    axes.set_ylabel(unit)
    if rows:
        axes.set_xlabel("words in the n-gram")
        names = ["all" if row.length is None else str(row.length) for row in rows]
        axes.set_xticks(range(len(rows)), names)
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(axis="y", color="#e2e8f0", linewidth=0.8)
    axes.set_axisbelow(True)
    return figure, axes


def _write_above(axes: "Axes", place: int, height: float, text: str) -> None:
    offset = {"xytext": (0, 3), "textcoords": "offset points"}
    axes.annotate(text, (place, height), ha="center", va="bottom", fontsize=8, **offset)


def _percent(axes: "Axes") -> None:
    axes.yaxis.set_major_formatter(lambda value, _: f"{value * 100:.3g} %")


def _columns(points: Sequence[tuple[int, float]]) -> tuple[list[int], list[float]]:
    return [place for place, _ in points], [share for _, share in points]


def _png(
    figure: "Figure", axes: "Axes", caption: str, *, legend: bool, beside: bool = False
) -> bytes:
    handles, labels = axes.get_legend_handles_labels()
    if legend and beside:
        own = {"loc": "center left", "bbox_to_anchor": (1.0, 0.5)}
        axes.legend(handles[::-1], labels[::-1], frameon=False, **own)
    elif legend:
        figure.legend(
            handles, labels, loc="outside lower center", ncols=3, frameon=False, fontsize=9
        )
    return png_bytes(figure, Heading(caption, SECRET))
