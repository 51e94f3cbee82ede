"""Files of tests: writing them, and reading them without Beam."""

import bz2
import gzip
import io
import lzma
import pathlib
import zipfile
from collections.abc import Callable
from typing import Any

import pyarrow as pa

from beam_dpne.reading.files import match_inputs
from beam_dpne.reading.options import ReadOptions
from beam_dpne.reading.records import plan_reads, read_item

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
    """Documents as (user, text), and rejects as (position, unit, reason), in order."""
    options = ReadOptions(**settings)
    rows, rejects = [], []
    for file in match_inputs([str(path) for path in paths]):
        for item in plan_reads(file, options):
            for batch in read_item(item, options):
                batch.documents.validate(full=True)
                columns = batch.documents.to_pydict()
                rows += zip(columns["user"], columns["text"], strict=True)
                rejects += [(at, batch.unit, reason) for at, reason in batch.rejects]
    return rows, rejects


def write(path: pathlib.Path, data: bytes | str) -> pathlib.Path:
    path.write_bytes(data if isinstance(data, bytes) else data.encode())
    return path
