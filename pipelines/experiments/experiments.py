"""Experiments as lists of runs: the rows of a table, a table with its picture, and parts of a study."""

import dataclasses

from pipelines.experiments.printed import PrintedTable
from pipelines.experiments.runs import AnyRun

At = float | str | None


@dataclasses.dataclass(frozen=True, kw_only=True)
class Row:
    """One row of a table or one point of a curve: the same run under several keys.

    Attributes:
      label: Name of the row.
      runs: One run for each key.
      at: Value of the parameter that is varied, or None.
    """

    label: str
    runs: tuple[AnyRun, ...]
    at: At = None


@dataclasses.dataclass(frozen=True, kw_only=True)
class Experiment:
    """One table with its picture.

    Attributes:
      name: Name of its files.
      title: Title of the table and the picture.
      corpus: Name of the data.
      kind: Kind of table and picture into which the rows are made.
      rows: Rows of the table.
      swept: Name of the parameter that `Row.at` gives, as tables show it.
      printed: The paper's figures.
      comparable: Whether the paper's figures are of the same data.
      notes: Sentences for the reader.
      data: Description of made-up data, which are no secret; None if the data are the corpus.
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
    def is_short(self) -> bool:
        """Whether the table is short enough to be read; otherwise only its CSV is written."""
        return self.kind != "anonymity"

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
        """Returns the row of a name and a value, or None if there is none."""
        return next((row for row in self.rows if (row.label, row.at) == (label, at)), None)

    def curve(self, label: str) -> list[Row]:
        """Returns the rows of one name, in order."""
        return [row for row in self.rows if row.label == label]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Part:
    """A value of `--parts`.

    Attributes:
      name: The value of the option.
      experiments: Experiments of the part.
      title: Heading over several experiments, or "".
    """

    name: str
    experiments: tuple[Experiment, ...]
    title: str = ""

    @property
    def runs(self) -> list[AnyRun]:
        """All runs, each once, ordered by corpus and by kind; the first key of all rows comes first."""
        rows = [row for experiment in self.experiments for row in experiment.rows]
        most = max((len(row.runs) for row in rows), default=0)
        ordered = [row.runs[i] for i in range(most) for row in rows if i < len(row.runs)]
        corpora = list(dict.fromkeys(run.corpus for run in ordered))
        return sorted(
            dict.fromkeys(ordered), key=lambda run: (corpora.index(run.corpus), run.order)
        )
