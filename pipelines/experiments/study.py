"""A study of one or more papers: its parts, and the folder of its results, rewritten after each part.

The folder has a CSV and a PNG for each experiment, and one Markdown file with the text around them.
"""

import dataclasses
import pathlib
from collections.abc import Callable, Collection, Mapping
from typing import Any

from beam_dpne.evaluation.plots import Heading, budget_text, caption_text
from beam_dpne.evaluation.secrecy import secrecy_of, table_text
from beam_dpne.mechanism.randomness import RunKey
from pipelines.experiments.corpora import Source
from pipelines.experiments.experiments import Experiment, Part
from pipelines.experiments.figures import Drawers, figure_of
from pipelines.experiments.results import Results, write_file, write_marked
from pipelines.experiments.tables import Makers, Table, markdown_rows, table_of

SUMMARY = "README.md"
FIXED_KEYS = (
    "The run keys are the numbers 1, 2, 3, …, so that everybody gets these figures: they are public, "
    "and a release made with them has no guarantee at all."
)
SECRET_KEYS = (
    "The run keys follow from the key in a file. Many runs on the same data add up, so that the "
    "results here have no guarantee at all."
)
# Kinds whose table is too long to be read; the CSV has it.
_CSV_ONLY = ("anonymity",)
TARGETS = "targets"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Study:
    """The runs of a study, and the form in which their results are shown.

    Attributes:
      title: First line of the summary, by which the folder is recognised.
      paragraphs: Text of the summary.
      sources: The data by name.
      parts: The parts that were asked for.
      makers: Functions that make tables, by kind.
      drawers: Functions that draw pictures, by kind.
      measure: Function that makes a run under a run key and returns its result.
      key_of: Function from a number to the run key for which it stands.
      keys: Text that identifies those run keys in the fingerprints of results.
      keys_note: Sentences of the summary about the run keys.
      overview: An experiment that is shown whichever parts were asked for, if there are results.
      columns: Further columns of every table, each with one value for all rows.
      claims: Sentences of the papers, by experiment.
    """

    title: str
    paragraphs: tuple[str, ...]
    sources: Mapping[str, Source]
    parts: tuple[Part, ...]
    makers: Makers
    drawers: Drawers
    measure: Callable[[Any, RunKey], dict[str, Any]]
    key_of: Callable[[int], RunKey]
    keys: str = "numbers"
    keys_note: str = FIXED_KEYS
    overview: Experiment | None = None
    columns: Mapping[str, str] = dataclasses.field(default_factory=dict)
    claims: Mapping[str, str] = dataclasses.field(default_factory=dict)

    @property
    def is_public(self) -> bool:
        """Whether all data are public."""
        return all(source.is_public for source in self.sources.values())

    def table(self, experiment: Experiment, results: Results) -> Table:
        """Returns the table of an experiment."""
        return table_of(experiment, results, self.makers)

    def targets(self, results: Results) -> list[Table]:
        """Returns the tables that compare results with what was asked for."""
        experiments = [self.overview] if self.overview else []
        experiments += [one for part in self.parts for one in part.experiments]
        return [self.table(one, results) for one in experiments if one.kind == TARGETS]

    def describe(self, experiment: Experiment) -> str:
        """Returns the description of the data of an experiment."""
        chosen = [self.sources[name] for name in experiment.corpora]
        return experiment.data or " and ".join(source.title for source in chosen)

    def heading(self, experiment: Experiment) -> Heading:
        """Returns the heading of a picture: budgets, data, and a note that nothing is released."""
        budgets = [run.budget for run in experiment.runs]
        chosen = [self.sources[name] for name in experiment.corpora]
        is_public = experiment.data is not None or all(source.is_public for source in chosen)
        caption = caption_text(
            budget_text(*zip(*budgets, strict=True)),
            self.describe(experiment),
            no_release({run.key for run in experiment.runs}),
        )
        return Heading(caption, secrecy_of(is_public=is_public))


def write_summary(
    folder: pathlib.Path, study: Study, results: Results, redraw: Collection[str] | None = None
) -> None:
    """Writes all tables and pictures for which there are results, and the text around them.

    Args:
      folder: Folder of the output; files of an earlier run are replaced.
      study: The study.
      results: Results so far.
      redraw: Names of the parts whose pictures are drawn again; None means all parts.
    """
    notice = secrecy_of(is_public=study.is_public).notice
    lines = [study.title, "", f"> **{notice}**"]
    for paragraph in (*study.paragraphs, study.keys_note):
        lines += ["", paragraph]
    lines += ["", "| data | |", "|---|---|"]
    lines += [f"| {source.title} | {source.note} |" for source in study.sources.values()]
    if study.overview is not None:
        lines += _section(folder, study, study.overview, results, "##", draw=True)
    for part in study.parts:
        lines += ["", f"## {part.title}"] if part.title else []
        mark, draw = "###" if part.title else "##", redraw is None or part.name in redraw
        for experiment in part.experiments:
            lines += _section(folder, study, experiment, results, mark, draw=draw)
    write_file(folder / SUMMARY, "\n".join(lines) + "\n")


def _section(
    folder: pathlib.Path,
    study: Study,
    experiment: Experiment,
    results: Results,
    mark: str,
    *,
    draw: bool,
) -> list[str]:
    """Writes the files of an experiment, and returns its lines of the summary."""
    lines = ["", f"{mark} {experiment.title}", ""]
    if not any(results.of(row) for row in experiment.rows):
        return [*lines, "Not run yet."]
    heading, table = study.heading(experiment), study.table(experiment, results)
    secrecy = heading.secrecy
    columns = {"data": study.describe(experiment), **study.columns}
    text = table_text(table.headings, table.rows, secrecy, columns)
    csv_name = write_marked(folder, f"{table.name}.csv", text, secrecy)
    if experiment.kind != TARGETS:
        lines += [f"Data: {study.describe(experiment)}.", ""]
    if experiment.kind not in _CSV_ONLY:
        lines += markdown_rows(table)
    if draw:
        picture = figure_of(experiment, results, heading, study.drawers)
        if picture is not None:
            write_marked(folder, f"{table.name}.png", picture, secrecy)
    png_name = f"{secrecy.prefix}{table.name}.png"
    if (folder / png_name).is_file():
        lines += ["", f"![{table.title}]({png_name})"]
    claim = study.claims.get(experiment.name)
    for note in [*table.notes, *([f"The paper says: {claim}"] if claim else [])]:
        lines += ["", note]
    return [*lines, "", f"Table: [{csv_name}]({csv_name})"]


def no_release(keys: Collection[int]) -> str:
    """Returns the text that stands in a caption instead of the name of a release."""
    numbers = ", ".join(map(str, sorted(keys)))
    return f"none, runs of an experiment under {'key' if len(keys) == 1 else 'keys'} {numbers}"
