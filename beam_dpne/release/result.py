"""The common part of the results of private transforms: released sets, as rows and with a ledger.

`PrivateNgrams`, `PrivateSetUnion` and `BayesianCounts` return such results. Therefore their rooms are
above this one, and each has the part of a ledger that differs between programs.
"""

import functools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, ClassVar, Generic, NamedTuple, TypeVar

import apache_beam as beam
import msgspec
import pyarrow as pa
from apache_beam.pvalue import PCollection

from beam_dpne.elements.bundles import apply, longest_beside_shorter
from beam_dpne.elements.rows import Rows, in_order, pieces
from beam_dpne.errors import ReleaseError
from beam_dpne.release import schema
from beam_dpne.release.ledger import Contents, Run, ledger_bytes, whole_ledger, with_notes
from beam_dpne.release.parts import columns_of, program_of, rows_section
from beam_dpne.release.reading import as_release_error, decode_ledger
from beam_dpne.release.schema import NO_NOTES, ReleaseNotes

_Row = TypeVar("_Row")


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


class Result(Generic[_Row]):
    """Base of the results of `PrivateNgrams`, `PrivateSetUnion` and `BayesianCounts`.

    Each is a named tuple that has the fields `released` and `run`, and the form of its program.
    """

    form: ClassVar[Form]
    released: Any
    run: Run

    @functools.cached_property
    def rows(self) -> PCollection[_Row]:
        """All released rows, one element each, equal to the rows of written files.

        They have a schema, so that Beam's sinks, data frames and SQL take them. The first access adds
        one step to the pipeline.
        """
        row_type = self.form.row_type(self.run.plan)
        return self._step("Rows", _rows, row_type, {"form": self.form, "row_type": row_type})

    @functools.cached_property
    def ledger(self) -> PCollection[str]:
        """The ledger of the rows, one JSON text, equal to the ledger of written files up to its end.

        Its last section is not `parts` but `rows`: their number `count` and their digest `sha256`,
        the SHA-256 of all rows as jsonl in the order of a release. The first access adds one step to
        the pipeline.
        """
        return self._step("Ledger", _ledger, str, {"form": self.form, "run": self.run})

    @property
    def sets(self) -> tuple[PCollection[Any], ...]:
        """The released sets, of which the last always has one element."""
        return self.released if isinstance(self.released, tuple) else (self.released,)

    def _step(
        self, name: str, make: Callable[..., Any], kind: type[Any], facts: Mapping[str, Any]
    ) -> Any:
        """Adds a step to the pipeline, named after the step that released the last set."""
        producer = self.sets[-1].producer
        label = f"{producer.full_label}/{name}" if producer else name
        longest, shorter = longest_beside_shorter(self.sets, label)
        return apply(longest, label, beam.FlatMap(make, shorter, **facts), kind)


def described(
    form: Form, run: Run, notes: ReleaseNotes, longest: Any, shorter: Iterable[Any]
) -> tuple[Rows, schema.AnyLedger]:
    """Returns everything that a release of these sets publishes: all rows, and the ledger before files.

    Raises:
      TypeError, ValueError: The sets are not those of a private run under the plan.
    """
    sets = [*shorter, longest]
    contents = form.contents_of(run.plan, sets)
    rows = form.rows_of(sets)
    return rows, whole_ledger(contents, run, len(rows), notes)


def described_rows(
    notes: ReleaseNotes, _: None, rows: Iterable[Any], ledgers: Iterable[str]
) -> tuple[Rows, schema.AnyLedger]:
    """Returns a release given by its rows in any order and its ledger, after a check of both.

    Raises:
      ReleaseError: There is not one ledger, it is damaged, or it describes other rows.
    """
    found = list(ledgers)
    if len(found) != 1 or not isinstance(found[0], str):
        raise ReleaseError("ledger must have one element, the JSON text of `result.ledger`.")
    ledger = decode_ledger(found[0].encode(), "The ledger")
    program = program_of(ledger)
    with as_release_error("rows must have the fields and types that the ledger explains"):
        values = [row if isinstance(row, Mapping) else row._asdict() for row in rows]
        table = in_order(pa.Table.from_pylist(values, schema=columns_of(ledger.columns)))
        is_whole = rows_section(program, table) == ledger.rows
    if not is_whole:
        raise ReleaseError(
            "rows must be exactly the rows that the ledger describes, but some were changed, left out "
            "or added, or they are of another release. Give rows and ledger of one result, and change "
            "rows in other steps."
        )
    return table, with_notes(ledger, notes)


def _rows(longest: Any, shorter: Iterable[Any], *, form: Form, row_type: Any) -> Iterator[Any]:
    for piece in pieces(form.rows_of([*shorter, longest])):
        yield from map(row_type, *(column.to_pylist() for column in piece.columns))


def _ledger(longest: Any, shorter: Iterable[Any], *, form: Form, run: Run) -> Iterator[str]:
    rows, ledger = described(form, run, NO_NOTES, longest, shorter)
    # Files have no need of the digest of the rows, which takes seconds for a million of them.
    ledger = msgspec.structs.replace(ledger, rows=rows_section(program_of(ledger), rows))
    yield ledger_bytes(ledger).decode().rstrip()
