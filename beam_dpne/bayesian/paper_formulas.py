"""The paper's own mechanism, exactly as printed, which has NO differential privacy guarantee.

μ_ps = ρ·w⊙x̂ + (1 − ρ)·μ_p, θ = softmax(h), h ~ N(μ_ps, σ_ps²I), σ_ps = ρ·γ·√(2 ln(1.25/δ))/ε, where
γ is the sensitivity *at this database*: by brute force over its users, or by Claim 1 from its N and
x̂. Neighbouring databases have different γ, hence different noise, and the size of the noise shows
which of them was used. `tests/privacy/test_bayesian_attack.py` measures by how much.

Three slips of the print are corrected. Algorithm 1's last lines omit w⊙ before x̂, which Corollary 1
has. Its brute force adds (S/C)·x̂ for every word of a user, and Corollary 1 for those with N ≤ C/S; the
change of w is w(N) − w(N − 1), which is neither where C/S < N < C/S + 1. Claim 1's sums over 1/N are
over words that some user has, and the Laplace noise has the scale 2|Δq|/ε instead of its inverse.

**Why "log_global" has no tuning.** Theorem 2 needs a bound of the score's change that holds over all
databases. The score, a cross-entropy, is linear in the counts of the users that score: whatever one
training user may change in it, twice as many scoring users double, so that no bound holds for all
databases. Clipping each scoring user's part bounds the change by *that* user, but not the change of all
parts by one training user. A mean over scoring users has a bound, a change of the logarithms by up to
2ρB, but it is of no use: 0.056 at S = 0.01 and ρ = ½, hence Laplace noise of scale 2.2 nats at
ε = 0.05.

References: Ramadan, Withers and Orr, "N-grams Bayesian Differential Privacy": equations 1 to 6,
Corollary 1, Claims 1 and 2, Algorithms 1 and 2.
"""

import dataclasses
import json
import math
from collections.abc import Iterable
from typing import Any

import numpy as np

from beam_dpne.bayesian.counting import UserGrams
from beam_dpne.bayesian.log_global import decay_weights, softmax
from beam_dpne.bayesian.plan import DEFAULT_DECAY, MAX_LENGTH, check_decay, check_weight
from beam_dpne.elements.coders import register_batches
from beam_dpne.mechanism import gaussian, randomness
from beam_dpne.mechanism.randomness import RunKey
from beam_dpne.validation import as_float, check_choice, check_integer

NO_GUARANTEE = (
    "no differential privacy guarantee: the noise is scaled by a sensitivity of this very database, "
    "so that the noise itself tells who is in it"
)
SENSITIVITIES = ("brute_force", "claim1")
TUNING_SHARE = 1 / 3
_UINT64 = 2**64


@dataclasses.dataclass(frozen=True, kw_only=True)
class PaperBayesianPlan:
    """The parameters of `PaperBayesianCounts`, which has no differential privacy guarantee.

    With more than one candidate (S, ρ) the mechanism is tuned as the paper does ("EndToEndDP"): a part
    of the users scores the candidates, and a third of ε pays for the choice.

    Attributes:
      epsilon: the ε of the paper's formula, > 0; it is not the ε of any guarantee.
      delta: the δ of the paper's formula, in (0, 1).
      sensitivity: "brute_force", over the users of the database, or "claim1", from its sums.
      length: n, words in an n-gram, 1 to 5.
      vocabulary_size: the most frequent public n-grams that are kept, at most.
      max_count: C ≥ 1, how often one user's n-gram counts, at most.
      max_contributions: W ≥ 1, distinct n-grams that one user adds, at most.
      decays: candidates for S, each in [1e-6, 1e6].
      public_weights: candidates for 1 − ρ, each in [0, 1).
      tuning_fraction: the part of the users that scores the candidates, in (0, 1).
      max_tokens_per_user: tokens of one user that are looked at.

    Raises:
      ValueError: naming the parameter, its requirement and the value.

    Example:
      >>> PaperBayesianPlan(epsilon=1, delta=1e-7, decays=(0.1, 1.0)).candidates
      ((0.1, 0.5), (1.0, 0.5))
    """

    epsilon: float
    delta: float
    sensitivity: str = "brute_force"
    length: int = 3
    vocabulary_size: int = 50_000
    max_count: int = 1
    max_contributions: int = 10
    decays: tuple[float, ...] = (DEFAULT_DECAY,)
    public_weights: tuple[float, ...] = (0.5,)
    tuning_fraction: float = 0.1
    max_tokens_per_user: int = 1_000_000

    def __post_init__(self):
        for name in ("epsilon", "delta"):
            object.__setattr__(self, name, as_float(name, getattr(self, name)))
        gaussian.check_budget(self.epsilon, self.delta)
        check_choice("sensitivity", self.sensitivity, SENSITIVITIES)
        check_integer("length", self.length, 1, MAX_LENGTH)
        for name in ("vocabulary_size", "max_count", "max_contributions", "max_tokens_per_user"):
            check_integer(name, getattr(self, name), 1)
        for name, check in (("decays", check_decay), ("public_weights", check_weight)):
            values = getattr(self, name)
            if not isinstance(values, list | tuple) or not values:
                raise ValueError(f"{name} must be a list of numbers, got {name}={values!r}.")
            object.__setattr__(self, name, tuple(as_float(name, value) for value in values))
            for value in getattr(self, name):
                check(name, value)
        if not 0 < self.tuning_fraction < 1:
            raise ValueError(
                f"tuning_fraction must be in (0, 1), got tuning_fraction={self.tuning_fraction}."
            )

    @property
    def guarantee(self) -> str:
        """The statement that there is no guarantee."""
        return NO_GUARANTEE

    @property
    def contribution_limit(self) -> int:
        """W; no user has more n-grams than tokens, or more than the vocabulary has."""
        return min(self.max_contributions, self.max_tokens_per_user, self.vocabulary_size)

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
        return self.epsilon * TUNING_SHARE if self.is_tuned else 0.0

    def mechanism_parameters(self) -> dict[str, Any]:
        """Returns everything that decides a run, as JSON types."""
        resolved = {"contribution_limit": self.contribution_limit, "mechanism": "paper"}
        return json.loads(json.dumps(dataclasses.asdict(self) | resolved))


@dataclasses.dataclass(frozen=True, eq=False)
class PaperSums:
    """Sums over all users.

    Attributes:
      table: (V, 2) int64, or (V, 3) with tuning; see the properties for its columns.
    """

    table: np.ndarray

    @property
    def counts(self) -> np.ndarray:
        """(V,) c, of the users that train."""
        return self.table[:, 0]

    @property
    def users(self) -> np.ndarray:
        """(V,) N, of the users that train."""
        return self.table[:, 1]

    @property
    def scoring(self) -> np.ndarray:
        """(V,) c_1, of the users that score candidates."""
        return self.table[:, 2]


@dataclasses.dataclass(frozen=True, eq=False, kw_only=True)
class Norms:
    """How far single users move the results: the largest over some users.

    Attributes:
      gammas: for each candidate (S, ρ), ‖Δ(w⊙x̂)‖₂ of users that train.
      scores: for each, |Δq| of users that score; empty without tuning.
    """

    gammas: np.ndarray
    scores: np.ndarray


register_batches(Norms)


def is_scoring(grams: UserGrams, plan: PaperBayesianPlan, run_key: RunKey) -> np.ndarray:
    """Marks the users that score candidates instead of training, by a keyed draw: (n,) bool."""
    if not plan.is_tuned:
        return np.zeros(len(grams.users), dtype=bool)
    draws = randomness.encrypt_blocks(run_key.sub_key("tuning users"), grams.users)[:, 0]
    return draws < np.uint64(int(plan.tuning_fraction * _UINT64))


def of_users(grams: UserGrams, chosen: np.ndarray) -> UserGrams:
    """Returns some of the users: (n,) bool."""
    sizes = np.diff(grams.offsets)
    kept = np.repeat(chosen, sizes)
    return UserGrams(
        users=grams.users[chosen],
        offsets=np.concatenate(([0], np.cumsum(sizes[chosen]))),
        rows=grams.rows[kept],
        counts=grams.counts[kept],
    )


def centred_logs(counts: np.ndarray) -> np.ndarray:
    """Returns log(c + 1) less its mean over all words.

    References: equations 1 and 2.
    """
    logs = np.log1p(counts)
    return logs - logs.mean()


def mean_logs(
    sums: PaperSums, public: np.ndarray, *, decay: float, private_weight: float, max_count: int
) -> np.ndarray:
    """Returns μ_ps: (V,) float64.

    References: Corollary 1.
    """
    weights = decay_weights(sums.users, max_count=max_count, decay=decay)
    private = weights * centred_logs(sums.counts)
    return private_weight * private + (1 - private_weight) * centred_logs(public)


def user_norms(grams: UserGrams, sums: PaperSums, *, decay: float, max_count: int) -> np.ndarray:
    """Returns ‖w⊙x̂ − w_{−u}⊙x̂_{−u}‖₂ for each user u, as if that user alone left: (n,) float64.

    A user changes w and log(c + 1) of the user's own words only, and through the mean x̂ of all words.

    Args:
      grams: limited, of users whose counts are in the sums.
      sums: of all users.
      decay: S.
      max_count: C.

    References: Corollary 1; Algorithm 1, "brute-force".
    """
    held = np.diff(grams.offsets)
    user = np.repeat(np.arange(held.size), held)
    rows, size = grams.rows, len(sums.table)
    weights = decay_weights(sums.users, max_count=max_count, decay=decay)
    centred = centred_logs(sums.counts)
    falls = np.log1p(sums.counts[rows]) - np.log1p(sums.counts[rows] - grams.counts)
    mean_falls = np.bincount(user, falls, minlength=held.size) / size
    later = decay_weights(sums.users[rows] - 1, max_count=max_count, decay=decay)
    moves = weights[rows] * centred[rows]
    moves -= later * (centred[rows] - falls + mean_falls[user])
    own = np.bincount(user, moves**2, minlength=held.size)
    others = (weights**2).sum() - np.bincount(user, weights[rows] ** 2, minlength=held.size)
    return np.sqrt(own + mean_falls**2 * np.maximum(others, 0.0))


def claim1_bound(sums: PaperSums, *, decay: float, max_count: int) -> float:
    """Returns the printed bound ‖w⊙LC + (S/C)|x̂|⊙1(N ≤ C/S)‖₂.

    It is none where some word has C/S < N < C/S + 1: one user less then lowers w, and the indicator
    does not see it.

    References: Claim 1.
    """
    users = sums.users
    size = users.size
    inverse = np.divide(1.0, users, out=np.zeros(size), where=users > 0)
    lipschitz = (1 - 1 / size) * inverse + (inverse.sum() - inverse) / size
    weights = decay_weights(users, max_count=max_count, decay=decay)
    falling = users <= max_count / decay
    slope = decay / max_count * np.abs(centred_logs(sums.counts)) * falling
    return float(np.linalg.norm(weights * lipschitz * max_count + slope))


def log_probabilities(logs: np.ndarray) -> np.ndarray:
    """Returns μ − log Σ exp μ."""
    largest = logs.max()
    return logs - (largest + math.log(np.exp(logs - largest).sum()))


def cross_entropy(counts: np.ndarray, logs: np.ndarray) -> float:
    """Returns q(c, μ_ps), not normalised.

    References: equation 6.
    """
    return -float(counts @ log_probabilities(logs))


def largest_norms(
    grams: UserGrams,
    scoring: np.ndarray,
    sums: PaperSums,
    public: np.ndarray,
    plan: PaperBayesianPlan,
) -> Norms:
    """Returns what the users of one batch change at most, for each candidate.

    Args:
      grams: limited.
      scoring: (n,) bool, the users that score candidates.
      sums: of all users.
      public: (V,) α.
      plan: of the run.
    """
    training = of_users(grams, ~scoring)
    by_decay = {
        decay: _largest(user_norms(training, sums, decay=decay, max_count=plan.max_count))
        for decay in {decay for decay, _ in plan.candidates}
    }
    gammas = [by_decay[decay] for decay, _ in plan.candidates]
    scores: list[float] = []
    if plan.is_tuned:
        judges = of_users(grams, scoring)
        user = np.repeat(np.arange(len(judges.users)), np.diff(judges.offsets))
        for candidate in plan.candidates:
            logs = log_probabilities(_mean(sums, public, plan, candidate))[judges.rows]
            own = np.bincount(user, judges.counts * logs, minlength=len(judges.users))
            scores.append(_largest(np.abs(own)))
    return Norms(gammas=np.array(gammas), scores=np.array(scores, dtype=np.float64))


def merge_norms(parts: Iterable[Norms], plan: PaperBayesianPlan) -> Norms:
    """Returns the largest of all users; 0 if there are none."""
    count = len(plan.candidates)
    gammas, scores = np.zeros(count), np.zeros(count if plan.is_tuned else 0)
    for part in parts:
        gammas = np.maximum(gammas, part.gammas)
        scores = np.maximum(scores, part.scores)
    return Norms(gammas=gammas, scores=scores)


def paper_stddev(gamma: float, private_weight: float, plan: PaperBayesianPlan) -> float:
    """Returns σ_ps = ρ·γ·√(2 ln(1.25/δ))/ε, for what tuning leaves of ε.

    References: Corollary 1, Definition 4.
    """
    epsilon = plan.epsilon - plan.tuning_epsilon
    return private_weight * gamma * math.sqrt(2 * math.log(1.25 / plan.delta)) / epsilon


def sensitivities(
    sums: PaperSums, norms: Norms, public: np.ndarray, plan: PaperBayesianPlan
) -> tuple[np.ndarray, float]:
    """Returns γ of each candidate, and |Δq| over all of them (0 without tuning).

    References: Claims 1 and 2; "brute force" has their first lines, Claim 1 their second ones.
    """
    candidates = plan.candidates
    gammas = norms.gammas
    if plan.sensitivity == "claim1":
        bounds = (
            claim1_bound(sums, decay=decay, max_count=plan.max_count) for decay, _ in candidates
        )
        gammas = np.array(list(bounds))
    if not plan.is_tuned:
        return gammas, 0.0
    judged = norms.scores
    if plan.sensitivity == "claim1":
        logs = (log_probabilities(_mean(sums, public, plan, each)) for each in candidates)
        judged = np.array([plan.max_count * np.abs(each).sum() for each in logs])
    weights = np.array([weight for _, weight in candidates])
    trained = weights * float(np.linalg.norm(sums.scoring)) * gammas
    return gammas, float(np.maximum(trained, judged).max())


def choose(
    sums: PaperSums, change: float, public: np.ndarray, plan: PaperBayesianPlan, run_key: RunKey
) -> int:
    """Returns the candidate of the least noisy score.

    Args:
      sums: of all users.
      change: |Δq|.
      public: (V,) α.
      plan: of the run.
      run_key: bound.

    References: Theorem 2, Algorithm 2.
    """
    if not plan.is_tuned:
        return 0
    scores = np.array(
        [cross_entropy(sums.scoring, _mean(sums, public, plan, each)) for each in plan.candidates]
    )
    bits = randomness.keyed_bits(run_key.sub_key("tuning noise"), np.arange(scores.size), 0)
    return int(np.argmin(scores + 2 * change / plan.tuning_epsilon * randomness.laplaces(bits)))


def sample(
    sums: PaperSums, norms: Norms, public: np.ndarray, plan: PaperBayesianPlan, run_key: RunKey
) -> tuple[np.ndarray, dict[str, Any]]:
    """Returns the paper's θ, (V,) float64, and the candidate that was taken, for the ledger.

    Args:
      sums: of all users.
      norms: of all users.
      public: (V,) α.
      plan: of the run.
      run_key: bound.

    References: Algorithms 1 and 2.
    """
    gammas, change = sensitivities(sums, norms, public, plan)
    chosen = choose(sums, change, public, plan, run_key)
    decay, private_weight = plan.candidates[chosen]
    bits = randomness.keyed_bits(
        run_key.sub_key("gram noise", plan.length), np.arange(len(public)), 0
    )
    noise = paper_stddev(float(gammas[chosen]), private_weight, plan) * randomness.normals(bits)
    found = softmax(_mean(sums, public, plan, plan.candidates[chosen]) + noise)
    return found, {"decay": decay, "public_weight": 1 - private_weight}


def _mean(
    sums: PaperSums, public: np.ndarray, plan: PaperBayesianPlan, candidate: tuple[float, float]
) -> np.ndarray:
    decay, private_weight = candidate
    return mean_logs(
        sums, public, decay=decay, private_weight=private_weight, max_count=plan.max_count
    )


def _largest(norms: np.ndarray) -> float:
    return float(norms.max(initial=0.0))
