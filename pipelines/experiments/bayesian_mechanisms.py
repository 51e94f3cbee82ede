"""The mechanisms that are compared, on exact counts in memory: ours, the paper's, and baselines.

Ours is the product's mathematics, so that the same run key gives the pipeline's noisy counts. The
others are in floating point, for tables: they are NOT private releases. All return a distribution over
the vocabulary, (V,) float64; zeros are zeros.

References: Ramadan, Withers and Orr, sections 4.2 and 4.5. The paper prints Lap(ε/Δ); the scale is Δ/ε.
"""

import dataclasses

import numpy as np
import numpy.typing as npt

from beam_dpne.bayesian.grams import UserGrams, limit_grams, noisy_values
from beam_dpne.bayesian.plan import ProbabilitiesPlan
from beam_dpne.bayesian.posterior import probabilities
from beam_dpne.documents.blocks import hash_users
from beam_dpne.documents.run_keys import key_context
from beam_dpne.mechanism.randomness import RunKey, keyed_bits, signs, uniforms
from pipelines.experiments.exact_counts import ExactCounts
from pipelines.experiments.paper_probabilities import (
    Paper,
    Sums,
    log_global_probabilities,
    of_users,
    paper_probabilities,
)

COUNTS = "counts"
LOG_GLOBAL = "log_global"
PAPER = "paper_brute_force"
LAPLACE = "laplace"
LAPLACE_PUBLIC = "laplace_public"
PUBLIC = "public"
PUBLIC_PLUS_ONE = "public_plus_one"
ANONYMITY = "k_anonymity"
PRIVATE = "private"
# Without noise: one key is as good as another.
EXACT = (PUBLIC, PUBLIC_PLUS_ONE, ANONYMITY, PRIVATE)
PAPER_DECAYS = (1e-3, 1e-2, 1e-1, 1.0, 1e1, 1e2, 1e3, 1e4)
PAPER_PUBLIC_WEIGHTS = (0.1, 0.3, 0.5, 0.7, 0.9)
DELTA = 1e-7
MAX_COUNT = 1
MAX_CONTRIBUTIONS = 30
TOKENIZER = "words"
_Floats = npt.NDArray[np.float64]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Setting:
    """One mechanism under one setting, and the kind of its measurement.

    Attributes:
      kind: "divergence", "perplexity" or "membership".
      mechanism: One of the names above.
      epsilon: ε, or None where there is none.
      vocabulary_size: V.
      users: Number of users, or None for all. If it is larger than the number in the data, users are
        drawn with replacement.
      public_noise: Scale of Laplace noise added to the public counts, which makes them worse.
      anonymity: K of k-anonymity.
      held_out: Whether the model is made of nine tenths of the users and judged on the sentences of the
        others.
      draws: Number of draws of each world for membership inference.
      max_contributions: W.
    """

    kind: str
    mechanism: str
    epsilon: float | None = None
    vocabulary_size: int
    users: int | None = None
    public_noise: float = 0.0
    anonymity: int | None = None
    held_out: bool = False
    draws: int = 0
    max_contributions: int = MAX_CONTRIBUTIONS

    @property
    def plan(self) -> ProbabilitiesPlan:
        """The plan of the product's mechanism; all mechanisms have its limits."""
        return ProbabilitiesPlan(
            epsilon=self.epsilon or 1.0,
            delta=DELTA,
            vocabulary_size=self.vocabulary_size,
            max_count=MAX_COUNT,
            max_contributions=self.max_contributions,
        )

    @property
    def paper(self) -> Paper:
        """The parameters of a run of the paper's mechanism.

        It is tuned as printed, except for membership inference, where the worlds are to differ by the
        user alone.
        """
        tuned = {"decays": PAPER_DECAYS, "public_weights": PAPER_PUBLIC_WEIGHTS}
        return Paper(
            epsilon=self.epsilon or 1.0,
            delta=DELTA,
            max_count=MAX_COUNT,
            **({} if self.kind == "membership" else tuned),
        )


def limited(exact: ExactCounts, plan: ProbabilitiesPlan, bound: RunKey) -> UserGrams:
    """Returns the counts that each user adds; all copies of a user make the same choice."""
    users = hash_users(exact.names, bound.sub_key("user"))
    grams = UserGrams(users=users, offsets=exact.offsets, rows=exact.rows, counts=exact.values)
    return limit_grams(grams, plan, bound)


def bound_key(exact: ExactCounts, plan: ProbabilitiesPlan, run_key: RunKey) -> RunKey:
    """Returns the run key as the transform binds it."""
    return run_key.bound_to(key_context(plan, TOKENIZER, public=exact.public.fingerprint()))


def release(exact: ExactCounts, setting: Setting, key: int, run_key: RunKey) -> _Floats:
    """Returns the distribution that a mechanism releases: (V,).

    Args:
      exact: The data.
      setting: The mechanism and its parameters.
      key: Number of the run key, which seeds the mechanisms that only the paper has.
      run_key: The run key, before it is bound to the plan.
    """
    if setting.mechanism in EXACT:
        return _without_noise(exact, setting)
    public = exact.public.counts
    plan = setting.plan
    bound = bound_key(exact, plan, run_key)
    grams = limited(exact, plan, bound)
    rng = np.random.default_rng(key)
    if setting.mechanism == PAPER:
        paper = setting.paper
        scoring = rng.random(len(grams.users)) < (paper.tuning_fraction if paper.is_tuned else 0)
        # Users of whom there is no copy are left out.
        present = exact.copies > 0
        trainers, judges = (of_users(grams, present & each) for each in (~scoring, scoring))
        sums = _sums(exact, grams, scoring)
        return paper_probabilities(trainers, judges, sums, public, paper, rng=rng)
    sums = _sums(exact, grams, np.zeros(len(grams.users), dtype=bool))
    if setting.mechanism == LOG_GLOBAL:
        return log_global_probabilities(
            sums,
            public,
            epsilon=plan.epsilon,
            delta=plan.delta,
            max_count=plan.max_count,
            max_contributions=plan.contribution_limit,
            rng=rng,
        )
    if setting.mechanism == COUNTS:
        values = noisy_values(sums.counts, plan, bound)
        return probabilities(values, public, exact.public.grams, plan.noise_stddev)
    bits = keyed_bits(bound.sub_key("laplace noise"), np.arange(public.size), 0)
    noise = laplaces(bits) * (plan.max_count * plan.contribution_limit / plan.epsilon)
    if setting.mechanism == LAPLACE:
        return positive(sums.counts + noise)
    return laplace_with_public(sums.counts, public, noise)


def _without_noise(exact: ExactCounts, setting: Setting) -> _Floats:
    if setting.mechanism == PRIVATE:
        return exact.distribution
    if setting.mechanism == ANONYMITY:
        return positive(np.where(exact.holders >= (setting.anonymity or 1), exact.counts, 0))
    return positive(exact.public.counts + (setting.mechanism == PUBLIC_PLUS_ONE))


def _sums(exact: ExactCounts, grams: UserGrams, scoring: npt.NDArray[np.bool_]) -> Sums:
    """Returns counts and users of those that train, and counts of those that score."""
    of_scoring = np.repeat(scoring, np.diff(grams.offsets))
    columns = (
        np.where(of_scoring, 0, grams.counts),
        np.where(of_scoring, 0, 1),
        np.where(of_scoring, grams.counts, 0),
    )
    return Sums(*(exact.summed(grams.offsets, grams.rows, each) for each in columns))


def laplace_with_public(counts: np.ndarray, public: np.ndarray, noise: _Floats) -> _Floats:
    """Returns the paper's "modified Laplace mechanism that utilises public counts", as printed.

    max(Σ_u w_u (c̃^u − α̃) + e + α̃, 0), normalised, with w_u = |c^u|/|c|. As Σ w_u = 1, the public
    part cancels: what is left is c/|c| + e. One user's term has an ℓ1-norm of up to 2·C·W/|c|, twice
    that of the counts. |c| is taken as known, which favours the baseline: it is none of the guarantees.

    Args:
      counts: (V,) sums of limited counts, some positive.
      public: (V,) α.
      noise: (V,) Laplace noise of scale C·W/ε.
    """
    total = float(counts.sum())
    share = public / public.sum()
    return positive(counts / total - share + 2 * noise / total + share)


def positive(values: np.ndarray) -> _Floats:
    """Cuts values off at 0 and normalises; returns the uniform distribution if all are 0."""
    kept = np.maximum(values, 0.0)
    return kept / kept.sum() if kept.any() else np.full(kept.size, 1 / kept.size)


def laplaces(bits: npt.NDArray[np.uint64]) -> _Floats:
    """Returns Laplace noise of scale 1, ±|ln U|."""
    return signs(bits) * -np.log(uniforms(bits))
