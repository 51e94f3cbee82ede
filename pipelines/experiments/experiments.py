"""Experiments as lists of runs: rows of tables or points of curves, tables with pictures, parts."""

import dataclasses

from pipelines.experiments.printed import PrintedTable
from pipelines.experiments.runs import AnyRun

At = float | str | None


@dataclasses.dataclass(frozen=True, kw_only=True)
class Row:
    """One row of a table or one point of a curve: the same run under several keys.

    Attributes:
      label: its name.
      runs: one for each key.
      at: the value of the parameter that is varied, or None.
    """

    label: str
    runs: tuple[AnyRun, ...]
    at: At = None


@dataclasses.dataclass(frozen=True, kw_only=True)
class Experiment:
    """One table with its picture.

    Attributes:
      name: of its files.
      title: a sentence that says what it shows.
      corpus: name of the data.
      kind: by which rows become a table and a picture.
      rows: of the table.
      swept: the parameter that `Row.at` gives, as tables show it.
      printed: the paper's figures.
      comparable: whether the paper's data are these.
      notes: sentences for its reader.
      data: description of made-up data, which are no secret, if it is not about the corpus.
    """

    name: str
    title: str
    corpus: str
    kind: str
    rows: tuple[Row, ...]
    swept: str = ""
    printed: PrintedTable | None = None
    comparable: bool = False
    notes: tuple[str, ...] = ()
    data: str | None = None

    @property
    def runs(self) -> list[AnyRun]:
        """All runs, row by row."""
        return [run for row in self.rows for run in row.runs]

    @property
    def corpora(self) -> list[str]:
        """Names of the data of all runs, each once."""
        return list(dict.fromkeys(run.corpus for run in self.runs))

    @property
    def labels(self) -> list[str]:
        """Names of the rows, each once."""
        return list(dict.fromkeys(row.label for row in self.rows))

    @property
    def values(self) -> list:
        """The values of the varied parameter, each once."""
        return list(dict.fromkeys(row.at for row in self.rows if row.at is not None))

    def row(self, label: str, at: At = None) -> Row | None:
        """Returns a row, None if there is none."""
        return next((row for row in self.rows if (row.label, row.at) == (label, at)), None)

    def curve(self, label: str) -> list[Row]:
        """Returns the rows of one name, in order."""
        return [row for row in self.rows if row.label == label]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Part:
    """A value of `--parts`.

    Attributes:
      name: of the option's value.
      experiments: its tables.
      title: a heading over several experiments, or none.
    """

    name: str
    experiments: tuple[Experiment, ...]
    title: str = ""

    @property
    def runs(self) -> list[AnyRun]:
        """All runs, each once: corpus by corpus and kind by kind, the first key of all rows first."""
        rows = [row for experiment in self.experiments for row in experiment.rows]
        most = max((len(row.runs) for row in rows), default=0)
        ordered = [row.runs[i] for i in range(most) for row in rows if i < len(row.runs)]
        corpora = list(dict.fromkeys(run.corpus for run in ordered))
        return sorted(
            dict.fromkeys(ordered), key=lambda run: (corpora.index(run.corpus), run.order)
        )
