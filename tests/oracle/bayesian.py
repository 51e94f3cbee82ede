"""N-gram probabilities in plain Python: one user and one n-gram at a time, to be read beside the paper.

Shared with the package are the plan's public numbers, the run key and the keyed functions; counting,
limiting, clamping, noise, logarithms, sensitivities and sampling are written here a second time, with
exact integers and long floating point.

Source: Ramadan, Withers and Orr, Algorithms 1 and 2, Corollary 1, Claim 2; the mode "counts" as its
plan says.
"""

import math
from collections import Counter

import mpmath
import numpy as np

from beam_dpne.bayesian.plan import BayesianPlan, CountingPlan, PaperBayesianPlan
from beam_dpne.bayesian.public_counts import PublicCounts
from beam_dpne.bayesian.transform import run_context
from beam_dpne.documents.text import join_tokens
from beam_dpne.mechanism.randomness import RunKey, encrypt_blocks, keyed_bits, keyed_hashes

Gram = tuple[str, ...]
Documents = dict[str, list[list[str]]]
Users = list[Counter[Gram]]


def in_order(public: dict[Gram, int], size: int) -> list[Gram]:
    """The most frequent first, ties by the bytes of the text."""
    ordered = sorted(public, key=lambda gram: (-public[gram], join_tokens(gram).encode()))
    return ordered[:size]


def bound_key(public: dict[Gram, int], plan: CountingPlan, run_key: RunKey) -> RunKey:
    """The key as the transform binds it."""
    kept = in_order(public, plan.vocabulary_size)
    return run_key.bound_to(
        run_context(plan, "tokens", PublicCounts.of(kept, [public[gram] for gram in kept]))
    )


def contributions(
    documents: Documents, grams: list[Gram], plan: CountingPlan, run_key: RunKey
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


def normal(place: int, plan: CountingPlan, run_key: RunKey) -> mpmath.mpf:
    """A standard normal draw for one gram."""
    sub_key = run_key.sub_key("gram noise", plan.length)
    first, last = (int(half) for half in keyed_bits(sub_key, place, 0)[0])
    with mpmath.workdps(60):
        u = mpmath.mpf(((first << 64) | last) | 1) / 2**128
        sign = -1 if last & 1 else 1
        return sign * mpmath.sqrt(2) * mpmath.erfinv(1 - u)


def draw(name: tuple[int, int], row: int, plan: CountingPlan, run_key: RunKey) -> int:
    """What orders a user's grams when there are too many."""
    sub_key = run_key.sub_key("gram subset", plan.length)
    return int(keyed_bits(sub_key, np.uint64(name[0]), row)[0, 0])


def hash_of(text: str, purpose: str, run_key: RunKey) -> tuple[int, int]:
    first, last = keyed_hashes(run_key.sub_key(purpose), [text.encode()])[0]
    return int(first), int(last)


# The paper


def weighted_logs(
    users: Users, grams: list[Gram], plan: PaperBayesianPlan, decay: float
) -> list[float]:
    """w⊙x̂ of some users: equations 2 and 5."""
    logs = [math.log(sum(user[gram] for user in users) + 1) for gram in grams]
    mean = math.fsum(logs) / len(logs)
    holders = [sum(user[gram] > 0 for user in users) for gram in grams]
    return [
        min(1.0, decay * n / plan.max_count) * (log - mean)
        for n, log in zip(holders, logs, strict=True)
    ]


def brute_force(users: Users, grams: list[Gram], plan: PaperBayesianPlan, decay: float) -> float:
    """γ by recomputing everything without each user."""
    whole = weighted_logs(users, grams, plan, decay)
    norms = [0.0]
    for place in range(len(users)):
        others = weighted_logs(users[:place] + users[place + 1 :], grams, plan, decay)
        norms.append(math.dist(whole, others))
    return max(norms)


def paper_probabilities(
    documents: Documents, public: dict[Gram, int], plan: PaperBayesianPlan, run_key: RunKey
) -> list[float]:
    """Algorithm 1 by brute force; with tuning, Algorithm 2."""
    run_key = bound_key(public, plan, run_key)
    grams = in_order(public, plan.vocabulary_size)
    users = contributions(documents, grams, plan, run_key)
    alpha = [public[gram] for gram in grams]
    judges, users = split(list(documents), users, plan, run_key)
    decay, rho = choice(users, judges, grams, alpha, plan, run_key)
    epsilon = plan.epsilon * 2 / 3 if plan.is_tuned else plan.epsilon
    gamma = brute_force(users, grams, plan, decay)
    stddev = rho * gamma * math.sqrt(2 * math.log(1.25 / plan.delta)) / epsilon
    h = [
        mean + stddev * float(normal(place, plan, run_key))
        for place, mean in enumerate(posterior_means(users, grams, alpha, plan, decay, rho))
    ]
    return [math.exp(log) for log in log_softmax(h)]


def posterior_means(
    users: Users,
    grams: list[Gram],
    alpha: list[int],
    plan: PaperBayesianPlan,
    decay: float,
    rho: float,
) -> list[float]:
    """μ_ps of Corollary 1."""
    logs = [math.log(count + 1) for count in alpha]
    mean = math.fsum(logs) / len(logs)
    private = weighted_logs(users, grams, plan, decay)
    return [rho * own + (1 - rho) * (log - mean) for own, log in zip(private, logs, strict=True)]


def log_softmax(h: list[float]) -> list[float]:
    largest = max(h)
    total = math.log(math.fsum(math.exp(value - largest) for value in h))
    return [value - largest - total for value in h]


def split(
    names: list[str], users: Users, plan: PaperBayesianPlan, run_key: RunKey
) -> tuple[Users, Users]:
    """Users that score candidates, and users that train, by a keyed draw."""
    if not plan.is_tuned:
        return [], users
    sub_key = run_key.sub_key("tuning users")
    judges, trainers = [], []
    for name, user in zip(names, users, strict=True):
        block = np.array([hash_of(name, "user", run_key)], dtype=np.uint64)
        drawn = int(encrypt_blocks(sub_key, block)[0, 0]) / 2**64
        (judges if drawn < plan.tuning_fraction else trainers).append(user)
    return judges, trainers


def choice(
    users: Users,
    judges: Users,
    grams: list[Gram],
    alpha: list[int],
    plan: PaperBayesianPlan,
    run_key: RunKey,
) -> tuple[float, float]:
    """(S, ρ) of the least noisy cross-entropy: Theorem 2, with the first bound of Claim 2."""
    if not plan.is_tuned:
        return plan.candidates[0]
    counts = [sum(judge[gram] for judge in judges) for gram in grams]
    scores, changes = [], []
    for decay, rho in plan.candidates:
        logs = log_softmax(posterior_means(users, grams, alpha, plan, decay, rho))
        scores.append(-math.fsum(c * log for c, log in zip(counts, logs, strict=True)))
        trained = rho * math.hypot(*counts) * brute_force(users, grams, plan, decay)
        judged = [
            abs(math.fsum(judge[gram] * log for gram, log in zip(grams, logs, strict=True)))
            for judge in judges
        ]
        changes.append(max([trained, *judged]))
    scale = 2 * max(changes) / (plan.epsilon / 3)
    noisy = [score + scale * laplace(place, run_key) for place, score in enumerate(scores)]
    return plan.candidates[noisy.index(min(noisy))]


def laplace(place: int, run_key: RunKey) -> float:
    """Laplace noise of scale 1 on one candidate's score."""
    first, last = (int(half) for half in keyed_bits(run_key.sub_key("tuning noise"), place, 0)[0])
    u = (((first << 64) | last) | 1) / 2**128
    return (-1 if last & 1 else 1) * -math.log(u)
