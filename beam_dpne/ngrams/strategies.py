"""The rules of lengths: thresholds and cuts that follow from a plan and from sizes of released sets.

Candidates, histogram, noise, spurious n-grams and decoding are the same for all strategies. It imports
neither Beam nor Arrow.
"""

import dataclasses
from collections.abc import Mapping, Sequence

from beam_dpne.mechanism import thresholds
from beam_dpne.mechanism.rules import ClassRule, GroupRule, LengthRule, length_rule
from beam_dpne.ngrams import adaptive, tolerances
from beam_dpne.ngrams.plan import PrivacyPlan


def rule_of_sizes(
    plan: PrivacyPlan, length: int, *, released: int, sizes: Mapping[int, int], counted: int
) -> LengthRule:
    """Returns the rule of a length without a count of held candidates.

    Args:
      plan: the plan of the run.
      length: k.
      released: |S_{k−1}|.
      sizes: |V_c| of the classes that have candidates, by their numbers; with "one_round" of class 0
        alone. It is empty at k = 1, and if no n-gram is valid; then nothing more is released.
      counted: |V_k| or its estimate, which affects the threshold of "one_round" only.
    """
    numbers = plan.lengths[length - 1]
    if length == 1 and plan.is_adaptive:
        return LengthRule.of_rounds(length=1, noise_stddev=1.0, rounds=numbers.word_rules)
    if not plan.is_adaptive:
        valid, threshold = sum(sizes.values()), numbers.threshold
        if valid:
            threshold = thresholds.spurious_threshold(
                noise_stddev=numbers.noise_stddev,
                spurious_fraction=plan.spurious_fraction,
                released=released,
                valid=counted,
            )
        return length_rule(
            length=length,
            noise_stddev=numbers.noise_stddev,
            threshold=threshold,
            valid=None if length == 1 else valid,
            pruning=plan.pruning if length > 1 else "both",
        )
    groups = tolerances.groups_of(sizes, released)
    unheld = tolerances.all_candidates(groups)
    described = [
        GroupRule(
            lowest=min(group.factors),
            candidates=number,
            noise_stddev=0.0,
            noisy_unheld=number,
            unheld=number,
        )
        for group, number in zip(groups, unheld, strict=True)
    ]
    return class_rule(
        plan, length, released=released, sizes=sizes, groups=groups, described=described
    )


def class_rule(
    plan: PrivacyPlan,
    length: int,
    *,
    released: int,
    sizes: Mapping[int, int],
    groups: Sequence[tolerances.Group],
    described: Sequence[GroupRule],
) -> LengthRule:
    """Returns ρ_r and b_r of each class, from |S_{k−1}|, |V_c| and N_G ("adaptive" only).

    Args:
      plan: the plan of the run.
      length: k ≥ 2.
      released: |S_{k−1}|.
      sizes: |V_c| of the classes that have candidates, by their numbers.
      groups: the groups of the classes, the best one first.
      described: what is known of the held candidates of each group.
    """
    unheld, tolerated = [each.unheld for each in described], plan.spurious_fraction * released
    chances = tolerances.probabilities(groups, unheld, tolerated)
    of_groups = tolerances.group_probabilities(groups, unheld, tolerated)
    rounds = plan.lengths[length - 1].rounds
    return LengthRule(
        length=length,
        noise_stddev=1.0,
        classes=tuple(
            ClassRule(
                number=number,
                valid=sizes[number],
                rounds=adaptive.gram_rounds(chances[number], rounds),
            )
            for number in sorted(sizes)
        ),
        groups=tuple(
            dataclasses.replace(each, probability=chance)
            for each, chance in zip(described, of_groups, strict=True)
        ),
        by_prediction=True,
    )
