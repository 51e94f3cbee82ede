"""The update policies of set union: their names, rounds, defaults and constants.

An update policy decides how users divide a budget of 1 among their items. `plan` derives noise and
thresholds; `weights` computes the weights.
"""

import itertools
from typing import NamedTuple

DEFAULT_USERS = 10_000_000
DEFAULT_SHARD_USERS = 5_000_000
# More shards are never taken by default: 8 release 3 % less than one, but 64 release 38 % less.
MOST_DEFAULT_SHARDS = 8
DEFAULT_DELTA_SHARE = 0.5
DESCENT_MARGIN = 5.0
# The parts of the budget and of δ_T that the three rounds of "screened_gaussian" have, and the noisy
# weights below which the first two rounds close an item, in standard deviations of noise. They were
# chosen on public text.
SCREENING_SHARES = (0.12, 0.23, 0.65)
SCREENING_DELTA_SHARES = (0.03, 0.12, 0.85)
SCREENING_CUTS = (0.5, 1.4)
# The parts of the budget and of δ_T that the three rounds of "sips" have: each has three times that of
# the round before, as published.
SIPS_SHARES = (1 / 13, 3 / 13, 9 / 13)
# The probability ν that the errors of many decisions add up to more than the numerical slack, over
# δ·e^−ε; see `SetUnionPlan.numerical_slack`.
SPARE = 1e-12
# A threshold is raised by this many units of 2^-32, since some weights are rounded up by 2^-50.
SPARE_UNITS = 2


class RoundShares(NamedTuple):
    """The part of a run that one round has.

    Attributes:
      budget: share of the squared budget; all rounds' shares sum to 1.
      delta: share of δ_T; all rounds' shares sum to 1.
      cut: items whose noisy weight is below it are closed, in standard deviations of noise; None in the
        last round, and in rounds that close nothing but what they find.
    """

    budget: float = 1.0
    delta: float = 1.0
    cut: float | None = None


class UnionRound(NamedTuple):
    """The numbers that decide one round.

    Attributes:
      number: the round's number, from 1.
      noise_stddev: σ of the noise on each item, in units of weight.
      threshold: ρ, in units of weight; each user has a budget of 1 in each round.
      cutoff: Γ, in units of weight; None for policies without a cutoff.
      cut: items whose noisy weight is below it are closed for later rounds, in units of weight; None
        in the last round, and in rounds that close nothing but what they find.
    """

    number: int
    noise_stddev: float
    threshold: float
    cutoff: float | None
    cut: float | None


# The rounds of each policy.
ROUNDS: dict[str, tuple[RoundShares, ...]] = {
    "weighted_gaussian": (RoundShares(),),
    "sips": tuple(RoundShares(share, share) for share in SIPS_SHARES),
    "policy_gaussian": (RoundShares(),),
    "screened_gaussian": tuple(
        itertools.starmap(
            RoundShares,
            zip(SCREENING_SHARES, SCREENING_DELTA_SHARES, (*SCREENING_CUTS, None), strict=True),
        )
    ),
}
POLICIES = tuple(ROUNDS)
# In these, users move items towards a cutoff one after the other: their weights depend on other users.
DESCENT_POLICIES = ("policy_gaussian", "screened_gaussian")
DEFAULT_POLICY = "screened_gaussian"
