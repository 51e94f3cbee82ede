"""Audits of plans: nothing is found where nothing is wrong, and mistakes are, planted here or there."""

import dataclasses

import numpy as np
import pytest

from beam_dpne import BayesianPlan, PrivacyPlan, SetUnionPlan
from beam_dpne.audit.auditing import EXCEEDED, PASSED, WEAK, audit_plan, games_of, statements
from beam_dpne.audit.count_games import count_games
from beam_dpne.audit.games import key_of
from beam_dpne.audit.gram_games import gram_claim
from beam_dpne.audit.union_games import union_claim
from beam_dpne.bayesian import counting
from beam_dpne.counts import measuring
from beam_dpne.mechanism import cells
from beam_dpne.set_union.policies import POLICIES

FEW = 200
RUNS = 20_000


def grams(**parameters):
    return PrivacyPlan(**{"epsilon": 4, "delta": 1e-7, "max_length": 2} | parameters)


def union(policy, **parameters):
    return SetUnionPlan(
        **{"epsilon": 4, "delta": 1e-7, "policy": policy, "max_contributions": 8} | parameters
    )


PLANS = {
    "adaptive": grams(),
    "adaptive, trigrams": grams(max_length=3),
    "adaptive, words": grams(max_length=1),
    "adaptive, even": grams(user_budgets="even", rounds=2),
    "one_round, single": grams(strategy="one_round", pruning="single", max_length=3),
    "adaptive, no counts": grams(count_share=0),
    "adaptive, one n-gram": grams(max_contributions=1),
    "one_round": grams(strategy="one_round", max_length=7),
    "one_round, words": grams(strategy="one_round", max_length=1),
    "one_round, shares": grams(strategy="one_round", budget_shares=(0.3, 0.7)),
    "one_round, growth": grams(strategy="one_round", noise_growth=0.8),
    "one_round, estimate": grams(strategy="one_round", valid_count="estimate", max_length=3),
    **{policy: union(policy) for policy in POLICIES},
    "count, one item": union("count_laplace", max_contributions=1),
    "small epsilon": union("greedy", epsilon=0.05),
    "counts": BayesianPlan(epsilon=4, delta=1e-7),
    "log_global": BayesianPlan(epsilon=4, delta=1e-7, mode="log_global", decay=2.0),
}

# The others are played by the slow tests.
FEW_PLANS = [
    "adaptive, even",
    "one_round, single",
    "one_round",
    "one_round, estimate",
    *POLICIES,
    "small epsilon",
    "log_global",
]


@pytest.mark.parametrize("name", FEW_PLANS)
def test_few_runs_of_every_plan_show_no_more_than_it_claims(name):
    audit = audit_plan(PLANS[name], runs=FEW)
    assert audit.verdict != EXCEEDED
    assert audit.games
    assert all(each.mistakes for each in audit.games)


def test_games_follow_the_plan():
    def names(plan):
        return [game.name for game in games_of(plan)]

    counts = ["all lengths together", "numbers of users"]
    assert names(grams()) == ["words", "n-grams of one user", *counts]
    assert names(grams(max_length=1)) == ["words", *counts]
    assert names(grams(count_share=0))[-1] == "all lengths together"
    assert names(union("mad"))[:2] == ["items of many users", "items of one user"]


@pytest.mark.parametrize(
    ("plan", "parts"),
    [
        (grams(), [0.85, 0.85, 1, 0.15]),
        (grams(count_share=0), [1, 1, 1]),
        (grams(user_budgets="even", count_share=0.5), [0.25, 0.5, 1, 0.5]),
        (PLANS["one_round, shares"], [0.3 * 0.85, 0.85, 1, 0.15]),
        (grams(strategy="one_round", max_length=5), [0.17, 0.51, 1, 0.15]),
        (union("weighted_gaussian", count_share=0.5), [0.5, 0.5, 0.5]),
        (union("weighted_gaussian", count_share=0), [1, 1]),
    ],
)
def test_a_game_claims_the_part_of_the_budget_that_the_attacker_sees(plan, parts):
    whole = gram_claim(plan) if isinstance(plan, PrivacyPlan) else union_claim(plan)
    claims = [game.claim for game in games_of(plan)]
    for claim, part in zip(claims, parts, strict=True):
        assert claim.mu == pytest.approx(whole.mu * part**0.5)
        assert 0 < claim.epsilon < 4 or (part == 1 and claim.epsilon == pytest.approx(4))


def test_items_with_laplace_noise_claim_what_counts_leave():
    items, alone, counts = (game.claim for game in games_of(union("greedy", count_share=0.25)))
    assert (items.epsilon, items.delta) == (alone.epsilon, alone.delta) == (3, 0.75e-7)
    assert counts.delta == 0.25e-7


@pytest.mark.parametrize("policy", ["weighted_gaussian", "weighted_laplace"])
def test_a_share_that_is_spent_twice_is_planted_where_it_can_be_noticed(policy):
    def names(share):
        items, *_ = games_of(union(policy, count_share=share))
        return [mistake.name for mistake in items.mistakes]

    spent = "Items have the whole budget, though numbers of users have a share of it."
    assert spent in names(0.5)
    assert spent not in names(None) + names(0)
    audit = audit_plan(union(policy, count_share=0.5), runs=4000)
    assert audit.verdict != EXCEEDED
    assert spent not in [mistake.name for _, mistake in audit.missed]


@pytest.mark.parametrize(
    ("plan", "least"),
    [
        (union("weighted_gaussian"), {"items of many users": 2.6}),
        (union("weighted_laplace"), {"items of many users": 3.0}),
        (union("screened_gaussian"), {"items of many users": 2.0}),
        (BayesianPlan(epsilon=4, delta=1e-7, max_contributions=2), {"counts of one user": 2.6}),
    ],
)
def test_enough_runs_come_near_the_claim_and_notice_every_planted_mistake(plan, least):
    audit = audit_plan(plan, runs=RUNS)
    assert audit.verdict == PASSED, audit.missed
    shown = {each.game.name: each.bound.largest for each in audit.games}
    for name, bound in least.items():
        assert bound < shown[name]


@pytest.mark.slow
@pytest.mark.parametrize("name", PLANS)
def test_many_runs_of_every_plan_show_no_more_than_it_claims(name):
    audit = audit_plan(PLANS[name], runs=50_000, confidence=0.999, seed=7)
    assert audit.verdict != EXCEEDED


@pytest.mark.slow
@pytest.mark.parametrize("strategy", ["adaptive", "one_round"])
def test_default_plans_pass_with_the_default_runs(strategy):
    audit = audit_plan(PrivacyPlan(epsilon=4, delta=1e-7, strategy=strategy))
    assert audit.verdict == PASSED
    shown = {each.game.name: each.bound.largest for each in audit.games}
    assert shown["all lengths together"] > 2.6
    assert shown["numbers of users"] > 0.6


def test_a_mistake_in_the_noise_of_probabilities_is_shown(monkeypatch):
    noise = counting.integer_noise.integer_normals
    monkeypatch.setattr(
        counting.integer_noise, "integer_normals", lambda draws, steps: noise(draws, steps / 4)
    )
    audit = audit_plan(BayesianPlan(epsilon=4, delta=1e-7), runs=4000)
    assert audit.verdict == EXCEEDED
    assert "above the claim" in statements(audit)[0]


def test_a_mistake_in_the_noise_of_n_grams_is_shown(monkeypatch):
    noise = cells.evidence_noise
    monkeypatch.setattr(
        cells, "evidence_noise", lambda bits, rule, stddev: noise(bits, rule, stddev / 4)
    )
    audit = audit_plan(grams(strategy="one_round", count_share=0), runs=4000)
    exceeding = [each.game.name for each in audit.games if each.exceeds]
    assert "all lengths together" in exceeding


def test_a_mistake_in_the_sums_of_users_is_shown(monkeypatch):
    monkeypatch.setattr(
        measuring, "user_factors", lambda squares: np.where(squares > 0, 2**32 // 256, 0)
    )
    plan = grams(strategy="one_round", max_length=1)
    audit = audit_plan(plan, runs=4000)
    assert [each.game.name for each in audit.games if each.exceeds] == ["numbers of users"]


def test_few_runs_are_called_weak():
    audit = audit_plan(BayesianPlan(epsilon=0.1, delta=1e-7), runs=200)
    assert audit.verdict == WEAK
    lines = " ".join(statements(audit))
    assert "proves no guarantee" in lines
    assert "The power was too low: 2 planted mistakes went unnoticed with 200 runs" in lines


def test_equal_seeds_give_equal_audits_and_other_seeds_others():
    plan = union("policy_gaussian")
    first, again, other = (audit_plan(plan, runs=FEW, seed=seed) for seed in (3, 3, 4))
    assert first.to_dict() == again.to_dict()
    assert first.to_dict()["games"] != other.to_dict()["games"]


def test_a_plan_of_another_kind_with_counts_has_their_game():
    """The game needs only `count_share` and `count_noise`."""
    other = dataclasses.make_dataclass("Other", ["count_share", "count_noise"])
    noise = grams().count_noise
    (game,) = count_games(other(0.15, noise), mu=0.77, gaussian_delta=1e-7)
    seen = game.play(FEW, key_of(1))
    assert seen.with_user.shape == seen.without.shape == (FEW, 1)
    assert seen.with_user.mean() > seen.without.mean()
    assert count_games(other(0.0, None), mu=0.77, gaussian_delta=1e-7) == ()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"runs": 199}, "runs must be"),
        ({"runs": 10**8}, "runs must be"),
        ({"runs": 300.5}, "runs must be"),
        ({"confidence": 1.0}, "confidence must be in"),
        ({"confidence": 0.0}, "confidence must be in"),
        ({"confidence": float("nan")}, "confidence must be in"),
        ({"seed": -1}, "seed must be"),
    ],
)
def test_wrong_arguments_are_refused_before_anything_is_played(arguments, message):
    reported = []
    with pytest.raises(ValueError, match=message):
        audit_plan(grams(), report=reported.append, **arguments)
    assert reported == []


def test_each_play_is_reported():
    reported = []
    audit_plan(BayesianPlan(epsilon=4, delta=1e-7), runs=FEW, report=reported.append)
    assert reported[0] == "play 1 of 3: counts of one user, as it is"
    assert reported[-1] == "play 3 of 3: counts of one user, with a planted mistake"
