"""Average word perplexity of the n-gram model that a joint distribution is; no back-off.

It predicts a word from the n − 1 before it: P(w_n | w_1 … w_{n−1}) = P(w_1 … w_n)/Σ_w P(w_1 … w). It
is judged on the sentences all of whose n-grams are in the vocabulary, so that every mechanism is
judged on the same words and none needs a back-off. Zeros get the floor of `divergence.with_floor`.

References: Ramadan, Withers and Orr, section 4.6 and Table 1.
"""

import dataclasses

import numpy as np
import numpy.typing as npt

from beam_dpne.bayesian.public_counts import PublicCounts
from beam_dpne.evaluation.corpus import Corpus
from pipelines.experiments.exact_counts import public_rows

_Floats = npt.NDArray[np.float64]


@dataclasses.dataclass(frozen=True, eq=False, kw_only=True)
class CoveredSentences:
    """The sentences all of whose n-grams are in a vocabulary.

    Attributes:
      rows: (m,) int64, for each predicted word, the row of its n-gram in the vocabulary.
      users: (m,) int32, for each predicted word, the index of its user in the corpus.
      authors: (s,) int32, for each sentence, the index of its user in the corpus.
    """

    rows: npt.NDArray[np.int64]
    users: npt.NDArray[np.int32]
    authors: npt.NDArray[np.int32]

    def of(self, chosen: npt.NDArray[np.bool_]) -> npt.NDArray[np.int64]:
        """Returns the rows of some users, which (u,) bool choose."""
        return self.rows[chosen[self.users]]


def covered_sentences(corpus: Corpus, public: PublicCounts) -> CoveredSentences:
    """Finds the documents of at least n words all of whose n-grams are in the vocabulary."""
    rows = public_rows(corpus, public)
    ends = np.flatnonzero(corpus.codes < 0)
    starts = np.append(0, ends[:-1] + 1)
    whole = starts + public.length <= ends
    starts, ends = starts[whole], ends[whole] - (public.length - 1)
    known = np.append(0, np.cumsum(rows >= 0))
    covered = known[ends] - known[starts] == ends - starts
    starts, sizes = starts[covered], (ends - starts)[covered]
    first = np.repeat(starts - (np.cumsum(sizes) - sizes), sizes)
    positions = first + np.arange(first.size)
    return CoveredSentences(
        rows=rows[positions].astype(np.int64),
        users=corpus.user_of_position[positions],
        authors=corpus.user_of_position[starts],
    )


def conditional(joint: _Floats, grams: npt.NDArray[np.int32]) -> _Floats:
    """Returns P(last word | the words before it) of each gram: (V,).

    Args:
      joint: (V,) > 0.
      grams: (V, n) ids of words.
    """
    _, contexts = np.unique(grams[:, :-1], axis=0, return_inverse=True)
    contexts = contexts.reshape(-1)
    return joint / np.bincount(contexts, joint)[contexts]


def perplexity(joint: _Floats, grams: npt.NDArray[np.int32], rows: npt.NDArray[np.int64]) -> float:
    """Returns exp of the mean −log P(word | context) over predicted words.

    Args:
      joint: (V,) > 0, of all grams; see `divergence.with_floor`.
      grams: (V, n) ids of words.
      rows: (m,) the gram of each predicted word.

    Raises:
      ValueError: if there is no word to predict.
    """
    if rows.size == 0:
        raise ValueError("rows must have a word to predict, got none: no sentence is covered.")
    return float(np.exp(-np.log(conditional(joint, grams))[rows].mean()))
