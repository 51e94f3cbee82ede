"""The banner, title and caption above every picture, and the picture's metadata.

A caption names ε, δ, the data and the release, so that a picture can be understood alone.
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
# Margin left and right of the text, as a part of the width.
_MARGIN = 0.01
# Width of an average letter, as a part of the size of the type.
_LETTER_WIDTH = 0.6
_POINTS_AN_INCH = 72
_FEW_NAMES = 2
# Height in points that the name of a panel needs above it.
PANEL_NAME = 15.0


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
