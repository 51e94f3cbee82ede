"""What (ε, δ)-differential privacy means for a guess and for a test about one user.

Both bounds follow from the guarantee alone. A test for one user's part that is wrong with probability α
about inputs without the user is right about inputs with the user with probability at most
min(e^ε α + δ, 1 − e^−ε (1 − α − δ)) (Kairouz, Oh and Viswanath 2015). A guess between two inputs that
are equally likely is right with probability at most (e^ε + δ) / (e^ε + 1).
"""

import math


def guessing_bound(epsilon: float, delta: float) -> float:
    """Returns the largest probability that a guess between two equally likely inputs is right.

    >>> guessing_bound(0.0, 0.0), round(guessing_bound(math.log(3), 0.0), 12)
    (0.5, 0.75)
    """
    return min(1.0, (1 + delta * math.exp(-epsilon)) / (1 + math.exp(-epsilon)))


def detection_bound(epsilon: float, delta: float, false_alarms: float) -> float:
    """Returns the largest power of a test for one user's part, given its rate of false alarms.

    >>> round(detection_bound(math.log(3), 0.0, 0.01), 12), detection_bound(50.0, 0.0, 0.5)
    (0.03, 1.0)
    """
    slow = 1 - math.exp(-epsilon) * (1 - false_alarms - delta)
    fast = math.inf if epsilon > 700 else math.exp(epsilon) * false_alarms + delta
    return max(0.0, min(1.0, fast, slow))
