"""Plays all games of a plan, and states what they show.

A lower bound above the claim shows, up to the stated confidence, that the mechanism as it runs does not
keep its promise. Bounds below the claim show only that these attacks, with so many runs, found nothing:
they prove no guarantee. Planted mistakes show how much such a finding is worth, since an attack that
does not notice a known mistake would not have noticed an unknown one of its kind either.
"""

import concurrent.futures
import contextlib
import dataclasses
import functools
import multiprocessing
from collections.abc import Sequence
from typing import Any, NamedTuple

from beam_dpne.audit.games import MECHANISM, Bound, Game, key_of, lower_bound
from beam_dpne.audit.number_games import bayesian_games
from beam_dpne.audit.text_games import gram_games, union_games
from beam_dpne.bayesian.plan import BayesianPlan
from beam_dpne.ngrams.plan import PrivacyPlan
from beam_dpne.set_union.plan import SetUnionPlan

DEFAULT_RUNS = 20_000
PASSED, EXCEEDED, WEAK = "passed", "exceeded", "weak"
Plan = PrivacyPlan | SetUnionPlan | BayesianPlan


class PlayedGame(NamedTuple):
    """What the attack shows of the mechanism, and of the mechanism with planted mistakes.

    Attributes:
      game: what was played.
      bounds: the lower bounds of each of its plays.
    """

    game: Game
    bounds: dict[str, Bound]

    def is_above(self, play: str) -> bool:
        """Returns whether a bound of a play is above the claim, so that a mistake is noticed."""
        return self.bounds[play].largest > self.game.claim.epsilon


@dataclasses.dataclass(frozen=True, kw_only=True)
class Audit:
    """All games of a plan.

    Attributes:
      plan: the plan.
      runs: the number of runs of each world of each game.
      confidence: the probability, at least, with which all bounds hold together.
      seed: the seed of all runs.
      games: what was played.
    """

    plan: Plan
    runs: int
    confidence: float
    seed: int
    games: tuple[PlayedGame, ...]

    @property
    def exceeding(self) -> list[str]:
        """The games in which the mechanism shows more than its claim."""
        return [played.game.name for played in self.games if played.is_above(MECHANISM)]

    @property
    def missed(self) -> list[str]:
        """The planted mistakes that were not noticed."""
        return [
            name
            for game in self.games
            for name in game.bounds
            if name != MECHANISM and not game.is_above(name)
        ]

    @property
    def verdict(self) -> str:
        """EXCEEDED if a bound is above its claim, else WEAK if a mistake was missed, else PASSED."""
        return EXCEEDED if self.exceeding else WEAK if self.missed else PASSED

    def to_dict(self) -> dict[str, Any]:
        """Returns everything as JSON types."""
        games = [
            {
                "name": played.game.name,
                "claim": {name: getattr(played.game.claim, name) for name in ("epsilon", "delta")},
                "plays": [
                    {"run_with": name, "is_above": played.is_above(name), **bound._asdict()}
                    for name, bound in played.bounds.items()
                ],
            }
            for played in self.games
        ]
        facts = {name: getattr(self, name) for name in ("runs", "confidence", "seed", "verdict")}
        return {"plan": self.plan.to_dict(), **facts, "games": games}


def games_of(plan: Plan) -> tuple[Game, ...]:
    """Returns all games of a plan."""
    if isinstance(plan, PrivacyPlan):
        return gram_games(plan)
    return union_games(plan) if isinstance(plan, SetUnionPlan) else bayesian_games(plan)


def audit_plan(
    plan: Plan,
    *,
    runs: int = DEFAULT_RUNS,
    confidence: float = 0.99,
    seed: int = 1,
    processes: int = 1,
) -> Audit:
    """Plays all games of a plan on made-up data, by the functions of the product.

    Args:
      plan: a plan of any program.
      runs: the number of observations of each world of each game, at least 200. Half of them choose
        the event, and the other half judges it.
      confidence: in (0, 1), for all bounds together: each of them gets an equal part of the rest.
      seed: at least 0; equal arguments give equal results.
      processes: how many plays are made at once; they change no result. With less than the default
        number of runs one process is faster.

    Example:
      >>> plan = BayesianPlan(epsilon=2, delta=1e-5)
      >>> audit = audit_plan(plan, runs=4000)
      >>> audit.verdict, audit.missed
      ('passed', [])
    """
    games = games_of(plan)
    plays = [(number, name) for number, game in enumerate(games) for name in game.plays]
    failure = (1 - confidence) / len(plays)
    play = functools.partial(_play, plan, runs=runs, seed=seed, failure=failure)
    with contextlib.ExitStack() as stack:
        played = map(play, plays)
        if processes > 1 and runs >= DEFAULT_RUNS:
            context = multiprocessing.get_context("spawn")
            pool = concurrent.futures.ProcessPoolExecutor(processes, mp_context=context)
            played = stack.enter_context(pool).map(play, plays)
        shown = iter(played)
        bounds = [{name: next(shown) for name in game.plays} for game in games]
    return Audit(
        plan=plan,
        runs=runs,
        confidence=confidence,
        seed=seed,
        games=tuple(map(PlayedGame, games, bounds)),
    )


def _play(plan: Plan, play: tuple[int, str], *, runs: int, seed: int, failure: float) -> Bound:
    """Plays one game, given by its number, as it is or with a mistake."""
    number, name = play
    game = games_of(plan)[number]
    seen = game.plays[name](runs, key_of(seed, game.name, list(game.plays).index(name)))
    return lower_bound(seen, game.claim, failure=failure)


def statements(audit: Audit) -> Sequence[str]:
    """Returns what an audit shows, and what it does not show, in sentences."""
    if audit.verdict == EXCEEDED:
        names = ", ".join(audit.exceeding)
        return (
            f"A lower bound is above the claim ({names}): the mechanism as it runs here is not as "
            "private as it claims, unless the bounds are wrong by chance, which has a probability of "
            f"at most {1 - audit.confidence:.2g}. Do not release under this plan; report it.",
        )
    found = (
        "All lower bounds are below the claims: these attacks found nothing. This proves no guarantee, "
        "which rests on the written argument alone; other attacks, or more runs, may find more.",
    )
    if audit.verdict == PASSED:
        return (*found, "Every planted mistake was noticed, so mistakes of these sizes show.")
    count = len(audit.missed)
    return (
        *found,
        f"The power was too low: {count} planted mistake{'' if count == 1 else 's'} went unnoticed "
        f"with {audit.runs:,} runs, so this audit says little there. Give more --runs.",
    )
