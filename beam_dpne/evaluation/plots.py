"""Pictures of an evaluation as PNG, and the banner, title and caption above every picture.

The pictures are as secret as the data, and a banner in each says so. A caption names ε, δ, the data and
the release, so that a picture can be understood alone.
"""

import importlib.util
import io
import os
import textwrap
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, NamedTuple

from beam_dpne.errors import PlotsUnavailableError
from beam_dpne.evaluation.coverage import Coverage, Evaluation
from beam_dpne.evaluation.secrecy import SECRET, Secrecy

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_BLUE, _ORANGE, _GREY = "#2b6cb0", "#dd6b20", "#718096"
_BANNER_RED, _CAPTION_GREY = "#c53030", "#4a5568"
_INCHES, _DPI = (7.2, 4.6), 150
_ROOM_ABOVE = 1.12
_SHARES: Sequence[tuple[str, str, Callable[[Coverage], float | None]]] = (
    ("of all occurrences", _BLUE, lambda row: row.occurrence_share),
    ("of a user's, mean over users", _ORANGE, lambda row: row.mean_user_share),
    ("of a user's, median over users", _GREY, lambda row: row.median_user_share),
)
_TITLE_POINTS, _CAPTION_POINTS, _LINE, _GAP = 11.5, 8.5, 1.3, 5.0
# Margin left and right of the text, as a part of the width.
_MARGIN = 0.01
# Width of an average letter, as a part of the size of the type.
_LETTER_WIDTH = 0.6
_POINTS_AN_INCH = 72
_FEW_NAMES = 2
# Height in points that the name of a panel needs above it.
PANEL_NAME = 15.0


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
      evaluation: Evaluation of a release.
      caption: ε, δ, data and release, for every picture (see `caption_text`).
      spurious_fraction: η of the release, if it has one.
      noun: Name of the released rows, in the plural.

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
    figure, axes = empty_plot("Released n-grams", caption, "n-grams", rows)
    positions = range(len(rows))
    real, spurious = [row.real for row in rows], [row.spurious for row in rows]
    axes.bar(positions, real, color=_BLUE, label="of at least one user")
    axes.bar(positions, spurious, bottom=real, color=_ORANGE, label="spurious: of no user")
    for position, row in zip(positions, rows, strict=True):
        _write_above(axes, position, row.released, f"{row.released:,}")
    axes.set_ylim(0, max(1, *(row.released for row in rows)) * _ROOM_ABOVE)
    axes.yaxis.set_major_formatter(lambda value, _: f"{value:,.0f}")
    return finished_plot(figure, axes, caption, legend=True)


def spurious_plot(evaluation: Evaluation, caption: str, spurious_fraction: float | None) -> bytes:
    """Draws the ratio whose expectation η bounds, spurious n-grams over n-grams one word shorter.

    Both are released n-grams; single words are never spurious.
    """
    rows = evaluation.lengths
    figure, axes = empty_plot(
        "Spurious n-grams: released, and of no user",
        caption,
        "over released n-grams one word shorter",
        rows,
    )
    shorter = [0, *(row.released for row in rows[:-1])]
    ratios = [
        row.spurious / before if before else 0.0 for row, before in zip(rows, shorter, strict=True)
    ]
    axes.bar(range(len(rows)), ratios, color=_ORANGE)
    for position, (row, ratio) in enumerate(zip(rows, ratios, strict=True)):
        _write_above(axes, position, ratio, f"{row.spurious:,}")
    top = max(*ratios, spurious_fraction or 0.0, 1e-4)
    axes.set_ylim(0, top * _ROOM_ABOVE)
    _percent(axes)
    if spurious_fraction is not None:
        label = f"η = {spurious_fraction:g}, tolerated per n-gram one word shorter, in expectation"
        axes.axhline(spurious_fraction, color=_GREY, linestyle="--", linewidth=1.2, label=label)
    return finished_plot(figure, axes, caption, legend=spurious_fraction is not None)


def anonymity_plot(evaluation: Evaluation, caption: str) -> bytes:
    """Draws, for several k, the released share of the n-grams of k users (DPNE, Figure 4)."""
    from matplotlib import colormaps

    rows = evaluation.lengths
    figure, axes = empty_plot(
        "Coverage of the n-grams of at least k users", caption, "released of these", rows
    )
    ks = [coverage.k for coverage in rows[0].k_anonymity]
    for number, k in enumerate(ks):
        shares = [row.k_anonymity[number].share for row in rows]
        colour = colormaps["viridis"](0.9 * number / max(1, len(ks) - 1))
        known = [(position, share) for position, share in enumerate(shares) if share is not None]
        label = f"k = {k:,}"
        axes.plot(*_columns(known), marker="o", markersize=4, color=colour, label=label)
    axes.set_ylim(0, 1.03)
    _percent(axes)
    return finished_plot(figure, axes, caption, legend=True, beside=True)


def single_released_plot(row: Coverage, caption: str, noun: str) -> bytes:
    """Draws the numbers of real and of spurious rows in a release of one length."""
    figure, axes = empty_plot(f"Released {noun}", caption, noun, ())
    names = ("of at least one user", "spurious: of no user")
    values = (row.real, row.spurious)
    axes.bar(names, values, width=0.5, color=(_BLUE, _ORANGE))
    for position, value in enumerate(values):
        _write_above(axes, position, value, f"{value:,}")
    axes.set_ylim(0, max(1, *values) * _ROOM_ABOVE)
    axes.yaxis.set_major_formatter(lambda value, _: f"{value:,.0f}")
    return finished_plot(figure, axes, caption, legend=False)


def single_occurrence_plot(row: Coverage, caption: str, noun: str) -> bytes:
    """Draws the share of occurrences that a release of one length covers."""
    figure, axes = empty_plot(f"Occurrences that released {noun} cover", caption, "covered", ())
    for position, (label, colour, share_of) in enumerate(_SHARES):
        share = share_of(row) or 0.0
        axes.bar(label, share, width=0.5, color=colour)
        _write_above(axes, position, share, f"{share:.1%}")
    axes.set_ylim(0, _ROOM_ABOVE)
    _percent(axes)
    return finished_plot(figure, axes, caption, legend=False)


def size_plot(row: Coverage, caption: str) -> bytes:
    """Draws coverage over k, for a release of one length: both measures (DPSU, Table 2)."""
    figure, axes = empty_plot(
        "Coverage of the n-grams of at least k users", caption, "of these", ()
    )
    known = [coverage for coverage in row.k_anonymity if coverage.held]
    positions = range(len(known))
    shares = [coverage.share or 0.0 for coverage in known]
    axes.plot(positions, shares, marker="o", color=_BLUE, label="released")
    sizes = [coverage.size_ratio or 0.0 for coverage in known]
    label = "size of the whole release over their number"
    axes.plot(positions, sizes, marker="s", color=_GREY, linestyle="--", label=label)
    axes.set_xticks(positions, [f"{coverage.k:,}" for coverage in known])
    axes.set_xlabel("k, users")
    axes.set_yscale("log")
    _percent(axes)
    axes.axhline(1, color=_GREY, linewidth=0.8)
    return finished_plot(figure, axes, caption, legend=True)


def occurrence_plot(evaluation: Evaluation, caption: str) -> bytes:
    """Draws the share of all occurrences that released n-grams cover, also user by user."""
    rows = evaluation.rows
    figure, axes = empty_plot("Occurrences that released n-grams cover", caption, "covered", rows)
    width = 0.27
    for number, (label, colour, share_of) in enumerate(_SHARES):
        positions = [position + (number - 1) * width for position in range(len(rows))]
        shares = [share_of(row) or 0.0 for row in rows]
        axes.bar(positions, shares, width=width * 0.92, color=colour, label=label)
    axes.set_ylim(0, 1)
    _percent(axes)
    return finished_plot(figure, axes, caption, legend=True)


def empty_plot(
    title: str, caption: str, unit: str, rows: Sequence[Coverage]
) -> "tuple[Figure, Axes]":
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


def _write_above(axes: "Axes", position: int, height: float, text: str) -> None:
    offset = {"xytext": (0, 3), "textcoords": "offset points"}
    axes.annotate(text, (position, height), ha="center", va="bottom", fontsize=8, **offset)


def _percent(axes: "Axes") -> None:
    axes.yaxis.set_major_formatter(lambda value, _: f"{value * 100:.3g} %")


def _columns(points: Sequence[tuple[int, float]]) -> tuple[list[int], list[float]]:
    return [position for position, _ in points], [share for _, share in points]


def finished_plot(
    figure: "Figure", axes: "Axes", caption: str, *, legend: bool, beside: bool = False
) -> bytes:
    """Returns a picture that `empty_plot` began, with a legend below or beside it, or without."""
    handles, labels = axes.get_legend_handles_labels()
    if legend and beside:
        beside_axes = {"loc": "center left", "bbox_to_anchor": (1.0, 0.5)}
        axes.legend(handles[::-1], labels[::-1], frameon=False, **beside_axes)
    elif legend:
        figure.legend(
            handles, labels, loc="outside lower center", ncols=3, frameon=False, fontsize=9
        )
    return png_bytes(figure, Heading(caption, SECRET))


def budget_text(epsilons: Iterable[float | None], deltas: Iterable[float | None]) -> str:
    """Returns ε and δ of the releases in a picture, as ranges where there are several.

    >>> budget_text([1.0, 0.5, None], [1e-7])
    'ε = 0.5 to 1, δ = 1e-7'
    >>> budget_text([None], [])
    'no ε and δ'
    """
    known = [
        (sign, sorted({value for value in values if value is not None}))
        for sign, values in (("ε", epsilons), ("δ", deltas))
    ]
    texts = [f"{sign} = {_range(values)}" for sign, values in known if values]
    return ", ".join(texts) or "no ε and δ"


def names_text(paths: Sequence[str]) -> str:
    """Returns the names of files without their folders; of many, the first ones and the number.

    >>> names_text(["a/b.csv", "gs://c/d.csv", "e.csv"])
    'b.csv, d.csv and 1 more'
    """
    names = [os.path.basename(path.rstrip("/")) for path in paths]
    more = len(names) - _FEW_NAMES
    shown = ", ".join(names[:_FEW_NAMES])
    return f"{shown} and {more} more" if more > 0 else shown


def caption_text(budget: str, data: str, release: str) -> str:
    """Returns the caption of a picture: the budget, the data and the release."""
    return f"{budget} · data: {data} · release: {release}"


class Heading(NamedTuple):
    """The texts above a picture, except for its title.

    Attributes:
      caption: Budget, data and release: see `caption_text`.
      secrecy: The mark of the data.
    """

    caption: str
    secrecy: Secrecy


def draw_heading(
    figure: "Figure", axes: "Axes", title: str, heading: Heading, *, below: float = 0.0
) -> None:
    """Writes the banner, a title and a caption above a picture.

    Args:
      figure: The figure of the picture.
      axes: The uppermost axes; title and caption are written above them, at the left of the picture.
      title: Title of the picture.
      heading: Banner and caption.
      below: Points that stay free between the caption and the axes.
    """
    if heading.secrecy.banner is not None:
        figure.suptitle(heading.secrecy.banner, color=_BANNER_RED, fontsize=10, fontweight="bold")
    points = figure.get_figwidth() * _POINTS_AN_INCH * (1 - 2 * _MARGIN) / _LETTER_WIDTH
    height = below + _GAP
    for text, size, color in (
        (heading.caption, _CAPTION_POINTS, _CAPTION_GREY),
        (title, _TITLE_POINTS, "black"),
    ):
        lines = textwrap.wrap(text, int(points / size))
        written = axes.annotate(
            "\n".join(lines),
            (_MARGIN, 1),
            xycoords=("figure fraction", "axes fraction"),
            xytext=(0, height),
            textcoords="offset points",
            va="bottom",
            fontsize=size,
            color=color,
            annotation_clip=False,
            parse_math=False,
        )
        # Its width must not move the axes; the empty title below keeps room for its height.
        written.set_in_layout(False)
        height += len(lines) * size * _LINE + _GAP
    axes.set_title(" ", fontsize=1, pad=height)


def png_bytes(figure: "Figure", heading: Heading) -> bytes:
    """Returns a picture; its metadata names no time, so that equal figures give equal bytes."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    metadata = {
        "Title": heading.secrecy.banner or heading.secrecy.notice,
        "Description": heading.caption,
        "Software": "beam_dpne",
    }
    buffer = io.BytesIO()
    FigureCanvasAgg(figure).print_png(buffer, metadata=metadata)
    return buffer.getvalue()


def _range(values: Sequence[float]) -> str:
    shown = [f"{value:.3g}".replace("e-0", "e-") for value in (values[0], values[-1])]
    return " to ".join(dict.fromkeys(shown))
