"""Valid k-grams V_k: their exact number, its estimate, the rule that follows, and uniform draws.

V_k is (S_{k−1} × S_1) ∩ (S_1 × S_{k−1}) with pruning "both", and S_{k−1} × S_1 with "single". It is
never enumerated. A valid k-gram x·m·z is counted by its middle m, the k−2 words between the first and
the last: |V_k| = Σ_m L(m)·R(m), where L(m) and R(m) are the numbers of n-grams in S_{k−1} that end and
begin with m.
"""

import functools
import math
from collections.abc import Callable, Mapping

import numpy as np

from beam_dpne.mechanism import randomness, thresholds
from beam_dpne.mechanism.randomness import RunKey
from beam_dpne.mechanism.rules import ClassRule, LengthRule
from beam_dpne.ngrams.classes import Members, class_sizes
from beam_dpne.ngrams.elements import GramSet, SpuriousGrams, unpack_pairs
from beam_dpne.ngrams.plan import ESTIMATE_SAMPLES, PrivacyPlan
from beam_dpne.ngrams.strategies import rule_of_sizes


def rule_for(plan: PrivacyPlan, length: int, run_key: RunKey) -> Callable[[GramSet], LengthRule]:
    """Returns the function from S_{k−1} to the rule of length k, which depends on public numbers only.

    Args:
      plan: the plan of the run, whose strategy makes the rule.
      length: k.
      run_key: the secret of the run; only the estimate of |V_k| draws from it.
    """
    return functools.partial(_rule, plan=plan, length=length, run_key=run_key)


def _rule(previous: GramSet, *, plan: PrivacyPlan, length: int, run_key: RunKey) -> LengthRule:
    sizes: Mapping[int, int] = {}
    if length > 1 and plan.is_adaptive:
        sizes = class_sizes(previous)
    elif length > 1 and (valid := count_valid(previous, plan.pruning)):
        sizes = {0: valid}
    counted = sum(sizes.values())
    if counted and plan.valid_count == "estimate":
        estimate = estimate_valid_kgrams(previous, run_key.sub_key("estimate", length))
        counted = max(1, estimate)
    return rule_of_sizes(plan, length, released=len(previous), sizes=sizes, counted=counted)


def count_valid(previous: GramSet, pruning: str) -> int:
    """Returns |V_k| exactly, for k = previous.length + 1 ≥ 2.

    Args:
      previous: S_{k−1}.
      pruning: "both" or "single".

    References: DPNE section 2, "Pruning using valid k-grams"; exact count by middles.
    """
    if pruning == "single" or previous.length == 1:
        return len(previous) * previous.vocabulary_size
    left, right = _grams_by_middle(previous)
    return _exact_dot(left, right)


def estimate_valid_kgrams(previous: GramSet, sub_key: bytes) -> int:
    """Returns the paper's estimate of |V_k| from pairs (x, w) drawn from S_1 × S_{k−1}.

    With w = y·z it counts how often the k−1 words x·y are in S_{k−1}. L(y) words x of S_1 have this
    property. If S_1 is numbered for each y so that these words come first, the look-up becomes
    `x < L(y)`, and the distribution of the count is the paper's. The sampling probability p is such
    that about a million pairs are drawn at most. The estimate is a function of released sets and
    separate randomness, so it costs no privacy; it affects only the threshold.

    References: DPNE appendix A, Algorithm 2 (EstimateValidKgrams).
    """
    pairs = len(previous) * previous.vocabulary_size
    if pairs == 0:
        return 0
    probability = min(1.0, ESTIMATE_SAMPLES / pairs)
    samples = math.ceil(probability * pairs)
    if previous.length == 1:
        return math.ceil(samples / probability)
    bits = randomness.keyed_bits(sub_key, np.uint64(0), np.arange(samples, dtype=np.uint64))
    words = (bits[:, 0] % np.uint64(previous.vocabulary_size)).astype(np.int64)
    grams = (bits[:, 1] % np.uint64(len(previous))).astype(np.int64)
    prefixes, _ = unpack_pairs(previous.keys)
    left, _ = _grams_by_middle(previous)
    return math.ceil(np.count_nonzero(words < left[prefixes[grams]]) / probability)


def _grams_by_middle(previous: GramSet) -> tuple[np.ndarray, np.ndarray]:
    """Returns L(m) and R(m), (|S_{k−2}|,) int64: how many n-grams of S_{k−1} end and begin with m."""
    prefixes, suffixes = unpack_pairs(previous.keys)
    size = previous.parent_size
    return np.bincount(suffixes, minlength=size), np.bincount(prefixes, minlength=size)


def _exact_dot(left: np.ndarray, right: np.ndarray) -> int:
    """Returns Σ left·right, by Python integers where 64 bits might not hold it."""
    if int(left.max(initial=0)) * int(right.max(initial=0)) * left.size < 2**63:
        return int(left @ right)
    return sum(a * b for a, b in zip(left.tolist(), right.tolist(), strict=True))


def sample_spurious(previous: GramSet, *, rule: LengthRule, run_key: RunKey) -> SpuriousGrams:
    """Draws each member of V_c with Σ_r P_{r,c}, with the round and the cell of its noise."""
    members = Members.of(previous, rule.pruning, by_prediction=rule.by_prediction)
    return sample_members(members, rule=rule, run_key=run_key)


def sample_members(members: Members, *, rule: LengthRule, run_key: RunKey) -> SpuriousGrams:
    """Draws each of some candidates with the probability of its class; see `sample_spurious`."""
    sizes = members.sizes()
    present = [each for each in rule.classes if each.number in sizes]
    drawn = members.draw(
        {each.number: _bits(sizes[each.number], each, rule.length, run_key) for each in present}
    )
    parts = [_sampled_class(drawn[each.number], each, rule, run_key) for each in present]
    keys = np.concatenate([np.zeros(0, np.int64), *(part.keys for part in parts)])
    order = np.argsort(keys)
    columns = {
        name: np.concatenate([np.zeros(0, dtype), *(getattr(part, name) for part in parts)])[order]
        for name, dtype in (("cells", np.int64), ("rounds", np.int8), ("classes", np.int16))
    }
    return SpuriousGrams(length=rule.length, keys=keys[order], **columns, rule=rule)


def _bits(size: int, own: ClassRule, length: int, run_key: RunKey) -> np.ndarray:
    """Returns the random bits of a Poisson number of draws from a class: (draws, 2) uint64."""
    number, mean = np.int64(own.number), -size * math.log1p(-own.null_probability)
    blocks = np.arange(randomness.poisson_blocks(mean), dtype=np.uint64)
    count_bits = randomness.keyed_bits(run_key.sub_key("spurious count", length), number, blocks)
    draws = np.arange(randomness.poisson(count_bits, mean), dtype=np.uint64)
    return randomness.keyed_bits(run_key.sub_key("spurious draw", length), number, draws)


def _sampled_class(
    drawn: np.ndarray, own: ClassRule, rule: LengthRule, run_key: RunKey
) -> SpuriousGrams:
    """Returns drawn members of one class, each once, with the round and the cell of their noise."""
    length = rule.length
    # (s,) int64: draws of the same member are merged.
    keys = np.sort(drawn)
    keys = keys[np.diff(keys, prepend=-1) != 0]
    rounds = _spurious_rounds(keys, own, length, run_key)
    noise = randomness.keyed_bits(run_key.sub_key("spurious noise", length), np.uint64(0), keys)
    drawn_cells = np.zeros(keys.size, dtype=np.int64)
    for found in np.unique(rounds).tolist():
        inside = rounds == found
        drawn_cells[inside] = thresholds.spurious_cells(
            noise[inside], own.rounds, found, rule.noise_stddev
        )
    return SpuriousGrams(
        length=length,
        keys=keys,
        cells=drawn_cells,
        rounds=rounds,
        classes=np.full(keys.size, own.number, np.int16),
    )


def _spurious_rounds(keys: np.ndarray, own: ClassRule, length: int, run_key: RunKey) -> np.ndarray:
    """Draws the round in which each spurious n-gram is found: r with probability P_r/p, (s,) int8."""
    sub_key = run_key.sub_key("spurious round", length)
    uniform = randomness.uniforms(randomness.keyed_bits(sub_key, np.uint64(0), keys))
    borders = np.cumsum([each.null_probability for each in own.rounds[:-1]])
    return (1 + np.searchsorted(borders, uniform * own.null_probability)).astype(np.int8)
