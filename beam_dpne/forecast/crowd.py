"""A crowd of made-up users: public documents, and which of them belong to one user."""

import dataclasses
import functools

import numpy as np
import pyarrow as pa

from beam_dpne.elements.arrays import hash_words
from beam_dpne.elements.batches import UserBatch
from beam_dpne.mechanism.randomness import RunKey

# Positions of one batch: its arrays take some 100 MB.
_POSITIONS_OF_A_BATCH = 2_000_000
# The most documents of a made-up user are this many times the mean, as in the shipped sample of titles.
_LONGEST = 50


@dataclasses.dataclass(frozen=True, eq=False, kw_only=True)
class Crowd:
    """Users and their public documents.

    Attributes:
      words: (w,) Arrow strings, the distinct words.
      offsets: (u + 1,) int64, where each user's positions begin.
      codes: (n,) int32, the index of the word at each position, and −1 after each document.
    """

    words: pa.Array
    offsets: np.ndarray
    codes: np.ndarray

    def __len__(self) -> int:
        return self.offsets.size - 1

    @functools.cached_property
    def user_of_position(self) -> np.ndarray:
        """The number of the user of each position: (n,) int64."""
        return np.repeat(np.arange(len(self)), np.diff(self.offsets))

    def take(self, users: np.ndarray) -> "Crowd":
        """Returns a crowd of some of the users, given by their numbers."""
        codes, offsets = _pieces(self.codes, self.offsets, users)
        return dataclasses.replace(self, offsets=offsets, codes=codes)

    def sample(self, count: int, rng: np.random.Generator) -> "Crowd":
        """Returns a crowd of `count` users drawn without replacement."""
        return self.take(rng.permutation(len(self))[:count])

    def batches(self, run_key: RunKey) -> list[UserBatch]:
        """Returns the users as the mechanism reads them; user i has the 128-bit hash (i, i)."""
        hashes = hash_words(run_key.sub_key("word"), self.words)
        made, first = [], 0
        while first < len(self):
            end = self.offsets[first] + _POSITIONS_OF_A_BATCH
            last = max(first + 1, int(np.searchsorted(self.offsets, end, side="right")) - 1)
            offsets = self.offsets[first : last + 1]
            used, ids = np.unique(self.codes[offsets[0] : offsets[-1]], return_inverse=True)
            borders = int(used[0] < 0)
            used = used[borders:]
            numbers = np.arange(first, last, dtype=np.uint64)
            batch = UserBatch(
                length=0,
                size=used.size,
                users=np.stack((numbers, numbers), axis=1),
                offsets=offsets - offsets[0],
                ids=(ids.reshape(-1) - borders).astype(np.int32),
                words=self.words.take(pa.array(used)),
                word_hashes=hashes[used],
            )
            made.append(batch)
            first = last
        return made


def with_documents(crowd: Crowd, mean: float, rng: np.random.Generator) -> Crowd:
    """Deals all documents of a crowd, in random order, to made-up users with a given mean number.

    The number D of documents has a heavy tail, P(D ≥ d) = d^-a up to 50 times the mean, where a gives
    the mean. A few users have most documents then, as is usual for posts, reviews and messages.

    Args:
      crowd: public documents; its users are dropped.
      mean: mean number of documents of a user, at least 1.
      rng: the source of chance.

    Example:
      >>> crowd = Crowd(words=pa.array(["a"]), offsets=np.arange(0, 2001, 2),
      ...               codes=np.tile(np.array([0, -1], np.int32), 1000))
      >>> len(with_documents(crowd, 1.0, np.random.default_rng(1)))
      1000
    """
    ends = np.flatnonzero(crowd.codes < 0) + 1
    borders = np.append(0, ends)
    counts = _document_counts(ends.size, mean, rng)
    # Users until all documents are dealt; the last user gets those that are left.
    dealt = np.minimum(np.cumsum(counts), ends.size)
    users = int(np.searchsorted(dealt, ends.size)) + 1
    codes, places = _pieces(crowd.codes, borders, rng.permutation(ends.size))
    offsets = places[np.append(0, dealt[:users])]
    return dataclasses.replace(crowd, offsets=offsets, codes=codes)


def _document_counts(users: int, mean: float, rng: np.random.Generator) -> np.ndarray:
    """Draws numbers of documents: (users,) int64."""
    most = max(1, int(_LONGEST * mean))
    numbers = np.arange(1, most + 1, dtype=np.float64)
    low, high = 0.0, 64.0
    # The mean, Σ_d P(D ≥ d), falls with a.
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if (numbers**-middle).sum() > mean else (low, middle)
    draws = (1.0 - rng.random(users)) ** (-1.0 / high)
    return np.minimum(draws, most).astype(np.int64)


def _pieces(
    values: np.ndarray, offsets: np.ndarray, chosen: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Returns some pieces of a CSR array one after the other, and where each begins."""
    sizes = np.diff(offsets)[chosen]
    begins = np.append(0, np.cumsum(sizes))
    places = np.repeat(offsets[chosen] - begins[:-1], sizes) + np.arange(begins[-1])
    return values[places], begins
