"""ReadOptions has the format, fields and limits of the input; InputDescription is its public part."""

import dataclasses
import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Annotated

from beam_dpne.errors import InputError
from beam_dpne.validation import Parameter, Parameters


@dataclasses.dataclass(frozen=True, kw_only=True)
class InputDescription:
    """How records become documents. It is public and part of the ledger, and run keys are bound to it.

    It holds names that the operator chose, but no path and nothing that was read. Two runs with
    different descriptions may read different documents from the same files, so they must not share
    noise.

    Attributes:
      user_field: Name of the field that holds the user; it defines the privacy unit.
      text_fields: Names of the fields that hold text; each text is a document of the user.
      format: Format of the files (see `FORMATS`), "auto" for the format of their extension, or "rows"
        for the elements of a pipeline.
      details: Other options that decide how files are read (encoding, delimiter, quoting, columns), as
        pairs of the option's name and its value as text, sorted by name; defaults are left out. Rows
        that come from files through other steps have the description of each reader instead.

    Example:
      >>> InputDescription(user_field="customer", text_fields=("subject", "body")).to_dict()
      {'user_field': 'customer', 'text_fields': ['subject', 'body'], 'format': 'rows', 'details': {}}
    """

    user_field: str = "user"
    text_fields: tuple[str, ...] = ("text",)
    format: str = "rows"
    details: tuple[tuple[str, str], ...] = ()

    def to_dict(self) -> dict[str, object]:
        """Returns the description as JSON types, in the order of its attributes."""
        return {
            "user_field": self.user_field,
            "text_fields": list(self.text_fields),
            "format": self.format,
            "details": dict(self.details),
        }


def description_of_rows(user_field: str, text_field: str | Sequence[str]) -> InputDescription:
    """Returns the description of a pipeline's elements with these fields.

    >>> description_of_rows("user", "text") == InputDescription()
    True
    """
    return InputDescription(user_field=user_field, text_fields=names_of(text_field))


def names_of(text_field: str | Sequence[str]) -> tuple[str, ...]:
    """Returns the names of the text fields as a tuple, from one name or several.

    >>> names_of("text"), names_of(["subject", "body"])
    (('text',), ('subject', 'body'))
    """
    return (text_field,) if isinstance(text_field, str) else tuple(text_field)


FORMATS = ("json", "jsonl", "csv", "tsv", "parquet", "sequences")
QUOTINGS = ("auto", "quoted", "none")
DELIMITERS: Mapping[str, str] = {
    "comma": ",",
    "semicolon": ";",
    "tab": "\t",
    "pipe": "|",
    "colon": ":",
    "space": " ",
    "\\t": "\t",
}
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
_JSON = ("json", "jsonl")
_DELIMITED = ("csv", "tsv")
_MEBIBYTE = 2**20
_DEFAULT_RECORD_BYTES = 16 * _MEBIBYTE
_MAX_RECORD_BYTES = 2**30
_FIELD = r"[^\x00-\x1f\"\\]+"
_FIELD_NAME = "a name without quotes, backslashes and control characters"


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


def _canonical(encoding: str) -> str:
    # The parameters are checked before Beam is loaded, which the module of encodings needs.
    from beam_dpne.reading.encodings import canonical_encoding

    return canonical_encoding(encoding)


@dataclasses.dataclass(frozen=True, kw_only=True)
class ReadOptions(Parameters):
    """How inputs are read."""

    input_format: Annotated[
        str,
        Parameter(
            choices=("auto", *FORMATS),
            help="Format of the input. auto chooses by the extension, which fits most files. "
            "jsonl has one object in each line. json is one array of objects, or one object in "
            "each line. sequences has one user in each line, whose tokens are separated by "
            "blanks. With a wrong format the fields are not found and the run is refused, or its "
            "records are rejected.",
        ),
    ] = "auto"
    user_field: Annotated[
        str,
        Parameter(
            pattern=_FIELD,
            requirement=_FIELD_NAME,
            help="Field that names the user of a record, e.g. user_id. All records with the same "
            "value are protected together, so the value must identify one person; otherwise the "
            "guarantee protects something else. A field that does not exist is refused.",
        ),
    ] = "user"
    text_field: Annotated[
        str | Sequence[str],
        Parameter(
            pattern=_FIELD,
            requirement=_FIELD_NAME,
            help="Field that holds the text of a record, e.g. body, or several of them: each text "
            "is then a document of its user, and a text that is null or missing is skipped. A "
            "field that does not exist is refused.",
        ),
    ] = "text"
    encoding: Annotated[
        str | None,
        Parameter(
            pattern="[A-Za-z0-9][A-Za-z0-9_.-]*",
            requirement="the name of an encoding",
            default_text="UTF-8; UTF-16 by byte order mark in CSV and TSV with a header, and in "
            "JSON",
            help="Encoding of files other than Parquet, by Python's name, e.g. latin-1, cp1252, "
            "utf-16-le or shift_jis. Records that cannot be decoded are rejected. An encoding in "
            "which one text may change how later lines are read, e.g. iso2022_jp, is refused.",
        ),
    ] = None
    delimiter: Annotated[
        str | None,
        Parameter(
            pattern=r"[\x01-\x09\x0b\x0c\x0e-!#-\x7f]|\\t|comma|semicolon|tab|pipe|colon|space",
            requirement="one ASCII character other than a quote, a line end and NUL, or one of "
            "comma, semicolon, tab, pipe, colon, space",
            default_text="comma; TSV tab",
            rare=True,
            help="Character between the fields of CSV or TSV files, or its name: comma, "
            "semicolon, tab, pipe, colon or space. It is refused for other formats.",
        ),
    ] = None
    quoting: Annotated[
        str,
        Parameter(
            choices=QUOTINGS,
            rare=True,
            help="Whether the fields of CSV or TSV files may be enclosed in quotes. auto allows "
            "quotes in CSV; in TSV it reads a quote as an ordinary character, and refuses a file "
            "whose fields are enclosed in quotes. quoted allows them in both formats, and none in "
            "neither. quoted and none are refused for other formats.",
        ),
    ] = "auto"
    columns: Annotated[
        Sequence[str] | None,
        Parameter(
            rare=True,
            help="Names of all columns, in order, of CSV or TSV files that have no header line. "
            "Leave it out for files with a header line, which would otherwise be read as a record.",
        ),
    ] = None
    max_record_bytes: Annotated[
        int,
        Parameter(
            least=1,
            most=_MAX_RECORD_BYTES,
            rare=True,
            help="Size in bytes above which a record is rejected. It bounds the memory that a "
            "worker needs at once. The default fits nearly every text.",
        ),
    ] = _DEFAULT_RECORD_BYTES
    text_is_tokens: bool = False
    fields: Sequence[str] | None = None
    block_bytes: int = 8 * _MEBIBYTE
    split_bytes: int = 64 * _MEBIBYTE

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("block_bytes", "split_bytes"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1, got {name}={getattr(self, name)}.")
        if self.encoding is not None:
            _canonical(self.encoding)
        if self.input_format != "auto":
            self.check_kind(self.input_format)
        self._check_fields()

    @property
    def text_fields(self) -> tuple[str, ...]:
        """Names of the fields that hold text; each text is a document."""
        return names_of(self.text_field)

    @property
    def wanted_fields(self) -> tuple[tuple[str, str], ...]:
        """Pairs of a parameter and the field that it names: the user's, the texts', the others."""
        texts = (("text_field", name) for name in self.text_fields)
        others = (("fields", name) for name in self.fields or ())
        return (("user_field", self.user_field), *texts, *others)

    @property
    def record_names(self) -> tuple[str, ...] | None:
        """Names of the columns of records, or None if records become documents at once."""
        return None if self.fields is None else tuple(name for _, name in self.wanted_fields)

    @property
    def delimiter_character(self) -> str | None:
        """The delimiter as a character, or None for the default of the format."""
        return None if self.delimiter is None else DELIMITERS.get(self.delimiter, self.delimiter)

    @property
    def description(self) -> InputDescription:
        """How records become documents. It is public, since no part of it is read from the files.

        Options with which the same files may give different documents have different descriptions.
        """
        details = {
            "encoding": self.encoding and _canonical(self.encoding),
            "delimiter": self.delimiter_character,
            "quoting": None if self.quoting == "auto" else self.quoting,
            "columns": self.columns and json.dumps(list(self.columns)),
            # A further field may be the reason why a record is rejected.
            "fields": self.fields and json.dumps(list(self.fields)),
        }
        if self.max_record_bytes != _DEFAULT_RECORD_BYTES:
            details["max_record_bytes"] = str(self.max_record_bytes)
        return InputDescription(
            user_field=self.user_field,
            text_fields=self.text_fields,
            format=self.input_format,
            details=tuple(sorted((name, value) for name, value in details.items() if value)),
        )

    def describe(self, paths: Iterable[str]) -> InputDescription:
        """Returns the description with `auto` replaced by the formats of these files."""
        kinds = {format_of(path, self.input_format) for path in paths}
        return dataclasses.replace(self.description, format=", ".join(sorted(kinds)))

    def check_kind(self, kind: str) -> None:
        """Raises InputError if a parameter is not possible with this format."""
        if self.fields is not None and kind == "sequences":
            raise InputError(
                "fields must not be given for sequences, whose lines have no fields. Leave fields out, "
                "or name another format."
            )
        if self.text_is_tokens and kind not in (*_JSON, "parquet"):
            raise InputError(
                f"text_is_tokens must be False for {kind}, which holds plain text, got "
                "text_is_tokens=True (tokenizer 'tokens'). Use the tokenizer 'whitespace'."
            )
        if self.encoding is not None and kind == "parquet":
            raise InputError(
                f"encoding must not be given for parquet, whose texts are UTF-8 by definition, got "
                f"encoding={self.encoding!r}. Leave encoding out."
            )
        for name, default in (("delimiter", None), ("quoting", "auto")):
            value = getattr(self, name)
            if value != default and kind not in _DELIMITED:
                raise InputError(
                    f"{name} must be given for csv and tsv only, got {name}={value!r} for {kind}. "
                    f"Leave {name} out, or name the format with input_format."
                )

    def _check_fields(self) -> None:
        """Raises ValueError if fields have malformed or equal names, or are not among the columns."""
        for name, value in self.wanted_fields:
            if not value or any(sign in '"\\' or ord(sign) < 0x20 for sign in value):
                raise ValueError(
                    f"{name} must be a name without quotes, backslashes and control characters, "
                    f"got {name}={value!r}."
                )
        if self.user_field in self.text_fields:
            raise ValueError(
                "user_field and text_field must differ, got "
                f"user_field=text_field={self.user_field!r}."
            )
        if len(set(self.text_fields)) < len(self.text_fields):
            raise ValueError(
                "text_field must name each field once, got "
                f"text_field={','.join(self.text_fields)}."
            )
        if isinstance(self.fields, str):
            raise ValueError(f"fields must be a list of names, got fields={self.fields!r}.")
        if len({name for _, name in self.wanted_fields}) < len(self.wanted_fields):
            raise ValueError(
                "fields must name each field once, and neither user_field nor text_field, got "
                f"fields={','.join(self.fields or ())}."
            )
        for _, name in self.wanted_fields:
            if self.columns is not None and list(self.columns).count(name) != 1:
                raise ValueError(
                    f"columns must have the field {name!r} once, got "
                    f"columns={','.join(self.columns)}. Name every column of the file in order, or "
                    "change user_field or text_field."
                )
