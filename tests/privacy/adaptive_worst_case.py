"""The adaptive strategy on worst-case pairs of databases, many runs at once, as plain mathematics.

One user holds every sequence of T words that can be made of a few; in the other world nobody does, or
only other users, who send fixed weights. What a user spends, how it is divided, and what decides a gram
is the package's own (`adaptive`, `mechanism`); arrays over runs stand in for users, histograms and
keyed noise. That these runs are the kernels' runs, noise for noise, is a test of its own.

A `Variant` is the mechanism with a planted mistake, to see that an attack notices it.
"""

import dataclasses
import functools
import itertools
from collections.abc import Iterator
from typing import Protocol

import numpy as np

from beam_dpne import PrivacyPlan, adaptive
from beam_dpne.mechanism import UNITS, LengthRule, RoundRule, noisy_cells, scores, spurious_cells
from beam_dpne.randomness import upper_tail_normals
from tests.privacy.test_attack import random_bits

_CHUNK = 20_000


@dataclasses.dataclass(frozen=True, kw_only=True)
class Variant:
    """What is run; the defaults are right, every other value is a planted mistake.

    Attributes:
      noise_factor: what the noise of held grams is multiplied by.
      same_noise: every round of a length has the noise of the first.
      looks_again: grams that were closed are judged, and spent on, in later rounds.
      gaussian_tail: the evidence of a spurious gram of a later round is drawn as that of the first:
        from a Gaussian's tail of the probability of being found.
      unbounded: what a user has left does not fall.
      one_word: words have the threshold for users with one word.
    """

    noise_factor: float = 1.0
    same_noise: bool = False
    looks_again: bool = False
    gaussian_tail: bool = False
    unbounded: bool = False
    one_word: bool = False


RIGHT = Variant()


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class World:
    """One user, whose grams decide everything, and what the others send.

    Attributes:
      plan: of the run; its words are public, or they are the grams (T = 1).
      words: the user has every sequence of T of them once.
      others: what other users send to each gram of the first private length in each of its rounds,
        (rounds, grams), in units of weight; 0 where nobody else holds it.
    """

    plan: PrivacyPlan
    words: int
    others: np.ndarray

    @property
    def first(self) -> int:
        """The first private length."""
        return self.plan.private_lengths[0]

    @functools.cached_property
    def text(self) -> np.ndarray:
        """A de Bruijn sequence, cut open."""
        return de_bruijn(self.words, self.plan.max_length)

    def places(self, length: int) -> np.ndarray:
        """The gram that starts at each position of the text, −1 where the text ends before it does."""
        starts = self.text.size - length + 1
        grams = np.zeros(starts, np.int64)
        for step in range(length):
            grams = grams * self.words + self.text[step : step + starts]
        return np.concatenate((grams, np.full(length, -1)))


def world_of(
    plan: PrivacyPlan, words: int, others: tuple[tuple[float, ...], ...] = (), common: int = 0
) -> World:
    """Returns a world in which the others send the same to each of the last `common` grams.

    Args:
      plan: of the run.
      words: see `World`.
      others: for each kind of common gram what the others send in each round; kinds take turns.
      common: how many grams others hold.
    """
    first = plan.private_lengths[0]
    sent = np.zeros((plan.rounds_of(first), words**first))
    for place in range(common):
        sent[:, place - common] = others[place % len(others)]
    return World(plan=plan, words=words, others=sent)


@dataclasses.dataclass(kw_only=True)
class Outcome:
    """What came of one length in many runs.

    Attributes:
      found: (runs, grams) int8, the round in which a gram was found; 0: it was not.
      cells: (runs, grams) int64, of that round.
      scores: (runs, grams) float64.
      valid: (runs, grams) bool, V_k.
      log_ratio: (runs,), of the noisy vectors of all rounds, with the user against without.
      left: (runs,) int64, what the user has left, in units of 2^-56.
    """

    found: np.ndarray
    cells: np.ndarray
    scores: np.ndarray
    valid: np.ndarray
    log_ratio: np.ndarray
    left: np.ndarray


class Noise(Protocol):
    """Standard normal noise for each gram of each run."""

    def __call__(
        self, length: int, number: int, runs: np.ndarray, previous: np.ndarray, grams: int
    ) -> np.ndarray:
        """Returns (runs, grams) float64; `previous` marks S_{k−1} in each of these runs."""
        ...


def random_noise(rng: np.random.Generator) -> Noise:
    """Fresh noise, whatever it is for."""
    return lambda length, number, runs, previous, grams: rng.standard_normal((runs.size, grams))


def simulate(
    world: World,
    *,
    present: bool,
    runs: int,
    noise: Noise,
    rng,
    variant: Variant,
    drawn: bool = True,
) -> list[Outcome]:
    """Returns what comes of each private length.

    Args:
      world: the user and the others.
      present: whether the user takes part.
      runs: how many.
      noise: of grams that somebody holds.
      rng: for spurious grams.
      variant: the mechanism.
      drawn: whether grams that nobody holds are drawn, as the mechanism does; else each of them has
        its own noise, as in the proof.
    """
    plan, outcomes = world.plan, []
    left = np.full(runs, plan.allotment)
    marks, predictions = np.ones((runs, world.words ** (world.first - 1)), bool), None
    for length in plan.private_lengths:
        if plan.user_budgets == "even":
            left = np.full(runs, plan.allotment)
        valid = _valid(marks, world.words, length)
        outcome = _nothing(valid, left)
        for rule, rows in _rules(plan, length, marks, valid, variant):
            own = _settle(
                world, length, rule, rows, valid[rows], left[rows], predictions, marks, present, noise,
                variant,
            )  # fmt: skip
            if drawn and not present and length > 1:
                _draw_spurious(own, rule, held_by_others(world, length), variant, rng)
            _put(outcome, rows, own)
        outcomes.append(outcome)
        left, marks, predictions = outcome.left, outcome.found > 0, outcome.scores
    return outcomes


def _valid(marks: np.ndarray, words: int, length: int) -> np.ndarray:
    """V_k in each run: prefix and suffix are in S_{k−1}."""
    if length <= 2:
        return np.ones((len(marks), words**length), bool)
    grams = np.arange(words**length)
    return marks[:, grams // words] & marks[:, grams % words ** (length - 1)]


def _rules(
    plan: PrivacyPlan, length: int, marks: np.ndarray, valid: np.ndarray, variant: Variant
) -> Iterator[tuple[LengthRule, np.ndarray]]:
    """Yields each rule with the runs that it decides."""
    everyone = np.arange(len(marks))
    if length == 1:
        rounds = plan.lengths[0].word_rules
        if variant.one_word:
            rounds = adaptive.vocabulary_rounds(
                allotment=plan.allotment, delta=plan.vocabulary_delta, max_contributions=1
            )
        yield LengthRule(length=1, noise_stddev=1.0, rounds=rounds), everyone
        return
    sizes = marks.sum(axis=1), valid.sum(axis=1)
    packed = sizes[0] * (valid.shape[1] + 1) + sizes[1]
    order = np.argsort(packed, kind="stable")
    starts = np.flatnonzero(np.diff(packed[order], prepend=-1))
    for rows in np.split(order, starts[1:]):
        released, members = int(sizes[0][rows[0]]), int(sizes[1][rows[0]])
        if members:
            fraction = plan.spurious_fraction * min(1.0, released / members)
            rounds = gram_rounds(fraction, plan.lengths[length - 1].rounds)
            yield LengthRule(length=length, noise_stddev=1.0, rounds=rounds, valid=members), rows


gram_rounds = functools.cache(adaptive.gram_rounds.__wrapped__)


def _nothing(valid: np.ndarray, left: np.ndarray) -> Outcome:
    return Outcome(
        found=np.zeros(valid.shape, np.int8),
        cells=np.zeros(valid.shape, np.int64),
        scores=np.zeros(valid.shape),
        valid=valid,
        log_ratio=np.zeros(len(valid)),
        left=left.copy(),
    )


def _put(outcome: Outcome, rows: np.ndarray, own: Outcome) -> None:
    for name in ("found", "cells", "scores", "log_ratio", "left"):
        getattr(outcome, name)[rows] = getattr(own, name)


def held_by_others(world: World, length: int) -> np.ndarray:
    """Marks the grams of a length that others hold."""
    if length > world.first:
        return np.zeros(world.words**length, bool)
    return np.any(world.others > 0, axis=0)


def _settle(
    world: World,
    length: int,
    rule: LengthRule,
    runs: np.ndarray,
    valid: np.ndarray,
    left: np.ndarray,
    predictions: np.ndarray | None,
    marks: np.ndarray,
    present: bool,
    noise: Noise,
    variant: Variant,
) -> Outcome:
    """The rounds of one length in the runs of one rule; section 4's numbered steps, over arrays."""
    outcome = _nothing(valid, left)
    is_open, sent, drawn = valid.copy(), [], []
    for number, own in enumerate(rule.rounds, start=1):
        last = rule.rounds[number - 2] if number > 1 else None
        weights, cost = _send(
            world, length, number, outcome, is_open, last,
            None if predictions is None else predictions[runs],
        )  # fmt: skip
        if not variant.unbounded:
            outcome.left -= cost
        fresh = noise(length, number, runs, marks[runs], valid.shape[1]) * variant.noise_factor
        if variant.same_noise and drawn:
            fresh = drawn[0]
        shift = weights / UNITS
        outcome.log_ratio += (shift * (fresh + (present - 0.5) * shift)).sum(axis=1)
        drawn.append(fresh)
        sent.append(weights * present + _others(world, length, number))
        judged = valid & (outcome.found == 0) if variant.looks_again else is_open
        total = sum(
            loading / own.loading_unit * part
            for loading, part in zip(own.loadings, drawn, strict=True)
            if loading
        )
        cells = noisy_cells([part[judged] for part in sent], np.asarray(total)[judged], own)
        over = cells >= 0
        if length == 1:
            over &= sent[-1][judged] > 0
        outcome.cells[judged] = cells
        outcome.found[judged] = np.where(over, number, 0)
        is_open = np.zeros_like(valid)
        is_open[judged] = ~over & (cells >= own.cut_cell)
    _set_scores(outcome, rule)
    return outcome


def _send(
    world: World,
    length: int,
    number: int,
    outcome: Outcome,
    is_open: np.ndarray,
    last: RoundRule | None,
    predictions: np.ndarray | None,
) -> tuple[np.ndarray, np.ndarray]:
    """What the user sends in one round to each gram, (runs, grams) int64, and its cost."""
    plan = world.plan
    own_round = adaptive.rounds_of(length, plan.rounds or 1)[number - 1]
    own = is_open.sum(axis=1)
    standing = is_open | (outcome.found > 0)
    ahead = _ahead(world, length, standing)
    spent = adaptive.spends(outcome.left, own, ahead, own_round.quota)
    if length == 1:
        spent = np.minimum(spent, adaptive.round_cap(plan.allotment, own_round))
    shares = np.ones(is_open.shape)
    if length > 1:
        near = 0.0 if last is None else adaptive.nearness(outcome.cells, last)
        expected = 1.0
        if predictions is not None:
            grams = np.arange(is_open.shape[1])
            suffixes = grams % world.words ** (length - 1)
            expected = np.minimum(predictions[:, grams // world.words], predictions[:, suffixes])
        shares = adaptive.preferences(np.asarray(expected), near) * shares
    offsets = np.concatenate(([0], np.cumsum(own)))
    flat, cost = adaptive.divide(spent, offsets, shares[is_open])
    weights = np.zeros(is_open.shape, np.int64)
    weights[is_open] = flat
    return weights, cost


def _ahead(world: World, length: int, standing: np.ndarray) -> np.ndarray:
    longer = world.plan.max_length - length
    if not longer or world.plan.user_budgets == "even":
        return np.zeros(len(standing), np.int64)
    places = world.places(length)
    counts = []
    for start in range(0, len(standing), _CHUNK):
        some = standing[start : start + _CHUNK, places] & (places >= 0)
        offsets = np.arange(len(some) + 1) * places.size
        counts.append(adaptive.grams_ahead(some.reshape(-1), offsets, longer))
    return np.concatenate(counts)


def _others(world: World, length: int, number: int) -> np.ndarray:
    if length > world.first:
        return np.zeros(world.words**length, np.int64)
    return np.floor(world.others[number - 1] * UNITS).astype(np.int64)


def _draw_spurious(
    outcome: Outcome, rule: LengthRule, held: np.ndarray, variant: Variant, rng
) -> None:
    """Replaces what noise decided of grams that nobody holds by draws, as `sample_spurious` does."""
    unheld = outcome.valid & ~held
    uniform = rng.random(outcome.found.shape)
    before = 0.0
    outcome.found[unheld] = 0
    for number, own in enumerate(rule.rounds, start=1):
        chosen = unheld & (uniform >= before) & (uniform < before + own.null_probability)
        before += own.null_probability
        outcome.found[chosen] = number
        bits = random_bits(int(np.count_nonzero(chosen)), rng)
        if variant.gaussian_tail:
            outcome.cells[chosen] = _gaussian_tail_cells(bits, own)
        else:
            outcome.cells[chosen] = spurious_cells(bits, rule, number)
    _set_scores(outcome, rule)


def _gaussian_tail_cells(bits: np.ndarray, own: RoundRule) -> np.ndarray:
    evidence = own.evidence_stddev * upper_tail_normals(bits, own.null_probability)
    return np.maximum(0, np.floor((evidence - own.threshold) * UNITS / own.cell_units)).astype(int)


def _set_scores(outcome: Outcome, rule: LengthRule) -> None:
    for number, own in enumerate(rule.rounds, start=1):
        inside = outcome.found == number
        outcome.scores[inside] = scores(outcome.cells[inside], own)
    outcome.scores[outcome.found == 0] = 0.0


def de_bruijn(words: int, length: int) -> np.ndarray:
    """Returns a sequence of words that has every sequence of this length exactly once.

    References: Hierholzer's algorithm for an Eulerian circuit of the de Bruijn graph.
    """
    if length == 1:
        return np.arange(words)
    rest = {node: list(range(words)) for node in itertools.product(range(words), repeat=length - 1)}
    path, circuit = [next(iter(rest))], []
    while path:
        if rest[path[-1]]:
            path.append((*path[-1], rest[path[-1]].pop())[1:])
        else:
            circuit.append(path.pop())
    circuit.reverse()
    return np.array([*circuit[0], *(node[-1] for node in circuit[1:])])
