"""Mechanisms with planted mistakes, to see that an attack notices them."""

import dataclasses
import itertools
from collections.abc import Sequence

import numpy as np
from scipy import special

from beam_dpne.audit.copies import known
from beam_dpne.elements.arrays import places_among
from beam_dpne.elements.batches import UserBatch
from beam_dpne.mechanism.randomness import RunKey
from beam_dpne.mechanism.rules import UNITS, ClassRule, LengthRule, RoundRule
from beam_dpne.ngrams import held_counts, tolerances
from beam_dpne.ngrams.elements import HistogramShard, SpuriousGrams


@dataclasses.dataclass(frozen=True, kw_only=True)
class Variant:
    """The mechanism that is run; the defaults are right, every other value is a planted mistake.

    Attributes:
      noise_factor: what the noise of held grams is multiplied by.
      same_noise: every round of a length has the noise of the first.
      looks_again: grams that were closed are judged, and spent on, in later rounds.
      gaussian_tail: the evidence of a spurious gram of a later round is drawn as that of the first:
        from a Gaussian's tail of the probability of being found.
      unreduced: what a user has left is not reduced by what it sends.
      one_word: words have the threshold for users with one word.
      follows_observed: what users spend follows how many grams stand for anybody, a private number,
        instead of what they hold themselves. Each user's own budget is kept.
      no_spurious: n-grams that nobody has are never released.
      quiet_counts: the counts of held candidates have no noise.
      one_law: n-grams that nobody has are drawn by one law for all classes, that of the best one.
      keeps_held: drawn n-grams that somebody has are released as well.
      keeps_unweighted: drawn n-grams that somebody has are released as well if nobody gave them weight.
      no_threshold: the last round of words has the threshold 0.
    """

    noise_factor: float = 1.0
    same_noise: bool = False
    looks_again: bool = False
    gaussian_tail: bool = False
    unreduced: bool = False
    one_word: bool = False
    follows_observed: bool = False
    no_spurious: bool = False
    quiet_counts: bool = False
    one_law: bool = False
    keeps_held: bool = False
    keeps_unweighted: bool = False
    no_threshold: bool = False


RIGHT = Variant()


class SameNoise(RunKey):
    """Gives every round of a length the noise of the first."""

    def sub_key(self, purpose: str, length: int = 0, round_number: int = 0) -> bytes:
        """Returns the sub-key of a purpose, for noise that of the first round."""
        return super().sub_key(purpose, length, 1 if purpose == "noise" else round_number)


def cells_without_noise(
    groups: Sequence[tolerances.Group], held: Sequence[int], stddev: float
) -> list[int | None]:
    """Returns the cell of U − h of each group."""
    width = held_counts.cell_units(stddev)
    return [
        ((group.candidates << tolerances.TALLY_BITS) - own) // width if group.is_counted else None
        for group, own in zip(groups, held, strict=True)
    ]


def with_one_law(rule: LengthRule) -> LengthRule:
    """Gives all classes the law of the largest probability."""
    law = rule.classes[-1].rounds
    classes = (dataclasses.replace(each, rounds=law) for each in rule.classes)
    return dataclasses.replace(rule, classes=tuple(classes))


def with_held(decided: HistogramShard, shard: HistogramShard, variant: Variant) -> HistogramShard:
    """Keeps drawn n-grams that somebody has, or those of them to which nobody gave weight."""
    rows = places_among(shard.spurious_keys, shard.keys)
    kept = rows >= 0
    if variant.keeps_unweighted:
        kept[kept] = shard.weights[rows[kept]] == 0
    columns = ("spurious_keys", "spurious_cells", "spurious_rounds", "spurious_classes")
    return dataclasses.replace(
        decided,
        **{
            name: np.concatenate((getattr(decided, name), getattr(shard, name)[kept]))
            for name in columns
        },
    )


def with_rounds(rule: LengthRule, rounds: tuple[RoundRule, ...]) -> LengthRule:
    """Gives other rules to the rounds of a length with one class."""
    (only,) = rule.classes
    return dataclasses.replace(rule, classes=(dataclasses.replace(only, rounds=rounds),))


def without_cuts(own: ClassRule) -> ClassRule:
    """Leaves every n-gram open until the last round."""
    rounds = [dataclasses.replace(each, cut_cell=-(2**30)) for each in own.rounds[:-1]]
    return dataclasses.replace(own, rounds=(*rounds, own.rounds[-1]))


def with_gaussian_tails(drawn: SpuriousGrams) -> SpuriousGrams:
    """Draws the evidence of grams of later rounds again, from the tail of a Gaussian."""
    assert drawn.rule is not None
    rng = np.random.default_rng(drawn.keys.size)
    cells = drawn.cells.copy()
    each_round = itertools.product(drawn.rule.classes, range(2, len(drawn.rule.rounds) + 1))
    for of_class, number in each_round:
        own = of_class.rounds[number - 1]
        inside = (drawn.rounds == number) & (drawn.classes == of_class.number)
        if inside.any():
            draws = 1 - rng.random(int(np.count_nonzero(inside)))
            evidence = own.evidence_stddev * -special.ndtri(own.null_probability * draws)
            places = np.floor((evidence - own.threshold) * UNITS / own.cell_units)
            cells[inside] = np.maximum(0, places)
    return dataclasses.replace(drawn, cells=cells)


def keep_back(batch: UserBatch, counts: np.ndarray) -> UserBatch:
    """Leaves users a part of what they have, over the number of grams that stand for anybody."""
    present = counts[batch.users[:, 0].astype(int)]
    return dataclasses.replace(batch, left=known(batch.left) // np.maximum(present, 1))


def give_back(batch: UserBatch, part: UserBatch, whole: UserBatch) -> UserBatch:
    """Gives users what was kept back; some of them may have no open grams any more."""
    rows = np.searchsorted(_numbers(whole), _numbers(batch))
    return dataclasses.replace(
        batch, left=known(batch.left) + (known(whole.left) - known(part.left))[rows]
    )


def left_whole(batch: UserBatch, allotment: int) -> UserBatch:
    """Gives every user the whole allotment again."""
    return dataclasses.replace(batch, left=np.full(len(batch.users), allotment))


def _numbers(batch: UserBatch) -> np.ndarray:
    return (batch.users[:, 0] << np.uint64(32)) | batch.users[:, 1]
