"""The picture of an audit: lower bounds on ε of all games and planted mistakes, beside the claims."""

import importlib.util
import io

from beam_dpne.audit.auditing import Audit, PlayedGame
from beam_dpne.audit.bounds import Bound
from beam_dpne.errors import PlotsUnavailableError

_BLUE, _ORANGE, _RED = "#2b6cb0", "#dd6b20", "#c53030"
# Bars end here, in claims; their numbers stand beside them.
_MOST = 3.0
_WIDTH, _ROW, _FRAME, _DPI = 9.6, 0.3, 1.7, 150


def require_matplotlib() -> None:
    """Raises PlotsUnavailableError if matplotlib is missing; it is not imported."""
    if importlib.util.find_spec("matplotlib") is None:
        raise PlotsUnavailableError(
            "plots need matplotlib, which is not installed: pip install 'beam-dpne[plots]'."
        )


def audit_plot(audit: Audit) -> bytes:
    """Returns the picture as PNG; equal audits give equal bytes.

    Raises:
      PlotsUnavailableError: if matplotlib is not installed.
    """
    require_matplotlib()
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure
    from matplotlib.patches import Patch

    rows = [row for game in audit.games for row in _rows(game)]
    figure = Figure(figsize=(_WIDTH, _FRAME + _ROW * len(rows)), dpi=_DPI, layout="constrained")
    axes = figure.subplots()
    for place, (_, color, bound, epsilon) in enumerate(rows):
        share = bound.largest / epsilon
        axes.barh(place, min(share, _MOST), color=color, height=0.72)
        text = f"{bound.largest:.2f} of {epsilon:.2f}"
        axes.annotate(
            text,
            (min(share, _MOST), place),
            xytext=(4, 0),
            textcoords="offset points",
            va="center",
            fontsize=8,
            bbox={"facecolor": "white", "edgecolor": "none", "pad": 1},
        )
    axes.axvline(1, color="black", linewidth=1.2, zorder=0)
    axes.set_yticks(range(len(rows)), [name for name, *_ in rows], fontsize=8)
    for label, (_, color, *_) in zip(axes.get_yticklabels(), rows, strict=True):
        label.set_fontweight("normal" if color == _ORANGE else "bold")
    axes.invert_yaxis()
    axes.set_xlim(0, _MOST * 1.22)
    axes.set_xlabel("Lower bound on ε, in parts of the claimed ε (line); bars end at 3", fontsize=9)
    axes.spines[["top", "right"]].set_visible(False)
    axes.set_title(
        f"Audit of ε = {audit.plan.epsilon:g}, δ = {audit.plan.delta:g}: {audit.runs:,} runs of each "
        f"world, confidence {audit.confidence:.4g}",
        fontsize=10,
        loc="left",
    )
    exceeding = any(game.exceeds for game in audit.games)
    handles = [
        Patch(color=_BLUE, label="the mechanism"),
        *([Patch(color=_RED, label="the mechanism, above its claim")] if exceeding else []),
        Patch(color=_ORANGE, label="with a planted mistake"),
    ]
    axes.legend(
        handles=handles, fontsize=8, loc="upper center", bbox_to_anchor=(0.4, -0.1), ncols=3
    )
    buffer = io.BytesIO()
    FigureCanvasAgg(figure).print_png(buffer, metadata={"Software": "beam_dpne"})
    return buffer.getvalue()


def _rows(played: PlayedGame) -> list[tuple[str, str, Bound, float]]:
    """Returns name, colour, bounds and claim of a game and its planted mistakes."""
    epsilon = played.claim.epsilon
    color = _RED if played.exceeds else _BLUE
    return [
        (played.name, color, played.bound, epsilon),
        *((each.name, _ORANGE, each.bound, epsilon) for each in played.mistakes),
    ]
