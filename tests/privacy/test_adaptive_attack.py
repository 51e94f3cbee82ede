"""Attacks on the adaptive strategy: below the claimed ε, and above it once a mistake is planted.

Two attackers. One sees a release: which grams are found, in which rounds, with which scores. From half
of the runs it learns a statistic (logistic regression over numbers of grams by round and cell) and an
event for each direction; on the other half it is judged. The other sees the noisy vectors of all
rounds, as the privacy proof allows, and uses the exact likelihood ratio, which depends on the path of
the run. Both know everything else. All runs are runs of the product's loop, in which the other users
spend by what was released before, so by the user's noisy traces too. Clopper–Pearson bounds as in
`test_attack`: with probability 99.9 % ε is at least what `epsilon_at_least` says, so had the keys been
random, each test of the right mechanism would fail falsely at most once in 1,000.
"""

import dataclasses
import hashlib
from collections.abc import Sequence

import numpy as np
import pytest
from scipy import stats

from beam_dpne import PrivacyPlan, RunKey
from beam_dpne.audit.copied_runs import Outcome, Run, simulate
from beam_dpne.audit.copies import World, crowd, positions, words_of
from beam_dpne.audit.observations import FOUND, features, learned
from beam_dpne.audit.variants import RIGHT, Variant
from beam_dpne.ngrams import adaptive
from tests.privacy.kernels import run_lengths
from tests.privacy.test_attack import DELTA, EPSILON, epsilon_at_least

RUNS = 10_000
FEWER_RUNS = 5_000
# Runs with counts take longer, and their planted mistakes show soon.
COUNTED_RUNS = 2_000
ALL_RUNS = 100_000
ALL_COUNTED_RUNS = 10_000
AT_ONCE = 20_000
FALSE_FAILURE = 1e-6
MISTAKES = {
    "the same noise in every round": Variant(same_noise=True),
    "closed grams looked at again": Variant(looks_again=True),
    "a Gaussian tail for later rounds": Variant(gaussian_tail=True),
    "half the noise": Variant(noise_factor=0.5),
    "what is left not reduced": Variant(unreduced=True),
    "the threshold for one word": Variant(one_word=True),
    "others follow what only the user holds": Variant(follows_observed=True),
    "counts without noise": Variant(quiet_counts=True),
    "one null law for all classes": Variant(one_law=True),
    "drawn grams of users kept": Variant(keeps_held=True),
    "drawn grams of users without weight kept": Variant(keeps_unweighted=True),
}


def gram_plan(max_length: int, **parameters) -> PrivacyPlan:
    """A plan for worlds whose words are given."""
    given = {
        "epsilon": EPSILON,
        "delta": DELTA,
        "spurious_fraction": 0.5,
        "max_tokens_per_user": 1000,
        "count_share": 0,
    }
    return PrivacyPlan(max_length=max_length, **(given | parameters))


def given(plan: PrivacyPlan, **others) -> World:
    """A world whose words are known already: the whole budget is for longer grams."""
    return World(plan=plan, has_given_words=True, **others)


def word_plan(**parameters) -> PrivacyPlan:
    return PrivacyPlan(
        epsilon=EPSILON,
        delta=DELTA,
        max_length=1,
        max_tokens_per_user=1000,
        count_share=0,
        **parameters,
    )


# The others are so many that some of what they hold is found early, some late, some by chance.
WORD_AMONG_OTHERS = "1 word alone, 2 of others"
REACTING = "9 bigrams, 1 of 14 others"
COUNTED = "64 bigrams, counted"
COUNTED_EVEN = "100 bigrams, counted, even"
UNEQUAL = "9 bigrams of others, of which one is frequent, 27 trigrams"
UNWEIGHTED = "64 bigrams, counted, 8 of them with weight"
REACTING_LONGER = "4 bigrams, 8 trigrams, 8 others"
WORLDS = {
    "4 bigrams": given(gram_plan(2), words=2),
    "9 bigrams": given(gram_plan(2), words=3),
    "16 bigrams": given(gram_plan(2), words=4),
    "36 bigrams": given(gram_plan(2), words=6),
    # The cuts cost a gram so little that looking again shows at a small ε only.
    "64 bigrams, small ε": given(gram_plan(2, epsilon=0.2), words=8),
    "9 bigrams, even": given(gram_plan(2, user_budgets="even"), words=3),
    "9 bigrams, 2 rounds": given(gram_plan(2, rounds=2), words=3),
    "9 bigrams, few spurious": given(gram_plan(2, spurious_fraction=0.05), words=3),
    REACTING: given(gram_plan(2), words=3, others=crowd((14, (0, 0)))),
    "9 bigrams, 6 of 10 others": World(
        has_given_words=True,
        plan=gram_plan(2),
        words=3,
        others=crowd((6, (0, 1, 2, 0)), (4, (0, 0, 2, 2))),
    ),
    "4 bigrams, 8 trigrams": given(gram_plan(3), words=2),
    "9 bigrams, 27 trigrams": given(gram_plan(3), words=3),
    REACTING_LONGER: World(
        has_given_words=True,
        plan=gram_plan(3),
        words=2,
        others=crowd((5, (0, 1, 0, 0)), (3, (0, 0, 1))),
    ),
    # Of so many candidates the held ones are counted.
    COUNTED: given(gram_plan(2), words=8, others=crowd((10, (0, 0, 1)))),
    COUNTED_EVEN: given(gram_plan(3, user_budgets="even"), words=10, longest=2),
    UNWEIGHTED: given(gram_plan(2, max_contributions=8), words=8),
    # The others hold no trigrams; classes of trigrams differ by their bigrams.
    UNEQUAL: World(
        has_given_words=True,
        plan=gram_plan(3),
        words=3,
        others=crowd(
            (40, (0, 0)),
            *((16, pair) for pair in ((0, 1), (1, 0), (1, 1), (2, 2), (0, 2), (2, 0))),
        ),
    ),
    "4 bigrams, 8 trigrams, even": given(gram_plan(3, user_budgets="even"), words=2),
    "1 word alone": World(plan=word_plan(), words=1),
    WORD_AMONG_OTHERS: World(plan=word_plan(), words=3, others=crowd((11, (1,)), (11, (2,)))),
    "100 words alone": World(plan=word_plan(), words=100),
}


WITH_COUNTS = (COUNTED, COUNTED_EVEN, UNWEIGHTED, UNEQUAL)
FEW_WORLDS = ["4 bigrams", REACTING, REACTING_LONGER, WORD_AMONG_OTHERS, COUNTED]
CAUGHT = [
    ("4 bigrams", "the same noise in every round", FEWER_RUNS),
    ("64 bigrams, small ε", "closed grams looked at again", RUNS),
    ("4 bigrams", "a Gaussian tail for later rounds", FEWER_RUNS),
    ("4 bigrams", "half the noise", FEWER_RUNS),
    (REACTING, "others follow what only the user holds", RUNS),
    (WORD_AMONG_OTHERS, "half the noise", 2 * RUNS),
    (COUNTED, "counts without noise", COUNTED_RUNS),
    (COUNTED, "drawn grams of users kept", COUNTED_RUNS),
    (UNWEIGHTED, "drawn grams of users without weight kept", COUNTED_RUNS),
    (UNEQUAL, "one null law for all classes", COUNTED_RUNS),
]
MANY_CAUGHT = [
    ("100 words alone", "the threshold for one word"),
    ("4 bigrams, 8 trigrams", "the same noise in every round"),
    ("4 bigrams, 8 trigrams", "a Gaussian tail for later rounds"),
    ("4 bigrams, 8 trigrams", "half the noise"),
    ("4 bigrams, 8 trigrams", "what is left not reduced"),
    ("36 bigrams", "the same noise in every round"),
    ("36 bigrams", "a Gaussian tail for later rounds"),
    (REACTING, "the same noise in every round"),
    (COUNTED_EVEN, "counts without noise"),
]


@pytest.mark.parametrize(
    ("world", "runs", "least"),
    [
        ("4 bigrams", RUNS, 0.2),
        (REACTING, RUNS, 0.2),
        (REACTING_LONGER, FEWER_RUNS, 0.1),
        (WORD_AMONG_OTHERS, 2 * RUNS, 0.2),
    ],
)
def test_releases_show_less_than_epsilon(world, runs, least):
    assert least <= attack(WORLDS[world], RIGHT, runs) < EPSILON


@pytest.mark.parametrize(("world", "mistake", "runs"), CAUGHT)
def test_releases_show_each_planted_mistake(world, mistake, runs):
    own = WORLDS[world]
    assert attack(own, MISTAKES[mistake], runs) > 1.1 * own.plan.epsilon


@pytest.mark.parametrize("world", FEW_WORLDS)
def test_noisy_vectors_of_all_rounds_show_less_than_epsilon_and_follow_one_gaussian_mechanism(
    world,
):
    """Padded to μ², the log-likelihood ratio of all rounds and counts is N(±μ²/2, μ²) exactly.

    What is sent depends on the noise of earlier rounds; that does not change the law. The user never
    moves all that is released by more than is charged.
    """
    rng = np.random.default_rng(7)
    runs = FEWER_RUNS if world in WITH_COUNTS else RUNS
    whole = WORLDS[world].plan.allotment / adaptive.BUDGET_UNITS
    log_ratios = {}
    for present, sign in ((True, 1), (False, -1)):
        outcome = run(WORLDS[world], present, RIGHT, runs, seed=5, drawn=False)
        log_ratios[present] = outcome.log_ratio
        assert (outcome.moved <= whole - outcome.left / adaptive.BUDGET_UNITS + 1e-12).all()
        rest = whole - outcome.moved
        padding = np.sqrt(rest) * rng.standard_normal(runs) + sign * rest / 2
        law = stats.norm(sign * whole / 2, np.sqrt(whole))
        assert stats.kstest(outcome.log_ratio + padding, law.cdf).pvalue > FALSE_FAILURE
    least = 0.3 if world in WITH_COUNTS else 0.4
    assert least < epsilon_of_vectors(log_ratios[True], log_ratios[False]) < EPSILON


@pytest.mark.parametrize(
    ("mistake", "runs"),
    [
        ("half the noise", RUNS),
        pytest.param("what is left not reduced", 4 * RUNS, marks=pytest.mark.slow),
    ],
)
def test_noisy_vectors_of_all_rounds_show_each_planted_mistake(mistake, runs):
    world = WORLDS["4 bigrams, 8 trigrams"]
    assert attack_vectors(world, MISTAKES[mistake], runs) > 1.1 * EPSILON


@pytest.mark.slow
@pytest.mark.parametrize("world", WORLDS)
def test_releases_and_vectors_of_many_runs_show_less_than_epsilon(world):
    """At 100,000 runs in each world; words of one user alone are released with less than δ."""
    own, runs = WORLDS[world], many_runs(world)
    hard = ("1 word alone", "100 words alone", "64 bigrams, small ε", *WITH_COUNTS)
    least = 0.0 if world in hard else 0.3
    assert least <= attack(own, RIGHT, runs, seed=2) < own.plan.epsilon
    low = 0.6 * own.plan.epsilon if own.plan.epsilon == EPSILON else 0.0
    low = 0.1 if world in WITH_COUNTS else low
    assert low < attack_vectors(own, RIGHT, runs, seed=3) < own.plan.epsilon


@pytest.mark.slow
@pytest.mark.parametrize(
    ("world", "mistake"), [*((world, mistake) for world, mistake, _ in CAUGHT), *MANY_CAUGHT]
)
def test_releases_of_many_runs_show_each_planted_mistake(world, mistake):
    """At 100,000 runs in each world."""
    own = WORLDS[world]
    assert attack(own, MISTAKES[mistake], many_runs(world), seed=4) > 1.1 * own.plan.epsilon


@pytest.mark.parametrize(
    ("world", "user_budgets"),
    [
        ("4 bigrams, 8 trigrams", "even"),
        ("9 bigrams, 27 trigrams", "individual"),
        (COUNTED, "individual"),
    ],
)
def test_one_copy_of_a_world_is_a_run_of_the_product(world, user_budgets):
    """The same grams and scores, whatever the path; all valid grams are held, so none is drawn."""
    plan = dataclasses.replace(WORLDS[world].plan, user_budgets=user_budgets, epsilon=4.0)
    small = dataclasses.replace(
        WORLDS[world], plan=plan, others=crowd((3, (0, 1, 0)), (2, (1, 1, 0, 1)))
    )
    vocabulary = words_of(1, small.words)
    rounds_seen, counted = set(), 0
    for number in range(20):
        key = key_of("one copy", number)
        outcomes = simulate(small, present=True, runs=1, run_key=key).outcomes
        users = positions(small, 1, key, has_user=True)
        released = [each.released for each in run_lengths(users, plan, key, vocabulary.to_pylist())]
        for outcome, own in zip(outcomes, released[1:], strict=True):
            (found,) = outcome.released
            rounds_seen.update(outcome.found[0].tolist())
            assert found.keys.tolist() == own.keys.tolist()
            assert found.scores.tolist() == own.scores.tolist()
            # Copies number their classes by probability.
            rules = [{each.rounds for each in grams.rule.classes} for grams in (found, own)]
            assert rules[0] == rules[1]
            counts = [each.noisy_unheld if each.noise_stddev else 0.0 for each in own.rule.groups]
            seen = outcome.counts[0].tolist()
            assert seen == [*counts, *[0.0] * (len(seen) - len(counts))]
            counted += any(counts)
            assert len(found) == np.count_nonzero(outcome.found)
    assert rounds_seen == {0, 1, 2, 3}
    assert (counted == 20) == (world == COUNTED)


@pytest.mark.parametrize("max_length", [2, 3])
def test_copies_of_nobody_release_grams_with_the_chances_of_their_rules(max_length):
    """Of 4 valid bigrams in each copy each is found in round r with P_r; later half of |S_{k−1}|."""
    world = given(gram_plan(max_length), words=2)
    outcomes = run(world, False, RIGHT, RUNS, seed=6).outcomes
    rule = outcomes[0].released[0].rule
    assert rule is not None
    for number, own in enumerate(rule.rounds, start=1):
        found = int(np.count_nonzero(outcomes[0].found == number))
        tested = stats.binomtest(found, RUNS * 4, own.null_probability)
        assert tested.pvalue > FALSE_FAILURE
    for outcome in outcomes[1:]:
        assert not outcome.found[~outcome.valid].any()
        chances = outcome.valid.sum(axis=1)
        released = np.minimum(chances, np.count_nonzero(outcomes[0].found, axis=1))
        expected = 0.5 * released.sum()
        # Bounds on probabilities, and the grid that they are on, leave less than that.
        found = np.count_nonzero(outcome.found)
        assert 0.5 * expected < found < expected + 6 * np.sqrt(expected)


def many_runs(world: str) -> int:
    """100,000 runs, and 10,000 with counts or many users."""
    return ALL_COUNTED_RUNS if world in WITH_COUNTS else ALL_RUNS


def attack(world: World, variant: Variant, runs: int, seed: int = 1) -> float:
    """The lower bound on ε that an attacker finds who sees releases."""
    with_user, without = (
        features(world, run(world, present, variant, runs, seed).outcomes)
        for present in (True, False)
    )
    return epsilon_at_least(*statistics(with_user, without))


def attack_vectors(world: World, variant: Variant, runs: int, seed: int = 1) -> float:
    """The lower bound on ε that an attacker finds who sees the noisy vectors of all rounds."""
    with_user, without = (
        run(world, present, variant, runs, seed, drawn=False).log_ratio for present in (True, False)
    )
    return epsilon_of_vectors(with_user, without)


def epsilon_of_vectors(with_user: np.ndarray, without: np.ndarray) -> float:
    """The lower bound on ε from log-likelihood ratios of both worlds, (runs,) each."""
    return epsilon_at_least(with_user[:, np.newaxis], without[:, np.newaxis])


def run(
    world: World, present: bool, variant: Variant, runs: int, seed: int, *, drawn: bool = True
) -> Run:
    """Many runs, of which at most `AT_ONCE` are made at once."""
    parts = [
        simulate(
            world,
            present=present,
            runs=min(AT_ONCE, runs - start),
            run_key=key_of("attack", seed, present, start),
            variant=variant,
            drawn=drawn,
        )
        for start in range(0, runs, AT_ONCE)
    ]
    by_length = zip(*(part.outcomes for part in parts), strict=True)
    return Run(
        [joined(outcomes) for outcomes in by_length],
        np.concatenate([part.log_ratio for part in parts]),
        np.concatenate([part.moved for part in parts]),
        np.concatenate([part.left for part in parts]),
    )


def joined(outcomes: Sequence[Outcome]) -> Outcome:
    return Outcome(
        found=np.concatenate([own.found for own in outcomes]),
        cells=np.concatenate([own.cells for own in outcomes]),
        valid=np.concatenate([own.valid for own in outcomes]),
        classes=np.concatenate([own.classes for own in outcomes]),
        counts=np.concatenate([own.counts for own in outcomes]),
        released=[released for own in outcomes for released in own.released],
    )


def key_of(*parts: object) -> RunKey:
    """A member of a fixed family of keys."""
    return RunKey(hashlib.sha256(repr(parts).encode()).digest())


def statistics(with_user: np.ndarray, without: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """A learned ratio, and the number of n-grams that are released at the first length."""
    ratios = learned(with_user, without)
    seen_with, seen_without = (
        np.column_stack((ratio, seen[:, FOUND]))
        for ratio, seen in zip(ratios, (with_user, without), strict=True)
    )
    return seen_with, seen_without
