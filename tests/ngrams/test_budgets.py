"""What users send in whole runs, in exact integers: nobody ever spends more than the budget.

The package's kernels run on random corpora; of every user all weights are kept that were sent, over
all lengths and rounds.
"""

import collections
import dataclasses
import itertools
import random

import numpy as np
import pytest
from hypothesis import HealthCheck, event, given, settings
from hypothesis import strategies as st

from beam_dpne import NgramsPlan, RunKey
from beam_dpne.ngrams import adaptive
from beam_dpne.ngrams.spending import RoundOfLength, contribute
from beam_dpne.steps import SpendBudgets
from tests.ngrams.test_oracle import (
    KEY,
    RUN_KEYS,
    Release,
    adaptive_plans,
    corpora,
    run_kernels,
    shared_phrases,
    user_batches,
    zipf_texts,
)
from tests.support.arguments import not_refused

Place = tuple[int, int]
# For each user and place (length, round): gram → weight.
Sent = dict[tuple[tuple[int, ...], Place], dict[object, int]]

few_checks = settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))


def sent_weights(release) -> Sent:
    """Everything that users sent; a word is named by itself, a longer gram by its packed pair."""
    weights: Sent = {}
    for place, batches in release.sent.items():
        for batch in batches:
            names = batch.keys.tolist()
            if batch.words is not None:
                names = batch.words.take(batch.keys).to_pylist()
            bounds = itertools.pairwise(batch.offsets.tolist())
            for user, (start, stop) in zip(batch.users.tolist(), bounds, strict=True):
                assert (tuple(user), place) not in weights, "a user is in one batch only"
                own = zip(names[start:stop], batch.weights[start:stop].tolist(), strict=True)
                if stop > start:
                    weights[tuple(user), place] = dict(own)
    return weights


def squares_of(sent: Sent) -> dict[tuple[int, ...], int]:
    """Σ w² of each user, exactly, in units of 2^-64."""
    squares: collections.Counter = collections.Counter()
    for (user, _), weights in sent.items():
        squares[user] += sum(weight**2 for weight in weights.values())
    return squares


def whole_budget(plan: NgramsPlan) -> int:
    """⌊μ²·2^56⌋."""
    return adaptive.user_budget(plan.ngrams_noise_stddev)


def any_run(documents, plan, run_key, rng):
    partitions = rng.randint(1, 5)
    return run_kernels(documents, plan, run_key, rng, partitions=partitions)


@given(corpora(), adaptive_plans(), RUN_KEYS, st.randoms(use_true_random=False))
@few_checks
def test_no_user_ever_sends_more_than_the_budget(documents, plan, run_key, rng):
    release = any_run(documents, plan, run_key, rng)
    sent = sent_weights(release)
    assert_all_rounds_together_are_within_the_budget(sent, plan)
    assert_no_more_grams_than_the_limit_have_weight(sent, plan)
    assert_each_round_of_words_costs_at_most_its_part_in_equal_weights(sent, plan)
    assert_what_is_left_is_the_budget_less_the_cost_of_what_was_sent(release, sent, plan)


def assert_all_rounds_together_are_within_the_budget(sent: Sent, plan: NgramsPlan) -> None:
    budget = whole_budget(plan)
    assert plan.allotment == budget
    squares = squares_of(sent)
    event(f"somebody sent something: {any(squares.values())}")
    assert max(squares.values(), default=0) <= budget * 2**8


def assert_no_more_grams_than_the_limit_have_weight(sent: Sent, plan: NgramsPlan) -> None:
    for (_, (length, _)), weights in sent.items():
        assert min(weights.values(), default=0) >= 0
        positive = sum(weight > 0 for weight in weights.values())
        assert positive <= plan.contribution_limits[length - 1]


def assert_each_round_of_words_costs_at_most_its_part_in_equal_weights(
    sent: Sent, plan: NgramsPlan
) -> None:
    """The threshold of words of one user alone needs both."""
    for (_, (length, number)), weights in sent.items():
        if length == 1:
            cap = adaptive.round_cap(plan.allotment, adaptive.WORD_ROUNDS[number - 1])
            assert sum(weight**2 for weight in weights.values()) <= cap * 2**8
            assert len({weight for weight in weights.values() if weight > 0}) <= 1


def assert_what_is_left_is_the_budget_less_the_cost_of_what_was_sent(
    release: Release, sent: Sent, plan: NgramsPlan
) -> None:
    costs: collections.Counter = collections.Counter()
    counts: collections.Counter = collections.Counter()
    for place in sorted(release.left):
        for (user, where), weights in sent.items():
            if where == place:
                costs[user] += -(-sum(weight**2 for weight in weights.values()) // 2**8)
        for user, left in release.left[place].items():
            # Counts of held candidates cost a little before the first round of a length.
            paid = plan.allotment - costs[user] - left
            assert left >= 0
            if place[0] == 1:
                assert paid == 0
            elif place[1] > 1:
                assert paid == counts[user]
            else:
                assert 0 <= paid - counts[user] <= 0.0301 * plan.allotment
            counts[user] = paid


@given(corpora(), adaptive_plans(), RUN_KEYS, st.randoms(use_true_random=False))
@settings(few_checks, max_examples=15)
def test_how_users_are_dealt_to_batches_and_a_rerun_change_no_weight(documents, plan, run_key, rng):
    def run(partitions):
        release = run_kernels(documents, plan, run_key, rng, partitions=partitions)
        return sent_weights(release), release.left

    weights, left = run(1)
    for others, others_left in (run(7), run(1)):
        assert others == weights
        # Users without a candidate may be there still or not, as others of their batch have some.
        for place in left:
            both = left[place].keys() & others_left[place].keys()
            assert {user: left[place][user] for user in both} == {
                user: others_left[place][user] for user in both
            }


@pytest.mark.parametrize("rounds", [1, 2, 3])
def test_a_user_with_open_grams_at_the_last_length_has_spent_everything(rounds):
    """Equality, but for rounding: each weight raised by two units would cost too much."""
    plan = NgramsPlan(
        epsilon=4,
        delta=0.1,
        max_length=3,
        rounds=rounds,
        spurious_fraction=0.1,
    )
    release = run_kernels(zipf_texts(users=150), plan, KEY, random.Random(1), partitions=3)
    sent, last = sent_weights(release), (3, rounds)
    squares = squares_of(sent)
    budget = whole_budget(plan)
    before = release.left.get((3, rounds - 1), {})
    spenders = [user for user, place in sent if place == last and sent[user, place]]
    assert len(spenders) > 20
    for user in spenders:
        had = before[user] if user in before else release.left[2, rounds][user]
        after = release.left[last][user]
        cost = -(-sum(w**2 for w in sent[user, last].values()) // 2**8)
        # What is neither sent nor left paid for a count of held candidates, before round 1.
        counted = had - after - cost
        assert 0 <= counted <= 0.03 * had * (rounds == 1) * (1 + 1e-6) + 1
        raised = sum((w + 2) ** 2 for w in sent[user, last].values() if w)
        assert raised >= (had - counted) * 2**8 * (1 - 2.0**-48)
        assert squares[user] <= budget * 2**8
    assert min(release.left[last][user] for user in spenders) < 2**32, "less than 2^-24 is left"


def test_a_user_of_one_word_reaches_the_budget_to_the_last_unit():
    """At T = 1 the first round gets a tenth; the key decides whether there is a last one."""
    plan = NgramsPlan(epsilon=6, delta=1e-2, max_length=1)
    budget, lasts = whole_budget(plan) * 2**8, 0
    cap = adaptive.round_cap(plan.allotment, adaptive.WORD_ROUNDS[0]) * 2**8
    for number in range(120):
        key = RunKey(bytes([number] * 32))
        release = run_kernels({"ann": [["a"]]}, plan, key, random.Random(1), partitions=1)
        sent = sent_weights(release)
        weights = [weight for own in sent.values() for weight in own.values()]
        assert sum(weight**2 for weight in weights) <= budget
        assert weights[0] ** 2 <= cap < (weights[0] + 2) ** 2
        if len(weights) == 3:
            lasts += 1
            assert sum((weight + 2) ** 2 for weight in weights) > budget * (1 - 2.0**-40)
    assert 0 < lasts < 120


def test_only_grams_that_stand_are_sent_and_found_ones_cost_nothing_more():
    plan = NgramsPlan(epsilon=4, delta=0.1, max_length=3, spurious_fraction=0.1)
    documents = zipf_texts(users=100) | shared_phrases(users=20)
    sent = sent_weights(run_kernels(documents, plan, KEY, random.Random(2), partitions=2))
    places = sorted({place for _, place in sent})
    assert places == [*itertools.product((1, 2, 3), (1, 2, 3))]
    grams = {place: set() for place in places}
    for (_, place), weights in sent.items():
        grams[place] |= weights.keys()
    for before, after in itertools.pairwise(places):
        if before[0] == after[0]:
            assert grams[after] < grams[before]


def test_users_with_nothing_left_send_nothing_and_stay_at_nothing():
    plan = NgramsPlan(epsilon=1, delta=1e-6, max_length=2)
    (batch,) = user_batches(shared_phrases(users=5), plan, KEY, random.Random(1), 1)
    for left in (0, 1, 255):
        poor = dataclasses.replace(batch, left=np.full(len(batch.users), left))
        this = RoundOfLength(plan=plan, length=1, number=1, run_key=KEY)
        contributions, after = contribute(poor, this)
        assert (after.left >= 0).all()
        assert (after.left <= left).all()
        assert contributions.weights.max() <= 16 * 2**4
        assert contributions.keys.size > 0, "grams that somebody holds are observed at weight 0"


PLAN = NgramsPlan(epsilon=1, delta=1e-6, max_length=3)
GOOD = {"plan": PLAN, "length": 1, "round_number": 1, "run_key": KEY}
REFUSED = [
    ({"plan": NgramsPlan(epsilon=1, delta=1e-6, strategy="one_round")}, "strategy='one_round'"),
    *(({"round_number": number}, "round_number") for number in (-1, 0, 4, 1.0, None)),
    ({"round_number": 2}, "present must be given from round 2 on"),
    ({"present": object()}, "present must be given from round 2 on"),
]


def test_what_does_not_fit_together_is_refused():
    SpendBudgets(**GOOD)
    assert not_refused(SpendBudgets, [(GOOD | wrong, said) for wrong, said in REFUSED]) == []
