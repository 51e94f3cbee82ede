"""ReadOptions has the format, fields and limits of the input; InputDescription is its public part."""

import dataclasses
import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Annotated

from beam_dpne.errors import InputError
from beam_dpne.reading.formats import FORMATS, canonical_encoding, format_of
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
_JSON = {"json", "jsonl"}
_DELIMITED = {"csv", "tsv"}
_MEBIBYTE = 2**20
_DEFAULT_RECORD_BYTES = 16 * _MEBIBYTE
_MAX_RECORD_BYTES = 2**30
_FIELD = r"[^\x00-\x1f\"\\]+"
_FIELD_NAME = "a name without quotes, backslashes and control characters"


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
            "quotes in CSV, and reads a quote in TSV as an ordinary character. quoted allows them in "
            "both formats, and none in neither. quoted and none are refused for other formats.",
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
            canonical_encoding(self.encoding)
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

    def delimiter_of(self, kind: str) -> str:
        """Returns the character between the fields of a format, `csv` or `tsv`."""
        usual = "," if kind == "csv" else "\t"
        return usual if self.delimiter is None else DELIMITERS.get(self.delimiter, self.delimiter)

    def is_quoted(self, kind: str) -> bool:
        """Returns whether the fields of a format may be enclosed in quotes."""
        return self.quoting == "quoted" or (self.quoting == "auto" and kind == "csv")

    @property
    def description(self) -> InputDescription:
        """How records become documents. It is public, since no part of it is read from the files.

        Options with which the same files may give different documents have different descriptions.
        """
        details = {
            "encoding": self.encoding and canonical_encoding(self.encoding),
            "delimiter": self.delimiter and self.delimiter_of("csv"),
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
        for name, is_given, kinds in (
            ("fields", self.fields is not None, set(FORMATS) - {"sequences"}),
            (
                "text_is_tokens (tokenizer 'tokens'; 'whitespace' is for plain text)",
                self.text_is_tokens,
                {*_JSON, "parquet"},
            ),
            ("encoding", self.encoding is not None, set(FORMATS) - {"parquet"}),
            ("delimiter", self.delimiter is not None, _DELIMITED),
            ("quoting", self.quoting != "auto", _DELIMITED),
        ):
            if is_given and kind not in kinds:
                raise InputError(
                    f"{name} must be given for {', '.join(sorted(kinds))} only, got a file of {kind}. "
                    "Leave it out, or name the format with input_format."
                )

    def _check_fields(self) -> None:
        """Raises ValueError if fields have malformed or equal names, or are not among the columns."""
        if isinstance(self.fields, str) or not self.text_fields:
            raise ValueError(
                "text_field must name at least one field, and fields must be a list of names, got "
                f"text_field={self.text_field!r} and fields={self.fields!r}."
            )
        seen: dict[str, str] = {}
        for option, name in self.wanted_fields:
            if not name or any(sign in '"\\' or ord(sign) < 0x20 for sign in name):
                raise ValueError(
                    f"{option} must be a name without quotes, backslashes and control characters, "
                    f"got {option}={name!r}."
                )
            if name in seen:
                raise ValueError(
                    f"{option} must name a field that {seen[name]} does not name, and each field once, "
                    f"got {option}={name!r}."
                )
            seen[name] = option
            if self.columns is not None and list(self.columns).count(name) != 1:
                raise ValueError(
                    f"columns must have the field {name!r} once, got "
                    f"columns={','.join(self.columns)}. Name every column of the file in order, or "
                    "change user_field or text_field."
                )
