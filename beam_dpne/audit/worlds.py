"""Made-up corpora for plain runs: copies of one user among others, and what a release shows of each.

A corpus has many copies of the user in question, each with words or n-grams that are watched for it
alone. In each run a fair coin decides for each copy whether its user takes part. So one run gives many
observations of both worlds, and the other copies are other users like any others.
"""

import dataclasses
import functools
from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa

from beam_dpne.elements.arrays import hash_words
from beam_dpne.elements.batches import NO_GRAM, UserBatch
from beam_dpne.mechanism.randomness import RunKey, keyed_bits
from beam_dpne.ngrams.elements import GramSet, unpack_pairs
from beam_dpne.ngrams.in_memory import release_ngrams
from beam_dpne.ngrams.plan import PrivacyPlan
from beam_dpne.set_union.plan import SetUnionPlan
from beam_dpne.set_union.threshold import release_items
from beam_dpne.set_union.weights import items_of_users

TextPlan = PrivacyPlan | SetUnionPlan
# A document as numbers of words, and an n-gram.
Words = tuple[int, ...]
# N-grams are counted by score, two borders an octave.
SCORE_BORDERS = 2.0 ** np.arange(-3, 5, 0.5)


@dataclasses.dataclass(frozen=True, kw_only=True)
class World:
    """Users with documents.

    Attributes:
      words: the number of words.
      own: the documents of the user of each copy.
      others: documents of other users, and how many users have each of them as their only document.
      watched: for each copy its n-grams by kind; the attacker learns what each kind tells.
    """

    words: int
    own: tuple[tuple[Words, ...], ...]
    others: tuple[tuple[Words, int], ...]
    watched: tuple[tuple[tuple[Words, ...], ...], ...]

    @functools.cached_property
    def texts(self) -> tuple[np.ndarray, np.ndarray]:
        """Where the positions of each user begin, own users first, and all positions."""
        texts = [tuple(word for text in own for word in (*text, NO_GRAM)) for own in self.own]
        for text, number in self.others:
            texts += [(*text, NO_GRAM)] * number
        sizes = np.array([len(text) for text in texts])
        ids = np.fromiter((word for text in texts for word in text), np.int32, sizes.sum())
        return np.append(0, np.cumsum(sizes)), ids

    @functools.cached_property
    def names(self) -> pa.Array:
        """The words, in the order of their bytes."""
        return pa.array([f"{number:08}" for number in range(self.words)])

    @functools.cached_property
    def codes(self) -> dict[int, np.ndarray]:
        """By length, watched n-grams as (n, 3) int64: code, copy, and kind."""
        rows: dict[int, list[tuple[int, int, int]]] = {}
        for copy, kinds in enumerate(self.watched):
            for kind, grams in enumerate(kinds):
                for gram in grams:
                    rows.setdefault(len(gram), []).append((self._code(gram), copy, kind))
        return {length: np.array(sorted(each)) for length, each in rows.items()}

    def _code(self, gram: Words) -> int:
        return functools.reduce(lambda code, word: code * self.words + word, gram, 0)

    def batch(self, present: np.ndarray, run_key: RunKey) -> UserBatch:
        """Returns the users, of those of copies only the ones who take part."""
        offsets, ids = self.texts
        sizes = np.diff(offsets)
        chosen = np.append(present, np.ones(sizes.size - present.size, bool))
        users = np.flatnonzero(chosen).astype(np.uint64)
        return UserBatch(
            length=0,
            size=self.words,
            users=np.stack((users, ~users), axis=1),
            offsets=np.append(0, np.cumsum(sizes[chosen])),
            ids=ids[np.repeat(chosen, sizes)],
            words=self.names,
            word_hashes=hash_words(run_key.sub_key("word"), self.names),
        )

    def observe(self, released: Sequence[tuple[np.ndarray, np.ndarray]]) -> np.ndarray:
        """Returns for each kind the number of released n-grams, also by score, and sums of scores.

        Args:
          released: codes and scores of each length.

        Returns:
          (copies, statistics) float64.
        """
        seen = np.zeros((len(self.own), len(self.watched[0]), 3 + SCORE_BORDERS.size + 1))
        for length, watched in self.codes.items():
            codes, scores = released[length - 1]
            _, place, row = np.intersect1d(watched[:, 0], codes, return_indices=True)
            _, copies, kinds = watched[place].T
            for power in range(3):
                np.add.at(seen, (copies, kinds, power), scores[row] ** power)
            np.add.at(seen, (copies, kinds, 3 + np.searchsorted(SCORE_BORDERS, scores[row])), 1)
        return seen.reshape(len(self.own), -1)


def release_of(
    world: World, plan: TextPlan, present: np.ndarray, run_key: RunKey
) -> list[tuple[np.ndarray, np.ndarray]]:
    """Releases the corpus by the functions of the product: codes and scores of each length."""
    batch = world.batch(present, run_key)
    if isinstance(plan, SetUnionPlan):
        found = release_items(items_of_users(batch), plan, run_key)
        return [(_numbers(found.items), found.scores)]
    released = release_ngrams([batch], plan, run_key)
    return list(decoded(released, world.words, plan.pruning))


def decoded(
    released: Sequence[GramSet], words: int, pruning: str
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Yields the codes and scores of released n-grams, whose words are numbers."""
    vocabulary = last = codes = np.zeros(0, np.int64)
    for found in released:
        if found.words is not None:
            vocabulary = last = codes = _numbers(found.words)
        else:
            first, second = unpack_pairs(found.keys)
            # The second is a word, or else a suffix of several words.
            last = (vocabulary if found.length == 2 or pruning == "single" else last)[second]
            codes = codes[first] * words + last
        yield codes, found.scores


def _numbers(words: pa.Array) -> np.ndarray:
    return np.array(words.cast(pa.int64()))


def coins(copies: int, run_key: RunKey) -> np.ndarray:
    """Returns for each copy whether its user takes part: (copies,) bool."""
    bits = keyed_bits(run_key.sub_key("presence"), 0, np.arange(copies))
    return (bits[:, 0] & np.uint64(1)).astype(bool)
