"""Tables of experiments, and their cells in CSV and in Markdown."""

import dataclasses
import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence

from pipelines.experiments.experiments import Experiment, Row
from pipelines.experiments.runs import AnyRun, Result

Cell = str | int | float | None


class Results(dict[AnyRun, Result]):
    """The results of runs."""

    def of(self, row: Row) -> list[Result]:
        """Returns the results of a row that are there."""
        return [self[run] for run in row.runs if run in self]


# Headings, rows and notes of an experiment's table.
Made = tuple[Sequence[str], Iterable[Sequence[Cell]], Sequence[str]]
Makers = Mapping[str, Callable[[Experiment, Results], Made]]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Table:
    """A table with notes for its reader.

    Attributes:
      name: Name of its file.
      title: Title of the table.
      headings: Headings of the columns.
      rows: Cells of each row; None is an empty cell.
      notes: Sentences for the reader.
    """

    name: str
    title: str
    headings: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]
    notes: tuple[str, ...] = ()


def table_of(experiment: Experiment, results: Results, makers: Makers) -> Table:
    """Returns the table of an experiment with the results so far.

    Args:
      experiment: The experiment.
      results: Results so far.
      makers: Functions that make tables, by kind.
    """
    headings, rows, notes = makers[experiment.kind](experiment, results)
    return Table(
        name=experiment.name,
        title=experiment.title,
        headings=tuple(headings),
        rows=tuple(map(tuple, rows)),
        notes=(*notes, *experiment.notes),
    )


def mean_of(results: Sequence[Result], name: str) -> float | None:
    """Returns the mean of a measured value over runs, or None if not every run has one."""
    values = [result[name] for result in results]
    if not values or any(value is None for value in values):
        return None
    return statistics.fmean(values)


def markdown_rows(table: Table) -> list[str]:
    """Returns a table in Markdown, with text in the first column and numbers in the others."""
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
