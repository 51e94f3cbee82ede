"""The worst cases of n-grams: words, n-grams that one user alone has, and all lengths together.

All runs are runs of the product's loop over lengths and rounds, under the plan itself. The attacker
sees released n-grams and scores, and from half of the runs learns the statistic that tells the worlds
apart best (a logistic regression over numbers of n-grams by round and score).
"""

import math
from collections.abc import Callable

import numpy as np

from beam_dpne.audit import observations
from beam_dpne.audit.bounds import Claim
from beam_dpne.audit.copied_runs import Outcome, simulate
from beam_dpne.audit.copies import World
from beam_dpne.audit.count_games import count_games, count_log_ratios, whole_budget
from beam_dpne.audit.games import Game, Mistake, Play, Seen, world_keys
from beam_dpne.audit.variants import RIGHT, Variant
from beam_dpne.counts.rule import count_rule
from beam_dpne.mechanism import gaussian
from beam_dpne.mechanism.randomness import RunKey
from beam_dpne.ngrams.plan import PrivacyPlan
from beam_dpne.ngrams.strategies import OneRound

# Runs that are made at once; it bounds the memory.
AT_ONCE = 20_000
_WORDS, _PAIRED_WORDS, _ALONE_LENGTHS = 3, 2, 3
_QUARTER = 0.25
_QUIET = ("The noise has a quarter of its standard deviation.", Variant(noise_factor=_QUARTER))
_Observe = Callable[[World, list[Outcome]], np.ndarray]


def gram_games(plan: PrivacyPlan) -> tuple[Game, ...]:
    """Returns all games of a plan of n-grams."""
    claim = gram_claim(plan)
    games: list[Game] = []
    games.append(_words(plan, claim.of_part(_part(plan, 1))))
    if plan.max_length > 1:
        part = _part(plan, _longest_alone(plan))
        games.append(_alone(plan, claim.of_part(part)))
    whole = _part(plan, plan.max_length) + plan.count_share
    games.append(_everything(plan, claim.of_part(whole)))
    counts = count_games(plan, mu=claim.mu or 0.0, gaussian_delta=claim.gaussian_delta)
    return (*games, *counts)


def gram_claim(plan: PrivacyPlan) -> Claim:
    """Returns the claim of a whole run, from ε, δ and its division alone."""
    delta_share = plan.vocabulary_delta_share or 0.0
    gaussian_delta = plan.delta * (1 - delta_share)
    stddev = gaussian.gaussian_noise_stddev(epsilon=plan.epsilon, delta=gaussian_delta)
    return Claim(
        epsilon=plan.epsilon,
        delta=plan.delta,
        mu=1 / stddev,
        gaussian_delta=gaussian_delta,
        alone_delta=plan.delta * delta_share,
    )


def _part(plan: PrivacyPlan, longest: int) -> float:
    """Returns the part of μ² that n-grams up to a length have."""
    # Where users divide one budget among the lengths, they may spend all of it on the first ones.
    last = plan.max_length if plan.user_budgets == "individual" else longest
    if isinstance(plan.strategy_value, OneRound):
        seen = math.fsum(plan.strategy_value.shares(plan.max_length)[:last])
    else:
        seen = last / plan.max_length
    return min(1.0, seen) * (1 - plan.count_share)


def _longest_alone(plan: PrivacyPlan) -> int:
    return min(plan.max_length, _ALONE_LENGTHS if plan.pruning == "both" else 2)


def _words(plan: PrivacyPlan, claim: Claim) -> Game:
    """One word of a user alone, and two that others have so often that they are at the threshold."""
    world = World(plan=plan, words=_WORDS, crowd="near", longest=1)
    threshold = "The threshold of words ignores words of one user."
    return Game(
        name="words",
        description="A user who has one word that nobody else has, and two words of others whose "
        "weights are at the threshold, takes part or not. The attacker sees the released words, "
        "and their scores.",
        claim=claim,
        play=_play(world),
        mistakes=(
            _mistake(world, *_QUIET),
            _mistake(world, threshold, Variant(no_threshold=True)),
        ),
    )


def _alone(plan: PrivacyPlan, claim: Claim) -> Game:
    """All sequences of two words that are released anyway; nobody else has them."""
    longest = _longest_alone(plan)
    world = World(plan=plan, words=_PAIRED_WORDS, crowd="words", longest=longest)
    spurious = "N-grams that nobody has are never released."
    mistakes = [_mistake(world, *_QUIET), _mistake(world, spurious, Variant(no_spurious=True))]
    if plan.rounds_of(2) > 1:
        same = "Every round of a length has the same noise."
        mistakes.append(_mistake(world, same, Variant(same_noise=True)))
    return Game(
        name="n-grams of one user",
        description=f"A user who has all sequences of 2 to {longest} of two common words, which "
        "nobody else has, takes part or not. The attacker sees the released n-grams, and their scores.",
        claim=claim,
        play=_play(world),
        mistakes=tuple(mistakes),
    )


def _everything(plan: PrivacyPlan, claim: Claim) -> Game:
    """One n-gram of each length, which many others have too, and numbers of users."""
    world = World(plan=plan, words=1, crowd="everything", longest=plan.max_length)
    mistakes = [_everything_mistake(world, *_QUIET)]
    lengths = plan.max_length
    is_even = plan.user_budgets == "even"
    if plan.user_budgets == "individual" and lengths > 1:
        spent = "The budget that a user has spent is not subtracted."
        mistakes.append(_everything_mistake(world, spent, Variant(unreduced=True)))
    elif not is_even and lengths > 1 and plan.noise_growth == 1.0:
        divided = "Every length has the noise for the whole budget."
        mistakes.append(_everything_mistake(world, divided, Variant(noise_factor=lengths**-0.5)))
    if plan.count_share and not is_even:
        # With even budgets the crowd's n-grams are found before most of a budget is spent.
        share = "The noise of numbers of users ignores their share of the budget."
        mistakes.append(_everything_mistake(world, share, RIGHT, has_whole_counts=True))
    return Game(
        name="all lengths together",
        description="A user who has one n-gram of each length, all of which many others have too, "
        "takes part or not. The attacker sees the release"
        + (" and the noisy sums from which users are counted." if plan.count_share else "."),
        claim=claim,
        play=_everything_play(world),
        mistakes=tuple(mistakes),
    )


def _mistake(world: World, name: str, variant: Variant) -> Mistake:
    return Mistake(name=name, play=_play(world, variant))


def _play(world: World, variant: Variant = RIGHT) -> Play:
    """Plays a world; the attacker looks at a learned ratio and at n-grams of the user alone."""

    def observe(world: World, outcomes: list[Outcome]) -> np.ndarray:
        own = observations.own_grams(world, outcomes)
        return np.column_stack((own, observations.features(world, outcomes)))

    def play(runs: int, key: RunKey) -> Seen:
        seen = _simulate_both(world, variant, runs, key, observe)
        ratios = observations.learned(*seen)
        return Seen(
            *(np.column_stack((r, each[:, 0])) for r, each in zip(ratios, seen, strict=True))
        )

    return play


def _everything_mistake(
    world: World, name: str, variant: Variant, *, has_whole_counts: bool = False
) -> Mistake:
    return Mistake(
        name=name, play=_everything_play(world, variant, has_whole_counts=has_whole_counts)
    )


def _everything_play(
    world: World, variant: Variant = RIGHT, *, has_whole_counts: bool = False
) -> Play:
    """Plays a world in which all is released; the scores and the numbers of users differ."""

    def play(runs: int, key: RunKey) -> Seen:
        scores = _simulate_both(world, variant, runs, key, observations.scores_by_round)
        seen = observations.centred(*scores)
        noise = world.plan.count_noise
        if noise is not None:
            rule = count_rule([np.ones(1)] * world.plan.max_length)
            change = whole_budget(gram_claim(world.plan).mu or 0.0) if has_whole_counts else None
            counted = [
                count_log_ratios(
                    rule, noise, present=present, runs=runs, run_key=own, change=change
                )
                for present, own in zip((True, False), world_keys(key), strict=True)
            ]
            seen = tuple(np.column_stack(each) for each in zip(seen, counted, strict=True))
        ratios = observations.learned(*seen)
        return Seen(*(ratio[:, np.newaxis] for ratio in ratios))

    return play


def _simulate_both(
    world: World, variant: Variant, runs: int, key: RunKey, observe: _Observe
) -> Seen:
    """Makes the runs of both worlds, and returns what is observed of each."""
    seen = []
    for present, own in zip((True, False), world_keys(key), strict=True):
        parts = [
            simulate(
                world,
                present=present,
                runs=min(AT_ONCE, runs - start),
                run_key=own.bound_to(f"runs from {start}"),
                variant=variant,
            )
            for start in range(0, runs, AT_ONCE)
        ]
        seen.append(np.concatenate([observe(world, part.outcomes) for part in parts]))
    return Seen(*seen)
