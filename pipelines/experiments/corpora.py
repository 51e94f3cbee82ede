"""The data of the experiments, each of which is tokenized once, sampled, counted and kept in memory."""

import dataclasses
import functools
import hashlib
import pathlib
from collections.abc import Mapping

import numpy as np

from beam_dpne.documents.group_by_user import hash_users
from beam_dpne.elements.arrays import hash_words
from beam_dpne.evaluation.corpus import Corpus, GramIndex, index_corpus, read_corpus
from beam_dpne.mechanism.randomness import RunKey
from beam_dpne.reading.files import match_inputs
from beam_dpne.reading.options import ReadOptions
from beam_dpne.set_union.elements import UserItems
from pipelines.experiments.ranked import RankedGrams, rank_grams, sorted_distinct
from pipelines.experiments.saved_corpora import load_corpus, sample_users, save_corpus
from pipelines.experiments.union_policies import Holdings

_TOKENS_A_PARTITION = 1_000_000
_FEWEST_PARTITIONS = 4
_SHOWN_DIGITS = 12


@dataclasses.dataclass(frozen=True, kw_only=True)
class Source:
    """Where a corpus comes from.

    Attributes:
      path: Path of the file.
      title: Name of the data, for tables and pictures.
      note: A note on the data for the reader.
      reading: How the file is read.
      tokenizer: Name of the tokenizer.
      one_in: 1 for all users, or n for a keyed n-th of them.
    """

    path: str
    title: str
    note: str
    reading: ReadOptions
    tokenizer: str
    one_in: int = 1

    @functools.cached_property
    def digest(self) -> str:
        """SHA-256 of the file and of how it is read, hexadecimal."""
        hashed = hashlib.sha256(pathlib.Path(self.path).read_bytes()).hexdigest()
        how = f"{hashed} {self.reading} {self.tokenizer} {self.one_in}"
        return hashlib.sha256(how.encode()).hexdigest()


class Corpora:
    """All corpora; counts are kept for one of them at a time."""

    def __init__(
        self,
        sources: Mapping[str, Source],
        cache: pathlib.Path,
        sampling: RunKey,
        longest: Mapping[str, int],
    ):
        """Prepares the corpora and reads nothing yet.

        Args:
          sources: The data by name.
          cache: Local directory for tokenized corpora, as secret as the data.
          sampling: Key that decides which users are in a sample.
          longest: The length up to which each corpus will be counted at least.
        """
        self.sources = sources
        self._longest = longest
        self._cache = cache
        self._sampling = sampling
        self._corpora: dict[str, Corpus] = {}
        self._counted: dict[str, tuple[str, int, GramIndex | RankedGrams]] = {}
        self._items: tuple[str, np.ndarray, np.ndarray, np.ndarray] | None = None

    def folder(self, name: str) -> pathlib.Path:
        """Returns the folder of a saved corpus; reads and saves the corpus the first time."""
        source = self.sources[name]
        folder = self._cache / f"{name}-{source.digest[:_SHOWN_DIGITS]}"
        if not (folder / "corpus.json").is_file():
            save_corpus(self._read(name), folder)
        return folder

    def corpus(self, name: str) -> Corpus:
        """Returns a corpus."""
        if name not in self._corpora:
            self._corpora[name] = load_corpus(self.folder(name))
        return self._corpora[name]

    def partitions(self, name: str) -> int:
        """Returns the number of partitions of users that a run over a corpus should have."""
        return max(_FEWEST_PARTITIONS, self.corpus(name).tokens // _TOKENS_A_PARTITION)

    def index(self, name: str, max_length: int) -> GramIndex:
        """Returns the users and occurrences of the n-grams of a corpus, of lengths up to T."""
        kept = self._kept("index", name, max_length)
        if not isinstance(kept, GramIndex):
            most = max(max_length, self._longest.get(name, 1))
            kept = index_corpus(self.corpus(name), most)
            self._counted["index"] = (name, most, kept)
        return GramIndex(corpus=kept.corpus, lengths=kept.lengths[:max_length])

    def ranked(self, name: str, max_length: int) -> RankedGrams:
        """Returns numbers for the distinct n-grams of a corpus, of lengths up to T."""
        kept = self._kept("ranked", name, max_length)
        if not isinstance(kept, RankedGrams):
            most = max(max_length, self._longest.get(name, 1))
            kept = rank_grams(self.corpus(name), most)
            self._counted["ranked"] = (name, most, kept)
        ids, sizes = kept.ids[:max_length], kept.sizes[:max_length]
        return RankedGrams(corpus=kept.corpus, ids=ids, sizes=sizes)

    def user_items(self, name: str, run_key: RunKey) -> UserItems:
        """Returns each user's distinct words under a run key, as `PrivateSetUnion` groups them."""
        corpus = self.corpus(name)
        if self._items is None or self._items[0] != name:
            self._items = (name, *_distinct_words(corpus))
        _, offsets, items, _ = self._items
        users = hash_users(corpus.users, run_key.sub_key("user"))
        words = corpus.words.cast("string")
        return UserItems(
            users=users,
            offsets=offsets,
            items=items,
            words=words,
            word_hashes=hash_words(run_key.sub_key("word"), words),
        )

    def holdings(self, name: str) -> Holdings:
        """Returns each user's distinct words, with numbers of occurrences."""
        corpus = self.corpus(name)
        if self._items is None or self._items[0] != name:
            self._items = (name, *_distinct_words(corpus))
        _, offsets, items, counts = self._items
        return Holdings(offsets, items, counts, len(corpus.words))

    def _kept(self, kind: str, name: str, max_length: int) -> GramIndex | RankedGrams | None:
        """Returns the counts that are kept if they suffice; otherwise frees their memory first."""
        kept = self._counted.get(kind)
        if kept is not None and kept[0] == name and kept[1] >= max_length:
            return kept[2]
        self._counted.pop(kind, None)
        return None

    def _read(self, name: str) -> Corpus:
        source = self.sources[name]
        if source.one_in > 1:
            whole = next(
                whole_name
                for whole_name, other in self.sources.items()
                if other.path == source.path and other.one_in == 1
            )
            sub_key = self._sampling.sub_key("sample of users")
            return sample_users(self.corpus(whole), sub_key, source.one_in)
        return read_corpus(match_inputs([source.path]), source.reading, source.tokenizer)


def _distinct_words(corpus: Corpus) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Returns each user's distinct words (CSR): offsets, codes of words, and numbers of occurrences."""
    inside = np.flatnonzero(corpus.codes >= 0)
    users = corpus.user_of_position[inside].astype(np.int64)
    # (n,) int64, the user in the high 32 bits and the word in the low ones, so that one sort groups.
    pairs = np.sort(users << 32 | corpus.codes[inside])
    distinct = sorted_distinct(pairs)
    counts = np.diff(np.searchsorted(pairs, distinct), append=pairs.size)
    sizes = np.bincount(distinct >> 32, minlength=len(corpus.users))
    items = (distinct & 0xFFFFFFFF).astype(np.int32)
    return np.append(0, np.cumsum(sizes)), items, counts.astype(np.int32)
