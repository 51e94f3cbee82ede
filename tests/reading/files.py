"""Files of tests: writing them, and reading them without Beam."""

import bz2
import gzip
import io
import lzma
import pathlib
import pickle
import zipfile
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import pyarrow as pa

from beam_dpne.reading.files import WorkItem, match_inputs
from beam_dpne.reading.line_pieces import cut_or_read, read_piece
from beam_dpne.reading.options import ReadOptions
from beam_dpne.reading.records import Batch, plan_reads, read_item

CANARY = "canary7f3a"


def zipped(*members: tuple[str, bytes]) -> bytes:
    """A zip archive."""
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in members:
            archive.writestr(name, data)
    return out.getvalue()


COMPRESS: dict[str, Callable[[bytes], bytes]] = {
    "": lambda data: data,
    ".gz": gzip.compress,
    ".bz2": bz2.compress,
    ".zst": lambda data: bytes(pa.compress(data, "zstd", asbytes=True)),
    ".xz": lzma.compress,
    ".zip": lambda data: zipped(("some/name", data)),
}
Row = tuple[Any, Any]


def read(paths: list[Any], **settings: Any) -> tuple[list[Row], list[tuple[Any, ...]]]:
    """Documents as (user, text), and rejects as (position, unit, reason), in order.

    What one process cuts at ends of lines and others parse has the same.
    """
    options = ReadOptions(**settings)
    found = listed(paths, options, read_item)
    assert found == listed(paths, options, _in_pieces)
    return found


def listed(
    paths: list[Any],
    options: ReadOptions,
    reader: Callable[[WorkItem, ReadOptions], Iterable[Batch]],
) -> tuple[list[Row], list[tuple[Any, ...]]]:
    rows, rejects = [], []
    for file in match_inputs([str(path) for path in paths]):
        for item in plan_reads(file, options):
            for batch in reader(item, options):
                batch.documents.validate(full=True)
                columns = batch.documents.to_pydict()
                rows += zip(columns["user"], columns["text"], strict=True)
                rejects += [(at, batch.unit, reason) for at, reason in batch.rejects]
    return rows, rejects


def _in_pieces(item: WorkItem, options: ReadOptions) -> Iterator[Batch]:
    """The batches of an item whose lines are parsed in pieces, as another process parses them."""
    for found in cut_or_read(item, options):
        if isinstance(found, Batch):
            yield found
        else:
            yield from read_piece(pickle.loads(pickle.dumps(found)))


def write(path: pathlib.Path, data: bytes | str) -> pathlib.Path:
    path.write_bytes(data if isinstance(data, bytes) else data.encode())
    return path
