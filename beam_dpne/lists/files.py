"""Public lists as they are stored: texts, tables, files of counts, and releases.

What is known and what is counted may be any of them, and `kind_of` alone decides which. So one file
means the same for each parameter that names it.
"""

import codecs
import dataclasses
import itertools
import re
from collections.abc import Iterator
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet

from beam_dpne.documents.blocks import GROUP, EncodedTokens
from beam_dpne.documents.tokenizers import Tokenizer, tokenizer_name
from beam_dpne.elements.rows import escape_tokens, split_ngram
from beam_dpne.errors import InputError
from beam_dpne.lists.counting import codes_of_documents, codes_of_texts
from beam_dpne.reading.columns import group_column, group_fault, group_faults, json_text
from beam_dpne.reading.compression import SIGNATURE_BYTES, decompressed, refuse_unnamed
from beam_dpne.reading.files import TextFile, guarded, line_blocks, open_raw
from beam_dpne.reading.ids import id_text
from beam_dpne.reading.lake_tables import refuse_lake_tables
from beam_dpne.reading.options import codec_of, extension_of
from beam_dpne.release.parts import parse_copied
from beam_dpne.release.places import is_release
from beam_dpne.release.reading import Release, read_release
from beam_dpne.storage.directories import absolute_path
from beam_dpne.validation import first_names, told_name

TEXT = "text"
TABLE = "table"
COUNTS = "counts"
RELEASE = "release"
NGRAM = "ngram"
_ITEM = "item"
COUNT = "count"
_USERS = "users"
SCORE = "score"
_COLUMNS = (NGRAM, _ITEM, GROUP, COUNT, _USERS, SCORE)
_NUMBERS = (COUNT, _USERS, SCORE)
_TABLES = (".csv", ".jsonl", ".parquet")
_COUNTED = re.compile("([^\t]*)\t([0-9]+)")
# How JSON, and a language model in ARPA format, begin.
_NO_TEXT = ('{"', "[{", "\\data\\")
_LONGEST_HEAD = 2**20
# They may be the first record of a file without a header line.
_NAMED_COLUMNS = 10


@dataclasses.dataclass(frozen=True, eq=False, kw_only=True)
class Listed:
    """N-grams that a list names one by one.

    Attributes:
      texts: (n,) Arrow strings, as `join_tokens` writes them; an item is one word.
      groups: (n,) Arrow strings, the group of each; None without groups.
      numbers: (n,) float64, how common each is by the column `count`, else by `users`, else by `score`;
        NaN where the list does not say it. None without such a column.
      column: the name of that column; None without one.
      unusable: how many rows are not among them, since they have no text, or no group that can be used.
    """

    texts: pa.Array
    groups: pa.Array | None = None
    numbers: np.ndarray | None = None
    column: str | None = None
    unusable: int = 0

    def at_least(self, count: int) -> "Listed":
        """Returns the n-grams with such a number in the column `count`, or all if there is none."""
        if self.column != COUNT or self.numbers is None:
            return self
        return self.chosen(self.numbers >= count)

    def chosen(self, rows: np.ndarray) -> "Listed":
        """Returns the n-grams that are marked, (n,) bool."""
        kept = pa.array(rows)
        return Listed(
            texts=self.texts.filter(kept),
            groups=None if self.groups is None else self.groups.filter(kept),
            numbers=None if self.numbers is None else self.numbers[rows],
            column=self.column,
            unusable=self.unusable,
        )


def kind_of(name: str, path: str) -> str:
    r"""Returns which kind of list a path names.

    A directory or a ledger is a release. Files of the extensions .csv, .jsonl and .parquet are tables.
    Of others the first line that is not empty decides. With a tab it begins a table if it has a column
    `ngram` or `item`, and a file of counts if not. Without a tab it begins a table if the extension is
    .tsv, and a text if not.

    Args:
      name: the parameter that names the list, for messages.
      path: the list.

    Raises:
      FileNotFoundError: if the path is local, and nothing is there.
      InputError: if it cannot be read, or is JSON or a language model, which would be read as a text.
    """
    if is_release(name, path):
        return RELEASE
    extension = extension_of(path)
    if extension != ".parquet" and codec_of(path) is None:
        with open_raw(path) as raw:
            refuse_unnamed(path, raw.read(SIGNATURE_BYTES))
    if extension in _TABLES:
        return TABLE
    head = _head(path)
    if "\t" in head:
        has_column = {NGRAM, _ITEM} & {*head.split("\t")} and not _COUNTED.fullmatch(head)
        return TABLE if has_column else COUNTS
    if extension == ".tsv":
        return TABLE
    if head.startswith(_NO_TEXT):
        raise InputError(
            f"`{name}` must be a text, one document a line, got JSON or a language model: {path}. JSON "
            "lines with a column ngram must have the extension .jsonl."
        )
    return TEXT


def _head(path: str) -> str:
    """Returns the first line of a file that is not empty."""
    with guarded(path), TextFile(path) as text:
        lines = iter(lambda: text.readline(_LONGEST_HEAD), "")
        return next(filter(None, (line.rstrip("\r\n") for line in lines)), "")


def read_text(name: str, path: str, tokenizer: str | Tokenizer) -> tuple[pa.Array, np.ndarray]:
    """Returns the words of a text, one document a line, and codes as `codes_of_documents` does.

    Raises:
      InputError: if the file cannot be read, or the tokenizer takes no lines.
    """
    if tokenizer_name(tokenizer) == "tokens":
        raise InputError(
            f"`{name}` must be a table, a file of counts or a release with `tokenizer='tokens'`, "
            f"got the text {path}, whose lines do not say where such tokens end."
        )
    lines = (pa.array(block, pa.string()) for block in line_blocks(path))
    return codes_of_documents(lines, tokenizer)


def read_table(name: str, path: str) -> Listed:
    """Returns the n-grams of a table or of a file of counts.

    Raises:
      InputError: if it cannot be read, or does not name n-grams.
    """
    table = _columns(name, path, kind_of(name, path))
    if not names_ngrams(table):
        names = table.column_names
        remedy = (
            f"It has the columns {first_names(list(map(told_name, names)), _NAMED_COLUMNS)}."
            if names
            else ""
        )
        if len(names) == 1 and ";" in names[0]:
            remedy = (
                "Semicolons stand between its fields: write it with commas, or with tabs as .tsv."
            )
        raise InputError(
            f"`{name}` must be a table with a column {NGRAM} or {_ITEM}, got {path}. {remedy}".rstrip()
        )
    return listed_in(name, table)


def names_ngrams(table: pa.Table) -> bool:
    """Whether a table has a column of n-grams or items."""
    return bool({NGRAM, _ITEM} & {*table.column_names})


def read_released(name: str, path: str) -> tuple[Release, Listed]:
    """Returns a release with its n-grams or items, whose files are checked against its ledger.

    Raises:
      ReleaseError: if the release is incomplete or damaged.
      InputError: if it has probabilities.
    """
    release = read_release(path)
    if release.program == "bayesian":
        raise InputError(f"`{name}` must be a release of ngrams or set-union, got {path}.")
    return release, listed_in(name, release.table())


def listed_codes(name: str, listed: Listed) -> EncodedTokens:
    """Returns the words of listed n-grams as codes; raises InputError if they have other escapes."""
    try:
        return codes_of_texts(listed.texts, listed.groups)
    except ValueError:
        raise foreign_escapes(name) from None


def plain_texts(name: str, path: str) -> Iterator[str]:
    """Yields the n-grams or items of a list without escapes, to compare them with those of an input.

    Of a text, of a release, and of what cannot be read as a list, it yields nothing.
    """
    try:
        kind = kind_of(name, path)
        table = _columns(name, path, kind) if kind in (TABLE, COUNTS) else pa.table({})
    except InputError:
        # A stop list may be named like a table. Who reads a table gets the error then.
        return
    yield from texts_of_table(table)


def texts_of_table(table: pa.Table) -> Iterator[str]:
    """Yields the n-grams or items of a table without escapes, also of rows that cannot be used."""
    for column in (NGRAM, _ITEM):
        texts = table[column].to_pylist() if column in table.column_names else []
        for text in map(str, filter(None, texts)):
            try:
                yield " ".join(split_ngram(text)) if column == NGRAM else text
            except ValueError:
                # A text that no release has written; an input may have it.
                yield text


def _columns(name: str, path: str, kind: str) -> pa.Table:
    """Returns those columns of a list that count, with texts as a release has them."""
    refuse_lake_tables(name, [absolute_path(path)])
    if kind == COUNTS:
        return _counted_lines(name, path)
    extension = extension_of(path)
    codec = codec_of(path)
    with guarded(path), open_raw(path) as raw:
        data = (decompressed(raw, codec, path) if codec else raw).read()
        if extension == ".jsonl":
            return _rows_of_json(data)
        if extension == ".parquet":
            table = pyarrow.parquet.read_table(pa.BufferReader(data))
            return table.select([name for name in _COLUMNS if name in table.column_names])
        try:
            return parse_copied(data, "csv" if extension == ".csv" else "tsv")
        except ValueError as error:
            if isinstance(error, pa.ArrowException):
                raise
            raise foreign_escapes(name) from None


def _counted_lines(name: str, path: str) -> pa.Table:
    """Returns the lines of a file of counts; errors have the line's number and not its text."""
    texts = []
    counts = []
    lines = itertools.chain.from_iterable(line_blocks(path))
    for number, line in enumerate(lines, start=1):
        if not line:
            continue
        parts = _COUNTED.fullmatch(line)
        if parts is None:
            raise InputError(
                f"`{name}` must have lines `ngram<TAB>count`, with a whole number >= 0 as count, got "
                f"{path}, whose line {number} is none. (A text must not have a tab in its first line, "
                f"and the first line of a table must have a column {NGRAM}.)"
            )
        try:
            split_ngram(parts[1])
        except ValueError as error:
            raise InputError(f"`{name}` has a malformed line {number}: {error}") from None
        texts.append(parts[1])
        counts.append(float(parts[2]))
    columns = [pa.array(texts, pa.string()), pa.array(counts, pa.float64())]
    return pa.table(columns, [NGRAM, COUNT])


def _rows_of_json(data: bytes) -> pa.Table:
    """Returns the columns of JSON lines; texts that are numbers are written as JSON writes them."""
    decoder = msgspec.json.Decoder(dict[str, Any])
    rows = decoder.decode_lines(data.removeprefix(codecs.BOM_UTF8))
    names = [name for name in _COLUMNS if any(name in row for row in rows)]
    columns: dict[str, pa.Array] = {}
    for name in names:
        values = [row.get(name) for row in rows]
        if name in _NUMBERS:
            columns[name] = pa.array(values, pa.float64())
        elif name == GROUP:
            # As in inputs; a row whose group cannot be used has none.
            groups = [None if group_fault(value) else id_text(value) for value in values]
            columns[name] = pa.array(groups, pa.string())
        else:
            columns[name] = pa.array(map(json_text, values), pa.string())
    return pa.table(columns)


def listed_in(name: str, table: pa.Table) -> Listed:
    """Returns the n-grams of a table and their groups, or the items of a set union as words.

    Rows without a text or without a group that can be used are left out.
    """
    has_ngrams = NGRAM in table.column_names
    column = NGRAM if has_ngrams else _ITEM
    try:
        texts = table[column].cast(pa.string()).combine_chunks()
    except pa.ArrowException:
        raise InputError(f"`{name}` must have texts in the column {column}, got others.") from None
    is_usable = texts.is_valid().to_numpy(zero_copy_only=False)
    if has_ngrams:
        # An item may be the empty text, and an n-gram has a word.
        is_usable = pc.call_function("binary_length", [texts.fill_null("")]).to_numpy() > 0
    groups = None
    if has_ngrams and GROUP in table.column_names:
        groups, fault = group_column(table[GROUP].combine_chunks(), GROUP)
        faults = [found for found, _ in (fault, *group_faults(groups))]
        is_usable = is_usable & groups.is_valid().to_numpy(zero_copy_only=False)
        is_usable = is_usable & ~np.logical_or.reduce(faults)
    counted = next((each for each in _NUMBERS if each in table.column_names), None)
    numbers = None if counted is None else _numbers(name, table, counted)
    listed = Listed(
        texts=texts,
        groups=groups,
        numbers=numbers,
        column=counted,
        unusable=int(np.count_nonzero(~is_usable)),
    ).chosen(is_usable)
    if has_ngrams:
        return listed
    return dataclasses.replace(listed, texts=escape_tokens(listed.texts)[0])


def _numbers(name: str, table: pa.Table, column: str) -> np.ndarray:
    """Returns a column of numbers, NaN for what is missing: (n,) float64.

    Raises:
      InputError: if it has something else.
    """
    try:
        values = pc.cast(table[column], pa.float64(), safe=False)
    except pa.ArrowException:
        raise InputError(
            f"`{name}` must have numbers in the column {column}, got others."
        ) from None
    return values.combine_chunks().to_numpy(zero_copy_only=False)


def foreign_escapes(name: str) -> InputError:
    """Returns the error of a list with n-grams that no release would write so."""
    return InputError(
        f"`{name}` must have n-grams and items with the escapes of releases: one blank between two "
        r"words and none around them, `\\` for a backslash, and `\s` for a blank within a word."
    )


def release_description(release: Release, *, same_people: bool) -> dict[str, Any]:
    """Returns what the ledger says of a list that is a release."""
    return {
        "epsilon": release.epsilon,
        "delta": release.delta,
        "kind": RELEASE,
        "sha256": release.ledger_sha256,
        "same_people": same_people,
    }
