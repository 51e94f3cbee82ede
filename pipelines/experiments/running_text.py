"""Word perplexity of running text under a back-off model, such as `beam-dpne bayesian --arpa` writes.

Every word of the documents is predicted from the words before it, as readers of ARPA files do: the
longest listed n-gram decides, and each shortening of the context costs its back-off weight. Words that
the model lacks are `<unk>` and end the context.
"""

import dataclasses

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from beam_dpne.bayesian.arpa import Order
from beam_dpne.bayesian.backoff import Model
from beam_dpne.evaluation.corpus import BORDER, Corpus, places_of

_Ids = npt.NDArray[np.int64]
_UNKNOWN, _END = -1, -2


@dataclasses.dataclass(frozen=True, kw_only=True)
class Judged:
    """Perplexities of running text.

    Attributes:
      known: over the words that the model has.
      every: over all words, of which those that the model lacks are `<unk>`.
      unknown: the share of words that the model lacks.
    """

    known: float
    every: float
    unknown: float


def ids_of(corpus: Corpus, chosen: npt.NDArray[np.bool_], words: pa.Array) -> _Ids:
    """Returns the documents of some users as ids of a model's words.

    Args:
      corpus: The private texts.
      chosen: (u,) bool, the users.
      words: The model's words by id.

    Returns:
      (p,) int64 with −1 for words that the model lacks, and −2 after each document.
    """
    places = pc.call_function(
        "index_in", [corpus.words.cast("string")], pc.SetLookupOptions(value_set=words)
    )
    known = places.fill_null(_UNKNOWN).to_numpy(zero_copy_only=False).astype(np.int64)
    codes = corpus.codes[chosen[corpus.user_of_position]]
    return np.where(codes == BORDER, _END, np.append(known, _END)[codes])


def judge(model: Model, ids: _Ids, length: int) -> Judged:
    """Returns perplexities under the orders 1 to `length` of a model.

    Raises:
      ValueError: if there is no word to predict.
    """
    logs = _logs(model, ids, length)[ids != _END]
    is_known = ids[ids != _END] >= 0
    if not is_known.any():
        raise ValueError("ids must have a word that the model has, got none.")
    return Judged(
        known=float(np.exp(-logs[is_known].mean())),
        every=float(np.exp(-logs.mean())),
        unknown=float(1 - is_known.mean()),
    )


def _logs(model: Model, ids: _Ids, length: int) -> npt.NDArray[np.float64]:
    words = len(model.orders[0].grams)
    found = np.full(ids.size, np.log(model.unknown))
    found[ids >= 0] = np.log(model.orders[0].probabilities)[ids[ids >= 0]]
    # The row of the gram of k words that ends at each position, −1 where none is listed.
    ends = np.where(ids >= 0, ids, -1)
    for below, order in zip(model.orders[: length - 1], model.orders[1:length], strict=True):
        contexts = np.append(-1, ends[:-1])
        found = found + np.where(contexts >= 0, np.log(below.backoffs)[contexts], 0.0)
        ends = _longer(order, below, contexts, ids, words)
        listed = np.log(order.probabilities)[ends]
        found = np.where(ends >= 0, listed, found)
    return found


def _longer(order: Order, below: Order, contexts: _Ids, ids: _Ids, words: int) -> _Ids:
    """Returns the row of each gram among those of an order: its context's row, and its word."""
    begins = _rows(below.grams, order.grams[:, :-1])
    keys = begins * words + order.grams[:, -1]
    found = places_of(keys, contexts * words + ids)
    return np.where((contexts >= 0) & (ids >= 0), found, -1)


def _rows(grams: _Ids, wanted: _Ids) -> _Ids:
    """Returns the row of each wanted gram among sorted ones, which have them all."""
    rows, ranks = wanted[:, 0], grams[:, 0]
    for column, own in zip(wanted.T[1:], grams.T[1:], strict=True):
        base = int(max(own.max(), column.max())) + 1
        keys, found = np.unique(ranks * base + own, return_inverse=True)
        # Prefixes of sorted grams are ranked in their order.
        rows, ranks = np.searchsorted(keys, rows * base + column), found
    return np.searchsorted(ranks, rows)
