"""A crowd: made-up users with public documents, as a corpus in memory."""

import dataclasses

import numpy as np
import pyarrow as pa
from scipy import optimize

from beam_dpne.elements.arrays import hash_words
from beam_dpne.elements.batches import UserBatch
from beam_dpne.evaluation.corpus import Corpus
from beam_dpne.mechanism.randomness import RunKey

# The most documents of a made-up user are this many times the mean, as in the shipped sample of titles.
_LONGEST = 50


def take(crowd: Corpus, users: np.ndarray) -> Corpus:
    """Returns a crowd of some of the users, given by their numbers."""
    codes, offsets = _pieces(crowd.codes, crowd.offsets, users)
    names = crowd.users.take(pa.array(users))
    return dataclasses.replace(crowd, users=names, offsets=offsets, codes=codes)


def as_batch(crowd: Corpus, run_key: RunKey) -> UserBatch:
    """Returns the users as the mechanism reads them; user i has the 128-bit hash (i, i)."""
    used, ids = np.unique(crowd.codes, return_inverse=True)
    used = used[1:]  # The first code is −1, the border after each document.
    words = crowd.words.take(pa.array(used))
    numbers = np.arange(len(crowd.users), dtype=np.uint64)
    return UserBatch(
        length=0,
        size=used.size,
        users=np.stack((numbers, numbers), axis=1),
        offsets=crowd.offsets,
        ids=(ids.reshape(-1) - 1).astype(np.int32),
        words=words,
        word_hashes=hash_words(run_key.sub_key("word"), words),
    )


def with_documents(crowd: Corpus, mean: float, rng: np.random.Generator) -> Corpus:
    """Deals all documents of a crowd, in random order, to made-up users with a given mean number.

    The number D of documents has a heavy tail, P(D ≥ d) = d^-a up to 50 times the mean, where a gives
    the mean. A few users have most documents then, as is usual for posts, reviews and messages.

    Args:
      crowd: public documents; its users are dropped.
      mean: mean number of documents of a user, at least 1.
      rng: the source of chance.

    Example:
      >>> from beam_dpne.evaluation.corpus import corpus_of
      >>> crowd = corpus_of([("anybody", ["a"])] * 1000)
      >>> len(with_documents(crowd, 1.0, np.random.default_rng(1)).users)
      1000
    """
    borders = np.append(0, np.flatnonzero(crowd.codes < 0) + 1)
    documents = borders.size - 1
    most = max(1, int(_LONGEST * mean))
    numbers = np.arange(1, most + 1, dtype=np.float64)
    # The mean, Σ_d P(D ≥ d), falls with a.
    exponent = 64.0
    if mean > 1:
        found = optimize.root_scalar(lambda a: (numbers**-a).sum() - mean, bracket=(0.0, exponent))
        exponent = found.root
    draws = (1.0 - rng.random(documents)) ** (-1.0 / exponent)
    counts = np.minimum(draws, most).astype(np.int64)
    # Users until all documents are dealt; the last user gets those that are left.
    dealt = np.minimum(np.cumsum(counts), documents)
    users = int(np.searchsorted(dealt, documents)) + 1
    codes, places = _pieces(crowd.codes, borders, rng.permutation(documents))
    return dataclasses.replace(
        crowd,
        users=pa.array(np.arange(users)).cast(pa.string()),
        offsets=places[np.append(0, dealt[:users])],
        codes=codes,
    )


def _pieces(
    values: np.ndarray, offsets: np.ndarray, chosen: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Returns some pieces of a CSR array one after the other, and where each begins."""
    sizes = np.diff(offsets)[chosen]
    begins = np.append(0, np.cumsum(sizes))
    places = np.repeat(offsets[chosen] - begins[:-1], sizes) + np.arange(begins[-1])
    return values[places], begins
