"""Back-off language models of n-grams with weights, and ARPA files.

A word after a context h gets the part 1 − κ of its n-gram's share of the weights that continue h, and κ
times its probability after h without its first word. So the probabilities after h sum to 1.
`backoff.adapted_model` makes a model of n-gram probabilities and public counts.
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


class Order(NamedTuple):
    """The k-grams of a model, in the order of their words' ids.

    Attributes:
      grams: (m, k) int64, ids of words.
      probabilities: (m,) float64, P(last word | the others).
      backoffs: (m,) float64, by which the probability after the context without its first word is
        multiplied for words that are not listed after this gram.
    """

    grams: _Ids
    probabilities: _Floats
    backoffs: _Floats


@dataclasses.dataclass(frozen=True, eq=False)
class GramTree:
    """N-grams of the lengths 1 to n, with the beginning and the end of each, in the order of their ids.

    Attributes:
      words: the number of words, each of which is a gram of length 1.
      begins: for each length, (m,) int64, the row of the first k − 1 words; 0 for single words.
      ends: the same of the last k − 1 words.
      last: the same of the id of the last word.
    """

    words: int
    begins: list[_Ids]
    ends: list[_Ids]
    last: list[_Ids]

    @classmethod
    def of(cls, words: int, tables: Sequence[npt.NDArray[np.integer]]) -> "GramTree":
        """Returns the tree of tables of n-grams, (m, n) ids of words each."""
        nothing = np.zeros(words, np.int64)
        tree = cls(words, [nothing], [nothing], [np.arange(words)])
        # The row of the first words from each start of each table's grams on.
        rows = {
            (table, start): ids[:, start].astype(np.int64)
            for table, ids in enumerate(tables)
            for start in range(ids.shape[1])
        }
        for size in range(2, max((ids.shape[1] for ids in tables), default=1) + 1):
            keys_of = {
                (table, start): row * words + tables[table][:, start + size - 1]
                for (table, start), row in rows.items()
                if start + size <= tables[table].shape[1]
            }
            keys = np.unique(np.concatenate(list(keys_of.values())))
            rows = {place: np.searchsorted(keys, each) for place, each in keys_of.items()}
            begins, last = np.divmod(keys, words)
            ends = np.searchsorted(tree._keys(size - 1), tree.ends[-1][begins] * words + last)
            for of_lengths, new in ((tree.begins, begins), (tree.ends, ends), (tree.last, last)):
                of_lengths.append(new)
        return tree

    def grams(self, length: int) -> _Ids:
        """Returns the ids of the words of all grams of a length: (m, length) int64."""
        columns = []
        rows = np.arange(len(self.last[length - 1]))
        for begins, last in zip(
            self.begins[length - 1 :: -1], self.last[length - 1 :: -1], strict=True
        ):
            columns.append(last[rows])
            rows = begins[rows]
        return np.stack(columns[::-1], axis=1)

    def rows_of(self, grams: npt.NDArray[np.integer]) -> _Ids:
        """Returns the row of each gram, (m, k) ids, among those of its length; all are here."""
        rows = np.zeros(len(grams), np.int64)
        for size, column in enumerate(grams.T, start=1):
            rows = np.searchsorted(self._keys(size), rows * self.words + column)
        return rows

    def placed(
        self, tables: Sequence[npt.NDArray[np.integer]], values: Sequence[np.ndarray]
    ) -> list[np.ndarray]:
        """Returns the values of the grams of tables in the order of the tree, 0 for other grams."""
        placed = [np.zeros(len(last), values[0].dtype) for last in self.last]
        for grams, own in zip(tables, values, strict=True):
            placed[grams.shape[1] - 1][self.rows_of(grams)] = own
        return placed

    def _keys(self, length: int) -> _Ids:
        return self.begins[length - 1] * self.words + self.last[length - 1]


def weighted_model(
    words: int, tables: Sequence[_Ids], weights: Sequence[_Floats], kept_back: float
) -> list[Order]:
    """Returns the orders of a model of n-grams alone.

    Readers require the beginning and the end of each listed n-gram. Those without a weight of their own
    get what back-off gives them, so that listing them changes nothing.

    Args:
      words: the number of words.
      tables: the n-grams of each length, (m, k) ids of words each.
      weights: (m,) ≥ 0 each, which need not be comparable between lengths.
      kept_back: κ in [0, 1).
    """
    tree = GramTree.of(words, tables)
    single, *longer = tree.placed(tables, weights)
    kept = [single, *((1 - kept_back) * each for each in longer)]
    back = [np.zeros(words), *(kept_back * each for each in longer)]
    return interpolated(tree, kept, back)


def interpolated(
    tree: GramTree,
    kept: Sequence[_Floats],
    back: Sequence[_Floats],
    *,
    unknown: float = 0.0,
) -> list[Order]:
    """Returns the orders of a model of which each gram keeps one part, and leaves one to back off.

    Words divide evenly among them what they leave.
    """
    shares = kept[0] + back[0].sum() / max(tree.words, 1)
    probabilities = shares / max(shares.sum(), np.finfo(np.float64).tiny) * (1 - unknown)
    orders = [Order(tree.grams(1), probabilities, np.ones(tree.words))]
    for k in range(1, len(kept)):
        begins = tree.begins[k]
        below = len(tree.last[k - 1])
        left = np.bincount(begins, back[k], minlength=below)
        whole = left + np.bincount(begins, kept[k], minlength=below)
        has_mass = whole > 0
        whole = np.where(has_mass, whole, 1.0)
        backoffs = np.where(has_mass, left / whole, 1.0)
        probabilities = kept[k] / whole[begins] + backoffs[begins] * probabilities[tree.ends[k]]
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
      texts: the text of each word, by id, without white space.
      unknown: the probability of `<unk>`, unless a word of the model has this name.
    """
    extra = [word for word in _RESERVED if word not in set(texts)]
    stream.write("\\data\\\n")
    for length, order in enumerate(orders, start=1):
        count = len(order.grams) + (len(extra) if length == 1 else 0)
        stream.write(f"ngram {length}={count}\n")
    for length, order in enumerate(orders, start=1):
        stream.write(f"\n\\{length}-grams:\n")
        for word in extra if length == 1 else ():
            log = _logs(np.array([unknown]))[0] if word == _UNKNOWN and unknown else _LEAST_LOG
            stream.write(f"{log:g}\t{word}\n")
        stream.writelines(_lines(order, texts, is_longest=length == len(orders)))
    stream.write("\n\\end\\\n")


def _lines(order: Order, texts: list[str], *, is_longest: bool) -> Iterator[str]:
    logs = _logs(order.probabilities)
    backoffs = _logs(order.backoffs)
    for ids, log, backoff in zip(order.grams.tolist(), logs, backoffs, strict=True):
        end = "\n" if is_longest else f"\t{backoff:.7f}\n"
        yield f"{log:.7f}\t{' '.join(texts[one] for one in ids)}{end}"


def _logs(values: _Floats) -> list[float]:
    logs = np.full(values.size, _LEAST_LOG)
    np.log10(values, out=logs, where=values > 0)
    # `_lines` writes 7 decimals and no exponents, which some readers cannot parse. Adding 0.0 turns a
    # rounded −0 into 0.
    return (np.maximum(logs, _LEAST_LOG).round(7) + 0.0).tolist()
