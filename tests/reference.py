"""DPNE in plain Python: one function for each algorithm box of the papers, to be read beside them.

Sources: DPNE, supplementary material (papers/dpne_supplement_algorithms.txt), Algorithms 1 to 5, with
the corrections and the exactness rules that the package states. Grams are tuples of str, sets are
sets, histograms are dicts of Python integers. Shared with the package are only the run key and the
keyed functions (`keyed_bits`, `keyed_hashes`); the noise, the weights, the cells, the subset, |V_k|,
the draws from V_k and the Poisson number are written here a second time, in exact arithmetic.

Two things that a keyed reference must agree on with the package, because they name a decision:
- the key of a gram: at k = 1 the 128-bit keyed hash of the word; at k ≥ 2 the pair (rank of its prefix
  in S_{k−1}, rank of its suffix in S_{k−1}) or, pruning "single", (…, rank of its last word in S_1);
- the order in which V_k is numbered: by middle, then by the gram that ends with it, then by the gram
  that begins with it.

Python compares str by code points, which is the order of their UTF-8 bytes, so `sorted` is the
order of S_k.
"""

import math
from collections import defaultdict
from fractions import Fraction
from statistics import NormalDist

import mpmath
import numpy as np
from scipy import stats

from beam_dpne.ngrams import run_context
from beam_dpne.plan import PrivacyPlan
from beam_dpne.randomness import RunKey, keyed_bits, keyed_hashes

Gram = tuple[str, ...]
Scores = dict[Gram, float]

UNIT = Fraction(1, 2**32)


def private_ngrams(
    documents: dict[str, list[list[str]]], plan: PrivacyPlan, run_key: RunKey
) -> dict[int, Scores]:
    """Algorithm 1: returns S_1, …, S_T, each gram with its score."""
    run_key = run_key.bound_to(run_context(plan, "tokens"))
    users = {
        user_hash(user, run_key): limit_tokens(texts, plan.max_tokens_per_user, run_key)
        for user, texts in documents.items()
    }
    released = {1: extract_vocabulary(users, plan, run_key)}
    vocabulary = sorted(released[1])
    for k in range(2, plan.max_length + 1):
        previous = sorted(released[k - 1])
        valid = enumerate_valid(previous, vocabulary, plan.pruning)
        if not valid:
            released[k] = {}
            continue
        key_of = {gram: gram_key(gram, previous, vocabulary, plan.pruning) for gram in valid}
        sigma = plan.lengths[k - 1].noise_stddev
        rho = gram_threshold(k, previous, vocabulary, len(valid), plan, run_key)

        # Build a weighted histogram: H_k has every valid gram that somebody holds (R4).
        histogram: dict[Gram, int] = {}
        for hashed, texts in users.items():
            mine = prune_invalid(grams_of(texts, k), vocabulary, previous, plan.pruning)
            draws = {gram: subset_draw(hashed, key_of[gram], k, run_key) for gram in mine}
            add_user(histogram, draws, plan.contribution_limits[k - 1])

        # Add noise to H_k and output the grams that cross ρ_k.
        cells = {
            gram: cell(weight, noise(one_block(run_key, "noise", k, 0, key_of[gram])), sigma, rho)
            for gram, weight in histogram.items()
        }
        # Add spurious grams from V_k \ supp(H_k).
        spurious = spurious_grams(k, valid, key_of, sigma, rho, run_key)
        cells |= {gram: spurious[gram] for gram in spurious if gram not in histogram}
        released[k] = {gram: score(c, sigma, rho) for gram, c in cells.items() if c >= 0}
    return released


def estimate_valid_kgrams(k: int, previous: list[Gram], vocabulary: list[Gram], key: RunKey) -> int:
    """Algorithm 2: N = ⌈p|S_1||S_{k−1}|⌉ pairs (x, w = yz); counts how often xy ∈ S_{k−1}.

    The words x are numbered, for each y apart, such that those with xy ∈ S_{k−1} come first.
    """
    released = set(previous)
    held_by = {y: sum(x + y in released for x in vocabulary) for y in {w[:-1] for w in previous}}
    pairs = len(vocabulary) * len(previous)
    p = min(1.0, 1_000_000 / pairs)
    count = 0
    for i in range(math.ceil(p * pairs)):
        first, last = one_block(key, "estimate", k, 0, i)
        w = previous[last % len(previous)]
        x_number = first % len(vocabulary)
        count += x_number < held_by[w[:-1]]
    return math.ceil(count / p)


def check_validity(gram: Gram, vocabulary: set[Gram], previous: set[Gram], pruning: str) -> bool:
    """Algorithm 3: w = xyz is valid if x, z ∈ S_1 and xy, yz ∈ S_{k−1}; "single": xy and z."""
    x, z = gram[:1], gram[-1:]
    xy, yz = gram[:-1], gram[1:]
    if pruning == "single":
        return xy in previous and z in vocabulary
    return x in vocabulary and z in vocabulary and xy in previous and yz in previous


def prune_invalid(
    grams: set[Gram], vocabulary: list[Gram], previous: list[Gram], pruning: str
) -> set[Gram]:
    """Algorithm 4: returns W ∩ V_k."""
    words, released = set(vocabulary), set(previous)
    return {gram for gram in grams if check_validity(gram, words, released, pruning)}


def extract_vocabulary(users: dict, plan: PrivacyPlan, run_key: RunKey) -> Scores:
    """Algorithm 5: S_1 by DPSU with the weighted Gaussian policy."""
    sigma, rho = plan.lengths[0].noise_stddev, vocabulary_threshold(plan)
    histogram: dict[Gram, int] = {}
    for hashed, texts in users.items():
        mine = grams_of(texts, 1)
        draws = {
            gram: subset_draw(hashed, word_hash(gram, run_key)[0], 1, run_key) for gram in mine
        }
        add_user(histogram, draws, plan.contribution_limits[0])
    released = {}
    for gram, weight in histogram.items():
        bits = one_block(run_key, "noise", 1, *word_hash(gram, run_key))
        c = cell(weight, noise(bits), sigma, rho)
        if c >= 0 and weight > 0:  # R4
            released[gram] = score(c, sigma, rho)
    return released


def grams_of(texts: list[list[str]], k: int) -> set[Gram]:
    """W_i^k = G_k(w_i): a user's distinct k-grams; none crosses the border of a document."""
    return {tuple(text[i : i + k]) for text in texts for i in range(len(text) - k + 1)}


def add_user(histogram: dict[Gram, int], draws: dict[Gram, int], limit: int) -> None:
    """ "Limit user contributions" and the update of H_k; the rest of U_i keeps its place at 0."""
    chosen = sorted(draws, key=lambda gram: draws[gram])[:limit]
    for gram in draws:
        histogram.setdefault(gram, 0)
    for gram in chosen:
        histogram[gram] += math.isqrt(2**64 // len(chosen))  # R1


def spurious_grams(
    k: int, valid: list[Gram], key_of: dict[Gram, int], sigma: float, rho: int, run_key: RunKey
) -> dict[Gram, int]:
    """ "Add spurious k-grams": each member of V_k with probability Φ̄(ρ_k/σ_k), with its cell."""
    tail = 0.5 * math.erfc(rho * UNIT / Fraction(sigma) / math.sqrt(2))
    mean = -len(valid) * math.log1p(-tail)
    cells = {}
    for i in range(poisson(one_block(run_key, "spurious count", k, 0, 0), mean)):
        first, last = one_block(run_key, "spurious draw", k, 0, i)
        gram = valid[((first << 64 | last) * len(valid)) >> 128]
        u = uniform(one_block(run_key, "spurious noise", k, 0, key_of[gram]))
        cells[gram] = max(0, cell(0, -NormalDist().inv_cdf(tail * u), sigma, rho))
    return cells


def vocabulary_threshold(plan: PrivacyPlan) -> int:
    """ρ_1 = max_t 1/√t + σ_1 Φ^{-1}((1 − δ_T)^{1/t}), in units of 2^-32, rounded up."""
    delta = plan.delta * plan.vocabulary_delta_share * math.exp(-plan.numerical_slack)
    sigma = plan.lengths[0].noise_stddev
    t = np.arange(1, plan.contribution_limits[0] + 1)
    quantiles = stats.norm.isf(-np.expm1(math.log1p(-delta) / t))
    return math.ceil(float(np.max(1 / np.sqrt(t) + sigma * quantiles)) * 2**32)


def gram_threshold(
    k: int,
    previous: list[Gram],
    vocabulary: list[Gram],
    valid: int,
    plan: PrivacyPlan,
    run_key: RunKey,
) -> int:
    """ρ_k = σ_k Φ̄^{-1}(η min(1, |S_{k−1}|/|V_k|)), in units of 2^-32, rounded up."""
    if plan.valid_count == "estimate":
        valid = max(1, estimate_valid_kgrams(k, previous, vocabulary, run_key))
    tail = plan.spurious_fraction * min(1.0, len(previous) / valid)
    return math.ceil(plan.lengths[k - 1].noise_stddev * float(stats.norm.isf(tail)) * 2**32)


def enumerate_valid(previous: list[Gram], vocabulary: list[Gram], pruning: str) -> list[Gram]:
    """V_k, in the order in which its members are numbered."""
    if pruning == "single":
        return [xy + z for xy in previous for z in vocabulary]
    ending, beginning = defaultdict(list), defaultdict(list)
    for gram in previous:
        ending[gram[1:]].append(gram)
        beginning[gram[:-1]].append(gram)
    return [xm + mz[-1:] for m in sorted(ending) for xm in ending[m] for mz in beginning.get(m, [])]


def gram_key(gram: Gram, previous: list[Gram], vocabulary: list[Gram], pruning: str) -> int:
    """The 64-bit name of a valid gram."""
    if pruning == "single":
        return previous.index(gram[:-1]) << 32 | vocabulary.index(gram[-1:])
    return previous.index(gram[:-1]) << 32 | previous.index(gram[1:])


def cell(weight: int, gaussian: float, sigma: float, rho: int) -> int:
    """The cell of H + σN, counted from ρ: cell c holds (ρ + c·w, ρ + (c + 1)·w] (R3)."""
    distance = weight - rho + Fraction(gaussian) * Fraction(sigma) / UNIT
    return math.ceil(distance / cell_width(sigma)) - 1


def score(place: int, sigma: float, rho: int) -> float:
    """The middle of a cell."""
    return float((rho + (place + Fraction(1, 2)) * cell_width(sigma)) * UNIT)


def cell_width(sigma: float) -> int:
    """One 64th of the noise's standard deviation, in units of 2^-32."""
    return max(1, round(Fraction(sigma) / UNIT / 64))


def uniform(bits: tuple[int, int]) -> float:
    """U in (0, 1] from 127 bits."""
    return float(Fraction(bits[0] << 64 | bits[1] | 1, 2**128))


def noise(bits: tuple[int, int]) -> float:
    """A standard normal: the lowest bit is the sign, the others choose |Φ^{-1}(U/2)|."""
    size = -NormalDist().inv_cdf(uniform(bits) / 2)
    return -size if bits[1] & 1 else size


def poisson(bits: tuple[int, int], mean: float) -> int:
    """The least n with P(X ≤ n) ≥ U/2, or P(X > n) ≤ U/2 in the upper half."""
    with mpmath.workdps(80):
        half = mpmath.mpf(uniform(bits)) / 2
        wanted = half if not bits[1] & 1 else 1 - half
        n, term = 0, mpmath.exp(-mpmath.mpf(mean))
        total = term
        while total < wanted:
            n += 1
            term *= mean / mpmath.mpf(n)
            total += term
        return n


def limit_tokens(texts: list[list[str]], limit: int, run_key: RunKey) -> list[list[str]]:
    """A user above the limit keeps documents in the order of a keyed hash of their content."""
    texts = [text for text in texts if text]
    if sum(map(len, texts)) <= limit:
        return texts
    contents = [
        b"".join(len(token.encode()).to_bytes(8, "little") + token.encode() for token in text)
        for text in texts
    ]
    hashes = keyed_hashes(run_key.sub_key("document"), contents).tolist()
    kept, left = [], limit
    for _, text in sorted(zip(hashes, texts, strict=True)):
        kept.append(text[:left])
        left -= len(kept[-1])
    return [text for text in kept if text]


def user_hash(user: str, run_key: RunKey) -> tuple[int, int]:
    """128 bits that tell users apart."""
    return tuple(keyed_hashes(run_key.sub_key("user"), [user.encode()])[0].tolist())


def word_hash(gram: Gram, run_key: RunKey) -> tuple[int, int]:
    """128 bits that name a word."""
    return tuple(keyed_hashes(run_key.sub_key("word"), [gram[0].encode()])[0].tolist())


def subset_draw(user: tuple[int, int], key: int, k: int, run_key: RunKey) -> int:
    """The 64-bit draw of a user's gram: the Δ_k smallest are kept."""
    return one_block(run_key, "subset", k, user[0], key)[0]


def one_block(run_key: RunKey, purpose: str, k: int, left: int, right: int) -> tuple[int, int]:
    """128 keyed bits of one item."""
    bits = keyed_bits(run_key.sub_key(purpose, k), np.uint64(left), np.uint64([right]))
    return tuple(bits[0].tolist())
