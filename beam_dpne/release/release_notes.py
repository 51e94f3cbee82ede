"""Notes of the operator on a release, and the ledger's sentence on its privacy unit.

The sentence holds names that the operator gave: never a path, and nothing that was read.
"""

import dataclasses
import unicodedata
from typing import Any

from beam_dpne.reading.options import InputDescription

MAX_CHARACTERS = 200
# Control characters, surrogates, and separators of lines and paragraphs.
_REFUSED_CATEGORIES = ("Cc", "Cs", "Zl", "Zp")
# Letters after one of these may be shown in another order than they are stored.
_BIDIRECTIONAL = frozenset("\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")

_SEQUENCES = "sequences"
_NO_FIELDS = {"user_field": None, "text_fields": None}


@dataclasses.dataclass(frozen=True, kw_only=True)
class ReleaseNotes:
    """The operator's notes on a release, which are published in its ledger and change nothing else.

    Two runs under one run key whose notes differ have the same noise and release the same.

    Attributes:
      title: Name of the release, e.g. "Support phrases, spring 2025"; None to leave it out.
      contact: Address for questions of readers, e.g. "privacy@example.com"; None to leave it out.
      unit: Privacy unit, with its article, e.g. "a customer"; None to leave it out. The guarantee is
        for each of them, so each value of the user field must stand for one.

    Raises:
      ValueError: if one of them is blank, longer than 200 characters, or has a control character.

    Example:
      >>> ReleaseNotes(unit="a customer").unit
      'a customer'
    """

    title: str | None = None
    contact: str | None = None
    unit: str | None = None

    def __post_init__(self):
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            if value is not None:
                _check(field.name, value)

    def to_dict(self) -> dict[str, str | None]:
        """Returns the notes as JSON types, in reading order."""
        return dataclasses.asdict(self)


def _check(name: str, value: object) -> None:
    """Raises ValueError unless a note is one line of readable text."""
    requirement = f"{name} must be one line of 1 to {MAX_CHARACTERS} characters"
    if not isinstance(value, str) or not value.strip():
        raise ValueError(f"{requirement}, got {name}={value!r}; leave it out to say nothing.")
    if len(value) > MAX_CHARACTERS:
        raise ValueError(f"{requirement}, got {len(value)} characters; shorten it.")
    if any(_is_refused(sign) for sign in value):
        raise ValueError(
            f"{requirement} without control characters, got {name}={value!r}; remove them."
        )


def _is_refused(sign: str) -> bool:
    return unicodedata.category(sign) in _REFUSED_CATEGORIES or sign in _BIDIRECTIONAL


NO_NOTES = ReleaseNotes()


def user_sentence(described: InputDescription | None, notes: ReleaseNotes) -> str:
    """Returns a phrase that says what one user of the guarantee is.

    Args:
      described: How records became documents; None if that is unknown.
      notes: The operator's notes; their unit begins the phrase.

    >>> described = InputDescription(user_field="customer_email", format="csv")
    >>> user_sentence(described, ReleaseNotes(unit="a customer"))
    'a customer: each value of the field "customer_email"'
    >>> user_sentence(described, ReleaseNotes())
    'each value of the field "customer_email" is one user'
    """
    records = _records_of_a_user(described)
    if notes.unit is not None:
        return f"{notes.unit}: {records}"
    return records if described is None else f"{records} is one user"


def input_section(described: InputDescription | None) -> dict[str, Any]:
    """Returns a description for the ledger; names of fields are None where there are no fields."""
    if described is None:
        return {**InputDescription().to_dict(), **_NO_FIELDS}
    if described.format == _SEQUENCES:
        return {**described.to_dict(), **_NO_FIELDS}
    return described.to_dict()


def _records_of_a_user(described: InputDescription | None) -> str:
    if described is None:
        return "as the input of the pipeline names them"
    if described.format == _SEQUENCES:
        return "each line of a file"
    return f'each value of the field "{described.user_field}"'
