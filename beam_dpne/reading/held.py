"""The rows of a frame that are held in memory while a run reads them."""

import dataclasses
from collections.abc import Iterator, Sequence

import pyarrow as pa

# How messages call a frame.
FRAME = "the frame"
# What may be wrong with a frame that cannot be read.
OF_TYPES = (
    'The values of a column must have one type; astype("string") of pandas makes them text. Ids of '
    "which some have become floats are made whole numbers before, or 1.0 and 1 would be two users."
)
_MAX_ROWS = 65536


@dataclasses.dataclass(frozen=True, eq=False)
class HeldTable:
    """The columns of a frame that a run reads.

    Attributes:
      schema: the columns.
      batches: the rows.
    """

    schema: pa.Schema
    batches: Sequence[pa.RecordBatch] = dataclasses.field(repr=False)

    @property
    def size(self) -> int:
        """Bytes of the rows."""
        return sum(batch.get_total_buffer_size() for batch in self.batches)

    def pieces(self, block_bytes: int) -> Iterator[pa.RecordBatch]:
        """Yields the rows in batches of about so many bytes."""
        rows = sum(batch.num_rows for batch in self.batches)
        most = min(_MAX_ROWS, max(1, block_bytes * rows // max(1, self.size)))
        for batch in self.batches:
            for start in range(0, batch.num_rows, most):
                yield batch.slice(start, most)
