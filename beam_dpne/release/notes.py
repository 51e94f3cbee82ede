"""The operator's notes on a release."""

import dataclasses
import unicodedata
from typing import Annotated

from beam_dpne.validation import Parameter, Parameters

MAX_CHARACTERS = 200
_LINE = f"one line of 1 to {MAX_CHARACTERS} characters without control characters"
# Control characters, surrogates, and separators of lines and paragraphs.
_REFUSED_CATEGORIES = ("Cc", "Cs", "Zl", "Zp")
# These characters can make a reader see the letters after them in another order.
_BIDIRECTIONAL = frozenset("\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")
_NOTE = r"[^\x00-\x1f\x7f]{1,200}"


@dataclasses.dataclass(frozen=True, kw_only=True)
class ReleaseNotes(Parameters):
    """The operator's notes on a release, which are published in its ledger and change nothing else.

    Two runs under one run key that differ only in their notes release the same rows.

    Raises:
      ValueError: A note is blank, longer than 200 characters, or has a control character.

    Example:
      >>> ReleaseNotes(unit="a customer").unit
      'a customer'
    """

    title: Annotated[
        str | None,
        Parameter(
            pattern=_NOTE,
            requirement=_LINE,
            rare=True,
            help="Name of the release, e.g. 'Support phrases, spring 2025'. It is published in "
            "the ledger and changes nothing else.",
        ),
    ] = None
    contact: Annotated[
        str | None,
        Parameter(
            pattern=_NOTE,
            requirement=_LINE,
            rare=True,
            help="Address for questions of readers of the release, e.g. privacy@example.com. It "
            "is published in the ledger and changes nothing else.",
        ),
    ] = None
    unit: Annotated[
        str | None,
        Parameter(
            pattern=_NOTE,
            requirement=_LINE,
            rare=True,
            help="Noun for one user, with its article, e.g. 'a customer'. The ledger states that "
            "the guarantee is for each of them, so each value of the user field must stand for "
            "one. It changes nothing else.",
        ),
    ] = None

    def __post_init__(self) -> None:
        super().__post_init__()
        for name, value in self.to_dict().items():
            if value is not None and (not value.strip() or any(map(_is_refused, value))):
                raise ValueError(
                    f"{name} must be {_LINE}, got {name}={value!r}; leave it out if there is none."
                )

    def to_dict(self) -> dict[str, str | None]:
        """Returns the notes as JSON types, in reading order."""
        return dataclasses.asdict(self)


def _is_refused(sign: str) -> bool:
    return unicodedata.category(sign) in _REFUSED_CATEGORIES or sign in _BIDIRECTIONAL


NO_NOTES = ReleaseNotes()
