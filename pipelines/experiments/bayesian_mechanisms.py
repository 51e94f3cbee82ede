"""The mechanisms' mathematics on exact counts, without a pipeline, for hundreds of draws.

The same functions as the pipeline's, so that the same run key gives the same noisy counts; a test and
an experiment compare the two.
"""

import dataclasses
from collections.abc import Callable, Mapping

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from beam_dpne.bayesian import paper
from beam_dpne.bayesian.counting import UserGrams, noisy_values
from beam_dpne.bayesian.plan import CountingPlan, PaperBayesianPlan
from beam_dpne.bayesian.transform import limited_grams, probabilities_of, run_context
from beam_dpne.documents.group_by_user import hash_users
from beam_dpne.mechanism.randomness import RunKey
from beam_dpne.reading.options import InputDescription
from pipelines.experiments import bayesian_baselines as baselines
from pipelines.experiments.bayesian_runs import (
    ANONYMITY,
    LAPLACE,
    LAPLACE_PUBLIC,
    MAX_COUNT,
    PAPER_SENSITIVITIES,
    PRIVATE,
    PUBLIC,
    PUBLIC_PLUS_ONE,
    BayesianRun,
)
from pipelines.experiments.exact_counts import ExactCounts

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

    def bound(self, plan: CountingPlan, run_key: RunKey) -> RunKey:
        """Returns the run key as the transform binds it."""
        return run_key.bound_to(run_context(plan, TOKENIZER, self.exact.public, self.described))

    def limited(self, plan: CountingPlan, bound: RunKey) -> UserGrams:
        """Returns the counts that each user adds; all copies of a user make the same choice."""
        exact = self.exact
        hashes = hash_users(self.names, bound.sub_key("user"))[exact.holding]
        grams = UserGrams(users=hashes, offsets=exact.offsets, rows=exact.rows, counts=exact.values)
        return limited_grams(grams, plan, bound)

    def table(self, grams: UserGrams, scoring: npt.NDArray[np.bool_]) -> npt.NDArray[np.int64]:
        """Returns counts and users of those that train, and counts of those that score: (V, 3)."""
        of_scoring = np.repeat(scoring, np.diff(grams.offsets))
        columns = (
            np.where(of_scoring, 0, grams.counts),
            np.where(of_scoring, 0, 1),
            np.where(of_scoring, grams.counts, 0),
        )
        sums = [self.exact.summed(grams.offsets, grams.rows, column) for column in columns]
        return np.stack(sums, axis=1)


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
    if run.mechanism in PAPER_SENSITIVITIES:
        return _paper(world, run.paper_plan, run_key)
    plan = run.plan
    bound = world.bound(plan, run_key)
    grams = world.limited(plan, bound)
    table = world.table(grams, np.zeros(grams.users.shape[0], dtype=bool))
    values = noisy_values(table, 0, plan=plan, run_key=bound)
    return probabilities_of(values, world.exact.public, plan)


def _paper(world: World, plan: PaperBayesianPlan, run_key: RunKey) -> _Floats:
    bound = world.bound(plan, run_key)
    grams = world.limited(plan, bound)
    scoring = paper.is_scoring(grams, plan, bound)
    sums = paper.PaperSums(world.table(grams, scoring))
    public = world.exact.public.counts
    # Users of whom there is no copy are left out.
    present = paper.of_users(grams, world.exact.copies > 0)
    kept = scoring[world.exact.copies > 0]
    norms = paper.largest_norms(present, kept, sums, public, plan)
    found, _ = paper.sample(sums, norms, public, plan, bound)
    return found


def _laplace(world: World, run: BayesianRun, run_key: RunKey) -> _Floats:
    counts, noise = _limited_counts(world, run, run_key)
    return baselines.laplace(counts, **noise)


def _laplace_public(world: World, run: BayesianRun, run_key: RunKey) -> _Floats:
    counts, noise = _limited_counts(world, run, run_key)
    return baselines.laplace_with_public(counts, world.exact.public.counts, **noise)


def _limited_counts(world: World, run: BayesianRun, run_key: RunKey) -> tuple[np.ndarray, dict]:
    """Returns the limited counts, to which the mode `counts` and Laplace noise are added."""
    plan = dataclasses.replace(run, mechanism="counts").plan
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
