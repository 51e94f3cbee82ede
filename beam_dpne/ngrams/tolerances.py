"""How the tolerated spurious n-grams of a length are divided among classes of candidates.

Classes are sorted by a public prediction λ_c = 2^(c/2) (see `valid`). The better a class, the larger
the probability p_c with which each of its candidates may be released without any weight; the sum over
all candidates stays at η·|S_{k−1}|, the number of spurious n-grams that is tolerated in the mean. From
the best class down, classes form *groups*; each group G has a probability P_G, and p_c = ω_c·P_G with
ω_c = λ_c over the largest λ of the group. Everything here is a function of sizes of released sets, of
|V_c|, and of η.
"""

import dataclasses
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from fractions import Fraction

import numpy as np

from beam_dpne.mechanism.rules import KNOWN_CLASS

# Scores have two bins an octave. Those up to 0.01, also negative ones, are in the lowest bin, and those
# from 2^64 on in the highest.
BINS_PER_OCTAVE = 2
LOWEST_BIN = -13
HIGHEST_BIN = 128
# Predictions of the best candidates, at most this part of |S_{k−1}|, count as equal.
CAP_SHARE = 0.25
# Group i ends with the class with which |S_{k−1}|·2^i candidates are reached.
GROUP_RATIO = 2
# The largest probability of a candidate without weight; it keeps every last threshold positive.
LARGEST_PROBABILITY = 0.35
# Factors ω are integers in units of 2^-16, and at least one unit.
FACTOR_BITS = 16
# Probabilities are rounded down to this many steps an octave, so that few rules have to be computed.
STEPS_PER_OCTAVE = 16
# The noise of counts of held candidates is s = HELD_NOISE/μ; a user pays at most this part of the
# remaining budget for them. What users send is in units of 2^-24.
HELD_NOISE = 10.0
COUNT_COST = 0.03
TALLY_BITS = 24
# Groups are counted that have at least LEAST_CANDIDATES·s candidates, weighted by ω, and that lie among
# the best COUNTED_CANDIDATES·|S_{k−1}| candidates.
LEAST_CANDIDATES = 3.0
COUNTED_CANDIDATES = 20
# An estimate of unheld candidates is at least this part of s.
LEAST_ESTIMATE = 0.25
# A known candidate is predicted to be 2^(KNOWN_LEAD/2) times as frequent as a new one of its class, as
# long as shorter n-grams do not say otherwise, and 2^(LARGEST_LEAD/2) times at most (`known_lead`).
KNOWN_LEAD = 8
LARGEST_LEAD = 12
# Known words are counted twice, each time with √2·s, so that both cost what one count with s would.
WORD_NOISE = 1.4142136
# The second count decides how many spurious words are tolerated. So many standard deviations of its
# noise are subtracted from it first, so that noise alone seldom makes the number larger; one word is
# tolerated in any case.
WORD_MARGIN = 2.0
# Borders |S_{k−1}|·2^i up to COUNTED_CANDIDATES, and one group that ends before a border, of each of
# the two families.
MOST_COUNTED = 6
# Known words have two numbers.
COUNTS_OF_WORDS = 2
_SHARE_BITS = 64
# Bins j and j + 1 meet at 2^((j + ½)/2). The two roots are written out, since borders must be the same
# on every machine.
_BORDER_ROOTS = (1.1892071150027212, 1.6817928305074292)  # 2^¼ and 2^¾, rounded up
_BORDERS = np.array(
    [
        math.ldexp(_BORDER_ROOTS[place % BINS_PER_OCTAVE], place // BINS_PER_OCTAVE)
        for place in range(LOWEST_BIN, HIGHEST_BIN)
    ]
)
# Products and quotients of floating point are right to a relative 2^-52 each.
_MARGIN = 1 - 1e-12


def bins_of(scores: np.ndarray) -> np.ndarray:
    """Returns the bin of each score, by exact comparisons with fixed borders: (n,) int16.

    >>> bins_of(np.array([-3.0, 1.0, 1.18, 1.19, 4.0])).tolist()
    [-13, 0, 0, 1, 4]
    """
    return (LOWEST_BIN + np.searchsorted(_BORDERS, scores, "right")).astype(np.int16)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Group:
    """Neighbouring classes of candidates, of which one probability is known.

    Attributes:
      factors: ω_c of each class by its number, in units of 2^-16; the best class has 2^16.
      candidates: U_G = Σ ω_c·|V_c|, in units of 2^-16, exact.
      share: Σ λ_c·|V_c| in some unit, the same for all groups of a length.
      is_counted: whether a noisy count says how many of its candidates somebody holds.
    """

    factors: Mapping[int, int]
    candidates: int
    share: int
    is_counted: bool = False


def groups_of(
    sizes: Mapping[int, int],
    released: int,
    held_stddev: float = math.inf,
    lead: int = KNOWN_LEAD,
) -> list[Group]:
    """Returns the groups of the classes of a length, the best one first.

    Args:
      sizes: |V_c| ≥ 1 by the number of the class.
      released: |S_{k−1}|.
      held_stddev: s, the noise of counts of held candidates; by default nothing is counted.
      lead: half octaves by which known candidates are predicted to be more frequent.

    >>> [dict(group.factors) for group in groups_of({9: 2, 7: 5, 6: 40, 2: 400}, 10)]
    [{9: 65536, 7: 32768, 6: 23170}, {2: 65536}]
    """
    numbers = sorted(sizes, reverse=True)
    heights = {number: prediction(number, lead) for number in numbers}
    cap = _cap(sizes, heights, released)
    # Half octaves by which a class is below the cap; classes above it count as the cap.
    below = {number: max(0, cap - height) for number, height in heights.items()}
    least = LEAST_CANDIDATES * held_stddev * 2**FACTOR_BITS
    known = [number for number in numbers if number > KNOWN_CLASS // 2]
    groups = []
    for family in (known, numbers[len(known) :]):
        groups += _of_family(family, sizes, released, below, least)
    return groups


def _of_family(
    numbers: Sequence[int],
    sizes: Mapping[int, int],
    released: int,
    below: Mapping[int, int],
    least: float,
) -> list[Group]:
    """Returns the groups of known classes, or of the others, by falling numbers."""
    groups = []
    group = []
    reached = 0
    border = released
    for number in numbers:
        group.append(number)
        reached += sizes[number]
        if reached >= border or number == numbers[-1]:
            made = _group(group, sizes, below)
            is_near = reached <= COUNTED_CANDIDATES * released
            is_counted = is_near and made.candidates >= least
            groups.append(dataclasses.replace(made, is_counted=is_counted))
            group = []
        while reached >= border:
            border *= GROUP_RATIO
    return groups


def prediction(number: int, lead: int = KNOWN_LEAD) -> int:
    """Returns log₂ λ_c of a class in half octaves: its number, for known candidates with the lead."""
    return number - KNOWN_CLASS + lead if number > KNOWN_CLASS // 2 else number


def known_lead(sizes: Mapping[int, int], released: Mapping[int, int]) -> int:
    """Returns the lead of the known candidates of a length, by what was released of the one before.

    Of classes c that have known and new candidates, V_c and W_c, of which R_c and Q_c were released, it
    is 2·log₂ of the ratio of Mantel and Haenszel,

        (16 + Σ R_c·W_c/(V_c + W_c)) / (1 + Σ Q_c·V_c/(V_c + W_c)),

    rounded to half octaves from 0 to LARGEST_LEAD. Where few were released it is about KNOWN_LEAD. It
    is computed in fractions, so that it is the same on every machine.

    Args:
      sizes: |V_c| of the classes of the shorter n-grams.
      released: how many of each class were released.

    >>> known_lead({3: 1000, KNOWN_CLASS + 3: 100}, {3: 50, KNOWN_CLASS + 3: 50})
    7
    """
    of_known = Fraction(2) ** (KNOWN_LEAD // 2)
    of_new = Fraction(1)
    for number, new in sizes.items():
        known = sizes.get(number + KNOWN_CLASS, 0)
        of_known += Fraction(released.get(number + KNOWN_CLASS, 0) * new, known + new)
        of_new += Fraction(released.get(number, 0) * known, known + new)
    fourth_power = (of_known / of_new) ** 4
    return sum(fourth_power >= Fraction(2) ** (2 * lead - 1) for lead in range(1, LARGEST_LEAD + 1))


def _cap(sizes: Mapping[int, int], heights: Mapping[int, int], released: int) -> int:
    """Returns the prediction at and above which all candidates count as equally likely.

    It is the lowest one at and above which at most CAP_SHARE·|S_{k−1}| candidates lie, or the highest
    one if there are more of that alone.
    """
    of_prediction = Counter[int]()
    for number, size in sizes.items():
        of_prediction[heights[number]] += size
    cap = max(of_prediction, default=0)
    reached = 0
    for predicted in sorted(of_prediction, reverse=True):
        reached += of_prediction[predicted]
        if reached > CAP_SHARE * released:
            break
        cap = predicted
    return cap


def word_group(known: int, held_stddev: float = math.inf) -> Group:
    """Returns the group of the known words, which is counted if they are many.

    Args:
      known: how many there are, at least 1.
      held_stddev: s; each of the two counts has the noise √2·s.
    """
    is_counted = known >= LEAST_CANDIDATES * WORD_NOISE * held_stddev
    return dataclasses.replace(
        _group([KNOWN_CLASS], {KNOWN_CLASS: known}, {KNOWN_CLASS: 0}), is_counted=is_counted
    )


def tolerated_words(noisy_held: float, stddev: float) -> float:
    """Returns how many held known words count, of each of which η spurious ones are tolerated.

    It must not follow from the count of unheld ones: then it would be large where that is small, and
    the mean of their ratio would have no bound.

    Args:
      noisy_held: the second noisy count of held known words.
      stddev: the standard deviation of its noise.
    """
    return max(1.0, noisy_held - WORD_MARGIN * stddev)


def _group(numbers: Sequence[int], sizes: Mapping[int, int], below: Mapping[int, int]) -> Group:
    best = min(below[number] for number in numbers)
    factors = {number: _power(below[number] - best, FACTOR_BITS) for number in numbers}
    return Group(
        factors=factors,
        candidates=sum(factors[number] * sizes[number] for number in numbers),
        share=sum(_power(below[number], _SHARE_BITS) * sizes[number] for number in numbers),
    )


def _power(halves: int, bits: int) -> int:
    """Returns 2^(−halves/2) in units of 2^-bits, rounded down, at least one unit."""
    return math.isqrt(1 << max(0, 2 * bits - halves))


def probabilities(
    groups: Sequence[Group], unheld: Sequence[float], tolerated: float
) -> dict[int, float]:
    """Returns p_c of each class by its number, ω_c·P_G rounded down; see `group_probabilities`."""
    own = group_probabilities(groups, unheld, tolerated)
    return {
        number: round_down(math.ldexp(chance * factor, -FACTOR_BITS))
        for group, chance in zip(groups, own, strict=True)
        for number, factor in group.factors.items()
    }


def group_probabilities(
    groups: Sequence[Group], unheld: Sequence[float], tolerated: float
) -> list[float]:
    """Returns P_G of each group.

    Each group gets its share of what is left, P_G·N_G at most, and hands on what the bound on P_G
    leaves: Σ_G P_G·N_G ≤ tolerated.

    Args:
      groups: the groups of the length, the best one first.
      unheld: N_G of each group: how many of its candidates nobody holds, weighted by ω.
      tolerated: η·|S_{k−1}|.
    """
    chances: list[float] = []
    # What the groups from this one on may release, and their shares together.
    rest = tolerated * _MARGIN
    left = sum(group.share for group in groups)
    for group, count in zip(groups, unheld, strict=True):
        later = left - group.share
        chance = rest * (group.share / left) / count
        if chance > LARGEST_PROBABILITY:
            chance = LARGEST_PROBABILITY
            rest = max(rest * (later / left), rest - chance * count)
        else:
            # As a product: a difference would lose the last digits of a small rest.
            rest *= later / left
        left = later
        chances.append(chance)
    return chances


def all_candidates(groups: Sequence[Group]) -> list[float]:
    """Returns U_G of each group: N_G if nothing is known of how many somebody holds."""
    return [math.nextafter(group.candidates / 2**FACTOR_BITS, math.inf) for group in groups]


def round_down(probability: float) -> float:
    """Rounds a probability down to a grid with 16 steps an octave.

    >>> round_down(0.35), round_down(1 / 3), round_down(0.25)
    (0.34375, 0.328125, 0.25)
    """
    mantissa, exponent = math.frexp(probability)
    steps = 2 * STEPS_PER_OCTAVE
    return math.ldexp(math.floor(mantissa * steps) / steps, exponent)
