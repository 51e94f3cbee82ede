"""What a ledger says of the privacy unit: whose records are protected together, and where that is read.

It holds names that the operator gave, never a path and nothing that was read.
"""

from typing import Any

from beam_dpne.reading.options import InputDescription
from beam_dpne.release.release_notes import ReleaseNotes

_SEQUENCES = "sequences"
_NO_FIELDS = {"user_field": None, "text_fields": None}


def user_sentence(described: InputDescription | None, notes: ReleaseNotes) -> str:
    """Returns in words what one user of the guarantee is.

    Args:
      described: How records became documents; None if nobody said.
      notes: What the operator says; its unit begins the sentence.

    >>> described = InputDescription(user_field="customer_email", format="csv")
    >>> user_sentence(described, ReleaseNotes(unit="a customer"))
    'a customer: each value of the field "customer_email"'
    >>> user_sentence(described, ReleaseNotes())
    'each value of the field "customer_email" is one user'
    """
    where = _where(described)
    if notes.unit is not None:
        return f"{notes.unit}: {where}"
    return where if described is None else f"{where} is one user"


def input_section(described: InputDescription | None) -> dict[str, Any]:
    """Returns a description for the ledger; names that do not exist, or nobody gave, are None."""
    if described is None:
        return {**InputDescription().to_dict(), **_NO_FIELDS}
    if described.format == _SEQUENCES:
        return {**described.to_dict(), **_NO_FIELDS}
    return described.to_dict()


def _where(described: InputDescription | None) -> str:
    if described is None:
        return "as the input of the pipeline names them"
    if described.format == _SEQUENCES:
        return "each line of a file"
    return f'each value of the field "{described.user_field}"'
