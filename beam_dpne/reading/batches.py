"""Batches: the records of one block become documents in Arrow."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from beam_dpne.elements.arrays import is_text
from beam_dpne.errors import InputError

# Type of the users of `sequences`, where each line of each file is a user: the file's index, and the
# line's offset.
NAMED_USER = pa.binary(16)


class Batch(NamedTuple):
    """The documents and rejects of one block.

    Attributes:
      documents: Documents of the usable records; a record with several texts has several documents.
      rejects: Position and reason of each record that cannot be used.
      usable: Number of records that the documents come from.
      unit: Unit of the positions: `byte` or `row`.
    """

    documents: pa.RecordBatch
    rejects: list[tuple[int, str]]
    usable: int
    unit: str = "byte"

    def require_none_rejected(self, path: str) -> None:
        """Raises InputError for the first reject, as a strict run does."""
        for position, reason in self.rejects[:1]:
            raise InputError(
                f"{path} must hold only usable records (strict), got one at {self.unit} {position}: "
                f"{reason}."
            )


def batch_of(
    columns: Sequence[pa.Array],
    rejects: list[tuple[int, str]],
    names: Sequence[str] | None,
    unit: str = "byte",
) -> Batch:
    """Returns the documents of records, or the records themselves if the names of columns are given.

    Args:
      columns: The users, the texts and then the further fields of the usable records.
      rejects: The records that cannot be used.
      names: `ReadOptions.record_names`.
      unit: Unit of the positions of rejects.
    """
    if names is None:
        documents = interleaved(columns[0], columns[1:])
    else:
        documents = pa.RecordBatch.from_arrays(list(columns), names=list(names))
    return Batch(documents, rejects, len(columns[0]), unit)


def record_batch(user: pa.Array, text: pa.Array) -> pa.RecordBatch:
    """Returns a batch of documents with the columns `user` and `text`."""
    return pa.RecordBatch.from_arrays([user, text], names=["user", "text"])


def interleaved(user: pa.Array, texts: Sequence[pa.Array]) -> pa.RecordBatch:
    """Makes each text of a record that is not null a document of its user.

    >>> interleaved(pa.array(["ann"]), [pa.array(["a"]), pa.array(["b"])])["text"].to_pylist()
    ['a', 'b']
    """
    if len(texts) == 1:
        return record_batch(user, texts[0])
    rows, fields = len(user), len(texts)
    # Texts are concatenated field by field, so that text f of record r is at f · rows + r.
    # `order`, (rows · fields,), sorts these indices by record, then by field.
    order = np.arange(rows * fields).reshape(fields, rows).T.ravel()
    text = pa.concat_arrays(list(texts)).take(pa.array(order))
    present = np.flatnonzero(~text.is_null().to_numpy(zero_copy_only=False).astype(bool))
    owners = pa.array(present // fields)
    return record_batch(user.take(owners), text.take(pa.array(present)))


def plain(kind: pa.DataType) -> pa.DataType:
    """Returns the type of a dictionary's values, and other types as they are."""
    return kind.value_type if isinstance(kind, pa.DictionaryType) else kind


def as_text(values: pa.Array) -> pa.Array:
    """Casts values to string, unless they are string or large_string; dictionaries are decoded.

    >>> as_text(pa.array([7, -1])).to_pylist()
    ['7', '-1']
    """
    if isinstance(values.type, pa.DictionaryType):
        values = values.cast(values.type.value_type)
    return values if is_text(values.type) else values.cast(pa.string())
