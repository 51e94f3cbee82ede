"""What the operator of a run is told and shown while it is at work; each face does it in its way."""

import contextlib
import dataclasses
from collections.abc import Callable


def _unseen(_input_bytes: int) -> contextlib.AbstractContextManager[None]:
    """Returns a context in which no progress is shown."""
    return contextlib.nullcontext()


def is_whole(what: str) -> str:
    """Returns what is told of a release that is published although something went wrong after that."""
    return f"the release is whole, and its budget is spent. {what}"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Showing:
    """How a face tells the operator of a run what happens.

    Attributes:
      tell: tells sentences for the operator alone, which may be as secret as the data; it never fails.
      quiet: whether the operator wants no advice.
      progress: makes the context in which the progress of a run is shown, from the size of its input
        in bytes.
    """

    tell: Callable[[str], None]
    quiet: bool
    progress: Callable[[int], contextlib.AbstractContextManager[None]] = _unseen

    def advise(self, advice: str) -> None:
        """Tells advice, unless the operator wants none."""
        if not self.quiet:
            self.tell(advice)
