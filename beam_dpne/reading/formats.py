"""Formats of files by their extensions, and the encodings of text files."""

import codecs
import contextlib

from beam_dpne.errors import InputError

FORMATS = ("json", "jsonl", "csv", "tsv", "parquet", "sequences")
# Encodings without a state that outlasts a line. With such a state, one user's text could change how
# the lines of all later users are read, and no bound on a user's contribution would hold.
ENCODINGS = (
    *("utf-8", "utf-8-sig", "utf-16", "utf-16-le", "utf-16-be", "ascii"),
    *(f"iso8859-{part}" for part in (*range(1, 12), *range(13, 17))),
    *(f"cp{page}" for page in (437, 850, 852, 866, 874, *range(1250, 1259))),
    *("koi8-r", "koi8-u", "mac-roman", "cp932", "shift_jis", "euc_jp", "cp949", "euc_kr"),
    *("gb2312", "gbk", "gb18030", "big5"),
)
_EXTENSIONS = {
    ".json": "json",
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".csv": "csv",
    ".tsv": "tsv",
    ".parquet": "parquet",
}
_CODECS = {".gz": "gzip", ".bz2": "bz2", ".zst": "zstd", ".zstd": "zstd"}
_ARCHIVES = (".zip", ".tar", ".tgz", ".7z", ".rar")


def codec_of(path: str) -> str | None:
    """Returns the compression that a path's extension stands for, or None.

    >>> codec_of("a.csv.gz"), codec_of("a.csv")
    ('gzip', None)
    """
    return _CODECS.get(_split_compression(path)[1])


def _split_compression(path: str) -> tuple[str, str]:
    """Returns a path in lower case without its extension for compression, and that extension or ""."""
    name = path.lower()
    compression = next((end for end in _CODECS if name.endswith(end)), "")
    return name.removesuffix(compression), compression


def format_of(path: str, input_format: str = "auto") -> str:
    """Returns the format of a file, which is the option or, with `auto`, that of its extension.

    Args:
      path: Path or glob; an extension for compression is ignored.
      input_format: One of `FORMATS`, or `auto`.

    Returns:
      One of `FORMATS`; with `auto` never `sequences`.

    Raises:
      InputError: The extension is unknown or that of an archive, or it is that of a compressed
        Parquet file.

    >>> format_of("gs://bucket/day-*.JSONL.zst")
    'jsonl'
    """
    name, compression = _split_compression(path)
    if name.endswith(_ARCHIVES):
        raise InputError(
            f"input must be files, not an archive of files, got {path}. Unpack it, and name the "
            "folder or the files; single files may be compressed with gzip, bzip2 or zstd."
        )
    by_extension = (kind for end, kind in _EXTENSIONS.items() if name.endswith(end))
    found = next(by_extension, None) if input_format == "auto" else input_format
    if found is None:
        raise InputError(
            f"input must have the extension of a format ({', '.join(_EXTENSIONS)}, with or without one "
            f"of {', '.join(_CODECS)} after it), got {path}. Name one of the formats "
            f"{', '.join(FORMATS)} with input_format."
        )
    if found == "parquet" and compression:
        raise InputError(
            f"Parquet files must not be compressed as a whole, got {path}. Decompress the file, since "
            "Parquet compresses its columns itself."
        )
    return found


def has_glob(pattern: str) -> bool:
    """Returns whether a pattern may match several files."""
    return any(sign in pattern for sign in "*?[")


def extension_of(path: str) -> str:
    """Returns a path's extension in lower case, with the one for compression, or "" if it has none.

    >>> extension_of("gs://bucket/v1.2/a.CSV.gz"), extension_of("notes")
    ('.csv.gz', '')
    """
    name, compression = _split_compression(path)
    _, dot, last = name.replace("\\", "/").rpartition("/")[2].rpartition(".")
    return dot + last + compression if dot else compression


def may_be_folder(path: str) -> bool:
    """Returns whether a path may be that of a folder, as it has no extension or ends with a slash."""
    return not extension_of(path.rstrip("/")) or path.endswith("/")


def canonical_encoding(name: str) -> str:
    """Returns Python's name of an encoding of `ENCODINGS`.

    Raises:
      ValueError: The encoding is another one.

    >>> canonical_encoding("Latin-1"), canonical_encoding("UTF8")
    ('iso8859-1', 'utf-8')
    """
    with contextlib.suppress(LookupError, ValueError):
        found = codecs.lookup(name).name
        if found in ENCODINGS:
            return found
    raise ValueError(
        "encoding must be one in which each line can be read alone, got "
        f"encoding={name!r}. Possible are {', '.join(ENCODINGS)}. Convert other files to utf-8."
    )
