"""ARPA: a back-off language model from released n-grams, or from n-gram probabilities.

The weights of one length can be compared, those of two lengths need not be. So a word's probability
after a context h is its n-gram's part of the weights of all released n-grams that continue h. Released
n-grams are only those that many users share, therefore each context keeps a share κ of its probability
for words that do not follow it in the release, and divides it as the context without its first word
does. All probabilities after a context sum to 1 over the released words. `beam_dpne.bayesian.arpa` has
the formulas, and the model of a joint distribution of n-grams, in which κ is 0.01.
"""

import io
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from beam_dpne.bayesian.arpa import Order, extend, model_of, write_orders
from beam_dpne.documents.text import escape_token
from beam_dpne.errors import ExportError
from beam_dpne.exports.source import Floats, Rendered, Source, is_unbroken

# The weight of a shorter context in the stupid back-off of Brants et al. (2007).
KEPT_BACK = 0.4
_BROKEN = "rows with white space or control characters that no escape covers"
_Ids = npt.NDArray[np.int64]


def render(source: Source, kept_back: float | None) -> Rendered:
    """Returns the file; kept_back is κ in [0, 1), or None for `KEPT_BACK` and for probabilities.

    Raises:
      ExportError: The release has n-grams but no weights of single words, or it has probabilities,
        which need no κ.
    """
    grams = _written_grams(source)
    if source.program == "bayesian":
        orders = _joint_orders(source, grams, kept_back)
    else:
        orders = _weighted_orders(source, grams, KEPT_BACK if kept_back is None else kept_back)
    stream = io.StringIO(newline="")
    write_orders(stream, orders, [escape_token(word) for word in grams.words])
    missing = len(source.rows) - len(grams.rows)
    return Rendered(stream.getvalue().encode(), {_BROKEN: missing} if missing else {})


class _Grams(NamedTuple):
    """The rows of a release that a line of the file can hold.

    Attributes:
      rows: Their places in the release, (m,) int64, ascending.
      words: The distinct words in them, sorted.
      ids: For each of them the ids of its words.
    """

    rows: _Ids
    words: list[str]
    ids: list[list[int]]

    def matrix(self, places: _Ids, length: int) -> _Ids:
        """Returns the ids of n-grams of one length, (places, length) int64."""
        return np.array([self.ids[place] for place in places.tolist()], np.int64).reshape(
            -1, length
        )


def _written_grams(source: Source) -> _Grams:
    # Blanks, tabs and line ends are escaped; readers split lines at other white space too.
    escaped = {word: escape_token(word) for words in source.tokens for word in words}
    broken = {word for word, text in escaped.items() if not is_unbroken(text)}
    kept = [row for row, words in enumerate(source.tokens) if broken.isdisjoint(words)]
    words = sorted({word for row in kept for word in source.tokens[row]})
    number = {word: place for place, word in enumerate(words)}
    ids = [[number[word] for word in source.tokens[row]] for row in kept]
    return _Grams(np.array(kept, np.int64), words, ids)


def _joint_orders(source: Source, grams: _Grams, kept_back: float | None) -> list[Order]:
    if kept_back is not None:
        raise ExportError(
            "kept_back must be left out for a release of beam-dpne bayesian, whose probabilities "
            "determine the model."
        )
    joint = source.weights[grams.rows]
    whole = grams.matrix(np.arange(len(joint)), len(grams.ids[0]) if grams.ids else 1)
    return model_of(joint, whole.astype(np.int32))


def _weighted_orders(source: Source, grams: _Grams, kept_back: float) -> list[Order]:
    """Returns the orders 1 to T of a release of n-grams; a release without rows has only order 1."""
    lengths, weights = source.lengths[grams.rows], source.weights[grams.rows]
    sizes = range(1, int(lengths.max(initial=1)) + 1)
    places = [np.flatnonzero(lengths == size) for size in sizes]
    if len(places[0]) < len(grams.words):
        raise ExportError(
            "to=arpa needs the weights of all single words, which this release does not have: its "
            "words were given with --vocabulary. Use another kind, or release without a vocabulary."
        )
    whole = [grams.matrix(rows, size) for rows, size in zip(places, sizes, strict=True)]
    shares = [weights[rows] for rows in places]
    for k in range(len(sizes) - 1, 1, -1):
        whole[k - 1], shares[k - 1] = _with_parts(whole[k - 1], shares[k - 1], whole[k])
    order = np.argsort(whole[0][:, 0])
    total = max(shares[0].sum(), np.finfo(np.float64).tiny)
    orders = [Order(whole[0][order], shares[0][order] / total, np.ones(len(order)))]
    for higher, share in zip(whole[1:], shares[1:], strict=True):
        orders[-1], extended = extend(orders[-1], higher, share, kept_back)
        orders.append(extended)
    return orders


def _with_parts(grams: _Ids, shares: Floats, longer: _Ids) -> tuple[_Ids, Floats]:
    """Returns k-grams in the order of their ids, with those that only longer ones hold, of share 0.

    Readers require each beginning and each end of a listed n-gram, and under pruning=single a release
    may lack an end.
    """
    whole = np.concatenate([grams, longer[:, :-1], longer[:, 1:]])
    distinct, first = np.unique(whole, axis=0, return_index=True)
    padded = np.concatenate([shares, np.zeros(2 * len(longer))])
    return distinct, padded[first]
