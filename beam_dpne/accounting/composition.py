"""The (ε, δ) of several releases together.

**Why the parts add up.** The releases are made one after the other, each of them may follow from all
that was published before, and all are about one user u, with all of u's data. Their privacy parameters
are fixed beforehand (see below). Let `with` and `without` be the sequences of runs on two neighbouring
inputs, without floating point for the moment, and fix the users' private randomness: a guarantee that
holds for each value of it holds for the mixture. In a *hybrid* of `with`, no run finds words (items)
to which only u gives weight. Hybrid and `without` are the same functions of the past and of noisy
vectors, to which u adds v_r in round r.

*Gaussian noise.* In release i, Σ_r ‖v_r‖²/σ_r² ≤ μ_i² on every path: for `adaptive` by the budget of
each user, for the other strategies and policies by the sensitivity of each round. So over all
releases the charges of u add up to at most μ² = Σ μ_i² on every path, whatever was published. This is
all that the theorem on individual budgets needs, whose rounds may be those of one run or of many: pad
the sum to μ² with a coordinate that nobody reads, and the log-likelihood ratio is exactly that of one
Gaussian mechanism of sensitivity μ and σ = 1 (Smith and Thakurta 2022; Koskela, Tobaben and Honkela
2022). Its curve δ(ε) is exact (Balle and Wang 2018).

*Laplace noise.* One round, and an ℓ1 distance of at most ε_L in units of λ. Shifts a and b of two
coordinates are dominated by one shift a + b of one coordinate: in the world without u, with T the
noise clipped to [0, a + b] and T_a + T_b the sum of noise clipped to [0, a] and [0, b], the survival
functions of T and of T_a + T_b cross once, so that the likelihood ratio of the one shift is larger in
convex order, and with it every hockey-stick divergence. Domination is kept by products, so by
induction one coordinate shifted by ε_L dominates all. dp_accounting composes its privacy loss
distribution with those of the other releases.

*Numbers of users* of items that were found with Laplace noise are sums with Gaussian noise, after the
items are known: they are two releases of this list, of which the second follows from the first.

*Words of one user alone.* Given the past, release i finds any with a probability of at most δ_T,i, in
`with` and, with u's weights as they would be, in `without`. Let G be the event that no release finds
any; outside of it are at most Σ δ_T,i, and on it hybrid and `with` are equal. So
P_with(E) ≤ P_hybrid(E ∩ G) + Σ δ_T,i ≤ e^ε P_without(E) + δ(ε) + Σ δ_T,i, and in reverse
P_without(E) ≤ P_without(E ∩ G) + Σ δ_T,i ≤ e^ε P_hybrid(E ∩ G) + δ(ε) + Σ δ_T,i, where
P_hybrid(E ∩ G) ≤ P_with(E). No factor e^ε appears before Σ δ_T,i.

*Floating point.* The slacks add up to S, and the events outside of them add their probabilities:
δ_total(ε) = e^S (δ(ε − S) + Σ δ_T,i) + Σ_i remainder_i e^{max(0, ε − ε_i)} (see `spending`).

*Other mechanisms.* Releases of which only ε_i and δ_i are known are added by basic composition, which
holds for any mechanism: both sums, on top of the total of the rest.

**Parameters that follow from earlier releases** are not covered: a schedule that spends more μ² or
more δ_T *because* of what an earlier release showed may exceed the total of each single path. The
plans of all releases, or a rule for them that does not look at releases, must be fixed beforehand.
"""

import dataclasses
import math
from collections.abc import Callable, Iterable, Sequence
from fractions import Fraction

from beam_dpne.accounting.spending import Spending
from beam_dpne.errors import BudgetError
from beam_dpne.mechanism import gaussian
from beam_dpne.storage import is_installed

# The width of a cell of losses, in ε; dp_accounting rounds losses so that δ is never too small.
_LOSS_CELL = 5e-4
# What a δ that dp_accounting computes may lack because of rounding in its Fourier transforms, at most.
PLD_ERROR = 1e-12
# Totals are raised by this much, relatively: more than the errors of roots and sums.
_MARGIN = 1e-9
_STEPS = 200


@dataclasses.dataclass(frozen=True, kw_only=True)
class Total:
    """The (ε, δ) of several releases together.

    Attributes:
      epsilon: The smallest ε that is proved at `delta`; infinity if there is none.
      delta: δ of the total.
      sum_epsilon: Sum of the ε of the releases, which holds at `sum_delta`.
      sum_delta: Sum of their δ.
      mu: √Σ μ_i² of the releases with Gaussian noise, which are composed in closed form.
      notes: Sentences on what was added up instead of composed more tightly, and why.
    """

    epsilon: float
    delta: float
    sum_epsilon: float
    sum_delta: float
    mu: float
    notes: tuple[str, ...] = ()


def compose(spendings: Sequence[Spending], *, delta: float | None = None) -> Total:
    """Returns the (ε, δ) of releases about one population together.

    Args:
      spendings: The expense of each release.
      delta: δ of the total, in (0, 1); None stands for the sum of the releases' δ.

    Raises:
      BudgetError: There is no release, or δ is not in (0, 1).

    Example:
      >>> from beam_dpne import PrivacyPlan
      >>> from beam_dpne.accounting.spending import spending_of_plan
      >>> spent = spending_of_plan(PrivacyPlan(epsilon=4, delta=1e-6))
      >>> round(compose([spent] * 2).epsilon, 2), compose([spent] * 2).sum_epsilon
      (5.76, 8.0)

    References: see the module.
    """
    if not spendings:
        raise BudgetError("There must be at least one release to compose, got none.")
    sum_epsilon = decimal_sum(spent.epsilon for spent in spendings)
    sum_delta = decimal_sum(spent.delta for spent in spendings)
    target = sum_delta if delta is None else delta
    if not 0 < target < 1:
        asked = "the sum of the releases' delta" if delta is None else "delta"
        raise BudgetError(
            f"{asked} must be in (0, 1), got {target:g}; a total with a delta of 1 guarantees nothing."
        )
    parts = [spent for spent in spendings if spent.reason is None]
    whole = [spent for spent in spendings if spent.reason is not None]
    added = decimal_sum(spent.epsilon for spent in whole)
    epsilon, notes = _total_epsilon(
        parts, target - decimal_sum(spent.delta for spent in whole), added
    )
    epsilon += added
    if sum_delta <= target and sum_epsilon <= epsilon:
        epsilon = sum_epsilon
    return Total(
        epsilon=epsilon,
        delta=target,
        sum_epsilon=sum_epsilon,
        sum_delta=sum_delta,
        mu=_root_of_squares(parts),
        notes=(*notes, *_reasons(whole)),
    )


def decimal_sum(values: Iterable[float]) -> float:
    """Returns the sum of numbers that stand for the decimals as which they are printed, rounded up.

    So ten times 0.1 is 1, and no number is too small to count.

    >>> decimal_sum([0.1] * 10), decimal_sum([2.0, 1e-30]) > 2
    (1.0, True)
    """
    exact = sum((Fraction(repr(float(value))) for value in values), Fraction())
    nearest = float(exact)
    return nearest if Fraction(repr(nearest)) >= exact else math.nextafter(nearest, math.inf)


def _total_epsilon(
    parts: Sequence[Spending], delta: float, added: float
) -> tuple[float, tuple[str, ...]]:
    """Returns the smallest ε at which releases in parts have at most this δ; infinity if none.

    Other releases, whose ε is `added`, may lie between them, so the events outside the slack cost
    what they cost at the sum of both.

    What events outside the slack cost grows with ε, and the δ of noise falls. So ε is raised step by
    step from 0 until the δ that is left for noise is enough, which finds the smallest solution.
    """
    if not parts:
        return (0.0 if delta >= 0 else math.inf), ()
    slack = math.fsum(spent.slack for spent in parts)
    lone = math.fsum(spent.lone_delta for spent in parts)
    if delta * math.exp(-slack) <= lone:
        return math.inf, ()
    laplace = sorted(spent.laplace for spent in parts if spent.laplace)
    least_epsilon, notes = _noise_curve(_root_of_squares(parts), laplace, delta)
    epsilon = 0.0
    for _ in range(_STEPS):
        left = (delta - _remainder(parts, epsilon + added)) * math.exp(-slack) - lone
        if left <= 0:
            return math.inf, notes
        found = slack + least_epsilon(left)
        if found <= epsilon:
            return epsilon, notes
        epsilon = found * (1 + _MARGIN)
    return math.inf, notes


def _noise_curve(
    mu: float, laplace: Sequence[float], delta: float
) -> tuple[Callable[[float], float], tuple[str, ...]]:
    """Returns the function from δ to the least ε of all noise, and notes on how it is computed."""

    def of_gaussian(left: float) -> float:
        return gaussian.gaussian_epsilon(delta=left, noise_stddev=1 / mu) if mu else 0.0

    if not laplace:
        return of_gaussian, ()
    added = math.fsum(laplace)
    if not is_installed("dp_accounting"):
        note = (
            "The epsilon of Laplace noise was added to that of the Gaussian noise. A tighter total "
            "needs the package dp-accounting: pip install 'beam-dpne[accounting]'."
        )
        return (lambda left: of_gaussian(left) + added), (note,)
    if delta < 100 * PLD_ERROR:
        note = (
            "The epsilon of Laplace noise was added to that of the Gaussian noise, because delta is "
            f"below {100 * PLD_ERROR:g}, where privacy loss distributions are not exact enough."
        )
        return (lambda left: of_gaussian(left) + added), (note,)
    losses = _losses(mu, laplace)

    def of_both(left: float) -> float:
        simple = of_gaussian(left) + added
        if left <= PLD_ERROR:
            return simple
        return min(simple, float(losses.get_epsilon_for_delta(left - PLD_ERROR)))

    return of_both, ()


def _losses(mu: float, laplace: Sequence[float]):
    """Returns the privacy loss distribution of Laplace and Gaussian noise together."""
    from dp_accounting.pld import privacy_loss_distribution as distributions

    counts = {strength: laplace.count(strength) for strength in sorted(set(laplace))}
    all_losses = [
        distributions.from_laplace_mechanism(
            1 / strength, value_discretization_interval=_LOSS_CELL
        ).self_compose(count)
        for strength, count in counts.items()
    ]
    if mu:
        all_losses.append(
            distributions.from_gaussian_mechanism(1 / mu, value_discretization_interval=_LOSS_CELL)
        )
    whole = all_losses[0]
    for losses in all_losses[1:]:
        whole = whole.compose(losses)
    return whole


def _remainder(parts: Iterable[Spending], epsilon: float) -> float:
    """Returns the cost in δ, at this total ε, of events outside the slack."""
    # Beyond e^700 a float overflows; the cost is above 1 long before.
    return math.fsum(
        spent.remainder * math.exp(min(700.0, max(0.0, epsilon - spent.epsilon))) for spent in parts
    )


def _root_of_squares(parts: Iterable[Spending]) -> float:
    return math.sqrt(math.fsum(spent.mu**2 for spent in parts))


def _reasons(whole: Iterable[Spending]) -> list[str]:
    """Returns one sentence for each reason for which releases are added up."""
    counts: dict[str, int] = {}
    for spent in whole:
        counts[str(spent.reason)] = counts.get(str(spent.reason), 0) + 1
    return [
        f"{count} release{' was' if count == 1 else 's were'} added by epsilon and delta alone, "
        f"because {reason}."
        for reason, count in counts.items()
    ]
