"""Rows straight from Parquet files become documents exactly as the program reads them from the files.

A run key is bound to the way in which records became documents. If two ways gave different documents
under one key, the difference of the two releases would reveal users. So only these rows may share a key
with the program: the types of their columns are in the files, the checks of each row are the program's,
and a row that the program would leave out fails the run. Beam reads CSV and JSON in other ways than the
program. In CSV, for instance, it takes the text NA as a missing one.
"""

import dataclasses
from collections.abc import Iterator
from typing import cast

import apache_beam as beam
import numpy as np
import pyarrow as pa
from apache_beam.io.parquetio import ReadFromParquet
from apache_beam.pvalue import PCollection

from beam_dpne.documents.batch import check_element_type, require_one_release
from beam_dpne.errors import InputError, UsageError
from beam_dpne.reading.options import ReadOptions
from beam_dpne.reading.parquet import check_schema, documents_of_columns

_ROWS_PER_BATCH = 65536


@dataclasses.dataclass(eq=False)
class DocumentsOfFiles(beam.PTransform):
    """Turns rows of Parquet files into documents exactly as the program reads them from the files."""

    options: ReadOptions

    def __post_init__(self):
        super().__init__()

    def expand(self, rows: PCollection) -> PCollection[pa.RecordBatch]:
        """Checks that the rows come straight from files, and that they have the fields."""
        if not _is_read_from_parquet(rows):
            raise UsageError(
                "input_format must be rows unless the rows come straight from ReadFromParquet, got "
                "input_format='parquet' for rows of another transform. Under the key of the files, "
                "rows that were changed or filtered would void the guarantee. Leave input_format out."
            )
        require_one_release(rows)
        check_element_type(rows.element_type, self.options.user_field, self.options.text_fields)
        read = beam.ParDo(_ReadTables(self.options)).with_output_types(pa.RecordBatch)
        return cast("PCollection[pa.RecordBatch]", rows | "Read" >> read)


def _is_read_from_parquet(rows: PCollection) -> bool:
    """Returns whether rows are the output of Beam's transform that reads Parquet files."""
    step = rows.producer
    while step is not None and not isinstance(step.transform, ReadFromParquet):
        step = step.parent
    return step is not None


class _ReadTables(beam.DoFn):
    """Turns tables into documents, as `beam_dpne.reading.parquet` does."""

    def __init__(self, options: ReadOptions):
        self._options = options

    @beam.DoFn.yields_elements
    def process_batch(self, batch: pa.Table) -> Iterator[pa.RecordBatch]:
        """Yields the documents of one table.

        Raises:
          InputError: a column has a wrong type, or a row cannot be used.
        """
        check_schema("the rows", batch.schema, self._options)
        for part in batch.to_batches(_ROWS_PER_BATCH):
            read = documents_of_columns(part, np.arange(part.num_rows), self._options)
            if read.rejects:
                reason = read.rejects[0][1]
                raise InputError(
                    f"rows must all be usable, got one with this fault: {reason}. Drop such rows from "
                    "the files."
                )
            if read.documents.num_rows:
                yield read.documents
