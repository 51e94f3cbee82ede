"""PaperBayesianCounts: the paper's own mechanism, exactly as printed, WITHOUT any privacy guarantee.

It draws h ~ N(μ_ps, σ_ps² I) and releases θ = softmax(h), with

    μ_ps = ρ·w⊙x̂ + (1 − ρ)·μ_p,  σ_ps = ρ·γ·√(2 ln(1.25/δ))/ε.

Here γ is the sensitivity *at this database*, computed by brute force over its users, or by Claim 1 from
its N and x̂. Neighbouring databases have different γ and hence different noise, so that the size of the
noise shows which of them was used. `tests/privacy/test_bayesian_attack.py` measures this.

Slips of the print are corrected. The last lines of Algorithm 1 omit the w⊙ before x̂ that Corollary 1
has. The brute force adds (S/C)·x̂ for every word of a user, and Corollary 1 adds it for words with
N ≤ C/S; the change of w is w(N) − w(N − 1), which differs from both where C/S < N < C/S + 1. The sums
over 1/N in Claim 1 are taken over words that some user has. The Laplace noise has the scale 2|Δq|/ε,
of which the paper prints the inverse.

*Why "log_global" has no tuning.* Theorem 2 needs a bound on the change of the score that holds over all
databases. The score, a cross-entropy, is linear in the counts of the users that score. With twice as
many of them, one training user changes it twice as much, so that no bound holds for all databases.
Clipping each scoring user's part bounds the change by *that* user, but not the change of all parts by
one training user. A mean over the scoring users has a bound, as the logarithms change by up to 2ρB. But
this bound is of no use: it is 0.056 at S = 0.01 and ρ = ½, which needs Laplace noise of scale 2.2 nats
at ε = 0.05.

References: Ramadan, Withers and Orr, "N-grams Bayesian Differential Privacy": equations 1 to 6,
Corollary 1, Claims 1 and 2, Algorithms 1 and 2.
"""

import dataclasses
import functools
import math
from collections.abc import Iterable
from typing import Any

import apache_beam as beam
import numpy as np
from apache_beam.pvalue import AsIter, PCollection

from beam_dpne.bayesian import counting
from beam_dpne.bayesian.counting import GramSums, NgramProbabilities, UserGrams
from beam_dpne.bayesian.log_global import decay_weights, softmax
from beam_dpne.bayesian.plan import PaperBayesianPlan
from beam_dpne.bayesian.public_counts import PublicCounts
from beam_dpne.bayesian.transform import AddUp, CountingTransform, result_of
from beam_dpne.elements import arrays, progress
from beam_dpne.elements.coders import register_batches
from beam_dpne.mechanism import randomness
from beam_dpne.mechanism.randomness import RunKey

_UINT64 = 2**64


@dataclasses.dataclass(frozen=True, eq=False)
class PaperSums:
    """Sums over all users for each n-gram of the vocabulary.

    Attributes:
      table: (V, 2) int64, or (V, 3) with tuning; the properties are its columns.
    """

    table: np.ndarray

    @property
    def counts(self) -> np.ndarray:
        """(V,) c: the counts of the users that train."""
        return self.table[:, 0]

    @property
    def users(self) -> np.ndarray:
        """(V,) N: the number of training users who have each n-gram."""
        return self.table[:, 1]

    @property
    def scoring(self) -> np.ndarray:
        """(V,) c_1: the counts of the users that score candidates."""
        return self.table[:, 2]


@dataclasses.dataclass(frozen=True, eq=False, kw_only=True)
class Norms:
    """The most by which a single one of some users moves the results.

    Attributes:
      gammas: float64, for each candidate (S, ρ) the largest ‖Δ(w⊙x̂)‖₂ of a user that trains.
      scores: float64, for each candidate the largest |Δq| of a user that scores; empty without tuning.
    """

    gammas: np.ndarray
    scores: np.ndarray


register_batches(Norms)


@dataclasses.dataclass(eq=False, kw_only=True)
class PaperBayesianCounts(CountingTransform):
    """Estimates n-gram probabilities as the paper prints it, for comparison; it is NOT private.

    Input: documents, as `BayesianCounts` takes them.

    Output: PCollection of one `NgramProbabilities`, whose `guarantee` says that there is none.

    Privacy: there is none. The noise is scaled by the sensitivity of the database at hand, so that its
    size shows who is in the data. `WriteRelease` refuses the output, and no program offers this
    transform. Never use it on private data; `BayesianCounts` is the private form.

    Cost: that of `BayesianCounts`, and a second pass over every user's n-grams.

    Attributes:
      plan: the parameters of the run.
      public: the public counts; the most frequent plan.vocabulary_size of them are used.
      tokenizer: as in `BayesianCounts`.
      partitions: the number of hash partitions of users; the sums have a quarter as many.
      run_key: the secret of the run; by default a fresh one each time the transform is applied.
      store: where public counts go that are too large for the job's graph; with None they stay in it.
      described: how records became documents, if they were read from files.
      user_field: the name of the field with the user.
      text_field: the name of the field with the text, or several names.
      workers: the number of threads in which a worker tokenizes; None means one.

    Raises:
      ValueError: in the cases of `BayesianCounts`.

    Example:
      >>> from apache_beam.runners.portability.fn_api_runner import FnApiRunner
      >>> from beam_dpne import PaperBayesianCounts, PaperBayesianPlan, PublicCounts
      >>> public = PublicCounts.of([("good", "morning"), ("good", "night")], [1, 1])
      >>> plan = PaperBayesianPlan(epsilon=10, delta=1e-4, length=2)
      >>> with beam.Pipeline(runner=FnApiRunner()) as pipeline:
      ...     documents = pipeline | beam.Create([(f"u{i}", "Good morning") for i in range(99)])
      ...     found = documents | PaperBayesianCounts(plan=plan, public=public)
      ...     _ = found | beam.Map(lambda one: print(one.guarantee[:38]))
      no differential privacy guarantee: the

    References: Ramadan, Withers and Orr, Algorithms 1 and 2.
    """

    plan: PaperBayesianPlan
    plan_type = PaperBayesianPlan

    def expand(self, documents: PCollection) -> PCollection[NgramProbabilities]:
        """Computes the sums, the sensitivity of this database over its users, and the probabilities."""
        plan = self.plan
        counted = self.counted(documents)
        parts = counted.sums | "Parts" >> beam.FlatMapTuple(
            lambda _, parts: parts
        ).with_output_types(GramSums)
        find = beam.Map(_norms, AsIter(parts), counted.public, plan=plan, run_key=counted.run_key)
        norms = counted.grams | "LookAtUsers" >> find.with_output_types(Norms)
        release = beam.Map(
            _release,
            AsIter(parts),
            AsIter(norms),
            counted.public,
            plan=plan,
            run_key=counted.run_key,
        )
        once = documents.pipeline | "Once" >> beam.Create([None])
        return once | "Release" >> release.with_output_types(NgramProbabilities)

    def summing(self, run_key: RunKey) -> tuple[int, AddUp]:
        """Returns the number of columns, 2 or with tuning 3, and the function that fills them."""
        add = functools.partial(_add_up, plan=self.plan, run_key=run_key)
        return _width(self.plan), add


def is_scoring(grams: UserGrams, plan: PaperBayesianPlan, run_key: RunKey) -> np.ndarray:
    """Marks the users that score candidates instead of training, by a keyed draw: (n,) bool."""
    if not plan.is_tuned:
        return np.zeros(len(grams.users), dtype=bool)
    draws = randomness.encrypt_blocks(run_key.sub_key("tuning users"), grams.users)[:, 0]
    return draws < np.uint64(int(plan.tuning_fraction * _UINT64))


def of_users(grams: UserGrams, chosen: np.ndarray) -> UserGrams:
    """Returns the grams of some of the users, which a mask of (n,) bool marks."""
    sizes = np.diff(grams.offsets)
    kept = np.repeat(chosen, sizes)
    return UserGrams(
        users=grams.users[chosen],
        offsets=arrays.offsets_of(sizes[chosen]),
        rows=grams.rows[kept],
        counts=grams.counts[kept],
    )


def centred_logs(counts: np.ndarray) -> np.ndarray:
    """Returns log(c + 1) less its mean over all words: (V,) float64.

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
      grams: the limited grams of users whose counts are in the sums.
      sums: the sums over all users.
      decay: S.
      max_count: C.

    References: Corollary 1; Algorithm 1, "brute-force".
    """
    count, rows = len(grams.users), grams.rows
    user = arrays.rows_of_entries(grams.offsets)
    weights = decay_weights(sums.users, max_count=max_count, decay=decay)
    centred = centred_logs(sums.counts)
    # For each (user, word) entry: how far log(c + 1) falls without the user, and the weight then.
    falls = np.log1p(sums.counts[rows]) - np.log1p(sums.counts[rows] - grams.counts)
    later = decay_weights(sums.users[rows] - 1, max_count=max_count, decay=decay)
    # (n,) how far the mean of all V logarithms falls without each user.
    mean_falls = np.bincount(user, falls, minlength=count) / len(sums.table)
    moves = weights[rows] * centred[rows]
    moves -= later * (centred[rows] - falls + mean_falls[user])
    # (n,) squared moves of the user's words, and squared weights of all others, which the mean moves.
    present = np.bincount(user, moves**2, minlength=count)
    others = (weights**2).sum() - np.bincount(user, weights[rows] ** 2, minlength=count)
    return np.sqrt(present + mean_falls**2 * np.maximum(others, 0.0))


def claim1_bound(sums: PaperSums, *, decay: float, max_count: int) -> float:
    """Returns the printed bound ‖w⊙LC + (S/C)|x̂|⊙1(N ≤ C/S)‖₂.

    It is no bound if some word has C/S < N < C/S + 1: there, one user less lowers w, although the
    indicator is 0.

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
    """Returns μ − log Σ exp μ: (V,) float64."""
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
    """Returns the most by which a user of one batch changes the results, for each candidate.

    Args:
      grams: the limited grams of the batch.
      scoring: (n,) bool, the users that score candidates.
      sums: the sums over all users.
      public: (V,) α.
      plan: the plan of the run.
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
        user = arrays.rows_of_entries(judges.offsets)
        for candidate in plan.candidates:
            logs = log_probabilities(_mean(sums, public, plan, candidate))[judges.rows]
            changes = np.bincount(user, judges.counts * logs, minlength=len(judges.users))
            scores.append(_largest(np.abs(changes)))
    return Norms(gammas=np.array(gammas), scores=np.array(scores, dtype=np.float64))


def merge_norms(parts: Iterable[Norms], plan: PaperBayesianPlan) -> Norms:
    """Returns the largest norms of all users; they are 0 without users."""
    count = len(plan.candidates)
    gammas, scores = np.zeros(count), np.zeros(count if plan.is_tuned else 0)
    for part in parts:
        gammas = np.maximum(gammas, part.gammas)
        scores = np.maximum(scores, part.scores)
    return Norms(gammas=gammas, scores=scores)


def paper_stddev(gamma: float, private_weight: float, plan: PaperBayesianPlan) -> float:
    """Returns σ_ps = ρ·γ·√(2 ln(1.25/δ))/ε, for the part of ε that tuning does not spend.

    References: Corollary 1, Definition 4.
    """
    epsilon = plan.epsilon - plan.tuning_epsilon
    return private_weight * gamma * math.sqrt(2 * math.log(1.25 / plan.delta)) / epsilon


def sensitivities(
    sums: PaperSums, norms: Norms, public: np.ndarray, plan: PaperBayesianPlan
) -> tuple[np.ndarray, float]:
    """Returns γ of each candidate, and |Δq| over all of them (0 without tuning).

    References: Claims 1 and 2, for "brute_force" their first lines, for "claim1" their second lines.
    """
    candidates = plan.candidates
    gammas = norms.gammas
    if plan.sensitivity == "claim1":
        gammas = np.array(
            [claim1_bound(sums, decay=decay, max_count=plan.max_count) for decay, _ in candidates]
        )
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
    """Returns the number of the candidate with the smallest score after noise.

    Args:
      sums: the sums over all users.
      change: |Δq|.
      public: (V,) α.
      plan: the plan of the run.
      run_key: bound to the run's parameters.

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
    """Returns the paper's θ, (V,) float64, and the chosen candidate as JSON types.

    Args:
      sums: the sums over all users.
      norms: the largest norms of all users.
      public: (V,) α.
      plan: the plan of the run.
      run_key: bound to the run's parameters.

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


def _width(plan: PaperBayesianPlan) -> int:
    return 3 if plan.is_tuned else 2


def _add_up(
    grams: UserGrams, table: np.ndarray, *, plan: PaperBayesianPlan, run_key: RunKey
) -> None:
    """Adds training users to the first two columns of a table, and scoring users to the third."""
    scoring = is_scoring(grams, plan, run_key)
    counting.add_up(of_users(grams, ~scoring), table[:, :2])
    if plan.is_tuned:
        judges = of_users(grams, scoring)
        np.add.at(table[:, 2], judges.rows, judges.counts)


def _sums(parts: Iterable[GramSums], public: PublicCounts, plan: PaperBayesianPlan) -> PaperSums:
    return PaperSums(counting.merge_sums(parts, 0, len(public), _width(plan)))


def _norms(
    grams: UserGrams,
    parts: Iterable[GramSums],
    public: PublicCounts,
    *,
    plan: PaperBayesianPlan,
    run_key: RunKey,
) -> Norms:
    scoring = is_scoring(grams, plan, run_key)
    return largest_norms(grams, scoring, _sums(parts, public, plan), public.counts, plan)


def _release(
    _: None,
    parts: Iterable[GramSums],
    norms: Iterable[Norms],
    public: PublicCounts,
    *,
    plan: PaperBayesianPlan,
    run_key: RunKey,
) -> NgramProbabilities:
    progress.enter(progress.RELEASED, None)
    largest = merge_norms(norms, plan)
    sums = _sums(parts, public, plan)
    found, report = sample(sums, largest, public.counts, plan, run_key)
    return result_of(found, public, plan, report)
