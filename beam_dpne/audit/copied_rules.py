"""Groups and rules of all copies of a world at a length with classes, and its draws.

Each copy has its own count, and so its own rule. Rules follow from probabilities of classes alone, so
that copies are settled together under a rule that has a class for each probability.
"""

import collections
import dataclasses
from collections.abc import Iterator
from typing import Protocol

import numpy as np

from beam_dpne.audit.copies import (
    NO_CLASS,
    World,
    candidate_classes,
    keys_of,
    known,
    named,
)
from beam_dpne.audit.variants import Variant, cells_without_noise, with_one_law
from beam_dpne.mechanism import randomness
from beam_dpne.mechanism.randomness import RunKey
from beam_dpne.mechanism.rules import ClassRule, LengthRule
from beam_dpne.ngrams import adaptive, held_counts, tolerances
from beam_dpne.ngrams.elements import GramSet, HistogramShard, SpuriousGrams, unpack_pairs
from beam_dpne.ngrams.members import Lists, Members, names_of
from beam_dpne.ngrams.plan import PrivacyPlan
from beam_dpne.ngrams.spurious import sample_members


class Copies(Protocol):
    """What rules of copies follow from; `copied_runs.CopySteps` says what each is."""

    plan: PrivacyPlan
    run_key: RunKey
    world: World
    runs: int
    variant: Variant
    is_ghost: bool
    own_tallies: list[tuple[np.ndarray, np.ndarray]]


@dataclasses.dataclass(frozen=True, eq=False)
class CopyGroups:
    """The groups of candidates in all copies of a length with classes.

    Attributes:
      classes: (runs, grams) int64, the class of each candidate, `NO_CLASS` where there is none.
      released: (runs,) int64, |S_{k−1}| of each copy.
      numbers: (runs,) int64, the place of each copy's groups in `groups`.
      groups: different groups.
    """

    classes: np.ndarray
    released: np.ndarray
    numbers: np.ndarray
    groups: list[held_counts.Counted]

    @classmethod
    def of(cls, steps: Copies, length: int, previous: GramSet) -> "CopyGroups":
        """Returns the groups that follow from S_{k−1} of each copy."""
        classes, released = candidate_classes(previous, length, steps.world, steps.runs)
        rows = np.column_stack((released, np.sort(classes, axis=1)))
        same, numbers = np.unique(rows, axis=0, return_inverse=True)
        groups = []
        for size, *own in same.tolist():
            sizes = collections.Counter(own)
            sizes.pop(NO_CLASS, None)
            each = tolerances.groups_of(sizes, size, steps.plan.held_stddev)
            groups.append(held_counts.counted_of(each))
        return cls(classes, released, numbers.reshape(-1), groups)

    def counted(self) -> Iterator[tuple[np.ndarray, held_counts.Counted]]:
        """Yields copies that have the same counted groups, and these; all without any come first."""
        is_counted = np.array([each.numbers.size > 0 for each in self.groups])
        without = np.flatnonzero(~is_counted[self.numbers])
        if without.size:
            yield without, held_counts.counted_of([])
        for number in np.flatnonzero(is_counted).tolist():
            yield np.flatnonzero(self.numbers == number), self.groups[number]


@dataclasses.dataclass(frozen=True, eq=False)
class CopyRules:
    """The rules of all copies of a length with classes.

    Attributes:
      world: of which there are copies.
      length: k.
      valid: (runs, grams) int64, the class of each candidate, `NO_CLASS` where there is none.
      renamed: (runs, numbers) int16, the place of the probability of each class of a copy.
      lowest: the number of the first class in `renamed`.
      rule: the rule of all copies, with a class for each probability.
      counts: as of `Outcome`.
      shifts: (runs, groups) float64, by how many s the user moves each count.
      noise: (runs, groups) float64, what is added to each count, in units of s.
    """

    world: World
    length: int
    valid: np.ndarray
    renamed: np.ndarray
    lowest: int
    rule: LengthRule
    counts: np.ndarray
    shifts: np.ndarray
    noise: np.ndarray

    @classmethod
    def of(
        cls,
        steps: Copies,
        groups_of_copies: CopyGroups,
        length: int,
        histogram: list[HistogramShard],
        previous: GramSet,
    ) -> "CopyRules":
        """Returns the rules that follow from the count of each copy."""
        plan, world, runs = steps.plan, steps.world, steps.runs
        valid, released = groups_of_copies.classes, groups_of_copies.released
        inside = valid != NO_CLASS
        lowest = int(valid[inside].min(initial=0))
        width = int(valid[inside].max(initial=0)) - lowest + 1
        tallies, own_tallies = np.zeros(valid.shape, np.int64), np.zeros(valid.shape, np.int64)
        for shard in histogram:
            if shard.keys.size:
                tallies[named(shard.keys, length, previous, world)] = known(shard.tallies)
        for keys, sent in steps.own_tallies:
            own_tallies[named(keys, length, previous, world)] = sent
        # The sums of the world that is not played: with the user instead of without, or the reverse.
        others = tallies + (own_tallies if steps.is_ghost else -own_tallies)
        chances = np.zeros((runs, width))
        counts, shifts = (np.zeros((runs, tolerances.MOST_COUNTED)) for _ in range(2))
        stddev = plan.held_stddev
        # Copies without counts that have the same groups have the same probabilities.
        uncounted: dict[int, np.ndarray] = {}
        for copy in np.flatnonzero(inside.any(axis=1)).tolist():
            same = int(groups_of_copies.numbers[copy])
            if same in uncounted:
                chances[copy] = uncounted[same]
                continue
            counted = groups_of_copies.groups[same]
            groups, classes = counted.groups, valid[copy][inside[copy]]
            sums = [
                _held(length, classes, each[copy][inside[copy]], counted)
                for each in (tallies, others)
            ]
            cells = held_counts.estimates(
                counted, sums[:1], length, stddev, steps.run_key, copy=copy
            )
            if steps.variant.quiet_counts:
                cells = cells_without_noise(groups, sums[0], stddev)
            described = held_counts.describe(groups, cells, stddev)
            first = slice(0, min(len(groups), tolerances.MOST_COUNTED))
            counts[copy, first] = [
                each.noisy_unheld if each.noise_stddev else 0.0 for each in described[first]
            ]
            # X falls by what is held.
            moved = (sums[1][place] - sums[0][place] for place in range(first.stop))
            sign = -1.0 if steps.is_ghost else 1.0
            shifts[copy, first] = [sign * each / 2**held_counts.SUM_BITS / stddev for each in moved]
            tolerated = plan.spurious_fraction * int(released[copy])
            own = tolerances.probabilities(groups, [each.unheld for each in described], tolerated)
            for number, chance in own.items():
                chances[copy, number - lowest] = chance
            if not counted.numbers.size:
                uncounted[same] = chances[copy]
        levels, places = np.unique(chances, return_inverse=True)
        rounds = plan.lengths[length - 1].rounds
        # A probability of 0 stands for classes without candidates.
        rule = LengthRule(
            length=length,
            noise_stddev=1.0,
            classes=tuple(
                ClassRule(number=place, valid=0, rounds=adaptive.gram_rounds(level, rounds))
                for place, level in enumerate(levels.tolist())
                if level
            ),
            by_prediction=True,
            pruning=plan.pruning,
        )
        renamed = places.reshape(chances.shape).astype(np.int16)
        numbers = np.tile(np.arange(tolerances.MOST_COUNTED, dtype=np.uint64), runs)
        of_copies = np.repeat(np.arange(runs, dtype=np.uint64), tolerances.MOST_COUNTED)
        bits = randomness.keyed_bits(
            steps.run_key.sub_key("held noise", length), of_copies, numbers
        )
        noise = randomness.normals(bits).reshape(counts.shape)
        return cls(world, length, valid, renamed, lowest, rule, counts, shifts, noise)

    def classes_of(self, keys: np.ndarray, classes: np.ndarray, previous: GramSet) -> np.ndarray:
        """Returns the places of the probabilities of n-grams with some classes: (m,) int16."""
        copies, _ = named(keys, self.length, previous, self.world)
        return self.renamed[copies, classes - self.lowest]

    def draw(self, steps: Copies, previous: GramSet) -> SpuriousGrams:
        """Draws each candidate of each copy with its probability, with round and cell."""
        is_drawn = steps.world.crowd != "everything" and not steps.variant.no_spurious
        inside = (self.valid != NO_CLASS) & is_drawn
        copies, grams = np.nonzero(inside)
        places = self.renamed[copies, self.valid[inside] - self.lowest].astype(np.int64)
        keys = keys_of(copies, grams, self.length, previous, self.world)
        rule = self.rule
        if steps.variant.one_law:
            rule = with_one_law(rule)
        drawn = sample_members(_as_members(keys, places), rule=rule, run_key=steps.run_key)
        return dataclasses.replace(drawn, rule=self.rule)


def _as_members(keys: np.ndarray, numbers: np.ndarray) -> Members:
    """Returns candidates as cells of one candidate each, by the numbers of their classes."""
    first, second = unpack_pairs(keys)
    # Each candidate gets a middle that no other one has, so that its two lists have one row each.
    places, one = np.arange(keys.size), np.ones(keys.size, np.int32)
    left, right = (
        Lists(names_of(places, bins), one) for bins in (numbers, np.zeros(keys.size, int))
    )
    return Members(left, right, first, second)


def _held(
    length: int, classes: np.ndarray, tallies: np.ndarray, counted: held_counts.Counted
) -> list[int]:
    """Returns h of each group of one copy."""
    shard = HistogramShard(
        length=length, keys=classes, weights=classes, classes=classes, tallies=tallies
    )
    return held_counts.held_sums(shard, counted)
