"""Released sets become everything that a release publishes: all rows, and the ledger before files.

Each program has the part of a ledger that differs between programs, in a room above this one.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import pyarrow as pa

from beam_dpne.elements.rows import Rows, in_order
from beam_dpne.errors import ReleaseError
from beam_dpne.release import schema
from beam_dpne.release.ledger import Contents, Run, whole_ledger, with_notes
from beam_dpne.release.parts import columns_of, rows_section
from beam_dpne.release.reading import decode_ledger
from beam_dpne.release.schema import ReleaseNotes
from beam_dpne.storage.directories import as_release_error


class Form(NamedTuple):
    """How the released sets of one program become a release.

    Attributes:
      row_type: Function from the plan to the type of the rows.
      rows_of: Function from the sets to all rows, in the order of the release.
      contents_of: Function from the plan and the sets to the program's contents of a ledger; it
        refuses sets that are not of a run under the plan.
    """

    row_type: Callable[[Any], type[Any]]
    rows_of: Callable[[Sequence[Any]], Rows]
    contents_of: Callable[[Any, Sequence[Any]], Contents]


def described(
    form: Form, run: Run, notes: ReleaseNotes, sets: Sequence[Any]
) -> tuple[Rows, schema.AnyLedger]:
    """Returns everything that a release of these sets publishes: all rows, and the ledger before files.

    Args:
      form: how sets of the program become a release.
      run: the public facts of the run.
      notes: the operator's notes.
      sets: the released sets, in any order.

    Raises:
      TypeError, ValueError: The sets are not those of a private run under the plan.
    """
    contents = form.contents_of(run.plan, sets)
    rows = form.rows_of(sets)
    return rows, whole_ledger(contents, run, len(rows), notes)


def described_rows(
    notes: ReleaseNotes, rows: Iterable[Any], ledgers: Iterable[str]
) -> tuple[Rows, schema.AnyLedger]:
    """Returns a release given by its rows in any order and its ledger, after a check of both.

    Raises:
      ReleaseError: There is not one ledger, it is damaged, or it describes other rows.
    """
    found = list(ledgers)
    if len(found) != 1 or not isinstance(found[0], str):
        raise ReleaseError("ledger must have one element, the JSON text of `result.ledger`.")
    ledger = decode_ledger(found[0].encode(), "The ledger")
    with as_release_error("rows must have the fields and types that the ledger explains"):
        values = [row if isinstance(row, Mapping) else row._asdict() for row in rows]
        table = in_order(pa.Table.from_pylist(values, schema=columns_of(ledger.columns)))
        is_whole = rows_section(table) == ledger.rows
    if not is_whole:
        raise ReleaseError(
            "rows must be exactly the rows that the ledger describes, but some were changed, left out "
            "or added, or they are of another release. Give rows and ledger of one result, and change "
            "rows in other steps."
        )
    return table, with_notes(ledger, notes)
