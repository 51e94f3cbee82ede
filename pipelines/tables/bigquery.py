"""python -m pipelines.tables.bigquery --input project:private.messages
--output project:release.messages_2026_05 --epsilon 4 --delta 1e-7 --runner DataflowRunner …

Reads a table of BigQuery, and writes released n-grams to a new table. Their ledger goes to a second
new table, whose name has `_ledger` at its end. It needs the extra `gcp`.
"""

import argparse
import sys
import typing
from typing import Any

import apache_beam as beam
from apache_beam.io import ReadFromBigQuery, WriteToBigQuery

from beam_dpne import PrivateNgramsResult, ReleasedNgram
from pipelines.tables.launch import launch

COLUMNS = {int: "INTEGER", float: "FLOAT", str: "STRING"}
LEDGER = {"fields": [{"name": "ledger", "type": "STRING", "mode": "REQUIRED"}]}


def table_schema(row_type: type) -> dict[str, Any]:
    """Returns BigQuery's schema of the rows of a release, from the fields of their type."""
    fields = typing.get_type_hints(row_type).items()
    return {
        "fields": [{"name": n, "type": COLUMNS[kind], "mode": "REQUIRED"} for n, kind in fields]
    }


def read(pipeline: beam.Pipeline, options: argparse.Namespace) -> Any:
    """Reads the two fields of the table itself, so that BigQuery makes no copy of it."""
    return pipeline | ReadFromBigQuery(
        table=options.input,
        method=ReadFromBigQuery.Method.DIRECT_READ,
        selected_fields=[options.user_field, options.text_field],
    )


def write(result: PrivateNgramsResult, options: argparse.Namespace) -> None:
    """Loads the rows, and the ledger after them, into tables that must be new or empty."""
    rows = result.rows | "Dicts" >> beam.Map(lambda row: row._asdict())
    loaded: Any = rows | "Rows" >> _new_table(options.output, table_schema(ReleasedNgram))
    _ = (
        result.ledger
        | beam.WaitOn(loaded.destination_load_jobid_pairs, loaded.destination_copy_jobid_pairs)
        | "Dict" >> beam.Map(lambda ledger: {"ledger": ledger})
        | "Ledger" >> _new_table(f"{options.output}_ledger", LEDGER)
    )


def _new_table(table: str, schema: dict[str, Any]) -> WriteToBigQuery:
    return WriteToBigQuery(
        table,
        schema=schema,
        method=WriteToBigQuery.Method.FILE_LOADS,
        write_disposition=beam.io.BigQueryDisposition.WRITE_EMPTY,
    )


if __name__ == "__main__":
    sys.exit(launch(read, write, __doc__))
