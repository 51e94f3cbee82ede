"""The facts of which a report is made: a ledger with its SHA-256, and the rows that it lists.

Nothing else is read. A report is post-processing of a release, so it is as private as the release.
"""

import math
from collections.abc import Mapping
from typing import Any, NamedTuple, TypeGuard

import pyarrow as pa
import pyarrow.compute as pc

from beam_dpne.errors import ReleaseError
from beam_dpne.release.files import Part
from beam_dpne.release.reading import Contents

_USERS = ("users", "users_low", "users_high")
_KINDS: Mapping[type, str] = {float: "a number", int: "a whole number", str: "a text"}


class Measure(NamedTuple):
    """The column of the rows by which a report ranks and plots them.

    Attributes:
      column: Name of the column.
      heading: Its heading in tables.
      noun: Its name within a sentence.
      low: Column with the lower end of its interval, or None.
      high: Column with the upper end of its interval, or None.
    """

    column: str
    heading: str
    noun: str
    low: str | None = None
    high: str | None = None


def measure_of(rows: pa.Table) -> Measure:
    """Returns the measure of a release's rows: numbers of users where rows have them.

    >>> measure_of(pa.table({"item": ["tea"], "score": [9.5]})).column
    'score'
    """
    names = rows.column_names
    if all(name in names for name in _USERS):
        return Measure("users", "users (interval)", "estimated number of users", *_USERS[1:])
    if "probability" in names:
        return Measure("probability", "probability", "probability")
    return Measure("score", "score", "score")


class Facts(Contents):
    """A release as a report sees it."""

    @property
    def measure(self) -> Measure:
        """The column by which the rows are ranked and plotted."""
        found = measure_of(self.rows)
        if not self.has_counts:
            return found
        return found._replace(heading=f"users ({self.confidence} interval)")

    @property
    def has_counts(self) -> bool:
        """Whether rows have estimated numbers of users, which the ledger then explains."""
        return measure_of(self.rows).low is not None

    @property
    def has_laplace(self) -> bool:
        """Whether items were found with Laplace noise; numbers of users have Gaussian noise."""
        return self.ledger.get("mechanism", {}).get("noise") == "laplace"

    @property
    def confidence(self) -> str:
        """Share of the intervals of users that contain the number of users, as a percentage."""
        return f"{self.stated('counts', 'confidence', kind=float) * 100:g} %"

    @property
    def count_share(self) -> str:
        """Part of the budget μ² that measured users, or of ε under Laplace noise, as a percentage."""
        return f"{self.stated('counts', 'budget_share', kind=float) * 100:g} %"

    @property
    def epsilon(self) -> float:
        """ε of the whole release."""
        return self.stated("guarantee", "epsilon", kind=float)

    @property
    def delta(self) -> float:
        """δ of the whole release."""
        return self.stated("guarantee", "delta", kind=float)

    @property
    def parts(self) -> tuple[Part, ...]:
        """Files of the release."""
        return tuple(Part(**part) for part in self.ledger["parts"])

    @property
    def lengths(self) -> list[Mapping[str, Any]]:
        """The ledger's entry of each length; none unless the release is of n-grams."""
        return self.ledger["lengths"] if self.program == "ngrams" else []

    @property
    def expected_spurious(self) -> float | None:
        """Upper bound on the expected number of spurious n-grams; None where there are none."""
        values = [entry.get("expected_spurious_at_most") for entry in self.lengths]
        known = [float(value) for value in values if is_number(value)]
        return sum(known) if known and len(known) == len(values) else None

    @property
    def note(self) -> Mapping[str, str | None]:
        """The operator's notes; a ledger of schema 1 has none."""
        notes = self.ledger.get("notes", {})
        return {
            name: notes[name] if isinstance(notes.get(name), str) else None
            for name in ("title", "contact", "unit")
        }

    def stated(self, section: str, name: str, *, kind: type) -> Any:
        """Returns what a section of the ledger must state.

        Raises:
          ReleaseError: It is missing, or of another type.
        """
        value = self.ledger.get(section, {}).get(name)
        fits = is_number(value) if kind is float else isinstance(value, kind)
        if not fits:
            raise ReleaseError(
                f"The ledger is damaged: {name!r} in section {section!r} is missing or not "
                f"{_KINDS[kind]}."
            )
        return kind(value)

    def groups(self) -> dict[int | None, pa.Table]:
        """Returns the rows by their length, ranked by the measure; None stands for all lengths."""
        measure = self.measure.column
        if "length" not in self.rows.column_names:
            return {None: _ranked(self.rows, measure)}
        lengths = [entry["length"] for entry in self.lengths]
        return {
            length: _ranked(self.rows.filter(pc.field("length") == length), measure)
            for length in lengths
        }


def read_facts(path: str) -> Facts:
    """Reads the ledger and the rows of a release, and checks every file.

    Args:
      path: Path of the release's directory, or of its `ledger.json`; local or on any Beam file system.

    Raises:
      ReleaseError: The release is incomplete, damaged, or replaced while it is read.
    """
    facts = Facts.read(path)
    _check_numbers(facts)
    return facts


def is_number(value: object) -> TypeGuard[float]:
    """Returns whether a JSON value is a finite number."""
    return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)


def _check_numbers(facts: Facts) -> None:
    """Raises ReleaseError unless the ledger states a budget from which sentences can be made."""
    facts.stated("guarantee", "statement", kind=str)
    facts.stated("guarantee", "neighbours", kind=str)
    if facts.has_counts:
        _ = facts.confidence, facts.count_share
    if not (facts.epsilon > 0 and 0 <= facts.delta < 1):
        raise ReleaseError(
            "The ledger is damaged: epsilon must be above 0, and delta at least 0 and below 1."
        )


def _ranked(rows: pa.Table, column: str) -> pa.Table:
    """Returns rows by falling value; equal values keep the order of the release."""
    order = pc.call_function(
        "sort_indices", [rows], pc.SortOptions(sort_keys=[(column, "descending")])
    )
    return rows.take(order)
