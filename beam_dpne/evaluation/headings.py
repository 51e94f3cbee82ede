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
# Of an average letter, in parts of the size of the type.
_LETTER_WIDTH = 0.5
_POINTS_AN_INCH = 72
_FEW_NAMES = 2
# Points that the name of a panel needs above it.
PANEL_NAME = 15.0


def budget_text(epsilons: Iterable[float | None], deltas: Iterable[float | None]) -> str:
    """Returns ε and δ of what a picture shows, as ranges where there are several.

    >>> budget_text([1.0, 0.5, None], [1e-7])
    'ε = 0.5 to 1, δ = 1e-07'
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
      axes: The leftmost ones, above which title and caption begin.
      title: What the picture shows.
      heading: What stands beside it.
      below: Points that stay free between the caption and the axes.
    """
    if heading.secrecy.banner is not None:
        figure.suptitle(heading.secrecy.banner, color=_RED, fontsize=10, fontweight="bold")
    points = (figure.get_figwidth() - 1) * _POINTS_AN_INCH / _LETTER_WIDTH
    titles = textwrap.wrap(title, int(points / _TITLE_POINTS))
    captions = textwrap.wrap(heading.caption, int(points / _CAPTION_POINTS))
    height = len(captions) * _CAPTION_POINTS * _LINE
    axes.set_title(
        "\n".join(titles),
        loc="left",
        fontsize=_TITLE_POINTS,
        pad=below + height + 2 * _GAP,
        parse_math=False,
    )
    axes.annotate(
        "\n".join(captions),
        (0, 1),
        xycoords="axes fraction",
        xytext=(0, below + _GAP),
        textcoords="offset points",
        va="bottom",
        fontsize=_CAPTION_POINTS,
        color=_GREY,
        annotation_clip=False,
        parse_math=False,
    )


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
    shown = [f"{value:.3g}" for value in (values[0], values[-1])]
    return " to ".join(dict.fromkeys(shown))
