"""The picture of an evaluation as PNG, and the banner, title and caption above every picture.

The picture is as secret as the data, and a banner in it says so. A caption names ε, δ, the data and the
release, so that a picture can be understood alone.
"""

import importlib.util
import io
import os
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from beam_dpne.errors import PlotsUnavailableError
from beam_dpne.evaluation.counts import FACTOR, JudgedRows
from beam_dpne.evaluation.coverage import Evaluation
from beam_dpne.evaluation.secrecy import SECRET, Secrecy

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_BLUE, _ORANGE, _GREY = "#2b6cb0", "#dd6b20", "#718096"
_BANNER_RED, _CAPTION_GREY = "#c53030", "#4a5568"
_INCHES, _DPI = (12.0, 8.4), 150
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


def evaluation_picture(
    evaluation: Evaluation, rows: Mapping[int, JudgedRows], *, caption: str, noun: str
) -> bytes:
    """Draws released rows, their coverage, and released beside true numbers of users, as PNG.

    Args:
      evaluation: Evaluation of a release.
      rows: The released rows of each length beside the truth.
      caption: ε, δ, data and release (see `caption_text`).
      noun: Name of the released rows, in the plural.
    """
    from matplotlib.figure import Figure

    figure = Figure(figsize=_INCHES, dpi=_DPI, layout="constrained")
    panels = figure.subplots(2, 2).flat
    figure.suptitle(SECRET.banner or "", color=_BANNER_RED, fontsize=12, fontweight="bold")
    lines = textwrap.wrap(f"Released {noun} beside the data · {caption}", 150)
    figure.supxlabel("\n".join(lines), color=_CAPTION_GREY, fontsize=9, parse_math=False)
    _draw_released(panels[0], evaluation)
    _draw_anonymity(panels[1], evaluation)
    _draw_occurrences(panels[2], evaluation)
    _draw_users(panels[3], rows)
    for axes in panels:
        axes.spines[["top", "right"]].set_visible(False)
        axes.grid(axis="y", color="#e2e8f0", linewidth=0.8)
        axes.set_axisbelow(True)
        if axes.get_legend_handles_labels()[0]:
            axes.legend(frameon=False, fontsize=8)
    return png_bytes(figure, Heading(caption, SECRET))


def _draw_released(axes: "Axes", evaluation: Evaluation) -> None:
    """Draws the number of released rows of each length, real and spurious."""
    real = [row.real for row in evaluation.lengths]
    spurious = [row.spurious for row in evaluation.lengths]
    places = range(len(real))
    axes.bar(places, real, color=_BLUE, label="of at least one user")
    bars = axes.bar(
        places, spurious, bottom=real, color=_ORANGE, label="spurious: of nobody (number)"
    )
    axes.bar_label(bars, [f"{number:,}" for number in spurious], fontsize=8, padding=2)
    axes.set_xticks(places, [str(row.length) for row in evaluation.lengths])
    axes.yaxis.set_major_formatter(lambda value, _: f"{value:,.0f}")
    axes.set(title="released, by number of words", ylabel="released")


def _draw_anonymity(axes: "Axes", evaluation: Evaluation) -> None:
    """Draws the released share of the rows that at least k users have (DPNE, Figure 4)."""
    for row, colour in zip(evaluation.lengths, _colours(len(evaluation.lengths)), strict=True):
        known = {each.k: each.share for each in row.k_anonymity if each.share is not None}
        axes.plot(
            list(known),
            list(known.values()),
            marker="o",
            markersize=4,
            color=colour,
            label=_words(row.length or 0),
        )
    axes.set(xscale="log", ylim=(0, 1.03), xlabel="k", ylabel="released of these")
    axes.set_title("of the n-grams that at least k users have")
    axes.xaxis.set_major_formatter(lambda value, _: f"{value:,.0f}")
    axes.yaxis.set_major_formatter(_percent)


def _draw_occurrences(axes: "Axes", evaluation: Evaluation) -> None:
    """Draws the share of all occurrences that released rows cover, also user by user."""
    rows = evaluation.rows if len(evaluation.lengths) > 1 else evaluation.lengths
    places, width = np.arange(len(rows)), 0.27
    shares = (
        ("of all occurrences", _BLUE, [row.occurrence_share for row in rows]),
        ("of a user's, mean", _ORANGE, [row.mean_user_share for row in rows]),
        ("of a user's, median", _GREY, [row.median_user_share for row in rows]),
    )
    for number, (label, colour, values) in enumerate(shares):
        heights = [value or 0.0 for value in values]
        axes.bar(places + (number - 1) * width, heights, width * 0.92, color=colour, label=label)
    axes.set_xticks(places, ["all" if row.length is None else str(row.length) for row in rows])
    axes.set(title="occurrences that they cover, by number of words", ylabel="covered", ylim=(0, 1))
    axes.yaxis.set_major_formatter(_percent)


def _draw_users(axes: "Axes", rows: Mapping[int, JudgedRows]) -> None:
    """Draws a point for each real row: the true number of users, and the released one."""
    axes.set(title="numbers of users", xlabel="users in the data", ylabel="users in the release")
    most = 1
    for (length, each), colour in reversed(
        list(zip(rows.items(), _colours(len(rows)), strict=True))
    ):
        real = each.truth > 0
        if each.users is None or not real.any():
            continue
        truth, users = each.truth[real], np.maximum(each.users[real, 0], 1)
        most = max(most, int(truth.max()), int(users.max()))
        axes.scatter(truth, users, s=6, alpha=0.5, linewidths=0, color=colour, label=_words(length))
    if most == 1:
        axes.set_axis_off()
        axes.set_title("The release has no numbers of users.")
        return
    ends = np.array([1, 1.3 * most])
    for factor in (1 / FACTOR, 1, FACTOR):
        axes.plot(
            ends, factor * ends, color=_GREY, linewidth=1, linestyle="-" if factor == 1 else "--"
        )
    axes.set(xscale="log", yscale="log", xlim=ends, ylim=ends)
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_formatter(lambda value, _: f"{value:,.0f}")


def _colours(number: int) -> list[tuple[float, float, float, float]]:
    from matplotlib import colormaps

    return [colormaps["viridis"](0.9 * place / max(1, number - 1)) for place in range(number)]


def _words(length: int) -> str:
    return f"{length} word" + ("s" if length > 1 else "")


def _percent(value: float, _: float) -> str:
    return f"{value * 100:.3g} %"


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
