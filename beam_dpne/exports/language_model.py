"""ARPA: a back-off language model from released n-grams, or from n-gram probabilities.

The weights of one length can be compared, those of two lengths need not be. So a word's probability
after a context h is its n-gram's part of the weights of all released n-grams that continue h. Released
n-grams are only those that many users share, therefore each context keeps a share κ of its probability
for words that do not follow it in the release, and divides it as the context without its first word
does. All probabilities after a context sum to 1 over the released words. `beam_dpne.bayesian.arpa` has
the formulas, and the model of a joint distribution of n-grams, in which κ is 0.01.
"""

import io

import numpy as np
import numpy.typing as npt

from beam_dpne.bayesian.arpa import Order, extend, model_of, write_orders
from beam_dpne.documents.text import escape_token
from beam_dpne.errors import ExportError
from beam_dpne.exports.source import Floats, Rendered, Source

# The weight of a shorter context in the stupid back-off of Brants et al. (2007).
KEPT_BACK = 0.4
_Ids = npt.NDArray[np.int64]


def render(source: Source, kept_back: float | None) -> Rendered:
    """Returns the file; kept_back is κ in [0, 1), or None for `KEPT_BACK` and for probabilities.

    Raises:
      ExportError: The release has n-grams but no weights of single words, or it has probabilities,
        which need no κ.
    """
    # The tokens `<s>`, `</s>` and `<unk>` of a release are words like others.
    words = sorted({word for words in source.tokens for word in words})
    if source.program == "bayesian":
        orders = _joint_orders(source, words, kept_back)
    else:
        orders = _weighted_orders(source, words, KEPT_BACK if kept_back is None else kept_back)
    stream = io.StringIO(newline="")
    write_orders(stream, orders, [escape_token(word) for word in words])
    return Rendered(stream.getvalue().encode())


def _joint_orders(source: Source, words: list[str], kept_back: float | None) -> list[Order]:
    if kept_back is not None:
        raise ExportError(
            "kept_back must be left out for a release of beam-dpne bayesian, whose probabilities "
            "determine the model."
        )
    joint = source.rows.column("probability").to_numpy()
    grams = _ids(source, words, np.flatnonzero(source.lengths)).astype(np.int32)
    return model_of(joint, grams)


def _weighted_orders(source: Source, words: list[str], kept_back: float) -> list[Order]:
    """Returns the orders 1 to T of a release of n-grams; a release without rows has only order 1."""
    longest = int(source.lengths.max(initial=1))
    places = [np.flatnonzero(source.lengths == length) for length in range(1, longest + 1)]
    if len(places[0]) < len(words):
        raise ExportError(
            "to=arpa needs the weights of all single words, which this release does not have: its "
            "words were given with --vocabulary. Use another kind, or release without a vocabulary."
        )
    grams = [_ids(source, words, rows) for rows in places]
    shares = [source.weights[rows] for rows in places]
    for k in range(longest - 1, 1, -1):
        grams[k - 1], shares[k - 1] = _with_parts(grams[k - 1], shares[k - 1], grams[k])
    order = np.argsort(grams[0][:, 0])
    total = max(shares[0].sum(), np.finfo(np.float64).tiny)
    orders = [Order(grams[0][order], shares[0][order] / total, np.ones(len(order)))]
    for higher, share in zip(grams[1:], shares[1:], strict=True):
        orders[-1], extended = extend(orders[-1], higher, share, kept_back)
        orders.append(extended)
    return orders


def _ids(source: Source, words: list[str], rows: _Ids) -> _Ids:
    """Returns the ids of the words of some rows of one length, (rows, length) int64."""
    ids = {word: number for number, word in enumerate(words)}
    tokens = [[ids[word] for word in source.tokens[row]] for row in rows.tolist()]
    length = len(tokens[0]) if tokens else 1
    return np.array(tokens, np.int64).reshape(-1, length)


def _with_parts(grams: _Ids, shares: Floats, longer: _Ids) -> tuple[_Ids, Floats]:
    """Returns k-grams in the order of their ids, with those that only longer ones hold, of share 0.

    Readers require each beginning and each end of a listed n-gram, and under pruning=single a release
    may lack an end.
    """
    whole = np.concatenate([grams, longer[:, :-1], longer[:, 1:]])
    distinct, first = np.unique(whole, axis=0, return_index=True)
    padded = np.concatenate([shares, np.zeros(2 * len(longer))])
    return distinct, padded[first]
