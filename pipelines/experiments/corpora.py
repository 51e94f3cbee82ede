"""The data of the experiments, which are tokenized once, counted once, and kept in memory."""

import dataclasses
import functools
import os
from collections.abc import Iterator

import numpy as np
import pyarrow as pa

from beam_dpne.documents.blocks import hash_users, lay_out, split_by_user
from beam_dpne.elements import arrays
from beam_dpne.elements.batches import DocumentBlock, UserBatch
from beam_dpne.evaluation.corpus import Corpus, GramIndex, index_corpus, read_corpus
from beam_dpne.mechanism.randomness import RunKey
from beam_dpne.reading.files import match_inputs
from beam_dpne.reading.options import ReadOptions
from pipelines.experiments.union_policies import Holdings

_TOKENS_A_PARTITION = 1_000_000
_FEWEST_PARTITIONS = 4


@dataclasses.dataclass(frozen=True, kw_only=True)
class Source:
    """Where a corpus comes from.

    Attributes:
      path: Path of the file.
      title: Name of the data, for tables.
      note: A note on the data for the reader.
      max_length: The longest n-grams that are counted.
      input_format: How the file is read.
      tokenizer: Name of the tokenizer.
      group_field: The field with the group of a text; None without groups.
    """

    path: str
    title: str
    note: str
    max_length: int
    input_format: str = "auto"
    tokenizer: str = "words"
    group_field: str | None = None


def titles_source(given: str | None, sample: str, note: str, max_length: int = 1) -> Source:
    """Returns the titles that the option names, or the sample of the repository."""
    path = given or sample
    name = os.path.basename(path)
    title = f"titles ({name})" if given else "titles (the sample in the repository)"
    return Source(
        path=path, title=title, note=f"{name}, tokenizer words; {note}", max_length=max_length
    )


class Data:
    """A corpus with what is counted on it, as secret as the users' texts."""

    def __init__(self, source: Source):
        """Reads nothing yet."""
        self.source = source

    @functools.cached_property
    def corpus(self) -> Corpus:
        """The tokenized texts."""
        options = ReadOptions(
            input_format=self.source.input_format, group_field=self.source.group_field
        )
        return read_corpus(match_inputs([self.source.path]), options, self.source.tokenizer)

    @functools.cached_property
    def _index(self) -> GramIndex:
        return index_corpus(self.corpus, self.source.max_length)

    def index(self, max_length: int) -> GramIndex:
        """Returns the users and occurrences of the n-grams of lengths up to T."""
        return dataclasses.replace(self._index, lengths=self._index.lengths[:max_length])

    def user_batches(self, max_tokens: int, run_key: RunKey) -> Iterator[UserBatch]:
        """Yields the users under a run key, as `PrivateNgrams` lays them out."""
        corpus = self.corpus
        block = DocumentBlock(
            users=hash_users(corpus.users, run_key.sub_key("user"))[
                corpus.user_of_position[corpus.codes < 0]
            ],
            offsets=arrays.offsets_of(corpus.piece_lengths),
            codes=corpus.codes[corpus.codes >= 0],
            words=corpus.words.cast(pa.string()),
        )
        partitions = max(_FEWEST_PARTITIONS, corpus.tokens // _TOKENS_A_PARTITION)
        for number, piece in split_by_user(block, partitions):
            yield from lay_out((number, [piece]), max_tokens=max_tokens, run_key=run_key)

    @functools.cached_property
    def holdings(self) -> Holdings:
        """Each user's distinct words, with numbers of occurrences."""
        corpus = self.corpus
        inside = np.flatnonzero(corpus.codes >= 0)
        columns = corpus.user_of_position[inside], corpus.codes[inside]
        (users, items), begins = arrays.distinct(columns, (len(corpus.users), len(corpus.words)))
        counts = np.diff(begins, append=inside.size)
        sizes = np.bincount(users, minlength=len(corpus.users))
        return Holdings(arrays.offsets_of(sizes), items.astype(np.int32), counts, len(corpus.words))

    def user_items(self, run_key: RunKey) -> DocumentBlock:
        """Returns each user's distinct words under a run key, as `PrivateSetUnion` groups them."""
        words = self.corpus.words.cast(pa.string())
        return DocumentBlock(
            users=hash_users(self.corpus.users, run_key.sub_key("user")),
            offsets=self.holdings.offsets,
            codes=self.holdings.items,
            words=words,
            word_hashes=arrays.hash_words(run_key.sub_key("word"), words),
        )
