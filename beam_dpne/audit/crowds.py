"""Others who are so many that only their sums are made up: the weights of a crowd in each round.

The sums of others depend on public numbers, and on noisy decisions about their own n-grams. So they are
the sums of some other users, whatever the user in question has, and the privacy argument covers them.
"""

import numpy as np
import pyarrow as pa

from beam_dpne.audit.copies import World, known, words_of
from beam_dpne.mechanism.rules import UNITS, LengthRule
from beam_dpne.ngrams.elements import Contributions, HistogramShard, pack_pairs, unpack_pairs

# Standard deviations by which n-grams of the crowd are above the threshold.
_SURE = 40.0


def crowd_sums(
    world: World, runs: int, grams: np.ndarray, rule: LengthRule, round_number: int
) -> Contributions:
    """Returns the sums of all others at some n-grams of all copies, as one contribution.

    Args:
      world: the world with the crowd.
      runs: the number of its copies.
      grams: (n,) int64, rows x of words, or of n-grams (x, x), ascending.
      rule: the rule of one copy.
      round_number: r, from 1.

    Returns:
      Contributions without hashes of words.
    """
    if world.crowd == "near":
        weight = _patient_weight(rule, round_number, above=0.0)
    elif world.crowd == "everything" and rule.length == world.lengths[-1]:
        weight = _patient_weight(rule, round_number, above=_SURE)
    else:
        weight = _sure_weight(rule, round_number)
    is_of_words = rule.length == 1
    return Contributions(
        length=rule.length,
        users=np.full((1, 2), 2**63, np.uint64),
        offsets=np.array([0, grams.size]),
        keys=np.arange(grams.size) if is_of_words else pack_pairs(grams, grams),
        weights=np.full(grams.size, weight),
        round=round_number,
        words=pa.array(words_of(runs, world.words)).take(pa.array(grams)) if is_of_words else None,
    )


def open_grams(shards: list[HistogramShard]) -> np.ndarray:
    """Returns the rows of n-grams (x, x), or of words, that are neither found nor closed, ascending."""
    rows = [np.zeros(0, np.int64)]
    for shard in shards:
        chosen = np.flatnonzero(known(shard.found) == 0)
        if shard.words is not None:
            words = shard.words.take(pa.array(chosen)).to_pylist()
            rows.append(np.array(words, dtype=np.int64))
        else:
            rows.append(unpack_pairs(shard.keys[chosen])[0])
    return np.sort(np.concatenate(rows))


def _sure_weight(rule: LengthRule, round_number: int) -> int:
    """Returns a weight of the crowd by which the first round finds its n-grams: units of 2^-32."""
    first = rule.rounds[0]
    evidence = first.threshold + _SURE * first.evidence_stddev
    own = round(evidence * first.loading_unit / first.loadings[0] * UNITS)
    return own if round_number == 1 else 0


def _patient_weight(rule: LengthRule, round_number: int, *, above: float) -> int:
    """Returns a weight of the crowd by which its n-grams stay open until the last round.

    The evidence is in the middle of the open range, and after the last round above the threshold by so
    many standard deviations.
    """
    weights: list[float] = []
    for each in rule.rounds[:round_number]:
        target = (each.threshold + each.cut) / 2
        if each is rule.rounds[-1]:
            target = each.threshold + above * each.evidence_stddev
        # Evidence is Σ ℓ_s w_s, with loadings that differ from round to round.
        loadings = [loading / each.loading_unit for loading in each.loadings]
        before = sum(w * loading for w, loading in zip(weights, loadings, strict=False))
        weights.append(max(0.0, (target - before) / loadings[-1]))
    return round(weights[-1] * UNITS)
