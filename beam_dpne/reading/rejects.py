"""Rejected records: their positions and reasons, their numbers, and the largest share that is allowed.

Reasons are fixed phrases, so that no reject quotes a record. Positions and numbers are as secret as the
data and are for the operator only.
"""

import collections
import json
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from beam_dpne.errors import TooManyRejectedError
from beam_dpne.storage.paths import create_file, is_local, join
from beam_dpne.storage.private import private_file

NOT_DECODED = "not valid in its encoding (UTF-8 by default)"
NOT_JSON = "malformed JSON"
LONE_SURROGATE = "half of a character, which is no Unicode text, as a cut emoji leaves it"
TOO_DEEP = "JSON of more than 500 levels"
NOT_OBJECT = "not a JSON object"
NO_LIST = "the file does not have the list that records names"
NOT_CSV = "malformed CSV"
NOT_MESSAGE = "malformed message"
RAGGED = "wrong number of columns"
# Such a line is not put together, since the next one may be of another user.
ESCAPED_DELIMITER = f"{RAGGED} (a backslash before a delimiter: enclose texts in quotes instead)"
BLANK_BEFORE_QUOTE = f"{RAGGED} (a blank before an opening quote: leave such blanks out)"
TOO_LONG = "longer than `max_record_bytes`"
NO_USER = "user is null or missing"
EMPTY_USER = "user is empty"
BAD_USER = "user is neither text nor an exact whole number: write ids as text"
USERS_OF_LIST = "user is a list, and a record has one user"
USER_WITH_FIELDS = "user is an object with fields"
NO_TEXT = "text is null or missing"
BAD_TEXT = "text is not a string"
BAD_TOKENS = "text is not a list of texts"
NO_GROUP = "group is null, missing or empty"
GROUPS_OF_LIST = "group is a list, and a record has one group"
BAD_GROUP = "group is neither an integer nor at most 256 characters without control characters"
# What is to be done about texts of the other kind.
OF_LISTS = (
    "Lists of words or items need the tokenizer tokens; where each member is a text, write [] after "
    "the name of the field. Text in an object has a path, e.g. `text_field=message.text`."
)
# What is to be done about users with parts.
OF_USERS = {
    BAD_USER: "Is this the field of the users?",
    USER_WITH_FIELDS: (
        "An id in an object has a path, e.g. `user_field=user.id`. A file with an object for each "
        "column must be written with one for each record."
    ),
    USERS_OF_LIST: (
        "If each member of a list is a record of its own, with a user and a text, name the list with "
        "`records` and `input_format=json`, and the fields from there, e.g. `records=messages` and "
        "`user_field=user`. Else write a record for each user."
    ),
}
OF_TEXTS = "Take another tokenizer than tokens, such as words, for plain text."
# Reasons that a file of another format has, too.
_OF_FORMATS = {NOT_JSON, NOT_OBJECT, NO_LIST, NOT_CSV, NOT_MESSAGE, RAGGED}
_OF_FORMATS |= {ESCAPED_DELIMITER, BLANK_BEFORE_QUOTE}
_NAME = "rejects-00000-of-00001.jsonl"


class Reject(NamedTuple):
    """A rejected record: its file, its position, and the reason as a fixed phrase.

    Attributes:
      file: Path of the file.
      position: Byte offset in the decompressed text as UTF-8, or number of the row or of the element
        of a JSON array, from 0.
      unit: Unit of `position`: `byte` or `row`.
      reason: One of the phrases of this module.
    """

    file: str
    position: int
    unit: str
    reason: str


def write_rejects(directory: str, rejects: Iterable[Reject]) -> str:
    """Writes rejects as lines of JSON into a file of a directory, and returns the file's path.

    They are in the order of their files and positions, in whatever order several processes found them.
    On a local file system only its owner can read it. A second run replaces the file of the first.
    """
    path = join(directory, _NAME)
    with private_file(path) if is_local(path) else create_file(path) as file:
        for reject in sorted(rejects):
            file.write(json.dumps(reject._asdict()).encode() + b"\n")
    return path


DEFAULT_MAX_REJECTED = 0.05
# Beam's counters of rejected records and of inputs without a record, which are as secret as the data.
REJECTED_RECORDS = "rejected_records"
NO_RECORDS = "inputs_without_records"


class Tally(NamedTuple):
    """Numbers of records of one or several pieces of work. They are not private.

    Attributes:
      records: Number of records read, usable or not.
      rejected: Number of rejected records by reason.
    """

    records: int
    rejected: Mapping[str, int]


def read_by(reasons: Iterable[str]) -> list[str]:
    """Returns the parameters to look at where records are rejected for such reasons.

    >>> read_by([NOT_DECODED])
    ['user_field', 'text_field', 'encoding']
    """
    found = {*reasons}
    names = ["user_field", "text_field"]
    if NOT_DECODED in found:
        names.append("encoding")
    if found & _OF_FORMATS:
        names.append("input_format")
    return names


def require_few_rejected(tallies: Iterable[Tally], max_rejected: float) -> int:
    """Checks the share of rejected records, and returns the number of records; none at all passes.

    Args:
      tallies: Tallies of all pieces of work.
      max_rejected: Largest share of rejected records that is allowed, in [0, 1].

    Raises:
      TooManyRejectedError: The share is larger. The message holds the reasons, and no number.
    """
    records = 0
    reasons = collections.Counter[str]()
    for tally in tallies:
        records += tally.records
        reasons.update(tally.rejected)
    if records and reasons.total() / records > max_rejected:
        names = ", ".join(f"`{name}`" for name in read_by(reasons))
        raise TooManyRejectedError(
            f"More records were rejected than `{max_rejected=}` allows, because of: "
            f"{', '.join(sorted(reasons))}. Nothing was published. Correct the records or how they are "
            f"read ({names}), or give a larger `max_rejected` to go on without them. They "
            "are listed in the directory that `rejects` names."
        )
    return records
