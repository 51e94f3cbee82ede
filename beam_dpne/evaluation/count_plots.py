"""The picture of released numbers of users beside the true ones."""

from collections.abc import Mapping

import numpy as np

from beam_dpne.evaluation.counts import FACTOR, JudgedRows
from beam_dpne.evaluation.plots import empty_plot, finished_plot

_GREY, _LIGHT_GREY = "#4a5568", "#a0aec0"
# Longer n-grams share the last colour.
_MOST_COLOURS = 6


def count_plots(rows: Mapping[int, JudgedRows], *, caption: str, noun: str) -> dict[str, bytes]:
    """Returns the bytes of a PNG by its name, or nothing if the release has no numbers of users.

    Args:
      rows: The released rows of each length beside the truth.
      caption: ε, δ, data and release (see `plots.caption_text`).
      noun: Name of the released rows, in the plural.
    """
    counted = {length: each for length, each in rows.items() if each.users is not None}
    if not any((each.truth > 0).any() for each in counted.values()):
        return {}
    return {"users": users_plot(counted, caption, noun)}


def users_plot(rows: Mapping[int, JudgedRows], caption: str, noun: str) -> bytes:
    """Draws a point for each real row: the true number of users, and the released one."""
    from matplotlib import colormaps

    title = f"Users of each of the released {noun}: released and true numbers"
    figure, axes = empty_plot(title, caption, "users in the release", ())
    most = 1
    for length, each in reversed(list(rows.items())):
        real = each.truth > 0
        if each.users is None or not real.any():
            continue
        truth, users = each.truth[real], np.maximum(each.users[real, 0], 1)
        most = max(most, int(truth.max()), int(users.max()))
        place = (min(length, _MOST_COLOURS) - 1) / (_MOST_COLOURS - 1)
        label = f"{length} word{'s' if length > 1 else ''}" if len(rows) > 1 else noun
        colour = colormaps["viridis"](0.9 * place)
        axes.scatter(truth, users, s=6, alpha=0.5, linewidths=0, color=colour, label=label)
    ends = np.array([1, 1.3 * most])
    axes.plot(ends, ends, color=_GREY, linewidth=1, label="equal")
    for factor, label in ((FACTOR, f"a factor of {FACTOR}"), (1 / FACTOR, None)):
        axes.plot(ends, factor * ends, color=_LIGHT_GREY, linewidth=1, linestyle="--", label=label)
    axes.set(xscale="log", yscale="log", xlim=ends, ylim=ends, xlabel="users in the data")
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_formatter(lambda value, _: f"{value:,.0f}")
    return finished_plot(figure, axes, caption, legend=True, beside=True)
