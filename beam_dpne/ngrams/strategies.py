"""Strategies: for each length, who may support which gram with what weight, and the thresholds.

A strategy is a pure object over a plan: candidates, subsets, histogram, noise, spurious grams and
decoding are shared by all. `OneRound` is the paper's: every user has weight 1 at every length.
`Adaptive` gives every user one budget for the whole run, to spend in rounds where it still helps.
"""

import dataclasses
import functools
from collections.abc import Callable

from beam_dpne.mechanism import gaussian
from beam_dpne.mechanism.randomness import RunKey
from beam_dpne.mechanism.rules import LengthRule, length_rule
from beam_dpne.ngrams import adaptive, valid
from beam_dpne.ngrams.elements import GramSet
from beam_dpne.ngrams.plan import PrivacyPlan


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


@dataclasses.dataclass(frozen=True, kw_only=True)
class Adaptive:
    """Rounds for each length, with the thresholds and cuts of `adaptive`.

    Attributes:
      plan: of the run.

    References: none; see `adaptive`.
    """

    plan: PrivacyPlan

    def rule_for(self, length: int):
        """Returns the function from S_{k−1} to the rule of length k."""
        if length == 1:
            return functools.partial(_word_rounds_rule, plan=self.plan)
        return functools.partial(_gram_rounds_rule, plan=self.plan, length=length)


def rule_for(plan: PrivacyPlan, length: int, run_key: RunKey) -> Callable[[GramSet], LengthRule]:
    """Returns the function from S_{k−1} to the rule of length k under a plan's strategy."""
    if plan.is_adaptive:
        return Adaptive(plan=plan).rule_for(length)
    return OneRound(plan=plan, run_key=run_key).rule_for(length)


def _word_rounds_rule(_: GramSet, *, plan: PrivacyPlan) -> LengthRule:
    return LengthRule(length=1, noise_stddev=1.0, rounds=plan.lengths[0].word_rules)


def _gram_rounds_rule(previous: GramSet, *, plan: PrivacyPlan, length: int) -> LengthRule:
    """Returns the rounds' ρ_r and b_r, from |S_{k−1}| and |V_k| alone."""
    members = valid.count_valid(previous, plan.pruning)
    rounds = ()
    if members:
        fraction = plan.spurious_fraction * min(1.0, len(previous) / members)
        rounds = adaptive.gram_rounds(fraction, plan.lengths[length - 1].rounds)
    return LengthRule(
        length=length, noise_stddev=1.0, rounds=rounds, valid=members, pruning=plan.pruning
    )


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
    threshold = gaussian.spurious_threshold(
        noise_stddev=plan.lengths[length - 1].noise_stddev,
        spurious_fraction=plan.spurious_fraction,
        released=len(previous),
        valid=counted,
    )
    return known(threshold=threshold, valid=members)
