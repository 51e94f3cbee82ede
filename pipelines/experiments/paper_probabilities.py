"""The mechanism of "N-grams Bayesian Differential Privacy" as printed, and its form with a bound.

Both are in memory and in floating point, to reproduce tables; they are NOT private releases. The paper
draws h ~ N(μ_ps, σ_ps² I) and releases θ = softmax(h), with

    μ_ps = ρ·w⊙x̂ + (1 − ρ)·μ_p,  σ_ps = ρ·γ·√(2 ln(1.25/δ))/ε.

Here γ is the sensitivity *at this database*, computed by brute force over its users. Neighbouring
databases have different γ and hence different noise, so that the size of the noise shows which of them
was used: the paper's mechanism has no guarantee at all. In "log_global" the bound holds over all
databases instead, at the price of more noise.

Slips of the print are corrected. The last lines of Algorithm 1 omit the w⊙ before x̂ that Corollary 1
has. The brute force adds (S/C)·x̂ for every word of a user, and Corollary 1 adds it for words with
N ≤ C/S; the change of w is w(N) − w(N − 1), which differs from both where C/S < N < C/S + 1. The
Laplace noise has the scale 2|Δq|/ε, of which the paper prints the inverse. The bound of γ that Claim 1
prints is no bound if some word has C/S < N < C/S + 1: there, one user less lowers w, although the
indicator in it is 0.

References: Ramadan, Withers and Orr: equations 1 to 6, Corollary 1, Claims 1 and 2, Algorithms 1 and 2.
"""

import dataclasses
import math
from typing import Any

import numpy as np
import numpy.typing as npt

from beam_dpne.bayesian.grams import UserGrams
from beam_dpne.bayesian.posterior import discounted
from beam_dpne.elements import arrays
from beam_dpne.mechanism.gaussian import gaussian_noise_stddev

NO_GUARANTEE = (
    "no differential privacy guarantee: the noise is scaled by a sensitivity of this very database, "
    "so that the noise itself reveals who is in it"
)
DECAY = 0.01
PUBLIC_WEIGHT = 0.5
_REST = 0.3
_TUNING_SHARE = 1 / 3
_Floats = npt.NDArray[np.float64]
_Integers = npt.NDArray[np.int64]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Paper:
    """The parameters of the paper's mechanism.

    With more than one candidate (S, ρ) it is tuned as printed ("EndToEndDP"): a part of the users
    scores the candidates, and a third of ε pays for the choice.

    Attributes:
      epsilon: the ε of the paper's formula, which is not the ε of any guarantee.
      delta: the δ of the paper's formula.
      max_count: C.
      decays: the candidates for S.
      public_weights: the candidates for 1 − ρ.
      tuning_fraction: the part of the users that scores the candidates.

    >>> Paper(epsilon=1, delta=1e-7, decays=(0.1, 1.0)).candidates
    ((0.1, 0.5), (1.0, 0.5))
    """

    epsilon: float
    delta: float
    max_count: int = 1
    decays: tuple[float, ...] = (DECAY,)
    public_weights: tuple[float, ...] = (PUBLIC_WEIGHT,)
    tuning_fraction: float = 0.1

    @property
    def candidates(self) -> tuple[tuple[float, float], ...]:
        """The pairs (S, ρ) that are tried."""
        return tuple((decay, 1.0 - one) for decay in self.decays for one in self.public_weights)

    @property
    def is_tuned(self) -> bool:
        """Whether there is a choice between candidates."""
        return len(self.candidates) > 1

    @property
    def tuning_epsilon(self) -> float:
        """The part of ε that the choice spends; 0 without tuning."""
        return self.epsilon * _TUNING_SHARE if self.is_tuned else 0.0


@dataclasses.dataclass(frozen=True, eq=False)
class Sums:
    """Sums over all users for each n-gram of the vocabulary, (V,) int64 each.

    Attributes:
      counts: c, the counts of the users that train.
      users: N, how many of them have each n-gram.
      scoring: c_1, the counts of the users that score candidates.
    """

    counts: _Integers
    users: _Integers
    scoring: _Integers


def of_users(grams: UserGrams, chosen: npt.NDArray[np.bool_]) -> UserGrams:
    """Returns the grams of some of the users, which a mask of (n,) bool marks."""
    sizes = np.diff(grams.offsets)
    kept = np.repeat(chosen, sizes)
    return UserGrams(
        users=grams.users[chosen],
        offsets=arrays.offsets_of(sizes[chosen]),
        rows=grams.rows[kept],
        counts=grams.counts[kept],
    )


def decay_weights(users: npt.NDArray[Any], *, max_count: int, decay: float) -> _Floats:
    """Returns w(N) = min(1, S·N/C) for numbers of users N ≥ 0 (equation 5)."""
    return np.minimum(1.0, decay * users / max_count)


def softmax(logs: _Floats) -> _Floats:
    """Returns probabilities, which sum to 1, from logarithms (equation 4)."""
    powers = np.exp(logs - logs.max())
    return powers / powers.sum()


def centred_logs(counts: _Integers) -> _Floats:
    """Returns log(c + 1) less its mean over all words (equations 1 and 2)."""
    logs = np.log1p(counts)
    return logs - logs.mean()


def mean_logs(
    sums: Sums, public: _Integers, *, decay: float, private_weight: float, max_count: int
) -> _Floats:
    """Returns μ_ps (Corollary 1)."""
    weights = decay_weights(sums.users, max_count=max_count, decay=decay)
    private = weights * centred_logs(sums.counts)
    return private_weight * private + (1 - private_weight) * centred_logs(public)


def user_norms(grams: UserGrams, sums: Sums, *, decay: float, max_count: int) -> _Floats:
    """Returns ‖w⊙x̂ − w_{−u}⊙x̂_{−u}‖₂ for each user u, as if that user alone left: (n,) float64.

    A user changes w and log(c + 1) of the user's own words only, and through the mean x̂ of all words.

    Args:
      grams: the limited grams of users whose counts are in the sums.
      sums: the sums over all users.
      decay: S.
      max_count: C.

    References: Corollary 1; Algorithm 1, "brute-force".
    """
    count = len(grams.users)
    rows = grams.rows
    user = arrays.rows_of_entries(grams.offsets)
    weights = decay_weights(sums.users, max_count=max_count, decay=decay)
    centred = centred_logs(sums.counts)
    # For each (user, word) entry: how far log(c + 1) falls without the user, and the weight then.
    falls = np.log1p(sums.counts[rows]) - np.log1p(sums.counts[rows] - grams.counts)
    later = decay_weights(sums.users[rows] - 1, max_count=max_count, decay=decay)
    # (n,) how far the mean of all V logarithms falls without each user.
    mean_falls = np.bincount(user, falls, minlength=count) / sums.counts.size
    moves = weights[rows] * centred[rows]
    moves -= later * (centred[rows] - falls + mean_falls[user])
    # (n,) squared moves of the user's words, and squared weights of all others, which the mean moves.
    present = np.bincount(user, moves**2, minlength=count)
    others = (weights**2).sum() - np.bincount(user, weights[rows] ** 2, minlength=count)
    return np.sqrt(present + mean_falls**2 * np.maximum(others, 0.0))


def log_probabilities(logs: _Floats) -> _Floats:
    """Returns μ − log Σ exp μ."""
    largest = logs.max()
    return logs - (largest + math.log(np.exp(logs - largest).sum()))


def sensitivities(
    grams: UserGrams, judges: UserGrams, sums: Sums, public: _Integers, paper: Paper
) -> tuple[_Floats, float]:
    """Returns γ of each candidate (S, ρ), and |Δq| over all of them, which is 0 without tuning.

    Args:
      grams: the limited grams of the users that train.
      judges: those of the users that score candidates.
      sums: the sums over all users.
      public: α.
      paper: the parameters.

    References: the first lines of Claims 1 and 2.
    """
    most = paper.max_count
    by_decay = {
        decay: float(user_norms(grams, sums, decay=decay, max_count=most).max(initial=0.0))
        for decay in dict.fromkeys(paper.decays)
    }
    gammas = np.array([by_decay[decay] for decay, _ in paper.candidates])
    if not paper.is_tuned:
        return gammas, 0.0
    user = arrays.rows_of_entries(judges.offsets)
    largest = 0.0
    for (decay, weight), gamma in zip(paper.candidates, gammas, strict=True):
        mean = mean_logs(sums, public, decay=decay, private_weight=weight, max_count=most)
        logs = log_probabilities(mean)
        changes = np.bincount(user, judges.counts * logs[judges.rows], minlength=len(judges.users))
        judged = float(np.abs(changes).max(initial=0.0))
        trained = weight * float(np.linalg.norm(sums.scoring)) * gamma
        largest = max(largest, judged, trained)
    return gammas, largest


def paper_stddev(gamma: float, private_weight: float, paper: Paper) -> float:
    """Returns σ_ps for the part of ε that tuning does not spend (Corollary 1, Definition 4)."""
    epsilon = paper.epsilon - paper.tuning_epsilon
    return private_weight * gamma * math.sqrt(2 * math.log(1.25 / paper.delta)) / epsilon


def untuned(grams: UserGrams, sums: Sums, public: _Integers, paper: Paper) -> tuple[_Floats, float]:
    """Returns μ_ps and σ_ps for the only candidate (S, ρ)."""
    ((decay, weight),) = paper.candidates
    (gamma,), _ = sensitivities(grams, grams, sums, public, paper)
    means = mean_logs(sums, public, decay=decay, private_weight=weight, max_count=paper.max_count)
    return means, paper_stddev(float(gamma), weight, paper)


def paper_probabilities(
    grams: UserGrams,
    judges: UserGrams,
    sums: Sums,
    public: _Integers,
    paper: Paper,
    *,
    rng: np.random.Generator,
) -> _Floats:
    """Returns the paper's θ: (V,) float64 (Algorithms 1 and 2; Theorem 2 for the choice)."""
    gammas, change = sensitivities(grams, judges, sums, public, paper)
    means = [
        mean_logs(sums, public, decay=decay, private_weight=weight, max_count=paper.max_count)
        for decay, weight in paper.candidates
    ]
    chosen = 0
    if paper.is_tuned:
        scores = np.array([-float(sums.scoring @ log_probabilities(mean)) for mean in means])
        noise = rng.laplace(0, 2 * change / paper.tuning_epsilon, scores.size)
        chosen = int(np.argmin(scores + noise))
    stddev = paper_stddev(float(gammas[chosen]), paper.candidates[chosen][1], paper)
    return softmax(means[chosen] + rng.normal(0, stddev, public.size))


def log_global_bound(*, max_count: int, decay: float) -> float:
    """Returns B, the most by which one user moves f = w(N)·log(c + 1) of one gram in any database.

    With N users, c is from N to C·N, and one of them leaves with at most C. The change is largest at
    either end of c, near N = C/S, where w reaches 1. For C = 1, B ≤ S(ln(1 + 1/S) + 1).

    >>> log_global_bound(max_count=1, decay=0.01) <= 0.01 * (math.log(101) + 1)
    True
    """
    turn = math.floor(max_count / decay)
    changes = []
    for users in (max(1, turn + step) for step in range(-1, 4)):
        now, before = (min(1.0, decay * number / max_count) for number in (users, users - 1))
        changes.append(now * math.log(users + max_count) - before * math.log(users))
        most = math.log1p(max_count * users)
        left = math.log1p(max_count * (users - 1))
        changes.append(now * most - before * left)
    return max(changes)


def log_global_probabilities(
    sums: Sums,
    public: _Integers,
    *,
    epsilon: float,
    delta: float,
    max_count: int,
    max_contributions: int,
    rng: np.random.Generator,
) -> _Floats:
    """Returns the shares that decayed logarithms show under noise for the bound over all databases."""
    moved = math.sqrt(max_contributions) * log_global_bound(max_count=max_count, decay=DECAY)
    stddev = moved * gaussian_noise_stddev(epsilon=epsilon, delta=delta)
    logs = decay_weights(sums.users, max_count=max_count, decay=DECAY) * np.log1p(sums.counts)
    noisy = logs + rng.normal(0, stddev, logs.size)
    return _posterior_shares(noisy, public, stddev, max_count)


def _posterior_shares(noisy: _Floats, public: _Integers, stddev: float, max_count: int) -> _Floats:
    """Returns the posterior means of counts whose decayed logarithms have noise, as shares.

    The logarithm of a count is the public one and a ratio of totals, which is the likeliest of a grid,
    and a normal rest that stands for words, grams and sampling.
    """
    prior = discounted(public)
    nodes, masses = np.polynomial.hermite_e.hermegauss(40)
    best = -np.inf
    shares = prior
    for log_ratio in np.arange(-8.0, 9.0, 0.5):
        means = prior * math.exp(log_ratio)
        spread = np.sqrt(_REST**2 + np.minimum(1 / prior + 1 / means, 2.0))
        # (40, V) counts at the nodes of the rest, whose factor has the mean 1, and their likelihoods.
        counts = means * np.exp(nodes[:, np.newaxis] * spread - spread**2 / 2)
        values = decay_weights(counts, max_count=max_count, decay=DECAY) * np.log1p(counts)
        logs = -(((noisy - values) / stddev) ** 2) / 2
        weights = masses[:, np.newaxis] * np.exp(logs - logs.max(axis=0))
        likelihood = float((np.log(weights.sum(axis=0)) + logs.max(axis=0)).sum())
        fit = likelihood - (log_ratio / 2) ** 2 / 2
        if fit > best:
            best = fit
            shares = (weights * counts).sum(axis=0) / weights.sum(axis=0)
    return shares / shares.sum()
