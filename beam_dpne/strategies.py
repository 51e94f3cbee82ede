"""Strategies: for each length, who may support which gram with what weight, and the thresholds.

A strategy is a pure object over a plan: candidates, subsets, histogram, noise, spurious grams and
decoding are shared by all. `OneRound` is the paper's: every user has weight 1 at every length.
"""

import dataclasses
import functools

from beam_dpne import calibration, valid
from beam_dpne.batches import GramSet
from beam_dpne.mechanism import LengthRule, length_rule
from beam_dpne.plan import PrivacyPlan
from beam_dpne.randomness import RunKey


@dataclasses.dataclass(frozen=True, kw_only=True)
class OneRound:
    """The paper's strategy: one round for each length, 1/√n to each of a user's n grams.

    Attributes:
      plan: of the run.
      run_key: secret of the run; only the estimate of |V_k| draws from it.

    References: DPNE Algorithm 1.
    """

    plan: PrivacyPlan
    run_key: RunKey = dataclasses.field(repr=False)

    def rule_for(self, length: int):
        """Returns the function from S_{k−1} to the rule of length k."""
        if length == 1:
            return functools.partial(_vocabulary_rule, plan=self.plan)
        return functools.partial(_gram_rule, plan=self.plan, length=length, run_key=self.run_key)


def _vocabulary_rule(_: GramSet, *, plan: PrivacyPlan) -> LengthRule:
    first = plan.lengths[0]
    return length_rule(length=1, noise_stddev=first.noise_stddev, threshold=first.threshold)


def _gram_rule(previous: GramSet, *, plan: PrivacyPlan, length: int, run_key: RunKey) -> LengthRule:
    """Returns σ_k, ρ_k and |V_k|; with |S_{k−1}| = 0 or |V_k| = 0 nothing more is released."""
    known = functools.partial(
        length_rule,
        length=length,
        noise_stddev=plan.lengths[length - 1].noise_stddev,
        pruning=plan.pruning,
    )
    members = valid.count_valid(previous, plan.pruning)
    if members == 0:
        return known(threshold=None, valid=0)
    counted = members
    if plan.valid_count == "estimate":
        estimate = valid.estimate_valid_kgrams(previous, run_key.sub_key("estimate", length))
        counted = max(1, estimate)
    threshold = calibration.spurious_threshold(
        noise_stddev=plan.lengths[length - 1].noise_stddev,
        spurious_fraction=plan.spurious_fraction,
        released=len(previous),
        valid=counted,
    )
    return known(threshold=threshold, valid=members)
