"""python -m pipelines.tables.iceberg --warehouse file:///data/warehouse --input private.messages
--output public.ngrams_2026_05 --epsilon 4 --delta 1e-7

Reads a table of Apache Iceberg, and writes released n-grams to a new table. Their ledger goes to a
second new table, whose name has `_ledger` at its end. It needs Java, see docs/tables.md.
"""

import argparse
import sys
from typing import Any, NamedTuple

import apache_beam as beam
from apache_beam.transforms import managed

from beam_dpne import PrivateNgramsResult
from pipelines.tables.launch import launch

OPTIONS = {"warehouse": "folder of the tables' catalog, such as file:///data/warehouse"}


class LedgerRow(NamedTuple):
    """The only row of the table of the ledger."""

    ledger: str


# Java reads a row only if its coder is that of rows.
beam.coders.registry.register_coder(LedgerRow, beam.coders.RowCoder)


def table(name: str, options: argparse.Namespace) -> dict[str, Any]:
    """Returns the configuration of a table; other catalogs than a folder differ only here."""
    catalog = {"type": "hadoop", "warehouse": options.warehouse}
    return {"table": name, "catalog_name": "tables", "catalog_properties": catalog}


def read(pipeline: beam.Pipeline, options: argparse.Namespace) -> Any:
    """Reads the two fields of the table as rows, whose schema is checked before anything runs."""
    fields = {"keep": [options.user_field, options.text_field]}
    return pipeline | managed.Read(managed.ICEBERG, table(options.input, options) | fields)


def write(result: PrivateNgramsResult, options: argparse.Namespace) -> None:
    """Writes the rows, and the ledger after they were committed."""
    written = result.rows | "Rows" >> managed.Write(managed.ICEBERG, table(options.output, options))
    ledger = result.ledger | beam.WaitOn(written)
    rows = ledger | beam.Map(LedgerRow).with_output_types(LedgerRow)
    _ = rows | "Ledger" >> managed.Write(
        managed.ICEBERG, table(f"{options.output}_ledger", options)
    )


if __name__ == "__main__":
    sys.exit(launch(read, write, __doc__, others=OPTIONS))
