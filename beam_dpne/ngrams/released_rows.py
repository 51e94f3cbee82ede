"""DecodeGrams and CountUsers: the rows of S_1, …, S_T, their texts, order and numbers of users.

Texts are made a piece at a time. Rows of one length come by falling numbers of users, then by falling
score, then by the bytes of their texts. The keys of S_k sort like its n-grams, word by word, and a
blank sorts before all characters that are not control characters. So with words of ordinary characters
the rows of S_k are in the order of their texts already, and a stable sort by numbers is enough.
"""

import dataclasses
import functools
from collections.abc import Iterable, Sequence

import apache_beam as beam
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from apache_beam.pvalue import PCollection

from beam_dpne.counts.measuring import Held, count_in_beam
from beam_dpne.counts.rule import required_noise
from beam_dpne.elements.arrays import byte_order, rows_of_entries
from beam_dpne.elements.batches import UnhintedTransform, UserBatch, apply
from beam_dpne.elements.coders import SetStore, spill
from beam_dpne.elements.rows import (
    COUNTED_ROW_SCHEMA,
    ROW_SCHEMA,
    SCORE_DECIMALS,
    SEPARATOR,
    escape_token,
    longest_beside_shorter,
)
from beam_dpne.mechanism.randomness import RunKey
from beam_dpne.ngrams.candidates import prune_invalid, rows_at_positions
from beam_dpne.ngrams.elements import GramSet, unpack_pairs
from beam_dpne.ngrams.plan import PrivacyPlan

# Words with one of these sort or read otherwise than by their own bytes; the empty word does as well.
_NOT_ORDINARY = r"[\x00-\x20\\]|^$"
_ESCAPED_AT_ONCE = 2**16


@dataclasses.dataclass(eq=False, kw_only=True)
class DecodeGrams(UnhintedTransform):
    """Turns released sets into rows of text.

    Input: tuple of PCollections of one `GramSet` each, S_1, …, S_T.

    Output: `pyarrow.RecordBatch` with columns length (int32), ngram (string, see `join_tokens`), score
    (float64) and, if users were counted, users, users_low and users_high (int64), one for each length
    that released something, sorted as in a release.

    Privacy: post-processing of released sets.

    Cost: one worker holds all released sets.

    Example:
      >>> import numpy as np
      >>> from apache_beam.runners.portability.fn_api_runner import FnApiRunner
      >>> from beam_dpne import DecodeGrams, GramSet
      >>> with beam.Pipeline(runner=FnApiRunner()) as pipeline:
      ...     vocabulary = pipeline | beam.Create([GramSet(
      ...         length=1, keys=np.arange(2), scores=np.array([5.0, 7.0]),
      ...         words=pa.array(["a", "b"]), vocabulary_size=2)])
      ...     rows = (vocabulary,) | DecodeGrams()
      ...     _ = rows | beam.Map(lambda rows: print(rows.to_pylist()[0]))
      {'length': 1, 'ngram': 'b', 'score': 7.0}

    References: DPNE Algorithm 1, "Output S_1, S_2, …, S_T".
    """

    def expand(self, released: tuple[PCollection[GramSet], ...]) -> PCollection[pa.RecordBatch]:
        """Brings the sets together and decodes them."""
        longest, shorter = longest_beside_shorter(released)
        return apply(longest, "Decode", beam.FlatMap(decode_sets, shorter), pa.RecordBatch)


def decode_sets(longest: GramSet, shorter: Iterable[GramSet]) -> list[pa.RecordBatch]:
    """Returns the sorted rows of each length that released something, shortest first."""
    return ReleasedRows.of([*shorter, longest], are_rounded=False).table().to_batches()


@dataclasses.dataclass(eq=False, kw_only=True)
class CountUsers(UnhintedTransform):
    """Estimates how many users hold each released n-gram, with intervals.

    Input: `UserBatch` of length 0: all users, as they were before any n-gram was released.

    Output: tuple of PCollections of one `GramSet` each: S_1, …, S_T with `users`.

    Privacy: a function of S_1, …, S_T and of sums with Gaussian noise, which are private together under
    the plan; see `counts.measuring`.

    Cost: one pass over the users' positions, one shuffle; one worker holds all released sets.

    Attributes:
      plan: the plan of the run, with a count_share above 0.
      released: S_1, …, S_T, PCollections of one `GramSet` each.
      run_key: the secret of the run.
      store: the folder for sets that are too large for an element; with None every set is one element.

    Example:
      >>> import pyarrow as pa
      >>> from apache_beam.runners.portability.fn_api_runner import FnApiRunner
      >>> from beam_dpne import CountUsers, PrivacyPlan, RunKey
      >>> batch = UserBatch(  # 2,000 users, each of whom says "a b"
      ...     length=0, size=2, users=np.arange(4000, dtype=np.uint64).reshape(-1, 2),
      ...     offsets=np.arange(0, 6003, 3), ids=np.tile([0, 1, -1], 2000).astype(np.int32),
      ...     words=pa.array(["a", "b"]), word_hashes=np.eye(2, dtype=np.uint64))
      >>> words = GramSet(length=1, keys=np.arange(2), scores=np.array([9.0, 9.5]),
      ...                 words=pa.array(["a", "b"]), vocabulary_size=2)
      >>> plan = PrivacyPlan(epsilon=4, delta=1e-7, max_length=1)
      >>> with beam.Pipeline(runner=FnApiRunner()) as pipeline:
      ...     released = (pipeline | "S_1" >> beam.Create([words]),)
      ...     counted = pipeline | beam.Create([batch]) | CountUsers(
      ...         plan=plan, released=released, run_key=RunKey(bytes(32)))
      ...     _ = counted[0] | beam.Map(lambda grams: print(grams.users[:, 0].round(-2)))
      [2000 2000]

    References: none; `counts.rule` has the design.
    """

    plan: PrivacyPlan
    released: Sequence[PCollection[GramSet]]
    run_key: RunKey = dataclasses.field(repr=False)
    store: SetStore | None = None

    def __post_init__(self):
        super().__post_init__()
        required_noise(self.plan.count_noise)

    def expand(self, users: PCollection[UserBatch]) -> tuple[PCollection[GramSet], ...]:
        """Counts the users of all lengths together, and gives each length its own PCollection."""
        counted = count_in_beam(
            GramRows(pruning=self.plan.pruning, store=self.store),
            users,
            self.released,
            kind=GramSet,
            noise=self.plan.count_noise,
            run_key=self.run_key,
        )
        return tuple(
            apply(
                counted,
                f"Length{length}",
                beam.Filter(lambda grams, k: grams.length == k, length),
                GramSet,
            )
            for length in range(1, len(self.released) + 1)
        )


@dataclasses.dataclass(frozen=True, kw_only=True)
class GramRows:
    """S_1, …, S_T as rows whose users are counted; rows count through all of them."""

    pruning: str
    store: SetStore | None = None

    def held(self, users: UserBatch, released: Sequence[GramSet]) -> Held:
        """Returns the distinct released n-grams of each user of a batch of length 0."""
        owners, rows, first = [np.zeros(0, np.int64)], [np.zeros(0, np.int64)], 0
        # Users without a position left are dropped on the way, so that the batch has their numbers.
        numbers = np.arange(len(users.users), dtype=np.uint64)
        batch = dataclasses.replace(users, users=np.stack((numbers, numbers), axis=1), left=None)
        for grams in released:
            ids = rows_at_positions(batch, grams)
            place = np.flatnonzero(ids >= 0)
            user = rows_of_entries(batch.offsets)[place]
            owners.append(batch.users[user, 0].astype(np.int64))
            rows.append(ids[place].astype(np.int64) + first)
            first += len(grams)
            batch = prune_invalid(batch, grams, pruning=self.pruning, ids=ids)
        pairs = np.concatenate(owners), np.concatenate(rows)
        return Held.of(*pairs, user_count=numbers.size, row_count=first)

    def scores(self, released: Sequence[GramSet]) -> list[np.ndarray]:
        """Returns the scores of the rows of each length."""
        return [grams.scores for grams in released]

    def parents(self, released: Sequence[GramSet]) -> np.ndarray:
        """Returns the rows of each n-gram's prefix and of its suffix or last word, −1 where none is.

        Every user of an n-gram holds them as well. They are (n, 2) int32, or int64 from 2^31 rows on.
        """
        sizes = [len(grams) for grams in released]
        offsets = np.concatenate(([0], np.cumsum(sizes, dtype=np.int64)))
        kind = np.int32 if offsets[-1] < 2**31 else np.int64
        parents = np.full((int(offsets[-1]), 2), -1, kind)
        for k in range(1, len(released)):
            rows = slice(int(offsets[k]), int(offsets[k + 1]))
            prefixes, seconds = unpack_pairs(released[k].keys)
            parents[rows, 0] = prefixes + offsets[k - 1]
            parents[rows, 1] = seconds + offsets[k - 1 if self.pruning == "both" else 0]
        return parents

    def with_users(self, released: Sequence[GramSet], users: np.ndarray) -> list[GramSet]:
        """Returns the sets with their numbers of users."""
        parts = np.split(users, np.cumsum([len(each) for each in self.scores(released)])[:-1])
        return [
            spill(dataclasses.replace(grams, users=part, stored=None), self.store)
            for grams, part in zip(released, parts, strict=True)
        ]


@dataclasses.dataclass(frozen=True, eq=False)
class ReleasedRows:
    """All rows of a release of n-grams, the shortest first; a piece of them is a table.

    Attributes:
      sets: S_1, …, S_T.
      schema: their columns.
      are_rounded: whether scores are rounded as in files.
    """

    sets: tuple[GramSet, ...]
    schema: pa.Schema
    are_rounded: bool

    @classmethod
    def of(cls, released: Iterable[GramSet], *, are_rounded: bool = True) -> "ReleasedRows":
        """Returns the rows of released sets, in any order of lengths."""
        sets = tuple(sorted(released, key=lambda grams: grams.length))
        # Also a release without rows has the columns that its ledger explains.
        is_counted = any(grams.users is not None for grams in sets)
        if is_counted and any(grams.users is None for grams in sets if len(grams)):
            raise ValueError("Users must be counted for all released n-grams or for none.")
        return cls(sets, COUNTED_ROW_SCHEMA if is_counted else ROW_SCHEMA, are_rounded)

    def __len__(self) -> int:
        return sum(order.size for order in self._orders)

    def select(self, names: list[str]) -> "ReleasedRows":
        """Returns the same rows with some of their columns."""
        chosen = dataclasses.replace(self, schema=pa.schema(map(self.schema.field, names)))
        # The order is computed once for all selections.
        vars(chosen).update(_words=self._words, _orders=self._orders)
        return chosen

    def slice(self, start: int, count: int) -> pa.Table:
        """Returns so many rows as a table, or those that are left."""
        pieces, before = [], 0
        for place, order in enumerate(self._orders):
            rows = order[max(0, start - before) : max(0, start + count - before)]
            if rows.size:
                pieces.append(self._piece(place, rows))
            before += order.size
        return pa.concat_tables(pieces) if pieces else self.schema.empty_table()

    def table(self) -> pa.Table:
        """Returns all rows as one table."""
        return self.slice(0, len(self))

    def _piece(self, place: int, rows: np.ndarray) -> pa.Table:
        """Returns some rows, (m,) int32, of one set."""
        columns = [self._column(name, place, rows) for name in self.schema.names]
        return pa.table(columns, schema=self.schema)

    def _column(self, name: str, place: int, rows: np.ndarray) -> pa.Array:
        grams = self.sets[place]
        if name == "length":
            return pa.array(np.full(rows.size, grams.length, np.int32))
        if name == "ngram":
            return self._texts(place, rows)
        if name == "score":
            scores = grams.scores[rows]
            return pa.array(np.round(scores, SCORE_DECIMALS) if self.are_rounded else scores)
        if grams.users is None:
            raise ValueError("A set whose users were not counted has no numbers of users.")
        return pa.array(grams.users[rows, ("users", "users_low", "users_high").index(name)])

    def _texts(self, place: int, rows: np.ndarray) -> pa.Array:
        words, _ = self._words
        columns = [words.take(pa.array(ids)) for ids in word_ids(self.sets, place, rows)]
        return pc.call_function("binary_join_element_wise", [*columns, pa.scalar(SEPARATOR)])

    @functools.cached_property
    def _words(self) -> tuple[pa.Array, bool]:
        """The texts of the words of S_1, and whether they and their n-grams are in order of bytes."""
        if not self.sets or self.sets[0].words is None:
            return pa.array([], pa.string()), False
        words = self.sets[0].words
        unusual = pc.call_function(
            "match_substring_regex", [words], pc.MatchSubstringOptions(_NOT_ORDINARY)
        )
        if not unusual.true_count:
            ascending = pc.call_function("less", [words[:-1], words[1:]])
            return words, ascending.true_count == len(ascending)
        starts = range(0, len(words), _ESCAPED_AT_ONCE)
        parts = (words.slice(start, _ESCAPED_AT_ONCE).to_pylist() for start in starts)
        escaped = [pa.array(map(escape_token, part), pa.string()) for part in parts]
        return pa.concat_arrays(escaped), False

    @functools.cached_property
    def _orders(self) -> list[np.ndarray]:
        """The rows of each set in the order of the release: (n,) int32 each."""
        orders = []
        _, by_text = self._words
        for place, grams in enumerate(self.sets):
            # Prefixes are ids in the set before, so that all of them must be in order.
            by_text &= bool((grams.keys[1:] > grams.keys[:-1]).all())
            filled = self._order(place, by_text=by_text) if len(grams) else np.zeros(0, np.int32)
            orders.append(filled)
        return orders

    def _order(self, place: int, *, by_text: bool) -> np.ndarray:
        grams = self.sets[place]
        scores = np.round(grams.scores, SCORE_DECIMALS) if self.are_rounded else grams.scores
        keys = [*([] if by_text else self._ranks(place)), -scores]
        if grams.users is not None:
            keys.append(-grams.users[:, 0])
        return np.lexsort(keys).astype(np.int32)

    def _ranks(self, place: int) -> list[np.ndarray]:
        """Returns columns of integers by which rows sort like texts, the most important one last."""
        last, *before = word_ids(self.sets, place, np.arange(len(self.sets[place])))[::-1]
        # A blank follows all words but the last one.
        words, _ = self._words
        blanks = pa.scalar(SEPARATOR)
        followed = pc.call_function("binary_join_element_wise", [words, pa.scalar(""), blanks])
        return [_ranks(words)[last], *(_ranks(followed)[ids] for ids in before)]


def _ranks(words: pa.Array) -> np.ndarray:
    """Returns the rank of each word by its bytes: (n,) int64."""
    ranks = np.empty(len(words), np.int64)
    ranks[byte_order(words)] = np.arange(len(words))
    return ranks


def word_ids(sets: tuple[GramSet, ...], place: int, rows: np.ndarray) -> list[np.ndarray]:
    """Returns the ids in S_1 of the words of some rows of a set, one array for each word.

    An n-gram is its prefix and one more word, which is given by its id or as the suffix's last word.
    """
    words = []
    while sets[place].length > 1:
        prefixes, _ = unpack_pairs(sets[place].keys[rows])
        words.append(_last_words(sets, place, rows))
        rows, place = prefixes, place - 1
    return [rows, *reversed(words)]


def _last_words(sets: tuple[GramSet, ...], place: int, rows: np.ndarray) -> np.ndarray:
    """Returns the ids in S_1 of the last words of some n-grams: (m,) int64."""
    while sets[place].length > 1:
        _, rows = unpack_pairs(sets[place].keys[rows])
        if sets[place].pruning == "single":
            return rows
        place -= 1
    return rows
