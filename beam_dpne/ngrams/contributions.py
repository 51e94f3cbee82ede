"""What one user adds to a length's histogram, and its bound.

The paper's strategy bounds a user in `limit_contributions`, once for each length. The adaptive strategy
bounds a user in `spend`, over all lengths and rounds together. Set unions do it in `set_union.weights`.
"""

import dataclasses

import numpy as np
import pyarrow as pa

from beam_dpne.elements.arrays import (
    distinct,
    hash_words,
    offsets_of,
    outside_limit,
    rows_of_entries,
)
from beam_dpne.elements.batches import UserBatch
from beam_dpne.mechanism import randomness
from beam_dpne.mechanism.randomness import RunKey
from beam_dpne.mechanism.thresholds import equal_weights
from beam_dpne.ngrams import adaptive
from beam_dpne.ngrams.candidates import (
    extract_grams,
    keep_present,
    present_positions,
    prune_invalid,
)
from beam_dpne.ngrams.elements import Contributions, GramSet, PresentGrams, unpack_pairs
from beam_dpne.ngrams.length_rules import counted_classes, tallies
from beam_dpne.ngrams.plan import PrivacyPlan
from beam_dpne.ngrams.valid import class_numbers


def limit_contributions(
    contributions: Contributions, *, max_contributions: int, run_key: RunKey
) -> Contributions:
    """Gives each user's n-grams the weight 1/√min(n, Δ), or 0 outside a keyed subset of size Δ."""
    counts = np.diff(contributions.offsets)
    kept = np.minimum(counts, max_contributions)
    # (n,) int64 in units of 2^-32: the weight of each n-gram of a user; users may have none.
    shares = np.zeros(counts.size, dtype=np.int64)
    shares[kept > 0] = equal_weights(kept[kept > 0])
    weights = np.repeat(shares, counts)
    sub_key = run_key.sub_key("subset", contributions.length)
    weights[outside_subset(contributions, max_contributions, sub_key)] = 0
    return dataclasses.replace(contributions, weights=weights)


def outside_subset(
    contributions: Contributions, max_contributions: int, sub_key: bytes
) -> np.ndarray:
    """Returns the entries of users above the limit that are outside a keyed subset: ascending int64."""
    # A packed pair identifies its n-gram in every batch. A word is identified by its keyed hash.
    keys, hashes = contributions.keys, contributions.word_hashes
    keys = keys.view(np.uint64) if hashes is None else hashes[keys, 0]

    def draw(user: np.ndarray, entries: np.ndarray) -> np.ndarray:
        return randomness.keyed_bits(sub_key, contributions.users[user, 0], keys[entries])[:, 0]

    return outside_limit(contributions.offsets, max_contributions, draw)


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

    Args:
      batch: users' positions in terms of `before`, or of S_{k−1}, or in round 1 of S_{k−2}.
      plan: the plan of the run.
      length: k.
      round_number: r.
      run_key: the secret of the run.
      previous: S_{k−1} (k ≥ 2).
      present: the n-grams that are open or found after round r−1 (r ≥ 2).
      before: the n-grams that were open or found after the round before the batch's last one, to whose
        rows the positions refer; None if they refer to a released set, or to words.

    Returns:
      None if no user has a position left.
    """
    if present is not None:
        batch = keep_present(batch, present, before)
    elif previous is not None:
        batch = prune_invalid(batch, previous, pruning=plan.pruning, present=before)
    if not len(batch.users):
        return None
    limit = plan.contribution_limits[length - 1]
    if not plan.is_adaptive:
        grams = extract_grams(batch)
        return limit_contributions(grams, max_contributions=limit, run_key=run_key), batch
    grams, rows = _open_grams(batch, length, round_number, present, run_key)
    # (n,) int64 in units of 2^-56: the budget for squared weights that earlier rounds have left.
    left = _left(batch, plan, length, round_number)
    if previous is not None and round_number == 1:
        # All own candidates of counted groups count, also those beyond Δ.
        classes = class_numbers(previous, grams.keys)
        counted = counted_classes(previous, plan.held_stddev)
        sent, cost = tallies(classes, grams.offsets, left, counted, plan.held_stddev)
        grams, left = dataclasses.replace(grams, classes=classes, tallies=sent), left - cost
    spent = _spent(dataclasses.replace(batch, left=left), grams, plan)
    # (m,) float64 without unit: the ratio in which a user divides the amount among n-grams.
    shares = _preferences(grams, rows, previous, present)
    sub_key = run_key.sub_key("subset", length, round_number)
    # N-grams beyond Δ_k stay at weight 0, so that they never count among the spurious ones.
    shares[outside_subset(grams, limit, sub_key)] = 0.0
    # Weights in units of 2^-32; their cost is exact and at most `spent`, so that no user overspends.
    weights, cost = adaptive.divide(spent, grams.offsets, shares)
    return dataclasses.replace(grams, weights=weights), dataclasses.replace(batch, left=left - cost)


def _spent(batch: UserBatch, grams: Contributions, plan: PrivacyPlan) -> np.ndarray:
    """Returns what each user spends on the open n-grams of a round: (n,) int64 in units of 2^-56."""
    length, left = grams.length, batch.left
    if left is None:
        raise ValueError("Users must say what they have left.")
    this_round = adaptive.rounds_of(length, plan.rounds or 1)[grams.round - 1]
    # With even budgets longer n-grams have their part already, so that nothing is kept back for them.
    longer = plan.max_length - length if plan.user_budgets == "individual" else 0
    # (n,) int64: places at which a longer n-gram of the user could still be found.
    ahead = adaptive.grams_ahead(present_positions(batch, length), batch.offsets, longer)
    kept = adaptive.kept_ahead(length, plan.favour or "balanced")
    spent = adaptive.spends(left, np.diff(grams.offsets), ahead, this_round.quota, kept)
    # The threshold for words of one user assumes this norm of a user's contributions to the round.
    return (
        np.minimum(spent, adaptive.round_cap(plan.allotment, this_round)) if length == 1 else spent
    )


def _left(batch: UserBatch, plan: PrivacyPlan, length: int, round_number: int) -> np.ndarray:
    """Returns each user's remaining budget: (n,) int64 in units of 2^-56.

    It is the whole allotment at first, and with even budgets again at the start of each length.
    """
    is_fresh = batch.left is None and length == 1
    # Budgets are dealt out once; a user who came without one would otherwise spend a second budget.
    if round_number == 1 and (is_fresh or plan.user_budgets == "even"):
        return np.full(len(batch.users), plan.allotment, dtype=np.int64)
    if batch.left is None:
        raise ValueError(
            f"Users at round {round_number} of length {length} must say what they have left; apply "
            "SpendBudgets to what it returned in the round before."
        )
    return batch.left


def _open_grams(
    batch: UserBatch,
    length: int,
    round_number: int,
    present: PresentGrams | None,
    run_key: RunKey,
) -> tuple[Contributions, np.ndarray]:
    """Returns each user's distinct candidates in round 1, and later those that are still open.

    The second array has their rows in the present set, (m,) int64; it is empty in round 1.
    """
    if present is None:
        return extract_grams(batch), np.zeros(0, np.int64)
    # Positions of open n-grams: neither borders nor found n-grams, on which nothing is spent.
    place = np.flatnonzero(batch.ids >= 0)
    place = place[present.found[batch.ids[place]] == 0]
    user = rows_of_entries(batch.offsets)[place]
    (user, rows), _ = distinct((user, batch.ids[place]), (len(batch.users), batch.size))
    offsets = offsets_of(np.bincount(user, minlength=len(batch.users)))
    contributions = Contributions(
        length=length, round=round_number, users=batch.users, offsets=offsets, keys=rows
    )
    if present.words is None:
        return dataclasses.replace(contributions, keys=present.keys[rows]), rows
    # Words travel with the batch, but only those that are open for some user of it.
    used, places = np.unique(rows, return_inverse=True)
    words = present.words.take(pa.array(used))
    contributions = dataclasses.replace(
        contributions,
        keys=places.reshape(-1),
        words=words,
        word_hashes=hash_words(run_key.sub_key("word"), words),
    )
    return contributions, rows


def _preferences(
    grams: Contributions,
    rows: np.ndarray,
    previous: GramSet | None,
    present: PresentGrams | None,
) -> np.ndarray:
    """Returns a_g for each entry; it is 1 at k = 1, where the threshold needs equal weights.

    Args:
      grams: each user's open n-grams.
      rows: (m,) int64, their rows in the present set.
      previous: S_{k−1}; None at k = 1.
      present: the set of n-grams that are open or found; None in round 1.
    """
    if grams.length == 1:
        return np.ones(grams.keys.size)
    # (m,) float64 in units of weight: the n-gram's expected weight; 1 where nothing is known.
    predictions = np.ones(grams.keys.size)
    if previous is not None and grams.length > 2:
        prefixes, seconds = unpack_pairs(grams.keys)
        # An n-gram is at most as frequent as its prefix and its suffix: the lower score predicts.
        predictions = np.minimum(previous.scores[prefixes], previous.scores[seconds])
    if present is None or present.rule is None:
        return adaptive.preferences(predictions, 0.0)
    classes = None if present.classes is None else present.classes[rows]
    cuts = present.rule.cut_cells(present.round)[present.rule.places(classes, rows.size)]
    return adaptive.preferences(predictions, adaptive.nearness(present.cells[rows], cuts))
