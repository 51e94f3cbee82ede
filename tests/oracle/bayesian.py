"""N-gram probabilities in plain Python: one user and one n-gram at a time, to be read beside the paper.

Shared with the package are the plan's public numbers, the run key and the keyed functions; counting,
limiting, clamping and noise are written here a second time, with exact integers and long
floating point.
"""

from collections import Counter

import mpmath
import numpy as np

from beam_dpne.bayesian.plan import ProbabilitiesPlan
from beam_dpne.documents.run_keys import key_context
from beam_dpne.elements.rows import join_tokens
from beam_dpne.lists.public_counts import PublicCounts
from beam_dpne.mechanism.randomness import RunKey, keyed_bits, keyed_hashes

Gram = tuple[str, ...]
Documents = dict[str, list[list[str]]]
Users = list[Counter[Gram]]


def in_order(public: dict[Gram, int], size: int) -> list[Gram]:
    """The most frequent first, ties by the bytes of the text."""
    ordered = sorted(public, key=lambda gram: (-public[gram], join_tokens(gram).encode()))
    return ordered[:size]


def bound_key(public: dict[Gram, int], plan: ProbabilitiesPlan, run_key: RunKey) -> RunKey:
    """The key as the transform binds it."""
    kept = in_order(public, plan.vocabulary_size)
    counts = PublicCounts.of(kept, [public[gram] for gram in kept])
    return run_key.bound_to(key_context(plan, "tokens", public=counts.fingerprint()))


def contributions(
    documents: Documents, grams: list[Gram], plan: ProbabilitiesPlan, run_key: RunKey
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
    documents: Documents, public: dict[Gram, int], plan: ProbabilitiesPlan, run_key: RunKey
) -> list[int]:
    """The mechanism: sums over users and noise, gram by gram."""
    run_key = bound_key(public, plan, run_key)
    grams = in_order(public, plan.vocabulary_size)
    users = contributions(documents, grams, plan, run_key)
    values = []
    for place, gram in enumerate(grams):
        count = sum(user[gram] for user in users)
        values.append(count + noise(place, plan, run_key))
    return values


def noise(place: int, plan: ProbabilitiesPlan, run_key: RunKey) -> int:
    """σ·Φ^{-1}(keyed bits), to the nearest integer."""
    with mpmath.workdps(60):
        scaled = normal(place, plan, run_key) * mpmath.mpf(plan.noise_stddev)
        return int(mpmath.nint(scaled))


def normal(place: int, plan: ProbabilitiesPlan, run_key: RunKey) -> mpmath.mpf:
    """A standard normal draw for one gram."""
    sub_key = run_key.sub_key("gram noise", plan.length)
    first, last = (int(half) for half in keyed_bits(sub_key, place, 0)[0])
    with mpmath.workdps(60):
        u = mpmath.mpf(((first << 64) | last) | 1) / 2**128
        sign = -1 if last & 1 else 1
        return sign * mpmath.sqrt(2) * mpmath.erfinv(1 - u)


def draw(name: tuple[int, int], row: int, plan: ProbabilitiesPlan, run_key: RunKey) -> int:
    """What orders a user's grams when there are too many."""
    sub_key = run_key.sub_key("gram subset", plan.length)
    return int(keyed_bits(sub_key, np.uint64(name[0]), row)[0, 0])


def hash_of(text: str, purpose: str, run_key: RunKey) -> tuple[int, int]:
    first, last = keyed_hashes(run_key.sub_key(purpose), [text.encode()])[0]
    return int(first), int(last)
