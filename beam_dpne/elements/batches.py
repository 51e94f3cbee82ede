"""Users' documents as arrays, many users at a time, for all programs.

Programs keep the elements of their later steps beside those steps (`ngrams.elements`,
`set_union.elements`, `bayesian.counting`). All of them have the coder of `elements.coders`.
"""

import dataclasses

import numpy as np
import pyarrow as pa

from beam_dpne.elements.coders import register_batches

NO_GRAM = -1


@dataclasses.dataclass(frozen=True, eq=False, kw_only=True)
class DocumentBlock:
    """Tokenized documents on their way to their users' partition.

    Attributes:
      users: (d, 2) uint64, the 128-bit keyed hash of each document's user.
      offsets: (d + 1,) int64, where each document's tokens begin in `codes`.
      codes: (t,) int32, tokens as indices into `words`.
      words: distinct tokens of the block, Arrow strings.
    """

    users: np.ndarray
    offsets: np.ndarray
    codes: np.ndarray
    words: pa.Array


@dataclasses.dataclass(frozen=True, eq=False, kw_only=True)
class UserBatch:
    """Many users' positions (CSR): which released gram starts at each of them.

    Attributes:
      length: of the grams that the ids stand for; at 0 the ids are indices into `words`.
      round: 0 where ids are ranks in S_length; r ≥ 1 where they are rows of the set of grams that are
        open or found after round r of that length (`PresentGrams`).
      size: number of such grams: ids are in range(size).
      users: (n, 2) uint64, 128-bit keyed hashes; a user is in one batch only.
      offsets: (n + 1,) int64, where each user's positions begin.
      ids: (p,) int32, the id of the gram that starts here, −1 where there is none; each document
        ends with a −1, so no gram crosses a border.
      word_ids: (p,) int32, the id in S_1 of the word here (pruning "single" only, length ≥ 1).
      vocabulary_size: |S_1| (length ≥ 1).
      words: the batch's distinct words (length 0 only).
      word_hashes: (words, 2) uint64, their keyed hashes (length 0 only).
      left: (n,) int64, what each user may still spend, in units of 2^-56; None before it has spent.
    """

    length: int
    size: int
    users: np.ndarray
    offsets: np.ndarray
    ids: np.ndarray
    round: int = 0
    word_ids: np.ndarray | None = None
    vocabulary_size: int = 0
    words: pa.Array | None = None
    word_hashes: np.ndarray | None = None
    left: np.ndarray | None = None


register_batches(DocumentBlock, UserBatch)
