"""The adaptive strategy on worst-case pairs of databases, many runs at once, as plain mathematics.

One user holds every bigram (and trigram) of a few public words; in the other world nobody does, or only
the other users, who send fixed weights. What users spend, how they divide it, and what decides a gram is
the package's own (`adaptive`, `mechanism`); arrays over runs stand in for users, histograms and keyed
noise. That these runs are the kernels' runs, noise for noise, is a test of its own.

A `Variant` is the mechanism with a planted mistake, to see that an attack would notice.
"""

import dataclasses
import functools
import itertools
from collections.abc import Callable, Sequence

import numpy as np

from beam_dpne import PrivacyPlan, adaptive
from beam_dpne.mechanism import UNITS, LengthRule, RoundRule, noisy_cells, spurious_cells
from tests.privacy.test_attack import random_bits

# (length, round, runs, S_{k−1} of these runs as marks) → standard normal noise, (runs, grams).
Noise = Callable[[int, int, np.ndarray, np.ndarray | None], np.ndarray]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Variant:
    """What is run; the defaults are right, every other value is a planted mistake.

    Attributes:
      noise_factor: what the noise of held grams is multiplied by.
      same_noise: every round of a length has the noise of the first.
      looks_again: grams that were closed are judged, and spent on, in later rounds.
      gaussian_tail: a spurious gram of a later round is drawn from the tail of one Gaussian.
      unbounded: what a user has left does not fall.
    """

    noise_factor: float = 1.0
    same_noise: bool = False
    looks_again: bool = False
    gaussian_tail: bool = False
    unbounded: bool = False


RIGHT = Variant()


@dataclasses.dataclass(frozen=True, kw_only=True)
class World:
    """One user and the grams that decide everything.

    Attributes:
      plan: of the run.
      words: how many public words there are; the user holds all that can be made of them, up to T.
      others: what other users send to each gram of the first private length in each round, (rounds,
        grams), in units of weight; 0 where nobody else holds it.
    """

    plan: PrivacyPlan
    words: int
    others: np.ndarray | None = None

    @property
    def first(self) -> int:
        """The first private length."""
        return self.plan.private_lengths[0]

    @functools.cached_property
    def sequence(self) -> np.ndarray:
        """A text that has every sequence of T of the words once."""
        return de_bruijn(self.words, self.plan.max_length)

    def places(self, length: int) -> np.ndarray:
        """The gram that starts at each position of the user's text, −1 at its end."""
        text = self.sequence
        starts = text.size - length + 1
        grams = np.zeros(starts, np.int64)
        for step in range(length):
            grams = grams * self.words + text[step : step + starts]
        return np.concatenate((grams, np.full(length, -1)))


@dataclasses.dataclass(kw_only=True)
class Outcome:
    """What came of one length in many runs.

    Attributes:
      found: (runs, grams) int8, the round in which a gram was found; 0: it was not.
      cells: (runs, grams) int64, of that round.
      valid: (runs, grams) bool, V_k.
      rules: for each run which rule decided it, (runs,) int64, and the rules.
      log_ratio: (runs,), of all noisy vectors that the proof releases, with the user against without.
      spent: (runs,) int64, in units of 2^-56.
    """

    found: np.ndarray
    cells: np.ndarray
    valid: np.ndarray
    log_ratio: np.ndarray
    spent: np.ndarray


def de_bruijn(words: int, length: int) -> np.ndarray:
    """A sequence of words in which every sequence of this length occurs exactly once."""
    graph = {node: list(range(words)) for node in itertools.product(range(words), repeat=length - 1)}
    path, circuit = [next(iter(graph))], []
    while path:
        if graph[path[-1]]:
            path.append((*path[-1], graph[path[-1]].pop())[1:])
        else:
            circuit.append(path.pop())
    circuit.reverse()
    if length == 1:
        return np.arange(words)
    return np.array([*circuit[0], *(node[-1] for node in circuit[1:])])


def random_noise(rng) -> Noise:
    """Fresh noise for every gram, round and run."""
    shape: Callable[[int, np.ndarray], np.ndarray]

    def noise(length, number, runs, marks):
        del length, number
        return rng.standard_normal((runs.size, marks.shape[1]))

    del shape
    return noise
