"""Plots of a report as SVG: columns for each length, and values by rank.

They are 360 units wide, so that their type keeps its size on a narrow screen. Colours come from the
classes of the page's style sheet, which knows dark screens. No style attribute is used, since the
page's content security policy forbids it. Equal values give equal bytes.
"""

import math
from collections.abc import Sequence
from html import escape

from beam_dpne.report.blocks import number

_WIDTH, _HEIGHT = 360, 210
_LEFT, _RIGHT, _TOP, _BOTTOM = 52, 8, 20, 38
_INNER_WIDTH, _INNER_HEIGHT = _WIDTH - _LEFT - _RIGHT, _HEIGHT - _TOP - _BOTTOM
_MOST_LABELS = 12
_POINTS = 80
# The first digit of an axis's upper end, and into how many parts its grid divides the axis.
_GRID_LINES = {1: 5, 2: 4, 3: 3, 4: 4, 5: 5, 6: 3, 8: 4, 10: 5}


def columns(
    title: str, names: Sequence[str], values: Sequence[float], *, percent: bool = False
) -> str:
    """Draws one column for each length.

    Args:
      title: What is drawn, for readers who do not see it.
      names: The lengths.
      values: Height of each column, at least 0.
      percent: Whether the values are shares.
    """
    top, lines = _top_and_lines(max([*values, 0.0]) or 1.0)
    step = _INNER_WIDTH / len(values)
    width = min(48.0, step * 0.7)
    every = -(-len(values) // _MOST_LABELS)
    shapes = [_grid([top * line / lines for line in range(lines + 1)], top, percent)]
    for position, (name, value) in enumerate(zip(names, values, strict=True)):
        middle = _LEFT + step * (position + 0.5)
        height = _INNER_HEIGHT * value / top
        y = _TOP + _INNER_HEIGHT - height
        shapes.append(
            f'<rect class="bar" x="{middle - width / 2:.1f}" y="{y:.1f}" width="{width:.1f}" '
            f'height="{height:.1f}"><title>{escape(name)}: {_label(value, percent)}</title></rect>'
        )
        if position % every == 0:
            shapes.append(_text(middle, _TOP + _INNER_HEIGHT + 15, name, "middle"))
        if every == 1:
            shapes.append(_text(middle, y - 4, _label(value, percent), "middle", "value"))
    shapes.append(_text(_LEFT + _INNER_WIDTH / 2, _HEIGHT - 6, "words in the n-gram", "middle"))
    said = ", ".join(
        f"{name}: {_label(value, percent)}" for name, value in zip(names, values, strict=True)
    )
    return _svg(title, said, shapes)


def by_rank(
    title: str,
    values: Sequence[float],
    *,
    lows: Sequence[float] | None = None,
    highs: Sequence[float] | None = None,
) -> str:
    """Draws values by their rank on logarithmic axes, with their intervals as a band if there are any.

    Args:
      title: What is drawn, for readers who do not see it.
      values: Values by falling size, at least one. Those that are not positive are drawn at the bottom.
      lows: Lower ends of their intervals.
      highs: Upper ends of their intervals.
    """
    ranks = _ranks(len(values))
    drawn = [values[rank - 1] for rank in ranks]
    band = None if lows is None or highs is None else ([*lows], [*highs])
    low, high = _decades(*_extent(drawn, [end[rank - 1] for end in band or () for rank in ranks]))
    widest = math.log10(max(len(values), 2))

    def x(rank: int) -> float:
        return _LEFT + _INNER_WIDTH * math.log10(rank) / widest

    def y(value: float) -> float:
        inside = min(max(value, low), high)
        share = (math.log10(inside) - math.log10(low)) / math.log10(high / low)
        return _TOP + _INNER_HEIGHT * (1 - share)

    shapes = [_line(_TOP + _INNER_HEIGHT)]
    for tick in _ticks(low, high):
        shapes.append(_line(y(tick)))
        shapes.append(_text(_LEFT - 5, y(tick) + 4, _short(tick), "end"))
    shapes += [
        _text(x(int(rank)), _TOP + _INNER_HEIGHT + 15, f"{int(rank):,}", "middle")
        for rank in _ticks(1.0, float(len(values)))
        if rank >= 1
    ]
    if band:
        outline = [f"{x(rank):.1f},{y(band[1][rank - 1]):.1f}" for rank in ranks]
        outline += [f"{x(rank):.1f},{y(band[0][rank - 1]):.1f}" for rank in reversed(ranks)]
        shapes.append(f'<polygon class="band" points="{" ".join(outline)}"/>')
    points = " ".join(
        f"{x(rank):.1f},{y(value):.1f}" for rank, value in zip(ranks, drawn, strict=True)
    )
    shapes.append(f'<polyline class="line" points="{points}"/>')
    if len(values) == 1:
        shapes.append(f'<circle class="dot" cx="{x(1):.1f}" cy="{y(drawn[0]):.1f}" r="3"/>')
    shapes.append(_text(_LEFT + _INNER_WIDTH / 2, _HEIGHT - 6, "rank", "middle"))
    said = f"Rank 1: {number(values[0])}; rank {len(values):,}: {number(values[-1])}."
    return _svg(title, said, shapes)


def _extent(values: Sequence[float], ends: Sequence[float]) -> tuple[float, float]:
    """Returns the range of an axis: all values, and ends of intervals up to a factor of ten from them.

    One very wide interval would press all values together; its end is drawn at the axis's end.

    >>> _extent([0.0, 5.0, 80.0], [0.0, 1.0, 3.0, 1e9])
    (1.0, 800.0)
    """
    positive = [value for value in values if value > 0] or [1.0]
    least, most = min(positive) / 10, max(positive) * 10
    near = [min(max(end, least), most) for end in ends if end > 0]
    return min([*positive, *near]), max([*positive, *near])


def _short(value: float) -> str:
    """Returns a number of few characters, for an axis.

    >>> _short(0.05), _short(20_000.0), _short(5e6), _short(2e9)
    ('0.05', '20,000', '5 M', '2,000 M')
    """
    if 1e6 <= value < 1e11:
        return f"{value / 1e6:,.4g} M" if value < 1e9 else f"{value / 1e6:,.0f} M"
    return number(int(value) if float(value).is_integer() and value < 1e11 else float(value))


def _ranks(count: int) -> list[int]:
    """Returns ranks from 1 to a count, as many to each factor, so that a plot stays small.

    >>> _ranks(3), len(_ranks(10**6)) <= 80
    ([1, 2, 3], True)
    """
    if count <= _POINTS:
        return list(range(1, count + 1))
    spread = (round(count ** (step / (_POINTS - 1))) for step in range(_POINTS))
    return sorted({*spread, 1, count} - {0})


def _top_and_lines(value: float) -> tuple[float, int]:
    """Returns the upper end of an axis, which leaves room for a label, and the parts of its grid.

    >>> _top_and_lines(17), _top_and_lines(0.0043)
    ((20.0, 4), (0.005, 5))
    """
    wanted = value * 1.08
    power = 10.0 ** math.floor(math.log10(wanted))
    digit = next(each for each in _GRID_LINES if each * power >= wanted * (1 - 1e-9))
    return float(f"{digit * power:.3g}"), _GRID_LINES[digit]


def _decades(low: float, high: float) -> tuple[float, float]:
    """Returns the ends of a logarithmic axis: steps of 1, 2 and 5 around two values.

    >>> _decades(6.2, 84.7), _decades(3.0, 3.0)
    ((5.0, 100.0), (2.0, 5.0))
    """
    bottom, top = _step(low, down=True), _step(high, down=False)
    return (
        (bottom, top) if bottom < top else (_step(low * 0.99, down=True), _step(top * 1.01, False))
    )


def _step(value: float, down: bool) -> float:
    power = math.floor(math.log10(value))
    steps = [float(f"{factor}e{power + more}") for more in (0, 1) for factor in (1, 2, 5)]
    inside = [step for step in steps if (step <= value * (1 + 1e-9) if down else step >= value)]
    return max(inside) if down else min(inside)


def _ticks(low: float, high: float) -> list[float]:
    """Returns where a logarithmic axis has lines: powers of ten, or more if there are few of them.

    >>> _ticks(5.0, 100.0), _ticks(1e-6, 1e-3)
    ([5.0, 10.0, 20.0, 50.0, 100.0], [1e-06, 1e-05, 0.0001, 0.001])
    """
    first, last = math.floor(math.log10(low)), math.ceil(math.log10(high))
    factors = (1, 2, 5) if math.log10(high / low) < 2.5 else (1,)
    every = 1 if len(factors) > 1 else -(-(last - first) // 6)
    return [
        float(f"{factor}e{power}")
        for power in range(first, last + 1, every)
        for factor in factors
        if low * (1 - 1e-9) <= float(f"{factor}e{power}") <= high * (1 + 1e-9)
    ]


def _grid(values: Sequence[float], top: float, percent: bool) -> str:
    shapes = []
    for value in values:
        y = _TOP + _INNER_HEIGHT * (1 - value / top)
        shapes += [
            _line(y),
            _text(_LEFT - 5, y + 4, f"{value * 100:.3g} %" if percent else _short(value), "end"),
        ]
    return "".join(shapes)


def _label(value: float, percent: bool) -> str:
    if percent:
        return f"{value * 100:.3g} %"
    return number(int(value) if float(value).is_integer() else float(value))


def _line(y: float) -> str:
    return f'<line class="grid" x1="{_LEFT}" x2="{_WIDTH - _RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>'


def _text(x: float, y: float, text: str, anchor: str, kind: str = "tick") -> str:
    return (
        f'<text class="{kind}" x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{escape(text)}</text>'
    )


def _svg(title: str, description: str, shapes: Sequence[str]) -> str:
    return (
        f'<svg viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img" '
        f'aria-label="{escape(title)}. {escape(description)}">{"".join(shapes)}</svg>'
    )
