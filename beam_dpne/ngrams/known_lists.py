"""Reading lists of known n-grams: texts and tables as codes of distinct words."""

import codecs
from collections.abc import Iterable, Iterator
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet

from beam_dpne.documents.blocks import GROUP, encode_tokens, with_group
from beam_dpne.documents.tokenizers import Tokenizer, resolve_tokenizer, tokenize
from beam_dpne.elements.arrays import merge_words
from beam_dpne.elements.batches import NO_GRAM
from beam_dpne.elements.rows import (
    EMPTY_TOKEN,
    SEPARATOR,
    escape_tokens,
    split_ngram,
    unescape_item,
)
from beam_dpne.errors import InputError
from beam_dpne.reading.columns import group_column, group_fault, group_faults, json_text
from beam_dpne.reading.files import guarded, open_raw
from beam_dpne.reading.ids import id_text
from beam_dpne.reading.lake_tables import refuse_lake_tables
from beam_dpne.reading.options import codec_of, extension_of
from beam_dpne.release.parts import parse_copied
from beam_dpne.storage.directories import absolute_path

NGRAM = "ngram"
_ITEM = "item"
_COUNT = "count"
_COLUMNS = (NGRAM, _ITEM, GROUP, _COUNT)
TABLES = (".csv", ".tsv", ".jsonl", ".parquet")
_ESCAPES = "known must have n-grams and items with the escapes of releases."


def codes_of_documents(
    blocks: Iterable[pa.Array], tokenizer: str | Tokenizer
) -> tuple[pa.Array, np.ndarray]:
    """Returns the distinct words of documents, and all words by their places there, −1 at borders.

    Args:
      blocks: texts, or lists of tokens, of a document each; at least one block.
      tokenizer: the tokenizer.
    """
    split = resolve_tokenizer(tokenizer)
    words = []
    codes = []
    for block in blocks:
        encoded = encode_tokens(tokenize(split, block))
        words.append(encoded.words)
        # A null is a border as well.
        codes.append(np.insert(encoded.codes, encoded.offsets[1:], NO_GRAM))
    merged, places = merge_words(words)
    pieces = np.split(places, np.cumsum([len(own) for own in words])[:-1])
    whole = [np.append(own, NO_GRAM)[part] for own, part in zip(pieces, codes, strict=True)]
    return merged, np.concatenate(whole)


def count_codes(codes: np.ndarray, size: int, max_length: int, min_count: int) -> list[np.ndarray]:
    """Returns the n-grams of each length that stand in a text at least so many times.

    Args:
      codes: (p,) int32, words by their codes in range(size), −1 between texts.
      size: how many distinct words there are.
      max_length: the longest n-grams.
      min_count: the least number of times; parts of an n-gram stand there at least as often.
    """
    kept = np.flatnonzero(np.bincount(codes[codes >= 0], minlength=size) >= min_count)
    ranks = np.full(size + 1, NO_GRAM, np.int64)
    ranks[kept] = np.arange(kept.size)
    found = [kept[:, np.newaxis].astype(np.int32)]
    # (p,) int64: the row in the last of `found` of the n-gram that starts here, −1 where it is rare.
    ids = ranks[codes]
    for _ in range(1, max_length):
        place = np.flatnonzero((ids[:-1] | ids[1:]) >= 0)
        keys = ids[place] * len(found[-1]) + ids[place + 1]
        distinct, inverse, counts = np.unique(keys, return_inverse=True, return_counts=True)
        kept = np.flatnonzero(counts >= min_count)
        ranks = np.full(distinct.size, NO_GRAM, np.int64)
        ranks[kept] = np.arange(kept.size)
        ids = np.full(ids.size, NO_GRAM, np.int64)
        ids[place] = ranks[inverse.reshape(-1)]
        first, second = np.divmod(distinct[kept], max(1, len(found[-1])))
        found.append(np.column_stack((found[-1][first], found[-1][second][:, -1])))
    return found


def read_table(path: str, min_count: int) -> list[pa.Array]:
    """Returns the texts of the n-grams of a table with at least so many in the column `count`.

    Their groups follow, if there is a column `group`.
    """
    table = _table_of(path)
    if not {NGRAM, _ITEM} & {*table.column_names}:
        raise InputError(f"known must be a table with a column {NGRAM} or {_ITEM}, got {path}.")
    if _COUNT in table.column_names:
        enough = pc.call_function("greater_equal", [table[_COUNT], pa.scalar(min_count)])
        table = table.filter(enough)
    return texts_of(table)


def plain_texts(path: str) -> Iterator[str]:
    """Yields the n-grams or items of a table without escapes, to compare them with those of an input.

    Of a file that is no table it yields nothing.
    """
    if extension_of(path) not in TABLES:
        return
    table = _table_of(path)
    for name in (NGRAM, _ITEM):
        texts = table[name].to_pylist() if name in table.column_names else []
        for text in map(str, filter(None, texts)):
            try:
                yield " ".join(split_ngram(text)) if name == NGRAM else text
            except ValueError:
                # A text that no release has written; an input may have it.
                yield text


def _table_of(path: str) -> pa.Table:
    """Returns the columns of a table that a list has, with texts as a release has them."""
    extension = extension_of(path)
    codec = codec_of(path)
    refuse_lake_tables("known", [absolute_path(path)])
    with guarded(path), open_raw(path) as raw:
        source: Any = pa.PythonFile(raw, mode="r")
        if codec:
            source = pa.CompressedInputStream(source, codec)
        data = source.read()
        if extension == ".jsonl":
            return _rows_of_json(data)
        if extension == ".parquet":
            table = pyarrow.parquet.read_table(pa.BufferReader(data))
            return table.select([name for name in _COLUMNS if name in table.column_names])
        try:
            return parse_copied(data, extension.removeprefix("."))
        except ValueError as error:
            if isinstance(error, pa.ArrowException):
                raise
            raise InputError(_ESCAPES) from None


def _rows_of_json(data: bytes) -> pa.Table:
    """Returns the columns of JSON lines; texts that are numbers are written as JSON writes them."""
    decoder = msgspec.json.Decoder(dict[str, Any])
    rows = decoder.decode_lines(data.removeprefix(codecs.BOM_UTF8))
    names = [name for name in _COLUMNS if any(name in row for row in rows)]
    columns: dict[str, pa.Array] = {}
    for name in names:
        values = [row.get(name) for row in rows]
        if name == _COUNT:
            columns[name] = pa.array(values, pa.float64())
        elif name == GROUP:
            # As in inputs; a row whose group cannot be used has none.
            groups = [None if group_fault(value) else id_text(value) for value in values]
            columns[name] = pa.array(groups, pa.string())
        else:
            columns[name] = pa.array(map(json_text, values), pa.string())
    return pa.table(columns)


def texts_of(table: pa.Table) -> list[pa.Array]:
    """Returns the texts of the n-grams of a table, and their groups if it has any.

    A table without them has the items of a set union, each of which is one word.
    """
    if NGRAM not in table.column_names:
        (items,) = table.select([_ITEM]).drop_null().columns
        return [escape_tokens(items.cast(pa.string()).combine_chunks())[0]]
    columns = [table[NGRAM].cast(pa.string()).combine_chunks()]
    if GROUP in table.column_names:
        groups, fault = group_column(table[GROUP].combine_chunks(), GROUP)
        is_bad = np.logical_or.reduce([found for found, _ in (fault, *group_faults(groups))])
        columns.append(
            pc.call_function("if_else", [pa.array(is_bad), pa.scalar(None, pa.string()), groups])
        )
    usable = pa.table(columns, [NGRAM, GROUP][: len(columns)]).drop_null()
    return [column.combine_chunks() for column in usable.columns]


def codes_of_texts(
    texts: pa.Array, groups: pa.Array | None = None
) -> tuple[pa.Array, list[np.ndarray]]:
    """Returns the distinct words of n-grams, and for each length their words by their places there.

    Args:
      texts: as `join_tokens` writes them.
      groups: the group of each, which is put in front of its words; None without groups.

    Raises:
      InputError: if a text has an escape that it does not write.
    """
    split = pc.call_function("split_pattern", [texts], pc.SplitPatternOptions(SEPARATOR))
    encoded = split.flatten().dictionary_encode()
    try:
        words = [
            unescape_item(word) if "\\" in word or word == EMPTY_TOKEN else word
            for word in encoded.dictionary.to_pylist()
        ]
    except ValueError:
        raise InputError(_ESCAPES) from None
    if groups is not None:
        tokens = pa.array(words, pa.string()).take(encoded.indices)
        grouped = with_group(groups, pa.ListArray.from_arrays(split.offsets, tokens))
        encoded = grouped.values.dictionary_encode()
        words = encoded.dictionary
    distinct, places = merge_words([pa.array(words, pa.string())])
    codes = places[encoded.indices.to_numpy()]
    sizes = np.diff(split.offsets.to_numpy())
    starts = np.cumsum(sizes) - sizes
    lengths = np.flatnonzero(np.bincount(sizes)).tolist() if sizes.size else []
    return distinct, [
        codes[starts[sizes == length][:, np.newaxis] + np.arange(length)] for length in lengths
    ]


def distinct_rows(rows: np.ndarray) -> np.ndarray:
    """Sorts rows and drops repeated ones."""
    ordered = rows[np.lexsort(rows.T[::-1])]
    fresh = np.ones(len(rows), bool)
    fresh[1:] = (ordered[1:] != ordered[:-1]).any(axis=1)
    return ordered[fresh]
