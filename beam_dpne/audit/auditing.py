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
from collections.abc import Callable, Sequence
from typing import Any

from beam_dpne.audit.bounds import Bound, Claim, lower_bound
from beam_dpne.audit.games import Game, key_of
from beam_dpne.audit.number_games import bayesian_games
from beam_dpne.audit.text_games import gram_games, union_games
from beam_dpne.bayesian.plan import BayesianPlan
from beam_dpne.ngrams.plan import PrivacyPlan
from beam_dpne.set_union.plan import SetUnionPlan
from beam_dpne.validation import check_integer

DEFAULT_RUNS = 20_000
DEFAULT_CONFIDENCE = 0.99
LEAST_RUNS, MOST_RUNS = 200, 10_000_000
MOST_SEED = 2**63 - 1
PASSED, EXCEEDED, WEAK = "passed", "exceeded", "weak"
Plan = PrivacyPlan | SetUnionPlan | BayesianPlan


@dataclasses.dataclass(frozen=True, kw_only=True)
class PlayedMistake:
    """What the attack shows of a planted mistake.

    Attributes:
      name: the mistake, in words.
      bound: the lower bounds.
      is_noticed: whether one of them is above the claim.
    """

    name: str
    bound: Bound
    is_noticed: bool


@dataclasses.dataclass(frozen=True, kw_only=True)
class PlayedGame:
    """What the attack shows of the mechanism, and of the mechanism with planted mistakes.

    Attributes:
      name: of the game.
      description: what the two worlds are and what the attacker sees.
      claim: what is claimed of everything that the attacker sees.
      bound: the lower bounds of the mechanism as it is.
      mistakes: those of planted mistakes.
    """

    name: str
    description: str
    claim: Claim
    bound: Bound
    mistakes: tuple[PlayedMistake, ...]

    @property
    def exceeds(self) -> bool:
        """Whether the mechanism shows more than its claim."""
        return self.bound.largest > self.claim.epsilon


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
    def missed(self) -> tuple[tuple[PlayedGame, PlayedMistake], ...]:
        """The planted mistakes that were not noticed."""
        return tuple(
            (game, mistake)
            for game in self.games
            for mistake in game.mistakes
            if not mistake.is_noticed
        )

    @property
    def verdict(self) -> str:
        """EXCEEDED if a bound is above its claim, else WEAK if a mistake was missed, else PASSED."""
        if any(game.exceeds for game in self.games):
            return EXCEEDED
        return WEAK if self.missed else PASSED

    def to_dict(self) -> dict[str, Any]:
        """Returns everything as JSON types."""
        return {
            "plan": self.plan.to_dict(),
            "runs": self.runs,
            "confidence": self.confidence,
            "seed": self.seed,
            "verdict": self.verdict,
            "games": [
                {
                    "name": each.name,
                    "description": each.description,
                    "claim": {"epsilon": each.claim.epsilon, "delta": each.claim.delta},
                    "exceeds": each.exceeds,
                    **_bound_dict(each.bound),
                    "mistakes": [
                        {
                            "name": mistake.name,
                            "is_noticed": mistake.is_noticed,
                            **_bound_dict(mistake.bound),
                        }
                        for mistake in each.mistakes
                    ],
                }
                for each in self.games
            ],
        }


def games_of(plan: Plan) -> tuple[Game, ...]:
    """Returns all games of a plan."""
    if isinstance(plan, PrivacyPlan):
        return gram_games(plan)
    return union_games(plan) if isinstance(plan, SetUnionPlan) else bayesian_games(plan)


def audit_plan(
    plan: Plan,
    *,
    runs: int = DEFAULT_RUNS,
    confidence: float = DEFAULT_CONFIDENCE,
    seed: int = 1,
    processes: int = 1,
    report: Callable[[str], None] = lambda _: None,
) -> Audit:
    """Plays all games of a plan on made-up data, by the functions of the product.

    Args:
      plan: a plan of any program.
      runs: the number of observations of each world of each game, 200 to 10,000,000. Half of them
        choose the event, and the other half judges it.
      confidence: in (0, 1), for all bounds together: each of them gets an equal part of the rest.
      seed: at least 0; equal arguments give equal results.
      processes: how many plays are made at once; they change no result. With less than the default
        number of runs one process is faster.
      report: is called with a line before each play.

    Raises:
      ValueError: if an argument is out of range.

    Example:
      >>> plan = BayesianPlan(epsilon=2, delta=1e-5)
      >>> audit = audit_plan(plan, runs=4000)
      >>> audit.verdict, [mistake.is_noticed for mistake in audit.games[0].mistakes]
      ('passed', [True, True])
    """
    check_integer("runs", runs, LEAST_RUNS, MOST_RUNS)
    check_integer("seed", seed, 0, MOST_SEED)
    check_integer("processes", processes, 1)
    if not 0 < confidence < 1:
        raise ValueError(f"confidence must be in (0, 1), got confidence={confidence}.")
    games = games_of(plan)
    plays = [
        (game, place) for game, each in enumerate(games) for place in range(1 + len(each.mistakes))
    ]
    failure = (1 - confidence) / len(plays)
    play = functools.partial(_play, plan, runs=runs, seed=seed, failure=failure)
    with contextlib.ExitStack() as stack:
        played = map(play, plays)
        if processes > 1 and runs >= DEFAULT_RUNS:
            context = multiprocessing.get_context("spawn")
            pool = concurrent.futures.ProcessPoolExecutor(processes, mp_context=context)
            played = stack.enter_context(pool).map(play, plays)
        bounds = {}
        for number, (game, place) in enumerate(plays, start=1):
            planted = "with a planted mistake" if place else "as it is"
            report(f"play {number} of {len(plays)}: {games[game].name}, {planted}")
            bounds[game, place] = next(played)
    return Audit(
        plan=plan,
        runs=runs,
        confidence=confidence,
        seed=seed,
        games=tuple(_played(game, number, bounds) for number, game in enumerate(games)),
    )


def _play(plan: Plan, play: tuple[int, int], *, runs: int, seed: int, failure: float) -> Bound:
    """Plays one game, or one of its mistakes: a pair of a game's number and 0 or a mistake's number."""
    number, place = play
    game = games_of(plan)[number]
    part = [game.play, *game.mistakes.values()][place]
    seen = part(runs, key_of(seed, game.name, place))
    return lower_bound(*seen, claim=game.claim, failure=failure)


def _played(game: Game, number: int, bounds: dict[tuple[int, int], Bound]) -> PlayedGame:
    mistakes = [(name, bounds[number, 1 + place]) for place, name in enumerate(game.mistakes)]
    return PlayedGame(
        name=game.name,
        description=game.description,
        claim=game.claim,
        bound=bounds[number, 0],
        mistakes=tuple(
            PlayedMistake(name=name, bound=bound, is_noticed=bound.largest > game.claim.epsilon)
            for name, bound in mistakes
        ),
    )


def statements(audit: Audit) -> Sequence[str]:
    """Returns what an audit shows, and what it does not show, in sentences."""
    if audit.verdict == EXCEEDED:
        names = ", ".join(each.name for each in audit.games if each.exceeds)
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


def _bound_dict(bound: Bound) -> dict[str, Any]:
    return {
        "epsilon_at_least": bound.epsilon,
        "gaussian_epsilon_at_least": bound.gaussian_epsilon,
    }
