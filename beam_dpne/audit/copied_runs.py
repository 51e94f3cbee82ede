"""Runs of n-grams on worst-case pairs of databases: many runs at once, by the product's own loop.

A corpus is made of many copies of a small one: users, documents and words of copy 7 have nothing to do
with those of copy 8. Users, sums, noise and decisions of the copies then run through
`in_memory.release_length` and its kernels together, as one run does. A run of one copy alone would
differ in three things only, since they follow |S_{k−1}| and |V_c|: the groups whose held candidates are
counted, its rules, and its draws of spurious n-grams. So `CopySteps` takes the groups and rules of each
copy, and draws from the V_k of each (`copied_rules`). That one copy is then a run of
`in_memory.release_ngrams`, bit for bit, is a test of its own.

In the one world a user, the first of each copy, holds every sequence of T words; in the other it does
not take part. The other users are users like any other: what they send follows the released past. A
crowd is made up as sums that have no more to do with the user than those of other databases.

A `Variant` of `variants` is the mechanism with a planted mistake.
"""

import collections
import dataclasses
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from beam_dpne.audit.copied_rules import CopyGroups, CopyRules
from beam_dpne.audit.copies import (
    NO_CLASS,
    USER,
    World,
    candidate_classes,
    copies_as_middles,
    copies_of_grams,
    known,
    named,
    positions,
    take_copies,
    words_of,
)
from beam_dpne.audit.crowds import crowd_sums, open_grams
from beam_dpne.audit.variants import (
    RIGHT,
    SameNoise,
    Variant,
    give_back,
    keep_back,
    left_whole,
    with_gaussian_tails,
    with_held,
    with_rounds,
    without_cuts,
)
from beam_dpne.elements.arrays import hash_words
from beam_dpne.elements.batches import UserBatch
from beam_dpne.mechanism import randomness
from beam_dpne.mechanism.randomness import RunKey
from beam_dpne.mechanism.rules import UNITS, LengthRule
from beam_dpne.ngrams import adaptive, held_counts, tolerances
from beam_dpne.ngrams.classes import class_numbers
from beam_dpne.ngrams.elements import (
    Contributions,
    GramSet,
    HistogramShard,
    PresentGrams,
    SpuriousGrams,
    pack_pairs,
    unpack_pairs,
)
from beam_dpne.ngrams.in_memory import ArraySteps, release_length
from beam_dpne.ngrams.spurious import sample_spurious


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class Outcome:
    """What came of one length in many runs.

    Attributes:
      found: (runs, grams) int8, the round in which a gram was found; 0: it was not.
      cells: (runs, grams) int64, of that round.
      valid: (runs, grams) bool, V_k.
      classes: (runs, grams) int64, the class of each candidate.
      counts: (runs, groups) float64, X of each group, 0 if it was not counted.
      released: the released sets of which the copies' sets are parts.
    """

    found: np.ndarray
    cells: np.ndarray
    valid: np.ndarray
    classes: np.ndarray
    counts: np.ndarray
    released: list[GramSet]


class Run(NamedTuple):
    """What came of many runs.

    Attributes:
      outcomes: of each private length.
      log_ratio: (runs,), of the noisy vectors of all rounds and counts, with the user against without.
      moved: (runs,) float64, the sum of the squares by which the user moves all of them, in standard
        deviations.
      left: (runs,) int64, what the user has left, in units of 2^-56.
    """

    outcomes: list[Outcome]
    log_ratio: np.ndarray
    moved: np.ndarray
    left: np.ndarray


@dataclasses.dataclass(kw_only=True)
class CopySteps(ArraySteps):
    """The steps of the product on copies, with a planted mistake or none.

    Attributes:
      world: of which there are copies.
      runs: how many.
      variant: the mechanism.
      is_ghost: the user sees and spends, but its weights are set to 0: the world without it, with
        noise at each gram that it would hold, as in the proof.
      copies: those that are settled.
      own_rule: the rule of one of them; the others have the same numbers of candidates in each class.
      previous: S_{k−1} of all copies.
      groups: the groups of each copy at the length.
      counts: of the length, as of `Outcome`.
      own_tallies: keys and tallies of what the users of all copies send to the count of the length.
      log_ratio: as of `Run`.
      moved: as of `Run`.
      left: as of `Run`.
      decided: the shard after the last round.
    """

    world: World
    runs: int
    variant: Variant = RIGHT
    is_ghost: bool = False
    copies: np.ndarray = dataclasses.field(init=False)
    own_rule: LengthRule | None = None
    previous: GramSet | None = None
    groups: CopyGroups | None = None
    counts: np.ndarray = dataclasses.field(init=False)
    own_tallies: list[tuple[np.ndarray, np.ndarray]] = dataclasses.field(default_factory=list)
    log_ratio: np.ndarray = dataclasses.field(init=False)
    moved: np.ndarray = dataclasses.field(init=False)
    left: np.ndarray = dataclasses.field(init=False)
    decided: HistogramShard | None = None

    def __post_init__(self):
        self.copies = np.arange(self.runs)
        self.counts = np.zeros((self.runs, tolerances.MOST_COUNTED))
        self.log_ratio = np.zeros(self.runs)
        self.moved = np.zeros(self.runs)
        self.left = np.full(self.runs, self.plan.allotment)

    def rule(self, length, previous):
        """Returns the rule of one copy."""
        assert self.own_rule is not None
        rule = self.own_rule
        if self.variant.no_threshold and length == 1:
            last = dataclasses.replace(rule.rounds[-1], threshold_units=0)
            return with_rounds(rule, (*rule.rounds[:-1], last))
        if not self.variant.one_word:
            return rule
        rounds = adaptive.vocabulary_rounds(
            allotment=self.plan.allotment, delta=self.plan.vocabulary_delta, max_contributions=1
        )
        return with_rounds(rule, rounds)

    def draw_spurious(self, length, previous):
        """Draws from the V_k of the copies that are settled, which are no more than all words."""
        rule = self.rule(length, previous)
        if self.world.crowd == "everything" or self.variant.no_spurious:
            # The crowd has every valid n-gram, and draws of n-grams that somebody has are dropped.
            none = np.zeros(0, np.int64)
            return SpuriousGrams(
                length=length,
                keys=none,
                cells=none,
                rounds=none.astype(np.int8),
                classes=none.astype(np.int16),
                rule=rule,
            )
        key = self.run_key.bound_to(f"{length} {self.copies[0]}")
        some, rows = self._of_these_copies(length, previous)
        # Of pairs of a copy's words, V_2 is the same under both rules of pruning.
        drawn = sample_spurious(some, rule=dataclasses.replace(rule, pruning="both"), run_key=key)
        first, second = unpack_pairs(drawn.keys)
        drawn = dataclasses.replace(drawn, keys=pack_pairs(rows[first], rows[second]), rule=rule)
        return with_gaussian_tails(drawn) if self.variant.gaussian_tail else drawn

    def _of_these_copies(self, length: int, previous: GramSet) -> tuple[GramSet, np.ndarray]:
        """Returns a set whose V_k is that of the copies, and the rows of its grams in S_{k−1}."""
        rows = np.flatnonzero(np.isin(copies_of_grams(previous, self.world), self.copies))
        if length == 2:
            return copies_as_middles(previous, rows, self.world)
        return dataclasses.replace(
            previous,
            keys=previous.keys[rows],
            scores=previous.scores[rows],
            suffix_bins=known(previous.suffix_bins)[rows],
        ), rows

    def count_held(self, length, histogram, previous):
        """Counts in each copy apart, and gives the n-grams of all copies classes by probability.

        Rules follow from p_c alone, so copies whose classes differ are settled together.
        """
        assert self.groups is not None
        rules = CopyRules.of(self, self.groups, length, histogram, previous)
        drawn = rules.draw(self, previous)
        if self.variant.gaussian_tail:
            drawn = with_gaussian_tails(drawn)
        self.counts = rules.counts
        # The noise of a count is one more coordinate of what is released.
        copies = np.repeat(np.arange(self.runs), tolerances.MOST_COUNTED)
        self._notes(copies, rules.shifts.reshape(-1), rules.noise.reshape(-1))
        return [
            held_counts.meet_spurious(
                dataclasses.replace(
                    shard,
                    classes=rules.classes_of(shard.keys, known(shard.classes), previous)
                    if shard.keys.size
                    else None,
                ),
                drawn,
                histogram_ranges=self.histogram_ranges,
            )
            for shard in histogram
        ]

    def add_up(self, length, round_number, sent, drawn, still_open):
        """Adds the sums of the crowd to those of the users."""
        grams = np.arange(0)
        if self.world.crowd == "near" or self.world.is_crowded(length):
            # In later rounds users send to n-grams that are still open, and to no others.
            size = self.runs * self.world.words
            grams = np.arange(size) if still_open is None else open_grams(still_open)
        if self.world.crowd == "near":
            grams = grams[grams % self.world.words > 0]
        if grams.size:
            rule = self.rule(length, None)
            crowd = crowd_sums(self.world, self.runs, grams, rule, round_number)
            if crowd.words is not None:
                hashes = hash_words(self.run_key.sub_key("word"), crowd.words)
                crowd = dataclasses.replace(crowd, word_hashes=hashes)
            if rule.by_prediction and still_open is None and self.previous is not None:
                numbers = class_numbers(self.previous, self.plan.pruning, crowd.keys)
                crowd = dataclasses.replace(
                    crowd, classes=numbers, tallies=np.zeros(numbers.size, np.int64)
                )
            sent = [*sent, crowd]
        return super().add_up(length, round_number, sent, drawn, still_open)

    def spend(self, length, round_number, users, previous, present):
        """Spends users' budgets, with the mistake; notes what the user has left."""
        whole = users
        if self.variant.follows_observed and present:
            counts = np.bincount(copies_of_grams(present[-1], self.world), minlength=self.runs)
            users = [keep_back(batch, counts) for batch in users]
        sent, after = self._spend_by_groups(length, round_number, users, previous, present)
        if self.variant.follows_observed and present:
            after = [give_back(batch, users[0], whole[0]) for batch in after]
        if self.variant.unreduced:
            after = [left_whole(batch, self.plan.allotment) for batch in after]
        for batch in after:
            is_user = batch.users[:, 1] == USER
            self.left[batch.users[is_user, 0].astype(int)] = known(batch.left)[is_user]
        return [self._weighed(own, round_number) for own in sent], after

    def _spend_by_groups(self, length, round_number, users, previous, present):
        """Lets users send to the groups that are counted in their copy, and not in all together."""
        if round_number > 1 or previous is None or not self.plan.strategy_value.has_classes:
            return super().spend(length, round_number, users, previous, present)
        self.groups = CopyGroups.of(self, length, previous)
        sent, after = [], []
        for copies, counted in self.groups.counted():
            some = users
            if copies.size < self.runs:
                some = [take_copies(batch, copies) for batch in users]
            own_sent, own_after = super().spend(length, 1, some, previous, present, counted=counted)
            sent += own_sent
            after += own_after
        return sent, after

    def _weighed(self, sent: Contributions, round_number: int) -> Contributions:
        """Notes the log-likelihood ratio of what the user sends; a ghost's weights are then 0."""
        counts = np.diff(sent.offsets)
        entries = np.flatnonzero(np.repeat(sent.users[:, 1] == USER, counts))
        copies = np.repeat(sent.users[:, 0], counts)[entries].astype(int)
        sub_key = self.run_key.sub_key("noise", sent.length, round_number)
        if sent.word_hashes is None:
            bits = randomness.keyed_bits(sub_key, 0, sent.keys[entries])
        else:
            bits = randomness.encrypt_blocks(sub_key, sent.word_hashes[sent.keys[entries]])
        sent_weights = known(sent.weights)
        noise = randomness.normals(bits) * self.variant.noise_factor
        self._notes(copies, sent_weights[entries] / UNITS, noise)
        tallies = None
        if sent.tallies is not None:
            self.own_tallies.append((sent.keys[entries], sent.tallies[entries]))
            tallies = sent.tallies.copy()
            tallies[entries] = 0
        if not self.is_ghost:
            return sent
        weights = sent_weights.copy()
        weights[entries] = 0
        return dataclasses.replace(sent, weights=weights, tallies=tallies)

    def _notes(self, copies: np.ndarray, shifts: np.ndarray, noise: np.ndarray) -> None:
        """Adds the log-likelihood ratio of numbers that the user moves, and by how much it does."""
        present = 0.0 if self.is_ghost else 1.0
        np.add.at(self.log_ratio, copies, shifts * (noise + (present - 0.5) * shifts))
        np.add.at(self.moved, copies, shifts**2)

    def decide(self, shard, rule):
        """Decides with the noise that is really added; thresholds stay as planned."""
        own = dataclasses.replace(rule, noise_stddev=rule.noise_stddev * self.variant.noise_factor)
        if self.variant.looks_again:
            classes = [without_cuts(each) for each in own.classes]
            own = dataclasses.replace(own, classes=tuple(classes))
        decided = dataclasses.replace(super().decide(shard, own), rule=rule)
        if shard.round == 1 and (self.variant.keeps_held or self.variant.keeps_unweighted):
            decided = with_held(decided, shard, self.variant)
        if shard.round == len(rule.rounds):
            self.decided = decided
        return decided


def simulate(
    world: World,
    *,
    present: bool,
    runs: int,
    run_key: RunKey,
    variant: Variant = RIGHT,
    drawn: bool = True,
) -> Run:
    """Returns what comes of each private length in many runs.

    Args:
      world: the user and the others.
      present: whether the user takes part.
      runs: how many.
      run_key: of all of them.
      variant: the mechanism.
      drawn: whether grams that nobody holds are drawn, as the mechanism does; else each of those that
        the user would hold has its own noise, as in the proof.
    """
    key = SameNoise(run_key.sub_key("same noise")) if variant.same_noise else run_key
    steps = CopySteps(
        plan=world.plan,
        run_key=key,
        world=world,
        runs=runs,
        variant=variant,
        is_ghost=not present and not drawn,
    )
    users = [positions(world, runs, key, has_user=present or not drawn)]
    previous: GramSet | None = None
    still_present: PresentGrams | None = None
    if world.has_given_words:
        words = words_of(runs, world.words)
        previous = GramSet(
            length=1,
            keys=np.arange(len(words)),
            scores=np.ones(len(words)),
            words=words,
            parent_size=1,
            vocabulary_size=len(words),
        )
        fresh = np.full(len(users[0].users), world.plan.allotment)
        users = steps.prune(2, [dataclasses.replace(users[0], left=fresh)], previous, None)
    outcomes: list[Outcome] = []
    for length in world.lengths:
        if outcomes and previous is not None:
            users = steps.prune(length, users, previous, still_present)
        outcome, users, previous, still_present = _settle_all(
            steps, length, users, previous, outcomes
        )
        outcomes.append(outcome)
    return Run(outcomes, steps.log_ratio, steps.moved, steps.left)


def _settle_all(
    steps: CopySteps,
    length: int,
    users: list[UserBatch],
    previous: GramSet | None,
    before: list[Outcome],
) -> tuple[Outcome, list[UserBatch], GramSet | None, PresentGrams | None]:
    """Settles a length in all copies; those with |S_{k−1}| and |V_k| in common at once."""
    world, runs = steps.world, steps.runs
    classes, sizes = candidate_classes(previous, length, world, runs)
    valid = classes != NO_CLASS
    if not world.plan.strategy_value.has_classes:
        # All candidates have one rule, whatever their predictions are.
        classes = np.where(valid, 0, NO_CLASS)
    outcome = Outcome(
        found=np.zeros(valid.shape, np.int8),
        cells=np.zeros(valid.shape, np.int64),
        valid=valid,
        classes=classes,
        counts=np.zeros((runs, tolerances.MOST_COUNTED)),
        released=[],
    )
    left, found, present = users, None, None
    steps.previous, steps.own_tallies = previous, []
    together = iter([np.arange(runs)])
    if length > 1 and not world.plan.strategy_value.has_classes:
        together = _of_equal_classes(classes, sizes)
    for copies in together:
        steps.copies, steps.decided = copies, None
        steps.own_rule = _rule_of(steps, length, classes[copies[0]], int(sizes[copies[0]]))
        some = users if copies.size == runs else [take_copies(batch, copies) for batch in users]
        found, left, present = release_length(steps, world.plan, length, some, previous)
        outcome.released.append(found)
        if steps.decided is not None:
            _put(outcome, steps.decided, previous, world)
    if length > 1 and world.plan.strategy_value.has_classes:
        outcome = dataclasses.replace(outcome, counts=steps.counts)
    return outcome, left, found, present


def _of_equal_classes(classes: np.ndarray, sizes: np.ndarray) -> Iterator[np.ndarray]:
    """Yields the copies that have |S_{k−1}| and the numbers of candidates in all classes in common."""
    rows = np.column_stack((sizes, np.sort(classes, axis=1)))
    _, group = np.unique(rows, axis=0, return_inverse=True)
    order = np.argsort(group.reshape(-1), kind="stable")
    starts = np.flatnonzero(np.diff(group.reshape(-1)[order], prepend=-1))
    yield from np.split(order, starts[1:])


def _rule_of(steps: CopySteps, length: int, classes: np.ndarray, released: int) -> LengthRule:
    """Returns the rule of a copy whose candidates have these classes."""
    plan = steps.plan
    valid = classes[classes != NO_CLASS].tolist() if length > 1 else []
    if not plan.strategy_value.has_classes:
        valid = [0] * len(valid)
    return plan.strategy_value.rule(
        plan, length, released=released, sizes=collections.Counter(valid), counted=len(valid)
    )


def _put(outcome: Outcome, decided: HistogramShard, previous: GramSet | None, world: World) -> None:
    """Writes rounds and cells of what was found to its copies."""
    found, cells = known(decided.found), known(decided.cells)
    chosen = np.flatnonzero(found)
    keys = decided.keys[chosen]
    if decided.words is not None:
        keys = np.array(decided.words.take(pa.array(chosen)).to_pylist(), dtype=np.int64)
    keys = np.concatenate((keys, decided.spurious_keys))
    copies, grams = named(keys, decided.length, previous, world)
    outcome.found[copies, grams] = np.concatenate((found[chosen], decided.spurious_rounds))
    outcome.cells[copies, grams] = np.concatenate((cells[chosen], decided.spurious_cells))
