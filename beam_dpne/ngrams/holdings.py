"""The released n-grams that each user holds, of all lengths together."""

import dataclasses
from collections.abc import Sequence

import numpy as np

from beam_dpne.counts.measuring import Held
from beam_dpne.elements.arrays import distinct, offsets_of, rows_of_entries
from beam_dpne.elements.batches import UserBatch
from beam_dpne.ngrams.candidates import prune_invalid, rows_at_positions
from beam_dpne.ngrams.elements import GramSet


def held_grams(batch: UserBatch, released: Sequence[GramSet], *, pruning: str) -> Held:
    """Returns the distinct released n-grams of each user of a batch of length 0.

    Rows count through S_1, …, S_T; a public vocabulary, which is not released, has none.

    Args:
      batch: users' positions of length 0.
      released: S_1, …, S_T.
      pruning: the pruning rule of the plan.
    """
    users, rows, first = [], [], 0
    # Users without a position left are dropped on the way, so that the batch carries their numbers.
    numbers = np.arange(len(batch.users), dtype=np.uint64)
    batch = dataclasses.replace(batch, users=np.stack((numbers, numbers), axis=1), left=None)
    for grams in released:
        if not grams.is_public:
            ids = rows_at_positions(batch, grams)
            place = np.flatnonzero(ids >= 0)
            users.append(batch.users[rows_of_entries(batch.offsets)[place], 0].astype(np.int64))
            rows.append(ids[place].astype(np.int64) + first)
            first += len(grams)
        batch = prune_invalid(batch, grams, pruning=pruning)
    user, row = np.concatenate([np.zeros(0, np.int64), *users]), np.concatenate([np.zeros(0, np.int64), *rows])
    (user, row), _ = distinct((user, row), (max(1, numbers.size), max(1, first)))
    return Held(offsets=offsets_of(np.bincount(user, minlength=numbers.size)), rows=row)
