"""The folder of an experiment: CSV, PNG and one Markdown file, written again as results come in."""

import pathlib
from collections.abc import Collection, Mapping, Sequence

from beam_dpne.evaluation.headings import Heading, budget_text, caption_text
from beam_dpne.evaluation.secrecy import secrecy_of, table_text
from pipelines.experiments import printed as papers
from pipelines.experiments.corpora import Source
from pipelines.experiments.figures import figure_of
from pipelines.experiments.parts import Experiment, Part
from pipelines.experiments.results import Results, place_file, place_marked
from pipelines.experiments.runs import budget_of
from pipelines.experiments.tables import Cell, Table, table_of

SUMMARY = "README.md"
FIXED_KEYS = (
    "The run keys are the numbers 1, 2, 3, …, so that everybody gets these figures: they are public, "
    "and a release made with them has no guarantee at all."
)
SECRET_KEYS = (
    "The run keys follow from the key in a file. Many runs on the same data add up, so that what is "
    "here has no guarantee at all."
)
_INTRODUCTION = (
    "The tables and figures of two papers, run again by `pipelines/reproduce_papers.py`, with ours "
    "beside them. DPNE: Kim et al., *Differentially Private n-gram Extraction* (NeurIPS 2021). DPSU: "
    "Gopi et al., *Differentially Private Set Union* (ICML 2020)."
)
_COUNTED = (
    "What is real and what is spurious is counted on the data themselves: an evaluation in memory, no "
    "private computation."
)
_CLAIMS = {
    "dpne_figure_4_anonymity": papers.DPNE_FIGURE_4_CLAIM,
    "dpsu_table_2": papers.DPSU_SIZE_CLAIM,
}

TITLE = "# The papers' experiments"


def write_summary(
    folder: pathlib.Path,
    parts: Sequence[Part],
    results: Results,
    sources: Mapping[str, Source],
    *,
    keys_note: str,
) -> None:
    """Writes all tables and pictures that there are results for, and the text around them.

    Args:
      folder: of the output; files of an earlier run are replaced.
      parts: what was asked for.
      results: so far.
      sources: of the data.
      keys_note: what the run keys were.
    """
    is_public = all(source.is_public for source in sources.values())
    notice = secrecy_of(is_public=is_public).notice
    lines = [TITLE, "", f"> **{notice}**", "", _INTRODUCTION, "", _COUNTED]
    lines += ["", keys_note, "", "| data | |", "|---|---|"]
    lines += [f"| {source.title} | {source.note} |" for source in sources.values()]
    for part in parts:
        lines += ["", f"## {part.title}"]
        for experiment in part.experiments:
            if any(results.of(row) for row in experiment.rows):
                table = table_of(experiment, results)
                lines += _section(folder, experiment, table, results, sources)
            else:
                lines += ["", f"### {experiment.title}", "", "Not run yet."]
    place_file(folder / SUMMARY, "\n".join(lines) + "\n")


def markdown_rows(table: Table) -> list[str]:
    """Returns a table in Markdown: first column text, the others numbers."""
    align = "|".join(["---", *["---:"] * (len(table.headings) - 1)])
    lines = [f"| {' | '.join(table.headings)} |", f"|{align}|"]
    return [*lines, *(f"| {' | '.join(map(cell_text, row))} |" for row in table.rows)]


def cell_text(cell: Cell) -> str:
    """Returns a cell as people read it."""
    if cell is None:
        return "–"
    if isinstance(cell, float):
        return f"{cell:,.0f}" if cell.is_integer() and abs(cell) >= 10 else f"{cell:,g}"
    return f"{cell:,}" if isinstance(cell, int) else cell


def _section(
    folder: pathlib.Path,
    experiment: Experiment,
    table: Table,
    results: Results,
    sources: Mapping[str, Source],
) -> list[str]:
    heading = _heading(experiment, sources)
    data, secrecy = sources[experiment.corpus].title, heading.secrecy
    text = table_text(table.headings, table.rows, secrecy, {"data": data})
    csv_name = place_marked(folder, f"{table.name}.csv", text, secrecy)
    lines = ["", f"### {table.title}", ""]
    if experiment.kind != "targets":
        lines += [f"Data: {data}.", ""]
    if experiment.kind != "anonymity":
        lines += markdown_rows(table)
    picture = figure_of(experiment, results, heading)
    if picture is not None:
        name = place_marked(folder, f"{table.name}.png", picture, secrecy)
        lines += ["", f"![{table.title}]({name})"]
    claim = _CLAIMS.get(experiment.name)
    notes = [*table.notes, *([f"The paper says: {claim}"] if claim else [])]
    for note in notes:
        lines += ["", note]
    return [*lines, "", f"Table: [{csv_name}]({csv_name})"]


def _heading(experiment: Experiment, sources: Mapping[str, Source]) -> Heading:
    """What its picture says of an experiment: budgets, all its data, and that there is no release."""
    budgets = [budget_of(run) for run in experiment.runs]
    chosen = [sources[name] for name in experiment.corpora]
    caption = caption_text(
        budget_text(*zip(*budgets, strict=True)),
        " and ".join(source.title for source in chosen),
        no_release({run.key for run in experiment.runs}),
    )
    return Heading(caption, secrecy_of(is_public=all(source.is_public for source in chosen)))


def no_release(keys: Collection[int]) -> str:
    """Returns what the caption of an experiment says instead of the name of a release."""
    numbers = ", ".join(map(str, sorted(keys)))
    return f"none, runs of an experiment under {'key' if len(keys) == 1 else 'keys'} {numbers}"
