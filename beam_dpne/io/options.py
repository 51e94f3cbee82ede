"""What a reader needs to know: the format, the fields, and the limits."""

import dataclasses
from collections.abc import Sequence

from beam_dpne.input_description import InputDescription, names_of

FORMATS = ("jsonl", "csv", "tsv", "parquet", "sequences")
_EXTENSIONS = {
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".csv": "csv",
    ".tsv": "tsv",
    ".parquet": "parquet",
}
_CODECS = {".gz": "gzip", ".bz2": "bz2", ".zst": "zstd", ".zstd": "zstd"}
_MEBIBYTE = 2**20
_MAX_RECORD_BYTES = 2**30


class InputError(ValueError):
    """An input cannot be read as asked; the message holds no data of it."""


def codec_of(path: str) -> str | None:
    """The compression that a path's extension stands for.

    >>> codec_of("a.csv.gz"), codec_of("a.csv")
    ('gzip', None)
    """
    return next((codec for end, codec in _CODECS.items() if path.lower().endswith(end)), None)


def format_of(path: str, input_format: str = "auto") -> str:
    """The format of a file: what was asked for, or what its extension stands for.

    Args:
      path: Path or glob; the extension of a compression is looked through.
      input_format: One of `FORMATS`, or `auto`.

    Returns:
      One of `FORMATS`; `auto` never is `sequences`.

    Raises:
      InputError: The extension says nothing, or Parquet is said to be compressed from outside.

    >>> format_of("gs://bucket/day-*.JSONL.zst")
    'jsonl'
    """
    name = path.lower()
    codec = next((end for end in _CODECS if name.endswith(end)), "")
    name = name.removesuffix(codec)
    by_extension = (kind for end, kind in _EXTENSIONS.items() if name.endswith(end))
    found = next(by_extension, None) if input_format == "auto" else input_format
    if found is None:
        raise InputError(
            f"input must have an extension that tells its format ({', '.join(_EXTENSIONS)}; "
            f"before {', '.join(_CODECS)}), got {path}. Name one of the formats "
            f"{', '.join(FORMATS)} with --input_format."
        )
    if found == "parquet" and codec:
        raise InputError(
            f"Parquet must not be compressed from outside, got {path}. Decompress it; Parquet "
            "compresses its own columns."
        )
    return found


def has_glob(pattern: str) -> bool:
    """Whether a pattern may match several files."""
    return any(sign in pattern for sign in "*?[")


@dataclasses.dataclass(frozen=True, kw_only=True)
class ReadOptions:
    """How inputs are read; see `ReadDocuments` for the meaning of each field."""

    input_format: str = "auto"
    user_field: str = "user"
    text_field: str = "text"
    columns: Sequence[str] | None = None
    max_record_bytes: int = 16 * _MEBIBYTE
    text_is_tokens: bool = False
    block_bytes: int = 8 * _MEBIBYTE
    split_bytes: int = 64 * _MEBIBYTE

    def __post_init__(self) -> None:
        if self.input_format not in ("auto", *FORMATS):
            raise ValueError(
                f"input_format must be auto or one of {', '.join(FORMATS)}, got "
                f"input_format={self.input_format!r}."
            )
        for name in ("max_record_bytes", "block_bytes", "split_bytes"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1, got {name}={getattr(self, name)}.")
        if self.max_record_bytes > _MAX_RECORD_BYTES:
            raise ValueError(
                f"max_record_bytes must be at most {_MAX_RECORD_BYTES}, got "
                f"max_record_bytes={self.max_record_bytes}."
            )
        if self.input_format != "auto":
            self.check_tokens(self.input_format)
        self._check_fields()

    @property
    def description(self) -> InputDescription:
        """How records become documents, in public words."""
        details = {}
        if self.columns is not None:
            details["columns"] = ",".join(self.columns)
        if self.max_record_bytes != ReadOptions.max_record_bytes:
            details["max_record_bytes"] = str(self.max_record_bytes)
        return InputDescription(
            user_field=self.user_field,
            text_fields=names_of(self.text_field),
            format=self.input_format,
            details=tuple(sorted(details.items())),
        )

    def check_tokens(self, kind: str) -> None:
        """Raises if texts are to be lists of tokens, which this format cannot hold."""
        if self.text_is_tokens and kind not in ("jsonl", "parquet"):
            raise InputError(
                f"text_is_tokens must be False for {kind}, which holds plain text, got "
                "text_is_tokens=True (tokenizer 'tokens'). Use tokenizer 'whitespace'."
            )

    def _check_fields(self) -> None:
        """Raises if the two fields cannot be told apart or found."""
        for name in ("user_field", "text_field"):
            value = getattr(self, name)
            if not value or any(sign in '"\\' or ord(sign) < 0x20 for sign in value):
                raise ValueError(
                    f"{name} must be a name without quotes, backslashes and control characters, "
                    f"got {name}={value!r}."
                )
        if self.user_field == self.text_field:
            raise ValueError(
                "user_field and text_field must differ, got "
                f"user_field=text_field={self.user_field!r}."
            )
        if self.columns is not None:
            self._check_columns(tuple(self.columns))

    def _check_columns(self, columns: tuple[str, ...]) -> None:
        """Raises unless each wanted field is exactly one of the columns."""
        for name in (self.user_field, self.text_field):
            if columns.count(name) != 1:
                raise ValueError(
                    f"columns must hold the field {name!r} once, got columns={','.join(columns)}. "
                    "Name every column of the file in order, or change --user_field or "
                    "--text_field."
                )
