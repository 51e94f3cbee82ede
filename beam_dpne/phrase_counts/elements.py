"""The released numbers of a list, and their rows."""

import dataclasses
from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from beam_dpne.elements.rows import GROUPED_PHRASE_SCHEMA, PHRASE_SCHEMA, in_order


@dataclasses.dataclass(frozen=True, eq=False, kw_only=True)
class PhraseNumbers:
    """The number of users of each phrase of a public list.

    Attributes:
      ngrams: (K,) Arrow strings, see `join_tokens`.
      groups: (K,) Arrow strings, the group of each; None without groups.
      users: (K · 3,) int64, of each phrase the number of users and the ends of its interval.
      bound: M², so many phrases a user may hold and count fully in each.
      excess_share: the part of the budget with which the shortfall was measured.
      stddev: the standard deviation of the noise of a number, in users.
      shortfall: what users above the bound send too little for a phrase that all of them hold, noisy.
      shortfall_stddev: the standard deviation of its noise.
    """

    ngrams: pa.Array
    groups: pa.Array | None
    users: np.ndarray
    bound: int
    excess_share: float
    stddev: float
    shortfall: float
    shortfall_stddev: float


def phrase_table(released: Sequence[PhraseNumbers]) -> pa.Table:
    """Returns the rows of one release, by falling numbers of users, then by bytes."""
    (found,) = released
    numbers = [pa.array(column) for column in found.users.reshape(-1, 3).T]
    if found.groups is None:
        return in_order(pa.table([found.ngrams, *numbers], schema=PHRASE_SCHEMA))
    return in_order(pa.table([found.groups, found.ngrams, *numbers], schema=GROUPED_PHRASE_SCHEMA))
