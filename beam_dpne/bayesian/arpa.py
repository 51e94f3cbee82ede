"""ARPA files: the back-off language model that a joint distribution of n-grams is.

Of the longest grams, P(w_n | w_1 … w_{n−1}) is the joint probability over that of its context. Lower
orders come from marginalising: P(w_1 … w_k) is the probability that a gram of the joint distribution
has w_1 … w_k at a place, averaged over its n − k + 1 places. So every part of a gram is listed, as
readers require.

Each context h gives (1 − κ) to the words that follow it, κ being kept back for others, and

    backoff(h) = κ / (1 − Σ_{w after h} P(w | h without its first word)),

so that its probabilities sum to 1 over all words. Where all words follow h, nothing is kept back.

The words `<s>`, `</s>` and `<unk>` are listed with next to no probability, since nothing is known of
borders and of other words.
"""

from collections.abc import Iterator
from typing import NamedTuple, TextIO

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from beam_dpne.ngrams.decoding import escape_token

_Floats = npt.NDArray[np.float64]
_Ids = npt.NDArray[np.int64]

KEPT_BACK = 0.01
FIRST_LINE = "\\data\\\n"
_LEAST_LOG = -99.0  # readers take it as zero
_RESERVED = ("<s>", "</s>", "<unk>")
_LEAST_REST = 1e-9


class Order(NamedTuple):
    """The k-grams of a model, in the order of their words' ids.

    Attributes:
      grams: (m, k) int64, ids of words.
      probabilities: (m,) P(last word | the others); sums to 1 at k = 1.
      backoffs: (m,) of each gram as a context; 1 where nothing follows it.
    """

    grams: _Ids
    probabilities: _Floats
    backoffs: _Floats


def model_of(
    joint: _Floats, grams: npt.NDArray[np.int32], *, kept_back: float = KEPT_BACK
) -> list[Order]:
    """Returns the orders 1 to n of the model.

    Args:
      joint: (V,) ≥ 0, some > 0; grams of probability 0 are left out.
      grams: (V, n) distinct, ids of words.
      kept_back: κ in [0, 1).

    Raises:
      ValueError: if joint has nothing to tell, or kept_back is out of range.
    """
    if not 0 <= kept_back < 1:
        raise ValueError(f"kept_back must be in [0, 1), got {kept_back=}.")
    held = joint > 0
    if not (held.any() and np.isfinite(joint).all()):
        raise ValueError("joint must be finite and have some probability > 0.")
    whole, shares = grams[held].astype(np.int64), joint[held] / joint[held].sum()
    sizes = range(1, whole.shape[1] + 1)
    marginals = [_marginal(whole, shares, size) for size in sizes]
    first, first_shares = marginals[0]
    orders = [Order(first, first_shares, np.ones(first_shares.size))]
    for higher, higher_shares in marginals[1:]:
        orders[-1], order = _extend(orders[-1], higher, higher_shares, kept_back)
        orders.append(order)
    return orders


def write_arpa(
    stream: TextIO,
    joint: _Floats,
    grams: npt.NDArray[np.int32],
    words: pa.Array,
    *,
    kept_back: float = KEPT_BACK,
) -> None:
    """Writes the model of a joint distribution, logarithms to base 10.

    Args:
      stream: text.
      joint: (V,) ≥ 0, some > 0.
      grams: (V, n) ids of words.
      words: Arrow strings, by id; written as `join_tokens` writes them.
      kept_back: see `model_of`.
    """
    texts = [escape_token(word) for word in words.to_pylist()]
    extra = [word for word in _RESERVED if word not in set(texts)]
    orders = model_of(joint, grams, kept_back=kept_back)
    stream.write(FIRST_LINE)
    for length, order in enumerate(orders, start=1):
        count = len(order.grams) + (len(extra) if length == 1 else 0)
        stream.write(f"ngram {length}={count}\n")
    for length, order in enumerate(orders, start=1):
        stream.write(f"\n\\{length}-grams:\n")
        stream.writelines(f"{_LEAST_LOG:g}\t{word}\n" for word in extra if length == 1)
        stream.writelines(_lines(order, texts, is_longest=length == len(orders)))
    stream.write("\n\\end\\\n")


def _marginal(grams: _Ids, shares: _Floats, size: int) -> tuple[_Ids, _Floats]:
    """Returns the distinct k-grams inside grams, and their shares: averages over all places."""
    places = grams.shape[1] - size + 1
    parts = np.concatenate([grams[:, place : place + size] for place in range(places)])
    distinct, which = np.unique(parts, axis=0, return_inverse=True)
    sums = np.zeros(len(distinct))
    np.add.at(sums, which.reshape(-1), np.tile(shares / places, places))
    return distinct, sums


def _extend(lower: Order, grams: _Ids, shares: _Floats, kept_back: float) -> tuple[Order, Order]:
    """Returns the lower order with its back-off weights, and the order above it."""
    contexts = _places(lower.grams, grams[:, :-1])
    size = len(lower.grams)
    after = lower.probabilities[_places(lower.grams, grams[:, 1:])]
    rest = 1.0 - np.bincount(contexts, after, minlength=size)
    kept = np.where(rest > _LEAST_REST, kept_back, 0.0)
    given = (1.0 - kept[contexts]) * shares / np.bincount(contexts, shares)[contexts]
    follows = np.bincount(contexts, minlength=size) > 0
    backoffs = np.where(follows, kept / np.maximum(rest, _LEAST_REST), 1.0)
    return lower._replace(backoffs=backoffs), Order(grams, given, np.ones(shares.size))


def _places(sorted_grams: _Ids, wanted: _Ids) -> _Ids:
    """Returns where grams are among sorted ones that have them all."""
    whole = np.concatenate([sorted_grams, wanted])
    _, which = np.unique(whole, axis=0, return_inverse=True)
    return which.reshape(-1)[len(sorted_grams) :]


def _lines(order: Order, texts: list[str], *, is_longest: bool) -> Iterator[str]:
    logs = _logs(order.probabilities)
    backoffs = _logs(order.backoffs)
    for ids, log, backoff in zip(order.grams.tolist(), logs, backoffs, strict=True):
        end = "\n" if is_longest else f"\t{backoff:.7f}\n"
        yield f"{log:.7f}\t{' '.join(texts[one] for one in ids)}{end}"


def _logs(values: _Floats) -> list[float]:
    logs = np.full(values.size, _LEAST_LOG)
    np.log10(values, out=logs, where=values > 0)
    # No exponents, which some readers do not know, and no −0.
    return (np.maximum(logs, _LEAST_LOG).round(7) + 0.0).tolist()
