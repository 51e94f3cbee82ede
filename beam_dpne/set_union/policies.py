"""The update policies of set union: their names, parameters, defaults and constants.

An update policy decides how users divide a budget of 1 among their items. This module has plain numbers
and needs neither Beam, Arrow nor NumPy, so that forms that launch a job can list the policies. `plan`
derives noise and thresholds; `weights` and `descent` compute the weights.
"""

import dataclasses
import itertools
import math
from typing import Any, NamedTuple

from beam_dpne.validation import check_choice, check_integer

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
_MAX_SHARDS = 2**16


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


@dataclasses.dataclass(frozen=True, kw_only=True)
class UpdatePolicy:
    """A way to divide users' budgets, with the parameters that only some policies have.

    Attributes:
      name: the policy's name.
      cutoff_margin: α ≥ 0: users in sequence move their items towards a cutoff Γ, which is this many
        standard deviations of the noise above the threshold ρ; None if users divide their budget
        evenly.
      shards: M, the number of parts of the users, each with a histogram up to Γ/M; None without a
        cutoff.
      vocabulary_delta_share: δ_T/δ in (0, 1).
      rounds: the shares of each round.

    Raises:
      ValueError: if a parameter is out of its range.
    """

    name: str
    cutoff_margin: float | None = None
    shards: int | None = None
    vocabulary_delta_share: float = DEFAULT_DELTA_SHARE
    rounds: tuple[RoundShares, ...] = (RoundShares(),)

    def __post_init__(self):
        margin, share = self.cutoff_margin, self.vocabulary_delta_share
        if self.shards is not None:
            check_integer("shards", self.shards, 1, _MAX_SHARDS)
        if margin is not None and not 0 <= margin < math.inf:
            raise ValueError(
                f"cutoff_margin must be a finite number ≥ 0, got cutoff_margin={margin}."
            )
        if not 0 < share < 1:
            raise ValueError(
                f"vocabulary_delta_share must be in (0, 1), got vocabulary_delta_share={share}."
            )

    @property
    def has_cutoff(self) -> bool:
        """Whether items are filled up to a cutoff; a user's weights then depend on other users."""
        return self.cutoff_margin is not None

    def with_parameters(self, **parameters: Any) -> "UpdatePolicy":
        """Returns the policy with other parameters; None leaves a parameter at its default.

        Raises:
          ValueError: if the policy does not have a parameter, or a value is out of its range.
        """
        changes = {name: value for name, value in parameters.items() if value is not None}
        for name in changes:
            if getattr(self, name) is None:
                raise ValueError(
                    f"{name} must not be given with policy={self.name!r}, which has none; it belongs "
                    f"to {', '.join(DESCENT_POLICIES)}."
                )
        return dataclasses.replace(self, **changes)


_DESCENT: dict[str, Any] = {
    "cutoff_margin": DESCENT_MARGIN,
    "shards": DEFAULT_USERS // DEFAULT_SHARD_USERS,
}
_SCREENING = tuple(
    itertools.starmap(
        RoundShares,
        zip(SCREENING_SHARES, SCREENING_DELTA_SHARES, (*SCREENING_CUTS, None), strict=True),
    )
)
_SIPS = tuple(RoundShares(share, share) for share in SIPS_SHARES)
_BY_NAME = {
    policy.name: policy
    for policy in (
        UpdatePolicy(name="weighted_gaussian"),
        UpdatePolicy(name="sips", rounds=_SIPS),
        UpdatePolicy(name="policy_gaussian", **_DESCENT),
        UpdatePolicy(name="screened_gaussian", rounds=_SCREENING, **_DESCENT),
    )
}
POLICIES = tuple(_BY_NAME)
DESCENT_POLICIES = tuple(name for name, policy in _BY_NAME.items() if policy.has_cutoff)
DEFAULT_POLICY = "screened_gaussian"


def update_policy(name: str, **parameters: Any) -> UpdatePolicy:
    """Returns a policy by name.

    Args:
      name: one of POLICIES.
      **parameters: `cutoff_margin`, `shards` and `vocabulary_delta_share`, as far as the policy has
        them; None stands for the policy's default.

    Raises:
      ValueError: if there is no such policy, it does not have a parameter, or a value is out of range.

    >>> update_policy("policy_gaussian", cutoff_margin=1.5).cutoff_margin
    1.5
    """
    check_choice("policy", name, POLICIES)
    return _BY_NAME[name].with_parameters(**parameters)


def shards_for(max_users: int, max_shard_users: int = DEFAULT_SHARD_USERS) -> int:
    """Returns the smallest number of shards with at most max_shard_users users each.

    Both numbers are promises of the operator, never numbers of the data.

    >>> shards_for(1_000_000), shards_for(10_000_000), shards_for(1_000_000_000)
    (1, 2, 200)
    """
    return -(-max_users // max_shard_users)
