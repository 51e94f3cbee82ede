"""Exact counts of a public vocabulary in a private corpus: for the operator, and for simulations."""

import dataclasses
import functools

import numpy as np
import numpy.typing as npt
import pyarrow.compute as pc

from beam_dpne.batches import NO_GRAM
from beam_dpne.evaluation.corpus import Corpus
from beam_dpne.gram_counts import UserGrams, limit_grams
from beam_dpne.public_counts import PublicCounts
from beam_dpne.users import hash_users


@dataclasses.dataclass(frozen=True, eq=False, kw_only=True)
class ExactCounts:
    """Which user has which public gram how often, as secret as the data.

    Attributes:
      public: the vocabulary.
      grams: of each user that has any.
      users: users of the corpus, with or without a public gram.
      copies: (n,) int64, how many users each of `grams.users` stands for; 1 unless resampled.
    """

    public: PublicCounts
    grams: UserGrams
    users: int
    copies: np.ndarray

    @functools.cached_property
    def counts(self) -> np.ndarray:
        """How often all users have each gram, without any limit: (V,) int64."""
        return self._summed(self.grams, self.grams.counts)

    @functools.cached_property
    def holders(self) -> np.ndarray:
        """How many users have each gram: (V,) int64."""
        return self._summed(self.grams, np.ones_like(self.grams.counts))

    @property
    def distribution(self) -> np.ndarray:
        """The private distribution, which mechanisms approach: (V,) float64, summing to 1."""
        return self.counts / self.counts.sum()

    def limited(self, *, max_contributions: int, max_count: int, sub_key: bytes) -> UserGrams:
        """Returns what each user contributes under W and C; see `gram_counts.limit_grams`."""
        return limit_grams(
            self.grams,
            max_contributions=max_contributions,
            max_count=max_count,
            sub_key=sub_key,
        )

    def sums(self, grams: UserGrams) -> tuple[np.ndarray, np.ndarray]:
        """Returns counts and users of each gram, of limited grams: two (V,) int64."""
        return self._summed(grams, grams.counts), self._summed(grams, np.ones_like(grams.counts))

    def resampled(self, users: int, seed: int) -> "ExactCounts":
        """Returns as many users, drawn from these with replacement: not the data any more.

        Args:
          users: how many.
          seed: of numpy's generator; public, as everything here is for the operator only.
        """
        drawn = np.random.default_rng(seed).multinomial(users, self._shares())
        return dataclasses.replace(self, users=users, copies=drawn[:-1])

    def most_frequent(self, vocabulary_size: int) -> "ExactCounts":
        """Returns the counts of the first grams of the vocabulary only."""
        inside = self.grams.rows < vocabulary_size
        held = np.add.reduceat(inside, self.grams.offsets[:-1], dtype=np.int64)
        grams = UserGrams(
            users=self.grams.users[held > 0],
            offsets=np.append(0, np.cumsum(held[held > 0])),
            rows=self.grams.rows[inside],
            counts=self.grams.counts[inside],
        )
        public = self.public.most_frequent(vocabulary_size)
        return dataclasses.replace(self, public=public, grams=grams, copies=self.copies[held > 0])

    def _shares(self) -> np.ndarray:
        """The share of each user with grams, and last of all others together."""
        own = self.copies / self.users
        return np.append(own, max(0.0, 1.0 - own.sum()))

    def _summed(self, grams: UserGrams, values: np.ndarray) -> np.ndarray:
        weights = np.repeat(self.copies, np.diff(grams.offsets)) * values
        # Sums are below 2^53, where float64 is exact.
        return np.bincount(grams.rows, weights, minlength=len(self.public)).astype(np.int64)


def count_exactly(corpus: Corpus, public: PublicCounts, sub_key: bytes) -> ExactCounts:
    """Finds the public grams of all users.

    Args:
      corpus: private.
      public: the vocabulary.
      sub_key: of users' hashes, by which contributions are chosen.
    """
    rows = public_rows(corpus, public)
    place = np.flatnonzero(rows >= 0)
    keys = corpus.user_of_position[place].astype(np.int64) * len(public) + rows[place]
    keys, counts = np.unique(keys, return_counts=True)
    users, rows = np.divmod(keys, len(public))
    holding, held = np.unique(users, return_counts=True)
    grams = UserGrams(
        users=hash_users(corpus.users, sub_key)[holding],
        offsets=np.append(0, np.cumsum(held)),
        rows=rows.astype(np.int32),
        counts=counts.astype(np.int64),
    )
    return ExactCounts(
        public=public,
        grams=grams,
        users=len(corpus.users),
        copies=np.ones(holding.size, dtype=np.int64),
    )


def public_rows(corpus: Corpus, public: PublicCounts) -> npt.NDArray[np.int32]:
    """Returns the public gram that begins at each position of a corpus, −1 where none does."""
    places = pc.call_function(
        "index_in", [corpus.words.cast("string")], pc.SetLookupOptions(value_set=public.words)
    )
    known = places.fill_null(NO_GRAM).to_numpy(zero_copy_only=False).astype(np.int32)
    # A border's code is −1, the last place.
    return public.rows_of(np.append(known, np.int32(NO_GRAM))[corpus.codes])
