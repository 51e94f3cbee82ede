"""Whether a file that is said to be public is the input of the run, or a copy of it in another form.

What follows from the private data voids the guarantee, so no file of the input may be a list. Files are
compared by what is read: by their lines after decompression and decoding, and by their texts, which may
stand in another format, in another order and beside other fields. White space counts as one blank.

How often a text is there does not count, but an input with far more texts than the list is none of
which the list is a copy: a public list of all choices may have each choice of the input, and no other.

The list is read once or twice. The input is read until it has another text, or far more of them, so
that only a copy costs reading all of the input. This is a guard against a mistake: a part of a file, a
list with more lines, and n-grams that were counted in the input are not noticed.
"""

import dataclasses
import functools
import os
from collections.abc import Callable, Iterable, Iterator, Sequence

import numpy as np

from beam_dpne.errors import UsageError
from beam_dpne.lists.files import plain_texts
from beam_dpne.reading.columns import is_list
from beam_dpne.reading.files import InputFile, TextFile, guarded, open_raw, sha256_of
from beam_dpne.reading.options import ReadOptions, extension_of, format_of
from beam_dpne.reading.records import WorkItem, read_item
from beam_dpne.release.places import is_release

_BLOCK_BYTES = 2**20
_LONGEST_LINE = 2**26
# An input with so many times as many texts as a list is not compared further.
_MOST_REPEATED = 2
# Documents have the column of users before it.
_TEXT_COLUMN = 1

# Blocks of texts; calling it reads them again.
Contents = Callable[[], Iterator[Iterable[str]]]


def refuse_input(
    name: str,
    path: str,
    inputs: Sequence[InputFile],
    reading: ReadOptions | None = None,
) -> None:
    """Refuses a file of the input as public, and a copy of one or of several of them.

    A release is private already, and is compared with nothing.

    Args:
      name: The parameter that names the file.
      path: The file.
      inputs: The files of the input.
      reading: How the input is read; without it the lines of its files count alone.

    Raises:
      UsageError: It is a file of the input, or has the same content.
      InputError, FileNotFoundError: The file or the input cannot be read.
    """
    if not inputs or is_release(name, path):
        return
    with open_raw(path) as file:
        size = file.seek(0, os.SEEK_END)
    is_input = any(
        os.path.realpath(each.path) == os.path.realpath(path)
        or (each.size == size and sha256_of(each.path) == sha256_of(path))
        for each in inputs
        if each.table is None
    )
    if not is_input:
        lines = () if extension_of(path) == ".parquet" else _lines(path, None)
        # The n-grams of a table count beside its lines.
        listed = [_Texts.of(lines), _Texts.of([plain_texts(name, path)])]
        is_input = _are_of_inputs(listed, inputs, reading)
    if is_input:
        raise UsageError(
            f"`{name}` must not be private data, got `{name}={path}`, which is an input or has all "
            "texts of one: what follows from the data voids the guarantee."
        )


def refuse_texts(
    name: str, texts: Sequence[str], inputs: Sequence[InputFile], reading: ReadOptions | None
) -> None:
    """Refuses texts in memory as public that are those of one or several inputs.

    Args:
      name: The parameter that gives the texts.
      texts: The texts.
      inputs: The inputs.
      reading: How they are read.

    Raises:
      UsageError: They are all texts of inputs, and no others.
    """
    if _are_of_inputs([_Texts.of([texts])], inputs, reading):
        raise UsageError(
            f"`{name}` must not be private data, got all texts of an input: what follows from the data "
            "voids the guarantee."
        )


def _are_of_inputs(
    listed: "Sequence[_Texts]", inputs: Sequence[InputFile], reading: ReadOptions | None
) -> bool:
    """Returns whether some texts are those of inputs, in one of their forms."""
    contents = _contents_of(inputs, reading)
    return any(own.are_of(files) for files in contents for own in listed)


@dataclasses.dataclass(frozen=True, eq=False)
class _Texts:
    """The texts of a list.

    Attributes:
      hashes: (n,) int64, ascending, distinct.
      size: How many texts there are, with repeated ones.
    """

    hashes: np.ndarray
    size: int

    @classmethod
    def of(cls, blocks: Iterable[Iterable[str]]) -> "_Texts":
        """Returns the texts of blocks."""
        together = np.concatenate([np.zeros(0, np.int64), *map(_hashes, blocks)])
        return cls(np.unique(together), together.size)

    def are_of(self, files: Sequence[Contents]) -> bool:
        """Returns whether these are all texts of one or several files, and no others."""
        is_found = np.zeros(self.hashes.size, bool)
        left = _MOST_REPEATED * self.size
        for file in files:
            if (places := self._places_in(file, left)) is not None:
                left -= places.size
                is_found[places] = True
        return self.hashes.size > 0 and bool(is_found.all())

    def _places_in(self, file: Contents, most: int) -> np.ndarray | None:
        """Returns the place of each text of a file among these: (m,) int64.

        It is None if the file has another text, or more than `most`.
        """
        found = [np.zeros(0, np.int64)]
        for block in file():
            hashes = _hashes(block)
            places = np.searchsorted(self.hashes, hashes)
            most -= hashes.size
            if most < 0 or (self.hashes.take(places, mode="clip") != hashes).any():
                return None
            found.append(places)
        return np.concatenate(found)


def _hashes(texts: Iterable[str]) -> np.ndarray:
    """Returns a hash of each text that is not blank, which is the same in this process: (n,) int64."""
    plain = (" ".join(text.split()) for text in texts)
    return np.array([hash(text) for text in plain if text], np.int64)


def _contents_of(
    inputs: Sequence[InputFile], reading: ReadOptions | None
) -> Iterator[list[Contents]]:
    """Yields what the files of an input have, in each form: lines, texts, and tokens of lists."""
    encoding = None if reading is None else reading.encoding
    files = [file for file in inputs if file.table is None]
    paths = [file.path for file in files if extension_of(file.path) != ".parquet"]
    yield [functools.partial(_lines, path, encoding) for path in paths]
    if reading is None:
        return
    # A block is small, since the first one usually tells a file from a copy.
    plain = dataclasses.replace(reading, fields=None, block_bytes=_BLOCK_BYTES)
    items = [WorkItem(file, format_of(file.path, reading.input_format)) for file in inputs]
    yield [functools.partial(_texts, item, plain) for item in items]
    if reading.text_is_tokens:
        yield [functools.partial(_tokens, item, plain) for item in items]


def _lines(path: str, encoding: str | None) -> Iterator[Iterable[str]]:
    """Yields blocks of the lines of a file, decompressed and decoded."""
    with guarded(path), TextFile(path, encoding, has_mark=True) as text:
        text.block = _BLOCK_BYTES
        for _, block in text.blocks(_LONGEST_LINE):
            yield block.decode(errors="replace").split("\n")


def _texts(item: WorkItem, reading: ReadOptions) -> Iterator[Iterable[str]]:
    """Yields blocks of the texts of an input; a list of tokens is one text."""
    for batch in read_item(item, reading):
        texts = batch.documents.column(_TEXT_COLUMN)
        if is_list(texts.type):
            yield (" ".join(filter(None, tokens)) for tokens in texts.to_pylist())
        else:
            yield filter(None, texts.to_pylist())


def _tokens(item: WorkItem, reading: ReadOptions) -> Iterator[Iterable[str]]:
    """Yields blocks of the tokens of an input whose texts are lists."""
    for batch in read_item(item, reading):
        texts = batch.documents.column(_TEXT_COLUMN)
        yield filter(None, texts.flatten().to_pylist())
