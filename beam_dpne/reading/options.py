"""Options of the input: formats of files, encodings, fields and limits, and what a ledger says of them.

A format has its name in `FORMATS`, its extensions in `_EXTENSIONS`, and its reader in `records`.
"""

import dataclasses
import json
from collections.abc import Container, Iterable, Sequence
from typing import Annotated

from beam_dpne.errors import InputError
from beam_dpne.reading.encodings import canonical_encoding
from beam_dpne.reading.version_names import VERSION_OF_DELTA, VERSION_OF_ICEBERG
from beam_dpne.validation import (
    MEMBER,
    MOST_TOLD,
    Parameter,
    Parameters,
    told_name,
    told_value,
)

_EXTENSIONS = {
    ".json": "json",
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".csv": "csv",
    ".tsv": "tsv",
    ".parquet": "parquet",
    ".mbox": "mbox",
}
# Formats with columns in lines, to which the parameters delimiter, quoting and columns belong.
DELIMITED = ("csv", "tsv")
# Formats of which input_format may name another one than the extension of a file.
_ALIKE = (DELIMITED, ("json", "jsonl"))
FORMATS = (*dict.fromkeys(_EXTENSIONS.values()), "sequences")
_CODECS = {".gz": "gzip", ".bz2": "bz2", ".zst": "zstd", ".zstd": "zstd"}
_CODECS |= {".xz": "xz", ".zip": "zip"}
_DELIMITERS = {"comma": ",", "semicolon": ";", "tab": "\t", "pipe": "|", "colon": ":", "space": " "}
_DELIMITERS["\\t"] = "\t"
_MEBIBYTE = 2**20
_DEFAULT_RECORD_BYTES = 16 * _MEBIBYTE
_FIELD = r"[^\x00-\x1f]+"
_FIELD_NAME = "a name without control characters"


def codec_of(path: str) -> str | None:
    """Returns the compression that a path's extension stands for, or None.

    >>> codec_of("a.csv.gz"), codec_of("a.csv")
    ('gzip', None)
    """
    return next((codec for end, codec in _CODECS.items() if path.lower().endswith(end)), None)


def extension_of(path: str) -> str:
    """Returns a path's extension in lower case without the one for compression, or "".

    >>> extension_of("gs://bucket/v1.2/a.CSV.gz"), extension_of("v1.2/notes")
    ('.csv', '')
    """
    name = path.lower().replace("\\", "/").rpartition("/")[2]
    stem, dot, last = name.rpartition(".")
    if dot + last in _CODECS:
        _, dot, last = stem.rpartition(".")
    return dot + last if dot else ""


def format_of(path: str, input_format: str = "auto") -> str:
    """Returns the format of a file, which is the option or, with `auto`, that of its extension.

    Args:
      path: Path or glob; an extension for compression is ignored.
      input_format: One of `FORMATS`, or `auto`.

    Raises:
      InputError: The extension is unknown, or that of a compressed Parquet file, or that of a format
        whose files cannot be read as `input_format`.

    >>> format_of("gs://bucket/day-*.JSONL.zst"), format_of("a.tsv", "csv")
    ('jsonl', 'csv')
    """
    is_table = VERSION_OF_DELTA.fullmatch(path) or VERSION_OF_ICEBERG.fullmatch(path)
    named = "parquet" if is_table else _EXTENSIONS.get(extension_of(path))
    found = named if input_format == "auto" else input_format
    if found is None or (found == "parquet" and codec_of(path)):
        raise InputError(
            f"`input` must have the extension of a format ({', '.join(_EXTENSIONS)}), and after "
            f"it, but for Parquet, may have one of {', '.join(_CODECS)}, e.g. notes.csv.zip, got "
            f"{path}. Unpack an archive, save a spreadsheet as CSV, and write XML or a chat in plain "
            f"text as lines of JSON; for other names give one of {', '.join(FORMATS)} with "
            "`input_format`."
        )
    if named is not None and not _may_be(named, found):
        # Lines of JSON that were cut at commas would make many users of one person.
        raise InputError(
            f"`input_format` must be a format that {path} may have by its name, got "
            f"`input_format={found!r}`. Leave it out, or give the file the extension of its format."
        )
    return found


def _may_be(named: str, wanted: str) -> bool:
    """Whether a file whose extension names one format may be read as another one."""
    return named == wanted or any(named in alike and wanted in alike for alike in _ALIKE)


def names_of(named: str | Sequence[str]) -> tuple[str, ...]:
    """Returns the names of fields as a tuple, from one name or several.

    >>> names_of("text"), names_of(["subject", "body"])
    (('text',), ('subject', 'body'))
    """
    return (named,) if isinstance(named, str) else tuple(named)


def one_or_several(names: tuple[str, ...]) -> str | tuple[str, ...]:
    """Returns the one name, or the names if there are several: the inverse of `names_of`."""
    return names[0] if len(names) == 1 else names


@dataclasses.dataclass(frozen=True, kw_only=True)
class InputDescription:
    """How records become documents. It is public and part of the ledger, and run keys are bound to it.

    It holds names that the operator chose, but no path and nothing that was read. Two runs with
    different descriptions may read different documents from the same files, so they must not share
    noise.

    Attributes:
      user_field: Name of the field that holds the user, or names of several that do so together; it
        defines the privacy unit.
      text_fields: Names of the fields that hold text; each text is a document of the user.
      group_field: Name of the field that holds the group of a document, or None without groups.
      format: Format of the files (see `FORMATS`), "auto" for the format of their extension, "parquet"
        of a frame, which is read as such a file, or "rows" for the elements of a pipeline.
      details: Other options that decide how files are read (encoding, delimiter, quoting, columns), as
        pairs of the option's name and its value as text, sorted by name; defaults are left out. Rows
        that come from files through other steps have the description of each reader instead.

    Example:
      >>> InputDescription(user_field="customer", text_fields=("subject", "body")).to_dict()
      {'user_field': 'customer', 'text_fields': ['subject', 'body'], 'format': 'rows', 'details': {}}
    """

    user_field: str | tuple[str, ...] = "user"
    text_fields: tuple[str, ...] = ("text",)
    group_field: str | None = None
    format: str = "rows"
    details: tuple[tuple[str, str], ...] = ()

    def to_dict(self) -> dict[str, object]:
        """Returns the description as JSON types, without a group if there is none."""
        users = self.user_field
        described: dict[str, object] = {
            "user_field": users if isinstance(users, str) else list(users),
            "text_fields": list(self.text_fields),
        }
        if self.group_field is not None:
            described["group_field"] = self.group_field
        described["format"] = self.format
        described["details"] = dict(self.details)
        return described


@dataclasses.dataclass(frozen=True, kw_only=True)
class ReadOptions(Parameters):
    """How inputs are read.

    Attributes:
      text_is_tokens: Whether texts are lists of tokens (JSON and Parquet).
      group_field: Field that holds the group of a record, or None.
      fields: Further fields, for steps that look at them before the texts become documents. With a
        list, even an empty one, each record is one row of a batch with the columns `user_field`, each
        of `text_field`, and these fields, all under their names in the files.
      block_bytes: Bytes of decompressed text in one batch, about.
      split_bytes: Bytes of one piece of work, about.
    """

    input_format: Annotated[
        str,
        Parameter(
            choices=("auto", *FORMATS),
            help="Format of the input; auto goes by the extension. jsonl has one object a line, json "
            "that or one array of objects, mbox messages, and sequences one user a line with tokens "
            "between blanks.",
        ),
    ] = "auto"
    user_field: Annotated[
        str | Sequence[str],
        Parameter(
            pattern=_FIELD,
            requirement=_FIELD_NAME,
            essential=True,
            commas=True,
            help="Field with the user of a record. All records with one value are protected together, "
            "so it must identify a person. Several fields with commas between them are one user by "
            "all of their values, e.g. tenant,id; with a period, as in user,month, a person is "
            "protected within each period.",
        ),
    ] = "user"
    text_field: Annotated[
        str | Sequence[str],
        Parameter(
            pattern=_FIELD,
            requirement=_FIELD_NAME,
            essential=True,
            help="Field with the text, or several. Each text is then a document of the record's "
            "user, and a text that is null or missing is skipped.",
        ),
    ] = "text"
    normalize_users: Annotated[
        bool,
        Parameter(
            in_short_help=False,
            help="Makes ids of users one that differ only in blanks at their ends, in composed or "
            "decomposed letters (NFC), or in invisible format characters. Otherwise ids are exact.",
        ),
    ] = False
    record_is_user: Annotated[
        bool,
        Parameter(
            in_short_help=False,
            help="Makes each record a user of its own, where there are no ids. A record is protected "
            "then, and a person with several records is not.",
        ),
    ] = False
    encoding: Annotated[
        str | None,
        Parameter(
            pattern="[A-Za-z0-9][A-Za-z0-9_.-]*",
            requirement="the name of an encoding",
            default_text="UTF-8; UTF-16 by byte order mark in CSV and TSV with a header, and in JSON",
            help="Encoding of files other than Parquet, by Python's name, e.g. cp1252 or utf-16-le.",
        ),
    ] = None
    delimiter: Annotated[
        str | None,
        Parameter(
            names=tuple(_DELIMITERS),
            pattern=r"[\x01-\x09\x0b\x0c\x0e-!#-\x7f]|\\t|comma|semicolon|tab|pipe|colon|space",
            requirement="one ASCII character other than a quote, a line end and NUL, or one of "
            "comma, semicolon, tab, pipe, colon, space",
            default_text="comma; TSV tab",
            in_short_help=False,
            help="Character between the fields of CSV or TSV files, or its name, e.g. semicolon.",
        ),
    ] = None
    quoting: Annotated[
        str,
        Parameter(
            choices=("auto", "quoted", "backslash", "none"),
            in_short_help=False,
            help="Whether fields of CSV or TSV files may be enclosed in quotes; auto is quoted for "
            "CSV and none for TSV. quoted says that quotes in fields are doubled, also where a field "
            "ends with a backslash; backslash says that they are escaped by backslashes, as Spark, "
            "Hive and MySQL do.",
        ),
    ] = "auto"
    columns: Annotated[
        Sequence[str] | None,
        Parameter(
            in_short_help=False,
            help="Names of all columns, in order, of CSV or TSV files that have no header line.",
        ),
    ] = None
    max_record_bytes: Annotated[
        int,
        Parameter(
            least=1,
            most=2**30,
            in_short_help=False,
            help="Size in bytes above which a record is rejected; it bounds a worker's memory.",
        ),
    ] = _DEFAULT_RECORD_BYTES
    records: Annotated[
        str | None,
        Parameter(
            pattern=_FIELD,
            requirement=_FIELD_NAME,
            value="FIELD",
            in_short_help=False,
            default_text="a file is an array, or has one record a line",
            help="List of the records in a JSON file that is one object, e.g. statuses or "
            "chats.list[].messages.",
        ),
    ] = None
    where: Annotated[
        str | Sequence[str] | None,
        Parameter(
            pattern=rf"[^\x00-\x1f=]+=({MEMBER}|({MEMBER})?(,({MEMBER})?)+)",
            requirement="a field, then =, then values with commas between them, as in a line of CSV",
            value="FIELD=VALUES",
            in_short_help=False,
            help="Condition for a text: a field beside it, or around it, has one of these values, e.g. "
            "conversation.role=user,system, quoted if they have commas. Of several all must hold.",
        ),
    ] = None
    text_is_tokens: bool = False
    group_field: str | None = None
    fields: Sequence[str] | None = None
    block_bytes: int = 8 * _MEBIBYTE
    split_bytes: int = 64 * _MEBIBYTE

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.encoding is not None:
            canonical_encoding(self.encoding)
        if self.input_format != "auto":
            self.check_kind(self.input_format)
        if isinstance(self.fields, str):
            raise ValueError(f"fields must be a list of names, got fields={self.fields!r}.")
        if self.record_is_user and (self.normalize_users or self.user_field != "user"):
            raise ValueError(
                "`record_is_user` must be given without `user_field` and `normalize_users`, since "
                f"no id is read then, got `user_field={told_value(self.user_field)}`."
            )
        for option, name in self.wanted_fields:
            given = [each for each, own in self.column_fields if own == name]
            if len(given) > 1:
                got = " and ".join(f"`{each}={told_name(name)}`" for each in given[:2])
                if len(self.wanted_fields) > MOST_TOLD:
                    got = f"one of {len(self.wanted_fields):,} names several times"
                raise ValueError(f"name each field once, got {got}.")
            if self.columns and list(self.columns).count(name) != 1:
                raise ValueError(
                    f"`{option}={told_name(name)}` must stand once in "
                    f"`columns={told_value(self.columns)}`."
                )

    @property
    def text_fields(self) -> tuple[str, ...]:
        """Names of the fields that hold text; each text is a document."""
        return names_of(self.text_field)

    @property
    def user_fields(self) -> tuple[str, ...]:
        """Names of the columns of users: one, or several whose values are a user together."""
        return names_of(self.user_field)

    @property
    def has_plain_users(self) -> bool:
        """Whether users are the values of their fields as they are."""
        return not (self.record_is_user or self.normalize_users)

    @property
    def column_fields(self) -> tuple[tuple[str, str], ...]:
        """The wanted fields, with that of the user in front also if it is not read."""
        named = self.wanted_fields
        return (("user_field", "user"), *named) if self.record_is_user else named

    @property
    def wanted_fields(self) -> tuple[tuple[str, str], ...]:
        """Pairs of a parameter and its field: the user's, the texts', the group's, the others."""
        users = () if self.record_is_user else (("user_field", name) for name in self.user_fields)
        texts = (("text_field", name) for name in self.text_fields)
        group = (("group_field", name) for name in (self.group_field,) if name is not None)
        others = (("fields", name) for name in self.fields or ())
        return (*users, *texts, *group, *others)

    @property
    def conditions(self) -> tuple[str, ...]:
        """The conditions for texts, each as a field, = and its values."""
        return () if self.where is None else names_of(self.where)

    def needs_paths(self, plain: Container[str]) -> bool:
        """Returns whether fields must be looked for by paths, since not all have these plain names."""
        return bool(self.conditions) or any(name not in plain for _, name in self.wanted_fields)

    def delimiter_of(self, kind: str) -> str:
        """Returns the character between the fields of a format, `csv` or `tsv`."""
        usual = "," if kind == "csv" else "\t"
        return usual if self.delimiter is None else _DELIMITERS.get(self.delimiter, self.delimiter)

    def other_delimiters(self, kind: str) -> dict[str, str]:
        """Returns usual characters between fields but that of a format, by their names."""
        usual = {name: _DELIMITERS[name] for name in ("comma", "semicolon", "tab", "pipe")}
        own = self.delimiter_of(kind)
        return {name: sign for name, sign in usual.items() if sign != own}

    def is_quoted(self, kind: str) -> bool:
        """Returns whether the fields of a format may be enclosed in quotes, as in CSV and TSV."""
        return kind in DELIMITED and (
            self.quoting in ("quoted", "backslash") or (self.quoting == "auto" and kind == "csv")
        )

    @property
    def description(self) -> InputDescription:
        """How records become documents. It is public, since no part of it is read from the files.

        Options with which the same files may give different documents have different descriptions.
        """
        size = self.max_record_bytes
        details = {
            "encoding": self.encoding and canonical_encoding(self.encoding),
            "delimiter": self.delimiter and self.delimiter_of("csv"),
            "quoting": None if self.quoting == "auto" else self.quoting,
            "columns": self.columns and json.dumps(list(self.columns)),
            "records": self.records,
            "where": self.where and json.dumps(self.conditions),
            # A further field may be the reason why a record is rejected.
            "fields": self.fields and json.dumps(list(self.fields)),
            "normalize_users": "true" if self.normalize_users else None,
            "record_is_user": "true" if self.record_is_user else None,
            "max_record_bytes": None if size == _DEFAULT_RECORD_BYTES else str(size),
        }
        return InputDescription(
            user_field=one_or_several(self.user_fields),
            text_fields=self.text_fields,
            group_field=self.group_field,
            format=self.input_format,
            details=tuple(sorted((name, value) for name, value in details.items() if value)),
        )

    def describe(self, paths: Iterable[str]) -> InputDescription:
        """Returns the description with `auto` replaced by the formats of these files."""
        kinds = {format_of(path, self.input_format) for path in paths}
        return dataclasses.replace(self.description, format=", ".join(sorted(kinds)))

    def formats_of(self, paths: Iterable[str]) -> list[str]:
        """Returns the format of each file, and checks that every option belongs to them.

        Raises:
          InputError: A format is unknown, or excludes an option; or an option is given that no file
            uses, or that files of two formats would use in two ways.
        """
        kinds = [format_of(path, self.input_format) for path in paths]
        for kind in kinds:
            self.check_kind(kind)
        quoting = None if self.quoting == "auto" else self.quoting
        of_text = tuple(kind for kind in FORMATS if kind not in ("parquet", "mbox"))
        for name, value, own in (
            ("delimiter", self.delimiter, DELIMITED),
            ("quoting", quoting, DELIMITED),
            ("columns", self.columns, DELIMITED),
            ("encoding", self.encoding, of_text),
            ("records", self.records, ("json",)),
        ):
            if value is not None and not set(kinds) & set(own):
                raise InputError(
                    f"`{name}` must be left out for files of {' and '.join(sorted(set(kinds)))}, got "
                    f"`{name}={told_value(value)}`: it is for {' and '.join(own)}."
                )
        if set(DELIMITED) <= set(kinds) and (self.delimiter, quoting) != (None, None):
            raise InputError(
                "`delimiter` and `quoting` must be left out for files of csv and tsv together, got "
                f"`delimiter={self.delimiter!r}` and `quoting={quoting!r}`: they would hold for "
                "both. Give `input_format` csv if the tsv files are like the csv files."
            )
        return kinds

    def check_kind(self, kind: str) -> None:
        """Raises InputError if texts or fields cannot be read from this format."""
        if self.text_is_tokens and kind not in ("json", "jsonl", "parquet"):
            raise InputError(
                f"a file of {kind} must be read without text_is_tokens (tokenizer 'tokens' is for JSON "
                "and Parquet). Name the format with `input_format`."
            )
        usual = (("user_field", ReadOptions.user_field), ("text_field", ReadOptions.text_field))
        is_usual = self.wanted_fields == usual and self.fields is None and self.where is None
        if kind == "sequences" and not (is_usual and self.has_plain_users):
            raise InputError(
                "a file of sequences must be read without `user_field`, `text_field`, "
                "`group_field`, `fields`, `where`, `normalize_users` and `record_is_user`, since each "
                "line is a user with one text. Name the format with `input_format`."
            )


@dataclasses.dataclass(frozen=True, kw_only=True)
class Grouping(Parameters):
    """Groups of texts."""

    group_field: Annotated[
        str | None,
        Parameter(
            "Field that names the group of a text, e.g. country: n-grams of different groups are "
            "different n-grams, and a row has its group. All groups share the budget.",
            pattern=_FIELD,
            requirement=_FIELD_NAME,
            default_text="no groups",
        ),
    ] = None
