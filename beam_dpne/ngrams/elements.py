"""The elements of n-grams: candidates, histograms and released sets as arrays.

A k-gram is a pair of small integers in one int64 (`pack_pairs`): the id of its prefix in S_{k−1}, and
either the id of its suffix in S_{k−1} (pruning "both") or of its last word in S_1 (pruning "single").
Ids are ranks in the sorted released set, so they are the same on every runner, and the keys of S_k
sort like its n-grams, word by word. At k = 1 n-grams are strings in Arrow arrays.
"""

import dataclasses
from collections.abc import Iterable, Sequence

import numpy as np
import pyarrow as pa

from beam_dpne.elements.encoding import Columns, StoredFile
from beam_dpne.mechanism.rules import LengthRule
from beam_dpne.ngrams.keys import Pairs, Words, keys_of, unpack_pairs
from beam_dpne.ngrams.tolerances import KNOWN_LEAD


@dataclasses.dataclass(frozen=True, eq=False, kw_only=True)
class Contributions:
    """The distinct candidate n-grams of each user at one length (CSR), and the weight of each.

    Attributes:
      length: k.
      users: (n, 2) uint64, 128-bit keyed hashes.
      offsets: (n + 1,) int64, where each user's n-grams begin.
      keys: (m,) int64, ascending within a user; packed pairs, at k = 1 indices into `words`.
      weights: (m,) int64 in units of 2^-32, 0 for n-grams beyond the user's limit; None before
        `LimitContributions` or `SpendBudgets`.
      classes: (m,) int16, the number of each n-gram's class (see `valid`); None where there are none.
      tallies: (m,) int64 in units of 2^-24, what is sent for the count of held candidates (see
        `length_rules`); None after round 1, and where nothing is counted.
      round: r, from 1.
      words: the batch's distinct words (k = 1 only).
      word_hashes: (words, 2) uint64, their keyed hashes (k = 1 only).
    """

    length: int
    users: np.ndarray
    offsets: np.ndarray
    keys: np.ndarray
    weights: np.ndarray | None = None
    classes: np.ndarray | None = None
    tallies: np.ndarray | None = None
    round: int = 1
    words: pa.Array | None = None
    word_hashes: np.ndarray | None = None

    @property
    def ngrams(self) -> Words | Pairs:
        """The entries of all users."""
        return keys_of(self.keys, self.words, self.word_hashes)


@dataclasses.dataclass(frozen=True, eq=False, kw_only=True)
class HistogramShard:
    """One hash range of H_k, with every n-gram that some user holds, also at weight 0.

    After a round it has only those of them that are open or found, and the spurious n-grams that were
    drawn from this range of V_k: they are found from the beginning, in the round that was drawn.

    Attributes:
      length: k.
      keys: (m,) int64, ascending, distinct; at k = 1 the row numbers of `words`.
      weights: (m,) int64, sums in units of 2^-32.
      classes: (m,) int16, the number of each n-gram's class; None where there are none.
      tallies: (m,) int64, sums in units of 2^-24 for the count of held candidates; None as above.
      hash_range: the number of the hash range, and how many there are.
      round: r, from 1.
      earlier: (r − 1, m) int64, the sums of earlier rounds; None in the first, and in pieces that
        hold only sums of users' contributions.
      found: (m,) int8, the round in which an n-gram is found, 0 while it is open; None where
        `earlier` is None.
      cells: (m,) int64, the cell of the evidence in the round in which it was found, or else in the
        last one; None where `earlier` is None.
      words: (m,) Arrow strings (k = 1 only).
      word_hashes: (m, 2) uint64, their keyed hashes (k = 1 only).
      rule: the rule of this length; None until a round is decided.
    """

    length: int
    keys: np.ndarray
    weights: np.ndarray
    classes: np.ndarray | None = None
    tallies: np.ndarray | None = None
    hash_range: tuple[int, int] = (0, 1)
    round: int = 1
    earlier: np.ndarray | None = None
    found: np.ndarray | None = None
    cells: np.ndarray | None = None
    words: pa.Array | None = None
    word_hashes: np.ndarray | None = None
    rule: LengthRule | None = None

    def __len__(self) -> int:
        return len(self.keys)

    @property
    def ngrams(self) -> Words | Pairs:
        """The n-grams of the hash range."""
        return keys_of(self.keys, self.words, self.word_hashes)

    def select(self, places: np.ndarray | slice) -> "HistogramShard":
        """Returns the shard with some of its n-grams, in this order."""

        def chosen(column: np.ndarray | None) -> np.ndarray | None:
            return None if column is None else column[..., places]

        ngrams = self.ngrams.select(places)
        return dataclasses.replace(
            self,
            keys=ngrams.keys,
            words=ngrams.words,
            word_hashes=ngrams.word_hashes,
            weights=self.weights[places],
            classes=chosen(self.classes),
            tallies=chosen(self.tallies),
            earlier=chosen(self.earlier),
            found=chosen(self.found),
            cells=chosen(self.cells),
        )


@dataclasses.dataclass(frozen=True, eq=False, kw_only=True)
class SortedGrams:
    """N-grams of one length in the order of their ids, and the numbers that led to them.

    Attributes:
      length: k; at 0 it is the root, the empty n-gram, before anything is released.
      keys: (n,) int64, ascending; at k = 1 row numbers of `words`.
      words: (n,) Arrow strings, sorted by bytes (k = 1 only).
      parent_size: |S_{k−1}|.
      vocabulary_size: |S_1|.
      rule: the rule of the length; None for the root, and if no n-gram is present.
      stored: the file that holds the set, if it was too large for an element (`spill`).
    """

    length: int
    keys: np.ndarray
    words: pa.Array | None = None
    parent_size: int = 0
    vocabulary_size: int = 0
    rule: LengthRule | None = None
    stored: StoredFile | None = None

    def __len__(self) -> int:
        return len(self.keys)

    @property
    def ngrams(self) -> Words | Pairs:
        """The n-grams, each at the place of its id."""
        return keys_of(self.keys, self.words)


@dataclasses.dataclass(frozen=True, eq=False, kw_only=True)
class PresentGrams(SortedGrams):
    """N-grams that some user holds and that are open or found after a round.

    The set is as private as the data: only the noisy decisions about it are released.

    Attributes:
      round: r, the last round that has been decided.
      cells: (n,) int32, the cell of each open n-gram's evidence in that round; 0 for found ones.
      found: (n,) int8, 1 for found n-grams, 0 for open ones.
      classes: (n,) int16, the number of each n-gram's class; None where there are none.
    """

    round: int
    cells: np.ndarray
    found: np.ndarray
    classes: np.ndarray | None = None


@dataclasses.dataclass(frozen=True, eq=False, kw_only=True)
class NextCandidates(Columns):
    """What a released set says of the candidates of the next length, k + 1, beside its own n-grams.

    Attributes:
      suffix_bins: (n,) int16, the bin of the score of each n-gram's suffix (see `valid`); None at
        length 1, and where there are no classes.
      known: (c,) int64, ascending, distinct: the keys of the known candidates. In the root, whose
        `words` are all words of known n-grams, they are rows of `words`. None if nothing is known.
      known_longer: (m,) int32, the known n-grams that are longer than the candidates, one length after
        the other, each by the ids in the set that it consists of; in the root by rows of `words`. None
        if nothing is known.
      known_counts: (l,) int64, how many of each length, from k + 2 on, `known_longer` has.
      known_lead: half octaves by which known candidates are predicted to be more frequent than new ones
        of their class (see `tolerances`).
      phrase_codes: (|S_1|,) int32, the code of each word of S_1 in the phrases of the stop list
        (`LeftOut.codes`); None where the list has no phrase of several words.
      endings: (n, m) int32, these codes of the last m words of each n-gram; None as above.
    """

    suffix_bins: np.ndarray | None = None
    known: np.ndarray | None = None
    known_longer: np.ndarray | None = None
    known_counts: np.ndarray | None = None
    known_lead: int = KNOWN_LEAD
    phrase_codes: np.ndarray | None = None
    endings: np.ndarray | None = None


NO_CANDIDATES = NextCandidates()


def known_candidates(known: np.ndarray | None, longer: Sequence[np.ndarray]) -> NextCandidates:
    """Returns the known candidates of the next length.

    Args:
      known: (c,) int64, ascending, their keys; None if there are none.
      longer: for each length after it, the known n-grams by the ids of the set that they consist of:
        (l, w) int32 each.
    """
    ids = [np.zeros(0, np.int32), *(each.reshape(-1) for each in longer)]
    return NextCandidates(
        known=known,
        known_longer=np.concatenate(ids),
        known_counts=np.array([len(each) for each in longer], np.int64),
    )


@dataclasses.dataclass(frozen=True, eq=False, kw_only=True)
class GramSet(SortedGrams):
    """S_k: the released n-grams of one length; its rule has σ_k, ρ_k and |V_k|.

    Attributes:
      scores: (n,) float64, noisy weights rounded to the middles of their cells, in units of weight.
      users: (n, 3) int64, the estimated number of users who hold each n-gram, and the ends of its 95 %
        interval; None if they are not measured, and until `CountUsers` has measured them.
      candidates: what the set says of the candidates of the next length.
      is_grouped: whether words have groups in front of them.
    """

    scores: np.ndarray
    users: np.ndarray | None = None
    candidates: NextCandidates = NO_CANDIDATES
    is_grouped: bool = False

    @property
    def pruning(self) -> str:
        """The rule by which second ids are made: suffixes with "both", last words with "single"."""
        return "both" if self.rule is None else self.rule.pruning


@dataclasses.dataclass(frozen=True, eq=False, kw_only=True)
class Past:
    """What the lengths and rounds before have left for a round.

    Attributes:
      released: S_{k−1}, or the root of known n-grams; None at length 1 where nothing is known.
      present: the n-grams of length k that are open or found after the round before, as private as the
        data; None in round 1.
      positions: the set in terms of which users' positions are, if that is neither S_{k−1} nor S_{k−2}:
        the present n-grams of the round before the one before, or those of the length before.
    """

    released: GramSet | None = None
    present: PresentGrams | None = None
    positions: PresentGrams | None = None


NOTHING_RELEASED = Past()
ROOT = GramSet(length=0, keys=np.zeros(1, np.int64), scores=np.zeros(1, np.float64))
GROUPED_ROOT = dataclasses.replace(ROOT, is_grouped=True)


def join_columns(columns: Iterable[np.ndarray | None]) -> np.ndarray | None:
    """Joins columns, of which either all are there or none, along their last axis."""
    present = [column for column in columns if column is not None]
    return np.concatenate(present, axis=-1) if present else None


def word_ids(sets: Sequence[GramSet], place: int, rows: np.ndarray) -> list[np.ndarray]:
    """Returns the ids in S_1 of the words of some rows of a set, one array for each word.

    An n-gram is its prefix and one more word, which is given by its id or as the suffix's last word.
    """
    words = []
    while sets[place].length > 1:
        prefixes, _ = unpack_pairs(sets[place].keys[rows])
        words.append(_last_words(sets, place, rows))
        rows = prefixes
        place = place - 1
    return [rows, *reversed(words)]


def _last_words(sets: Sequence[GramSet], place: int, rows: np.ndarray) -> np.ndarray:
    """Returns the ids in S_1 of the last words of some n-grams: (m,) int64."""
    while sets[place].length > 1:
        _, rows = unpack_pairs(sets[place].keys[rows])
        if sets[place].pruning == "single":
            return rows
        place -= 1
    return rows
