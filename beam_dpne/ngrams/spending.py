"""SpendBudgets: users divide one budget among the n-grams of all rounds and lengths.

Under "one_round" a user is bounded once for each length instead, see `contributions`.
"""

import dataclasses
from typing import NamedTuple

import numpy as np

from beam_dpne.elements import progress
from beam_dpne.elements.arrays import (
    distinct,
    distinct_with_flag,
    offsets_of,
    rows_of_entries,
)
from beam_dpne.elements.batches import UserBatch
from beam_dpne.elements.encoding import cached_for_sets
from beam_dpne.mechanism.randomness import RunKey
from beam_dpne.ngrams import adaptive
from beam_dpne.ngrams.candidates import (
    candidate_places,
    contributions_of,
    extract_grams,
    following_ids,
    keep_present,
    present_positions,
    prune_invalid,
)
from beam_dpne.ngrams.contributions import limit_contributions, outside_subset, tallies
from beam_dpne.ngrams.elements import Contributions, GramSet, PresentGrams
from beam_dpne.ngrams.keys import unpack_pairs
from beam_dpne.ngrams.length_rules import counted_classes
from beam_dpne.ngrams.plan import PrivacyPlan
from beam_dpne.ngrams.valid import classes_of


def contribute(
    batch: UserBatch,
    *,
    plan: PrivacyPlan,
    length: int,
    round_number: int,
    run_key: RunKey,
    previous: GramSet | None = None,
    present: PresentGrams | None = None,
    before: PresentGrams | None = None,
) -> tuple[Contributions, UserBatch] | None:
    """Returns what a batch's users send to one round, and the users with what they have left.

    It is None if no user has a position left. Other arguments are the attributes of `SpendBudgets`.
    """
    progress.enter("users", length, round_number * plan.is_adaptive)
    if present is not None:
        batch = keep_present(batch, present, before)
    elif previous is not None and previous.length:
        batch = prune_invalid(batch, previous, pruning=plan.pruning, present=before)
    if not len(batch.users):
        return None
    limit = plan.contribution_limits[length - 1]
    if not plan.is_adaptive:
        grams = extract_grams(batch)
        return limit_contributions(grams, max_contributions=limit, run_key=run_key), batch
    # (p,) bool: where a candidate starts that has not been closed.
    standing = present_positions(batch, length)
    favours_long = plan.favour == "long" and 1 < length < plan.max_length
    alone = _stand_alone(standing) if favours_long else None
    places = {"standing": standing, "alone": alone}
    grams, own = _open_grams(batch, run_key, round_number, present=present, **places)
    # (n,) int64 in units of 2^-56: the budget for squared weights that earlier rounds have left.
    left = _left(batch, plan, length, round_number)
    if not grams.keys.size:
        return dataclasses.replace(grams, weights=grams.keys), dataclasses.replace(batch, left=left)
    if previous is not None and round_number == 1:
        # All own candidates of counted groups count, also those beyond Δ.
        classes = classes_of(previous, grams)
        counted = counted_classes(previous, plan.held_stddev)
        sent, cost = tallies(classes, grams.offsets, left, counted, plan.held_stddev)
        grams = dataclasses.replace(grams, classes=classes, tallies=sent)
        left = left - cost
    # (n,) int64: places at which a longer n-gram of the user could still be found.
    ahead = adaptive.grams_ahead(standing, batch.offsets, plan.max_length - length)
    spent = _spent(left, grams, own.places, ahead, plan)
    # (m,) float64 without unit: the ratio in which a user divides the amount among n-grams.
    if present is None:
        shares = _preferences(grams, previous)
    else:
        shares = _preferences_of_set(present, previous).take(own.rows)
    if own.alone is not None:
        shares[own.alone] *= adaptive.ALONE
    sub_key = run_key.sub_key("subset", length, round_number)
    # N-grams beyond Δ_k stay at weight 0, so that they never count among the spurious ones.
    shares[outside_subset(grams, limit, sub_key)] = 0.0
    # Weights in units of 2^-32; their cost is exact and at most `spent`, so that no user overspends.
    weights, cost = adaptive.divide(spent, grams.offsets, own.users, shares)
    return dataclasses.replace(grams, weights=weights), dataclasses.replace(batch, left=left - cost)


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
    before = np.zeros(place.size + 1, np.int32)
    np.cumsum(~nearby.take(place), dtype=np.int32, out=before[1:])
    return np.diff(before[offsets])


def _spent(
    left: np.ndarray, grams: Contributions, places: np.ndarray, ahead: np.ndarray, plan: PrivacyPlan
) -> np.ndarray:
    """Returns what each user spends on the open n-grams of a round: (n,) int64 in units of 2^-56."""
    this_round = plan.lengths[grams.length - 1].rounds[grams.round - 1]
    kept = adaptive.AHEAD[plan.favour or "balanced"][grams.length > 1]
    counts = np.diff(grams.offsets)
    distinct_ahead = ahead * counts / np.maximum(places, 1)
    spent = adaptive.spends(left, counts, distinct_ahead, this_round.quota, kept)
    if grams.length > 1:
        return spent
    # The threshold for words of one user assumes this norm of a user's contributions to the round.
    return np.minimum(spent, adaptive.round_cap(plan.allotment, this_round))


def _left(batch: UserBatch, plan: PrivacyPlan, length: int, round_number: int) -> np.ndarray:
    """Returns each user's remaining budget, at first the whole allotment: (n,) int64."""
    # Budgets are dealt out once; a user who came without one would otherwise spend a second budget.
    if batch.left is None and length == round_number == 1:
        return np.full(len(batch.users), plan.allotment, dtype=np.int64)
    if batch.left is None:
        raise ValueError(
            f"Users at round {round_number} of length {length} must say what they have left; apply "
            "SpendBudgets to what it returned in the round before."
        )
    return batch.left


class _Own(NamedTuple):
    """What is known of users' open candidates beside them.

    Attributes:
      users: (m,) int64, the rows of their users.
      places: (n,) int64, the number of each user's places of them, without those where one recurs
        nearby in its text.
      rows: (m,) int64, their rows in the present set; empty in round 1.
      alone: (m,) bool, whether each stands alone wherever it stands; None if nobody asks.
    """

    users: np.ndarray
    places: np.ndarray
    rows: np.ndarray
    alone: np.ndarray | None


def _open_grams(
    batch: UserBatch,
    run_key: RunKey,
    round_number: int,
    *,
    standing: np.ndarray,
    present: PresentGrams | None,
    alone: np.ndarray | None,
) -> tuple[Contributions, _Own]:
    """Returns each user's distinct open candidates; `standing` and `alone` mark places: (p,) bool."""
    if present is None:
        place, ids, sizes = candidate_places(batch, standing)
    else:
        # Positions of open n-grams: neither borders nor found n-grams, on which nothing is spent.
        # An id of −1 takes the last place.
        place = np.flatnonzero(np.append(present.found == 0, False)[batch.ids.astype(np.intp)])
        ids = (batch.ids.take(place),)
        sizes = (batch.size,)
    offsets = np.searchsorted(place, batch.offsets)
    user = rows_of_entries(offsets)
    places = _places_apart(batch, place, offsets, of_pairs=len(ids) > 1)
    columns = (user, *ids)
    sizes = (len(batch.users), *sizes)
    if alone is None:
        (user, *ids), _ = distinct(columns, sizes)
    else:
        (user, *ids), alone = distinct_with_flag(columns, sizes, alone[place])
    if present is None:
        return contributions_of(batch, user, ids), _Own(user, places, np.zeros(0, np.int64), alone)
    (rows,) = ids
    own = _Own(user, places, rows, alone)
    ngrams = present.ngrams.entries(rows, run_key.sub_key("word"))
    contributions = Contributions(
        length=batch.length,
        round=round_number,
        users=batch.users,
        offsets=offsets_of(np.bincount(user, minlength=len(batch.users))),
        keys=ngrams.keys,
        words=ngrams.words,
        word_hashes=ngrams.word_hashes,
    )
    return contributions, own


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
