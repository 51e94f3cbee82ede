"""The worst cases of n-grams and of set unions: plain runs of the product on made-up corpora.

All runs are runs of `release_ngrams` or `release_items` under the plan itself. The attacker sees
released n-grams and scores, and learns from half of the copies what tells the worlds apart best.
"""

import dataclasses
import functools
import itertools
import math
from collections.abc import Callable

import numpy as np

from beam_dpne.audit.bounds import Claim
from beam_dpne.audit.games import (
    FOUR_USERS,
    PEOPLE,
    Game,
    Play,
    Seen,
    gaussian_claim,
    key_of,
    learned,
)
from beam_dpne.audit.number_games import count_games
from beam_dpne.audit.worlds import TextPlan, Words, World, coins, release_of
from beam_dpne.mechanism.randomness import RunKey
from beam_dpne.ngrams.plan import PrivacyPlan
from beam_dpne.set_union.plan import SetUnionPlan

# Users of a corpus, roughly at most: it bounds the memory.
_MOST_USERS = 200_000
# With so many users the weight of a word that all of them have is searched.
_MOST_TIPPING = 2**17
_TRIED_WORDS = 100
# Copies of two words, and words of which all pairs are copies.
_PAIRS_OF_WORDS, _COMMON_WORDS = 64, 32
_ALONE_LENGTH = 3
# Tolerated spurious n-grams where one user alone has n-grams: with few of them nothing would show.
_MOST_SPURIOUS = 0.5


class SameNoise(RunKey):
    """A planted mistake: every round of a length has the noise of the first."""

    def sub_key(self, purpose: str, length: int = 0, round_number: int = 0) -> bytes:
        """Returns the sub-key of a purpose, for noise that of the first round."""
        return super().sub_key(purpose, length, 1 if purpose == "noise" else round_number)


def union_games(plan: SetUnionPlan) -> tuple[Game, ...]:
    """Returns all games of a set union."""
    claim = gaussian_claim(
        epsilon=plan.epsilon, delta=plan.delta, delta_share=plan.vocabulary_delta_share
    )
    items = _words(plan, "items", claim.of_part(1 - plan.count_share))
    return (items, *count_games(plan.count_share, plan.count_noise, claim))


def gram_games(plan: PrivacyPlan) -> tuple[Game, ...]:
    """Returns all games of a plan of n-grams."""
    claim = gram_claim(plan)
    games = [_words(plan, "words", claim.of_part(_part(plan, 1)))]
    if plan.max_length > 1:
        longest = min(plan.max_length, _ALONE_LENGTH)
        games.append(_alone(plan, longest, claim.of_part(_part(plan, longest))))
        games.append(_many(plan, claim.of_part(_part(plan, 2))))
    return (*games, *count_games(plan.count_share, plan.count_noise, claim))


def gram_claim(plan: PrivacyPlan) -> Claim:
    """Returns the claim of a whole run, from ε, δ and its division alone."""
    return gaussian_claim(
        epsilon=plan.epsilon, delta=plan.delta, delta_share=plan.vocabulary_delta_share or 0.0
    )


def _part(plan: PrivacyPlan, longest: int) -> float:
    """Returns the part of μ² that n-grams up to a length have."""
    if not plan.is_adaptive:
        shares = plan.shares
    elif plan.user_budgets == "even":
        shares = (1 / plan.max_length,) * plan.max_length
    else:
        # Users divide one budget among the lengths, and may spend all of it on the first one.
        shares = (1.0,)
    return min(1.0, math.fsum(shares[:longest])) * (1 - plan.count_share)


def _words(plan: TextPlan, name: str, claim: Claim) -> Game:
    """One word of a user alone, and two that others have so often that they are at the threshold."""

    def build(others: int) -> World:
        copies = max(1, _MOST_USERS // (2 * others + 1))
        words = [(3 * copy, 3 * copy + 1, 3 * copy + 2) for copy in range(copies)]
        return World(
            words=3 * copies,
            own=tuple(tuple((word,) for word in own) for own in words),
            others=tuple(((word,), others) for _, *near in words for word in near),
            watched=tuple((((first,),), ((near,), (far,))) for first, near, far in words),
        )

    def play(people: Callable[[], int]) -> Play:
        return lambda runs, key: _play(build(_tipping(plan)), plan, runs, key, people=people())

    return Game(
        name=name,
        description="A user who has one word or item that nobody else has, and two of others whose "
        "weights are near the threshold, takes part or not. The attacker sees what is released, and "
        "its scores.",
        claim=claim,
        play=play(lambda: 1),
        mistakes={
            FOUR_USERS: play(lambda: PEOPLE),
            "One person is counted as so many users that what they alone have is released.": play(
                lambda: _tipping(plan)
            ),
        },
    )


def _alone(plan: PrivacyPlan, longest: int, claim: Claim) -> Game:
    """All sequences of two words that are released anyway; nobody else has them."""
    patient = dataclasses.replace(
        plan, spurious_fraction=max(plan.spurious_fraction, _MOST_SPURIOUS)
    )

    def build() -> World:
        pairs = [(2 * copy, 2 * copy + 1) for copy in range(_PAIRS_OF_WORDS)]
        watched = [
            tuple(tuple(itertools.product(pair, repeat=k)) for k in range(2, longest + 1))
            for pair in pairs
        ]
        return World(
            words=2 * len(pairs),
            own=tuple((each,) for each in (_all_sequences(pair, longest) for pair in pairs)),
            others=tuple(((word,), 2 * _tipping(plan)) for word in range(2 * len(pairs))),
            watched=tuple(watched),
        )

    return Game(
        name="n-grams of one user",
        description=f"A user who has all sequences of 2 to {longest} of two common words, which "
        "nobody else has, takes part or not. The attacker sees the released n-grams, and their scores.",
        claim=claim,
        play=lambda runs, key: _play(build(), patient, runs, key),
        mistakes={
            "N-grams that nobody has are never released.": lambda runs, key: _play(
                build(), patient, runs, key, only_held=True
            ),
            "Every round of a length has the same noise.": lambda runs, key: _play(
                build(), patient, runs, key, key_kind=SameNoise
            ),
        },
    )


def _many(plan: PrivacyPlan, claim: Claim) -> Game:
    """A pair of common words that others have so often that it is at the threshold."""
    pairs = tuple(itertools.product(range(_COMMON_WORDS), repeat=2))

    def build(others: int) -> World:
        return World(
            words=_COMMON_WORDS,
            own=tuple((pair,) for pair in pairs),
            others=(
                *((pair, others) for pair in pairs),
                *(((word,), 2 * _tipping(plan)) for word in range(_COMMON_WORDS)),
            ),
            watched=tuple(((pair,),) for pair in pairs),
        )

    def play(people: int) -> Play:
        return lambda runs, key: _play(
            build(_tipping_number(build, plan)), plan, runs, key, people=people
        )

    return Game(
        name="n-grams of many users",
        description="A user with two common words, which so many others have in this order that they "
        "are at the threshold, takes part or not. The attacker sees the released n-grams, and their "
        "scores.",
        claim=claim,
        play=play(1),
        mistakes={FOUR_USERS: play(PEOPLE)},
    )


def _all_sequences(pair: tuple[int, int], length: int) -> Words:
    """Returns a text that has each sequence of so many words, some short ones more than once."""
    a, b = pair
    return (a, a, b, b, a) if length == 2 else (a, a, a, b, a, b, b, b, a, a)


@functools.cache
def _tipping(plan: TextPlan) -> int:
    """Returns so many users with one word that it is released about every other time."""
    words = tuple((word,) for word in range(_TRIED_WORDS))

    def build(others: int) -> World:
        return World(
            words=_TRIED_WORDS,
            own=((),) * len(words),
            others=tuple((word, others) for word in words),
            watched=tuple(((word,),) for word in words),
        )

    return _tipping_number(build, plan)


def _tipping_number(build: Callable[[int], World], plan: TextPlan) -> int:
    """Returns the least number of others with which half of what is watched is released."""

    def is_enough(others: int) -> bool:
        world = build(others)
        nobody = np.zeros(len(world.own), bool)
        key = key_of(0, "others", others)
        return world.observe(release_of(world, plan, nobody, key))[:, 0].mean() >= 1 / 2

    high = 1
    while high < _MOST_TIPPING and not is_enough(high):
        high *= 2
    low = high // 2
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if is_enough(middle) else (middle, high)
    return high


def _play(
    world: World,
    plan: TextPlan,
    runs: int,
    key: RunKey,
    *,
    people: int = 1,
    only_held: bool = False,
    key_kind: type[RunKey] = RunKey,
) -> Seen:
    """Makes runs until each world of the user has so many copies.

    Args:
      world: the corpus.
      plan: of each run.
      runs: the number of copies with the user, and of those without.
      key: of all runs.
      people: as how many users the user of each copy counts, a planted mistake beyond 1.
      only_held: n-grams that nobody has are dropped from the release, a planted mistake.
      key_kind: of the keys of runs; other kinds are planted mistakes.
    """
    played = dataclasses.replace(world, own=world.own * people)
    present, seen = [np.zeros(0, bool)], []
    for number in itertools.count():
        own = key_kind(key.bound_to(f"run {number}").sub_key("run"))
        takes_part = coins(len(world.own), own)
        released = release_of(played, plan, np.tile(takes_part, people), own)
        shown = world.observe(released)
        seen.append(shown * takes_part[:, np.newaxis] if only_held else shown)
        present.append(takes_part)
        taken = np.concatenate(present)
        if min(np.count_nonzero(taken), np.count_nonzero(~taken)) >= runs:
            break
    taken, shown = np.concatenate(present), np.concatenate(seen)
    return learned(Seen(shown[taken][:runs], shown[~taken][:runs]))
