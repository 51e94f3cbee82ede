"""What floating point costs of ε in a set union: the numerical slack, from public numbers."""

import math

from beam_dpne.mechanism.finite_noise import RELATIVE_ERRORS


def numerical_slack(
    noise_kind: str,
    item_decisions: int,
    *,
    others_follow: bool,
    count_decisions: int,
    log_failure: float,
) -> float:
    """Returns the most that floating point may cost of ε.

    The probability of every decision is right to a relative c = 1e-12 (2e-12 for Laplace noise). If a
    user changes only the decisions about the items that this user has, the cost is 2c for each of Δ_0
    items in each round. In the policies in which users' weights follow those of others, all decisions
    may change, n ≤ max_users · Δ_0 in a round. The logarithms of their errors are independent, within
    ±c, and of mean at most c². Except with a probability ν, they add up to at most
    s = c √(2 n ln(1/ν)) + n c² (Hoeffding), in each of the two worlds.

    Of the numbers of users, a user changes only those of items that this user has: each of them costs
    2c, with the c of Gaussian noise.

    Args:
      noise_kind: "laplace" or "gaussian".
      item_decisions: the largest number of decisions about items that may depend on one user.
      others_follow: whether users' weights follow those of others.
      count_decisions: the numbers of users that one user changes, at most.
      log_failure: ln(1/ν).

    Example:
      >>> numerical_slack("gaussian", 100, others_follow=False, count_decisions=0, log_failure=50)
      2e-10
    """
    error = RELATIVE_ERRORS[noise_kind]
    of_counts = 2 * RELATIVE_ERRORS["gaussian"] * count_decisions
    if not others_follow:
        return 2 * error * item_decisions + of_counts
    deviation = error * math.sqrt(2 * item_decisions * log_failure)
    return 2 * (deviation + item_decisions * error**2) + of_counts
