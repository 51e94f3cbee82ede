"""Numbers of the set-union policies: their defaults, and constants chosen on public text.

Plans, policies and the words of n-grams read them here.
"""

from typing import Any

from beam_dpne.mechanism import finite_noise
from beam_dpne.set_union.policy_names import CUTOFF_POLICIES, LAPLACE_POLICIES

DEFAULT_USERS = 10_000_000
DEFAULT_SHARD_USERS = 5_000_000
DEFAULT_SHARDS = 2
DEFAULT_DELTA_SHARE = 0.5
DEFAULT_MARGINS = {
    "policy_laplace": 5.0,
    "policy_gaussian": 5.0,
    "screened_gaussian": 5.0,
    "greedy": 5.0,
    "mad": 2.0,
}
MAX_ADAPTIVE_DEGREE = 50
# Of "screened_gaussian", chosen on public text: the parts of the budget and of δ_T that its two rounds
# have, and the standard deviations of noise below which the first closes an item.
SCREENING_SHARES = (0.25, 0.75)
SCREENING_DELTA_SHARES = (0.1, 0.9)
SCREENING_CUT = 1.6
DECISION_ERRORS = {"gaussian": 1e-12, "laplace": 2e-12}
SPARE = 1e-12
# A threshold is this many units of 2^-32 higher, for weights that are rounded up by 2^-50.
SPARE_UNITS = 2
# Bits of a draw that a user's count of an item has where "greedy" keeps the most frequent ones.
COUNT_BITS = 24


def decision_count(policy: str, *, max_contributions: int, max_users: int) -> int:
    """Returns how many decisions may depend on one user, at most.

    Where users' weights follow those of others, all decisions may, in each round.
    """
    if policy not in CUTOFF_POLICIES:
        return max_contributions
    rounds = len(SCREENING_SHARES) if policy == "screened_gaussian" else 1
    return rounds * max_users * max_contributions


def noise_kind(policy: str) -> str:
    """Returns what the noise of a policy is: "laplace" or "gaussian"."""
    return "laplace" if policy in LAPLACE_POLICIES else "gaussian"


def far_tail(policy: str) -> float:
    """Returns the probability that one draw of a policy's noise is far; see `finite_noise`."""
    return finite_noise.FAR_TAILS[noise_kind(policy)]


def shards_for(max_users: int) -> int:
    """Returns the least number of shards, at least the default, of DEFAULT_SHARD_USERS at most."""
    return max(DEFAULT_SHARDS, -(-max_users // DEFAULT_SHARD_USERS))


def constants() -> dict[str, Any]:
    """Returns the constants of this module that decide a release."""
    return {
        "default_margins": DEFAULT_MARGINS,
        "default_shards": DEFAULT_SHARDS,
        "default_shard_users": DEFAULT_SHARD_USERS,
        "default_delta_share": DEFAULT_DELTA_SHARE,
        "max_adaptive_degree": MAX_ADAPTIVE_DEGREE,
        "screening_shares": SCREENING_SHARES,
        "screening_delta_shares": SCREENING_DELTA_SHARES,
        "screening_cut": SCREENING_CUT,
        "decision_errors": DECISION_ERRORS,
        "spare": SPARE,
        "spare_units": SPARE_UNITS,
        "count_bits": COUNT_BITS,
    }
