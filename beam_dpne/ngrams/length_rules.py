"""The rule of a length, and the private count of held candidates from which it follows.

Before the first round of a length, user u takes n_G = Σ ω over the own candidates of each counted group
G, q = Σ_G n_G², and t = min(1, s·√(COST·left/q)). The user sends t for each of these candidates, beside
the weights of round 1. With h_G = Σ ω_g·min(1, Σ_u t_u(g)) over the observed candidates,

    X_G = U_G − h_G + N(0, s²),

is released as a cell of width s/64. One user moves (h_G)_G by at most t·√q in ℓ2, whatever the others
send, since min(1, ·) moves by no more than its argument. So (t·√q/s)² of the user's budget is charged
first: the bound, never the shift itself, which depends on the others. It is computed in integers.

Of known words (k = 1) the sum is released twice, each time with noise √2·s, which costs as much as once
with s: the first count gives N, and the second what is tolerated.

N_G is an estimate of the number of candidates that nobody holds, weighted by ω, with E[1/N_G] at most
one over it (Voinov 1985): s·φ(X/s)/Φ̄(X/s), and at least s/4. Thresholds and cuts then follow from N_G,
|V_c| and |S_{k−1}|; with "one_round" from |V_k| and |S_{k−1}| alone.
"""

import dataclasses
import math
from collections.abc import Iterable, Mapping, Sequence

import numpy as np
import scipy

from beam_dpne.elements.encoding import cached_for_sets
from beam_dpne.elements.sums import sums_at
from beam_dpne.mechanism import randomness, rules, thresholds
from beam_dpne.mechanism.randomness import RunKey
from beam_dpne.mechanism.rules import (
    KNOWN_CLASS,
    ClassRule,
    GroupRule,
    LengthRule,
    length_rule,
)
from beam_dpne.ngrams import adaptive, tolerances
from beam_dpne.ngrams.contributions import SUM_BITS, Counted, counted_of
from beam_dpne.ngrams.elements import ROOT, GramSet, HistogramShard
from beam_dpne.ngrams.plan import NgramsPlan
from beam_dpne.ngrams.tolerances import LEAST_ESTIMATE, TALLY_BITS, Group
from beam_dpne.ngrams.valid import class_sizes, estimate_valid_kgrams

# Floating point is right to less than that where an estimate must not be too low.
_ESTIMATE_MARGIN = 1 + 1e-9


@cached_for_sets(maxsize=4)
def counted_classes(previous: GramSet, stddev: float) -> Counted:
    """Returns the counted groups of length k, a function of S_{k−1} and s."""
    sizes = class_sizes(previous)
    if previous.length == 0:
        return counted_of([tolerances.word_group(size, stddev) for size in sizes.values()])
    lead = previous.candidates.known_lead
    return counted_of(tolerances.groups_of(sizes, len(previous), stddev, lead))


def held_sums(shard: HistogramShard, counted: Counted) -> list[int]:
    """Returns the part of a hash range in h_G of each group, in units of 2^-40, exactly."""
    sums = [0] * len(counted.groups)
    if shard.tallies is None or shard.classes is None:
        return sums
    rows = counted.rows(shard.classes)
    inside = np.flatnonzero(rows >= 0)
    held = np.minimum(shard.tallies[inside], 1 << TALLY_BITS)
    own = sums_at(rows[inside], held, counted.numbers.size)
    for total, factor, place in zip(
        own.tolist(), counted.factors.tolist(), counted.places.tolist(), strict=True
    ):
        sums[place] += total * factor
    return sums


def estimates(
    counted: Counted, parts: Iterable[Sequence[int]], length: int, stddev: float, run_key: RunKey
) -> list[int | None]:
    """Returns the cell of X_G of each group, None for groups that are not counted.

    Args:
      counted: the groups.
      parts: `held_sums` of all hash ranges.
      length: k.
      stddev: s.
      run_key: the secret of the run.
    """
    held = [sum(column) for column in zip(*parts, strict=True)] or [0] * len(counted.groups)
    numbers = np.arange(len(counted.groups), dtype=np.uint64)
    bits = randomness.keyed_bits(run_key.sub_key("held noise", length), np.uint64(0), numbers)
    noise = randomness.normals(bits) * stddev
    cells: list[int | None] = []
    for group, own, drawn in zip(counted.groups, held, noise.tolist(), strict=True):
        cell = None
        if group.is_counted:
            exact = (group.candidates << TALLY_BITS) - own + round(drawn * 2**SUM_BITS)
            cell = exact // cell_units(stddev)
        cells.append(cell)
    return cells


def cell_units(stddev: float) -> int:
    """Returns the width of a cell of X, s/64, in units of 2^-40."""
    return rules.cell_units(stddev, 2**SUM_BITS)


def describe(
    groups: Sequence[Group], cells: Sequence[int | None], stddev: float
) -> list[GroupRule]:
    """Returns N_G of each group: from the upper edge of the cell of X_G, or U_G without a count."""
    described = []
    for group, number, cell in zip(groups, tolerances.all_candidates(groups), cells, strict=True):
        noisy = number
        left = number
        if cell is not None:
            noisy = (cell + 1) * cell_units(stddev) / 2**SUM_BITS
            left = estimate(noisy, stddev)
        described.append(
            GroupRule(
                lowest=min(group.factors),
                candidates=number,
                noise_stddev=0.0 if cell is None else stddev,
                noisy_unheld=noisy,
                unheld=left,
            )
        )
    return described


def estimate(noisy: float, stddev: float) -> float:
    """Returns max(s·φ(X/s)/Φ̄(X/s), s/4), never too low.

    >>> round(estimate(0.0, 1.0), 6), round(estimate(50.0, 1.0), 3), estimate(-30.0, 1.0)
    (0.797885, 50.02, 0.25)
    """
    ratio = math.sqrt(2 / math.pi) / float(scipy.special.erfcx(noisy / (stddev * math.sqrt(2))))
    return stddev * max(ratio * _ESTIMATE_MARGIN, LEAST_ESTIMATE)


def rule_for(
    plan: NgramsPlan,
    previous: GramSet = ROOT,
    run_key: RunKey | None = None,
    held: Iterable[Sequence[int]] = (),
) -> LengthRule:
    """Returns the rule of the length after S_{k−1}, by default of words; it depends on public numbers.

    Args:
      plan: the plan of the run.
      previous: S_{k−1}; at k = 1 the root, with known words if any are given.
      run_key: the secret of the run; counts of held candidates and the estimate of |V_k| draw from it.
      held: `held_sums` of all hash ranges ("adaptive" only); without them nothing is counted.
    """
    length = previous.length + 1
    held = list(held)
    if length == 1:
        rule = rule_of_sizes(plan, 1, released=1, sizes={})
        known = previous.candidates.known
        if known is None or run_key is None:
            return rule
        return _with_known_words(rule, plan, known.size, held, run_key)
    sizes = class_sizes(previous, plan.pruning, by_prediction=plan.is_adaptive)
    estimated_valid = None
    cells = None
    if plan.valid_count == "estimate" and run_key is not None and sizes:
        estimated_valid = max(
            1, estimate_valid_kgrams(previous, run_key.sub_key("estimate", length))
        )
    if held and run_key is not None:
        groups = counted_classes(previous, plan.held_stddev)
        cells = estimates(groups, held, length, plan.held_stddev, run_key)
    return rule_of_sizes(
        plan,
        length,
        released=len(previous),
        sizes=sizes,
        known_lead=previous.candidates.known_lead,
        estimated_valid=estimated_valid,
        cells=cells,
    )


def _with_known_words(
    rule: LengthRule, plan: NgramsPlan, known: int, held: Sequence[Sequence[int]], run_key: RunKey
) -> LengthRule:
    """Returns the rule of words with a second class, of known ones.

    Their held ones are counted twice: the first count says how many nobody holds, and the second how
    many spurious ones are tolerated, since the two must not share their noise.

    Args:
      rule: that of other words.
      plan: the plan of the run.
      known: how many words are known.
      held: `held_sums` of all hash ranges.
      run_key: the secret of the run.
    """
    group = tolerances.word_group(known, plan.held_stddev)
    stddev = plan.held_stddev
    stddev *= tolerances.WORD_NOISE
    twice = counted_of([group, dataclasses.replace(group, factors={}, candidates=0)])
    sums = [(own, own) for (own,) in held]
    unheld, of_held = estimates(twice, sums, 1, stddev, run_key)
    (described,) = describe([group], [unheld], stddev)
    words = 1.0
    if of_held is not None:
        # The lower edge of the cell of h + noise.
        noisy_held = -(of_held + 1) * cell_units(stddev) / 2**SUM_BITS
        words = tolerances.tolerated_words(noisy_held, stddev)
        described = dataclasses.replace(described, noisy_held=noisy_held)
    tolerated = plan.spurious_fraction * words
    (chance,) = tolerances.group_probabilities([group], [described.unheld], tolerated)
    rounds = adaptive.gram_rounds(tolerances.round_down(chance), adaptive.WORD_ROUNDS)
    own = ClassRule(number=KNOWN_CLASS, valid=known, rounds=rounds)
    return dataclasses.replace(
        rule,
        classes=(*rule.classes, own),
        groups=(dataclasses.replace(described, probability=chance),),
        by_prediction=True,
    )


def rule_of_sizes(
    plan: NgramsPlan,
    length: int,
    *,
    released: int,
    sizes: Mapping[int, int],
    known_lead: int = tolerances.KNOWN_LEAD,
    estimated_valid: int | None = None,
    cells: Sequence[int | None] | None = None,
) -> LengthRule:
    """Returns the thresholds and cuts of a length.

    Args:
      plan: the plan of the run.
      length: k.
      released: |S_{k−1}|.
      sizes: |V_c| of the classes that have candidates, by their numbers; with "one_round" of class 0
        alone. It is empty at k = 1, and if no n-gram is valid; then nothing more is released.
      known_lead: half octaves by which known candidates are predicted to be more frequent.
      estimated_valid: the estimate of |V_k|, which affects the threshold of "one_round" only.
      cells: the cell of X_G of each group; None where nothing was counted ("adaptive" only).
    """
    numbers = plan.lengths[length - 1]
    valid = sum(sizes.values())
    if length == 1 and plan.is_adaptive:
        words = ClassRule(rounds=numbers.word_rules)
        return LengthRule(length=1, noise_stddev=1.0, classes=(words,))
    if not plan.is_adaptive:
        threshold = numbers.threshold
        if valid:
            threshold = thresholds.spurious_threshold(
                noise_stddev=numbers.noise_stddev,
                spurious_fraction=plan.spurious_fraction,
                released=released,
                valid=estimated_valid or valid,
            )
        return length_rule(
            length=length,
            noise_stddev=numbers.noise_stddev,
            threshold=threshold,
            valid=None if length == 1 else valid,
            pruning=plan.pruning if length > 1 else "both",
        )
    groups = tolerances.groups_of(sizes, released, plan.held_stddev, known_lead)
    described = describe(groups, cells or [None] * len(groups), plan.held_stddev)
    unheld = [each.unheld for each in described]
    tolerated = plan.spurious_fraction * released
    chances = tolerances.probabilities(groups, unheld, tolerated)
    of_groups = tolerances.group_probabilities(groups, unheld, tolerated)
    return LengthRule(
        length=length,
        noise_stddev=1.0,
        classes=tuple(
            ClassRule(
                number=number,
                valid=sizes[number],
                rounds=adaptive.gram_rounds(chances[number], numbers.rounds),
            )
            for number in sorted(sizes)
        ),
        groups=tuple(
            dataclasses.replace(each, probability=chance)
            for each, chance in zip(described, of_groups, strict=True)
        ),
        by_prediction=True,
    )
