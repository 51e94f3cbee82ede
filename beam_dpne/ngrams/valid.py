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

from beam_dpne.mechanism import randomness
from beam_dpne.mechanism.randomness import RunKey
from beam_dpne.mechanism.rules import LengthRule
from beam_dpne.ngrams.elements import GramSet, unpack_pairs
from beam_dpne.ngrams.members import class_sizes
from beam_dpne.ngrams.plan import ESTIMATE_SAMPLES, PrivacyPlan


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
    if length > 1 and plan.strategy_value.has_classes:
        sizes = class_sizes(previous)
    elif length > 1 and (valid := count_valid(previous, plan.pruning)):
        sizes = {0: valid}
    counted = sum(sizes.values())
    if counted and plan.valid_count == "estimate":
        estimate = estimate_valid_kgrams(previous, run_key.sub_key("estimate", length))
        counted = max(1, estimate)
    return plan.strategy_value.rule(
        plan, length, released=len(previous), sizes=sizes, counted=counted
    )


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
