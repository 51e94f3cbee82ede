"""Attacks by the audit's games: below the claim on the product, above it once a mistake is planted.

The planted mistakes are those of docs/adaptive.md that the written proof names. Keys are fixed; had
they been random, an attack on the right program would fail with a probability of at most `FAILURE`.
"""

import pytest

from beam_dpne import NgramsPlan
from beam_dpne.audit import text_games
from beam_dpne.audit.auditing import games_of, lower_bound
from beam_dpne.audit.games import MECHANISM, key_of
from beam_dpne.mechanism import thresholds
from beam_dpne.mechanism.rules import NOTHING_YET
from beam_dpne.ngrams import decisions

FAILURE = 1e-4
RUNS, MANY_RUNS = 3000, 8000
ALONE, MANY = "n-grams of one user", "n-grams of many users"


def plan_of(**fields) -> NgramsPlan:
    return NgramsPlan(**{"epsilon": 1, "delta": 0.01, "max_length": 2, "count_share": 0} | fields)


def shown(plan, name: str, runs: int = RUNS) -> tuple[float, float]:
    """The largest lower bound on ε that a game shows, and its claim."""
    (game,) = [game for game in games_of(plan) if game.name == name]
    seen = game.plays[MECHANISM](runs, key_of(1, name))
    bound = lower_bound(seen, game.claim, failure=FAILURE)
    return max(bound), game.claim.epsilon


@pytest.fixture(autouse=True)
def few_copies(monkeypatch):
    """With few others there are few candidates, so that n-grams of one user are released more often."""
    monkeypatch.setattr(text_games, "_PAIRS_OF_WORDS", 16)


@pytest.mark.parametrize("strategy", ["adaptive", "one_round"])
def test_the_right_program_shows_less_than_its_claim(strategy):
    known = ("known words",) if strategy == "adaptive" else ()
    for name in ("words", *known, ALONE, MANY):
        bound, claim = shown(plan_of(strategy=strategy), name)
        assert bound < claim


def test_a_large_part_of_a_claim_is_shown_where_an_n_gram_is_near_its_threshold():
    bound, claim = shown(plan_of(epsilon=4), MANY)
    assert 0.4 * claim < bound < claim


def test_known_words_that_nobody_has_must_be_drawn():
    """And a user who counts four times shows; so the attack on known words is a strong one."""
    (game,) = [game for game in games_of(plan_of()) if game.name == "known words"]
    for mistake, play in game.plays.items():
        bound = max(lower_bound(play(RUNS, key_of(1, mistake)), game.claim, failure=FAILURE))
        assert (bound > game.claim.epsilon) == (mistake != MECHANISM), mistake


right_bits = decisions.noise_bits


MISTAKES = {
    "every round of a length has the same noise": (
        decisions,
        "noise_bits",
        lambda shard, run_key, _, places=None: right_bits(shard, run_key, 1, places),
    ),
    "the evidence of later rounds is drawn from a Gaussian tail": (
        thresholds,
        "null_law",
        lambda *_: NOTHING_YET,
    ),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_mistakes_that_the_proof_names_show_more_than_the_claim(mistake, monkeypatch):
    monkeypatch.setattr(*MISTAKES[mistake])
    bound, claim = shown(plan_of(), ALONE, MANY_RUNS)
    assert bound > 1.2 * claim
