"""Membership inference against the mechanisms: draws of both worlds, and what they give away."""

import dataclasses
from typing import Any

import numpy as np
import numpy.typing as npt

from beam_dpne.bayesian.counting import UserGrams
from beam_dpne.bayesian.posterior import probabilities
from beam_dpne.bayesian.public_counts import PublicCounts
from beam_dpne.mechanism.randomness import RunKey, keyed_bits, normals
from pipelines.experiments import membership, paper_probabilities
from pipelines.experiments.bayesian_baselines import laplaces
from pipelines.experiments.bayesian_mechanisms import World
from pipelines.experiments.bayesian_runs import DELTA, LAPLACE, PAPER_SENSITIVITIES, BayesianRun
from pipelines.experiments.divergence import FLOOR, with_floor
from pipelines.experiments.paper_probabilities import (
    Sums,
    mean_logs,
    of_users,
    paper_stddev,
    sensitivities,
)

RATIO_DRAWS = 20_000
_RATIOS_A_DRAW = 30
_AT_ONCE = 2**21
_Floats = npt.NDArray[np.float64]


@dataclasses.dataclass(frozen=True, eq=False)
class Pair:
    """Two databases that differ in one user, after the limits of contributions.

    Attributes:
      public: The vocabulary of V grams.
      grams: The counts that each user adds (CSR); the last user is the one who is added or removed.
      counts: (V,) sums of counts, the last user included.
      users: (V,) number of users who have each gram, the last user included.
    """

    public: PublicCounts
    grams: UserGrams
    counts: npt.NDArray[np.int64]
    users: npt.NDArray[np.int64]

    @property
    def rows(self) -> npt.NDArray[np.int32]:
        """The grams that the user has."""
        return self.grams.rows[self.grams.offsets[-2] :]

    @property
    def added(self) -> npt.NDArray[np.int64]:
        """The number that the user adds to each gram: (V,) int64."""
        counts = self.grams.counts[self.grams.offsets[-2] :]
        return np.bincount(self.rows, counts, minlength=len(self.public)).astype(np.int64)


def pair_of(world: World, run: BayesianRun, run_key: RunKey) -> Pair:
    """Returns the data with and without the user of most public grams, as the paper has it."""
    plan = run.plan
    grams = world.limited(plan, world.bound(plan, run_key))
    totals = np.add.reduceat(world.exact.values, world.exact.offsets[:-1])
    order = np.argsort(totals, kind="stable")
    exact = world.exact
    return Pair(
        public=exact.public,
        grams=_ordered(grams, order),
        counts=exact.summed(grams.offsets, grams.rows, grams.counts),
        users=exact.summed(grams.offsets, grams.rows, np.ones_like(grams.counts)),
    )


def counterexample(users: int = 5000, words: int = 50) -> Pair:
    """Returns a pair of inputs that the paper's noise distinguishes: 5,000 users have 49 words each.

    The one user who is added or removed is the only user of the last word.
    """
    common = np.arange(words - 1)
    counts = np.append(np.full(words - 1, users), 1)
    public = PublicCounts.of([(f"w{number:03d}",) for number in range(words)], [1] * words)
    rows = np.append(np.tile(common, users), words - 1)
    offsets = np.append(np.arange(users + 1) * (words - 1), rows.size)
    grams = UserGrams(
        users=np.zeros((users + 1, 2), np.uint64),
        offsets=offsets,
        rows=rows.astype(np.int32),
        counts=np.ones(rows.size, np.int64),
    )
    return Pair(public, grams, counts, counts)


def attack(pair: Pair, run: BayesianRun, run_key: RunKey) -> dict[str, Any]:
    """Returns the paper's inference probability, and a lower bound of ε from the likelihood ratio.

    Args:
      pair: Both worlds.
      run: The mechanism, with the number of pairs of releases that the paper's statistic needs.
      run_key: Key of the noise.
    """
    user_shares = pair.added / pair.added.sum()
    if run.mechanism in PAPER_SENSITIVITIES:
        scores, shares = _attack_paper(pair, run, run_key)
    else:
        scores = _ratios(pair, run, run_key)
        shares = [
            [_released(pair, run, _sub_key(run_key, seed, draw)) for draw in range(run.draws)]
            for seed in (True, False)
        ]
    floored = [np.array([with_floor(one, FLOOR) for one in part]) for part in shares]
    return {
        "probability": membership.inference_probability(user_shares, *floored)
        if run.draws
        else None,
        "epsilon_bound": membership.epsilon_lower_bound(*scores, delta=DELTA),
        "ratio_draws": int(scores[0].size),
    }


def _sub_key(run_key: RunKey, present: bool, draw: int) -> tuple[bool, RunKey]:
    return present, run_key.bound_to(f"attack {present} {draw}")


def _scale(run: BayesianRun) -> float:
    """Returns the noise of counts: σ, or the scale of Laplace noise."""
    plan = run.plan
    if run.mechanism == LAPLACE:
        return plan.max_count * plan.contribution_limit / plan.epsilon
    return plan.noise_stddev


def _noise(run: BayesianRun, bits: np.ndarray) -> _Floats:
    return _scale(run) * (laplaces(bits) if run.mechanism == LAPLACE else normals(bits))


def _ratios(pair: Pair, run: BayesianRun, run_key: RunKey) -> list[_Floats]:
    """Returns log likelihood ratios of draws of both worlds, which differ only in the user's grams."""
    present = pair.counts[pair.rows].astype(np.float64)
    absent = present - pair.added[pair.rows]
    ratio = (
        membership.laplace_log_ratios
        if run.mechanism == LAPLACE
        else membership.gaussian_log_ratios
    )
    found = []
    for name, means in (("with", present), ("without", absent)):
        sub_key = run_key.sub_key(f"ratios {name}")
        positions = np.arange(RATIO_DRAWS * means.size)
        noise = _noise(run, keyed_bits(sub_key, positions, 0)).reshape(RATIO_DRAWS, -1)
        found.append(ratio(means + noise, present, absent, _scale(run)))
    return found


def _released(pair: Pair, run: BayesianRun, world: tuple[bool, RunKey]) -> _Floats:
    """Returns one release of one world."""
    present, key = world
    counts = pair.counts - (0 if present else pair.added)
    noisy = counts + _noise(run, keyed_bits(key.sub_key("noise"), np.arange(counts.size), 0))
    if run.mechanism == LAPLACE:
        kept = np.maximum(noisy, 0)
        return kept / kept.sum()
    whole = np.rint(noisy).astype(np.int64)
    return probabilities(whole, pair.public.counts, pair.public.grams, _scale(run))


def _attack_paper(
    pair: Pair, run: BayesianRun, run_key: RunKey
) -> tuple[list[_Floats], list[list[_Floats]]]:
    """Attacks the paper's mechanism, which has another mean and another noise in each world."""
    worlds = [_paper_world(pair, run, present) for present in (True, False)]
    draws = _RATIOS_A_DRAW * run.draws or RATIO_DRAWS
    scores, shares = [], []
    for name, (means, stddev) in zip(("with", "without"), worlds, strict=True):
        sub_key = run_key.sub_key(f"paper {name}")
        at_once = max(1, _AT_ONCE // means.size)
        ratios, drawn = [], []
        for first in range(0, draws, at_once):
            size = min(at_once, draws - first)
            positions = np.arange(first * means.size, (first + size) * means.size)
            logs = normals(keyed_bits(sub_key, positions, 0)).reshape(size, -1) * stddev + means
            ratios.append(membership.softmax_log_ratios(logs, *worlds))
            drawn += [paper_probabilities.softmax(one) for one in logs[: run.draws - len(drawn)]]
        scores.append(np.concatenate(ratios))
        shares.append(drawn)
    return scores, shares


def _paper_world(pair: Pair, run: BayesianRun, present: bool) -> tuple[_Floats, float]:
    """Returns the mean and the noise of the logarithms in one world."""
    paper, left = run.paper, 0 if present else pair.added
    nothing = np.zeros_like(pair.counts)
    sums = Sums(pair.counts - left, pair.users - (left > 0), nothing)
    last = len(pair.grams.offsets) - (1 if present else 2)
    grams = UserGrams(
        users=pair.grams.users[:last],
        offsets=pair.grams.offsets[: last + 1],
        rows=pair.grams.rows[: pair.grams.offsets[last]],
        counts=pair.grams.counts[: pair.grams.offsets[last]],
    )
    judges = of_users(grams, np.zeros(last, dtype=bool))
    gammas, _ = sensitivities(grams, judges, sums, pair.public.counts, paper)
    ((decay, private_weight),) = paper.candidates
    means = mean_logs(
        sums,
        pair.public.counts,
        decay=decay,
        private_weight=private_weight,
        max_count=paper.max_count,
    )
    return means, paper_stddev(float(gammas[0]), private_weight, paper)


def _ordered(grams: UserGrams, order: np.ndarray) -> UserGrams:
    """Returns the same users in another order."""
    sizes = np.diff(grams.offsets)[order]
    starts = grams.offsets[:-1][order]
    first = np.repeat(starts - (np.cumsum(sizes) - sizes), sizes)
    positions = first + np.arange(first.size)
    return UserGrams(
        users=grams.users[order],
        offsets=np.append(0, np.cumsum(sizes)),
        rows=grams.rows[positions],
        counts=grams.counts[positions],
    )
