"""How many faults of which kind struck which DoFn, and what came of the runs."""

import collections
from collections.abc import Iterable, Iterator

from tests.faults.schedules import POINTS, Fault, kind_of

SAME = "same release"
FAILED = "clear failure"
WHOLE_RUN = "(the whole run)"


class Tally:
    """Counts faults by kind, DoFn and outcome.

    Attributes:
      total: faults in all; a lost result is one, whatever number of steps was fused in its bundle.
    """

    def __init__(self) -> None:
        self.total = 0
        self._cells: collections.Counter[tuple[str, str, str]] = collections.Counter()

    def add(self, faults: Iterable[Fault], outcome: str, count: int | None = None) -> None:
        """Adds the faults of one run, whose outcome is known by now."""
        faults = list(faults)
        self.total += len(faults) if count is None else count
        for fault in faults:
            self._cells[kind_of(fault.step), fault.kind, outcome] += 1

    def lines(self) -> Iterator[str]:
        """A table: a row for each DoFn, a column for each kind of fault; `!` marks failures."""
        kinds = {kind for _, kind, _ in self._cells}
        columns = [*(point for point in POINTS if point in kinds), *sorted(kinds - set(POINTS))]
        rows = sorted({dofn for dofn, _, _ in self._cells})
        width = max(map(len, rows), default=0)
        cells = {(row, column): self._cell(row, column) for row in rows for column in columns}
        yield f"{self.total} injected faults: runs that gave the {SAME}, and with ! a {FAILED}"
        yield " ".join([" " * width, *columns])
        for row in rows:
            texts = [cells[row, column].rjust(len(column)) for column in columns]
            yield " ".join([row.ljust(width), *texts])

    def _cell(self, dofn: str, kind: str) -> str:
        same, failed = (self._cells[dofn, kind, outcome] for outcome in (SAME, FAILED))
        parts = [str(same) if same else "", f"{failed}!" if failed else ""]
        return "+".join(filter(None, parts)) or "-"


TALLY = Tally()
