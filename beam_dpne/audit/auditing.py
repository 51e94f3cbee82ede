"""Plays all games of a plan, and states what they show.

A lower bound above the claim shows, up to the stated confidence, that the mechanism as it runs does not
keep its promise. Bounds below the claim show only that these attacks, with so many runs, found nothing:
they prove no guarantee. Planted mistakes show how much such a finding is worth, since an attack that
does not notice a known mistake would not have noticed an unknown one of its kind either.
"""

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

from beam_dpne.audit.bayesian_games import bayesian_games
from beam_dpne.audit.bounds import Bound, lower_bound
from beam_dpne.audit.games import Game, Play, key_of
from beam_dpne.audit.gram_games import gram_games
from beam_dpne.audit.union_games import union_games
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
      game: the game.
      bound: the lower bounds of the mechanism as it is.
      mistakes: those of planted mistakes.
    """

    game: Game
    bound: Bound
    mistakes: tuple[PlayedMistake, ...]

    @property
    def exceeds(self) -> bool:
        """Whether the mechanism shows more than its claim."""
        return self.bound.largest > self.game.claim.epsilon


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
                    "name": each.game.name,
                    "description": each.game.description,
                    "claim": {"epsilon": each.game.claim.epsilon, "delta": each.game.claim.delta},
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
    report: Callable[[str], None] = lambda _: None,
) -> Audit:
    """Plays all games of a plan on made-up data, by the kernels of the product.

    Args:
      plan: a plan of any program.
      runs: the number of runs of each world of each game, 200 to 10,000,000. Half of them choose the
        event, and the other half judges it.
      confidence: in (0, 1), for all bounds together: each of them gets an equal part of the rest.
      seed: at least 0; equal arguments give equal results.
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
    if not 0 < confidence < 1:
        raise ValueError(f"confidence must be in (0, 1), got confidence={confidence}.")
    games = games_of(plan)
    count = sum(1 + len(game.mistakes) for game in games)
    failure = (1 - confidence) / count
    number = 0

    def play(game: Game, part: Play, mistake: int) -> Bound:
        nonlocal number
        number += 1
        planted = "with a planted mistake" if mistake else "as it is"
        report(f"play {number} of {count}: {game.name}, {planted}")
        seen = part(runs, key_of(seed, game.name, mistake))
        return lower_bound(*seen, claim=game.claim, failure=failure)

    played = []
    for game in games:
        bound = play(game, game.play, 0)
        mistakes = []
        for place, mistake in enumerate(game.mistakes, start=1):
            shown = play(game, mistake.play, place)
            mistakes.append(
                PlayedMistake(
                    name=mistake.name, bound=shown, is_noticed=shown.largest > game.claim.epsilon
                )
            )
        played.append(PlayedGame(game=game, bound=bound, mistakes=tuple(mistakes)))
    return Audit(plan=plan, runs=runs, confidence=confidence, seed=seed, games=tuple(played))


def statements(audit: Audit) -> Sequence[str]:
    """Returns what an audit shows, and what it does not show, in sentences."""
    if audit.verdict == EXCEEDED:
        names = ", ".join(each.game.name for each in audit.games if each.exceeds)
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
