"""The mechanisms' mathematics on exact counts, without a pipeline, for hundreds of draws.

The same functions as the pipeline's, so that the same run key gives the same noisy counts; a test and
an experiment compare the two.
"""

import dataclasses
from collections.abc import Callable, Mapping

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from beam_dpne.bayesian.counting import UserGrams, noisy_values
from beam_dpne.bayesian.plan import BayesianPlan
from beam_dpne.bayesian.transform import limited_grams, probabilities_of, run_context
from beam_dpne.documents.group_by_user import hash_users
from beam_dpne.mechanism.randomness import RunKey
from beam_dpne.reading.options import InputDescription
from pipelines.experiments import bayesian_baselines as baselines
from pipelines.experiments.bayesian_runs import (
    ANONYMITY,
    LAPLACE,
    LAPLACE_PUBLIC,
    LOG_GLOBAL,
    MAX_COUNT,
    PAPER_SENSITIVITIES,
    PRIVATE,
    PUBLIC,
    PUBLIC_PLUS_ONE,
    BayesianRun,
)
from pipelines.experiments.exact_counts import ExactCounts
from pipelines.experiments.paper_probabilities import (
    Sums,
    log_global_probabilities,
    of_users,
    paper_probabilities,
)

TOKENIZER = "words"
_Floats = npt.NDArray[np.float64]


@dataclasses.dataclass(frozen=True, eq=False)
class World:
    """A database as a mechanism sees it.

    Attributes:
      exact: The public n-grams of each user, with counts.
      names: (u,) names of all users.
      described: How records became documents; the run key is bound to it, among others.
    """

    exact: ExactCounts
    names: pa.Array
    described: InputDescription | None = None

    def bound(self, plan: BayesianPlan, run_key: RunKey) -> RunKey:
        """Returns the run key as the transform binds it."""
        return run_key.bound_to(run_context(plan, TOKENIZER, self.exact.public, self.described))

    def limited(self, plan: BayesianPlan, bound: RunKey) -> UserGrams:
        """Returns the counts that each user adds; all copies of a user make the same choice."""
        exact = self.exact
        hashes = hash_users(self.names, bound.sub_key("user"))[exact.holding]
        grams = UserGrams(users=hashes, offsets=exact.offsets, rows=exact.rows, counts=exact.values)
        return limited_grams(grams, plan, bound)

    def sums(self, grams: UserGrams, scoring: npt.NDArray[np.bool_]) -> Sums:
        """Returns counts and users of those that train, and counts of those that score."""
        of_scoring = np.repeat(scoring, np.diff(grams.offsets))
        columns = (
            np.where(of_scoring, 0, grams.counts),
            np.where(of_scoring, 0, 1),
            np.where(of_scoring, grams.counts, 0),
        )
        return Sums(*(self.exact.summed(grams.offsets, grams.rows, each) for each in columns))


def release(world: World, run: BayesianRun, run_key: RunKey) -> _Floats:
    """Returns the distribution that a mechanism releases: (V,).

    Args:
      world: The data.
      run: The mechanism and its parameters.
      run_key: The run key, before it is bound to the plan.
    """
    baseline = _BASELINES.get(run.mechanism)
    if baseline is not None:
        return baseline(world, run, run_key)
    plan, public = run.plan, world.exact.public
    bound = world.bound(plan, run_key)
    grams = world.limited(plan, bound)
    rng = np.random.default_rng(run.key)
    if run.mechanism in PAPER_SENSITIVITIES:
        paper = run.paper
        scoring = rng.random(len(grams.users)) < (paper.tuning_fraction if paper.is_tuned else 0)
        # Users of whom there is no copy are left out.
        present = world.exact.copies > 0
        trainers, judges = (of_users(grams, present & each) for each in (~scoring, scoring))
        sums = world.sums(grams, scoring)
        return paper_probabilities(trainers, judges, sums, public.counts, paper, rng=rng)
    sums = world.sums(grams, np.zeros(len(grams.users), dtype=bool))
    if run.mechanism == LOG_GLOBAL:
        return log_global_probabilities(
            sums,
            public.counts,
            epsilon=plan.epsilon,
            delta=plan.delta,
            max_count=plan.max_count,
            max_contributions=plan.contribution_limit,
            rng=rng,
        )
    values = noisy_values(sums.counts, 0, plan=plan, run_key=bound)
    return probabilities_of(values, public, plan)


def _laplace(world: World, run: BayesianRun, run_key: RunKey) -> _Floats:
    counts, noise = _limited_counts(world, run, run_key)
    return baselines.laplace(counts, **noise)


def _laplace_public(world: World, run: BayesianRun, run_key: RunKey) -> _Floats:
    counts, noise = _limited_counts(world, run, run_key)
    return baselines.laplace_with_public(counts, world.exact.public.counts, **noise)


def _limited_counts(world: World, run: BayesianRun, run_key: RunKey) -> tuple[np.ndarray, dict]:
    """Returns the limited counts, to which the mode `counts` and Laplace noise are added."""
    plan = run.plan
    bound = world.bound(plan, run_key)
    grams = world.limited(plan, bound)
    counts = world.exact.summed(grams.offsets, grams.rows, grams.counts)
    noise = {"epsilon": run.epsilon, "run_key": bound}
    return counts, noise | {"max_count": MAX_COUNT, "max_contributions": plan.contribution_limit}


def _anonymous(world: World, run: BayesianRun, run_key: RunKey) -> _Floats:
    exact = world.exact
    return baselines.k_anonymity(exact.counts, exact.holders, run.anonymity or 1)


_BASELINES: Mapping[str, Callable[[World, BayesianRun, RunKey], _Floats]] = {
    LAPLACE: _laplace,
    LAPLACE_PUBLIC: _laplace_public,
    ANONYMITY: _anonymous,
    PRIVATE: lambda world, run, run_key: world.exact.distribution,
    PUBLIC: lambda world, run, run_key: baselines.public_only(world.exact.public.counts),
    PUBLIC_PLUS_ONE: lambda world, run, run_key: baselines.public_only(
        world.exact.public.counts, added=1
    ),
}
