"""Attacks on the measurement of numbers of users, alone and together with the release it is about.

The user has every released row, so that the sums have length 1 and the totals fill a class. The
attacker computes the exact likelihood ratio of the sums. Bounds as in `test_attack`; each test of the
right mechanism would fail falsely at random keys with probability 1e-3 at most.
"""

import numpy as np
import pytest

from beam_dpne import PrivacyPlan
from beam_dpne.audit.bounds import epsilon_at_least, lower_bound
from beam_dpne.audit.count_games import count_games, count_log_ratios, worst_number_of_rows
from beam_dpne.audit.games import key_of
from beam_dpne.audit.gram_games import gram_claim, gram_games
from beam_dpne.counts.rule import CountNoise, count_rule
from beam_dpne.mechanism.gaussian import gaussian_epsilon

RUNS = 60_000
TOGETHER_RUNS = 40_000
FAILURE = 1e-3
DELTA = 0.01
MU = 0.5
PLAN = PrivacyPlan(epsilon=1, delta=DELTA, max_length=1, count_share=0.25)


def shown_by_sums(scores, seed):
    """The lower bound on ε at δ that the sums of a rule's rows show."""
    rule, noise = count_rule(scores), CountNoise.of_budget(MU)
    ratios = [
        count_log_ratios(
            rule, noise, present=present, runs=RUNS // 2, run_key=key_of(seed, present)
        )[:, np.newaxis]
        for present in (True, False)
    ]
    return epsilon_at_least(*ratios, delta=DELTA, failure=FAILURE)


@pytest.mark.parametrize(
    ("scores", "least"),
    [
        ([np.ones(1)], 0.5),
        ([np.ones(worst_number_of_rows())], 0.5),
        ([np.array([900.0, 30.0, 1.0])], 0.4),
        ([np.array([50.0, 9.0]), np.array([3.0]), np.array([1.0, 1.0])], 0.4),
    ],
)
def test_a_user_with_every_row_shows_less_than_epsilon(scores, least):
    epsilon = gaussian_epsilon(delta=DELTA, noise_stddev=1 / MU)
    assert least * epsilon < shown_by_sums(scores, seed=len(scores)) < epsilon


def test_sums_show_less_than_their_share_and_each_planted_mistake_shows_more():
    claim = gram_claim(PLAN)
    (game,) = count_games(PLAN, mu=claim.mu, gaussian_delta=claim.gaussian_delta)
    claimed = game.claim.epsilon

    def shown(play):
        return lower_bound(*play(RUNS, key_of(1)), claim=game.claim, failure=FAILURE).epsilon

    assert 0.5 * claimed < shown(game.play) < claimed
    assert len(game.mistakes) == 3
    for mistake in game.mistakes:
        assert shown(mistake.play) > 1.2 * claimed, mistake.name


@pytest.mark.parametrize("strategy", ["adaptive", "one_round"])
def test_a_release_and_its_sums_together_show_less_than_epsilon(strategy):
    """The last mistake gives the sums the whole budget, beside what the release has."""
    plan = PrivacyPlan(epsilon=1, delta=DELTA, max_length=2, strategy=strategy, count_share=0.15)
    (game,) = (each for each in gram_games(plan) if each.name == "all lengths together")

    def shown(play):
        seen = play(TOGETHER_RUNS, key_of(2))
        bound = lower_bound(*seen, claim=game.claim, failure=FAILURE)
        return bound.gaussian_epsilon

    assert 0.5 < shown(game.play) < 1
    share = game.mistakes[-1]
    assert "ignores their share" in share.name
    for mistake in (game.mistakes[0], share):
        assert shown(mistake.play) > 1.05, mistake.name
