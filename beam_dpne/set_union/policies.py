"""The update policies of set union: their names, parameters, defaults and constants.

An update policy decides how users divide a budget of 1 among their items. This module has plain numbers
and needs neither Beam, Arrow nor NumPy, so that forms that launch a job can list the policies. `plan`
derives noise and thresholds; `weights`, `cutoff_policies` and `rerouting` compute the weights.
"""

import dataclasses
import itertools
import math
from typing import Any, NamedTuple

from beam_dpne.validation import check_choice, check_integer

DEFAULT_USERS = 10_000_000
DEFAULT_SHARD_USERS = 5_000_000
DEFAULT_SHARDS = DEFAULT_USERS // DEFAULT_SHARD_USERS
# More shards are never taken by default: 8 release 3 % less than one, but 64 release 38 % less.
MOST_DEFAULT_SHARDS = 8
DEFAULT_DELTA_SHARE = 0.5
# The part of ε and δ that numbers of users have under Laplace noise. The noise of items grows with
# 1/√(1 − c) under Gaussian noise, and with 1/(1 − c) here: on public text, c = 0.07 costs 7 to 10 % of
# the items, and 0.15 costs 15 to 20 %.
LAPLACE_COUNT_SHARE = 0.07
DESCENT_MARGIN = 5.0
MAD_MARGIN = 2.0
# Users with more items do not reroute weight under "mad" and "mad2r".
MAX_ADAPTIVE_DEGREE = 50
# The parts of the budget and of δ_T that the three rounds of "screened_gaussian" have, and the noisy
# weights below which the first two rounds close an item, in standard deviations of noise. They were
# chosen on public text.
SCREENING_SHARES = (0.12, 0.23, 0.65)
SCREENING_DELTA_SHARES = (0.03, 0.12, 0.85)
SCREENING_CUTS = (0.5, 1.4)
# The parts of the budget and of δ_T that the three rounds of "sips" have: each has three times that of
# the round before, as published.
SIPS_SHARES = (1 / 13, 3 / 13, 9 / 13)
# The same of the two rounds of "mad2r", the unit of biases, and the least bias. They were chosen on
# public text.
MAD2R_SHARES = (0.3, 0.7)
MAD2R_DELTA_SHARES = (0.1, 0.9)
MAD2R_CUT = 1.0
BIAS_UNITS = 2**16
LEAST_BIAS = 0.125
# The probability ν that the errors of many decisions add up to more than the numerical slack, over
# δ·e^−ε; see `slack.numerical_slack`.
SPARE = 1e-12
# A threshold is raised by this many units of 2^-32, since some weights are rounded up by 2^-50.
SPARE_UNITS = 2
# Bits of a draw that hold a user's count of an item where "greedy" keeps the most frequent items.
COUNT_BITS = 24
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


@dataclasses.dataclass(frozen=True, kw_only=True)
class UpdatePolicy:
    """A way to divide users' budgets, with the parameters that only some policies have.

    Attributes:
      name: the policy's name.
      rule: how a user's weights arise. "count": 1 for each item; "even": equal parts of the budget;
        "descent": users in sequence move their items towards a cutoff; "reroute": weight above a cutoff
        is given back to the users it came from.
      noise_kind: "laplace" or "gaussian".
      prefers_frequent: whether users with more items than allowed keep their most frequent ones, and
        fill them in this order; otherwise they keep a random subset.
      cutoff_margin: α (β for "mad" and "mad2r") ≥ 0: the cutoff Γ is this many scales of the noise
        above the threshold ρ; None without a cutoff.
      shards: M, the number of parts of the users, each with a histogram up to Γ/M; None for policies
        in which users have no order.
      vocabulary_delta_share: δ_T/δ in (0, 1); None for Laplace noise, which needs no other δ.
      has_biases: whether, after a cut, items that probably have enough get less of a user's weight.
      rounds: the shares of each round.

    Raises:
      ValueError: if a parameter is out of its range.
    """

    name: str
    rule: str
    noise_kind: str
    prefers_frequent: bool = False
    cutoff_margin: float | None = None
    shards: int | None = None
    vocabulary_delta_share: float | None = None
    has_biases: bool = False
    rounds: tuple[RoundShares, ...] = (RoundShares(),)

    def __post_init__(self):
        margin, share = self.cutoff_margin, self.vocabulary_delta_share
        if self.shards is not None:
            check_integer("shards", self.shards, 1, _MAX_SHARDS)
        if margin is not None and not 0 <= margin < math.inf:
            raise ValueError(
                f"cutoff_margin must be a finite number ≥ 0, got cutoff_margin={margin}."
            )
        if share is not None and not 0 < share < 1:
            raise ValueError(
                f"vocabulary_delta_share must be in (0, 1), got vocabulary_delta_share={share}."
            )

    @property
    def has_cutoff(self) -> bool:
        """Whether items are filled up to a cutoff; a user's weights then depend on other users."""
        return self.cutoff_margin is not None

    @property
    def delta_share(self) -> float:
        """δ_T/δ; 1 for Laplace noise."""
        return 1.0 if self.vocabulary_delta_share is None else self.vocabulary_delta_share

    def decision_count(self, *, max_contributions: int, max_users: int) -> int:
        """Returns the largest number of decisions that may depend on one user.

        Under a cutoff, all decisions of each round may depend on one user, since users' weights follow
        those of others. Otherwise, given the rounds before, those about the user's items do.
        """
        if not self.has_cutoff:
            return len(self.rounds) * max_contributions
        return len(self.rounds) * max_users * max_contributions

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
                    f"to {', '.join(_policies_with(name))}."
                )
        return dataclasses.replace(self, **changes)


_LAPLACE: dict[str, Any] = {"noise_kind": "laplace"}
_GAUSSIAN: dict[str, Any] = {
    "noise_kind": "gaussian",
    "vocabulary_delta_share": DEFAULT_DELTA_SHARE,
}
_DESCENT: dict[str, Any] = {
    "rule": "descent",
    "cutoff_margin": DESCENT_MARGIN,
    "shards": DEFAULT_SHARDS,
}
_SCREENING = tuple(
    itertools.starmap(
        RoundShares,
        zip(SCREENING_SHARES, SCREENING_DELTA_SHARES, (*SCREENING_CUTS, None), strict=True),
    )
)
_MAD2R = (
    RoundShares(MAD2R_SHARES[0], MAD2R_DELTA_SHARES[0], MAD2R_CUT),
    RoundShares(MAD2R_SHARES[1], MAD2R_DELTA_SHARES[1]),
)
_MAD: dict[str, Any] = {"rule": "reroute", "cutoff_margin": MAD_MARGIN, **_GAUSSIAN}
_SIPS = tuple(RoundShares(share, share) for share in SIPS_SHARES)
_BY_NAME = {
    policy.name: policy
    for policy in (
        UpdatePolicy(name="count_laplace", rule="count", **_LAPLACE),
        UpdatePolicy(name="count_gaussian", rule="count", **_GAUSSIAN),
        UpdatePolicy(name="weighted_laplace", rule="even", **_LAPLACE),
        UpdatePolicy(name="weighted_gaussian", rule="even", **_GAUSSIAN),
        UpdatePolicy(name="sips", rule="even", rounds=_SIPS, **_GAUSSIAN),
        UpdatePolicy(name="policy_laplace", **_DESCENT, **_LAPLACE),
        UpdatePolicy(name="policy_gaussian", **_DESCENT, **_GAUSSIAN),
        UpdatePolicy(name="screened_gaussian", rounds=_SCREENING, **_DESCENT, **_GAUSSIAN),
        UpdatePolicy(name="greedy", prefers_frequent=True, **_DESCENT, **_LAPLACE),
        UpdatePolicy(name="mad", **_MAD),
        UpdatePolicy(name="mad2r", has_biases=True, rounds=_MAD2R, **_MAD),
    )
}
POLICIES = tuple(_BY_NAME)
DEFAULT_POLICY = "screened_gaussian"


def _policies_with(parameter: str) -> tuple[str, ...]:
    """Returns the names of the policies that have a parameter."""
    return tuple(
        name for name, policy in _BY_NAME.items() if getattr(policy, parameter) is not None
    )


GAUSSIAN_POLICIES = _policies_with("vocabulary_delta_share")
LAPLACE_POLICIES = tuple(name for name in POLICIES if name not in GAUSSIAN_POLICIES)
DESCENT_POLICIES = _policies_with("shards")
CUTOFF_POLICIES = _policies_with("cutoff_margin")
MAD_POLICIES = tuple(name for name in CUTOFF_POLICIES if name not in DESCENT_POLICIES)


def update_policy(name: str, **parameters: Any) -> UpdatePolicy:
    """Returns a policy by name.

    Args:
      name: one of POLICIES.
      **parameters: `cutoff_margin`, `shards` and `vocabulary_delta_share`, as far as the policy has
        them; None stands for the policy's default.

    Raises:
      ValueError: if there is no such policy, it does not have a parameter, or a value is out of range.

    >>> update_policy("mad", cutoff_margin=1.5).cutoff_margin
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
