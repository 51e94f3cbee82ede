"""What stands above and in the metadata of every picture: what it shows, of which data and release.

A caption names ε, δ, the data and the release, so that a picture says by itself what it is of.
"""

import io
import os
import textwrap
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, NamedTuple

from beam_dpne.evaluation.secrecy import Secrecy

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_RED, _GREY = "#c53030", "#4a5568"
_TITLE_POINTS, _CAPTION_POINTS, _LINE, _GAP = 11.5, 8.5, 1.3, 5.0
# Left and right of the text, in parts of the width.
_MARGIN = 0.01
# Of an average letter, in parts of the size of the type.
_LETTER_WIDTH = 0.6
_POINTS_AN_INCH = 72
_FEW_NAMES = 2
# Points that the name of a panel needs above it.
PANEL_NAME = 15.0


def budget_text(epsilons: Iterable[float | None], deltas: Iterable[float | None]) -> str:
    """Returns ε and δ of what a picture shows, as ranges where there are several.

    >>> budget_text([1.0, 0.5, None], [1e-7])
    'ε = 0.5 to 1, δ = 1e-7'
    >>> budget_text([None], [])
    'no ε and δ'
    """
    known = [
        (sign, sorted({value for value in values if value is not None}))
        for sign, values in (("ε", epsilons), ("δ", deltas))
    ]
    said = [f"{sign} = {_range(values)}" for sign, values in known if values]
    return ", ".join(said) or "no ε and δ"


def names_text(paths: Sequence[str]) -> str:
    """Returns the names of files without their folders, only some of many.

    >>> names_text(["a/b.csv", "gs://c/d.csv", "e.csv"])
    'b.csv, d.csv and 1 more'
    """
    names = [os.path.basename(path.rstrip("/")) for path in paths]
    more = len(names) - _FEW_NAMES
    shown = ", ".join(names[:_FEW_NAMES])
    return f"{shown} and {more} more" if more > 0 else shown


def caption_text(budget: str, data: str, release: str) -> str:
    """Returns the caption of a picture: what was spent, on which data, in which release."""
    return f"{budget} · data: {data} · release: {release}"


class Heading(NamedTuple):
    """What stands above a picture beside its title.

    Attributes:
      caption: What was spent, on which data, in which release: see `caption_text`.
      secrecy: Of the data.
    """

    caption: str
    secrecy: Secrecy


def draw_heading(
    figure: "Figure", axes: "Axes", title: str, heading: Heading, *, below: float = 0.0
) -> None:
    """Writes the banner, a title and a caption above a picture.

    Args:
      figure: Of the picture.
      axes: The uppermost ones, above which title and caption stand, at the left of the picture.
      title: What the picture shows.
      heading: What stands beside it.
      below: Points that stay free between the caption and the axes.
    """
    if heading.secrecy.banner is not None:
        figure.suptitle(heading.secrecy.banner, color=_RED, fontsize=10, fontweight="bold")
    points = figure.get_figwidth() * _POINTS_AN_INCH * (1 - 2 * _MARGIN) / _LETTER_WIDTH
    height = below + _GAP
    for text, size, color in (
        (heading.caption, _CAPTION_POINTS, _GREY),
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
