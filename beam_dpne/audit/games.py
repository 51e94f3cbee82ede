"""A game: runs with a user and without, what they claim, and mistakes that the attack should notice."""

import dataclasses
import hashlib
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from beam_dpne.audit.bounds import Claim
from beam_dpne.mechanism.randomness import RunKey


class Seen(NamedTuple):
    """What the attacker computes from many runs.

    Attributes:
      with_user: (runs, statistics) float64; larger values speak for the user.
      without: (runs, statistics) float64.
    """

    with_user: np.ndarray
    without: np.ndarray


# From a number of runs and a key to what the attacker sees.
Play = Callable[[int, RunKey], Seen]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Mistake:
    """A mistake that is planted to see whether the attack notices it.

    Attributes:
      name: the mistake, in words.
      play: plays the same game with the mistake.
    """

    name: str
    play: Play


@dataclasses.dataclass(frozen=True, kw_only=True)
class Game:
    """One worst case.

    Attributes:
      name: a short name.
      description: what the two worlds are and what the attacker sees, in a sentence.
      claim: what is claimed of everything that the attacker sees.
      play: plays it by the product's kernels.
      mistakes: planted mistakes, at least one.
    """

    name: str
    description: str
    claim: Claim
    play: Play
    mistakes: tuple[Mistake, ...]


def key_of(seed: int, *parts: object) -> RunKey:
    """Returns a key of made-up runs, which is no secret: the same parts always give the same one."""
    return RunKey(hashlib.sha256(repr(("audit", seed, *parts)).encode()).digest())


def world_keys(key: RunKey) -> tuple[RunKey, RunKey]:
    """Returns independent keys for the runs with the user, and for those without."""
    return key.bound_to("with the user"), key.bound_to("without the user")
