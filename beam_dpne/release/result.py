"""The common part of the results of private transforms: released sets, as rows and with a ledger.

`PrivateNgrams`, `PrivateSetUnion` and `BayesianCounts` return such results. Therefore their rooms are
above this one, and each has a module `ledger` with the part of a ledger that differs between programs.
"""

import dataclasses
import functools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, ClassVar, Generic, NamedTuple, TypeVar

import apache_beam as beam
import msgspec
import pyarrow as pa
from apache_beam.pvalue import PCollection
from msgspec import UNSET

from beam_dpne.elements.batches import UnhintedTransform, apply
from beam_dpne.elements.rows import Rows, in_order, longest_beside_shorter, pieces
from beam_dpne.errors import ReleaseError
from beam_dpne.release import schema
from beam_dpne.release.files import as_release_error, decode_ledger
from beam_dpne.release.ledger import Contents, Run, ledger_bytes, whole_ledger, with_notes
from beam_dpne.release.notes import NO_NOTES, ReleaseNotes
from beam_dpne.release.parts import PROGRAMS, Program, rows_section

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


class Described(NamedTuple):
    """Everything that a release publishes: the program, all rows, and the ledger before files.

    The last section `rows` of the ledger has their number only. `result.ledger` adds their digest,
    which takes seconds for a million rows, and which files do not need.
    """

    program: Program
    rows: Rows
    ledger: schema.AnyLedger


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
        make = functools.partial(_rows, form=self.form, row_type=row_type)
        return self._step("Rows", make, row_type)

    @functools.cached_property
    def ledger(self) -> PCollection[str]:
        """The ledger of the rows, one JSON text, equal to the ledger of written files up to its end.

        Its last section is not `parts` but `rows`: their number `count` and their digest `sha256`,
        the SHA-256 of all rows as jsonl in the order of a release. The first access adds one step to
        the pipeline.
        """
        make = functools.partial(_ledger, form=self.form, run=self.run)
        return self._step("Ledger", make, str)

    @property
    def sets(self) -> tuple[PCollection[Any], ...]:
        """The released sets, of which the last always has one element."""
        return self.released if isinstance(self.released, tuple) else (self.released,)

    def _step(self, name: str, make: Callable[[list[Any]], Iterator[Any]], kind: type[Any]) -> Any:
        """Adds a step to the pipeline, named after the step that released the last set."""
        producer = self.sets[-1].producer
        label = f"{producer.full_label}/{name}" if producer else name
        return self.sets | label >> _FromSets(name=name, make=make, kind=kind)


def described(form: Form, run: Run, sets: Sequence[Any], notes: ReleaseNotes) -> Described:
    """Returns everything that a release of these sets publishes.

    Raises:
      TypeError, ValueError: The sets are not those of a private run under the plan.
    """
    contents = form.contents_of(run.plan, sets)
    program, rows = PROGRAMS[contents.program], form.rows_of(sets)
    ledger = whole_ledger(contents, run, {"count": len(rows)}, notes)
    return Described(program, rows, ledger)


def described_rows(rows: Iterable[Any], ledgers: Iterable[str], notes: ReleaseNotes) -> Described:
    """Returns a release given by its rows in any order and its ledger, after a check of both.

    Raises:
      ReleaseError: There is not one ledger, it is damaged, or it describes other rows.
    """
    found = list(ledgers)
    if len(found) != 1 or not isinstance(found[0], str):
        raise ReleaseError("ledger must have one element, the JSON text of `result.ledger`.")
    ledger = decode_ledger(found[0].encode(), "The ledger")
    if ledger.rows is UNSET:
        raise ReleaseError("The ledger must be that of a result: its section 'rows' is missing.")
    program = PROGRAMS[schema.program_of(ledger)]
    with as_release_error("rows must have the fields and types that the ledger explains"):
        values = [row if isinstance(row, Mapping) else row._asdict() for row in rows]
        columns = program.schema_of(ledger.columns)
        table = in_order(pa.Table.from_pylist(values, schema=columns))
        is_whole = rows_section(program, table) == msgspec.to_builtins(ledger.rows)
    if not is_whole:
        raise ReleaseError(
            f"rows must be exactly the {ledger.rows.count} rows that the ledger describes, but "
            "some were changed, left out or added, or they are of another release. Give rows and "
            "ledger of one result, and change rows in other steps."
        )
    if notes != NO_NOTES:
        ledger = with_notes(ledger, notes)
    return Described(program, table, ledger)


@dataclasses.dataclass(eq=False, kw_only=True)
class _FromSets(UnhintedTransform):
    """Brings the sets of one release to one worker, which makes something of all of them."""

    name: str
    make: Callable[[list[Any]], Iterator[Any]]
    kind: type[Any]

    def expand(self, released: tuple[PCollection[Any], ...]) -> PCollection[Any]:
        longest, shorter = longest_beside_shorter(released)
        return apply(longest, self.name, beam.FlatMap(_apply, shorter, self.make), self.kind)


def _apply(
    longest: Any, shorter: Iterable[Any], make: Callable[[list[Any]], Iterator[Any]]
) -> Iterator[Any]:
    return make([*shorter, longest])


def _rows(sets: list[Any], *, form: Form, row_type: type[Any]) -> Iterator[Any]:
    for piece in pieces(form.rows_of(sets)):
        yield from map(row_type, *(column.to_pylist() for column in piece.columns))


def _ledger(sets: list[Any], *, form: Form, run: Run) -> Iterator[str]:
    found = described(form, run, sets, NO_NOTES)
    rows = schema.Rows(**rows_section(found.program, found.rows))
    yield ledger_bytes(msgspec.structs.replace(found.ledger, rows=rows)).decode().rstrip()
