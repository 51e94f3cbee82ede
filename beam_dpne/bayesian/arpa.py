"""ARPA files of back-off language models.

The probability of a word after a context h is listed, or else it is backoff(h) times its probability
after the context without its first word. `backoff.adapted_model` makes the orders of a model from
n-gram probabilities. `extend` makes an order from weights whose contexts each keep a share κ for other
words:

    backoff(h) = κ / (1 − Σ_{w after h} P(w | h without its first word)),

so that the probabilities after h sum to 1. If all words follow h, κ is 0. A k-gram may be listed
although nothing is known about it, because it is a part of a longer one. Its share is 0, and it gets
the probability that back-off gives it, so that listing it changes nothing.

The words `<s>` and `</s>` are listed with next to no probability, since nothing is known about the
borders of sentences. So is `<unk>`, if nothing is known about other words.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple, TextIO

import numpy as np
import numpy.typing as npt

_Floats = npt.NDArray[np.float64]
_Ids = npt.NDArray[np.int64]

FIRST_LINE = "\\data\\\n"
_LEAST_LOG = -99.0  # readers take it as the logarithm of 0
_UNKNOWN = "<unk>"
_RESERVED = ("<s>", "</s>", _UNKNOWN)
_LEAST_REST = 1e-9


class Order(NamedTuple):
    """The k-grams of a model, in the order of their words' ids.

    Attributes:
      grams: (m, k) int64, ids of words.
      probabilities: (m,) float64, P(last word | the others); they sum to 1 at k = 1.
      backoffs: (m,) float64, the back-off weight of each gram as a context; 1 if no word follows it.
    """

    grams: _Ids
    probabilities: _Floats
    backoffs: _Floats


def write_orders(
    stream: TextIO, orders: Sequence[Order], texts: list[str], *, unknown: float = 0.0
) -> None:
    """Writes a model, with logarithms to base 10.

    Args:
      stream: the text stream to write to.
      orders: the orders 1 to n of the model.
      texts: the text of each word, by id, without white space.
      unknown: the probability of `<unk>`, unless a word of the model has this name.
    """
    extra = [word for word in _RESERVED if word not in set(texts)]
    stream.write(FIRST_LINE)
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


def extend(lower: Order, grams: _Ids, shares: _Floats, kept_back: float) -> tuple[Order, Order]:
    """Returns the lower order with its back-off weights, and the order above it.

    Args:
      lower: the order below; it has the first k − 1 and the last k − 1 words of each gram.
      grams: (m, k) int64, ids of words; all rows are distinct.
      shares: (m,) float64, ≥ 0; the probabilities after one context are proportional to them. Grams
        with the share 0 get the probability that back-off gives them.
      kept_back: κ in [0, 1).
    """
    # (m,) the row of each gram's context in the lower order, and P(last word | context less one word).
    contexts = _rows_among(lower.grams, grams[:, :-1])
    after = lower.probabilities[_rows_among(lower.grams, grams[:, 1:])]
    has_share = shares > 0
    # (contexts,) the lower order's probability of all words that do not follow, and κ.
    size = len(lower.grams)
    rest = 1.0 - np.bincount(contexts, after * has_share, minlength=size)
    kept = np.where(rest > _LEAST_REST, kept_back, 0.0)
    sums = np.bincount(contexts, shares, minlength=size)
    backoffs = np.where(sums > 0, kept / np.maximum(rest, _LEAST_REST), 1.0)
    conditional = (1.0 - kept[contexts]) * shares / np.where(sums > 0, sums, 1.0)[contexts]
    conditional = np.where(has_share, conditional, backoffs[contexts] * after)
    return lower._replace(backoffs=backoffs), Order(grams, conditional, np.ones(shares.size))


def _rows_among(sorted_grams: _Ids, wanted: _Ids) -> _Ids:
    """Returns the row of each wanted gram among sorted distinct ones, which have them all."""
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
    # `_lines` writes 7 decimals and no exponents, which some readers cannot parse. Adding 0.0 turns a
    # rounded −0 into 0.
    return (np.maximum(logs, _LEAST_LOG).round(7) + 0.0).tolist()
