"""python docs/make_examples.py

Makes a release of the sample of titles, and from it what pages show: its report for readers, the
picture of its evaluation, and a picture of one length of the strategy `adaptive`: its three rounds,
with the thresholds and cuts of the best class, as the ledger publishes them, and the evidence of six
made-up n-grams. The build of the site does so.
"""

import json
import pathlib
import shutil
import subprocess
import sys
import tempfile

import matplotlib as mpl
from matplotlib import patches
from matplotlib import pyplot as plt

FOLDER = pathlib.Path(__file__).with_name("pictures")
SAMPLE = FOLDER.parents[1] / "pipelines" / "data" / "reddit_titles_sample.jsonl.gz"
FOUND, OPEN, CLOSED = "#cfe8d5", "#fdf0c4", "#e3e5e8"
# Evidence after rounds 1, 2, 3, in units of weight, and how each n-gram ends.
EXAMPLES = (
    ((7.6,), "#1a7f37", "found in round 1"),
    ((3.2, 8.9), "#1a7f37", "found in round 2"),
    ((1.7, 4.9, 9.6), "#1a7f37", "found in round 3"),
    ((1.15, 3.6, 5.2), "#b54708", "not found"),
    ((2.4, 1.2), "#57606a", "closed after round 2"),
    ((-0.9,), "#57606a", "closed after round 1"),
)


def draw(rounds: list[dict]) -> plt.Figure:
    """Draws the zones of each round, and the paths of the examples through them."""
    figure, axes = plt.subplots(figsize=(9.6, 5.4), layout="constrained")
    low, high = -3.2, 12.2
    for number, each in enumerate(rounds):
        left, width = number - 0.36, 0.72
        bottom = each["cut"] if each["cut"] is not None else each["threshold"]
        zones = (
            (low, bottom, CLOSED),
            (bottom, each["threshold"], OPEN),
            (each["threshold"], high, FOUND),
        )
        for start, stop, color in zones:
            axes.add_patch(patches.Rectangle((left, start), width, stop - start, color=color, lw=0))
        lines = [(each["threshold"], f"ρ{_sub(number)} = {each['threshold']:.2f}", "#1a7f37")]
        if each["cut"] is not None:
            lines.append((each["cut"], f"b{_sub(number)} = {each['cut']:.2f}", "#57606a"))
        for value, text, color in lines:
            axes.plot([left, left + width], [value, value], color=color, lw=1.6)
            is_cut = text.startswith("b")
            place, side = (left + width + 0.01, "left") if is_cut else (left - 0.01, "right")
            axes.text(place, value, text, color=color, ha=side, va="center", fontsize=9.5)
        noise = each["evidence_stddev"]
        axes.annotate(
            "",
            (left + 0.05, -noise),
            (left + 0.05, noise),
            arrowprops={"arrowstyle": "<->", "lw": 0.9},
        )
        axes.text(left + 0.075, -noise + 0.1, f"noise ±{noise:.2f}", fontsize=8.5, va="bottom")
    for path, color, end in EXAMPLES:
        if end != fate(path, rounds):
            raise ValueError(f"The n-gram of {path} must be drawn as {fate(path, rounds)!r}.")
        places = range(len(path))
        axes.plot(places, path, color=color, lw=1.3, marker="o", ms=5.5, zorder=3)
        above = end.startswith("found") or end == "closed after round 1"
        axes.annotate(
            end,
            (places[-1], path[-1]),
            xytext=(7, 6 if above else -12),
            textcoords="offset points",
            fontsize=9,
            color=color,
        )
    axes.set_xlim(-0.66, 2.5)
    axes.set_ylim(low, high)
    axes.set_xticks(range(3), [f"after round {number}" for number in (1, 2, 3)], fontsize=10.5)
    axes.set_ylabel("evidence Y: weighted sum of the rounds' noisy weights", fontsize=10)
    handles = [
        patches.Patch(color=FOUND, label="found: released"),
        patches.Patch(color=OPEN, label="open: users may spend on it next"),
        patches.Patch(color=CLOSED, label="closed for good; in the last round, not found"),
    ]
    figure.legend(handles=handles, loc="outside upper center", ncols=3, fontsize=9, frameon=False)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    return figure


def fate(path: tuple[float, ...], rounds: list[dict]) -> str:
    """Returns how an n-gram with this evidence ends."""
    for number, (evidence, each) in enumerate(zip(path, rounds, strict=False), 1):
        if evidence > each["threshold"]:
            return f"found in round {number}"
        if each["cut"] is not None and evidence < each["cut"]:
            return f"closed after round {number}"
    return "not found"


def _sub(number: int) -> str:
    return "₁₂₃"[number]


def run(*words: object) -> None:
    """Runs a command of the package."""
    command = [sys.executable, "-m", "beam_dpne", *map(str, words)]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)


def write() -> None:
    """Writes all examples; the report goes beside the pages of the site."""
    (FOLDER / "site").mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as temporary:
        folder = pathlib.Path(temporary)
        (folder / "run.key").write_text("0" * 63 + "1\n")
        release, files = folder / "titles", ("--input", SAMPLE)
        budget = (
            "--epsilon",
            4,
            "--delta",
            "1e-6",
            "--run_key_file",
            folder / "run.key",
            "--quiet",
        )
        run("ngrams", *files, "--output", release, *budget)
        run("report", release, "--output", FOLDER / "site" / "titles.html", "--overwrite")
        run("evaluate", *files, "--release", release, "--output", folder / "evaluation")
        (picture,) = (folder / "evaluation").glob("*.png")
        shutil.copy(picture, FOLDER / "evaluation.png")
        ledger = json.loads((release / "ledger.json").read_text())
    mpl.rcParams.update({"svg.fonttype": "path", "font.size": 10})
    draw(ledger["lengths"][1]["rounds"]).savefig(FOLDER / "adaptive_length.svg")


if __name__ == "__main__":
    write()
