"""Words by a policy of set union, as the first length of n-grams."""

import dataclasses
import json
import math

import apache_beam as beam
import pytest
from apache_beam.runners.portability.fn_api_runner import FnApiRunner
from apache_beam.testing.util import assert_that, equal_to

from beam_dpne.mechanism.gaussian import compose_noise_stddevs, gaussian_delta
from beam_dpne.mechanism.randomness import RunKey
from beam_dpne.ngrams.decoding import DecodeGrams
from beam_dpne.ngrams.plan import UNION_SLACK, PrivacyPlan
from beam_dpne.ngrams.transform import PrivateNgrams
from beam_dpne.ngrams.vocabulary import union_plan
from beam_dpne.set_union.ledger import promises
from beam_dpne.set_union.policies import VOCABULARY_POLICIES
from tests.support.refusals import not_refused

BUDGET = {"epsilon": 4.0, "delta": 1e-6, "max_length": 3}
UNIONS = [name for name in VOCABULARY_POLICIES if name not in ("rounds", "public")]


def plans(policies):
    """Plans of both strategies whose words a set union finds."""
    all_plans = (
        PrivacyPlan(**BUDGET, strategy=strategy, vocabulary_policy=policy)
        for strategy in ("adaptive", "one_round")
        for policy in policies
    )
    return [
        pytest.param(plan, id=f"{plan.strategy}-{plan.vocabulary_policy}")
        for plan in all_plans
        if plan.has_union_vocabulary
    ]


@pytest.mark.parametrize("plan", plans(UNIONS))
def test_under_gaussian_noise_the_parts_compose_to_one_gaussian_mechanism(plan):
    union = union_plan(plan)
    words = union.composed_noise_scale / union.sensitivity
    if plan.strategy_value.has_user_budgets:
        longer = [(plan.allotment / 2**56) ** -0.5]
    else:
        longer = [length.noise_stddev for length in plan.lengths[1:]]
    counts = [plan.count_noise.row_stddev, plan.count_noise.group_stddev]
    together = compose_noise_stddevs([words, *longer, *counts])
    assert plan.noise_stddev * (1 - 1e-9) <= together <= 1.001 * plan.noise_stddev
    rest = plan.epsilon - plan.numerical_slack
    assert gaussian_delta(epsilon=rest, noise_stddev=together) <= plan.gaussian_delta
    kept = union.delta - union.usable_delta * math.exp(union.numerical_slack)
    assert union.vocabulary_delta + kept <= plan.vocabulary_delta
    assert plan.gaussian_delta + plan.vocabulary_delta <= plan.delta


@pytest.mark.parametrize("plan", plans(UNIONS))
def test_the_slack_of_the_words_is_in_the_run_s(plan):
    public = dataclasses.replace(plan, vocabulary_policy="public", vocabulary_delta_share=None)
    assert union_plan(plan).numerical_slack <= UNION_SLACK
    # The longer n-grams need as much as they do beside words that cost nothing.
    assert public.numerical_slack + UNION_SLACK <= plan.numerical_slack


def test_a_union_with_more_slack_than_the_run_keeps_for_it_is_refused():
    plan = PrivacyPlan(
        **BUDGET,
        vocabulary_policy="weighted_gaussian",
        max_contributions=9_000_000,
        max_tokens_per_user=10_000_000,
    )
    with pytest.raises(ValueError, match=r"must be so small that the words. numerical slack"):
        union_plan(plan)


@pytest.mark.parametrize("plan", plans(UNIONS))
def test_what_many_users_share_is_released_under_every_policy(plan):
    documents = [(f"u{i}", "Good morning dear friend") for i in range(1000)]
    quiet = PrivacyPlan(
        **{**json.loads(plan.to_json()), "spurious_fraction": 1e-9, "max_contributions": 4}
    )
    words = ["good", "morning", "dear", "friend"]
    wanted = [" ".join(words[i : i + k]) for k in (1, 2, 3) for i in range(5 - k)]
    with beam.Pipeline(runner=FnApiRunner()) as pipeline:
        ngrams = PrivateNgrams(plan=quiet, run_key=RunKey(bytes(32)), partitions=2)
        found = (pipeline | beam.Create(documents) | ngrams).released | DecodeGrams()
        released = found | beam.FlatMap(lambda batch: batch.column("ngram").to_pylist())
        assert_that(released, equal_to(wanted))


@pytest.mark.parametrize("strategy", ["adaptive", "one_round"])
def test_the_operators_promise_reaches_the_words_and_their_ledger(strategy):
    few, many = (
        PrivacyPlan(
            **BUDGET, strategy=strategy, vocabulary_policy="screened_gaussian", max_users=users
        )
        for users in (10**5, 4 * 10**7)
    )
    assert [union_plan(plan).max_users for plan in (few, many)] == [10**5, 4 * 10**7]
    assert union_plan(few).numerical_slack < union_plan(many).numerical_slack
    assert union_plan(few).rounding_bound < union_plan(many).rounding_bound
    assert [union_plan(plan).shard_count for plan in (few, many)] == [1, 8]
    assert promises(union_plan(many))["promise"]["max_users"] == 4 * 10**7


def test_policies_that_no_promise_concerns_ignore_it():
    for policy in ("rounds", "weighted_gaussian"):
        few, many = (
            PrivacyPlan(**BUDGET, vocabulary_policy=policy, max_users=users) for users in (1, 2**30)
        )
        assert few.noise_stddev == many.noise_stddev
        assert few.lengths == many.lengths
        if few.has_union_vocabulary:
            assert union_plan(few).noise == union_plan(many).noise


def test_a_promise_that_is_no_number_of_users_is_refused_by_name():
    wrong = (0, -1, 2.5, "3", True, None, 2**31)
    cases = [(BUDGET | {"max_users": value}, "max_users must be an integer") for value in wrong]
    assert not_refused(PrivacyPlan, cases) == []


def test_a_promise_too_large_for_the_slack_is_refused_with_both_numbers():
    plan = PrivacyPlan(
        **BUDGET,
        vocabulary_policy="screened_gaussian",
        max_users=2**30,
        max_contributions=2000,
    )
    with pytest.raises(ValueError, match=r"max_contributions=2000 and max_users=1073741824"):
        union_plan(plan)


def test_rounds_are_of_the_adaptive_strategy_only():
    with pytest.raises(ValueError, match="vocabulary_policy must not be 'rounds'"):
        PrivacyPlan(**BUDGET, strategy="one_round", vocabulary_policy="rounds")


@pytest.mark.parametrize("policy", ["screened_gaussian", "weighted_gaussian"])
def test_words_alone_are_for_the_set_union_itself(policy):
    with pytest.raises(ValueError, match="max_length must be at least 2"):
        PrivacyPlan(epsilon=1, delta=1e-6, max_length=1, vocabulary_policy=policy)


def test_shares_of_the_paper_s_schedule_are_those_of_the_union():
    plan = PrivacyPlan(
        **BUDGET,
        strategy="one_round",
        vocabulary_policy="screened_gaussian",
        budget_shares=(0.5, 0.25, 0.25),
    )
    union = union_plan(plan)
    words = union.composed_noise_scale / union.sensitivity
    # Half of the budget that numbers of users leave.
    assert math.isclose(words, plan.noise_stddev / math.sqrt(0.85 * 0.5), rel_tol=1e-3)


@pytest.mark.parametrize("plan", plans(UNIONS))
def test_what_the_words_keep_for_floating_point_comes_out_of_their_own_delta(plan):
    """At δ = 1e-9 what is kept is large enough to see; words of one user alone have the rest."""
    small = dataclasses.replace(plan, delta=1e-9)
    union = union_plan(small)
    allowed = union.vocabulary_delta * math.exp(union.numerical_slack)
    kept = union.delta - union.usable_delta * math.exp(union.numerical_slack)
    assert kept > 0
    assert allowed + kept <= small.vocabulary_delta
    assert allowed + kept >= small.vocabulary_delta * (1 - 1e-4)
