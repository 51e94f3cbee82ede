"""Plays all games of a plan, bounds ε from below by their runs, and states what they show.

From half of the runs an attacker chooses a statistic and an event, "the statistic is at least x". The
other half, which the choice has not seen, bounds the probabilities of this event in both worlds. Both
directions count: events that are likelier with the user, and events that are likelier without.

A lower bound above the claim shows, up to the stated confidence, that the mechanism as it runs does not
keep its promise. Bounds below the claim show only that these attacks, with so many runs, found nothing:
they prove no guarantee. Planted mistakes show how much such a finding is worth, since an attack that
does not notice a known mistake would not have noticed an unknown one of its kind either.
"""

import dataclasses
from collections.abc import Callable, Generator, Sequence
from typing import Any, NamedTuple

import numpy as np
from scipy import special, stats

from beam_dpne.audit.games import MECHANISM, Claim, Game, Seen, bayesian_games, key_of, phrase_games
from beam_dpne.audit.series_games import AuditedSeries, series_game
from beam_dpne.audit.text_games import gram_games, union_games
from beam_dpne.bayesian.plan import ProbabilitiesPlan
from beam_dpne.elements.processes import answers
from beam_dpne.errors import UsageError
from beam_dpne.ngrams.plan import NgramsPlan
from beam_dpne.phrase_counts.plan import PhraseCountsPlan
from beam_dpne.set_union.plan import SetUnionPlan

DEFAULT_RUNS = 20_000
PASSED = "passed"
EXCEEDED = "exceeded"
WEAK = "weak"
Plan = NgramsPlan | SetUnionPlan | ProbabilitiesPlan | PhraseCountsPlan
_GRID = np.concatenate((np.linspace(0, 1, 201), 1 - np.geomspace(1e-4, 1e-2, 30)))
# Bounds of a game: two directions, and the probabilities of two worlds in each.
_PROBABILITIES = 4
# Lower bounds on P(E) and upper bounds on Q(E) to the size of the violation that they show.
_Violation = Callable[[np.ndarray, np.ndarray], np.ndarray]


class Bound(NamedTuple):
    """What many runs show, each with the confidence that was asked for.

    Attributes:
      epsilon: ε is at least this, at the claim's δ, whatever the mechanism is.
      gaussian_epsilon: ε is at least this if the noise is Gaussian, from a bound on μ.
    """

    epsilon: float
    gaussian_epsilon: float


def lower_bound(seen: Seen, claim: Claim, *, failure: float) -> Bound:
    """Returns what runs show of a claim.

    Args:
      seen: what the attacker sees.
      claim: the claim.
      failure: the probability, at most, that one of the bounds is above the true value.

    Example:
      >>> never, always = np.zeros((200, 1)), np.ones((200, 1))
      >>> claim = Claim(mu=1.0, gaussian_delta=0.01)
      >>> round(lower_bound(Seen(always, never), claim, failure=2e-3).epsilon, 3)
      2.437
    """

    def of_epsilon(low: np.ndarray, high: np.ndarray) -> np.ndarray:
        return np.log(np.maximum(low - claim.delta, high) / high)

    def of_mu(low: np.ndarray, high: np.ndarray) -> np.ndarray:
        low = np.maximum(low - claim.alone_delta, 0.0)
        high = np.minimum(high + claim.alone_delta, 1.0)
        shown = (low > 0) & (high < 1)
        low = np.where(shown, low, 0.5)
        high = np.where(shown, high, 0.5)
        return np.maximum(special.ndtri(low) - special.ndtri(high), 0.0)

    epsilon, mu = (_at_least(seen, each, failure / 2) for each in (of_epsilon, of_mu))
    return Bound(epsilon, dataclasses.replace(claim, mu=mu).epsilon if mu > 0 else 0.0)


def _at_least(seen: Seen, violation: _Violation, failure: float) -> float:
    """Chooses an event for each direction on one half of the runs, and bounds it on the other."""
    with_user, without = seen
    half = len(with_user) // 2
    error = failure / _PROBABILITIES
    best = 0.0
    for likely, rare in ((with_user, without), (-without, -with_user)):
        found = -1.0
        place = 0
        cut = np.zeros(1)
        for column in range(likely.shape[1]):
            pair = likely[:half, column], rare[:half, column]
            cuts = np.unique(np.quantile(np.concatenate(pair), _GRID))
            reached = violation(*probability_bounds(*pair, cuts, error=error))
            if reached.max() > found:
                found = reached.max()
                place = column
                cut = cuts[[int(np.argmax(reached))]]
        judged = probability_bounds(likely[half:, place], rare[half:, place], cut, error=error)
        best = max(best, float(violation(*judged)[0]))
    return best


def probability_bounds(
    likely: np.ndarray, rare: np.ndarray, cuts: np.ndarray, *, error: float
) -> tuple[np.ndarray, np.ndarray]:
    """Bounds P(likely ≥ cut) from below and P(rare ≥ cut) from above, for each cut.

    Args:
      likely: (n,) float64.
      rare: (m,) float64.
      cuts: (c,) float64.
      error: the probability, at most, with which each bound is wrong.

    Returns:
      (c,) float64 in [0, 1) and (c,) float64 in (0, 1].

    References: Clopper & Pearson 1934.
    """
    hits, false_hits = (
        values.size - np.searchsorted(np.sort(values), cuts) for values in (likely, rare)
    )
    low = stats.beta.ppf(error, np.maximum(hits, 1), likely.size - hits + 1)
    low = np.where(hits > 0, low, 0.0)
    rest = rare.size - false_hits
    high = np.where(rest > 0, stats.beta.isf(error, false_hits + 1, np.maximum(rest, 1)), 1.0)
    return low, high


class Finding(NamedTuple):
    """What one attack shows of the mechanism, or of the mechanism with a planted mistake.

    Attributes:
      attack_on: the name of the game.
      run_with: `MECHANISM`, or the mistake.
      epsilon, gaussian_epsilon: the lower bounds, as in `Bound`.
      claim, delta: the claimed ε, at this δ.
      is_above: whether a bound is above the claim, so that a mistake is noticed.
    """

    attack_on: str
    run_with: str
    epsilon: float
    gaussian_epsilon: float
    claim: float
    delta: float
    is_above: bool


@dataclasses.dataclass(frozen=True, kw_only=True)
class Audit:
    """All games of a plan.

    Attributes:
      plan: the plan.
      runs: the number of runs of each world of each game.
      confidence: the probability, at least, with which all bounds hold together.
      seed: the seed of all runs.
      findings: what each attack shows.
    """

    plan: Plan
    runs: int
    confidence: float
    seed: int
    findings: tuple[Finding, ...]

    @property
    def exceeding(self) -> list[str]:
        """The games in which the mechanism shows more than its claim."""
        return [x.attack_on for x in self.findings if x.run_with == MECHANISM and x.is_above]

    @property
    def missed(self) -> list[str]:
        """The planted mistakes that were not noticed."""
        return [x.run_with for x in self.findings if x.run_with != MECHANISM and not x.is_above]

    @property
    def verdict(self) -> str:
        """EXCEEDED if a bound is above its claim, else WEAK if a mistake was missed, else PASSED."""
        if self.exceeding:
            return EXCEEDED
        return WEAK if self.missed else PASSED

    def to_dict(self) -> dict[str, Any]:
        """Returns everything as JSON types."""
        findings = [finding._asdict() for finding in self.findings]
        facts = vars(self) | {"plan": self.plan.to_dict(), "findings": findings}
        return {**facts, "verdict": self.verdict}


def games_of(plan: Plan) -> tuple[Game, ...]:
    """Returns all games of a plan."""
    if isinstance(plan, NgramsPlan):
        return gram_games(plan)
    if isinstance(plan, SetUnionPlan):
        return union_games(plan)
    return phrase_games(plan) if isinstance(plan, PhraseCountsPlan) else bayesian_games(plan)


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
      processes: how many plays are made at once; they change no result.

    Example:
      >>> plan = ProbabilitiesPlan(epsilon=2, delta=1e-5)
      >>> audit = audit_plan(plan, runs=4000)
      >>> audit.verdict, audit.missed
      ('passed', [])
    """
    return _audited(
        plan,
        games_of(plan),
        runs=runs,
        confidence=confidence,
        seed=seed,
        processes=processes,
    )


def audit_series(
    whole: Plan,
    of_each: Plan,
    series: AuditedSeries,
    *,
    runs: int = DEFAULT_RUNS,
    confidence: float = 0.99,
    seed: int = 1,
    processes: int = 1,
) -> Audit:
    """Plays the game of a series: a user who is in the input of every release, or of none.

    Args:
      whole: a plan with ε and δ of the whole series.
      of_each: the plan of each release.
      series: how many releases there are, and in how many of them a user takes part.
      runs: as for `audit_plan`.
      confidence: as for `audit_plan`.
      seed: as for `audit_plan`.
      processes: as for `audit_plan`.

    Raises:
      UsageError: the plan measures no noisy numbers, which are attacked.
    """
    if isinstance(whole, NgramsPlan | SetUnionPlan) and whole.count_noise is None:
        raise UsageError(
            "`count_share` must be above 0 for the audit of a series, which attacks the numbers of "
            f"users, got `count_share={whole.count_share:g}`."
        )
    # The game of noisy numbers is the last one of every plan.
    game = series_game(games_of(of_each)[-1], games_of(whole)[-1].claim, series)
    return _audited(
        whole, (game,), runs=runs, confidence=confidence, seed=seed, processes=processes
    )


def _audited(
    plan: Plan,
    games: Sequence[Game],
    *,
    runs: int,
    confidence: float,
    seed: int,
    processes: int,
) -> Audit:
    """Plays games as they are, and with each of their planted mistakes."""
    plays = [(game, name) for game in games for name in game.plays]
    failure = (1 - confidence) / len(plays)

    def play(place: int) -> Generator[tuple[int, Finding], None, None]:
        yield place, _play(*plays[place], runs=runs, seed=seed, failure=failure)

    found = dict(answers(play, range(len(plays)), processes))
    findings = tuple(found[place] for place in range(len(plays)))
    return Audit(plan=plan, runs=runs, confidence=confidence, seed=seed, findings=findings)


def _play(game: Game, name: str, *, runs: int, seed: int, failure: float) -> Finding:
    """Plays a game as it is or with a mistake."""
    seen = game.plays[name](runs, key_of(seed, game.name, list(game.plays).index(name)))
    bound = lower_bound(seen, game.claim, failure=failure)
    claim = game.claim
    is_above = max(bound) > claim.epsilon
    return Finding(game.name, name, *bound, claim.epsilon, claim.delta, is_above)


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
    mistakes = "1 planted mistake" if count == 1 else f"{count} planted mistakes"
    return (
        *found,
        f"The power was too low: {mistakes} went unnoticed "
        f"with {audit.runs:,} runs, so this audit says little there. Give more --runs.",
    )
