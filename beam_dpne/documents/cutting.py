"""Documents are tokenized and cut into blocks by partitions of users, in one process or in several."""

import contextlib
import dataclasses
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from typing import TypeVar

import numpy as np
import pyarrow as pa

from beam_dpne.documents import tokenizers
from beam_dpne.documents.blocks import (
    GROUP,
    TEXT,
    USER,
    bounded_blocks,
    encode_documents,
    hash_users,
    lay_out,
    limit_documents,
    split_by_user,
    with_group,
)
from beam_dpne.documents.participants import Participation
from beam_dpne.documents.tokenizers import Tokenizer
from beam_dpne.elements import progress
from beam_dpne.elements.batches import DocumentBlock, UserBatch
from beam_dpne.elements.processes import Processes, answers, most_forks
from beam_dpne.mechanism.randomness import RunKey
from beam_dpne.reading.line_pieces import Piece, read_piece
from beam_dpne.reading.records import Batch

# What is tokenized is cut by partition when there are so many tokens, since each block has its words.
_GATHERED_TOKENS = 2_000_000

_Out = TypeVar("_Out")
# Blocks of documents with the numbers of their partitions.
NumberedBlocks = list[tuple[int, DocumentBlock]]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Cutting:
    """How documents are tokenized, and divided among partitions of users.

    Attributes:
      run_key: secret key of the run.
      tokenizer: name, or function over Arrow arrays (see `tokenizers`).
      partitions: number of hash partitions of users, at least 1.
      max_tokens_per_user: largest number of a user's tokens, at least 1.
      is_grouped: whether documents have groups, which are put in front of their words.
      participation: who may take part, if the release is of a series; all others are left out.
    """

    run_key: RunKey = dataclasses.field(repr=False)
    tokenizer: str | Tokenizer = "words"
    partitions: int = 8
    max_tokens_per_user: int = 1_000_000
    is_grouped: bool = False
    participation: Participation | None = None


class Cutter:
    """Tokenizes batches of documents, and cuts them when it has gathered many tokens."""

    def __init__(self, cutting: Cutting) -> None:
        self._cutting = cutting
        self._tokenize = tokenizers.resolve_tokenizer(cutting.tokenizer)
        self._gathered: list[DocumentBlock] = []
        if cutting.participation is not None:
            cutting.participation.open()

    def answer(self, batch: pa.RecordBatch | None) -> Iterator[NumberedBlocks]:
        """Takes a batch of documents, or None at the end, and yields the blocks that are cut."""
        if batch is not None:
            self._gathered.append(self._tokenized(batch))
        tokens = sum(block.codes.size for block in self._gathered)
        enough = 0 if batch is None else _GATHERED_TOKENS
        if tokens > enough:
            yield self._cut()

    def _tokenized(self, batch: pa.RecordBatch) -> DocumentBlock:
        participation = self._cutting.participation
        if participation is None:
            hashes = hash_users(batch.column(USER), self._cutting.run_key.sub_key("user"))
        else:
            users = batch.column(USER).dictionary_encode()
            digests = participation.digests(users.dictionary)
            # A user's documents are all left out or all kept, in whichever batches they are.
            may = participation.may_take_part(digests)
            # (documents,) int32: the place of each document's user in the dictionary.
            places = users.indices.to_numpy()
            if not may.all():
                batch = batch.filter(pa.array(may[places]))
                places = places[may[places]]
            hashes = digests[places]
        tokens = tokenizers.tokenize(self._tokenize, batch.column(TEXT))
        if self._cutting.is_grouped:
            tokens = with_group(batch.column(GROUP), tokens)
        rows, tokens = tokenizers.cut_at_borders(pa.array(np.arange(len(batch))), tokens)
        return encode_documents(hashes[rows.to_numpy()], tokens)

    def _cut(self) -> NumberedBlocks:
        most = self._cutting.max_tokens_per_user
        key = self._cutting.run_key.sub_key("document")
        block = DocumentBlock.joined(self._gathered)
        self._gathered = []
        participation = self._cutting.participation
        # Before users are limited, since which documents that leaves depends on those gathered here.
        texts: dict[int, np.ndarray] = {}
        if participation is not None:
            texts = participation.digests_of_texts(block, self._cutting.partitions)
        block = limit_documents([block], most, key, final=False)
        pieces = split_by_user(block, self._cutting.partitions)
        cut: NumberedBlocks = []
        for number, piece in pieces:
            for part in bounded_blocks(piece):
                # The first block of a partition has the digest of all of them.
                digest = texts.pop(number, part.texts)
                cut.append((number, dataclasses.replace(part, texts=digest)))
        return cut


def _forget(batch: Batch) -> None:
    """Leaves records uncounted."""
    del batch


def cut_by_partition(
    given: Iterable[pa.RecordBatch | Piece],
    cutting: Cutting,
    workers: int,
    note: Callable[[Batch], None] = _forget,
) -> list[list[DocumentBlock]]:
    """Tokenizes all documents, in so many processes, and brings the blocks of each partition together.

    Args:
      given: documents with the columns user, text and, with groups, group; or lines that have them,
        which are parsed where they are tokenized.
      cutting: how they are tokenized and divided.
      workers: the largest number of processes; it changes no release.
      note: takes the records of lines, without their documents.

    Returns:
      The blocks of each partition that has some.

    Raises:
      InputError: a file lacks a field.
    """
    partitions: dict[int, list[DocumentBlock]] = {}
    cutter = Cutter(cutting)

    def answer(asked: pa.RecordBatch | Piece | None) -> Iterator[NumberedBlocks | Batch]:
        if not isinstance(asked, Piece):
            yield from cutter.answer(asked)
            return
        for batch in read_piece(asked):
            if batch.documents.num_rows:
                yield from cutter.answer(batch.documents)
            yield batch.without_documents()

    def keep(answers: Iterable[NumberedBlocks | Batch]) -> None:
        for found in answers:
            if isinstance(found, Batch):
                note(found)
                continue
            for number, block in found:
                partitions.setdefault(number, []).append(block)

    most = most_forks(workers, cutting.partitions)
    with contextlib.closing(Processes(answer, most)) as forks:
        for asked in given:
            progress.enter("read")
            keep(forks.offer(asked) if most else answer(asked))
        keep(forks.all(None) if most else answer(None))
    return list(partitions.values())


def of_laid_out(
    function: Callable[[UserBatch], _Out],
    partitions: Sequence[Iterable[DocumentBlock]],
    cutting: Cutting,
    workers: int,
) -> Iterator[_Out]:
    """Yields what a function returns for each batch of users of all partitions, in any order.

    Forks share the work: they begin with all that this process holds, so that only what the function
    returns travels.

    Args:
      function: maps positions of length 0, of users who are in no other batch.
      partitions: the documents of each partition of users.
      cutting: how they were divided.
      workers: the largest number of processes; it changes no release.
    """

    def answer(number: int) -> Generator[_Out, None, None]:
        partition = (number, partitions[number])
        limit = cutting.max_tokens_per_user
        progress.enter("users")
        for batch in lay_out(partition, max_tokens=limit, run_key=cutting.run_key):
            yield function(batch)

    numbers = range(len(partitions))
    with progress.counting(numbers):
        yield from answers(answer, numbers, workers)
