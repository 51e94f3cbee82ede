"""Back-off language models of n-grams with weights, and ARPA files.

The probability of a word w after a context h, with h' for h without its first word, is

    P(w | h) = (1 − κ) · weight(hw) / Σ_v weight(hv) + κ · P(w | h').

The probabilities of all words after h sum to 1. `backoff.adapted_model` makes a model of n-gram
probabilities and public counts.
"""

import dataclasses
from collections.abc import Iterator, Sequence
from typing import NamedTuple, TextIO

import numpy as np
import numpy.typing as npt

_Floats = npt.NDArray[np.float64]
_Ids = npt.NDArray[np.int64]

_LEAST_LOG = -99.0  # readers take it as the logarithm of 0
_UNKNOWN = "<unk>"
# Nothing is known about the borders of sentences, so that these have next to no probability.
_RESERVED = ("<s>", "</s>", _UNKNOWN)
# What readers take for the beginning or the end of a sentence, or for all unknown words.
MARKS = frozenset((*_RESERVED, "<UNK>"))


class Order(NamedTuple):
    """The n-grams of one length k of a model, in the order of their words' ids.

    Attributes:
      grams: (m, k) int64, the ids of the words of each n-gram.
      probabilities: (m,) float64, the probability of the last word after the others.
      backoffs: (m,) float64, the back-off weight of each n-gram as a context. A word that is not listed
        after it has this weight times its probability after the context without its first word.
    """

    grams: _Ids
    probabilities: _Floats
    backoffs: _Floats


@dataclasses.dataclass(frozen=True, eq=False)
class GramTree:
    """All n-grams of a model, from one word to n, linked to their parts.

    The n-grams of one length are rows of a table, sorted by the ids of their words. The *beginning* of
    an n-gram is what is left without its last word, and its *end* what is left without its first one.
    Both are rows of the table of the length below.

    Attributes:
      words: the number of words, each of which is an n-gram of length 1.
      begins: for each length, (m,) int64, the row of each n-gram's beginning; 0 for single words.
      ends: for each length, (m,) int64, the row of each n-gram's end; 0 for single words.
      last: for each length, (m,) int64, the id of each n-gram's last word.
    """

    words: int
    begins: list[_Ids]
    ends: list[_Ids]
    last: list[_Ids]

    @classmethod
    def of(cls, words: int, tables: Sequence[npt.NDArray[np.integer]]) -> "GramTree":
        """Returns the tree of some n-grams and of all their parts.

        Args:
          words: the number of words.
          tables: n-grams of one length each, (m, k) ids of words.
        """
        nothing = np.zeros(words, np.int64)
        tree = cls(words, [nothing], [nothing], [np.arange(words)])
        # Each n-gram of a table is gone through from each of its words on. For each table and start:
        # the rows of the parts that begin there and have `length` words, (m,) int64.
        rows: dict[tuple[int, int], _Ids] = {}
        for number, table in enumerate(tables):
            for start in range(table.shape[1]):
                rows[number, start] = table[:, start].astype(np.int64)
        longest = max((table.shape[1] for table in tables), default=1)
        for length in range(2, longest + 1):
            keys_of: dict[tuple[int, int], _Ids] = {}
            for (number, start), beginnings in rows.items():
                table = tables[number]
                next_column = start + length - 1
                if next_column < table.shape[1]:
                    keys_of[number, start] = tree._key(beginnings, table[:, next_column])
            keys = np.unique(np.concatenate(list(keys_of.values())))
            rows = {place: np.searchsorted(keys, own) for place, own in keys_of.items()}
            tree._append(keys)
        return tree

    def _append(self, keys: _Ids) -> None:
        """Adds the n-grams of the next length, whose keys are (m,) int64, ascending."""
        begins, last = np.divmod(keys, self.words)
        # The end of u…vw is the end of its beginning, …v, followed by w.
        end_keys = self._key(self.ends[-1][begins], last)
        ends = np.searchsorted(self._keys(len(self.last)), end_keys)
        self.begins.append(begins)
        self.ends.append(ends)
        self.last.append(last)

    def grams(self, length: int) -> _Ids:
        """Returns the ids of the words of all n-grams of a length: (m, length) int64."""
        last_first: list[_Ids] = []
        rows = np.arange(len(self.last[length - 1]))
        for level in range(length - 1, -1, -1):
            last_first.append(self.last[level][rows])
            rows = self.begins[level][rows]
        return np.stack(last_first[::-1], axis=1)

    def rows_of(self, grams: npt.NDArray[np.integer]) -> _Ids:
        """Returns the row of each n-gram in the table of its length: (m,) int64.

        Args:
          grams: (m, k) ids of words; all these n-grams are in the tree.
        """
        rows = np.zeros(len(grams), np.int64)
        for length, next_words in enumerate(grams.T, start=1):
            rows = np.searchsorted(self._keys(length), self._key(rows, next_words))
        return rows

    def placed(
        self, tables: Sequence[npt.NDArray[np.integer]], values: Sequence[np.ndarray]
    ) -> list[np.ndarray]:
        """Returns the values of some n-grams in the order of the tree, and 0 for all others.

        Args:
          tables: n-grams of one length each, (m, k) ids of words.
          values: for each table, (m,) numbers.

        Returns:
          For each length, one number for each n-gram of the tree.
        """
        placed = [np.zeros(len(last), values[0].dtype) for last in self.last]
        for grams, own in zip(tables, values, strict=True):
            length = grams.shape[1]
            placed[length - 1][self.rows_of(grams)] = own
        return placed

    def _key(self, begins: _Ids, last: npt.NDArray[np.integer]) -> _Ids:
        """Returns one number for each n-gram, from the row of its beginning and its last word."""
        return begins * self.words + last

    def _keys(self, length: int) -> _Ids:
        """Returns the keys of all n-grams of a length, ascending: (m,) int64."""
        return self._key(self.begins[length - 1], self.last[length - 1])


def weighted_model(
    words: int, tables: Sequence[_Ids], weights: Sequence[_Floats], kept_back: float
) -> list[Order]:
    """Returns the orders of a model of n-grams alone.

    Readers require the beginning and the end of each listed n-gram. Those without a weight of their own
    are listed with the probability that back-off gives them, so that listing them changes nothing.

    Args:
      words: the number of words.
      tables: the n-grams of each length, (m, k) ids of words each.
      weights: for each table, (m,) numbers ≥ 0, which need not be comparable between lengths.
      kept_back: κ in [0, 1).
    """
    tree = GramTree.of(words, tables)
    single, *longer = tree.placed(tables, weights)
    kept = [single]
    back = [np.zeros(words)]
    for of_length in longer:
        kept.append((1 - kept_back) * of_length)
        back.append(kept_back * of_length)
    return interpolated(tree, kept, back)


def interpolated(
    tree: GramTree,
    kept: Sequence[_Floats],
    back: Sequence[_Floats],
    *,
    unknown: float = 0.0,
) -> list[Order]:
    """Returns the orders of a model in which each n-gram leaves a part of its mass to back off.

    The mass that words leave is divided evenly among all words. For longer n-grams, with h' for the
    context h without its first word,

        P(w | h) = (kept(hw) + back(h) · P(w | h')) / (Σ_v kept(hv) + back(h)),

    where back(h) is the sum of what all n-grams hv leave.

    Args:
      tree: the n-grams.
      kept: for each length, (m,) float64 ≥ 0, the mass that each n-gram keeps.
      back: for each length, (m,) float64 ≥ 0, the mass that each n-gram leaves.
      unknown: the probability of `<unk>`, which all words together lose.
    """
    word_shares = kept[0] + back[0].sum() / max(tree.words, 1)
    total = max(word_shares.sum(), np.finfo(np.float64).tiny)
    probabilities = word_shares / total * (1 - unknown)
    orders = [Order(tree.grams(1), probabilities, np.ones(tree.words))]
    for k in range(1, len(kept)):
        begins = tree.begins[k]
        contexts = len(tree.last[k - 1])
        left = np.bincount(begins, back[k], minlength=contexts)
        whole = left + np.bincount(begins, kept[k], minlength=contexts)
        # A context that nothing continues leaves everything to back off.
        has_mass = whole > 0
        whole = np.where(has_mass, whole, 1.0)
        backoffs = np.where(has_mass, left / whole, 1.0)
        # The probabilities of the length below are those of the ends: P(w | h').
        backed_off = backoffs[begins] * probabilities[tree.ends[k]]
        probabilities = kept[k] / whole[begins] + backed_off
        orders[-1] = orders[-1]._replace(backoffs=backoffs)
        orders.append(Order(tree.grams(k + 1), probabilities, np.ones(len(begins))))
    return orders


def write_orders(
    stream: TextIO, orders: Sequence[Order], texts: list[str], *, unknown: float = 0.0
) -> None:
    """Writes a model as an ARPA file, with logarithms to base 10.

    Args:
      stream: the text stream to write to.
      orders: the orders 1 to n of the model.
      texts: the text of each word, by id, without white space; none is one of `MARKS`.
      unknown: the probability of `<unk>`.
    """
    stream.write("\\data\\\n")
    for length, order in enumerate(orders, start=1):
        count = len(order.grams)
        if length == 1:
            count += len(_RESERVED)
        stream.write(f"ngram {length}={count}\n")
    if len(orders) == 1:
        # KenLM refuses a model of single words, and no n-gram of a second length changes nothing.
        stream.write("ngram 2=0\n")
    for length, order in enumerate(orders, start=1):
        stream.write(f"\n\\{length}-grams:\n")
        if length == 1:
            stream.writelines(_reserved_lines(unknown))
        is_longest = length == len(orders) > 1
        stream.writelines(_lines(order, texts, is_longest=is_longest))
    if len(orders) == 1:
        stream.write("\n\\2-grams:\n")
    stream.write("\n\\end\\\n")


def _reserved_lines(unknown: float) -> Iterator[str]:
    """Yields the lines of words that are listed because readers ask for them."""
    for word in _RESERVED:
        log = _LEAST_LOG
        if word == _UNKNOWN and unknown:
            log = _logs(np.array([unknown]))[0]
        yield f"{log:g}\t{word}\n"


def _lines(order: Order, texts: list[str], *, is_longest: bool) -> Iterator[str]:
    """Yields a line for each n-gram; those of the longest order have no back-off weight."""
    logs = _logs(order.probabilities)
    backoffs = _logs(order.backoffs)
    for ids, log, backoff in zip(order.grams.tolist(), logs, backoffs, strict=True):
        words = " ".join(texts[word] for word in ids)
        if is_longest:
            yield f"{log:.7f}\t{words}\n"
        else:
            yield f"{log:.7f}\t{words}\t{backoff:.7f}\n"


def _logs(values: _Floats) -> list[float]:
    """Returns logarithms to base 10, those of 0 and next to 0 cut off.

    `_lines` writes 7 decimals and no exponents, which some readers cannot parse.
    """
    logs = np.full(values.size, _LEAST_LOG)
    np.log10(values, out=logs, where=values > 0)
    rounded = np.maximum(logs, _LEAST_LOG).round(7)
    # Adding 0.0 turns a rounded −0 into 0.
    return (rounded + 0.0).tolist()
