"""Reading a release: its ledger, and the one noun `Release` of which everything else is asked.

Every part is checked against the ledger that was read first, so the rows are those of one release
even if another run replaces it meanwhile. Nothing here needs Beam.
"""

import dataclasses
import functools
import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from msgspec import UNSET

from beam_dpne.elements.rows import split_ngram
from beam_dpne.errors import ReleaseError
from beam_dpne.release import schema
from beam_dpne.release.parts import PROGRAMS, columns_of, parse_part
from beam_dpne.release.places import LEDGER_NAME, ledger_path, release_folder
from beam_dpne.release.schema import Part
from beam_dpne.storage.directories import as_release_error, directory_at

if TYPE_CHECKING:
    import pandas as pd

# What stands where a release in memory has no path.
IN_MEMORY = "(in memory)"
_REMEDY = "Copy the files of the release again, or wait if a run is replacing it just now."


def read_ledger(path: str) -> dict[str, Any]:
    """Reads the ledger of a release.

    Args:
      path: Path of the release's directory, or of its `ledger.json`; local or on any Beam file system.

    Returns:
      The ledger as JSON types, in the order in which `whole_ledger` wrote its sections.

    Raises:
      ReleaseError: There is no ledger, or it is not a whole ledger of a readable schema.
    """
    return parse_ledger(read_ledger_bytes(path), ledger_path(path))


def read_ledger_bytes(path: str) -> bytes:
    """Reads the bytes of a release's ledger; see `read_ledger`.

    Raises:
      ReleaseError: There is no ledger, or it cannot be read.
    """
    file = ledger_path(path)
    with as_release_error(f"{file} cannot be read"):
        data = directory_at(release_folder(path)).read(LEDGER_NAME)
    if data is None:
        raise ReleaseError(
            f"{file} does not exist: there is no release, or its publication was not completed."
        )
    return data


def parse_ledger(data: bytes, path: str) -> dict[str, Any]:
    """Checks and returns the JSON of the ledger of a release.

    Args:
      data: The ledger.
      path: Its path, for messages.

    Raises:
      ReleaseError: It is not a whole ledger of this schema.
    """
    ledger = decode_ledger(data, path)
    if ledger.parts is UNSET:
        raise ReleaseError(f"{path} is damaged: 'parts' is missing.")
    return json.loads(data)


def decode_ledger(data: bytes, path: str) -> schema.AnyLedger:
    """Checks a ledger of a release, or of rows before they are in files.

    Raises:
      ReleaseError: It is not a whole ledger of this schema.
    """
    if not is_ledger(data):
        raise ReleaseError(f"{path} is not a ledger of beam_dpne.")
    found = msgspec.json.decode(data, type=_Head).schema
    if found != schema.SCHEMA:
        raise ReleaseError(
            f"{path} has schema {found!r}; this version reads {schema.SCHEMA}. Install the version of "
            "beam-dpne that wrote it, or a newer one, to read it."
        )
    try:
        return msgspec.json.decode(data, type=schema.AnyLedger)
    except msgspec.DecodeError as error:
        raise ReleaseError(f"{path} is damaged: {error}.") from None


# Sections of a ledger that hold released numbers, beside the digest of its rows.
_RELEASED = ("content", "lengths", "mechanism")


# What follows from the thresholds, the cuts and the numbers of valid n-grams beside it. Its last digits
# differ between kinds of processors.
_FOLLOWS = {"null_probability", "null_probabilities", "expected_spurious_at_most"}


def released_in(ledger: Mapping[str, Any]) -> list[Any]:
    """Returns everything that was released: the digest of the rows, and the numbers of the ledger.

    Numbers that follow from others are left out, so that a release that is made again on another kind
    of processor is the same one.
    """
    return [_without_what_follows(ledger.get(name)) for name in _RELEASED]


def _without_what_follows(value: Any) -> Any:
    if isinstance(value, dict):
        kept = value.items()
        return {name: _without_what_follows(of) for name, of in kept if name not in _FOLLOWS}
    if isinstance(value, list):
        return [_without_what_follows(each) for each in value]
    return value


class _Head(msgspec.Struct):
    schema: str


def is_ledger(data: bytes) -> bool:
    """Returns whether this is a ledger of this package, of any schema version."""
    try:
        return msgspec.json.decode(data, type=_Head).schema.startswith(schema.SCHEMA_FAMILY)
    except (msgspec.DecodeError, RecursionError):
        return False


@dataclasses.dataclass(frozen=True, eq=False)
class Release:
    """A complete release: what its ledger says, and its rows, which are read when they are asked for.

    `read_release` makes it. Its rows can be handed to any library that takes Arrow's streams
    (`pyarrow.table(release)`, `polars.DataFrame(release)`), which reads one file after the other.
    `beam_dpne.Release` (in `whole`) is one with what can be made of it.

    Attributes:
      path: Directory of the release; `IN_MEMORY` if its files are in memory.
      ledger: The whole ledger as JSON types, in reading order.
      ledger_sha256: SHA-256 of the ledger's bytes, hexadecimal.
      files: The bytes of its files by name, if they are in memory; None in a directory.
    """

    path: str
    ledger: Mapping[str, Any] = dataclasses.field(repr=False)
    ledger_sha256: str
    files: Mapping[str, bytes] | None = dataclasses.field(default=None, repr=False)

    # What the ledger says.

    @property
    def program(self) -> str:
        """Program that made the release: "ngrams", "set-union", "bayesian" or "count"."""
        return self.ledger["program"]

    @property
    def epsilon(self) -> float:
        """The ε of the guarantee."""
        return self.ledger["guarantee"]["epsilon"]

    @property
    def delta(self) -> float:
        """The δ of the guarantee."""
        return self.ledger["guarantee"]["delta"]

    @property
    def title(self) -> str | None:
        """Title that the operator gave the release."""
        return self.ledger["notes"].get("title")

    @property
    def unit(self) -> str | None:
        """The operator's noun for one user."""
        return self.ledger["notes"].get("unit")

    @property
    def tokenizer(self) -> str:
        """Name of the tokenizer."""
        return self.ledger["tokenizer"]

    @property
    def text_rules(self) -> Mapping[str, Any]:
        """What the tokenizer left out of texts, and how it cut them into items."""
        return self.ledger.get("text_rules", {})

    @property
    def known_lists(self) -> Sequence[Mapping[str, Any]]:
        """What the ledger says of each list of n-grams or items that was known before the run."""
        return self.ledger.get("known", {}).get("lists", ())

    @property
    def public_lists(self) -> Sequence[Mapping[str, Any]]:
        """What the ledger says of each list, those whose users were counted included."""
        return self.known_lists or self.ledger.get("phrases", {}).get("lists", ())

    @property
    def lengths(self) -> Sequence[Mapping[str, Any]]:
        """What the ledger says of each length; nothing unless the release is of n-grams."""
        return self.ledger.get("lengths", ())

    @property
    def max_length(self) -> int:
        """Largest length that the release may have; an item has length 1."""
        return max((each["length"] for each in self.lengths), default=1)

    @property
    def parts(self) -> tuple[Part, ...]:
        """Files of the release, in the order of their rows."""
        return msgspec.convert(self.ledger["parts"], tuple[Part, ...])

    @property
    def num_rows(self) -> int:
        """Number of released rows, from the ledger."""
        return sum(part.rows for part in self.parts)

    # What a row is called, and which columns it has.

    @property
    def schema(self) -> pa.Schema:
        """The columns of the rows: see `table`."""
        return columns_of(self.ledger["columns"])

    @property
    def noun(self) -> str:
        """Name of the rows, in the plural."""
        return PROGRAMS[self.program].noun

    @property
    def row_noun(self) -> str:
        """Name of one row."""
        if self.program == "count":
            return "phrase"
        return "item" if self.text_column == "item" else "n-gram"

    @property
    def text_column(self) -> str:
        """Name of the column of n-grams or items."""
        return PROGRAMS[self.program].text

    @property
    def value_column(self) -> str:
        """Name of the column by which rows of one length can be compared.

        Numbers of users have one unit at all lengths; releases without them have scores.
        """
        names = ("users", "score", "probability")
        return next(name for name in names if name in self.ledger["columns"])

    @property
    def value_noun(self) -> str:
        """Name of the values in `value_column`, within a sentence."""
        return "estimated number of users" if self.has_counts else self.value_column

    @property
    def has_counts(self) -> bool:
        """Whether rows have estimated numbers of users."""
        return "users" in self.ledger["columns"]

    @property
    def confidence(self) -> float | None:
        """The confidence of the intervals of numbers of users; None without such numbers."""
        if not self.has_counts:
            return None
        return self.ledger.get("counts", self.ledger.get("mechanism", {}))["confidence"]

    @property
    def has_groups(self) -> bool:
        """Whether each row has a group."""
        return "group" in self.ledger["columns"]

    # The rows.

    def tables(self) -> Iterator[pa.Table]:
        """Yields the rows of one file after the other, each checked against the ledger.

        Raises:
          ReleaseError: A file is missing, damaged or unreadable.
        """
        for part, data in self._checked_parts():
            with as_release_error(f"Part {part.name} of the release cannot be read"):
                rows = parse_part(part.name, data, self.ledger["columns"])
            yield rows

    def table(self) -> pa.Table:
        """Reads all rows, and checks every file against the ledger.

        Returns:
          Columns length (int32), ngram (string) and score (float64), or item (string) and score, or
          ngram and probability, in the order of the release. Releases with groups also have group
          (string), those with numbers of users also users, users_low and users_high (int64).

        Raises:
          ReleaseError: A file is missing, damaged or unreadable.
        """
        return pa.concat_tables(list(self.tables()))

    @functools.cached_property
    def rows(self) -> pa.Table:
        """The rows of `table`, which are read once and kept."""
        return self.table()

    def to_pandas(self) -> "pd.DataFrame":
        """Returns the rows of `table` as a data frame of pandas.

        Raises:
          ReleaseError: A file is missing, damaged or unreadable.
          ImportError: pandas is not installed.
        """
        return self.table().to_pandas()

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        """Returns the rows as a stream of Arrow, which holds the rows of one file at a time."""
        batches = (batch for rows in self.tables() for batch in rows.to_batches())
        reader = pa.RecordBatchReader.from_batches(self.schema, batches)
        return reader.__arrow_c_stream__(requested_schema)

    def verify(self) -> None:
        """Checks the size and the SHA-256 of every file.

        Raises:
          ReleaseError: A file is missing, damaged or unreadable.
        """
        for _ in self._checked_parts():
            pass

    def ranked(self) -> dict[int | None, pa.Table]:
        """Returns the rows of each length by falling value; None stands for rows without a length."""
        order = [(self.value_column, "descending")]
        if not self.lengths:
            return {None: self.rows.sort_by(order)}
        return {
            each["length"]: self.rows.filter(pc.field("length") == each["length"]).sort_by(order)
            for each in self.lengths
        }

    def rows_of(self, group: str) -> pa.Table:
        """Returns the rows of one group; the release must have groups, and may not have this one."""
        return self.rows.filter(pc.field("group") == group)

    def texts(self, rows: pa.Table) -> list[str]:
        """Returns the n-gram of each of these rows as `join_tokens` writes it, or its item as it is."""
        return rows.column(self.text_column).to_pylist()

    def titles(self, rows: pa.Table) -> list[str]:
        """Returns the texts of these rows, behind their groups if they have any."""
        if not self.has_groups:
            return self.texts(rows)
        groups = rows.column("group").to_pylist()
        return [f"{group}: {text}" for group, text in zip(groups, self.texts(rows), strict=True)]

    def words(self, rows: pa.Table) -> list[tuple[str, ...]]:
        """Returns the words of each of these rows; an item is one word."""
        if self.text_column == "item":
            return [(item,) for item in self.texts(rows)]
        return [split_ngram(text) for text in self.texts(rows)]

    def weights(self, rows: pa.Table) -> npt.NDArray[np.float64]:
        """Returns a number > 0 for each of these rows, of `value_column`: (rows,) float64.

        A value of at most 0 counts as the smallest number > 0 of these rows, or as 1.
        """
        values = rows.column(self.value_column).to_numpy().astype(np.float64)
        positive = values[values > 0]
        return np.maximum(values, positive.min() if positive.size else 1.0)

    def _checked_parts(self) -> Iterator[tuple[Part, bytes]]:
        """Yields each part and its bytes, one after the other."""
        for part in self.parts:
            with as_release_error(f"Part {part.name} of {self.path} cannot be read"):
                data = self._bytes_of(part.name)
            if data is None:
                raise _incomplete(self.path, part)
            if (len(data), hashlib.sha256(data).hexdigest()) != (part.bytes, part.sha256):
                raise ReleaseError(
                    f"The release {self.path} is damaged: part {part.name} has another SHA-256. "
                    f"{_REMEDY}"
                )
            yield part, data

    def _bytes_of(self, name: str) -> bytes | None:
        """Returns the bytes of a file, or None if there is no such file."""
        if self.files is None:
            return directory_at(self.path).read(name)
        return self.files.get(name)


def read_release(path: str) -> Release:
    """Opens a release; the parts are those that the ledger lists, and each must be there.

    Their bytes are read and checked by the methods of the release.

    Args:
      path: Path of the release's directory, or of its `ledger.json`; local or on any Beam file system.

    Raises:
      ReleaseError: The release is incomplete, or its ledger is damaged.

    Example:
      >>> from beam_dpne import read_release
      >>> read_release("no/such/folder")
      Traceback (most recent call last):
      beam_dpne.errors.ReleaseError: no/such/folder/ledger.json does not exist: there is no release, \
or its publication was not completed.
    """
    folder = release_folder(path).rstrip("/") or "/"
    release = described_release(read_ledger_bytes(path), ledger_path(path), folder=folder)
    directory = directory_at(release.path)
    for part in release.parts:
        with as_release_error(f"Part {part.name} of {release.path} cannot be read"):
            is_there = directory.has(part.name)
        if not is_there:
            raise _incomplete(release.path, part)
    return release


def described_release(ledger: bytes, path: str, *, folder: str) -> Release:
    """Returns the release that a ledger describes, whose files need not be there.

    Args:
      ledger: The bytes of the ledger.
      path: Its path, for messages.
      folder: The directory in which the files of the release are looked for, once they are needed.

    Raises:
      ReleaseError: It is not a whole ledger of a readable schema.
    """
    return Release(
        path=folder,
        ledger=parse_ledger(ledger, path),
        ledger_sha256=hashlib.sha256(ledger).hexdigest(),
    )


def _incomplete(path: str, part: Part) -> ReleaseError:
    return ReleaseError(f"The release {path} is incomplete: part {part.name} is missing. {_REMEDY}")
