"""What a launcher checks before a run: that the wanted fields exist."""

from collections.abc import Sequence

import msgspec
import pyarrow.parquet as pq

from beam_dpne.io.blocks import BYTE_ORDER_MARK
from beam_dpne.io.delimited import DIALECTS, HEAD_BYTES, header
from beam_dpne.io.fields import require_fields, require_keys
from beam_dpne.io.files import InputFile, TextStream, guarded, open_raw
from beam_dpne.io.options import ReadOptions, format_of
from beam_dpne.io.parquet import check_schema

_KEYS = msgspec.json.Decoder(dict[str, msgspec.Raw])


def check_fields(files: Sequence[InputFile], options: ReadOptions, *, limit: int = 8) -> None:
    """Opens the beginning of the first files and checks that they can be read as asked.

    Args:
      files: What `match_inputs` found.
      options: How they are to be read.
      limit: How many files to open; the reader checks all.

    Raises:
      InputError: A file cannot be opened or decompressed, its format is unknown or cannot hold
        what is wanted, or a field does not exist. Fields that do are named unless they may be data.
    """
    for file in files:
        options.check_tokens(format_of(file.path, options.input_format))
    for file in files[:limit]:
        with guarded(file.path):
            _check_file(file, options)


def _check_file(file: InputFile, options: ReadOptions) -> None:
    kind = format_of(file.path, options.input_format)
    if kind == "parquet":
        with open_raw(file.path) as raw:
            check_schema(file.path, pq.ParquetFile(raw).schema_arrow, options)
        return
    with TextStream(file.path) as stream:
        head = stream.read(HEAD_BYTES)
    text = head.removeprefix(BYTE_ORDER_MARK)
    if kind == "jsonl":
        require_keys(file.path, _first_keys(text), options)
    elif kind in DIALECTS and not options.columns:
        names, _ = header(file.path, text, DIALECTS[kind])
        require_fields(file.path, names, options)


def _first_keys(head: bytes) -> list[list[str]]:
    """The keys of the whole JSON objects in the first bytes of a file."""
    lines = head.split(b"\n")
    whole = lines if len(head) < HEAD_BYTES else lines[:-1]
    return [keys for keys in map(_keys, whole) if keys is not None]


def _keys(line: bytes) -> list[str] | None:
    """The keys of a JSON object; None if the line is none."""
    try:
        return list(_KEYS.decode(line))
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None
