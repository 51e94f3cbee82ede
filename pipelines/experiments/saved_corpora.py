"""Corpora on disk as Arrow files, read again without tokenizing, and samples of their users.

The files are as secret as the data.
"""

import dataclasses
import json
import os
import pathlib
from collections.abc import Iterator

import numpy as np
import pyarrow as pa

from beam_dpne.elements.arrays import hash_words
from beam_dpne.evaluation.corpus import BORDER, Corpus

_DESCRIPTION = "corpus.json"


def sample_users(corpus: Corpus, sub_key: bytes, one_in: int) -> Corpus:
    """Returns the corpus of a keyed sample of the users: each is in it with probability 1/one_in."""
    everybody = np.arange(len(corpus.users))
    # (u,) whether a user is in the sample, and (n',) the codes at the positions of those users.
    is_chosen = user_hashes(corpus, sub_key, everybody) % np.uint64(one_in) == 0
    codes = corpus.codes[is_chosen[corpus.user_of_position]]
    used = np.zeros(len(corpus.words), dtype=bool)
    used[codes[codes >= 0]] = True
    # (w + 1,) the new code of each old one; the border's code −1 reads the last entry.
    new_codes = np.append(np.cumsum(used, dtype=np.int32) - np.int32(1), np.int32(BORDER))
    return dataclasses.replace(
        corpus,
        words=corpus.words.filter(pa.array(used)),
        users=corpus.users.filter(pa.array(is_chosen)),
        offsets=np.append(0, np.cumsum(np.diff(corpus.offsets)[is_chosen])),
        codes=new_codes[codes],
    )


def documents_of(corpus: Corpus, *, rows: int = 20_000) -> Iterator[pa.RecordBatch]:
    """Yields the documents as batches with columns user and text (lists of words), in order."""
    ends = np.flatnonzero(corpus.codes < 0)
    starts = np.append(0, ends[:-1] + 1)
    for first in range(0, ends.size, rows):
        begin, end = starts[first : first + rows], ends[first : first + rows]
        codes = corpus.codes[begin[0] : end[-1] + 1]
        words = corpus.words.take(pa.array(codes[codes >= 0])).cast(pa.string())
        offsets = np.append(0, np.cumsum(end - begin)).astype(np.int32)
        texts = pa.ListArray.from_arrays(pa.array(offsets), words)
        users = corpus.users.take(pa.array(corpus.document_users[first : first + rows]))
        yield pa.RecordBatch.from_arrays([users, texts], ["user", "text"])


def save_corpus(corpus: Corpus, folder: str | os.PathLike[str]) -> None:
    """Writes a corpus as Arrow files into an empty local folder; they are as secret as the data.

    `corpus.json` is written last; a folder without it holds no corpus.
    """
    folder = pathlib.Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / _DESCRIPTION).unlink(missing_ok=True)
    _write(folder / "words.arrow", pa.table({"word": corpus.words}))
    ends = pa.array(corpus.offsets[1:])
    _write(folder / "users.arrow", pa.table({"user": corpus.users, "end": ends}))
    _write(folder / "positions.arrow", pa.table({"code": pa.array(corpus.codes)}))
    described = {
        "tokenizer": corpus.tokenizer,
        "rejected_reasons": dict(corpus.rejected_reasons),
    }
    written = folder / f".{_DESCRIPTION}.tmp"
    written.write_text(json.dumps(described) + "\n", encoding="utf-8")
    written.replace(folder / _DESCRIPTION)


def load_corpus(folder: str | os.PathLike[str]) -> Corpus:
    """Reads a corpus that `save_corpus` wrote.

    Raises:
      FileNotFoundError: There is no complete corpus in the folder.
    """
    folder = pathlib.Path(folder)
    if not (folder / _DESCRIPTION).is_file():
        raise FileNotFoundError(
            f"folder must hold a saved corpus, got {folder}, which has no {_DESCRIPTION}."
        )
    described = json.loads((folder / _DESCRIPTION).read_text(encoding="utf-8"))
    users = _read(folder / "users.arrow")
    return Corpus(
        words=_column(_read(folder / "words.arrow"), "word"),
        users=_column(users, "user"),
        offsets=np.append(0, _column(users, "end").to_numpy()),
        codes=_column(_read(folder / "positions.arrow"), "code").to_numpy(),
        tokenizer=described["tokenizer"],
        rejected_reasons=described.get("rejected_reasons", {}),
    )


def user_hashes(corpus: Corpus, sub_key: bytes, indices: np.ndarray) -> np.ndarray:
    """Returns the first 64 bits of a keyed hash of the names of some users: uint64."""
    names = corpus.users.take(pa.array(indices)).cast(pa.large_binary())
    return hash_words(sub_key, names)[:, 0]


def _write(path: pathlib.Path, table: pa.Table) -> None:
    with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_file(sink, table.schema) as writer:
        writer.write_table(table)


def _read(path: pathlib.Path) -> pa.Table:
    """Maps a file into memory."""
    return pa.ipc.open_file(pa.memory_map(str(path))).read_all()


def _column(table: pa.Table, name: str) -> pa.Array:
    column = table.column(name)
    return column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()
