"""ARPA: a back-off language model from released n-grams, or from n-gram probabilities.

The weights of one length can be compared, those of two lengths need not be. So a word's probability
after a context h is its n-gram's part of the weights of all released n-grams that continue h. Released
n-grams are only those that many users share, therefore each context keeps a share κ of its probability
for words that do not follow it in the release, and divides it as the context without its first word
does. All probabilities after a context sum to 1 over the released words. `beam_dpne.bayesian.arpa` has
the formulas.

N-gram probabilities come with public counts, of which their model is made; see
`beam_dpne.bayesian.backoff`. The public counts are given again, and must be those of the release.
"""

import io
from typing import NamedTuple, TextIO

import numpy as np
import numpy.typing as npt

from beam_dpne.bayesian.arpa import Order, extend, write_orders
from beam_dpne.bayesian.backoff import adapted_model
from beam_dpne.bayesian.public_counts import PublicCounts, from_codes
from beam_dpne.bayesian.public_counts_files import read_public_counts, read_shorter_counts
from beam_dpne.bayesian.public_orders import PublicOrders
from beam_dpne.documents.tokenizers import Tokenizer
from beam_dpne.elements.rows import escape_token
from beam_dpne.errors import ExportError
from beam_dpne.exports.source import Floats, Rendered, Source, is_unbroken

# The weight of a shorter context in the stupid back-off of Brants et al. (2007).
KEPT_BACK = 0.4
_BROKEN = "rows with white space or control characters that no escape covers"
_Ids = npt.NDArray[np.int64]


def render(
    source: Source,
    kept_back: float | None = None,
    public: str | None = None,
    min_count: int | None = None,
) -> Rendered:
    """Returns the file.

    Args:
      source: The release.
      kept_back: κ in [0, 1), or None for `KEPT_BACK`; only for a release of n-grams.
      public: Path of the public counts; only for probabilities, which need it.
      min_count: Least public count of the n-grams that are listed beside those of the release, or None
        for 1; only for probabilities.

    Raises:
      ExportError: The release has n-grams but no weights of single words, a setting is missing or
        belongs to other releases, or the public counts are not those of the release.
      PublicCountsError, InputError, FileNotFoundError, ReleaseError: The public counts cannot be read.
    """
    if kept_back is not None and not 0 <= kept_back < 1:
        raise ExportError(f"kept_back must be in [0, 1), got kept_back={kept_back}.")
    if min_count is not None and min_count < 1:
        raise ExportError(f"min_count must be at least 1, got min_count={min_count}.")
    stream = io.StringIO(newline="")
    if source.program == "bayesian":
        if public is None or kept_back is not None:
            raise ExportError(
                "A model of a release of beam-dpne bayesian needs its public counts, and they say how "
                "much is kept for other words: give public, the path, and leave out kept_back."
            )
        missing = write_probabilities(stream, source, public, min_count=min_count or 1)
    else:
        if public is not None or min_count is not None:
            raise ExportError(
                "public and min_count must be left out for a release of n-grams, whose model is made "
                "of the release alone; only releases of beam-dpne bayesian have public counts."
            )
        grams = _written_grams(source)
        orders = _weighted_orders(source, grams, KEPT_BACK if kept_back is None else kept_back)
        write_orders(stream, orders, [escape_token(word) for word in grams.words])
        missing = len(source.rows) - len(grams.rows)
    return Rendered(stream.getvalue().encode(), source, {_BROKEN: missing} if missing else {})


def write_probabilities(
    stream: TextIO,
    source: Source,
    public: str,
    *,
    tokenizer: str | Tokenizer | None = None,
    min_count: int = 1,
) -> int:
    """Writes the model of a release of n-gram probabilities.

    Args:
      stream: The text stream to write to.
      source: The release.
      public: Path of the public counts, as `read_public_counts` takes it.
      tokenizer: Tokenizer of the release, or None for that of its ledger.
      min_count: Least public count of the n-grams that are listed beside those of the release.

    Returns:
      The number of rows of the release that no line can hold.

    Raises:
      ExportError: The public counts are not those of the release.
      PublicCountsError, InputError, FileNotFoundError, ReleaseError: They cannot be read.
    """
    plan, used = source.ledger["plan"], source.ledger["mechanism"]["public"]
    reading = {
        "length": plan["length"],
        "tokenizer": source.ledger["tokenizer"] if tokenizer is None else tokenizer,
    }
    longest = read_public_counts(public, **reading)
    released = longest.most_frequent(plan["vocabulary_size"])
    if released.fingerprint() != used["sha256"]:
        raise ExportError(
            f"public must be the public counts of the release, got {public}, which has others or has "
            "changed. Their SHA-256 in the ledger is that of the n-grams and counts."
        )
    shorter, is_text = read_shorter_counts(public, **reading)
    counted = list(map(_written, [*shorter, longest]))
    orders = PublicOrders.of(counted, is_whole=is_text or int(longest.counts.min()) <= 1)
    probability = dict(zip(source.texts, source.weights.tolist(), strict=True))
    written = _written(released)
    joint = np.array([probability[text] for text in written.texts().to_pylist()])
    model = adapted_model(orders, orders.rows_of(written), joint, min_count=min_count)
    texts = [escape_token(word) for word in orders.words.to_pylist()]
    write_orders(stream, model.orders, texts, unknown=model.unknown)
    return len(released) - len(written)


def _written(public: PublicCounts) -> PublicCounts:
    """Returns the n-grams that a line can hold, since readers split lines at other white space too."""
    fits = np.array([is_unbroken(escape_token(word)) for word in public.words.to_pylist()])
    kept = fits[public.grams].all(axis=1)
    if kept.all():
        return public
    if not kept.any():
        raise ExportError("public must have an n-gram that a line can hold, got none.")
    return from_codes(public.words, public.grams[kept], public.counts[kept], None)


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


def _weighted_orders(source: Source, grams: _Grams, kept_back: float) -> list[Order]:
    """Returns the orders 1 to T of a release of n-grams; a release without rows has only order 1."""
    lengths, weights = source.lengths[grams.rows], source.weights[grams.rows]
    sizes = range(1, int(lengths.max(initial=1)) + 1)
    places = [np.flatnonzero(lengths == size) for size in sizes]
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
