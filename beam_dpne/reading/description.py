"""InputDescription: in public words, how records became documents."""

import dataclasses
import json
from collections.abc import Sequence

ROWS = "rows"


@dataclasses.dataclass(frozen=True, kw_only=True)
class InputDescription:
    """How records became documents. It is public, stands in the ledger, and a run key is bound to it.

    It holds names that the operator gave, never a path and nothing that was read. Two runs whose
    descriptions differ may see different documents in the same files, so they must not share noise.

    Attributes:
      user_field: Name of the field that says whose record it is; it defines the privacy unit.
      text_fields: Names of the fields that hold text; each text is a document of the user's.
      format: Of the files: "jsonl", "csv", "tsv", "parquet", "sequences", or "auto", by extension;
        "rows" for the elements of a pipeline.
      details: What else decides how files are read, as pairs of an option and its value in text
        (encoding, delimiter, quoting, columns), sorted by option; only those that were given.

    Example:
      >>> InputDescription(user_field="customer", text_fields=("subject", "body")).to_json()
      '{"user_field": "customer", "text_fields": ["subject", "body"], "format": "rows", "details": {}}'
    """

    user_field: str = "user"
    text_fields: tuple[str, ...] = ("text",)
    format: str = ROWS
    details: tuple[tuple[str, str], ...] = ()

    def to_dict(self) -> dict[str, object]:
        """Returns the description as JSON types, in reading order."""
        return {
            "user_field": self.user_field,
            "text_fields": list(self.text_fields),
            "format": self.format,
            "details": dict(self.details),
        }

    def to_json(self) -> str:
        """Returns the description as one line of JSON: equal descriptions give equal text."""
        return json.dumps(self.to_dict(), ensure_ascii=True)


def description_of_rows(user_field: str, text_field: str | Sequence[str]) -> InputDescription:
    """Returns the description of a pipeline's elements with these fields.

    >>> description_of_rows("user", "text") == InputDescription()
    True
    """
    return InputDescription(user_field=user_field, text_fields=names_of(text_field))


def names_of(text_field: str | Sequence[str]) -> tuple[str, ...]:
    """Returns the names of the text fields, given one name or several.

    >>> names_of("text"), names_of(["subject", "body"])
    (('text',), ('subject', 'body'))
    """
    return (text_field,) if isinstance(text_field, str) else tuple(text_field)
