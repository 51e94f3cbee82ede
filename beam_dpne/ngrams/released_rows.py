"""CountUsers and ReleasedRows: the rows of S_1, …, S_T, their texts, order and numbers of users.

Texts are made a piece at a time. Rows of one length come by falling numbers of users, then by falling
score, then by the bytes of their texts. The keys of S_k sort like its n-grams, word by word, and a
blank sorts before all characters that are not control characters. So with words of ordinary characters
the rows of S_k are in the order of their texts already, and a stable sort by numbers is enough.
"""

import dataclasses
import functools
from collections.abc import Iterable, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from beam_dpne.counts.measuring import Held
from beam_dpne.documents.blocks import split_groups
from beam_dpne.elements.arrays import byte_ranks, rows_of_places
from beam_dpne.elements.batches import UserBatch
from beam_dpne.elements.encoding import SetStore, spill
from beam_dpne.elements.rows import (
    COUNTED_ROW_SCHEMA,
    GROUP_FIELD,
    ROW_SCHEMA,
    SCORE_DECIMALS,
    SEPARATOR,
    escape_tokens,
)
from beam_dpne.ngrams.candidates import prune_invalid, rows_at_positions
from beam_dpne.ngrams.elements import GramSet, word_ids
from beam_dpne.ngrams.keys import unpack_pairs


@dataclasses.dataclass(frozen=True, kw_only=True)
class GramRows:
    """S_1, …, S_T as rows whose users are counted; rows count through all of them."""

    pruning: str
    store: SetStore | None = None

    def held(self, users: UserBatch, released: Sequence[GramSet]) -> Held:
        """Returns the distinct released n-grams of each user of a batch of length 0."""
        owners = [np.zeros(0, np.int32)]
        rows = [np.zeros(0, np.int64)]
        first = 0
        # Users without a position left are dropped on the way, so that the batch has their numbers.
        numbers = np.arange(len(users.users), dtype=np.uint64)
        batch = dataclasses.replace(users, users=np.stack((numbers, numbers), axis=1), left=None)
        for grams in released:
            ids = rows_at_positions(batch, grams)
            place = np.flatnonzero(ids >= 0)
            user = rows_of_places(batch.offsets, place)
            owners.append(batch.users[:, 0].astype(np.int32).take(user))
            rows.append(ids.take(place) + np.int64(first))
            first += len(grams)
            if grams is not released[-1]:
                batch = prune_invalid(batch, grams, pruning=self.pruning, ids=ids)
        pairs = np.concatenate(owners), np.concatenate(rows)
        return Held.of(*pairs, user_count=numbers.size, row_count=first)

    def scores(self, released: Sequence[GramSet]) -> list[np.ndarray]:
        """Returns the scores of the rows of each length."""
        return [grams.scores for grams in released]

    def groups(self, released: Sequence[GramSet]) -> np.ndarray | None:
        """Returns the number of the group of each row, (n,) integers; None without groups."""
        words = released[0].words
        if not released[0].is_grouped or words is None:
            return None
        names, _ = split_groups(words)
        of_lengths = [names.dictionary_encode().indices.to_numpy()]
        for grams in released[1:]:
            prefixes, _ = unpack_pairs(grams.keys)
            of_lengths.append(of_lengths[-1][prefixes])
        return np.concatenate(of_lengths)

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
      is_grouped: whether words have groups in front of them, which become a column.
    """

    sets: tuple[GramSet, ...]
    schema: pa.Schema
    is_grouped: bool = False

    @classmethod
    def of(cls, released: Iterable[GramSet]) -> "ReleasedRows":
        """Returns the rows of released sets, in any order of lengths."""
        sets = tuple(sorted(released, key=lambda grams: grams.length))
        # Also a release without rows has the columns that its ledger explains.
        is_counted = any(grams.users is not None for grams in sets)
        if is_counted and any(grams.users is None for grams in sets if len(grams)):
            raise ValueError("Users must be counted for all released n-grams or for none.")
        is_grouped = any(grams.is_grouped for grams in sets)
        plain = COUNTED_ROW_SCHEMA if is_counted else ROW_SCHEMA
        schema = plain.insert(1, GROUP_FIELD) if is_grouped else plain
        return cls(sets, schema, is_grouped)

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
        pieces = []
        before = 0
        for place, order in enumerate(self._orders):
            rows = order[max(0, start - before) : max(0, start + count - before)]
            if rows.size:
                columns = [self._column(name, place, rows) for name in self.schema.names]
                pieces.append(pa.table(columns, schema=self.schema))
            before += order.size
        return pa.concat_tables(pieces) if pieces else self.schema.empty_table()

    def table(self) -> pa.Table:
        """Returns all rows as one table."""
        return self.slice(0, len(self))

    def _column(self, name: str, place: int, rows: np.ndarray) -> pa.Array:
        grams = self.sets[place]
        if name == "length":
            return pa.array(np.full(rows.size, grams.length, np.int32))
        if name == "ngram":
            return self._texts(place, rows)
        if name == "group":
            return self._words[0].take(pa.array(word_ids(self.sets, place, rows)[0]))
        if name == "score":
            return pa.array(np.round(grams.scores[rows], SCORE_DECIMALS))
        if grams.users is None:
            raise ValueError("A set whose users were not counted has no numbers of users.")
        return pa.array(grams.users[rows, ("users", "users_low", "users_high").index(name)])

    def _texts(self, place: int, rows: np.ndarray) -> pa.Array:
        _, words, _ = self._words
        columns = [words.take(pa.array(ids)) for ids in word_ids(self.sets, place, rows)]
        return pc.call_function("binary_join_element_wise", [*columns, pa.scalar(SEPARATOR)])

    @functools.cached_property
    def _words(self) -> tuple[pa.Array, pa.Array, bool]:
        """The groups of the words of S_1, their texts, and whether n-grams are in order of both."""
        if not self.sets or self.sets[0].words is None:
            return pa.array([""]), pa.array([], pa.string()), False
        whole = self.sets[0].words
        groups, words = split_groups(whole) if self.is_grouped else (pa.array([""]), whole)
        texts, is_ordinary = escape_tokens(words)
        ascending = pc.call_function("less", [whole[:-1], whole[1:]])
        return groups, texts, is_ordinary and ascending.true_count == len(ascending)

    @functools.cached_property
    def _orders(self) -> list[np.ndarray]:
        """The rows of each set in the order of the release: (n,) int32 each."""
        orders = []
        _, _, by_text = self._words
        for place, grams in enumerate(self.sets):
            # Prefixes are ids in the set before, so that all of them must be in order.
            by_text &= bool((grams.keys[1:] > grams.keys[:-1]).all())
            filled = self._order(place, by_text=by_text) if len(grams) else np.zeros(0, np.int32)
            orders.append(filled)
        return orders

    def _order(self, place: int, *, by_text: bool) -> np.ndarray:
        grams = self.sets[place]
        scores = np.round(grams.scores, SCORE_DECIMALS)
        keys = [*([] if by_text else self._ranks(place)), -scores]
        if grams.users is not None:
            keys.append(-grams.users[:, 0])
        return np.lexsort(keys).astype(np.int32)

    def _ranks(self, place: int) -> list[np.ndarray]:
        """Returns columns of integers by which rows sort like texts, the most important one last."""
        last, *before = word_ids(self.sets, place, np.arange(len(self.sets[place])))[::-1]
        # A blank follows all words but the last one.
        groups, words, _ = self._words
        blanks = pa.scalar(SEPARATOR)
        followed = pc.call_function("binary_join_element_wise", [words, pa.scalar(""), blanks])
        ranks = [byte_ranks(words)[last], *(byte_ranks(followed)[each] for each in before)]
        if self.is_grouped:
            encoded = groups.dictionary_encode()
            of_words = byte_ranks(encoded.dictionary)[encoded.indices.to_numpy()]
            ranks.append(of_words[last])
        return ranks
