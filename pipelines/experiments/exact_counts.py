"""Exact counts of a public vocabulary in a private corpus: for the operator, and for simulations."""

import dataclasses
import functools

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from beam_dpne.elements import arrays
from beam_dpne.evaluation.corpus import Corpus
from beam_dpne.lists.public_counts import PublicCounts

_Integers = npt.NDArray[np.int64]


@dataclasses.dataclass(frozen=True, eq=False, kw_only=True)
class ExactCounts:
    """The number of times that each user has each public n-gram (CSR), as secret as the data.

    Attributes:
      public: The vocabulary of V n-grams.
      names: (n,) names of the users who have any of them.
      holding: (n,) int64, their indices in the corpus, ascending.
      offsets: (n + 1,) int64, the index in `rows` at which each such user's n-grams begin.
      rows: (m,) int32, rows of the vocabulary, ascending within a user.
      values: (m,) int64 ≥ 1, the number of times that the user has the n-gram.
      copies: (n,) int64, the number of users for whom each user stands, 1 unless resampled.
      users: Number of all users, with public n-grams or without.
    """

    public: PublicCounts
    names: pa.Array
    holding: _Integers
    offsets: _Integers
    rows: npt.NDArray[np.int32]
    values: _Integers
    copies: _Integers
    users: int

    @functools.cached_property
    def counts(self) -> _Integers:
        """Number of times that all users together have each n-gram, without any limit: (V,) int64."""
        return self.summed(self.offsets, self.rows, self.values)

    @functools.cached_property
    def holders(self) -> _Integers:
        """Number of users who have each n-gram: (V,) int64."""
        return self.summed(self.offsets, self.rows, np.ones_like(self.values))

    @property
    def distribution(self) -> npt.NDArray[np.float64]:
        """The private distribution, to which mechanisms are compared: (V,), summing to 1.

        Raises:
          ValueError: Nobody has a gram of the vocabulary.
        """
        total = int(self.counts.sum())
        if total == 0:
            raise ValueError("`public` must have some gram that the private texts have, got none.")
        return self.counts / total

    def summed(
        self, offsets: _Integers, rows: npt.NDArray[np.int32], values: _Integers
    ) -> _Integers:
        """Returns the sum of the values of each n-gram, with each user's copies: (V,) int64.

        Args:
          offsets: (n + 1,) int64, the index in `rows` at which each user's values begin.
          rows: (k,) int32, the n-gram of each value.
          values: (k,) integers.
        """
        weights = np.repeat(self.copies, np.diff(offsets)) * values
        # Sums are below 2^53, where float64 is exact.
        return np.bincount(rows, weights, minlength=len(self.public)).astype(np.int64)

    def most_frequent(self, vocabulary_size: int) -> "ExactCounts":
        """Returns the counts of the first grams of the vocabulary only."""
        inside = self.rows < vocabulary_size
        user = arrays.rows_of_entries(self.offsets)[inside]
        sizes = np.bincount(user, minlength=self.holding.size)
        left = sizes > 0
        return dataclasses.replace(
            self,
            public=self.public.most_frequent(vocabulary_size),
            names=self.names.filter(pa.array(left)),
            holding=self.holding[left],
            offsets=arrays.offsets_of(sizes[left]),
            rows=self.rows[inside],
            values=self.values[inside],
            copies=self.copies[left],
        )

    def of_users(self, chosen: npt.NDArray[np.bool_]) -> "ExactCounts":
        """Returns the counts of some users, which (u,) bool choose by their index in the corpus."""
        kept = np.where(chosen[self.holding], self.copies, 0)
        return dataclasses.replace(self, copies=kept, users=int(chosen.sum()))

    def resampled(self, users: int, seed: int) -> "ExactCounts":
        """Returns so many users, drawn with replacement from these; they are not real data.

        Args:
          users: Number of users.
          seed: Seed of numpy's generator, which protects nothing.
        """
        others = self.users - self.copies.sum()
        shares = np.append(self.copies, others) / self.users
        drawn = np.random.default_rng(seed).multinomial(users, shares / shares.sum())
        return dataclasses.replace(self, copies=drawn[:-1], users=users)


def count_exactly(corpus: Corpus, public: PublicCounts) -> ExactCounts:
    """Finds the public grams of all users.

    Args:
      corpus: The private corpus.
      public: The vocabulary.
    """
    rows = public_rows(corpus, public)
    position = np.flatnonzero(rows >= 0)
    columns = corpus.user_of_position[position], rows[position]
    (users, found), begins = arrays.distinct(columns, (len(corpus.users), len(public)))
    holding, sizes = np.unique(users, return_counts=True)
    return ExactCounts(
        public=public,
        names=corpus.users.take(pa.array(holding)),
        holding=holding,
        offsets=arrays.offsets_of(sizes),
        rows=found.astype(np.int32),
        values=np.diff(begins, append=position.size),
        copies=np.ones(holding.size, dtype=np.int64),
        users=len(corpus.users),
    )


def public_rows(corpus: Corpus, public: PublicCounts) -> npt.NDArray[np.int32]:
    """Returns the public gram that begins at each position of a corpus, −1 where none does."""
    known = arrays.places_in(corpus.words.cast(pa.string()), public.words)
    # A border has the code −1, which reads the last entry, −1.
    starts, found = public.find(np.append(known, np.int32(-1))[corpus.codes])
    rows = np.full(corpus.codes.size, -1, np.int32)
    rows[starts] = found
    return rows
