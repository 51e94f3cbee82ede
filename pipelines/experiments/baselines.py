"""The DPNE paper's baselines: n-grams as items of a private set union, without using their structure.

All three add 1/√n to each of a user's n distinct grams (a keyed subset of Δ if there are more; the
weighted Gaussian policy) and release the grams whose weight plus Gaussian noise exceeds a threshold.
Grams of every length that somebody holds are items; nothing is pruned, nothing is spurious. They run
over a corpus in memory.

References: DPNE section 3.1.2, Tables 4 and 5; the mechanism is DPSU's Weighted Gaussian.
"""

import dataclasses
import math
from collections.abc import Iterator, Sequence

import numpy as np

from beam_dpne.evaluation.corpus import Corpus
from beam_dpne.mechanism import finite_noise, gaussian, randomness, thresholds
from beam_dpne.mechanism.randomness import RunKey
from beam_dpne.mechanism.rules import UNITS
from beam_dpne.mechanism.thresholds import equal_weights
from beam_dpne.validation import check_budget
from pipelines.experiments.ranked import RankedGrams, sorted_distinct
from pipelines.experiments.saved_corpora import user_hashes

COMPOSITIONS = ("gaussian", "basic")
NO_GUARANTEE = (
    "none: each length has the whole budget, so that T lengths together are not (epsilon, delta)-"
    "differentially private; not a release, for comparison only"
)
_USER_LEVEL = "user-level (epsilon, delta)-differentially private"
_POSITIONS_AT_ONCE = 1_000_000
_DRAWS_AT_ONCE = 4_000_000


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


@dataclasses.dataclass(frozen=True, eq=False, kw_only=True)
class BaselineResult:
    """The result of a baseline.

    Attributes:
      name: "DPSU-all", "DPSU-even" or "DPSU-single".
      guarantee: what the released grams of all lengths together are, in words.
      is_release: whether there is a guarantee for all lengths together.
      noise: of each length.
      released: for each length k, (r, k) int32 codes of words, in the order of codes.
    """

    name: str
    guarantee: str
    is_release: bool
    noise: tuple[UnionNoise, ...]
    released: dict[int, np.ndarray]

    @property
    def sizes(self) -> tuple[int, ...]:
        """Number of n-grams of each length."""
        return tuple(len(grams) for grams in self.released.values())


def dpsu_all(
    grams: RankedGrams, *, epsilon: float, delta: float, max_contributions: int, run_key: RunKey
) -> BaselineResult:
    """Releases the union of all users' grams of all lengths at once.

    One user adds at most T·Δ grams of any length to one histogram, with squares that sum to at most 1.

    Privacy: user-level (ε, δ)-DP, as DPSU's Weighted Gaussian is.

    Args:
      grams: of lengths 1 to T.
      epsilon: ε > 0 of the whole run.
      delta: δ in (0, 1) of the whole run.
      max_contributions: Δ for each length.
      run_key: secret of the run; bound to the baseline and its parameters.

    References: DPNE section 3.1.2, "DPSU-all".
    """
    lengths = len(grams.ids)
    noise = union_noise(epsilon=epsilon, delta=delta, max_contributions=lengths * max_contributions)
    key = run_key.bound_to(f"DPSU-all/{lengths}/{epsilon!r}/{delta!r}/{max_contributions}")
    released = weighted_gaussian(grams, range(1, lengths + 1), noise, key)
    return _result("DPSU-all", _USER_LEVEL, grams, (noise,) * lengths, released)


def dpsu_even(
    grams: RankedGrams,
    *,
    epsilon: float,
    delta: float,
    max_contributions: int,
    run_key: RunKey,
    composition: str = "gaussian",
) -> BaselineResult:
    """Releases the union of each length apart, with an even part of the budget for each.

    The paper gives each length ε/√T "using advanced composition". Here the parts compose exactly:
    "gaussian" takes noise √T·σ for each length, which together is one Gaussian mechanism of noise σ,
    and δ_T/T for each threshold; "basic" gives each length ε/T and δ/T.

    Privacy: user-level (ε, δ)-DP, by composition.

    Args:
      grams: of lengths 1 to T.
      epsilon: ε > 0 of the whole run.
      delta: δ in (0, 1) of the whole run.
      max_contributions: Δ for each length.
      run_key: secret of the run; bound to the baseline and its parameters.
      composition: "gaussian" or "basic".

    Raises:
      ValueError: on another composition.

    References: DPNE section 3.1.2, "DPSU-even"; Proposition 2.3.
    """
    if composition not in COMPOSITIONS:
        raise ValueError(
            f"composition must be one of {', '.join(COMPOSITIONS)}, got {composition=}."
        )
    lengths = len(grams.ids)
    if composition == "basic":
        budget = {"epsilon": epsilon / lengths, "delta": delta / lengths, "parts": 1}
    else:
        budget = {"epsilon": epsilon, "delta": delta, "parts": lengths}
    noise = union_noise(**budget, max_contributions=max_contributions)
    key = run_key.bound_to(
        f"DPSU-even/{composition}/{lengths}/{epsilon!r}/{delta!r}/{max_contributions}"
    )
    released = _each_length(grams, noise, key)
    return _result("DPSU-even", _USER_LEVEL, grams, (noise,) * lengths, released)


def dpsu_single(
    grams: RankedGrams, *, epsilon: float, delta: float, max_contributions: int, run_key: RunKey
) -> BaselineResult:
    """Finds the union of each length apart, each with the whole budget.

    Privacy: each length alone is user-level (ε, δ)-DP; the lengths together are not, so the result
    is not a release.

    Args:
      grams: of lengths 1 to T.
      epsilon: ε > 0 of each length.
      delta: δ in (0, 1) of each length.
      max_contributions: Δ for each length.
      run_key: secret of the run; bound to the baseline and its parameters.

    References: DPNE section 3.1.2, "DPSU-single".
    """
    noise = union_noise(epsilon=epsilon, delta=delta, max_contributions=max_contributions)
    key = run_key.bound_to(f"DPSU-single/{epsilon!r}/{delta!r}/{max_contributions}")
    released = _each_length(grams, noise, key)
    return _result("DPSU-single", NO_GUARANTEE, grams, (noise,) * len(grams.ids), released)


def union_noise(
    *, epsilon: float, delta: float, max_contributions: int, parts: int = 1
) -> UnionNoise:
    """Returns noise and threshold of each of `parts` unions that are (ε, δ)-DP together.

    Half of δ is for the noise, half for items of one user alone. The numerical slack, of at most Δ
    decisions in each part, is taken off ε, and its factor off δ.

    Raises:
      ValueError: if a parameter is out of range.

    >>> noise = union_noise(epsilon=3, delta=math.exp(-10), max_contributions=100)
    >>> round(noise.noise_stddev, 5), round(noise.threshold, 5)
    (1.33279, 6.82366)

    References: DPSU Theorem 4.1; DPNE Proposition 2.3.
    """
    check_budget(epsilon, delta)
    if max_contributions < 1:
        raise ValueError(f"max_contributions must be at least 1, got {max_contributions=}.")
    slack = finite_noise.slack_of(parts * max_contributions)
    half = 0.5 * delta * math.exp(-slack)
    stddev = gaussian.gaussian_noise_stddev(epsilon=epsilon - slack, delta=half) * (1 + 1e-10)
    stddev *= math.sqrt(parts)
    threshold = thresholds.vocabulary_threshold(
        noise_stddev=stddev, delta=half / parts, max_contributions=max_contributions
    )
    return UnionNoise(noise_stddev=stddev, threshold=threshold, max_contributions=max_contributions)


def weighted_gaussian(
    grams: RankedGrams, lengths: Sequence[int], noise: UnionNoise, run_key: RunKey
) -> dict[int, np.ndarray]:
    """Returns the numbers of the grams that one set union over some lengths releases.

    Draws belong to a gram's number, which depends on the whole corpus. That is enough: in every corpus
    the numbers are distinct, so that its draws are independent, and neighbours are compared by their
    laws. Noise is not the same for one gram in two corpora, as it is in `NoisyThreshold`.

    Args:
      grams: of the corpus.
      lengths: all of them are items of the one union.
      noise: of the union.
      run_key: of this union alone.

    References: DPSU Algorithms 1 and 2 with the Weighted Gaussian update.
    """
    bases = np.cumsum([0, *(grams.sizes[length - 1] for length in lengths)])
    weights = union_weights(grams, lengths, noise.max_contributions, run_key)
    above = np.flatnonzero(_above(weights, noise, run_key.sub_key("noise")))
    own = np.split(above, np.searchsorted(above, bases[1:-1]))
    return {length: ids - base for length, ids, base in zip(lengths, own, bases[:-1], strict=True)}


def union_weights(
    grams: RankedGrams, lengths: Sequence[int], max_contributions: int, run_key: RunKey
) -> np.ndarray:
    """Returns the weights of all grams of some lengths, one length after the other.

    Returns:
      Shape (Σ sizes,), int64, in units of 2^-32; squares of one user's part sum to at most 2^64.
    """
    bases = np.cumsum([0, *(grams.sizes[length - 1] for length in lengths)])
    weights = np.zeros(int(bases[-1]), dtype=np.int64)
    for first, stop in _user_ranges(grams.corpus):
        user, item = _distinct_items(grams, lengths, bases, first, stop)
        counts = np.bincount(user, minlength=stop - first)
        kept = np.ones(user.size, dtype=bool)
        over = np.flatnonzero(counts > max_contributions)
        if over.size:
            own = np.flatnonzero((counts > max_contributions)[user])
            hashes = user_hashes(grams.corpus, run_key.sub_key("user"), first + over)
            left = np.repeat(hashes, counts[over])
            bits = randomness.keyed_bits(run_key.sub_key("subset"), left, item[own])
            kept[own] = randomness.keyed_subset(user[own], bits[:, 0], max_contributions)
        shares = np.zeros(counts.size, dtype=np.int64)
        shares[counts > 0] = equal_weights(np.minimum(counts, max_contributions)[counts > 0])
        np.add.at(weights, item[kept], shares[user[kept]])
    return weights


def _each_length(grams: RankedGrams, noise: UnionNoise, key: RunKey) -> dict[int, np.ndarray]:
    """One union for each length, each with draws of its own."""
    released = {}
    for length in range(1, len(grams.ids) + 1):
        own = key.bound_to(f"length {length}")
        released |= weighted_gaussian(grams, (length,), noise, own)
    return released


def _result(
    name: str,
    guarantee: str,
    grams: RankedGrams,
    noise: tuple[UnionNoise, ...],
    released: dict[int, np.ndarray],
) -> BaselineResult:
    return BaselineResult(
        name=name,
        guarantee=guarantee,
        is_release=guarantee is not NO_GUARANTEE,
        noise=noise,
        released={length: grams.words(length, ids) for length, ids in released.items()},
    )


def _user_ranges(corpus: Corpus) -> Iterator[tuple[int, int]]:
    """Cuts the users into ranges of about a million positions."""
    cuts = np.arange(0, corpus.codes.size, _POSITIONS_AT_ONCE)
    firsts = np.unique(np.append(np.searchsorted(corpus.offsets, cuts), len(corpus.users)))
    yield from zip(firsts[:-1].tolist(), firsts[1:].tolist(), strict=True)


def _distinct_items(
    grams: RankedGrams, lengths: Sequence[int], bases: np.ndarray, first: int, stop: int
) -> tuple[np.ndarray, np.ndarray]:
    """Returns the distinct items of some users: (user counted from the first, item), sorted."""
    start, end = grams.corpus.offsets[first], grams.corpus.offsets[stop]
    users = grams.corpus.user_of_position[start:end].astype(np.int64) - first
    total = int(bases[-1])
    pairs = []
    for length, base in zip(lengths, bases[:-1].tolist(), strict=True):
        ids = grams.ids[length - 1][start:end]
        inside = ids >= 0
        pairs.append(users[inside] * total + ids[inside] + base)
    distinct = sorted_distinct(np.concatenate(pairs))
    user = distinct // max(1, total)
    return user, distinct - user * total


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
