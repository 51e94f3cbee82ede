"""The paper's formulas: against literal recomputation, its claims where they hold, and where they fail.

None of this is private: these tests are about what the paper printed.
"""

import math
import random
from collections import Counter

import apache_beam as beam
import numpy as np
import pytest
from apache_beam.runners.portability.fn_api_runner import FnApiRunner
from hypothesis import given, settings
from hypothesis import strategies as st

from beam_dpne.bayesian import paper
from beam_dpne.bayesian.counting import NgramProbabilities, UserGrams, add_up
from beam_dpne.bayesian.paper import PaperBayesianCounts
from beam_dpne.bayesian.plan import NO_GUARANTEE, SENSITIVITIES, BayesianPlan, PaperBayesianPlan
from beam_dpne.bayesian.public_counts import PublicCounts
from beam_dpne.bayesian.transform import BayesianCountsResult
from beam_dpne.mechanism.randomness import RunKey
from beam_dpne.release.ledger import Run
from beam_dpne.release.notes import NO_NOTES
from beam_dpne.release.publishing import WriteRelease
from beam_dpne.release.result import described
from tests.bayesian.test_transform import as_batches, documents_of, public_of
from tests.oracle import bayesian as reference
from tests.support.refusals import not_refused

KEY = RunKey(b"paper".ljust(32, b"."))


def grams_of(users: list[dict[int, int]]) -> UserGrams:
    """Users as dicts from row to count."""
    held = [len(user) for user in users]
    return UserGrams(
        users=np.arange(2 * len(users), dtype=np.uint64).reshape(-1, 2),
        offsets=np.concatenate(([0], np.cumsum(held, dtype=np.int64))),
        rows=np.array([row for user in users for row in sorted(user)], np.int32),
        counts=np.array([user[row] for user in users for row in sorted(user)], np.int64),
    )


def sums_of(grams: UserGrams, size: int, scoring: np.ndarray | None = None) -> paper.PaperSums:
    table = np.zeros((size, 3), np.int64)
    chosen = np.zeros(len(grams.users), bool) if scoring is None else scoring
    add_up(paper.of_users(grams, ~chosen), table[:, :2])
    add_up(paper.of_users(grams, chosen), table[:, 2:])
    return paper.PaperSums(table)


def plan_of(sensitivity: str = "brute_force", **others) -> PaperBayesianPlan:
    given_values = {"epsilon": 1.0, "delta": 1e-6, "length": 1, "max_contributions": 50}
    return PaperBayesianPlan(sensitivity=sensitivity, **{**given_values, **others})


def random_users(seed: int, size: int, clamp: int) -> list[dict[int, int]]:
    rng = np.random.default_rng(seed)
    return [
        {int(row): int(rng.integers(1, clamp + 1)) for row in rng.permutation(size)[:held]}
        for held in rng.integers(1, 5, size=rng.integers(1, 12))
    ]


@given(
    st.integers(0, 2**32),
    st.integers(4, 12),
    st.integers(1, 4),
    st.sampled_from([0.01, 0.3, 0.45, 1.0, 7.0]),
)
@settings(max_examples=100)
def test_brute_force_is_a_literal_recomputation_for_every_user(seed, size, clamp, decay):
    users = random_users(seed, size, clamp)
    grams = grams_of(users)
    sums = sums_of(grams, size)
    norms = paper.user_norms(grams, sums, decay=decay, max_count=clamp)
    plan = plan_of(max_count=clamp)
    names = [(str(row),) for row in range(size)]
    counted = [Counter({names[row]: count for row, count in user.items()}) for user in users]
    whole = reference.weighted_logs(counted, names, plan, decay)
    for place, norm in enumerate(norms.tolist()):
        others = counted[:place] + counted[place + 1 :]
        literal = math.dist(whole, reference.weighted_logs(others, names, plan, decay))
        assert norm == pytest.approx(literal, rel=1e-9, abs=1e-12)


@given(st.integers(0, 2**32), st.integers(4, 12), st.integers(1, 4), st.integers(1, 30))
@settings(max_examples=200)
def test_claim_1_is_a_bound_where_c_over_s_is_whole(seed, size, clamp, turn):
    grams = grams_of(random_users(seed, size, clamp))
    sums = sums_of(grams, size)
    decay = clamp / turn
    norms = paper.user_norms(grams, sums, decay=decay, max_count=clamp)
    assert norms.max() <= paper.claim1_bound(sums, decay=decay, max_count=clamp) * (1 + 1e-9)


def test_claim_1_as_printed_fails_where_a_word_crosses_the_clamp():
    # C/S = 2.5 < N = 3: w falls from 1 to 0.8 when one of the three leaves, but N > C/S.
    users = [{0: 1}] * 3 + [{row: 1 for row in range(1, 50)}] * 1000
    grams = grams_of(users)
    sums = sums_of(grams, 50)
    norm = paper.user_norms(grams, sums, decay=0.4, max_count=1).max()
    claimed = paper.claim1_bound(sums, decay=0.4, max_count=1)
    assert norm > 2.5 * claimed
    # A little less decay, and the word has C/S = 3 = N: the claim holds again.
    norm = paper.user_norms(grams, sums, decay=1 / 3, max_count=1).max()
    assert norm < paper.claim1_bound(sums, decay=1 / 3, max_count=1)


def crowd() -> list[dict[int, int]]:
    """5,000 users with words 1..49 of 50."""
    return [dict.fromkeys(range(49), 1)] * 5000


def test_one_user_more_moves_the_papers_sensitivity_4_417_fold():
    gammas = []
    for users in (crowd(), [*crowd(), {49: 1}]):
        grams = grams_of(users)
        norms = paper.user_norms(grams, sums_of(grams, 50), decay=0.01, max_count=1)
        gammas.append(norms.max())
    assert gammas[0] == pytest.approx(2.8e-5, rel=0.01)
    assert gammas[1] == pytest.approx(0.124, rel=0.01)
    assert gammas[1] / gammas[0] == pytest.approx(4417, rel=1e-3)


@pytest.mark.parametrize("sensitivity", SENSITIVITIES)
def test_the_papers_noise_follows_the_database(sensitivity):
    plan = plan_of(sensitivity)
    stddevs = []
    for users in (crowd(), [*crowd(), {49: 1}]):
        grams = grams_of(users)
        sums = sums_of(grams, 50)
        none = np.zeros(len(users), bool)
        norms = paper.largest_norms(grams, none, sums, np.ones(50), plan)
        gammas, _ = paper.sensitivities(sums, norms, np.ones(50), plan)
        stddevs.append(paper.paper_stddev(float(gammas[0]), 0.5, plan))
    printed = 0.5 * math.sqrt(2 * math.log(1.25 / 1e-6))
    if sensitivity == "brute_force":
        assert stddevs == pytest.approx([2.8e-5 * printed, 0.124 * printed], rel=0.01)
    else:
        assert stddevs[1] != pytest.approx(stddevs[0], rel=0.01)


def test_cross_entropy_is_equation_6():
    rng = np.random.default_rng(3)
    counts, logs = rng.integers(0, 9, size=20), rng.normal(size=20)
    theta = np.exp(logs) / np.exp(logs).sum()
    assert paper.cross_entropy(counts, logs) == pytest.approx(-(counts * np.log(theta)).sum())
    # Twice as many scoring users double the score, and what a training user changes in it.
    assert paper.cross_entropy(2 * counts, logs) == pytest.approx(
        2 * paper.cross_entropy(counts, logs)
    )


def test_no_bound_of_the_score_holds_over_all_databases():
    """Why "log_global" has no tuning: the change grows with the number of scoring users."""
    rng = np.random.default_rng(4)
    scoring, before = rng.integers(0, 9, size=20), rng.normal(size=20)
    after = before.copy()
    after[0] += 0.05
    changes = [
        abs(paper.cross_entropy(n * scoring, after) - paper.cross_entropy(n * scoring, before))
        for n in (1, 10, 1000)
    ]
    assert changes[1] == pytest.approx(10 * changes[0], rel=1e-6)
    assert changes[2] == pytest.approx(1000 * changes[0], rel=1e-6)


@pytest.mark.parametrize("sensitivity", SENSITIVITIES)
def test_tuning_takes_the_best_candidate_when_the_noise_allows(sensitivity):
    rng = np.random.default_rng(5)
    users = [
        {int(row): 1 for row in rng.permutation(10)[: rng.integers(1, 4)]} for _ in range(3000)
    ]
    users += [{0: 1, 1: 1}] * 3000
    grams = grams_of(users)
    scoring = np.arange(6000) % 10 == 0
    sums = sums_of(grams, 10, scoring)
    public = np.array([1, 1, 90, 1, 1, 1, 1, 1, 1, 1])
    plan = plan_of(sensitivity, epsilon=3e4, decays=(1e-3, 1.0), public_weights=(0.0, 0.9))
    norms = paper.largest_norms(grams, scoring, sums, public, plan)
    gammas, change = paper.sensitivities(sums, norms, public, plan)
    scores = []
    for decay, weight in plan.candidates:
        logs = paper.mean_logs(sums, public, decay=decay, private_weight=weight, max_count=1)
        scores.append(paper.cross_entropy(sums.scoring, logs))
    chosen = paper.choose(sums, change, public, plan, KEY)
    assert chosen == int(np.argmin(scores))
    _, facts = paper.sample(sums, norms, public, plan, KEY)
    assert (facts["decay"], 1 - facts["public_weight"]) == plan.candidates[chosen]
    assert gammas.shape == (4,)
    # Claim 2: what single users change, and Theorem 2's noise.
    trained = [
        w * np.linalg.norm(sums.scoring) * g
        for (_, w), g in zip(plan.candidates, gammas, strict=True)
    ]
    assert change >= max(trained) * (1 - 1e-12)


def test_scoring_users_do_not_train():
    grams = grams_of([{0: 2}, {1: 1}, {0: 1, 2: 3}])
    sums = sums_of(grams, 3, np.array([True, False, False]))
    assert sums.counts.tolist() == [1, 1, 3]
    assert sums.users.tolist() == [1, 1, 1]
    assert sums.scoring.tolist() == [2, 0, 0]


def test_tuning_divides_budget_and_candidates():
    plan = plan_of(epsilon=0.9, decays=(0.001, 0.01, 0.1, 1), public_weights=[0.1, 0.5, 0.9])
    assert plan.tuning_epsilon == pytest.approx(0.3)
    assert len(plan.candidates) == 12
    assert plan_of().candidates == ((0.01, 0.5),)
    assert plan_of().tuning_epsilon == 0


def test_the_plan_has_no_number_that_looks_like_a_guarantee():
    assert "no differential privacy guarantee" in plan_of().guarantee
    for name in ("noise_stddev", "grid", "gram_bound", "noise_steps", "numerical_slack"):
        assert not hasattr(plan_of(), name)


REFUSED = [
    ({"epsilon": 0}, "epsilon must be a finite number > 0"),
    ({"delta": 1}, r"delta must be in \(0, 1\)"),
    ({"sensitivity": "global"}, "sensitivity must be one of brute_force, claim1"),
    ({"length": 6}, "length must be an integer from 1 to 5"),
    ({"max_count": 0}, "max_count must be an integer from 1 to"),
    ({"tuning_fraction": 1.0}, r"tuning_fraction must be in"),
    ({"decays": []}, "decays must be a list of numbers"),
    ({"decays": [0]}, "decays must be from"),
    ({"public_weights": [2]}, "public_weights must be in"),
]


def test_bad_parameters_are_refused_with_name_requirement_and_value():
    assert not_refused(plan_of, REFUSED) == []


# The pipeline


def run_beam(elements, public: dict, plan: PaperBayesianPlan, *, partitions=3, repeats=0):
    """Runs the pipeline; repeated bundles must repeat their results."""
    counts = PublicCounts.of(public.keys(), public.values())
    _released.clear()
    with beam.Pipeline(runner=FnApiRunner(bundle_repeat=repeats)) as pipeline:
        found = (
            pipeline
            | beam.Create(elements, reshuffle=False)
            | PaperBayesianCounts(
                plan=plan, public=counts, partitions=partitions, run_key=KEY, tokenizer="tokens"
            )
        )
        _ = found | beam.Map(_collect)
    first = _released[0]
    assert all((other.probabilities == first.probabilities).all() for other in _released)
    assert first.ngrams.to_pylist() == counts.texts().to_pylist()
    return first


_released: list[NgramProbabilities] = []


def _collect(found: NgramProbabilities) -> None:
    _released.append(found)


@pytest.mark.parametrize("seed", [0, pytest.param(1, marks=pytest.mark.slow)])
def test_the_transform_is_the_papers_pseudocode(seed):
    documents, public = documents_of(seed, users=15), public_of(seed, 2, grams=12)
    limits = {"epsilon": 2.0, "length": 2, "max_count": 2, "max_contributions": 4}
    plan = plan_of(**limits, decays=(0.3,), public_weights=(0.4,))
    found = run_beam(as_batches(documents, random.Random(seed)), public, plan, partitions=4)
    wanted = reference.paper_probabilities(documents, public, plan, KEY)
    assert found.probabilities == pytest.approx(wanted, rel=1e-9)


@pytest.mark.parametrize("epsilon", [3.0, pytest.param(3e4, marks=pytest.mark.slow)])
def test_the_transforms_tuning_is_the_papers_pseudocode(epsilon):
    documents, public = documents_of(3, users=30), public_of(3, 2, grams=12)
    plan = plan_of(
        epsilon=epsilon,
        length=2,
        max_count=2,
        max_contributions=4,
        tuning_fraction=0.3,
        decays=(0.05, 1.0),
        public_weights=(0.1, 0.8),
    )
    cut = as_batches(documents, random.Random(0))
    found = run_beam(cut, public, plan, partitions=4, repeats=2)
    wanted = reference.paper_probabilities(documents, public, plan, KEY)
    assert found.probabilities == pytest.approx(wanted, rel=1e-9)
    assert (found.report["decay"], 1 - found.report["public_weight"]) in plan.candidates


@pytest.mark.parametrize("sensitivity", SENSITIVITIES)
def test_nobody_leaves_a_distribution_and_the_words_that_nothing_is_guaranteed(sensitivity):
    found = run_beam([], public_of(1, 2), plan_of(sensitivity, length=2))
    assert found.probabilities.sum() == pytest.approx(1, abs=1e-12)
    assert found.guarantee == NO_GUARANTEE
    assert found.report["public_weight"] == 0.5


def test_the_output_is_no_release(tmp_path):
    """There is no release without a guarantee, and no private plan takes these."""
    found = run_beam([], {("a",): 1, ("b",): 1}, plan_of())
    private = BayesianPlan(epsilon=1, delta=1e-6, length=1)
    refused = ((plan_of(), TypeError, "PaperBayesianPlan"), (private, ValueError, "this plan"))
    for plan, error, words in refused:
        run = Run(plan=plan, tokenizer="tokens", run_key_given=True)
        with pytest.raises(error, match=words):
            described(BayesianCountsResult.form, run, [found], NO_NOTES)
    with pytest.raises(TypeError, match=r"takes the result of .* got PCollection"):
        _ = beam.Pipeline() | beam.Create([found]) | WriteRelease(output=str(tmp_path / "release"))
