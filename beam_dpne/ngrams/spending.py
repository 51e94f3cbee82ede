"""SpendBudgets: users divide one budget among the n-grams of all rounds and lengths.

Under "one_round" a user is bounded once for each length instead, see `contributions`.
"""

import dataclasses
from typing import NamedTuple

import numpy as np

from beam_dpne.elements.arrays import (
    distinct,
    distinct_with_flag,
    offsets_of,
    offsets_of_marked,
    ranges,
    rows_of_entries,
)
from beam_dpne.elements.batches import UserBatch
from beam_dpne.elements.encoding import cached_for_sets
from beam_dpne.elements.sums import sums_of_rows
from beam_dpne.mechanism.randomness import RunKey
from beam_dpne.mechanism.rules import KNOWN_CLASS
from beam_dpne.ngrams import adaptive
from beam_dpne.ngrams.candidates import (
    WORTH_COPYING,
    candidate_places,
    contributions_of,
    extract_grams,
    following_ids,
    keep_present,
    present_positions,
    prune_invalid,
)
from beam_dpne.ngrams.contributions import limit_contributions, outside_subset, tallies
from beam_dpne.ngrams.elements import (
    NOTHING_RELEASED,
    Contributions,
    GramSet,
    Past,
    PresentGrams,
)
from beam_dpne.ngrams.keys import unpack_pairs
from beam_dpne.ngrams.length_rules import counted_classes
from beam_dpne.ngrams.plan import NgramsPlan
from beam_dpne.ngrams.valid import classes_of


@dataclasses.dataclass(frozen=True, kw_only=True)
class RoundOfLength:
    """One round of one length under a plan.

    Attributes:
      plan: the plan of the run.
      length: k.
      number: r, from 1.
      run_key: the secret of the run, bound to its parameters.
    """

    plan: NgramsPlan
    length: int
    number: int
    run_key: RunKey = dataclasses.field(repr=False)


class Contributed(NamedTuple):
    """What a batch's users send to a round, and the users with what they have left."""

    contributions: Contributions
    users: UserBatch


def contribute(
    batch: UserBatch, this: RoundOfLength, past: Past = NOTHING_RELEASED
) -> Contributed | None:
    """Lets a batch's users contribute to a round, in three stages.

    First each user's positions and open candidates are found, then the user pays for the count of held
    candidates, and last the user spends some of what is left on weights.

    Args:
      batch: the users; each user is in one batch only.
      this: the round.
      past: what the lengths and rounds before have left.

    Returns:
      What users send, and the users with what they have left; None if no user has a position left.

    References: DPNE Algorithm 1, the loop over users; under "adaptive" section 4 of its page.
    """
    batch = positions(batch, past, this.plan.pruning)
    if not len(batch.users):
        return None
    if not this.plan.is_adaptive:
        most = this.plan.contribution_limits[this.length - 1]
        grams = extract_grams(batch)
        limited = limit_contributions(grams, max_contributions=most, run_key=this.run_key)
        return Contributed(limited, batch)
    candidates = open_candidates(batch, this, past)
    # (n,) int64 in units of 2^-56: the budget for squared weights that earlier rounds have left.
    left = _left(batch, this)
    if not candidates.grams.keys.size:
        nothing = dataclasses.replace(candidates.grams, weights=candidates.grams.keys)
        return Contributed(nothing, dataclasses.replace(batch, left=left))
    if past.released is not None and this.number == 1:
        candidates, cost = charge(candidates, left, past.released, this.plan)
        left = left - cost
    # (n,) int64: users without an open n-gram spend nothing.
    cost = np.zeros_like(left)
    weighted, cost[candidates.owners] = spend(candidates, left[candidates.owners], this, past)
    return Contributed(weighted, dataclasses.replace(batch, left=left - cost))


def positions(batch: UserBatch, past: Past, pruning: str) -> UserBatch:
    """Returns the positions at which users can still have something, in terms of the newest set."""
    if past.present is not None:
        return keep_present(batch, past.present, past.positions)
    if past.released is not None and past.released.length:
        return prune_invalid(batch, past.released, pruning=pruning, present=past.positions)
    return batch


class Candidates(NamedTuple):
    """The open candidates of a batch's users, and what is known of them beside their keys.

    Attributes:
      owners: the rows in the batch of the n users whose candidates these are: all, or those with one.
      grams: each user's distinct open candidates.
      users: (m,) int64, the rows of their users among the n.
      places: (n,) int64, the number of each user's places of them, without those where one recurs
        nearby in its text.
      ahead: (n,) int64, places at which a longer n-gram of the user could still be found.
      rows: (m,) int64, their rows in the present set; empty in round 1.
      alone: (m,) bool, whether each stands alone wherever it stands; None if nobody asks.
    """

    owners: np.ndarray | slice
    grams: Contributions
    users: np.ndarray
    places: np.ndarray
    ahead: np.ndarray
    rows: np.ndarray
    alone: np.ndarray | None


def open_candidates(batch: UserBatch, this: RoundOfLength, past: Past) -> Candidates:
    """Returns each user's distinct open candidates of a round.

    Args:
      batch: users' positions in terms of the newest set.
      this: the round.
      past: what the lengths and rounds before have left.
    """
    plan = this.plan
    owners: np.ndarray | slice = slice(None)
    if past.present is None:
        # (p,) bool: where a candidate starts that has not been closed.
        standing = present_positions(batch, this.length)
        place, ids, sizes = candidate_places(batch, standing)
        offsets = offsets_of_marked(standing, batch.offsets)
    else:
        batch, owners, place, offsets = _open_places(batch, past.present)
        standing = present_positions(batch, this.length)
        ids = (batch.ids.take(place),)
        sizes = (batch.size,)
    ahead = adaptive.grams_ahead(standing, batch.offsets, plan.max_length - this.length)
    places = _places_apart(batch, place, offsets, of_pairs=len(ids) > 1)
    columns = (rows_of_entries(offsets), *ids)
    sizes = (len(batch.users), *sizes)
    alone = None
    if plan.favour == "long" and 1 < this.length < plan.max_length:
        (user, *ids), alone = distinct_with_flag(columns, sizes, _stand_alone(standing)[place])
    else:
        (user, *ids), _ = distinct(columns, sizes)
    if past.present is None:
        grams = contributions_of(batch, user, ids)
        return Candidates(owners, grams, user, places, ahead, np.zeros(0, np.int64), alone)
    (rows,) = ids
    grams = _of_present(batch, past.present, user, rows, this)
    return Candidates(owners, grams, user, places, ahead, rows, alone)


class _OpenPlaces(NamedTuple):
    """Where the users of a batch have open n-grams.

    Attributes:
      users: the n users with an open n-gram, or all of the batch if that is hardly more.
      owners: their rows in the batch.
      places: (m,) int64, ascending, the places of open n-grams among their positions.
      offsets: (n + 1,) int64, where the places of each user begin.
    """

    users: UserBatch
    owners: np.ndarray | slice
    places: np.ndarray
    offsets: np.ndarray


def _open_places(batch: UserBatch, present: PresentGrams) -> _OpenPlaces:
    """Finds open n-grams in a later round: neither borders nor found ones, which cost nothing more."""
    # An id of −1 takes the last place.
    is_open = np.append(present.found == 0, False)[batch.ids.astype(np.intp)]
    offsets = offsets_of_marked(is_open, batch.offsets)
    counts = np.diff(offsets)
    owners = np.flatnonzero(counts)
    sizes = np.diff(batch.offsets)[owners]
    if sizes.sum() > WORTH_COPYING * batch.ids.size:
        return _OpenPlaces(batch, slice(None), np.flatnonzero(is_open), offsets)
    kept = ranges(batch.offsets[owners], sizes)
    own = dataclasses.replace(
        batch,
        users=batch.users[owners],
        offsets=offsets_of(sizes),
        ids=batch.ids[kept],
        word_ids=None if batch.word_ids is None else batch.word_ids[kept],
        left=None if batch.left is None else batch.left[owners],
    )
    return _OpenPlaces(own, owners, np.flatnonzero(is_open[kept]), offsets_of(counts[owners]))


def charge(
    candidates: Candidates, left: np.ndarray, released: GramSet, plan: NgramsPlan
) -> tuple[Candidates, np.ndarray]:
    """Lets users pay for the count of held candidates, to which all own candidates add, also beyond Δ.

    Args:
      candidates: each user's distinct candidates, of all users of a batch.
      left: (n,) int64 in units of 2^-56, the budget that each user has left.
      released: S_{k−1}.
      plan: the plan of the run.

    Returns:
      The candidates with their classes and with what is sent for the count, and what each user pays:
      (n,) int64 in units of 2^-56.
    """
    grams = candidates.grams
    classes = classes_of(released, grams)
    counted = counted_classes(released, plan.held_stddev)
    # Only known words are counted at length 1, so that others should not pay for them.
    part = 1.0 if released.length else _known_part(classes, grams.offsets)
    sent, cost = tallies(classes, candidates.users, left, counted, plan.held_stddev, part=part)
    grams = dataclasses.replace(grams, classes=classes, tallies=sent)
    return candidates._replace(grams=grams), cost


def spend(
    candidates: Candidates, left: np.ndarray, this: RoundOfLength, past: Past
) -> tuple[Contributions, np.ndarray]:
    """Divides what users spend in a round among their open candidates.

    Args:
      candidates: each user's distinct open candidates.
      left: (n,) int64 in units of 2^-56, the budget that each user has left.
      this: the round.
      past: what the lengths and rounds before have left.

    Returns:
      The candidates with weights in units of 2^-32, and their exact cost, which is at most what the
      user has left: (n,) int64 in units of 2^-56.
    """
    grams = candidates.grams
    spent = _spent(left, candidates, this, _kept(candidates, this, past))
    # (m,) float64 without unit: the ratio in which a user divides the amount among n-grams.
    if past.present is None:
        shares = _preferences(grams, past.released)
    else:
        shares = _preferences_of_set(past.present, past.released).take(candidates.rows)
    if candidates.alone is not None:
        shares[candidates.alone] *= adaptive.ALONE
    limit = this.plan.contribution_limits[this.length - 1]
    sub_key = this.run_key.sub_key("subset", this.length, this.number)
    # N-grams beyond Δ_k stay at weight 0, so that they never count among the spurious ones.
    shares[outside_subset(grams, limit, sub_key)] = 0.0
    weights, cost = adaptive.divide(spent, grams.offsets, candidates.users, shares)
    return dataclasses.replace(grams, weights=weights), cost


def _stand_alone(present: np.ndarray) -> np.ndarray:
    """Marks positions with no present k-gram beside them, where no longer one can start: (p,) bool."""
    beside = np.zeros(present.size, dtype=bool)
    beside[:-1] |= present[1:]
    beside[1:] |= present[:-1]
    return ~beside


def _places_apart(
    batch: UserBatch, place: np.ndarray, offsets: np.ndarray, *, of_pairs: bool
) -> np.ndarray:
    """Counts each user's places but those whose n-gram stands at one of the NEARBY places before.

    Args:
      batch: the users' positions.
      place: (m,) int64, ascending, the places.
      offsets: (n + 1,) int64, where each user's places begin.
      of_pairs: whether the n-gram at a place is two ids, as `candidate_places` has them, or one.
    """
    ids, inside = batch.ids, batch.ids >= 0
    second = following_ids(batch)
    # (p,) bool: whether the n-gram stands nearby before, and whether no border is on the way there.
    nearby = np.zeros(ids.size, bool)
    unbroken = inside.copy()
    for step in range(1, adaptive.NEARBY + 1):
        same = ids[step:] == ids[:-step]
        if of_pairs:
            same_second = second[step:] == second[:-step]
            same[: same_second.size] &= same_second
        nearby[step:] |= same & unbroken[step:]
        unbroken[step:] &= inside[:-step]
    return np.diff(offsets_of_marked(~nearby.take(place), offsets))


def _kept(candidates: Candidates, this: RoundOfLength, past: Past) -> np.ndarray | float:
    """Returns ω, what users keep for a longer n-gram beside an open one of this round.

    Where words are known, it is (n,) float64, for each user the mean over the own open words.
    """
    for_words, for_longer = adaptive.AHEAD[this.plan.favour or "balanced"]
    if this.length > 1:
        return for_longer
    grams = candidates.grams
    classes = grams.classes
    if past.present is not None and past.present.classes is not None:
        classes = past.present.classes.take(candidates.rows)
    if classes is None:
        return for_words
    part = _known_part(classes, grams.offsets)
    return for_words * (1.0 + adaptive.MORE_BESIDE_KNOWN_WORDS * part)


def _known_part(classes: np.ndarray, offsets: np.ndarray) -> np.ndarray:
    """Returns which part of each user's words is known, by their classes, (m,): (n,) float64."""
    known = sums_of_rows((classes == KNOWN_CLASS).astype(np.int64), offsets)
    return known / np.maximum(np.diff(offsets), 1)


def _spent(
    left: np.ndarray, candidates: Candidates, this: RoundOfLength, kept: np.ndarray | float
) -> np.ndarray:
    """Returns what each user spends on the open n-grams of a round: (n,) int64 in units of 2^-56."""
    this_round = this.plan.lengths[this.length - 1].rounds[this.number - 1]
    counts = np.diff(candidates.grams.offsets)
    distinct_ahead = candidates.ahead * counts / np.maximum(candidates.places, 1)
    spent = adaptive.spends(left, counts, distinct_ahead, this_round.quota, kept)
    if this.length > 1:
        return spent
    # The threshold for words of one user assumes this norm of a user's contributions to the round.
    return np.minimum(spent, adaptive.round_cap(this.plan.allotment, this_round))


def _left(batch: UserBatch, this: RoundOfLength) -> np.ndarray:
    """Returns each user's remaining budget, at first the whole allotment: (n,) int64."""
    # Budgets are dealt out once; a user who came without one would otherwise spend a second budget.
    if batch.left is None and this.length == this.number == 1:
        return np.full(len(batch.users), this.plan.allotment, dtype=np.int64)
    if batch.left is None:
        raise ValueError(
            f"Users at round {this.number} of length {this.length} must say what they have left; "
            "apply SpendBudgets to what it returned in the round before."
        )
    return batch.left


def _of_present(
    batch: UserBatch, present: PresentGrams, user: np.ndarray, rows: np.ndarray, this: RoundOfLength
) -> Contributions:
    """Returns users' open n-grams of a present set: those of its rows, (m,) int64, by `user`, (m,)."""
    ngrams = present.ngrams.entries(rows, this.run_key.sub_key("word"))
    return Contributions(
        length=batch.length,
        round=this.number,
        users=batch.users,
        offsets=offsets_of(np.bincount(user, minlength=len(batch.users))),
        keys=ngrams.keys,
        words=ngrams.words,
        word_hashes=ngrams.word_hashes,
    )


def _preferences(grams: Contributions | PresentGrams, previous: GramSet | None) -> np.ndarray:
    """Returns a_g of each n-gram; it is 1 at k = 1, where the threshold needs equal weights."""
    if grams.length == 1:
        return np.ones(grams.keys.size)
    # (m,) float64 in units of weight: the n-gram's expected weight; 1 where nothing is known.
    predictions: np.ndarray | float = 1.0
    if previous is not None and grams.length > 2:
        prefixes, seconds = unpack_pairs(grams.keys)
        # An n-gram is at most as frequent as its prefix and its suffix: the lower score predicts.
        predictions = np.minimum(previous.scores.take(prefixes), previous.scores.take(seconds))
    nearness = np.zeros(grams.keys.size)
    if isinstance(grams, PresentGrams) and grams.rule is not None:
        places = grams.rule.places(grams.classes, len(grams))
        nearness = adaptive.nearness(grams.cells, grams.rule.cut_cells(grams.round)[places])
    return adaptive.preferences(predictions, nearness)


# Those of a round are computed once for all batches.
_preferences_of_set = cached_for_sets(maxsize=1)(_preferences)
