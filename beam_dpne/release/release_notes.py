"""ReleaseNotes: what an operator says of a release in words of their own."""

import dataclasses
import unicodedata

MAX_CHARACTERS = 200
# Control characters, surrogates, and separators of lines and paragraphs.
_REFUSED_CATEGORIES = ("Cc", "Cs", "Zl", "Zp")
# Letters after one of these may be shown in another order than they are stored.
_BIDIRECTIONAL = frozenset("\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")


@dataclasses.dataclass(frozen=True, kw_only=True)
class ReleaseNotes:
    """What an operator says of a release: it is published in the ledger, and changes nothing else.

    Two runs whose notes differ have the same noise under one run key, and release the same.

    Attributes:
      title: What the release is, e.g. "Support phrases, spring 2025"; None if nobody said.
      contact: Whom readers may ask, e.g. "privacy@example.com".
      unit: What one user stands for, with its article, e.g. "a customer". The guarantee is for each of
        them, so it must be what one value of the user field stands for.

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
