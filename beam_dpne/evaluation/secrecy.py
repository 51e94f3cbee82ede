"""The marks by which the files of an evaluation say whether they are as secret as the data.

The mark is in each file's name and in the file: in the first lines of text and JSON, in a column of
every row of a table (so that programs that read tables need no option to skip a line), and as a
banner across a picture. Figures of public data are as public as the data and have no banner.
"""

import csv
import dataclasses
import io
from collections.abc import Mapping, Sequence
from typing import Any

NOTICE = (
    "NOT PRIVATE. Computed from the private data and as secret as they are: for the operator only, "
    "never to be published, and not covered by the guarantee of the release."
)
BANNER = "NOT PRIVATE: computed from the private data, as secret as the data"
PREFIX = "not_private_"
COLUMN = "privacy"
_PUBLIC = "counted on public data, without any privacy guarantee"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Secrecy:
    """The mark of the files of an evaluation.

    Attributes:
      notice: The sentence at the beginning of texts and JSON.
      banner: The text above pictures, or None if they carry no mark.
      prefix: The beginning of the files' names.
      cell: The text in the column "privacy" of tables.
    """

    notice: str
    banner: str | None
    prefix: str
    cell: str


SECRET = Secrecy(
    notice=NOTICE, banner=BANNER, prefix=PREFIX, cell="NOT PRIVATE: as secret as the data"
)
PUBLIC = Secrecy(notice=f"{_PUBLIC.capitalize()}.", banner=None, prefix="", cell=_PUBLIC)


def secrecy_of(*, is_public: bool) -> Secrecy:
    """Returns the mark of figures of public or of private data."""
    return PUBLIC if is_public else SECRET


def table_text(
    headings: Sequence[str],
    rows: Sequence[Sequence[Any]],
    secrecy: Secrecy,
    columns: Mapping[str, str] | None = None,
) -> str:
    """Returns a table as CSV: headings, then the rows; the last cell of every row is its mark.

    Args:
      headings: Names of the columns, each once.
      rows: Cells of each row; None is empty.
      secrecy: The mark in the last column.
      columns: Further columns before it, with the same cell in every row.

    >>> print(table_text(["k"], [[1], [None]], PUBLIC, {"data": "titles"}), end="")
    k,data,privacy
    1,titles,"counted on public data, without any privacy guarantee"
    ,titles,"counted on public data, without any privacy guarantee"
    """
    ends = {**(columns or {}), COLUMN: secrecy.cell}
    text = io.StringIO(newline="")
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow([*headings, *ends])
    writer.writerows([*row, *ends.values()] for row in rows)
    return text.getvalue()
