"""Mode "log_global": decayed logarithms of counts, whose sensitivity is bounded over all databases.

A gram that N users have, with c counts in all and at most C for each user, has the value

    f(N, c) = w(N) · ln(c + 1),  w(N) = min(1, S·N/C),  N ≤ c ≤ C·N.

*The bound.* Suppose that a user leaves who has x counts, 1 ≤ x ≤ C. Then N − 1 users are left, with
c' = c − x counts, N − 1 ≤ c' ≤ C(N − 1). The change D = f(N, c' + x) − f(N − 1, c') grows with x, so it
is largest at x = C. As a function of c', its derivative has the sign of
(w(N) − w(N−1))·c' + w(N) − w(N−1)(C + 1), which grows with c'. So D falls first and rises then, and it
is largest at c' = N − 1 or at c' = C(N − 1):

    D_1(N) = w(N) ln(N + C) − w(N−1) ln N,   D_2(N) = w(N) ln(CN + 1) − w(N−1) ln(C(N−1) + 1).

As long as w(N) = SN/C, up to N = C/S, both grow with N: D_2 because t·ln(Ct + 1) is convex, D_1 because
its derivative is (S/C)(ln(1 + C/N) − C/(N+C) + 1/N) > 0. Where w(N − 1) = 1, both fall with N, as then
D_1 = ln(1 + C/N) and D_2 = ln(1 + C/(C(N−1)+1)). So the largest change B of any database is found among
N = ⌊C/S⌋ + {−1, 0, 1, 2, 3}, and one user who moves W grams moves f by at most √W·B in ℓ2.

*Afterwards.* The posterior of the counts behind the noisy values takes noise and decay into account
(`posterior`, `links`): with little noise it tends to the distribution of the limited counts, and with
much noise to the public one. The softmax of weighted values does neither. With all weight on private
ones it tends to values that decay has flattened, so that it gets worse as noise gets less.

The mean of the printed x̂ is left out. This changes no probability, since softmax is the same after a
shift of all logarithms. The paper takes the mean *inside* the weights, which would make every word's
value depend on all others.

References: Ramadan, Withers and Orr, equations 2 and 5 and Corollary 1, whose sensitivity holds for one
database only.
"""

import math

import numpy as np

# Many times the error of logarithms of up to 60 and their products in double precision.
RELATIVE_ROUNDING = 1e-12
ABSOLUTE_ROUNDING = 1e-13
GRID_STEPS = 256


def decay_weights(users: np.ndarray, *, max_count: int, decay: float) -> np.ndarray:
    """Returns w(N) = min(1, S·N/C) for numbers of users N ≥ 0: float64.

    References: equation 5 of Ramadan, Withers and Orr.
    """
    return np.minimum(1.0, decay * users / max_count)


def softmax(logs: np.ndarray) -> np.ndarray:
    """Returns probabilities, which sum to 1, from logarithms: (V,) float64.

    References: equation 4 of Ramadan, Withers and Orr.
    """
    powers = np.exp(logs - logs.max())
    return powers / powers.sum()


def gram_bound(*, max_count: int, decay: float) -> float:
    """Returns B, the most by which one user moves one gram's f in any database, rounded up.

    Args:
      max_count: C ≥ 1.
      decay: S > 0.

    >>> round(gram_bound(max_count=1, decay=1.0), 6), round(math.log(2), 6)
    (0.693147, 0.693147)
    >>> gram_bound(max_count=1, decay=0.01) <= 0.01 * (math.log(101) + 1)
    True
    """
    turn = math.floor(max_count / decay)
    numbers_of_users = (max(1, turn + step) for step in range(-1, 4))
    largest = max(_largest_change(users, max_count, decay) for users in numbers_of_users)
    return largest * (1 + RELATIVE_ROUNDING) + ABSOLUTE_ROUNDING


def grid_bits(bound: float) -> int:
    """Returns k, such that values are released in steps of 2^-k, and B is 256 to 512 steps."""
    return math.ceil(math.log2(GRID_STEPS / bound))


def grid_sensitivity(*, max_count: int, decay: float, max_contributions: int) -> float:
    """Returns the most by which one user moves all values, in ℓ2 and in steps of the grid.

    Each value moves by at most B, by one step more through rounding to the grid, and by a thousandth of
    a step through the floating point before it.
    """
    bound = gram_bound(max_count=max_count, decay=decay)
    steps = math.ldexp(bound, grid_bits(bound)) + 1.001
    return math.nextafter(math.sqrt(max_contributions) * steps, math.inf)


def grid_values(
    counts: np.ndarray, users: np.ndarray, *, max_count: int, decay: float
) -> np.ndarray:
    """Returns f(N, c) of each gram in steps of the grid, rounded to the nearest: (V,) int64.

    Args:
      counts: (V,) int64, c of each gram.
      users: (V,) int64, N of each gram.
      max_count: C.
      decay: S.
    """
    weights = decay_weights(users, max_count=max_count, decay=decay)
    bits = grid_bits(gram_bound(max_count=max_count, decay=decay))
    return np.rint(np.ldexp(weights * np.log1p(counts), bits)).astype(np.int64)


def _largest_change(users: int, max_count: int, decay: float) -> float:
    """Returns the larger of D_1(N) and D_2(N)."""
    w = min(1.0, decay * users / max_count)
    before = min(1.0, decay * (users - 1) / max_count)
    fewest = w * math.log(users + max_count) - before * math.log(users)
    most = w * math.log1p(max_count * users) - before * math.log1p(max_count * (users - 1))
    return max(fewest, most)
