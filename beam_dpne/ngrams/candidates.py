"""ExtractGrams and PruneInvalid: users' candidates, and their positions in terms of released sets."""

from collections.abc import Sequence

import numpy as np

from beam_dpne.elements.arrays import distinct, offsets_of, offsets_of_marked, rows_of_places
from beam_dpne.elements.batches import NO_GRAM, UserBatch
from beam_dpne.elements.encoding import cached_for_sets
from beam_dpne.ngrams.elements import Contributions, GramSet, PresentGrams
from beam_dpne.ngrams.keys import Pairs, PairTable, Words, pack_pairs

# The tables of 16 sets up to this size are kept, at most 36 MB each, and one of larger sets.
_SMALL_SET = 2**20
# Up to this part of a batch's positions they are copied when others fall away.
WORTH_COPYING = 0.75


def extract_grams(batch: UserBatch) -> Contributions:
    """Returns each user's distinct candidates of length k from positions of length k−1."""
    place, ids, sizes = candidate_places(batch, present_positions(batch, batch.length + 1))
    # Each occurrence of a candidate is a tuple of its user's row, its first and its second id; at
    # length 1 there is no second. Sorted and distinct tuples are each user's candidates in order.
    user = rows_of_places(batch.offsets, place)
    (user, *ids), _ = distinct((user, *ids), (len(batch.users), *sizes))
    return contributions_of(batch, user, ids)


def candidate_places(
    batch: UserBatch, starts: np.ndarray
) -> tuple[np.ndarray, Sequence[np.ndarray], Sequence[int]]:
    """Returns the places at which candidates start, and the one or two ids that make each candidate.

    Args:
      batch: users' positions.
      starts: (p,) bool, the positions at which candidates start, from `present_positions` for the next
        length.

    Returns:
      The m positions, ascending; one or two arrays of ids, (m,) each; and for each of these arrays the
      number that all of its ids are below.
    """
    place = np.flatnonzero(starts)
    ids = batch.ids.take(place)
    if batch.length == 0:
        return place, (ids,), (batch.size,)
    # The second of a pair is an n-gram, or with "single" a word.
    size = batch.size if batch.word_ids is None else batch.vocabulary_size
    return place, (ids, following_ids(batch).take(place)), (batch.size, size)


def contributions_of(
    batch: UserBatch, user: np.ndarray, ids: Sequence[np.ndarray]
) -> Contributions:
    """Returns candidates of the length after the batch's, each with its user's row and its ids."""
    ngrams = keys_at(batch, ids)
    return Contributions(
        length=batch.length + 1,
        users=batch.users,
        offsets=offsets_of(np.bincount(user, minlength=len(batch.users))),
        keys=ngrams.keys,
        words=ngrams.words,
        word_hashes=ngrams.word_hashes,
    )


def keys_at(batch: UserBatch, ids: Sequence[np.ndarray]) -> Words | Pairs:
    """Returns candidates of the length after the batch's, by their ids from `candidate_places`."""
    if batch.length == 0:
        return Words(ids[0], batch.words, batch.word_hashes)
    return Pairs(pack_pairs(*ids))


def prune_invalid(
    batch: UserBatch,
    released: GramSet,
    *,
    pruning: str,
    present: PresentGrams | None = None,
    ids: np.ndarray | None = None,
) -> UserBatch:
    """Returns the positions of a batch in terms of S_{k−1}, where something longer can begin.

    The positions come in terms of `present`, or of length k−2; then `ids`, (p,) int32, may be their
    `rows_at_positions`, if they are known already.
    """
    if released.length != batch.length + (batch.round == 0):
        raise ValueError(f"S_{released.length} cannot follow ids of length {batch.length}.")
    if released.rule is not None and released.length > 1 and released.pruning != pruning:
        raise ValueError(
            f"`pruning` must be that of the released set, {released.pruning!r}, got `{pruning=}`."
        )
    if batch.round:
        _check_round(batch, present)
        # An id of −1 takes the table's last place, which is −1 again.
        ids = _rows_in(present, released)[batch.ids.astype(np.intp)]
    elif ids is None:
        ids = rows_at_positions(batch, released)
    word_ids = batch.word_ids
    if released.length == 1:
        # With "single" a gram grows by the released word after it, which needs its own array.
        word_ids = ids if pruning == "single" else None
    keep = _with_neighbours(ids) if word_ids is None else _runs_with_grams(ids, word_ids)
    return _select_positions(batch, released, ids, word_ids, keep)


def keep_present(
    batch: UserBatch, present: PresentGrams, before: PresentGrams | None = None
) -> UserBatch:
    """Returns the positions of the present n-grams after a round, in terms of them.

    Args:
      batch: users' positions, of length k−1 if `present` is of round 1, else in terms of `before`.
      present: the n-grams of length k that are open or found after the round.
      before: the n-grams that were open or found after the round before.
    """
    if present.round == 1:
        ids = rows_at_positions(batch, present)
    else:
        _check_round(batch, before)
        ids = _rows_in(before, present)[batch.ids.astype(np.intp)]
    if batch.word_ids is None:
        # (p,) bool: positions of present grams, and one −1 after each run of them, so that runs
        # of different documents stay apart.
        keep = ids >= 0
        keep[1:] |= keep[:-1]
    else:
        keep = _runs_with_grams(ids, batch.word_ids)
    return _select_positions(batch, present, ids, batch.word_ids, keep)


def present_positions(batch: UserBatch, length: int) -> np.ndarray:
    """Marks the positions where a candidate of length k starts that has not been closed: (p,) bool."""
    if length in (batch.length, 1):
        return batch.ids >= 0
    present = np.zeros(batch.ids.size, dtype=bool)
    following = following_ids(batch)
    # The sign bit of the union is set where either id is −1.
    present[: following.size] = (batch.ids[: following.size] | following) >= 0
    return present


def _check_round(batch: UserBatch, before: PresentGrams | None) -> None:
    if before is None or (before.length, before.round) != (batch.length, batch.round):
        raise ValueError(
            f"Positions in terms of round {batch.round} of length {batch.length} need the n-grams that "
            "were open or found after that round."
        )


def rows_at_positions(batch: UserBatch, grams: GramSet | PresentGrams) -> np.ndarray:
    """Returns the row in a set of the n-gram that starts at each position: (p,) int32.

    The n-grams of the set are one word longer than those of the ids. The row is −1 for borders and for
    n-grams that are not in the set.
    """
    ids = np.full(batch.ids.size, NO_GRAM, dtype=np.int32)
    place, own_ids, _ = candidate_places(batch, present_positions(batch, batch.length + 1))
    ids[place] = _table_of(grams).places_of(keys_at(batch, own_ids))
    return ids


@cached_for_sets(maxsize=4)
def _rows_in(before: PresentGrams, after: PresentGrams | GramSet) -> np.ndarray:
    """Returns for each row of a set its row in another one, −1 where it is missing, and −1 at the end.

    It is computed once for all batches that are renumbered.
    """
    places = after.ngrams.places_of(before.ngrams)
    return np.append(places, NO_GRAM).astype(np.int32)


def following_ids(batch: UserBatch) -> np.ndarray:
    """Returns the second id of the candidate of length + 1 at each position but the last ones.

    Pruning "both": the id at the next position. "single": the word that follows the gram, `length`
    positions on. A border lies between two documents (and users), so neighbours of one document are
    neighbours in the array.
    """
    return batch.ids[1:] if batch.word_ids is None else batch.word_ids[batch.length :]


def _table(grams: GramSet | PresentGrams) -> Words | Pairs | PairTable:
    """Returns what finds the rows of n-grams in a set."""
    return grams.ngrams.table()


# Tables are kept for all batches; the pass that counts users takes the sets of all lengths in turns.
_small_table = cached_for_sets(maxsize=16)(_table)
_large_table = cached_for_sets(maxsize=1)(_table)


def _table_of(grams: GramSet | PresentGrams) -> Words | Pairs | PairTable:
    """Returns the same for a set of any size, from one of the caches."""
    keep = _small_table if grams.keys.size <= _SMALL_SET else _large_table
    return keep(grams)


def _with_neighbours(ids: np.ndarray) -> np.ndarray:
    """Marks released ids with a released neighbour, and one border after each run of them."""
    # (p − 1,) bool: whether both of two neighbours are n-grams, by the sign bit of their union.
    paired = (ids[:-1] | ids[1:]) >= 0
    keep = np.zeros(ids.size, dtype=bool)
    keep[:-1] |= paired
    keep[1:] |= paired
    keep[1:] |= keep[:-1]
    return keep


def _runs_with_grams(ids: np.ndarray, word_ids: np.ndarray) -> np.ndarray:
    """Marks whole runs of released words in which at least one n-gram still starts."""
    # (p,) int64: the number of the run of each position; a border counts to the run before it.
    run = np.cumsum(word_ids < 0) - (word_ids < 0)
    # (runs,) bool: runs in which some n-gram starts stay whole, since the words after it are needed.
    has_gram = np.zeros(int(run[-1]) + 1 if run.size else 0, dtype=bool)
    has_gram[run[ids >= 0]] = True
    return has_gram[run]


def _select_positions(
    batch: UserBatch,
    grams: GramSet | PresentGrams,
    ids: np.ndarray,
    word_ids: np.ndarray | None,
    keep: np.ndarray,
) -> UserBatch:
    """Returns a batch with new ids: its kept positions, of the users that have some, or nearly all.

    If nearly all are kept, those that are not stay, which costs less than to copy the others.
    """
    place = staying = slice(None)
    offsets = batch.offsets
    if np.count_nonzero(keep) <= WORTH_COPYING * keep.size:
        place = np.flatnonzero(keep)
        counts = np.diff(offsets_of_marked(keep, batch.offsets))
        staying = np.flatnonzero(counts > 0)
        offsets = offsets_of(counts[staying])
    return UserBatch(
        length=grams.length,
        round=grams.round if isinstance(grams, PresentGrams) else 0,
        size=len(grams),
        users=batch.users[staying],
        offsets=offsets,
        ids=ids[place],
        word_ids=None if word_ids is None else word_ids[place],
        vocabulary_size=grams.vocabulary_size,
        left=None if batch.left is None else batch.left[staying],
    )
