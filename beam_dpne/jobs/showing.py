"""What the operator of a run is told and shown while it is at work; each face does it in its way."""

import contextlib
import dataclasses
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from beam_dpne.release.wording import number

_SHOWN_ROWS = 12


def _unseen(_input_bytes: int) -> contextlib.AbstractContextManager[None]:
    """Returns a context in which no progress is shown."""
    return contextlib.nullcontext()


def lines_of(title: str, rows: Iterable[Mapping[str, Any]]) -> Iterator[str]:
    r"""Yields a title, and lines of the first rows of a table, as the result of a call prints them.

    >>> print(*lines_of("Needed", [{"length": 1, "users": 1200}]), sep="\n")
    Needed:
      length 1, users 1,200
    """
    rows = list(rows)
    yield f"{title}:"
    for row in rows[:_SHOWN_ROWS]:
        yield "  " + ", ".join(f"{name.replace('_', ' ')} {_figure(row[name])}" for name in row)
    if len(rows) > _SHOWN_ROWS:
        yield f"  and {len(rows) - _SHOWN_ROWS:,} more rows"


def _figure(value: object) -> str:
    return str(value) if isinstance(value, bool) else number(value)


def is_whole(what: str) -> str:
    """Returns what is told of a release that is published although something went wrong after that."""
    return f"the release is whole, and its budget is spent. {what}"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Showing:
    """How a face tells the operator of a run what happens.

    Attributes:
      tell: tells sentences for the operator alone, which may be as secret as the data; it never fails.
      quiet: whether the operator wants no advice.
      names_fields: whether an error may name the fields that a file has, which may be data, where
        they help: a call's error may go to logs.
      progress: makes the context in which the progress of a run is shown, from the size of its input
        in bytes.
    """

    tell: Callable[[str], None]
    quiet: bool
    names_fields: bool = True
    progress: Callable[[int], contextlib.AbstractContextManager[None]] = _unseen

    def advise(self, advice: str) -> None:
        """Tells advice, unless the operator wants none."""
        if not self.quiet:
            self.tell(advice)
