"""python -m pipelines.tables.parquet_folder --input 'messages/*.parquet' --output release/messages
--epsilon 4 --delta 1e-7

Reads a folder of Parquet files, and writes released n-grams as Parquet files with their ledger.
"""

import argparse
import sys
from typing import Any

import apache_beam as beam
from apache_beam.io import ReadFromParquetBatched, WriteToParquet, WriteToText

from beam_dpne import PrivateNgramsResult
from beam_dpne.reading.files import match_inputs
from beam_dpne.reading.options import ReadOptions
from beam_dpne.reading.records import check_fields
from beam_dpne.release.publishing import check_output
from pipelines.tables.launch import launch


def read(pipeline: beam.Pipeline, options: argparse.Namespace) -> Any:
    """Reads the two fields as tables, whose columns have names; the first eight files are checked now.

    With as_rows, Beam takes the order of the fields from the first file, and pairs values with names by
    their position.
    """
    fields = [options.user_field, options.text_field]
    wanted = ReadOptions(
        input_format="parquet", user_field=options.user_field, text_field=options.text_field
    )
    check_fields(match_inputs([options.input]), wanted)
    return pipeline | ReadFromParquetBatched(options.input, columns=fields)


def write(result: PrivateNgramsResult, options: argparse.Namespace) -> None:
    """Writes the rows, and `ledger.json` after them."""
    check_output(options.output, overwrite=False)
    files = result.rows | WriteToParquet(
        f"{options.output}/ngrams", file_name_suffix=".parquet", codec="zstd"
    )
    ledger = WriteToText(
        f"{options.output}/ledger.json", shard_name_template="", append_trailing_newlines=False
    )
    _ = result.ledger | beam.WaitOn(files) | ledger


if __name__ == "__main__":
    sys.exit(launch(read, write, __doc__))
