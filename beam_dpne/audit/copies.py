"""Many copies of one small corpus as one corpus, and which copy each of its n-grams belongs to.

Users, documents and words of a copy have nothing to do with those of another one. In each copy one
user holds every sequence of T words. The others are users like any other, or a crowd, of which only the
sums are made up.
"""

import dataclasses
import functools
import itertools
from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from beam_dpne import GramSet, PresentGrams, PrivacyPlan, RunKey, UserBatch
from beam_dpne.elements.arrays import hash_words
from beam_dpne.elements.batches import NO_GRAM
from beam_dpne.ngrams.classes import sides_of
from beam_dpne.ngrams.elements import pack_pairs, unpack_pairs

USER = 0
NO_CLASS = 2**20


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class World:
    """One user, whose grams decide everything, and the others.

    Attributes:
      plan: of the run; its words are given, or they are the grams (T = 1).
      words: the user has every sequence of T of them once.
      others: for each other user its documents, as numbers of words.
      crowd: others who are so many that only their sums are made up. "none": there is no crowd.
        "words": it has all words, which are then released in any case. "everything": it has all
        n-grams (with one word only). "near": it has all words but the first, each with a weight at the
        threshold.
      longest: the longest n-grams that are played, T with None. Each user who is played has no others.
      has_given_words: whether the words are known already, and nothing is spent on them.
    """

    plan: PrivacyPlan
    words: int
    others: tuple[tuple[tuple[int, ...], ...], ...] = ()
    crowd: str = "none"
    longest: int | None = None
    has_given_words: bool = False

    @property
    def lengths(self) -> range:
        """The lengths that are played: from 2 on if the words are given."""
        return range(1 + self.has_given_words, (self.longest or self.plan.max_length) + 1)

    @property
    def first(self) -> int:
        """The first length that is played."""
        return self.lengths.start

    def is_crowded(self, length: int) -> bool:
        """Whether the crowd has all n-grams of a length, so that they are released in any case."""
        return self.crowd == "everything" or (self.crowd == "words" and length == 1)

    @functools.cached_property
    def text(self) -> tuple[int, ...]:
        """A de Bruijn sequence, cut open."""
        return tuple(de_bruijn(self.words, self.longest or self.plan.max_length).tolist())

    def held_by_others(self, length: int) -> np.ndarray:
        """Marks the grams of a length that others hold: (grams,) bool."""
        if self.is_crowded(length):
            return np.ones(self.words**length, bool)
        marks = np.zeros((self.words,) * length, bool)
        if self.crowd == "near":
            marks[1:] = True
        for text in itertools.chain.from_iterable(self.others):
            for start in range(len(text) - length + 1):
                marks[text[start : start + length]] = True
        return marks.reshape(-1)


def crowd(*kinds: tuple[int, Sequence[int]]) -> tuple[tuple[tuple[int, ...], ...], ...]:
    """Returns other users, for each (count, document) so many with this one document."""
    return tuple((tuple(text),) for count, text in kinds for _ in range(count))


def known(array: np.ndarray | None) -> np.ndarray:
    """Returns an array that elements of a run have in this place."""
    if array is None:
        raise ValueError("An element of a run must have all arrays, got None.")
    return array


def words_of(runs: int, words: int) -> list[str]:
    """The words of all copies, in the order of their bytes."""
    return [f"{number:09}" for number in range(runs * words)]


def positions(world: World, runs: int, run_key: RunKey, *, has_user: bool) -> UserBatch:
    """The users of all copies: the user first, then the others."""
    everyone = [((world.text),), *world.others]
    present = range(0 if has_user else 1, len(everyone))
    texts = [list(itertools.chain.from_iterable((*t, -1) for t in everyone[u])) for u in present]
    ids = np.array(list(itertools.chain.from_iterable(texts)), np.int32)
    ends = np.cumsum([0, *map(len, texts)])
    first_words = np.repeat(np.arange(runs, dtype=np.int32) * world.words, ids.size)
    everywhere = np.tile(ids, runs)
    copies = np.repeat(np.arange(runs, dtype=np.uint64), len(texts))
    numbers = np.tile(np.array(present, np.uint64), runs)
    words = pa.array(words_of(runs, world.words))
    starts = np.arange(runs)[:, np.newaxis] * ids.size + ends[:-1]
    return UserBatch(
        length=0,
        size=len(words),
        users=np.stack((copies, numbers), axis=1),
        offsets=np.append(starts.reshape(-1), runs * ids.size),
        ids=np.where(everywhere < 0, NO_GRAM, everywhere + first_words).astype(np.int32),
        words=words,
        word_hashes=hash_words(run_key.sub_key("word"), words),
    )


def de_bruijn(words: int, length: int) -> np.ndarray:
    """Returns a sequence of words that has every sequence of this length exactly once.

    References: Hierholzer's algorithm for an Eulerian circuit of the de Bruijn graph.
    """
    if length == 1:
        return np.arange(words)
    rest = {node: list(range(words)) for node in itertools.product(range(words), repeat=length - 1)}
    path, circuit = [next(iter(rest))], []
    while path:
        if rest[path[-1]]:
            path.append((*path[-1], rest[path[-1]].pop())[1:])
        else:
            circuit.append(path.pop())
    circuit.reverse()
    return np.array([*circuit[0], *(node[-1] for node in circuit[1:])])


def take_copies(batch: UserBatch, copies: np.ndarray) -> UserBatch:
    """Selects the users of some copies."""
    chosen = np.isin(batch.users[:, 0], copies.astype(np.uint64))
    sizes = np.diff(batch.offsets)
    return dataclasses.replace(
        batch,
        users=batch.users[chosen],
        offsets=np.concatenate(([0], np.cumsum(sizes[chosen]))),
        ids=batch.ids[np.repeat(chosen, sizes)],
        left=None if batch.left is None else batch.left[chosen],
    )


def named(
    keys: np.ndarray, length: int, previous: GramSet | None, world: World
) -> tuple[np.ndarray, np.ndarray]:
    """Returns the copy of each gram, and its number among all sequences of k words of the copy."""
    if length == 1:
        return np.divmod(keys, world.words)
    first, second = unpack_pairs(keys)
    if length > 2 and previous is not None:
        copies, grams = named(previous.keys, length - 1, None, world)
        return copies[first], grams[first] * world.words + grams[second] % world.words
    return first // world.words, (first % world.words) * world.words + second % world.words


def keys_of(
    copies: np.ndarray, grams: np.ndarray, length: int, previous: GramSet, world: World
) -> np.ndarray:
    """Returns the key of each candidate of length k ≥ 2, given its copy and its number there."""
    rows = _rows_by_name(previous, length - 1, world, int(copies.max(initial=-1)) + 1)
    second = rows[copies, grams % world.words ** (length - 1)]
    if world.plan.pruning == "single" and length > 2:
        second = copies * world.words + grams % world.words
    return pack_pairs(rows[copies, grams // world.words], second)


def copies_of_grams(grams: GramSet | PresentGrams, world: World) -> np.ndarray:
    """The copy of each gram of the first private length."""
    if grams.words is not None:
        return np.array(grams.words.to_pylist(), dtype=np.int64) // world.words
    return unpack_pairs(grams.keys)[0] // world.words


def candidate_classes(
    previous: GramSet | None, length: int, world: World, runs: int
) -> tuple[np.ndarray, np.ndarray]:
    """Returns the class of each sequence of k words in each copy, and |S_{k−1}| in each.

    Args:
      previous: S_{k−1} of all copies; None at length 1, where every word has class 0.
      length: k.
      world: of which there are copies.
      runs: how many.

    Returns:
      Classes, (runs, grams) int64, `NO_CLASS` where a sequence is no candidate; sizes, (runs,) int64.
    """
    grams = np.arange(world.words**length)
    if previous is None:
        return np.zeros((runs, grams.size), np.int64), np.ones(runs, np.int64)
    rows = _rows_by_name(previous, length - 1, world, runs)
    sides = sides_of(previous, world.plan.pruning)
    first = rows[:, grams // world.words]
    second = rows[:, grams % world.words ** (length - 1)]
    if world.plan.pruning == "single" and length > 2:
        # Beyond two words this rule is played with words only that are released in every copy.
        second = np.arange(runs)[:, np.newaxis] * world.words + grams % world.words
    classes = np.full(first.shape, NO_CLASS)
    valid = (first >= 0) & (second >= 0)
    classes[valid] = sides.left_bins[first[valid]] + sides.right_bins[second[valid]]
    return classes, (rows >= 0).sum(axis=1)


def _rows_by_name(grams: GramSet, length: int, world: World, runs: int) -> np.ndarray:
    """Returns the row of each sequence of words in each copy, −1 if it was not found: int64."""
    rows = np.full((runs, world.words**length), -1, np.int64)
    copies, numbers = _named_rows(grams, length, world)
    inside = copies < runs
    rows[copies[inside], numbers[inside]] = np.flatnonzero(inside)
    return rows


def _named_rows(grams: GramSet, length: int, world: World) -> tuple[np.ndarray, np.ndarray]:
    if grams.words is not None:
        return named(np.array(grams.words.to_pylist(), np.int64), 1, None, world)
    return named(grams.keys, length, None, world)


def copies_as_middles(
    previous: GramSet, rows: np.ndarray, world: World
) -> tuple[GramSet, np.ndarray]:
    """Returns a set whose V_k are the pairs of words of each copy, and the row in S_1 of each.

    The copy is the middle: x·copy for each of its words, and copy·z, with x and z named apart.

    Args:
      previous: S_1 of all copies.
      rows: those of its words that belong to some copies.
      world: of which there are copies.
    """
    number = np.arange(rows.size)
    copy = copies_of_grams(previous, world)[rows]
    most = int(copy.max(initial=-1)) + 1
    before, after = most + number, most + number.size + number
    keys = np.concatenate((pack_pairs(copy, after), pack_pairs(before, copy)))
    pairs = GramSet(
        length=2,
        keys=keys,
        scores=np.tile(previous.scores[rows], 2),
        parent_size=most + 2 * number.size,
        vocabulary_size=number.size,
        suffix_bins=np.zeros(keys.size, np.int16),
    )
    return pairs, np.concatenate((rows, rows))
