"""Audits of plans: nothing is found where nothing is wrong, and mistakes are, planted here or there."""

import pytest

from beam_dpne import NgramsPlan, ProbabilitiesPlan, SetUnionPlan
from beam_dpne.accounting.composition import plan_of_share, share_of
from beam_dpne.audit.auditing import (
    EXCEEDED,
    PASSED,
    WEAK,
    audit_plan,
    audit_series,
    games_of,
    statements,
)
from beam_dpne.audit.games import MECHANISM, Claim
from beam_dpne.audit.series_games import AuditedSeries
from beam_dpne.bayesian import grams as counting
from beam_dpne.counts import measuring
from beam_dpne.mechanism import thresholds
from beam_dpne.phrase_counts.plan import PhraseCountsPlan

FEW = 200
RUNS = 20_000
BUDGET = {"epsilon": 4, "delta": 1e-7}


def grams(**parameters):
    return NgramsPlan(**{"epsilon": 4, "delta": 1e-7, "max_length": 2} | parameters)


def union(policy, **parameters):
    return SetUnionPlan(
        **{"epsilon": 4, "delta": 1e-7, "policy": policy, "max_contributions": 8} | parameters
    )


PLANS = {
    "adaptive": grams(),
    "adaptive, trigrams": grams(max_length=3, count_share=0),
    "one_round": grams(strategy="one_round", max_length=4),
    "one_round, shares": grams(strategy="one_round", budget_shares=(0.3, 0.7)),
    "words": grams(max_length=1),
    "screened": union("screened_gaussian"),
    "policy": union("policy_gaussian"),
    "weighted": union("weighted_gaussian", count_share=0.5),
    "sips": union("sips", count_share=0),
    "small epsilon": union("weighted_gaussian", epsilon=0.2),
    "counts": ProbabilitiesPlan(epsilon=4, delta=1e-7),
}


def largest(audit):
    """The larger bound that each game shows of the mechanism itself."""
    own = [each for each in audit.findings if each.run_with == MECHANISM]
    return {each.attack_on: max(each.epsilon, each.gaussian_epsilon) for each in own}


@pytest.mark.parametrize("name", PLANS)
def test_few_runs_of_every_plan_show_no_more_than_it_claims(name):
    audit = audit_plan(PLANS[name], runs=FEW)
    assert audit.verdict != EXCEEDED
    names = [game.name for game in games_of(PLANS[name])]
    attacked = [each.attack_on for each in audit.findings]
    assert names
    assert all(attacked.count(each) > 1 for each in names)


@pytest.mark.parametrize(
    ("plan", "expected"),
    [
        (
            grams(),
            [
                "words",
                "words of groups",
                "known words",
                "n-grams of one user",
                "n-grams of many users",
                "numbers of users",
            ],
        ),
        (grams(max_length=1), ["words", "words of groups", "known words", "numbers of users"]),
        (grams(max_length=1, count_share=0, strategy="one_round"), ["words", "words of groups"]),
        (union("sips"), ["items", "numbers of users"]),
        (ProbabilitiesPlan(epsilon=4, delta=1e-7), ["counts of one user"]),
    ],
)
def test_games_follow_the_plan(plan, expected):
    assert [game.name for game in games_of(plan)] == expected


@pytest.mark.parametrize(
    ("plan", "parts"),
    [
        (grams(), [0.85, 0.85, 0.85, 0.85, 0.85, 0.15]),
        (grams(count_share=0), [1, 1, 1, 1, 1]),
        (PLANS["one_round, shares"], [0.3 * 0.85, 0.3 * 0.85, 0.85, 0.85, 0.15]),
        (grams(strategy="one_round", max_length=5), [0.17, 0.17, 0.51, 0.34, 0.15]),
    ],
)
def test_a_game_claims_the_part_of_the_budget_that_the_attacker_sees(plan, parts):
    whole = Claim.of_plan(plan.epsilon, plan.delta, plan.vocabulary_delta_share)
    for claim, part in zip([game.claim for game in games_of(plan)], parts, strict=True):
        assert claim.mu == pytest.approx(whole.mu * part**0.5)
        assert 0 < claim.epsilon < 4 or (part == 1 and claim.epsilon == pytest.approx(4))


@pytest.mark.parametrize(
    ("plan", "least"),
    [
        (union("weighted_gaussian", count_share=0), {"items": 2.0}),
        (
            ProbabilitiesPlan(epsilon=4, delta=1e-7, max_contributions=2),
            {"counts of one user": 2.6},
        ),
    ],
)
def test_enough_runs_come_near_the_claim_and_notice_every_planted_mistake(plan, least):
    audit = audit_plan(plan, runs=RUNS)
    assert audit.verdict == PASSED, audit.missed
    shown = largest(audit)
    assert all(shown[name] > bound for name, bound in least.items())


@pytest.mark.parametrize("times", [1, 3])
def test_the_audit_of_a_series_comes_near_its_claim_and_notices_one_release_more(
    times,
):
    """One release more, by a wrong number or by a release that failed and is not counted."""
    whole = ProbabilitiesPlan(epsilon=4, delta=1e-6, max_contributions=2)
    of_each = plan_of_share(whole, share_of(whole.epsilon, whole.delta, times))
    audit = audit_series(whole, of_each, AuditedSeries(times + 2, times), runs=30_000)
    assert audit.verdict == PASSED, audit.missed
    assert len(audit.findings) == 3
    assert largest(audit)["counts of one user, in a series"] > 2.8


@pytest.mark.parametrize(
    "plan", [grams(max_length=1), union("sips"), PLANS["counts"], PhraseCountsPlan(**BUDGET)]
)
def test_few_runs_of_a_series_of_every_program_show_no_more_than_it_claims(plan):
    of_each = plan_of_share(plan, share_of(plan.epsilon, plan.delta, 2))
    audit = audit_series(plan, of_each, AuditedSeries(3, 2), runs=FEW)
    assert audit.verdict != EXCEEDED
    # The claim is that of the whole series for what is attacked.
    assert audit.findings[0].claim == games_of(plan)[-1].claim.epsilon
    # Who takes part follows from no secret of the play, so equal seeds give equal results.
    assert audit == audit_series(plan, of_each, AuditedSeries(3, 2), runs=FEW)


@pytest.mark.slow
@pytest.mark.parametrize("strategy", ["adaptive", "one_round"])
def test_default_plans_pass_with_the_default_runs(strategy):
    audit = audit_plan(NgramsPlan(epsilon=4, delta=1e-7, strategy=strategy), processes=2)
    assert audit.verdict == PASSED, audit.missed
    shown = largest(audit)
    assert shown["n-grams of many users"] > 1.5
    assert shown["numbers of users"] > 0.6


def test_a_mistake_in_the_noise_of_probabilities_is_shown(monkeypatch):
    noise = counting.randomness.integer_normals
    monkeypatch.setattr(
        counting.randomness, "integer_normals", lambda draws, steps: noise(draws, steps / 4)
    )
    audit = audit_plan(ProbabilitiesPlan(epsilon=4, delta=1e-7), runs=4000)
    assert audit.verdict == EXCEEDED
    assert "above the claim" in statements(audit)[0]


def test_a_mistake_in_the_noise_of_n_grams_is_shown(monkeypatch):
    noise = thresholds.evidence_noise
    monkeypatch.setattr(
        thresholds, "evidence_noise", lambda bits, rule, stddev: noise(bits, rule, stddev / 4)
    )
    audit = audit_plan(grams(strategy="one_round", count_share=0), runs=2000)
    assert "n-grams of many users" in audit.exceeding


def test_a_mistake_in_the_sums_of_users_is_shown(monkeypatch):
    monkeypatch.setattr(measuring, "_ROW_UNITS", 4 * measuring._ROW_UNITS)
    audit = audit_plan(grams(strategy="one_round", max_length=1), runs=4000)
    assert audit.exceeding == ["numbers of users"]


def test_few_runs_are_called_weak():
    audit = audit_plan(ProbabilitiesPlan(epsilon=0.1, delta=1e-7), runs=200)
    assert audit.verdict == WEAK
    lines = " ".join(statements(audit))
    assert "proves no guarantee" in lines
    assert "2 planted mistakes went unnoticed with 200 runs" in lines


def test_equal_seeds_give_equal_audits_and_other_seeds_others():
    plan = ProbabilitiesPlan(epsilon=4, delta=1e-7, max_contributions=2)
    first, again, other = (audit_plan(plan, runs=FEW, seed=seed) for seed in (3, 3, 4))
    assert first.to_dict() == again.to_dict()
    assert first.findings != other.findings
