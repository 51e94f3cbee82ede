"""An attack on n-gram probabilities: far over ε on the paper's mechanism, below it on ours.

Two worlds: 5,000 users who hold words 1 to 49 of 50, and the same with one user more who holds word 50,
or a user who moves everything as far as one can. The attacker knows everybody else, and sees what is
released: of the paper θ, of the private modes the noisy values (of which θ is a function). It looks at
how far the released logarithms are spread about those expected (the paper's noise follows the database)
and at the likelihood ratio along the difference of the worlds.

From half of the runs the attacker chooses a statistic and an event; from the other half comes a
Clopper–Pearson bound. Had the keys been random, a test of a private mode would fail falsely with
probability 1e-6 at most; they are fixed.
"""

import dataclasses

import numpy as np
import pytest

from beam_dpne.audit import bounds
from beam_dpne.bayesian import counting, paper
from beam_dpne.bayesian.counting import UserGrams, add_up
from beam_dpne.bayesian.plan import SENSITIVITIES, BayesianPlan, CountingPlan, PaperBayesianPlan
from beam_dpne.mechanism.randomness import RunKey

EPSILON, DELTA = 1.0, 1e-2
FAILURE = 1e-6
RUNS = 6_000
WORDS = 50
PUBLIC = np.ones(WORDS)


LIMITS = {"length": 1, "max_contributions": WORDS, "vocabulary_size": WORDS}
BUDGET = {"epsilon": EPSILON, "delta": DELTA}


def plan_of(mode: str) -> BayesianPlan:
    return BayesianPlan(**BUDGET, **LIMITS, mode=mode)


def table_of(users: list[range]) -> tuple[np.ndarray, UserGrams]:
    """Sums and grams of users who hold each of some rows once."""
    grams = UserGrams(
        users=np.arange(2 * len(users), dtype=np.uint64).reshape(-1, 2),
        offsets=np.concatenate(([0], np.cumsum([len(rows) for rows in users]))),
        rows=np.concatenate([np.array(rows, np.int32) for rows in users]),
        counts=np.ones(sum(map(len, users)), np.int64),
    )
    table = np.zeros((WORDS, 2), np.int64)
    add_up(grams, table)
    return table, grams


def keys(runs: int, world: int):
    for run in range(runs):
        yield RunKey(f"attack {world} {run}".encode().ljust(32, b"."))


def paper_logs(users: list[range], plan: PaperBayesianPlan, runs: int, world: int) -> np.ndarray:
    """log θ of many runs, less its mean: (runs, words)."""
    table, grams = table_of(users)
    sums = paper.PaperSums(table)
    norms = paper.largest_norms(grams, np.zeros(len(users), bool), sums, PUBLIC, plan)
    found = [paper.sample(sums, norms, PUBLIC, plan, key)[0] for key in keys(runs, world)]
    logs = np.log(np.array(found))
    return logs - logs.mean(axis=1, keepdims=True)


def private_values(users: list[range], plan: BayesianPlan, runs: int, world: int) -> np.ndarray:
    """Noisy values of many runs, in units of counts or logarithms: (runs, words)."""
    table, _ = table_of(users)
    drawn = [counting.noisy_values(table, 0, plan=plan, run_key=key) for key in keys(runs, world)]
    return np.array(drawn) * plan.grid


def statistics(seen: np.ndarray, without: np.ndarray, difference: np.ndarray) -> np.ndarray:
    """Spread about what is expected without the user, and the likelihood ratio: (runs, 2)."""
    rest = seen - without
    return np.column_stack(((rest**2).sum(axis=1), rest @ difference))


def epsilon_at_least(with_user: np.ndarray, without: np.ndarray) -> float:
    """A lower bound on ε, in both directions."""
    return bounds.epsilon_at_least(with_user, without, delta=DELTA, failure=FAILURE)


def attack(mechanism, plan: CountingPlan, one: list[range], more: list[range], runs: int) -> float:
    seen = [mechanism(users, plan, runs, world) for world, users in enumerate((one, more))]
    half = runs // 2
    expected = [values[:half].mean(axis=0) for values in seen]
    difference = expected[1] - expected[0]
    without, with_user = (statistics(values, expected[0], difference) for values in seen)
    return epsilon_at_least(with_user, without)


CROWD = [range(49)] * 5000
# 99 users: with one more, N reaches C/S = 100, where the bound of "log_global" is attained.
FEW = [range(WORDS)] * 99


@pytest.mark.parametrize("sensitivity", SENSITIVITIES)
def test_the_papers_mechanism_shows_far_more_than_epsilon(sensitivity):
    plan = PaperBayesianPlan(**BUDGET, **LIMITS, sensitivity=sensitivity)
    shown = attack(paper_logs, plan, CROWD, [*CROWD, range(49, 50)], 2000)
    assert shown > 4 * EPSILON


@pytest.mark.parametrize("mode", ["counts", "log_global"])
@pytest.mark.parametrize(
    ("users", "user"),
    [
        pytest.param(CROWD, range(49, 50), id="printed", marks=pytest.mark.slow),
        pytest.param(FEW, range(WORDS), id="worst"),
    ],
)
def test_the_private_modes_show_less_than_epsilon(mode, users, user):
    shown = attack(private_values, plan_of(mode), users, [*users, user], RUNS)
    assert shown < EPSILON
    # A user who moves everything as far as one can shows a good part of it.
    assert shown > 0.3 * EPSILON or len(user) == 1


@pytest.mark.parametrize("mode", ["counts", "log_global"])
def test_the_same_attack_finds_half_the_noise(mode):
    """The attack is not blind."""

    @dataclasses.dataclass(frozen=True, kw_only=True)
    class HalfTheNoise(BayesianPlan):
        @property
        def noise_steps(self) -> float:
            return super().noise_steps / 2

    half = HalfTheNoise(**plan_of(mode).to_dict())
    worst = (FEW, [*FEW, range(WORDS)])
    assert attack(private_values, half, *worst, RUNS) > EPSILON
