"""N-gram probabilities in plain Python: one user and one n-gram at a time, to be read beside the paper.

Shared with the package are the plan's public numbers, the run key and the keyed functions; counting,
limiting, clamping, noise, logarithms, sensitivities and sampling are written here a second time, with
exact integers and long floating point.

Source: Ramadan, Withers and Orr, Algorithm 1, Corollary 1, Claim 1; the mode "counts" as its plan says.
"""

import math
from collections import Counter

import mpmath
import numpy as np

from beam_dpne.bayesian import run_context
from beam_dpne.bayesian_plan import BayesianPlan
from beam_dpne.decoding import join_tokens
from beam_dpne.public_counts import PublicCounts
from beam_dpne.randomness import RunKey, keyed_bits, keyed_hashes

Gram = tuple[str, ...]
Documents = dict[str, list[list[str]]]
Users = list[Counter[Gram]]


def in_order(public: dict[Gram, int], size: int) -> list[Gram]:
    """The most frequent first, ties by the bytes of the text."""
    ordered = sorted(public, key=lambda gram: (-public[gram], join_tokens(gram).encode()))
    return ordered[:size]


def bound_key(public: dict[Gram, int], plan: BayesianPlan, run_key: RunKey) -> RunKey:
    """The key as the transform binds it."""
    kept = in_order(public, plan.vocabulary_size)
    return run_key.bound_to(
        run_context(plan, "tokens", PublicCounts.of(kept, [public[gram] for gram in kept]))
    )


def contributions(
    documents: Documents, grams: list[Gram], plan: BayesianPlan, run_key: RunKey
) -> Users:
    """What each user adds: at most W distinct grams, each at most C times."""
    row = {gram: place for place, gram in enumerate(grams)}
    added = []
    for user, texts in documents.items():
        held: Counter[Gram] = Counter()
        for text in texts:
            for start in range(len(text) - plan.length + 1):
                gram = tuple(text[start : start + plan.length])
                if gram in row:
                    held[gram] += 1
        name = hash_of(user, "user", run_key)
        draws = {gram: draw(name, row[gram], plan, run_key) for gram in held}
        kept = sorted(held, key=draws.__getitem__)[: plan.max_contributions]
        added.append(Counter({gram: min(held[gram], plan.max_count) for gram in kept}))
    return added


def noisy_values(
    documents: Documents, public: dict[Gram, int], plan: BayesianPlan, run_key: RunKey
) -> list[int]:
    """The mechanism: sums over users (logarithms under "log_global") and noise, gram by gram."""
    run_key = bound_key(public, plan, run_key)
    grams = in_order(public, plan.vocabulary_size)
    users = contributions(documents, grams, plan, run_key)
    values = []
    for place, gram in enumerate(grams):
        count = sum(user[gram] for user in users)
        holders = sum(user[gram] > 0 for user in users)
        value = count if plan.mode == "counts" else logarithm(count, holders, plan)
        values.append(value + noise(place, plan, run_key))
    return values


def logarithm(count: int, users: int, plan: BayesianPlan) -> int:
    """f = min(1, S·N/C)·ln(c + 1), to the nearest step of the grid."""
    with mpmath.workdps(40):
        weight = min(mpmath.mpf(1), mpmath.mpf(plan.decay_rate) * users / plan.max_count)
        return int(mpmath.nint(weight * mpmath.log(count + 1) / mpmath.mpf(plan.grid)))


def noise(place: int, plan: BayesianPlan, run_key: RunKey) -> int:
    """σ·Φ^{-1}(keyed bits), to the nearest step of the grid."""
    with mpmath.workdps(60):
        scaled = normal(place, plan, run_key) * mpmath.mpf(plan.noise_steps)
        return int(mpmath.nint(scaled))


def normal(place: int, plan: BayesianPlan, run_key: RunKey) -> mpmath.mpf:
    """A standard normal draw for one gram."""
    sub_key = run_key.sub_key("gram noise", plan.length)
    first, last = (int(half) for half in keyed_bits(sub_key, place, 0)[0])
    with mpmath.workdps(60):
        u = mpmath.mpf(((first << 64) | last) | 1) / 2**128
        sign = -1 if last & 1 else 1
        return sign * mpmath.sqrt(2) * mpmath.erfinv(1 - u)


def draw(name: tuple[int, int], row: int, plan: BayesianPlan, run_key: RunKey) -> int:
    """What orders a user's grams when there are too many."""
    sub_key = run_key.sub_key("gram subset", plan.length)
    return int(keyed_bits(sub_key, np.uint64(name[0]), row)[0, 0])


def hash_of(text: str, purpose: str, run_key: RunKey) -> tuple[int, int]:
    first, last = keyed_hashes(run_key.sub_key(purpose), [text.encode()])[0]
    return int(first), int(last)


# The paper


def weighted_logs(users: Users, grams: list[Gram], plan: BayesianPlan, decay: float) -> list[float]:
    """w⊙x̂ of some users: equations 2 and 5."""
    logs = [math.log(sum(user[gram] for user in users) + 1) for gram in grams]
    mean = math.fsum(logs) / len(logs)
    holders = [sum(user[gram] > 0 for user in users) for gram in grams]
    return [
        min(1.0, decay * n / plan.max_count) * (log - mean)
        for n, log in zip(holders, logs, strict=True)
    ]


def brute_force(users: Users, grams: list[Gram], plan: BayesianPlan, decay: float) -> float:
    """γ by recomputing everything without each user."""
    whole = weighted_logs(users, grams, plan, decay)
    norms = [0.0]
    for place in range(len(users)):
        others = weighted_logs(users[:place] + users[place + 1 :], grams, plan, decay)
        norms.append(math.dist(whole, others))
    return max(norms)


def paper_probabilities(
    documents: Documents, public: dict[Gram, int], plan: BayesianPlan, run_key: RunKey
) -> list[float]:
    """Algorithm 1 by brute force, without tuning."""
    run_key = bound_key(public, plan, run_key)
    grams = in_order(public, plan.vocabulary_size)
    users = contributions(documents, grams, plan, run_key)
    rho, decay = plan.private_weight, plan.decay_rate
    gamma = brute_force(users, grams, plan, decay)
    stddev = rho * gamma * math.sqrt(2 * math.log(1.25 / plan.delta)) / plan.epsilon
    logs = [math.log(public[gram] + 1) for gram in grams]
    mean = math.fsum(logs) / len(logs)
    private = weighted_logs(users, grams, plan, decay)
    h = [
        rho * own + (1 - rho) * (log - mean) + stddev * float(normal(place, plan, run_key))
        for place, (own, log) in enumerate(zip(private, logs, strict=True))
    ]
    powers = [math.exp(value - max(h)) for value in h]
    return [power / math.fsum(powers) for power in powers]
