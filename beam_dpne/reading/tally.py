"""How many records were read and rejected, and when so many are rejected that a run must fail."""

import collections
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from apache_beam.metrics.metric import Metrics

from beam_dpne.errors import TooManyRejectedError

DEFAULT_MAX_REJECTED = 0.05
# Beam's counters of rejected records by reason; a dot stands for each blank of the reason.
COUNTER_PREFIX = "rejected_records."


class Tally(NamedTuple):
    """Numbers of records of one or many pieces of work. Not private: for the operator.

    Attributes:
      records: Records read, usable or not.
      rejected: Records that cannot be used, by the fixed phrase that says why.
    """

    records: int
    rejected: Mapping[str, int]


def tally_of(usable: int, rejected: Mapping[str, int]) -> Tally:
    """Returns the tally of usable records and of those that were rejected, by reason."""
    return Tally(usable + sum(rejected.values()), dict(rejected))


def add_up(tallies: Iterable[Tally]) -> Tally:
    """Adds tallies of different records.

    >>> add_up([Tally(3, {"malformed JSON": 1}), Tally(1, {"malformed JSON": 1})])
    Tally(records=4, rejected={'malformed JSON': 2})
    """
    records, rejected = 0, collections.Counter[str]()
    for tally in tallies:
        records += tally.records
        rejected.update(tally.rejected)
    return Tally(records, dict(rejected))


def check_max_rejected(max_rejected: float) -> None:
    """Raises ValueError unless the value is a share of records."""
    if not 0 <= max_rejected <= 1:
        raise ValueError(
            f"max_rejected must be a share of the records in [0, 1], got max_rejected={max_rejected}."
        )


def require_few_rejected(tally: Tally, max_rejected: float) -> None:
    """Checks the share of rejected records; an input without any records passes.

    Args:
      tally: Of all records.
      max_rejected: The largest share of them that may be rejected; 1 allows all.

    Raises:
      TooManyRejectedError: The share is larger; the message has counts by reason, which are for the
        operator and as secret as the data.
    """
    rejected = sum(tally.rejected.values())
    if not rejected or rejected / tally.records <= max_rejected:
        return
    raise TooManyRejectedError(
        f"max_rejected must be at least the share of rejected records, got max_rejected={max_rejected} "
        f"and {rejected:,} rejected of {tally.records:,} records: {describe(tally.rejected)}. Nothing "
        "was published. Correct the files or how they are read; --rejects DIR lists the records; a "
        "larger --max_rejected goes on without them. For the operator; as secret as the data."
    )


def describe(rejected: Mapping[str, int]) -> str:
    """Returns counts by reason as text, the largest first.

    >>> describe({"user is empty": 2, "malformed JSON": 1000})
    '1,000 malformed JSON, 2 user is empty'
    """
    ordered = sorted(rejected.items(), key=lambda item: (-item[1], item[0]))
    return ", ".join(f"{count:,} {reason}" for reason, count in ordered)


def count_rejected(rejected: Mapping[str, int]) -> None:
    """Adds to Beam's counters of rejected records by reason."""
    for reason, count in rejected.items():
        name = COUNTER_PREFIX + reason.replace(" ", ".")
        Metrics.counter("beam_dpne", name).inc(count)


def rejected_of(counters: Mapping[str, int]) -> dict[str, int]:
    """Returns rejected records by reason from Beam's counters by name.

    >>> rejected_of({"rejected_records.user.is.empty": 2, "rejected_records": 2})
    {'user is empty': 2}
    """
    return {
        name.removeprefix(COUNTER_PREFIX).replace(".", " "): count
        for name, count in counters.items()
        if name.startswith(COUNTER_PREFIX) and count
    }
