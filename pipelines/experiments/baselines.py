"""The DPNE paper's baselines: n-grams as items of a private set union, without using their structure.

All add 1/√n to each of a user's n distinct grams (a keyed subset of Δ if there are more; the weighted
Gaussian policy) and release the grams whose weight plus Gaussian noise exceeds a threshold. Grams of
every length that somebody holds are items; nothing is pruned, nothing is spurious. In memory.

"DPSU-all" releases the grams of all lengths as one union, to which a user adds at most T·Δ. "DPSU-even"
has a union for each length, with √T times the noise of one that spent the whole budget, and δ_T/T for
each threshold; so all lengths together are one Gaussian mechanism. (The paper gives each length ε/√T
"using advanced composition".) "DPSU-single" gives each length the whole budget: the lengths together
have NO guarantee, so that it is no release.

References: DPNE section 3.1.2, Tables 4 and 5; the mechanism is DPSU's Weighted Gaussian.
"""

import dataclasses
import math
from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa

from beam_dpne.elements import arrays
from beam_dpne.evaluation.corpus import Corpus, GramIndex
from beam_dpne.mechanism import gaussian, randomness, thresholds
from beam_dpne.mechanism.randomness import RunKey
from beam_dpne.mechanism.rules import UNITS
from beam_dpne.mechanism.thresholds import equal_weights

NAMES = ALL, EVEN, SINGLE = ("DPSU-all", "DPSU-even", "DPSU-single")
_POSITIONS_AT_ONCE = 1_000_000
_DRAWS_AT_ONCE = 4_000_000


@dataclasses.dataclass(frozen=True, kw_only=True)
class Baseline:
    """The parameters of one run: a name, ε, δ, T, and Δ, the most grams of one length of one user."""

    name: str
    epsilon: float
    delta: float
    max_length: int
    max_contributions: int


@dataclasses.dataclass(frozen=True, kw_only=True)
class UnionNoise:
    """Noise and threshold of one set union of sensitivity 1.

    Attributes:
      noise_stddev: σ, in units of weight.
      threshold: ρ, in units of weight.
      max_contributions: Δ, grams that one user adds.
    """

    noise_stddev: float
    threshold: float
    max_contributions: int


def release_baseline(grams: GramIndex, run: Baseline, run_key: RunKey) -> dict[int, np.ndarray]:
    """Returns the released grams: for each length k, (r, k) int32 codes of words, in their order.

    Args:
      grams: Grams of lengths 1 to T.
      run: The parameters.
      run_key: Secret of the run; it is bound to the baseline and its parameters.
    """
    budget = f"{run.epsilon!r}/{run.delta!r}/{run.max_contributions}"
    noise = noise_of(run)
    if run.name == ALL:
        key = run_key.bound_to(f"DPSU-all/{run.max_length}/{budget}")
        released = weighted_gaussian(grams, range(1, run.max_length + 1), noise, key)
    else:
        is_even = run.name == EVEN
        key = run_key.bound_to(
            f"DPSU-even/gaussian/{run.max_length}/{budget}" if is_even else f"DPSU-single/{budget}"
        )
        released = {}
        for length in range(1, run.max_length + 1):
            own = key.bound_to(f"length {length}")
            released |= weighted_gaussian(grams, (length,), noise, own)
    return {length: words_of(grams, length, ids) for length, ids in released.items()}


def words_of(grams: GramIndex, length: int, ids: np.ndarray) -> np.ndarray:
    """Returns the codes of the words of n-grams given by number: (r, k) int32."""
    level = grams.lengths[length - 1]
    begins = np.flatnonzero(level.ids >= 0)
    # (s,) one position at which each n-gram begins.
    position = np.zeros(level.keys.size, dtype=np.int64)
    position[level.ids[begins]] = begins
    return grams.corpus.codes[position[ids][:, np.newaxis] + np.arange(length)]


def noise_of(run: Baseline) -> UnionNoise:
    """Returns the noise and the threshold of each union of a baseline."""
    return union_noise(
        epsilon=run.epsilon,
        delta=run.delta,
        max_contributions=run.max_contributions * (run.max_length if run.name == ALL else 1),
        parts=run.max_length if run.name == EVEN else 1,
    )


def union_noise(
    *, epsilon: float, delta: float, max_contributions: int, parts: int = 1
) -> UnionNoise:
    """Returns noise and threshold of each of `parts` unions that are (ε, δ)-DP together.

    Half of δ is for the noise, half for items of one user alone. The numerical slack, of at most Δ
    decisions in each part, is taken off ε, and its factor off δ.

    >>> noise = union_noise(epsilon=3, delta=math.exp(-10), max_contributions=100)
    >>> round(noise.noise_stddev, 5), round(noise.threshold, 5)
    (1.33279, 6.82366)

    References: DPSU Theorem 4.1; DPNE Proposition 2.3.
    """
    slack = gaussian.slack_of(parts * max_contributions)
    half = 0.5 * delta * math.exp(-slack)
    stddev = gaussian.gaussian_noise_stddev(epsilon=epsilon - slack, delta=half) * (1 + 1e-10)
    stddev *= math.sqrt(parts)
    threshold = thresholds.vocabulary_threshold(
        noise_stddev=stddev, delta=half / parts, max_contributions=max_contributions
    )
    return UnionNoise(noise_stddev=stddev, threshold=threshold, max_contributions=max_contributions)


def weighted_gaussian(
    grams: GramIndex, lengths: Sequence[int], noise: UnionNoise, run_key: RunKey
) -> dict[int, np.ndarray]:
    """Returns the numbers of the grams that one set union over some lengths releases.

    Draws belong to a gram's number, which depends on the whole corpus. That is enough: in every corpus
    the numbers are distinct, so that its draws are independent, and neighbours are compared by their
    laws.

    Args:
      grams: Grams of the corpus.
      lengths: All of them are items of the one union.
      noise: Noise of the union.
      run_key: Key of this union alone.

    References: DPSU Algorithms 1 and 2 with the Weighted Gaussian update.
    """
    bases = np.cumsum([0, *(grams.lengths[length - 1].keys.size for length in lengths)])
    weights = union_weights(grams, lengths, noise.max_contributions, run_key)
    above = np.flatnonzero(_above(weights, noise, run_key.sub_key("noise")))
    own = np.split(above, np.searchsorted(above, bases[1:-1]))
    return {length: ids - base for length, ids, base in zip(lengths, own, bases[:-1], strict=True)}


def union_weights(
    grams: GramIndex, lengths: Sequence[int], max_contributions: int, run_key: RunKey
) -> np.ndarray:
    """Returns the weights of all grams of some lengths, one length after the other.

    Returns:
      Shape (Σ sizes,), int64, in units of 2^-32; squares of one user's part sum to at most 2^64.
    """
    bases = np.cumsum([0, *(grams.lengths[length - 1].keys.size for length in lengths)])
    weights = np.zeros(int(bases[-1]), dtype=np.int64)
    for first, stop in _user_ranges(grams.corpus):
        user, item = _distinct_items(grams, lengths, bases, first, stop)
        counts = np.bincount(user, minlength=stop - first)
        kept = np.ones(user.size, dtype=bool)
        over = np.flatnonzero(counts > max_contributions)
        if over.size:
            own = np.flatnonzero((counts > max_contributions)[user])
            names = grams.corpus.users.take(pa.array(first + over)).cast(pa.large_binary())
            hashes = np.repeat(
                arrays.hash_words(run_key.sub_key("user"), names)[:, 0], counts[over]
            )
            bits = randomness.keyed_bits(run_key.sub_key("subset"), hashes, item[own])
            kept[own] = randomness.keyed_subset(user[own], bits[:, 0], max_contributions)
        shares = np.zeros(counts.size, dtype=np.int64)
        shares[counts > 0] = equal_weights(np.minimum(counts, max_contributions)[counts > 0])
        np.add.at(weights, item[kept], shares[user[kept]])
    return weights


def _user_ranges(corpus: Corpus) -> Iterator[tuple[int, int]]:
    """Cuts the users into ranges of about a million positions."""
    cuts = np.arange(0, corpus.codes.size, _POSITIONS_AT_ONCE)
    firsts = np.unique(np.append(np.searchsorted(corpus.offsets, cuts), len(corpus.users)))
    yield from zip(firsts[:-1].tolist(), firsts[1:].tolist(), strict=True)


def _distinct_items(
    grams: GramIndex, lengths: Sequence[int], bases: np.ndarray, first: int, stop: int
) -> tuple[np.ndarray, np.ndarray]:
    """Returns the distinct items of some users: (user counted from the first, item), sorted."""
    start = grams.corpus.offsets[first]
    end = grams.corpus.offsets[stop]
    users = grams.corpus.user_of_position[start:end].astype(np.int64) - first
    held = []
    for length, base in zip(lengths, bases[:-1].tolist(), strict=True):
        ids = grams.lengths[length - 1].ids[start:end]
        inside = ids >= 0
        held.append((users[inside], ids[inside] + base))
    columns = [np.concatenate(column) for column in zip(*held, strict=True)]
    (user, item), _ = arrays.distinct(columns, (stop - first, int(bases[-1])))
    return user, item


def _above(weights: np.ndarray, noise: UnionNoise, sub_key: bytes) -> np.ndarray:
    """Returns whether each positive weight plus its noise exceeds the threshold."""
    threshold = math.ceil(noise.threshold * UNITS)
    above = np.zeros(weights.size, dtype=bool)
    for start in range(0, weights.size, _DRAWS_AT_ONCE):
        own = np.flatnonzero(weights[start : start + _DRAWS_AT_ONCE]) + start
        draws = randomness.normals(randomness.keyed_bits(sub_key, np.uint64(0), own))
        # The distance is exact; only the noise is rounded.
        above[own] = (weights[own] - threshold) / UNITS > -noise.noise_stddev * draws
    return above
