"""Measures of released distributions: divergence, word perplexity, and membership inference.

References: Ramadan, Withers and Orr, sections 4.4 and 4.6, Table 1, and section 5.
"""

import dataclasses

import numpy as np
import numpy.typing as npt

from beam_dpne.bayesian.posterior import probabilities
from beam_dpne.elements import arrays
from beam_dpne.evaluation.corpus import Corpus
from beam_dpne.lists.public_counts import PublicCounts
from beam_dpne.mechanism.randomness import RunKey, keyed_bits, normals
from pipelines.experiments import paper_probabilities
from pipelines.experiments.bayesian_mechanisms import (
    LAPLACE,
    PAPER,
    Setting,
    bound_key,
    laplaces,
    limited,
    positive,
)
from pipelines.experiments.exact_counts import ExactCounts, public_rows
from pipelines.experiments.paper_probabilities import Sums, of_users

FLOOR = 0.01
_Floats = npt.NDArray[np.float64]


def with_floor(shares: _Floats, floor: float = FLOOR) -> _Floats:
    """Mixes a distribution with a share of the uniform one, so that no probability is 0.

    The paper does not say what its baselines do with the zeros of a threshold, without which their
    divergence would be infinite; here every mechanism that is compared gets the same share.

    >>> with_floor(np.array([1.0, 0.0]), 0.5).tolist()
    [0.75, 0.25]
    """
    return (1 - floor) * shares + floor / shares.size


def kl_divergence(private: _Floats, released: _Floats) -> float:
    """Returns Σ p log(p/q), in nats; infinite where q is 0 and p is not.

    >>> round(kl_divergence(np.array([1.0, 0.0]), np.array([0.5, 0.5])), 6)
    0.693147
    """
    present = private > 0
    with np.errstate(divide="ignore"):
        ratios = np.log(private[present]) - np.log(released[present])
    return float((private[present] * ratios).sum())


def best_floor(private: _Floats, released: _Floats) -> float:
    """Returns the least divergence of all floors, of which one is chosen on the private data.

    The divergence is convex in the floor, so that halving brackets of its slope find it.
    """
    low = 0.0
    high = 1.0
    for _ in range(40):
        middle = (low + high) / 2
        mixed = with_floor(released, middle)
        slope = float((private * (released - 1 / private.size) / mixed).sum())
        low, high = (middle, high) if slope < 0 else (low, middle)
    return kl_divergence(private, with_floor(released, high))


@dataclasses.dataclass(frozen=True, eq=False, kw_only=True)
class CoveredSentences:
    """The sentences all of whose n-grams are in a vocabulary.

    Attributes:
      rows: (m,) int32, for each predicted word, the row of its n-gram in the vocabulary.
      users: (m,) int32, for each predicted word, the index of its user in the corpus.
      authors: (s,) int32, for each sentence, the index of its user in the corpus.
    """

    rows: npt.NDArray[np.int32]
    users: npt.NDArray[np.int32]
    authors: npt.NDArray[np.int32]


def covered_sentences(corpus: Corpus, public: PublicCounts) -> CoveredSentences:
    """Finds the documents of at least n words all of whose n-grams are in the vocabulary."""
    rows = public_rows(corpus, public)
    ends = np.flatnonzero(corpus.codes < 0)
    starts = np.append(0, ends[:-1] + 1)
    whole = starts + public.length <= ends
    starts = starts[whole]
    ends = ends[whole] - (public.length - 1)
    known = arrays.offsets_of(rows >= 0)
    covered = known[ends] - known[starts] == ends - starts
    starts, sizes = starts[covered], (ends - starts)[covered]
    positions = arrays.ranges(starts, sizes)
    return CoveredSentences(
        rows=rows[positions],
        users=corpus.user_of_position[positions],
        authors=corpus.user_of_position[starts],
    )


def perplexity(joint: _Floats, grams: npt.NDArray[np.int32], rows: np.ndarray) -> float:
    """Returns exp of the mean −log P(word | words before it) over predicted words; no back-off.

    P(w_n | w_1 … w_{n−1}) = P(w_1 … w_n)/Σ_w P(w_1 … w). Only sentences all of whose n-grams are in the
    vocabulary are judged, so that every mechanism is judged on the same words.

    Args:
      joint: (V,) > 0, of all grams; see `with_floor`.
      grams: (V, n) ids of words.
      rows: (m,) the gram of each predicted word; m ≥ 1.
    """
    _, contexts = np.unique(grams[:, :-1], axis=0, return_inverse=True)
    contexts = contexts.reshape(-1)
    conditional = joint / np.bincount(contexts, joint)[contexts]
    return float(np.exp(-np.log(conditional)[rows].mean()))


def inference_probability(own: _Floats, present: np.ndarray, absent: np.ndarray) -> float:
    """Returns the share of pairs of draws with KL(p_u ‖ θ) < KL(p_u ‖ θ_{−u}); ties count half.

    Args:
      own: (V,) p_u, the distribution of the user's n-grams.
      present: (draws, V) θ, released with the user.
      absent: (draws, V) θ_{−u}, released without.
    """
    near, far = (
        np.array([kl_divergence(own, one) for one in draws]) for draws in (present, absent)
    )
    return float(((near < far) + 0.5 * (near == far)).mean())


def infer_membership(exact: ExactCounts, setting: Setting, run_key: RunKey) -> float:
    """Returns the inference probability of the user of most public grams, as the paper has it.

    Args:
      exact: The data.
      setting: The mechanism, and the number of draws of each world.
      run_key: Key of the noise.
    """
    plan = setting.plan
    grams = limited(exact, plan, bound_key(exact, plan, run_key))
    totals = np.add.reduceat(exact.values, exact.offsets[:-1])
    user = np.flatnonzero(totals == totals.max())[-1]
    span = slice(grams.offsets[user], grams.offsets[user + 1])
    own = np.bincount(grams.rows[span], grams.counts[span], minlength=len(exact.public))
    counts = exact.summed(grams.offsets, grams.rows, grams.counts)
    draws = []
    for present in (True, False):
        left = counts - (0 if present else own.astype(np.int64))
        if setting.mechanism == PAPER:
            holders = exact.summed(grams.offsets, grams.rows, np.ones_like(grams.counts))
            sums = Sums(left, holders - (0 if present else own > 0), np.zeros_like(left))
            everybody = np.arange(len(grams.users)) != (-1 if present else user)
            means, stddev = paper_probabilities.untuned(
                of_users(grams, everybody), sums, exact.public.counts, setting.paper
            )
            key = run_key.sub_key("paper with" if present else "paper without")
            places = np.arange(setting.draws * means.size)
            logs = normals(keyed_bits(key, places, 0)).reshape(setting.draws, -1) * stddev + means
            released = [paper_probabilities.softmax(one) for one in logs]
        else:
            released = [
                _released(left, exact.public, setting, run_key.bound_to(f"attack {present} {draw}"))
                for draw in range(setting.draws)
            ]
        draws.append(np.array([with_floor(one) for one in released]))
    return inference_probability(own / own.sum(), *draws)


def _released(counts: np.ndarray, public: PublicCounts, setting: Setting, key: RunKey) -> _Floats:
    """Returns one release of noisy counts."""
    plan = setting.plan
    bits = keyed_bits(key.sub_key("noise"), np.arange(counts.size), 0)
    if setting.mechanism == LAPLACE:
        scale = plan.max_count * plan.contribution_limit / plan.epsilon
        return positive(counts + scale * laplaces(bits))
    whole = np.rint(counts + plan.noise_stddev * normals(bits)).astype(np.int64)
    return probabilities(whole, public.counts, public.grams, plan.noise_stddev)
