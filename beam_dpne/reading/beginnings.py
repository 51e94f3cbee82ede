"""The beginning of a text: how its records are cut and parsed, and where the first one begins."""

from typing import NamedTuple, Protocol

from beam_dpne.errors import InputError
from beam_dpne.reading.columns import Batch
from beam_dpne.reading.delimited import HEAD_BYTES, DelimitedParser, dialect_of, header
from beam_dpne.reading.encodings import Encoding
from beam_dpne.reading.fields import require_fields, require_no_quotes
from beam_dpne.reading.files import InputFile, TextStream
from beam_dpne.reading.json_arrays import ArrayBorders, JsonArrayParser, array_start
from beam_dpne.reading.jsonl import JsonlParser
from beam_dpne.reading.options import ReadOptions
from beam_dpne.reading.records import Block, Borders, LineBorders
from beam_dpne.reading.sequences import SequencesParser, header_bytes

BYTE_ORDER_MARK = b"\xef\xbb\xbf"


class Parser(Protocol):
    """Turns blocks of records into documents."""

    def parse(self, block: Block) -> Batch:
        """The documents and rejects of a block."""
        ...


class Beginning(NamedTuple):
    """What the beginning of a text says about all of it.

    Attributes:
      encoding: Of the text; if it does not keep ASCII, the stream decodes it.
      size: Bytes before the first record.
      parser: Of its records.
      borders: Where records end.
      columns: Names of the columns of CSV or TSV, in order.
    """

    encoding: Encoding
    size: int
    parser: Parser
    borders: Borders
    columns: tuple[str, ...] = ()

    @property
    def can_be_cut(self) -> bool:
        """Whether the text can be read from any byte on: each line feed there ends a record."""
        return self.encoding.keeps_ascii and isinstance(self.borders, LineBorders)


def begin(stream: TextStream, file: InputFile, kind: str, options: ReadOptions) -> Beginning:
    """Reads the beginning of a text and goes back to it.

    Args:
      stream: The text, at its beginning.
      file: Where it is from.
      kind: Its format, not Parquet.
      options: How it is read.

    Raises:
      InputError: The header of CSV, TSV or sequences is not right, or lacks a field.
    """
    # Where the first bytes are a user's record, they must not decide about the others.
    has_head = kind == "json" or (kind in ("csv", "tsv") and not options.columns)
    encoding = stream.start_decoding(options.encoding, marks=has_head)
    head = stream.peek(HEAD_BYTES)
    mark = len(BYTE_ORDER_MARK) if head.startswith(BYTE_ORDER_MARK) else 0
    head = head[mark:]
    if kind in ("json", "jsonl"):
        size = array_start(head) if kind == "json" else 0
        if encoding.is_recoded and options.encoding is None and not size:
            raise InputError(
                f"{file.path} begins with a byte order mark and holds no JSON array. If it is text in "
                "that encoding, name it with --encoding."
            )
        if size:
            return Beginning(encoding, mark + size, JsonArrayParser(options), ArrayBorders())
        return Beginning(encoding, mark, JsonlParser(options), LineBorders())
    if kind == "sequences":
        size = mark + header_bytes(head)
        return Beginning(encoding, size, SequencesParser(file.place), LineBorders())
    dialect = dialect_of(kind, options)
    names, size = list(options.columns or ()), 0
    if not names:
        names, size = header(file.path, head, dialect, encoding)
        if options.quoting == "auto" and not dialect.quoted:
            require_no_quotes(file.path, names)
        require_fields(file.path, names, options)
    parser = DelimitedParser(names, dialect, options)
    return Beginning(encoding, mark + size, parser, dialect.borders(), tuple(names))
