"""DPNE in plain Python: one function for each algorithm box of the papers, to be read beside them.

Sources: DPNE, supplementary material (papers/dpne_supplement_algorithms.txt), Algorithms 1 to 5, with
the corrections and the exactness rules that the package states; after them the adaptive strategy, one
function for each step. Grams are tuples of str, sets are sets, histograms are dicts of Python
integers. Shared with the package are only the run key and the keyed functions (`keyed_bits`,
`keyed_hashes`); the noise, the weights, the cells, the subset, |V_k|, the draws from V_k, the Poisson
number, the null law and the thresholds are written here a second time, in exact arithmetic or by
another method.

What a keyed reference must agree on with the package, because it names a decision:
- the key of a gram: at k = 1 the 128-bit keyed hash of the word; at k ≥ 2 the pair (rank of its prefix
  in S_{k−1}, rank of its suffix in S_{k−1}) or, pruning "single", (…, rank of its last word in S_1);
- the order in which V_k is numbered: by middle, then by the gram that ends with it, then by the gram
  that begins with it;
- the purposes of keys, and in the adaptive strategy the order of + − × ÷ √ in spends, preferences and
  weights: they are floating point, so the order is a part of their definition.

Python compares str by code points, which is the order of their UTF-8 bytes, so `sorted` is the
order of S_k.
"""

import functools
import itertools
import math
from collections import Counter, defaultdict
from fractions import Fraction
from statistics import NormalDist
from typing import NamedTuple

import mpmath
import numpy as np
from scipy import integrate, optimize, stats

from beam_dpne.documents.run_keys import key_context
from beam_dpne.mechanism.randomness import RunKey, keyed_bits, keyed_hashes
from beam_dpne.ngrams.plan import NgramsPlan

Gram = tuple[str, ...]
Scores = dict[Gram, float]
Documents = dict[str, list[list[str]]]

UNIT = Fraction(1, 2**32)


def private_ngrams(
    documents: Documents, plan: NgramsPlan, run_key: RunKey, given: list[str] | None = None
) -> dict[int, Scores]:
    """Algorithm 1: returns S_1, …, S_T, each gram with its score; without S_1 if it is given."""
    run_key = run_key.bound_to(key_context(plan, "tokens"))
    users = texts_of_users(documents, plan, run_key)
    released = {1: extract_vocabulary(users, plan, run_key)} if given is None else {}
    vocabulary = sorted(released[1] if given is None else {(word,) for word in given})
    for k in range(2, plan.max_length + 1):
        previous = sorted(released[k - 1]) if k > 2 else vocabulary
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
            gram: cell(
                weight, noise(one_block(run_key, "noise", k, 0, key_of[gram], r=1)), sigma, rho
            )
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


def extract_vocabulary(users: dict, plan: NgramsPlan, run_key: RunKey) -> Scores:
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
        bits = one_block(run_key, "noise", 1, *word_hash(gram, run_key), r=1)
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


def vocabulary_threshold(plan: NgramsPlan) -> int:
    """ρ_1, in units of 2^-32, rounded up."""
    sigma, limit = plan.lengths[0].noise_stddev, plan.contribution_limits[0]
    return math.ceil(alone_threshold(1.0, sigma, vocabulary_delta(plan), limit) * 2**32)


def vocabulary_delta(plan: NgramsPlan) -> float:
    """δ_T."""
    usable = 0.999 * plan.delta * math.exp(-0.001 * plan.epsilon)
    return usable * plan.vocabulary_delta_share


def alone_threshold(norm: float, sigma: float, delta: float, limit: int) -> float:
    """max_t c/√t + σ Φ^{-1}((1 − δ)^{1/t}): words of one user alone pass it with probability ≤ δ."""
    t = np.arange(1, limit + 1)
    quantiles = stats.norm.isf(-np.expm1(math.log1p(-delta) / t))
    return float(np.max(norm / np.sqrt(t) + sigma * quantiles))


def gram_threshold(
    k: int,
    previous: list[Gram],
    vocabulary: list[Gram],
    valid: int,
    plan: NgramsPlan,
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


def texts_of_users(
    documents: Documents, plan: NgramsPlan, run_key: RunKey
) -> dict[tuple[int, int], list[list[str]]]:
    """What is looked at of each user, by the hash that names the user."""
    return {
        user_hash(user, run_key): limit_tokens(texts, plan.max_tokens_per_user, run_key)
        for user, texts in documents.items()
    }


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


def subset_draw(user: tuple[int, int], key: int, k: int, run_key: RunKey, r: int = 0) -> int:
    """The 64-bit draw of a user's gram: the Δ_k smallest are kept."""
    return one_block(run_key, "subset", k, user[0], key, r=r)[0]


def one_block(
    run_key: RunKey, purpose: str, k: int, left: int, right: int, *, r: int = 0
) -> tuple[int, int]:
    """128 keyed bits of one item."""
    bits = keyed_bits(run_key.sub_key(purpose, k, r), np.uint64(left), np.uint64([right]))
    return tuple(bits[0].tolist())


class RoundRule(NamedTuple):
    """What is known of a round before it.

    Attributes:
      loadings: ℓ_1, …, ℓ_r, in units of 2^-20.
      information: I = Σ ℓ_s², exactly.
      rho: ρ_r, in units of 2^-32.
      cut: b_r, as a cell: what is in it or above is open.
      probability: P_r; of words, which nobody draws, 0.
      divisor: what evidence is divided by to be a score.
    """

    loadings: list[int]
    information: Fraction
    rho: int
    cut: int
    probability: float
    divisor: float

    @property
    def stddev(self) -> float:
        """The standard deviation of the noise in Y."""
        return math.sqrt(self.information)

    @property
    def span(self) -> tuple[float, float]:
        """(b_r, ρ_r], where evidence stays open."""
        return (self.rho + self.cut * cell_width(self.stddev)) / 2**32, self.rho / 2**32


class AdaptiveRun(NamedTuple):
    """What came of a run, and how.

    Attributes:
      released: S_1, …, S_T, each gram with its score.
      rules: of each length and class, those of its rounds; none where nothing is valid.
      found: for each length and round the grams that somebody holds and that were found in it.
      left: for each length and round what each user has left after it, in units of 2^-56; round 0 is
        the count of held candidates.
    """

    released: dict[int, Scores]
    rules: dict[int, dict[int, list[RoundRule]]]
    found: dict[tuple[int, int], set[Gram]]
    left: dict[tuple[int, int], dict[tuple[int, int], int]]


# (Q_r, E_r) of each round: of words, and of longer grams by the number of rounds.
WORD_ROUNDS = [(0.1, 0.05), (0.3, 0.15), (1.0, 0.8)]
GRAM_ROUNDS = {
    1: [(1.0, 1.0)],
    2: [(0.3, 0.1), (1.0, 0.9)],
    3: [(0.25, 0.05), (0.5, 0.15), (1.0, 0.8)],
}
LATER_LOADING, NEARLY_OVER = 1.2, 0.7
# ω at k = 1, and at k ≥ 2, by what a plan favours.
OMEGAS = {"words": (0.2, 1.2), "balanced": (0.4, 1.2), "long": (0.4, 1.2)}
MORE_BESIDE_KNOWN = 1.0
NEARBY = 4
# Under favour "long", the part of its preference that an n-gram has that stands alone.
ALONE = 0.35
WORD_HOP, GRAM_HOP = 1.5, 0.5
CUT_BOOST, LARGEST_PROBABILITY = 4, 0.35
# The class of a known gram has a number of its own; it is predicted to be 2^(LEAD/2) times as frequent,
# or as `lead_after` says.
KNOWN, LEAD, LARGEST_LEAD = 1024, 8, 12


def adaptive_ngrams(
    documents: Documents,
    plan: NgramsPlan,
    run_key: RunKey,
    given: list[str] | None = None,
    known: frozenset[Gram] = frozenset(),
    public: str = "",
) -> AdaptiveRun:
    """The adaptive strategy: every user has one budget, and each length is settled in rounds.

    `given` is a public vocabulary; `known` are known grams, and `public` is their digest.
    """
    run_key = run_key.bound_to(key_context(plan, "tokens", public=public))
    users = texts_of_users(documents, plan, run_key)
    run = AdaptiveRun({}, {}, {}, {})
    words = {} if given is None else {(word,): 1.0 for word in given}
    # S_{k−1}, its scores, and those of S_{k−2}.
    shorter: Scores = {}
    left = dict.fromkeys(users, user_budget(plan))
    lead = LEAD
    for k in range(1 if given is None else 2, plan.max_length + 1):
        parents = words if k == 2 else run.released.get(k - 1, {})
        length = describe_length(k, words, parents, shorter, users, plan, run_key, known)
        length = length._replace(lead=lead)
        run.rules[k], run.released[k] = length.rules, {}
        if length.valid:
            count = count_held_words if k == 1 else count_held
            length = count(length, users, left, run)
        if length.rules:
            settle_length(length, users, left, run)
        if k > 1:
            lead = lead_after(length, run.released[k])
        words = words or run.released[1]
        shorter = parents
    return run


class Length(NamedTuple):
    """What is fixed of a length before its rounds.

    Attributes:
      k: words in a gram.
      parents: S_{k−1}, with scores.
      valid: V_k, in the order in which its members are numbered; at k = 1 the known words.
      key_of: the keys of V_k; at k = 1 of all words that somebody has.
      class_of: the classes of V_k; at k = 1 every word has class 0, or KNOWN.
      rules: of the rounds of each class; none where nothing is valid.
      plan: of the run.
      run_key: of the run.
      lead: half octaves by which known grams are predicted to be more frequent.
    """

    k: int
    parents: Scores
    valid: list[Gram]
    key_of: dict[Gram, int]
    class_of: dict[Gram, int]
    rules: dict[int, list[RoundRule]]
    plan: NgramsPlan
    run_key: RunKey
    lead: int = LEAD


def describe_length(
    k: int,
    words: Scores,
    parents: Scores,
    shorter: Scores,
    users: dict,
    plan: NgramsPlan,
    run_key: RunKey,
    known: frozenset[Gram],
) -> Length:
    """V_k, keys, thresholds and cuts of a length."""
    own = {gram for gram in known if len(gram) == k}
    if k == 1:
        held = {(word,) for texts in users.values() for text in texts for word in text}
        key_of = {gram: word_hash(gram, run_key)[0] for gram in held | own}
        class_of = {gram: KNOWN * (gram in own) for gram in key_of}
        rules = {0: word_rules(plan)}
        return Length(k, parents, sorted(own), key_of, class_of, rules, plan, run_key)
    vocabulary, previous = sorted(words), sorted(parents)
    valid = enumerate_valid(previous, vocabulary, plan.pruning)
    key_of = {gram: gram_key(gram, previous, vocabulary, plan.pruning) for gram in valid}
    class_of = {
        gram: predicted_class(gram, parents, shorter, words, plan) + KNOWN * (gram in own)
        for gram in valid
    }
    return Length(k, parents, valid, key_of, class_of, {}, plan, run_key)


def lead_after(length: Length, released: Scores) -> int:
    """4c: the half octaves by which known candidates of the next length are predicted to lead.

    Each released gram counts with the part that the other family has of the candidates of its class.
    """
    sizes = Counter(length.class_of[gram] for gram in length.valid)
    sums = {True: Fraction(16), False: Fraction(1)}
    for gram in released:
        number = length.class_of[gram]
        others = sizes[number - KNOWN if number > 500 else number + KNOWN]
        sums[number > 500] += Fraction(others, others + sizes[number])
    with mpmath.workdps(50):
        ratio = mpmath.mpf(sums[True].numerator) / sums[True].denominator
        ratio *= mpmath.mpf(sums[False].denominator) / sums[False].numerator
        return min(LARGEST_LEAD, max(0, int(mpmath.nint(2 * mpmath.log(ratio, 2)))))


def predicted_class(
    gram: Gram, parents: Scores, shorter: Scores, words: Scores, plan: NgramsPlan
) -> int:
    """c(g) = bin(prefix) + bin(suffix) − bin(middle); "single": bin(prefix) + bin(last word)."""
    if plan.pruning == "single":
        return score_bin(parents[gram[:-1]]) + score_bin(words[gram[-1:]])
    middle = score_bin(shorter[gram[1:-1]]) if len(gram) > 2 else 0
    return score_bin(parents[gram[:-1]]) + score_bin(parents[gram[1:]]) - middle


def score_bin(value: float) -> int:
    """round(2 log2 max(score, .01)), by comparison of 4th powers: 2^((j + ½)/2) = 2^((2j + 1)/4)."""
    place = -13
    while place < 128 and value > 0 and Fraction(value) ** 4 >= Fraction(2) ** (2 * place + 1):
        place += 1
    return place


class OracleGroup(NamedTuple):
    """A group of classes.

    Attributes:
      factors: ω_c in units of 2^-16.
      units: U_G in units of 2^-16.
      share: Σ x_c |V_c|, in units of 2^-64.
      last: Σ |V_c| down to and with this group.
    """

    factors: dict[int, int]
    units: int
    share: int
    last: int


def class_groups(sizes: dict[int, int], released: int, lead: int = LEAD) -> list[OracleGroup]:
    """The groups of classes, the best one first: those of known grams, then the others."""
    height = {c: c - KNOWN + lead if c > 500 else c for c in sizes}
    heights = sorted(height.values())
    inside = [x for x in heights if 4 * sum(sizes[d] for d in sizes if height[d] >= x) <= released]
    cap = min(inside, default=max(heights, default=0))
    return [
        group
        for family in ([c for c in sizes if c > 500], [c for c in sizes if c <= 500])
        for group in family_groups({c: sizes[c] for c in family}, height, cap, released)
    ]


def family_groups(
    sizes: dict[int, int], height: dict[int, int], cap: int, released: int
) -> list[OracleGroup]:
    """The groups of one family, the best one first."""
    order = sorted(sizes, reverse=True)
    groups: list[list[int]] = [[]]
    for c in order:
        groups[-1].append(c)
        before = sum(sizes[d] for d in order if d > c)
        now = before + sizes[c]
        # A border |S_{k−1}|·2^i lies in (before, now].
        if any(before < released * 2**i <= now for i in range(200)):
            groups.append([])

    def power(c: int, bits: int, top: int = cap) -> int:
        return math.isqrt(2 ** max(0, 2 * bits - (top - min(height[c], top))))

    found = []
    for group in filter(None, groups):
        top = min(height[group[0]], cap)
        factors = {c: power(c, 16, top) for c in group}
        units = sum(factors[c] * sizes[c] for c in group)
        share = sum(power(c, 64) * sizes[c] for c in group)
        last = sum(sizes[d] for d in order if d >= group[-1])
        found.append(OracleGroup(factors, units, share, last))
    return found


def class_chances(
    groups: list[OracleGroup], unheld: list[float], tolerated: float
) -> dict[int, float]:
    """p_c = ω_c P_G of each class, on a grid: 16 steps an octave, rounded down."""
    left, chances = tolerated * (1 - 1e-12), {}
    for place, group in enumerate(groups):
        share, later = group.share, sum(other.share for other in groups[place + 1 :])
        chance = left * (share / (share + later)) / unheld[place]
        handed_on = left * (later / (share + later))
        if chance > LARGEST_PROBABILITY:
            chance = LARGEST_PROBABILITY
            handed_on = max(handed_on, left - chance * unheld[place])
        left = handed_on
        for c, factor in group.factors.items():
            chances[c] = on_the_grid(Fraction(chance * factor) / 2**16)
    return chances


def count_held(length: Length, users: dict, left: dict, run: AdaptiveRun) -> Length:
    """4b, before round 1: users pay for and send t; X_G, N_G, and the rules of all classes."""
    plan, sizes = length.plan, Counter(length.class_of.values())
    deviation = with_24_digits(10.0 / math.sqrt(user_budget(plan) / 2**56))
    groups = class_groups(sizes, len(length.parents), length.lead)
    counted = [
        place
        for place, group in enumerate(groups)
        if group.units >= 3.0 * deviation * 2**16 and group.last <= 20 * len(length.parents)
    ]
    sums: dict[Gram, int] = defaultdict(int)
    for user, texts in users.items():
        own = grams_of(texts, length.k) & length.key_of.keys()
        weighted = [
            sum(groups[place].factors.get(length.class_of[gram], 0) for gram in own)
            for place in counted
        ]
        tally = tally_of(weighted, left[user], deviation)
        cost = tally_cost(tally, weighted, deviation)
        # What is charged is at least t² Σ n_G²/s², and more only by rounding.
        exact = Fraction(tally, 2**24) ** 2 * sum(n * n for n in weighted) / 2**32
        exact *= 2**56 / Fraction(deviation) ** 2
        assert exact <= cost <= exact + math.isqrt(math.ceil(exact)) // 2 + 3
        if cost > left[user]:
            tally = cost = 0
        left[user] -= cost
        for gram in own:
            sums[gram] += tally
    run.left[length.k, 0] = dict(left)
    unheld = [math.nextafter(group.units / 2**16, math.inf) for group in groups]
    width = max(1, round(deviation * 2**40 / 64))
    for place in counted:
        factors = groups[place].factors
        held = sum(
            factors.get(length.class_of[gram], 0) * min(total, 2**24)
            for gram, total in sums.items()
        )
        drawn = noise(one_block(length.run_key, "held noise", length.k, 0, place)) * deviation
        noisy = groups[place].units * 2**24 - held + round(drawn * 2**40)
        edge = (noisy // width + 1) * width / 2**40
        unheld[place] = mills(edge, deviation)
    chances = class_chances(groups, unheld, plan.spurious_fraction * len(length.parents))
    rules = {number: gram_rules(chances[number], plan.rounds) for number in sizes}
    run.rules[length.k] = rules
    return length._replace(rules=rules)


def count_held_words(length: Length, users: dict, left: dict, run: AdaptiveRun) -> Length:
    """4c, before round 1: users pay for and send t; two numbers of held known words, and their rule."""
    plan, known = length.plan, length.valid
    deviation = with_24_digits(10.0 / math.sqrt(user_budget(plan) / 2**56))
    unheld, tolerated = math.nextafter(len(known), math.inf), 1.0
    if len(known) >= 3.0 * 1.4142136 * deviation:
        sums: dict[Gram, int] = defaultdict(int)
        for user, texts in users.items():
            every = grams_of(texts, 1)
            own = every & set(known)
            weighted = [len(own) << 16]
            tally = tally_of(weighted, left[user], deviation, len(own) / max(len(every), 1))
            cost = tally_cost(tally, weighted, deviation)
            tally, cost = (0, 0) if cost > left[user] else (tally, cost)
            left[user] -= cost
            for gram in own:
                sums[gram] += tally
        run.left[1, 0] = dict(left)
        twofold = deviation * 1.4142136
        width = max(1, round(twofold * 2**40 / 64))
        held = sum(min(total, 2**24) for total in sums.values()) << 16
        drawn = [
            round(noise(one_block(length.run_key, "held noise", 1, 0, place)) * twofold * 2**40)
            for place in (0, 1)
        ]
        edge = (((len(known) << 40) - held + drawn[0]) // width + 1) * width / 2**40
        unheld = mills(edge, twofold)
        # The second number is that of held ones, at the lower edge of its cell.
        tolerated = max(1.0, -((drawn[1] - held) // width + 1) * width / 2**40 - 2.0 * twofold)
    chance = min(LARGEST_PROBABILITY, plan.spurious_fraction * tolerated * (1 - 1e-12) / unheld)
    rules = {**length.rules, KNOWN: known_word_rules(on_the_grid(Fraction(chance)))}
    run.rules[1] = rules
    return length._replace(rules=rules)


def with_24_digits(deviation: float) -> float:
    """s, rounded up to 24 binary digits."""
    unit = Fraction(2) ** (math.floor(math.log2(deviation)) - 23)
    return float(math.ceil(Fraction(deviation) / unit) * unit)


def tally_of(weighted: list[int], left: int, deviation: float, part: float = 1.0) -> int:
    """t = min(1, s √(ccap·left·part/q)), in units of 2^-24. The order belongs to the definition."""
    squares = 0.0
    for n in weighted:
        squares += (n / 2**16) * (n / 2**16)
    share = math.sqrt(0.03 * left * 2.0**-56 * part / squares) if squares else 1.0
    return math.floor(min(1.0, deviation * share) * 2.0**24)


def tally_cost(tally: int, weighted: list[int], deviation: float) -> int:
    """What t costs, in units of 2^-56: Σ w² of the weights w = ⌈t n_G/s⌉ in units of 2^-32."""
    weights = [math.ceil(Fraction(tally * n, 2**8) / Fraction(deviation)) for n in weighted]
    return math.ceil(Fraction(sum(w * w for w in weights), 2**8))


def mills(edge: float, deviation: float) -> float:
    """N = max(s φ(X/s)/Φ̄(X/s), s/4)."""
    with mpmath.workdps(40):
        place = mpmath.mpf(edge) / mpmath.mpf(deviation)
        tail = mpmath.erfc(place / mpmath.sqrt(2)) / 2
        density = mpmath.exp(-place * place / 2) / mpmath.sqrt(2 * mpmath.pi)
        return deviation * max(float(density / tail * (1 + mpmath.mpf("1e-9"))), 0.25)


def on_the_grid(chance: Fraction) -> float:
    """The largest s·2^e ≤ p with 16 ≤ s < 32."""
    exponent = 0
    while chance >= Fraction(2) ** exponent:
        exponent += 1
    while chance < Fraction(2) ** (exponent - 1):
        exponent -= 1
    steps = math.floor(chance * 32 / Fraction(2) ** exponent)
    return float(steps * Fraction(2) ** exponent / 32)


def settle_length(length: Length, users: dict, left: dict, run: AdaptiveRun) -> None:
    """The rounds of one length; writes what they find into the run, and lowers what users have."""
    held = {user: grams_of(texts, length.k) & length.key_of.keys() for user, texts in users.items()}
    # A_r, as far as somebody holds it, with the cells of the round before; and what was found.
    active: dict[Gram, int] = dict.fromkeys(set().union(*held.values()), 0)
    found: dict[Gram, tuple[int, int]] = {}
    sums: dict[Gram, list[int]] = {gram: [] for gram in active}
    rounds = len(next(iter(length.rules.values())))
    for r in range(1, rounds + 1):
        for gram in active:
            sums[gram].append(0)
        for user, texts in users.items():
            own = sorted(held[user] & active.keys(), key=lambda gram: length.key_of[gram])
            standing = active.keys() | found.keys()
            spent = spend(left[user], texts, own, standing, length, r)
            shares = [
                preference(gram, active[gram], length, r) * of_alone(gram, texts, standing, length)
                for gram in own
            ]
            weights, cost = divide(spent, keep_subset(user, own, shares, length, r))
            left[user] -= cost
            for gram, weight in zip(own, weights, strict=True):
                sums[gram][-1] += weight
        active, over = decide(active, sums, length, r)
        found |= {gram: (r, place) for gram, place in over.items()}
        run.left[length.k, r] = dict(left)
        run.found[length.k, r] = set(over)
    if length.valid:
        drawn = draw_spurious(length)
        found |= {gram: drawn[gram] for gram in drawn if gram not in sums}
    run.released[length.k] = {
        gram: score_of(place, rule_of(gram, length, r)) for gram, (r, place) in found.items()
    }


def rule_of(gram: Gram, length: Length, r: int) -> RoundRule:
    """The rule of round r for the class of a gram."""
    return length.rules[length.class_of[gram]][r - 1]


def user_budget(plan: NgramsPlan) -> int:
    """μ² = 1/σ(ε, δ_G)² in units of 2^-56, rounded down."""
    return math.floor(2**56 / Fraction(plan.ngrams_noise_stddev) ** 2)


def budget_shares(rounds: list[tuple[float, float]]) -> list[float]:
    """ν_r = Q_r Π_{s<r}(1 − Q_s)."""
    shares, rest = [], 1.0
    for quota, _ in rounds:
        shares.append(rest * quota)
        rest *= 1.0 - quota
    return shares


def grams_ahead(texts: list[list[str]], k: int, longest: int, standing: set[Gram]) -> int:
    """Step 1: Σ_{j>k} m_j, the user's j-grams, each as often as held, all of whose k-grams stand."""
    return sum(
        all(tuple(text[i + d : i + d + k]) in standing for d in range(j - k + 1))
        for text in texts
        for j in range(k + 1, longest + 1)
        for i in range(len(text) - j + 1)
    )


def spend(
    left: int, texts: list[list[str]], own: list[Gram], standing: set[Gram], length: Length, r: int
) -> int:
    """Step 1: left·Q·n/(n + ω (n/p) Σ m_j); at k = 1 at most μ²ν_r.

    n open n-grams of the user stand at p places, without those that recur nearby. The order is part
    of the definition.
    """
    k, plan = length.k, length.plan
    n, p = len(own), 0
    for text in texts:
        grams = places_of(text, k)
        for i, gram in enumerate(grams):
            before = range(max(0, i - NEARBY), i)
            nearby = any(grams[j] == gram and set(grams[j:i]) <= standing for j in before)
            p += gram in own and not nearby
    rounds = WORD_ROUNDS if k == 1 else GRAM_ROUNDS[plan.rounds]
    ahead = grams_ahead(texts, k, plan.max_length, standing)
    omega = OMEGAS[plan.favour][min(k, 2) - 1]
    if k == 1 and own:  # ω is the mean over the user's own open words.
        omega *= 1.0 + MORE_BESIDE_KNOWN * (sum(length.class_of[gram] == KNOWN for gram in own) / n)
    part = rounds[r - 1][0] * n / max(n + omega * (ahead * n / max(p, 1)), 1.0)
    spent = min(left, math.floor(left * part))
    if k == 1:
        spent = min(spent, math.floor(user_budget(plan) * budget_shares(rounds)[r - 1]))
    return spent


def places_of(text: list[str], k: int) -> list[Gram]:
    """The k-gram at each place of a text, as often as it is there."""
    return [tuple(text[i : i + k]) for i in range(len(text) - k + 1)]


def of_alone(gram: Gram, texts: list[list[str]], standing: set[Gram], length: Length) -> float:
    """Step 2, favour "long", 1 < k < T: less if no k-gram that stands is ever beside this one."""
    if length.plan.favour != "long" or not 1 < length.k < length.plan.max_length:
        return 1.0
    for text in texts:
        grams = places_of(text, length.k)
        for one, other in itertools.pairwise(grams):
            if gram in (one, other) and {one, other} <= standing:
                return 1.0
    return ALONE


def keep_subset(
    user: tuple[int, int], own: list[Gram], shares: list[float], length: Length, r: int
) -> list[float]:
    """Step 2: a keyed Δ-subset if more; the others get nothing."""
    draws = {
        gram: subset_draw(user, length.key_of[gram], length.k, length.run_key, r) for gram in own
    }
    limit = length.plan.contribution_limits[length.k - 1]
    chosen = set(sorted(own, key=lambda gram: draws[gram])[:limit])
    return [share if gram in chosen else 0.0 for gram, share in zip(own, shares, strict=True)]


def preference(gram: Gram, place: int, length: Length, r: int) -> float:
    """Step 2: a_g = pred_g^-¼ (1 − f p_g). The order is part of the definition.

    `place` is the cell of the round before: its middle, between the cut (0) and the threshold (1).
    """
    if length.k == 1:
        return 1.0
    predicted, near = 1.0, 0.0
    if length.k > 2:
        suffix = gram[1:] if length.plan.pruning == "both" else gram[:-1]
        predicted = min(length.parents[gram[:-1]], length.parents[suffix])
    if r > 1:
        cut = rule_of(gram, length, r - 1).cut
        near = float(min(1, max(0, Fraction(2 * (place - cut) + 1, 2 * max(1, -cut)))))
    return (1.0 - NEARLY_OVER * near) / math.sqrt(math.sqrt(max(predicted, 0.5)))


def divide(spent: int, shares: list[float]) -> tuple[list[int], int]:
    """Step 2: v = √spend · a/‖a‖ in units of 2^-32, and what it costs in units of 2^-56.

    Squares are added from the least key up, one by one (`sum` would correct for rounding).
    """
    squares = 0.0
    for share in shares:
        squares += share * share
    scale = math.sqrt(spent * 256.0) / math.sqrt(squares) if squares else 0.0
    weights = [math.floor(scale * share) for share in shares]
    while (cost := -(-sum(weight**2 for weight in weights) // 2**8)) > spent:
        weights = [max(0, weight - 1) for weight in weights]
    return weights, cost


def decide(
    active: dict[Gram, int], sums: dict[Gram, list[int]], length: Length, r: int
) -> tuple[dict[Gram, int], dict[Gram, int]]:
    """Steps 3 and 4: A_{r+1} and what is found in round r, with the cells of their evidence."""
    still, over = {}, {}
    for gram in active:
        rule = rule_of(gram, length, r)
        place = evidence_cell(gram, sums[gram], length, rule)
        is_new_word = length.k == 1 and length.class_of[gram] == 0
        if place >= 0 and (not is_new_word or sums[gram][-1] > 0):
            over[gram] = place
        elif place >= rule.cut:
            still[gram] = place
    return still, over


def evidence_cell(gram: Gram, sums: list[int], length: Length, rule: RoundRule) -> int:
    """Step 3: the cell of Y = Σ_{s≤r} ℓ_s w_s, counted from ρ_r: (ρ + c·w, ρ + (c + 1)·w]."""
    evidence = Fraction(0)
    for s, (loading, weight) in enumerate(zip(rule.loadings, sums, strict=True), start=1):
        if loading:
            name = (0, length.key_of[gram]) if length.k > 1 else word_hash(gram, length.run_key)
            gaussian = noise(one_block(length.run_key, "noise", length.k, *name, r=s))
            evidence += Fraction(loading, 2**20) * (weight + Fraction(gaussian) / UNIT)
    return math.ceil((evidence - rule.rho) / cell_width(rule.stddev)) - 1


def score_of(place: int, rule: RoundRule) -> float:
    """The middle of a cell, over I (k = 1: over √(ν_r/ν_1))."""
    return score(place, rule.stddev, rule.rho) / rule.divisor


def word_rules(plan: NgramsPlan) -> list[RoundRule]:
    """Thresholds and cuts at k = 1, where rounds are judged apart."""
    shares, budget = budget_shares(WORD_ROUNDS), user_budget(plan)
    limit, delta = plan.contribution_limits[0], vocabulary_delta(plan)
    whole = alone_threshold(math.sqrt(budget / 2**56), 1.0, WORD_ROUNDS[-1][1] * delta, limit)
    rules = []
    for r, (_, errors) in enumerate(WORD_ROUNDS):
        norm = math.sqrt(math.floor(budget * shares[r]) / 2**56)
        rho = math.ceil(alone_threshold(norm, 1.0, errors * delta, limit) * 2**32)
        growth = math.sqrt(shares[r] / shares[0])
        cut = 0
        if later := math.fsum(shares[r + 1 :]):
            cut = cell_below(growth * whole / math.sqrt(later / shares[0]) - WORD_HOP, rho, 1.0)
        rules.append(RoundRule([0] * r + [2**20], Fraction(1), rho, cut, 0.0, growth))
    return rules


def gram_rules(fraction: float, rounds: int) -> list[RoundRule]:
    """Thresholds and cuts at k ≥ 2, for p_c."""
    return rules_by_evidence(fraction, tuple(GRAM_ROUNDS[rounds]))


def known_word_rules(fraction: float) -> list[RoundRule]:
    """Thresholds and cuts of known words."""
    return rules_by_evidence(fraction, tuple(WORD_ROUNDS))


@functools.lru_cache(maxsize=1000)
def rules_by_evidence(
    fraction: float, schedule: tuple[tuple[float, float], ...]
) -> list[RoundRule]:
    """Thresholds and cuts where evidence adds up over the rounds."""
    rules: list[RoundRule] = []
    shares = budget_shares(schedule)
    last = -NormalDist().inv_cdf(min(0.5, CUT_BOOST * schedule[-1][1] * fraction))
    for r, (_, errors) in enumerate(schedule):
        growth = math.sqrt(shares[r] / shares[0])
        loading = round(LATER_LOADING * growth * 2**20) if r else 2**20
        loadings = [*(rules[-1].loadings if rules else []), loading]
        information = sum((Fraction(loading, 2**20) ** 2 for loading in loadings), Fraction(0))
        rho = math.ceil(null_threshold(rules, loading / 2**20, errors * fraction) * 2**32)
        cut = 0
        if later := math.fsum(shares[r + 1 :]):
            stddev = math.sqrt(information)
            height = 0.5 * last * float(information) / math.sqrt(later / shares[0])
            cut = cell_below(height - GRAM_HOP * stddev, rho, stddev)
        found = null_tail(rules, loading / 2**20, rho / 2**32)
        rules.append(RoundRule(loadings, information, rho, cut, found, float(information)))
    return rules


def cell_below(cut: float, rho: int, stddev: float) -> int:
    """The cell in which a cut lies; nothing that was found is open."""
    return min(0, math.floor((Fraction(cut) / UNIT - rho) / cell_width(stddev)))


def null_threshold(before: list[RoundRule], loading: float, probability: float) -> float:
    """ρ with P(a gram that nobody holds is open until now and then above ρ) = probability."""
    low, high = -30.0, -29.0
    while null_tail(before, loading, high) > probability:
        low, high = high, high + 1.0
    return optimize.brentq(
        lambda place: math.log(null_tail(before, loading, place) / probability),
        low,
        high,
        xtol=1e-14,
        rtol=1e-15,
    )


def null_tail(before: list[RoundRule], loading: float, place: float) -> float:
    """P(Y_1, …, Y_{r−1} open, Y_r > place) for a gram that nobody holds, r ≤ 3.

    The density of Y_1 is φ; that of Y_2 with Y_1 open has a closed form; so one integral is left,
    which QUADPACK takes.
    """
    if not before:
        return upper_tail(place / loading)
    low, high = before[-1].span
    density = normal_density if len(before) == 1 else functools.partial(second_density, *before)

    def integrand(x: float) -> float:
        return density(x) * upper_tail((place - x) / loading)

    return integrate.quad(integrand, low, high, epsabs=0.0, epsrel=1e-12, limit=200)[0]


def second_density(first: RoundRule, second: RoundRule, y: float) -> float:
    """The density of Y_2 = Z_1 + ℓ_2 Z_2 at y, with Z_1 open.

    Given Y_2 = y, Z_1 is normal with mean y/(1 + ℓ_2²) and variance ℓ_2²/(1 + ℓ_2²).
    """
    low, high = first.span
    mean = y / second.divisor
    stddev = second.loadings[1] / 2**20 / second.stddev
    open_mass = between((low - mean) / stddev, (high - mean) / stddev)
    return normal_density(y / second.stddev) / second.stddev * open_mass


def normal_density(x: float) -> float:
    """φ(x)."""
    return math.exp(-x * x / 2) / math.sqrt(2 * math.pi)


def upper_tail(x: float) -> float:
    """Φ̄(x)."""
    return math.erfc(x / math.sqrt(2)) / 2


def between(low: float, high: float) -> float:
    """Φ(high) − Φ(low), from the side on which it keeps its digits."""
    if low > 0:
        return upper_tail(low) - upper_tail(high)
    return upper_tail(-high) - upper_tail(-low)


def draw_spurious(length: Length) -> dict[Gram, tuple[int, int]]:
    """Each member of V_c with probability Σ_r P_{r,c}, with its round and the cell of its evidence."""
    drawn = {}
    for number in length.rules:
        if number > 500:
            drawn |= draw_of_list(length, number)
        elif length.k > 1:
            drawn |= draw_of_class(length, number)
    return drawn


def draw_of_list(length: Length, number: int) -> dict[Gram, tuple[int, int]]:
    """4c: each known member of a class by its own key."""
    rules, drawn = length.rules[number], {}
    chances = [rule.probability for rule in rules]
    for gram in length.valid:
        if length.class_of[gram] != number:
            continue
        key = (0, length.key_of[gram]) if length.k > 1 else word_hash(gram, length.run_key)
        chosen = uniform(one_block(length.run_key, "spurious round", length.k, *key))
        if chosen > math.fsum(chances):
            continue
        r = 1
        while r < len(rules) and chosen > math.fsum(chances[:r]):
            r += 1
        u = uniform(one_block(length.run_key, "spurious noise", length.k, *key))
        drawn[gram] = r, spurious_cell(u, r, rules)
    return drawn


def draw_of_class(length: Length, number: int) -> dict[Gram, tuple[int, int]]:
    """The draws from one class; its members are numbered as in `ordered_class`."""
    k, rules, run_key = length.k, length.rules[number], length.run_key
    valid = ordered_class(length, number)
    chances = [rule.probability for rule in rules]
    mean = -len(valid) * math.log1p(-math.fsum(chances))
    drawn, name = {}, number % 2**64
    for i in range(poisson(one_block(run_key, "spurious count", k, name, 0), mean)):
        first, last = one_block(run_key, "spurious draw", k, name, i)
        gram = valid[((first << 64 | last) * len(valid)) >> 128]
        if length.class_of[gram] != number:  # It is known, and drawn from its list.
            continue
        key = length.key_of[gram]
        chosen = uniform(one_block(run_key, "spurious round", k, 0, key))
        r = 1
        while r < len(rules) and chosen * math.fsum(chances) > math.fsum(chances[:r]):
            r += 1
        u = uniform(one_block(run_key, "spurious noise", k, 0, key))
        drawn[gram] = r, spurious_cell(u, r, rules)
    return drawn


def ordered_class(length: Length, number: int) -> list[Gram]:
    """V_c, known members included, by middle, by the bin of the prefix, then as V_k is numbered."""
    members = [gram for gram in length.valid if length.class_of[gram] % KNOWN == number % KNOWN]
    is_product = length.k == 2 or length.plan.pruning == "single"

    def place(gram: Gram) -> tuple:
        middle = () if is_product else gram[1:-1]
        return middle, score_bin(length.parents[gram[:-1]])

    return sorted(members, key=place)


def spurious_cell(u: float, r: int, rules: list[RoundRule]) -> int:
    """The cell c whose borders' probabilities given "found in round r" have u between them."""
    rule = rules[r - 1]

    def exceeds(place: int) -> bool:
        border = (rule.rho + place * cell_width(rule.stddev)) / 2**32
        tail = null_tail(rules[: r - 1], rule.loadings[-1] / 2**20, border)
        return tail >= rule.probability * u

    low, high = 0, 1
    while exceeds(high):
        low, high = high, 2 * high
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if exceeds(middle) else (low, middle)
    return low
