"""The picture of a forecast as PNG; it holds nothing private."""

import io
import statistics
import textwrap
from collections.abc import Sequence

from beam_dpne.forecast.forecasting import Forecast

_INCHES, _DPI = (12.0, 5.0), 150
_GREY = "#4a5568"


def forecast_picture(forecasts: Sequence[Forecast], caption: str) -> bytes:
    """Returns a PNG with released n-grams, users that an n-gram needs, and widths of counts.

    Args:
      forecasts: forecasts at one or several ε, ascending.
      caption: the line above the picture.
    """
    from matplotlib import colormaps
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure
    from matplotlib.ticker import LogLocator

    figure = Figure(figsize=_INCHES, dpi=_DPI, layout="constrained", facecolor="white")
    figure.suptitle(
        "Forecast of a release\n" + "\n".join(textwrap.wrap(caption, 110)), fontsize=10, color=_GREY
    )
    left, right, widths = figure.subplots(1, 3)
    epsilons = [forecast.epsilon for forecast in forecasts]
    for axes in (left, right):
        axes.set_xscale("log")
        axes.set_yscale("log")
        axes.set_xticks(epsilons, [f"{epsilon:g}" for epsilon in epsilons])
        axes.set_xlabel("ε")
    widths.set_xscale("log")
    widths.set_yscale("log")
    widths.set_xlabel("users who have the n-gram")
    widths.xaxis.set_major_formatter(lambda value, _: f"{value:,.0f}")
    for axes in (left, right, widths):
        axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        axes.yaxis.set_major_formatter(lambda value, _: f"{value:,.6g}")
        axes.minorticks_off()
        axes.spines[["top", "right"]].set_visible(False)
        axes.grid(axis="y", color="#e2e8f0", linewidth=0.8)
    left.set_title("released n-grams", fontsize=11)
    right.set_title("users that an n-gram needs:\n50 % (line), 99 % (dashed)", fontsize=11)
    widths.set_title("width of counts:\nusers_high / users_low, median over lengths", fontsize=11)
    most = len(forecasts[0].lengths)
    for place in range(most):
        colour = colormaps["viridis"](0.9 * place / max(1, most - 1))
        lengths = [forecast.lengths[place] for forecast in forecasts]
        label = f"{place + 1} word" + ("s" if place else "")
        # Less than one n-gram has no place on the scale.
        released = [
            length.released if (length.released or 0) >= 1 else float("nan") for length in lengths
        ]
        left.plot(epsilons, released, marker="o", color=colour, label=label)
        half = [length.needed.half or float("nan") for length in lengths]
        nearly = [length.needed.nearly or float("nan") for length in lengths]
        right.plot(epsilons, half, marker="o", color=colour)
        right.plot(epsilons, nearly, marker="o", markersize=3, color=colour, linestyle="--")
    for number, forecast in enumerate(forecasts):
        ratios: dict[int, list[float]] = {}
        for length in forecast.lengths:
            for width in length.widths:
                ratios.setdefault(width.users, []).append(width.high / max(width.low, 1.0))
        numbers = sorted(ratios)
        values = [statistics.median(ratios[each]) for each in numbers]
        colour = colormaps["autumn"](0.8 * number / max(1, len(forecasts) - 1))
        widths.plot(numbers, values, marker="o", color=colour, label=f"ε = {forecast.epsilon:g}")
    if any(length.widths for forecast in forecasts for length in forecast.lengths):
        widths.legend(frameon=False, fontsize=9)
    handles, labels = left.get_legend_handles_labels()
    figure.legend(
        handles, labels, loc="outside lower center", ncols=most, frameon=False, fontsize=9
    )
    buffer = io.BytesIO()
    metadata = {"Title": "Forecast of a release", "Description": caption, "Software": "beam_dpne"}
    FigureCanvasAgg(figure).print_png(buffer, metadata=metadata)
    return buffer.getvalue()
