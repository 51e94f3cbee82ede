"""Plots of a report as SVG: columns for each length, values by rank, and the bars within tables.

Plots are 360 units wide, so that their type keeps its size on a narrow screen. Colours come from the
classes of the page's style sheet, which knows dark screens. No style attribute is used, since the
page's content security policy forbids it. Equal values give equal bytes.
"""

import bisect
import math
from collections.abc import Callable, Sequence

from markupsafe import Markup, escape

from beam_dpne.release.wording import number

_WIDTH = 360
_HEIGHT = 210
_LEFT = 52
_RIGHT = 8
_TOP = 20
_BOTTOM = 38
_INNER_WIDTH = _WIDTH - _LEFT - _RIGHT
_INNER_HEIGHT = _HEIGHT - _TOP - _BOTTOM
_FLOOR = _TOP + _INNER_HEIGHT
_MOST_LABELS = 12
_MOST_TICKS = 8
_POINTS = 80
_BAR_WIDTH = 100
_LETTER = 6.3  # the width of a digit in these units, rounded up
# The first digits of a linear axis's upper end, and into how many parts its grid divides the axis.
_GRID_LINES = {1: 5, 1.2: 4, 1.5: 3, 2: 4, 3: 3, 4: 4, 5: 5, 6: 3, 8: 4, 10: 5}
# Where a logarithmic axis may begin, end and have lines.
_STEPS = [float(f"{factor}e{power}") for power in range(-307, 308) for factor in (1, 2, 5)]


def columns(
    title: str, names: Sequence[str], values: Sequence[float], *, percent: bool = False
) -> Markup:
    """Draws one column for each length.

    Args:
      title: What is drawn, for readers who do not see it.
      names: The lengths.
      values: Height of each column, at least 0.
      percent: Whether the values are shares.
    """
    label = _percentage if percent else _short
    top, parts = _top_and_parts(max([*values, 0.0]) or 1.0)
    shapes = []
    for part in range(parts + 1):
        y = _FLOOR - _INNER_HEIGHT * part / parts
        shapes += [_line(y), _text(_LEFT - 5, y + 4, label(top * part / parts), "end")]
    step = _INNER_WIDTH / len(values)
    width = min(48.0, step * 0.7)
    every = -(-len(values) // _MOST_LABELS)
    above = [label(float(f"{value:.2g}") if percent else value) for value in values]
    above = [text.removesuffix(" %") for text in above]  # The axis has the sign.
    fits = max(map(len, above)) * _LETTER <= step
    said = []
    for position, (name, value) in enumerate(zip(names, values, strict=True)):
        middle = _LEFT + step * (position + 0.5)
        height = _INNER_HEIGHT * value / top
        text = _percentage(value) if percent else number(_whole(value))
        said.append(f"{name}: {text}")
        shapes.append(
            f'<rect class="bar" x="{middle - width / 2:.1f}" y="{_FLOOR - height:.1f}" '
            f'width="{width:.1f}" height="{height:.1f}"><title>{escape(said[-1])}</title></rect>'
        )
        if position % every == 0:
            shapes.append(_text(middle, _FLOOR + 15, name))
        if fits:
            shapes.append(_text(middle, _FLOOR - height - 4, above[position], kind="value"))
    shapes.append(_text(_LEFT + _INNER_WIDTH / 2, _HEIGHT - 6, "words in the n-gram"))
    return _svg(title, ", ".join(said), shapes)


def by_rank(
    title: str,
    values: Sequence[float],
    *,
    lows: Sequence[float] | None = None,
    highs: Sequence[float] | None = None,
) -> Markup:
    """Draws values by their rank on logarithmic axes, with their intervals as a band if there are any.

    Args:
      title: What is drawn, for readers who do not see it.
      values: Values by falling size, at least two. Those that are not positive are drawn at the bottom.
      lows: Lower ends of their intervals.
      highs: Upper ends of their intervals.
    """
    ranks = _ranks(len(values))
    # Ends of wide intervals are drawn at the ends of the axis.
    positive = [values[rank - 1] for rank in ranks if values[rank - 1] > 0] or [1.0]
    ticks = _ticks(min(positive) / 2, max(positive) * 2)
    low = ticks[0]
    high = ticks[-1]
    widest = math.log10(len(values))

    def x(rank: float) -> float:
        return _LEFT + _INNER_WIDTH * math.log10(rank) / widest

    def y(value: float) -> float:
        share = math.log10(min(max(value, low), high) / low) / math.log10(high / low)
        return _FLOOR - _INNER_HEIGHT * share

    def points(heights: Sequence[float], places: Sequence[int]) -> str:
        return " ".join(f"{x(rank):.1f},{y(heights[rank - 1]):.1f}" for rank in places)

    shapes = [part for tick in _thinned(ticks) for part in _tick(tick, y)]
    across = [tick for tick in _thinned(_ticks(1.0, float(len(values)))) if tick <= len(values)]
    shapes += [_text(x(rank), _FLOOR + 15, _short(rank)) for rank in across]
    if lows is not None and highs is not None:
        outline = f"{points(highs, ranks)} {points(lows, ranks[::-1])}"
        shapes.append(f'<polygon class="band" points="{outline}"/>')
    shapes.append(f'<polyline class="line" points="{points(values, ranks)}"/>')
    shapes.append(_text(_LEFT + _INNER_WIDTH / 2, _HEIGHT - 6, "rank"))
    said = f"Rank 1: {number(values[0])}; rank {len(values):,}: {number(values[-1])}."
    return _svg(title, said, shapes)


def bar(value: float, low: float | None = None, high: float | None = None) -> Markup:
    """Draws the bar of a value, with its interval as a line; all three are shares of the widest bar."""
    shapes = f'<rect class="bar" y="2" width="{_BAR_WIDTH * value:.1f}" height="8"/>'
    if low is not None and high is not None:
        left = _BAR_WIDTH * low
        right = _BAR_WIDTH * high
        shapes += (
            f'<path class="interval" d="M{left:.1f} 3v6M{left:.1f} 6H{right:.1f}M{right:.1f} 3v6"/>'
        )
    return Markup(
        f'<svg class="inline" viewBox="0 0 {_BAR_WIDTH} 12" aria-hidden="true">{shapes}</svg>'
    )


def _ticks(low: float, high: float) -> list[float]:
    """Returns the steps of 1, 2 and 5 of a logarithmic axis around two values.

    >>> _ticks(6.2, 84.7), _ticks(3.0, 3.0), _ticks(5.0, 5.0)
    ([5.0, 10.0, 20.0, 50.0, 100.0], [2.0, 5.0], [5.0, 10.0])
    """
    first = max(0, bisect.bisect_right(_STEPS, low) - 1)
    last = min(max(first + 1, bisect.bisect_left(_STEPS, high)), len(_STEPS) - 1)
    return _STEPS[first : last + 1]


def _thinned(ticks: Sequence[float]) -> Sequence[float]:
    """Returns those steps that have a label: all, powers of ten, or some of these."""
    if len(ticks) <= _MOST_TICKS:
        return ticks
    powers = [tick for tick in ticks if f"{tick:e}".startswith("1.")]
    return powers[:: -(-len(powers) // _MOST_TICKS)]


def _tick(value: float, y: Callable[[float], float]) -> tuple[str, str]:
    return _line(y(value)), _text(_LEFT - 5, y(value) + 4, _short(value), "end")


def _ranks(count: int) -> list[int]:
    """Returns ranks from 1 to a count, as many to each factor, so that a plot stays small.

    >>> _ranks(3), len(_ranks(10**6)) <= 80
    ([1, 2, 3], True)
    """
    if count <= _POINTS:
        return list(range(1, count + 1))
    spread = (round(count ** (step / (_POINTS - 1))) for step in range(_POINTS))
    return sorted({*spread, 1, count})


def _top_and_parts(value: float) -> tuple[float, int]:
    """Returns the upper end of an axis, which leaves room for a label, and the parts of its grid.

    >>> _top_and_parts(17), _top_and_parts(0.0043)
    ((20.0, 4), (0.005, 5))
    """
    wanted = value * 1.08
    power = 10.0 ** math.floor(math.log10(wanted))
    digit = next(each for each in _GRID_LINES if each * power >= wanted * (1 - 1e-9))
    return float(f"{digit * power:.3g}"), _GRID_LINES[digit]


def _short(value: float) -> str:
    """Returns a number of few characters, for an axis.

    >>> _short(0.05), _short(20_000.0), _short(5e6), _short(2e9)
    ('0.05', '20,000', '5 M', '2,000 M')
    """
    return f"{value / 1e6:,.4g} M" if 1e6 <= value < 1e10 else number(_whole(value))


def _whole(value: float) -> float:
    return int(value) if float(value).is_integer() and value < 1e11 else float(value)


def _percentage(value: float) -> str:
    return f"{value * 100:.3g} %"


def _line(y: float) -> str:
    return f'<line class="grid" x1="{_LEFT}" x2="{_WIDTH - _RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>'


def _text(x: float, y: float, text: str, anchor: str = "middle", kind: str = "tick") -> str:
    if anchor == "middle":  # The label of an axis's end stays within the plot.
        x = min(x, _WIDTH - len(text) * _LETTER / 2)
    return (
        f'<text class="{kind}" x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{escape(text)}</text>'
    )


def _svg(title: str, description: str, shapes: Sequence[str]) -> Markup:
    return Markup(
        f'<svg viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img" '
        f'aria-label="{escape(title)}. {escape(description)}">{"".join(shapes)}</svg>'
    )
