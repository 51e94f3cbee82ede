"""What users send and what is added up: limits, exact sums, and what comes of them."""

import numpy as np
import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from beam_dpne.bayesian import grams as counting
from beam_dpne.bayesian.grams import UserGrams
from beam_dpne.bayesian.plan import ProbabilitiesPlan
from beam_dpne.elements.coders import BatchCoder
from beam_dpne.elements.rows import rounded_probabilities
from beam_dpne.mechanism.randomness import RunKey
from tests.support.releases import ledger_of

KEY = RunKey(b"bayesian".ljust(32, b"."))


@given(st.integers(0, 2**32), st.integers(1, 6), st.integers(1, 4))
@settings(max_examples=60)
def test_one_user_moves_the_sums_by_no_more_than_the_sensitivity(seed, limit, clamp):
    rng = np.random.default_rng(seed)
    held = rng.integers(0, 9, size=8)
    grams = UserGrams(
        users=rng.integers(0, 2**63, size=(8, 2)).astype(np.uint64),
        offsets=np.concatenate(([0], np.cumsum(held))),
        rows=np.concatenate([np.sort(rng.permutation(12)[:n]) for n in held]).astype(np.int32),
        counts=rng.integers(1, 9, size=held.sum()),
    )
    plan = ProbabilitiesPlan(epsilon=1, delta=1e-6, max_contributions=limit, max_count=clamp)
    limited = counting.limit_grams(grams, plan, KEY)
    whole = np.bincount(limited.rows, limited.counts, 12)
    for user in range(8):
        own = slice(limited.offsets[user], limited.offsets[user + 1])
        others = np.delete(np.arange(8), user)
        rest = [np.arange(*limited.offsets[o : o + 2]) for o in others]
        places = np.concatenate(rest)
        without = UserGrams(
            users=limited.users[others],
            offsets=np.concatenate(([0], np.cumsum([part.size for part in rest]))),
            rows=limited.rows[places],
            counts=limited.counts[places],
        )
        moved = whole - np.bincount(without.rows, without.counts, 12)
        assert (moved**2).sum() <= limit * clamp**2
        assert np.count_nonzero(moved) == limited.rows[own].size <= limit


def test_a_user_above_the_limit_keeps_a_uniform_subset():
    users = 20_000
    grams = UserGrams(
        users=np.arange(2 * users, dtype=np.uint64).reshape(-1, 2),
        offsets=np.arange(0, 4 * users + 1, 4),
        rows=np.tile(np.arange(4, dtype=np.int32), users),
        counts=np.ones(4 * users, np.int64),
    )
    plan = ProbabilitiesPlan(epsilon=1, delta=1e-6, max_contributions=1)
    limited = counting.limit_grams(grams, plan, KEY)
    assert (np.diff(limited.offsets) == 1).all()
    share = np.bincount(limited.rows) / users
    # Seven deviations of a share of 20,000 draws: odds below 1e-10.
    assert np.abs(share - 0.25).max() < 7 * (0.25 * 0.75 / users) ** 0.5


def test_the_ledgers_numbers_are_the_plans():
    plan = ProbabilitiesPlan(epsilon=0.5, delta=1e-7, max_contributions=5)
    mechanism = ledger_of(plan)["mechanism"]
    assert mechanism["noise_stddev"] == plan.noise_stddev
    assert mechanism["sensitivity"] == plan.sensitivity


def test_the_coder_keeps_everything():
    found = counting.NgramProbabilities(
        ngrams=pa.array(["a b c", "b c d"]),
        noisy=np.array([3, -1]),
        probabilities=np.array([0.75, 0.25]),
        public={"ngrams": 2, "length": 3, "sha256": "0" * 64},
    )
    coder = BatchCoder(counting.NgramProbabilities)
    decoded = coder.decode(coder.encode(found))
    assert decoded.ngrams.to_pylist() == found.ngrams.to_pylist()
    assert decoded.noisy.tolist() == found.noisy.tolist()
    assert decoded.probabilities.tolist() == found.probabilities.tolist()
    assert decoded.public == found.public


def test_probabilities_have_nine_digits():
    values = np.array([0.0, 1.0, 1 / 3, 1.23456789123e-12])
    assert rounded_probabilities(values).tolist() == [0.0, 1.0, 0.333333333, 1.23456789e-12]
