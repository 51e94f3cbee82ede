"""The files of an evaluation, tables and a picture for the operator, which must not be in a release.

Every file says that it is as secret as the data: in its name, at the beginning of JSON, in a column of
every row of a table (so that programs that read tables need no option), and in a banner of the picture.
"""

import csv
import dataclasses
import importlib.util
import io
import json
import textwrap
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from beam_dpne.errors import UsageError, installing
from beam_dpne.evaluation.judging import FACTOR, CountQuality, Coverage, JudgedRows

if TYPE_CHECKING:
    from matplotlib.axes import Axes

NOTICE = (
    "NOT PRIVATE. Computed from the private data and as secret as they are: for the operator only, "
    "never to be published, and not covered by the guarantee of the release."
)
BANNER = "NOT PRIVATE: computed from the private data, as secret as the data"
MARK = "NOT PRIVATE: as secret as the data"
PREFIX = "not_private_"


def tables_of(
    coverage: Sequence[Coverage], counts: Sequence[CountQuality]
) -> dict[str, list[dict[str, Any]]]:
    """Returns the tables of an evaluation by name: `coverage`, `k_anonymity` and `counts`.

    The length "all" stands for all lengths together; k_anonymity has a row for each length and k.
    """
    covered, counted = (
        [{**dataclasses.asdict(row), "length": row.length or "all"} for row in rows]
        for rows in (coverage, counts)
    )
    levels = [
        {"length": row["length"], **level} for row in covered for level in row.pop("k_anonymity")
    ]
    return {"coverage": covered, "k_anonymity": levels, "counts": counted}


def report_files(
    tables: Mapping[str, Sequence[Mapping[str, Any]]], compared: Mapping[str, Any], picture: bytes
) -> dict[str, bytes]:
    """Returns the files of an evaluation, each of which says that it is not private.

    Args:
      tables: The tables, as `tables_of` returns them.
      compared: Description of the release and the data, as JSON types.
      picture: The picture of the evaluation.

    Returns:
      The bytes of each file by its name: everything as JSON, a CSV of each table, and the picture.
    """
    whole = {"notice": NOTICE, **compared, **tables}
    text = json.dumps(whole, indent=2, ensure_ascii=False, allow_nan=False)
    files = {"evaluation.json": f"{text}\n".encode(), "evaluation.png": picture}
    files |= {f"{name}.csv": _csv(rows) for name, rows in tables.items()}
    return {PREFIX + name: data for name, data in files.items()}


def _csv(rows: Sequence[Mapping[str, Any]]) -> bytes:
    text = io.StringIO(newline="")
    writer = csv.DictWriter(text, [*rows[0], "privacy"], lineterminator="\n")
    writer.writeheader()
    writer.writerows({**row, "privacy": MARK} for row in rows)
    return text.getvalue().encode()


def require_matplotlib() -> None:
    """Raises UsageError if matplotlib is missing; it is not imported."""
    if importlib.util.find_spec("matplotlib") is None:
        raise UsageError(f"plots need matplotlib, which is not installed: {installing('plots')}.")


def evaluation_picture(
    coverage: Sequence[Coverage], rows: Mapping[int, JudgedRows], *, caption: str, noun: str
) -> bytes:
    """Draws released rows, their coverage, and released beside true numbers of users, as PNG.

    Equal figures give equal bytes, since the metadata name no time.

    Args:
      coverage: Coverage of each length of a release, and of all together.
      rows: The released rows of each length beside the truth.
      caption: ε, δ, data and release, so that the picture can be understood alone.
      noun: Name of the released rows, in the plural.
    """
    from matplotlib import colormaps
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    lengths = coverage[:-1]
    figure = Figure(figsize=(13.5, 4.8), dpi=150, layout="constrained")
    figure.suptitle(BANNER, color="red", fontsize=12, fontweight="bold")
    text = textwrap.fill(f"Released {noun} beside the data · {caption}", 160)
    figure.supxlabel(text, fontsize=9, parse_math=False)
    released, anonymity, users = figure.subplots(1, 3)
    for axes in (anonymity, users):  # Neighbouring lengths have colours of one order, however many.
        axes.set_prop_cycle(color=colormaps["viridis"](np.linspace(0, 0.93, len(lengths))))
    places = [str(row.length) for row in lengths]
    real = [row.real for row in lengths]
    spurious = [row.spurious for row in lengths]
    released.bar(places, real, label="of at least one user")
    bars = released.bar(places, spurious, bottom=real, label="spurious, as many as are written")
    released.bar_label(bars, [f"{number:,}" for number in spurious], fontsize=8, padding=2)
    # The space above the highest bar is for its label and the legend.
    released.set_ylim(0, 1.25 * max(1, *(row.released for row in lengths)))
    released.set(title="released, and how many are spurious", xlabel="number of words")
    for row in lengths:
        known = {each.k: each.share for each in row.k_anonymity if each.share is not None}
        label = "1 word" if row.length == 1 else f"{row.length} words"
        shares = list(known.values())
        anonymity.plot(list(known), shares, marker="o", label=label)
    anonymity.set(title="released part of those that k users have", xscale="log", xlabel="k")
    anonymity.set_ylim(0, 1.03)
    draw_users(users, rows)
    released.legend(loc="upper center", ncols=2, fontsize=8)
    anonymity.legend(ncols=2 if len(lengths) > 7 else 1, fontsize=9)
    buffer = io.BytesIO()
    metadata = {"Title": BANNER, "Description": caption, "Software": "beam_dpne"}
    FigureCanvasAgg(figure).print_png(buffer, metadata=metadata)
    return buffer.getvalue()


def draw_users(axes: "Axes", rows: Mapping[int, JudgedRows]) -> None:
    """Draws a point for each real row: the true number of users, and the released one."""
    axes.set(title="numbers of users", xlabel="in the data", ylabel="in the release")
    axes.set(xscale="log", yscale="log")
    most = 10
    for each in rows.values():
        if each.users is not None:
            real = each.truth > 0
            truth = each.truth[real]
            users = np.maximum(each.users[real, 0], 1)
            axes.scatter(truth, users, s=6, alpha=0.5, linewidths=0)
            most = max([most, *truth, *users])
    for factor, style in ((1 / FACTOR, "--"), (1, "-"), (FACTOR, "--")):
        axes.plot([1, most], [factor, factor * most], color="grey", linewidth=1, linestyle=style)
