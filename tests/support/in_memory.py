"""Releases of the local driver, of documents that a test has in memory."""

from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from beam_dpne.documents.cutting import cut_by_partition
from beam_dpne.documents.private_run import PrivateRun
from beam_dpne.documents.rows import batch_of_rows, documents_of
from beam_dpne.elements.rows import pieces


def sets_in_memory(
    run: PrivateRun, batches: Sequence[pa.RecordBatch], workers: int = 1
) -> Sequence[Any]:
    """The released sets."""
    key = run.run_keys().bound
    partitions = cut_by_partition(batches, run.cutting(key), workers)
    return run.release_in_memory(partitions, key, workers)


def rows_in_memory(
    run: PrivateRun, documents: Sequence[tuple[str, ...]], workers: int = 1
) -> list[tuple[Any, ...]]:
    """The released rows of documents given as tuples, sorted."""
    return rows_of_sets(run, sets_in_memory(run, [batch_of(documents)], workers))


def rows_of_sets(run: PrivateRun, sets: Sequence[Any]) -> list[tuple[Any, ...]]:
    """The rows of released sets, sorted."""
    tables = pieces(run.form.rows_of(sets))
    return sorted(tuple(row.values()) for table in tables for row in table.to_pylist())


def batch_of(documents: Sequence[tuple[str, ...]]) -> pa.RecordBatch:
    """Documents as a record batch: (user, text), or (user, text, group)."""
    is_grouped = len(documents[0]) == 3
    names = ["user", "text", "group"][: len(documents[0])]
    return documents_of(batch_of_rows(documents, names, is_grouped), names, is_grouped)
