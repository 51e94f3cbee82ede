"""The facts of which a report is made: a ledger with its SHA-256, and the rows that it lists.

Nothing else is read. A report is post-processing of a release, so it is as private as the release.

The numbers for a guess and for a test follow from (ε, δ)-differential privacy alone. A test for one
user's part that is wrong with probability α about inputs without the user is right about inputs with
the user with probability at most min(e^ε α + δ, 1 − e^−ε (1 − α − δ)) (Kairouz, Oh and Viswanath 2015).
A guess between two inputs that are equally likely is right with probability at most
(e^ε + δ) / (e^ε + 1).
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from beam_dpne.release.reading import Contents


class Measure(NamedTuple):
    """The column of the rows by which a report ranks and plots them.

    Attributes:
      column: Name of the column.
      noun: Its name within a sentence.
      ends: Columns with the ends of its interval; none without intervals.
    """

    column: str
    noun: str
    ends: tuple[str, ...] = ()


class Facts(Contents):
    """A release as a report sees it; `Facts.read` reads one and checks every file."""

    @property
    def measure(self) -> Measure:
        """The column by which the rows are ranked and plotted."""
        if self.has_counts:
            return Measure("users", "estimated number of users", ("users_low", "users_high"))
        name = "probability" if self.program == "bayesian" else "score"
        return Measure(name, name)

    @property
    def has_counts(self) -> bool:
        """Whether rows have estimated numbers of users."""
        return "users" in self.rows.column_names

    @property
    def is_adaptive(self) -> bool:
        """Whether n-grams were found over several rounds."""
        return self.ledger["plan"].get("strategy") == "adaptive"

    @property
    def has_own_tokenizer(self) -> bool:
        """Whether the tokenizer is named like a function of the operator."""
        return "." in self.ledger.get("tokenizer", "") or ":" in self.ledger.get("tokenizer", "")

    @property
    def confidence(self) -> str:
        """Share of the intervals of users that contain the number of users, as a percentage."""
        return f"{self.ledger['counts']['confidence'] * 100:g} %"

    @property
    def count_share(self) -> str:
        """Part of the budget μ² that measured users, as a percentage."""
        return f"{self.ledger['counts']['budget_share'] * 100:g} %"

    @property
    def row_noun(self) -> str:
        """Name of one row."""
        return "item" if self.text_column == "item" else "n-gram"

    @property
    def note(self) -> Mapping[str, str | None]:
        """The operator's notes."""
        return self.ledger["notes"]

    @property
    def user_sentence(self) -> str:
        """The sentence that quotes what one user is, or an empty one."""
        user = self.ledger["guarantee"].get("user")
        return f"The ledger describes one user as follows: “{user}”." if user else ""

    @property
    def lengths(self) -> Sequence[Mapping[str, Any]]:
        """The ledger's entry of each length; none unless the release is of n-grams."""
        return self.ledger.get("lengths", ())

    @property
    def expected_spurious(self) -> float | None:
        """Upper bound on the expected number of spurious n-grams; None where there are none."""
        return (
            math.fsum(each["expected_spurious_at_most"] for each in self.lengths)
            if self.lengths
            else None
        )

    @property
    def mu(self) -> float:
        """Sensitivity over σ of all Gaussian noise together."""
        pair = self.ledger["groups"]["sizes"][0]
        return pair["gaussian_mu"] / pair["users"]

    @property
    def argument(self) -> list[str]:
        """The sentences of the ledger on which the guarantee rests."""
        grounds = [
            value["statement"] if isinstance(value, Mapping) else value
            for name, value in self.ledger["guarantee"].items()
            if name in ("individual_budgets", "composition")
        ]
        return grounds + [
            value for value in self.ledger["groups"].values() if isinstance(value, str)
        ]

    @property
    def references(self) -> list[str]:
        """Sources of the argument."""
        return self.ledger["guarantee"].get("individual_budgets", {}).get("references", [])

    @property
    def meanings(self) -> Iterator[tuple[str, str]]:
        """Names of numbers in the ledger, and their meanings."""
        for section, fields in self.ledger["meanings"].items():
            for name, meaning in fields.items():
                yield f"{section}: {name}", meaning

    def groups(self) -> dict[int | None, pa.Table]:
        """Returns the rows by their length, ranked by the measure; None stands for all lengths."""
        order = [(self.measure.column, "descending")]
        if not self.lengths:
            return {None: self.rows.sort_by(order)}
        return {
            each["length"]: self.rows.filter(pc.field("length") == each["length"]).sort_by(order)
            for each in self.lengths
        }


def guessing_bound(epsilon: float, delta: float) -> float:
    """Returns the largest probability that a guess between two equally likely inputs is right.

    >>> guessing_bound(0.0, 0.0), round(guessing_bound(math.log(3), 0.0), 12)
    (0.5, 0.75)
    """
    return min(1.0, (1 + delta * math.exp(-epsilon)) / (1 + math.exp(-epsilon)))


def detection_bound(epsilon: float, delta: float, false_alarms: float) -> float:
    """Returns the largest power of a test for one user's part, given its rate of false alarms.

    >>> round(detection_bound(math.log(3), 0.0, 0.01), 12), detection_bound(50.0, 0.0, 0.5)
    (0.03, 1.0)
    """
    slow = 1 - math.exp(-epsilon) * (1 - false_alarms - delta)
    fast = math.inf if epsilon > 700 else math.exp(epsilon) * false_alarms + delta
    return max(0.0, min(1.0, fast, slow))
