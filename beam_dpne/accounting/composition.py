"""The (ε, δ) of several releases together, and the division of a budget among releases to come.

**Why the parts add up.** The releases are made one after the other, each of them may follow from all
that was published before, and all are about one user u, with all of u's data. Their privacy parameters
are fixed beforehand (see below). Let `with` and `without` be the sequences of runs on two neighbouring
inputs, without floating point for the moment, and fix the users' private randomness: a guarantee that
holds for each value of it holds for the mixture. In a *hybrid* of `with`, no run finds words (items)
to which only u gives weight and that no list has. Hybrid and `without` are the same functions of the
past and of noisy vectors, to which u adds v_r in round r.

*Gaussian noise.* In release i, Σ_r ‖v_r‖²/σ_r² ≤ μ_i² on every path: for `adaptive` by the budget of
each user, for the other strategies and policies by the sensitivity of each round. So over all
releases the charges of u add up to at most μ² = Σ μ_i² on every path, whatever was published. This is
all that the theorem on individual budgets needs, whose rounds may be those of one run or of many: pad
the sum to μ² with a coordinate that nobody reads, and the log-likelihood ratio is exactly that of one
Gaussian mechanism of sensitivity μ and σ = 1 (Smith and Thakurta 2022; Koskela, Tobaben and Honkela
2022). Its curve δ(ε) is exact (Balle and Wang 2018).

*Words of one user alone, and of no list.* Given the past, release i finds any with a probability of at
most δ_T,i, in `with` and, with u's weights as they would be, in `without`. Let G be the event that no
release finds any. What is outside of G has a probability of at most Σ δ_T,i, and on G hybrid and `with`
are equal. So

    P_with(E) ≤ P_hybrid(E ∩ G) + Σ δ_T,i ≤ e^ε P_without(E) + δ(ε) + Σ δ_T,i,

and in reverse, since P_hybrid(E ∩ G) ≤ P_with(E),

    P_without(E) ≤ P_without(E ∩ G) + Σ δ_T,i ≤ e^ε P_hybrid(E ∩ G) + δ(ε) + Σ δ_T,i.

No factor e^ε appears before Σ δ_T,i.

*Floating point.* The slacks add up to S, and the events outside of them add their probabilities (see
`expense`):

    δ_total(ε) = e^S (δ(ε − S) + Σ δ_T,i) + Σ_i remainder_i e^{max(0, ε − ε_i)}.

*A series.* Each user takes part in at most c releases of a series, and whether she does follows from
her own records alone. So all other users take part in the same releases with and without u, and a
release in which u takes no part is the same function of the past in both. Only those in which u takes
part count, which are at most c. Each part of the total (μ², δ_T, slack, and the cost of remainders at a
given ε) is then at most the sum of its c largest in the series, on every path: so which they are may
follow from what was published, as where u writes more after a release.

**Parameters that follow from earlier releases** are not covered: a schedule that spends more μ² or
more δ_T *because* of what an earlier release showed may exceed the total of each single path. The
plans of all releases, or a rule for them that does not look at releases, must be fixed beforehand.
"""

import bisect
import contextlib
import dataclasses
import heapq
import math
from collections.abc import Callable, Iterable, Sequence
from fractions import Fraction
from typing import TypeVar

from beam_dpne.accounting.expense import Expense, Plan, expense_of_plan
from beam_dpne.errors import BudgetError, UsageError
from beam_dpne.mechanism import gaussian

# Totals are raised by this much, relatively: more than the errors of roots and sums.
_MARGIN = 1e-9
_STEPS = 200
# ε of one release is rounded down to this many digits, so that it can be typed.
_DIGITS = 4
# Parts of the share of a release of a series: of δ for words of one user, and of ε and δ for what is
# beyond the noise.
_LONE = 0.1
_RESERVED = 1e-3
# A release needs a slack for floating point that does not grow with its ε. Small budgets leave it more
# than the usual part, up to the largest one.
_SLACK_OF_RELEASE = 1e-4
_LARGEST_RESERVED = 1e-2
# The smallest ε of a release of a series that is looked for, as a part of the series' ε.
_SMALLEST = 1e-4
# Values of ε that an error proposes are these times powers of ten.
_ROUND = (1, 1.5, 2, 3, 5, 7)
# The tokens of a user in a run that it proposes.
_FEW_TOKENS = 10_000

_P = TypeVar("_P", bound=Plan)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Total:
    """The (ε, δ) that several releases have together, and the plain sums beside it.

    Attributes:
      epsilon: The smallest ε that is proved at `delta`; infinity if there is none.
      delta: δ of the total.
      sum_epsilon: Sum of the ε of the releases, which holds at `sum_delta`.
      sum_delta: Sum of their δ.
      mu: √Σ μ_i² of their noise.
    """

    epsilon: float
    delta: float
    sum_epsilon: float
    sum_delta: float
    mu: float


@dataclasses.dataclass(frozen=True, kw_only=True)
class Together:
    """Releases of which each user takes part in so many at most, and in the others not at all.

    Attributes:
      expenses: The expense of each release; at least one.
      most: The largest number of them in which one user takes part, at least 1.
    """

    expenses: Sequence[Expense]
    most: int


def compose(
    expenses: Sequence[Expense],
    *,
    series: Sequence[Together] = (),
    delta: float | None = None,
) -> Total:
    """Returns the (ε, δ) of releases about one population together.

    Args:
      expenses: The expense of each release in which every user may take part.
      series: The releases of each series.
      delta: δ of the total, in (0, 1); None stands for the sum of the releases' δ, of each series that
        of its largest.

    Raises:
      BudgetError: There is no release, or δ is not in (0, 1).

    Example:
      >>> from beam_dpne import NgramsPlan
      >>> from beam_dpne.accounting.expense import expense_of_plan
      >>> spent = expense_of_plan(NgramsPlan(epsilon=4, delta=1e-6))
      >>> round(compose([spent] * 2).epsilon, 2), compose([spent] * 2).sum_epsilon
      (5.75, 8.0)

    References: see the module.
    """
    parts = [*(Together(expenses=[spent], most=1) for spent in expenses), *series]
    if not parts:
        raise BudgetError("There must be at least one release to compose, got none.")
    sum_epsilon = decimal_sum(_largest(parts, lambda spent: spent.epsilon))
    sum_delta = decimal_sum(_largest(parts, lambda spent: spent.delta))
    target = sum_delta if delta is None else delta
    if not 0 < target < 1:
        asked = "the sum of the releases' delta" if delta is None else "`delta`"
        raise BudgetError(
            f"{asked} must be in (0, 1), got {target:g}; a total with a delta of 1 guarantees nothing."
        )
    epsilon = _total_epsilon(parts, target)
    if sum_delta <= target and sum_epsilon <= epsilon:
        epsilon = sum_epsilon
    return Total(
        epsilon=epsilon,
        delta=target,
        sum_epsilon=sum_epsilon,
        sum_delta=sum_delta,
        mu=_root_of_squares(parts),
    )


def _largest(parts: Iterable[Together], value_of: Callable[[Expense], float]) -> list[float]:
    """Returns the values that one user may pay: of each series the largest, and of the others all."""
    return [
        value for part in parts for value in heapq.nlargest(part.most, map(value_of, part.expenses))
    ]


def decimal_sum(values: Iterable[float]) -> float:
    """Returns the sum of numbers that stand for the decimals as which they are printed, rounded up.

    So ten times 0.1 is 1, and no number is too small to count.

    >>> decimal_sum([0.1] * 10), decimal_sum([2.0, 1e-30]) > 2
    (1.0, True)
    """
    exact = sum((Fraction(repr(float(value))) for value in values), Fraction())
    nearest = float(exact)
    return nearest if Fraction(repr(nearest)) >= exact else math.nextafter(nearest, math.inf)


def _total_epsilon(parts: Sequence[Together], delta: float) -> float:
    """Returns the smallest ε at which releases have at most this δ; infinity if there is none.

    What events outside the slack cost grows with ε, and the δ of noise falls. So ε is raised step by
    step from 0 until the δ that is left for noise is enough, which finds the smallest solution.
    """
    slack = math.fsum(_largest(parts, lambda spent: spent.slack))
    lone = math.fsum(_largest(parts, lambda spent: spent.lone_delta))
    noise_stddev = 1 / _root_of_squares(parts)
    epsilon = 0.0
    for _ in range(_STEPS):
        left = (delta - _remainder(parts, epsilon)) * math.exp(-slack) - lone
        if left <= 0:
            return math.inf
        found = slack + gaussian.gaussian_epsilon(delta=left, noise_stddev=noise_stddev)
        if found <= epsilon:
            return epsilon
        epsilon = found * (1 + _MARGIN)
    return math.inf


def _remainder(parts: Iterable[Together], epsilon: float) -> float:
    """Returns the cost in δ, at this total ε, of events outside the slack."""

    def cost(spent: Expense) -> float:
        # Beyond e^700 a float overflows; the cost is above 1 long before.
        return spent.remainder * math.exp(min(700.0, max(0.0, epsilon - spent.epsilon)))

    return math.fsum(_largest(parts, cost))


def _root_of_squares(parts: Iterable[Together]) -> float:
    return math.sqrt(math.fsum(_largest(parts, lambda spent: spent.mu**2)))


def plan_of_each(whole: _P, releases: int) -> _P:
    """Returns the plan of each of so many equal releases, which together stay within a budget.

    Each has the same part of δ, and the largest ε, rounded down to four digits, with which the total
    of all releases is at most the ε of the budget at its δ (see `compose`). Its other
    parameters are those of `whole`.

    Args:
      whole: Plan with ε and δ of the whole budget.
      releases: Number of releases about the same users, at least 1.

    Raises:
      UsageError: No release is possible within the budget.

    Example:
      >>> from beam_dpne import NgramsPlan
      >>> year = NgramsPlan(epsilon=8, delta=1.2e-6)
      >>> month = plan_of_each(year, 12)
      >>> month.epsilon, f"{month.delta:g}"
      (2.197, '1e-07')
    """
    if releases == 1:
        return whole
    delta = whole.delta / releases

    def planned(epsilon: float) -> _P:
        return dataclasses.replace(whole, epsilon=epsilon, delta=delta)

    def fits(epsilon: float) -> bool:
        try:
            plan = planned(epsilon)
        except ValueError:
            return False
        together = compose([expense_of_plan(plan)] * releases, delta=whole.delta)
        return together.epsilon <= whole.epsilon

    least = whole.epsilon / releases
    found = gaussian.largest_rounded(fits, least, whole.epsilon, digits=_DIGITS)
    if not fits(found):
        # The plan itself says which parameter does not suit so small a budget.
        planned(least)
        raise UsageError(
            "`releases` must be so few that a release is possible within "
            f"`epsilon={whole.epsilon:g}` and `delta={whole.delta:g}`, got `releases={releases}`."
        )
    return planned(found)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Share:
    """What one release of a series may spend at most, of each part of a total by itself.

    So any releases, as many as one user takes part in, stay within the budget of the series, whatever
    their plans are and in whichever order they come. It follows from the budget alone:

        e^S (δ_noise(ε − S) + c δ_T) + c R = δ,  S = c s,

    with the Gaussian noise of √c μ, and δ_T, s and R as below.

    Attributes:
      epsilon: ε of the whole series.
      delta: A c-th part of δ of the whole series.
      mu: Sensitivity over σ of the noise.
      lone_delta: δ_T, a tenth of `delta`, as n-grams spend by default.
      slack: s, a thousandth of a c-th part of ε; 10^-4 if that is more, but at most a hundredth of it.
      remainder: R, a thousandth of `delta`: the cost of events outside of the slack at ε of the series.
      most: c, the largest number of releases in which one user takes part.
    """

    epsilon: float
    delta: float
    mu: float
    lone_delta: float
    slack: float
    remainder: float
    most: int

    def allows(self, spent: Expense) -> bool:
        """Whether a release that spends so much is within the share."""
        cost = _remainder([Together(expenses=[spent], most=1)], self.epsilon)
        return (
            spent.mu <= self.mu
            and spent.lone_delta <= self.lone_delta
            and spent.slack <= self.slack
            and cost <= self.remainder
        )


def share_of(epsilon: float, delta: float, most: int) -> Share:
    """Returns the share of one release, if each user takes part in so many of the series at most."""
    own = delta / most
    # So that rounding makes no plan of this δ_T spend less.
    lone = _LONE * own * (1 + _MARGIN)
    # That of all releases in which one user takes part.
    slack = max(_RESERVED * epsilon, min(_SLACK_OF_RELEASE * most, _LARGEST_RESERVED * epsilon))
    rest = _RESERVED * own
    noise = (delta - most * rest) * math.exp(-slack) - most * lone
    stddev = gaussian.gaussian_noise_stddev(epsilon=epsilon - slack, delta=noise)
    return Share(
        epsilon=epsilon,
        delta=own,
        mu=(1 - _MARGIN) / (stddev * math.sqrt(most)),
        lone_delta=lone,
        slack=slack / most,
        remainder=rest,
        most=most,
    )


def plan_of_share(plan: _P, share: Share) -> _P:
    """Returns the plan of one release of a series.

    It has the largest ε, rounded down to four digits, with which it is within its share. Its δ is that
    of the share, or less if the plan would spend more than the share's δ_T.

    Args:
      plan: Plan with the other parameters of the release.
      share: What the release may spend.

    Raises:
      UsageError: No release is possible within the share.
    """
    found = _largest_within(plan, share)
    if found is None:
        raise _about_small_share(plan, share)
    return found


def _largest_within(plan: _P, share: Share) -> _P | None:
    """Returns the plan with the largest ε that is within a share; None if no ε is."""
    delta = share.delta
    # The part of δ that the plan spends as δ_T, at most.
    part = plan.vocabulary_delta / (plan.vocabulary_delta + plan.gaussian_delta)
    if part * delta > share.lone_delta:
        delta = share.lone_delta / part

    def is_too_large(epsilon: float) -> bool:
        try:
            spent = expense_of_plan(dataclasses.replace(plan, epsilon=epsilon, delta=delta))
        except ValueError:
            return False  # A plan refuses an ε that is too small for it.
        return not share.allows(spent)

    smallest = _SMALLEST * share.epsilon
    found = gaussian.largest_rounded(
        lambda epsilon: not is_too_large(epsilon), smallest, 2 * share.epsilon, digits=_DIGITS
    )
    try:
        best = dataclasses.replace(plan, epsilon=found, delta=delta)
    except ValueError:
        return None
    return best if share.allows(expense_of_plan(best)) else None


def _about_small_share(plan: Plan, share: Share) -> UsageError:
    """Returns the error about a share that allows no release, with the budgets of a series that do."""
    delta = share.delta * share.most

    def is_possible(epsilon: float, most: int) -> bool:
        return _largest_within(plan, share_of(epsilon, delta, most)) is not None

    larger = (digit * 10.0**power for power in range(-3, 3) for digit in _ROUND)
    enough = next(
        (each for each in larger if each > share.epsilon and is_possible(each, share.most)), None
    )
    fewer = bisect.bisect_left(
        range(1, share.most), True, key=lambda most: not is_possible(share.epsilon, most)
    )
    remedies = []
    if enough is not None:
        remedies.append(f"a series whose epsilon is {enough:g}")
    if fewer:
        remedies.append(f"one in which each user takes part in {fewer} at most")
    with contextlib.suppress(ValueError):
        # The slack of a release grows with them.
        short = dataclasses.replace(plan, max_tokens_per_user=_FEW_TOKENS)
        if _largest_within(short, share) is not None:
            remedies.append(f"`max_tokens_per_user={_FEW_TOKENS}`, if a public bound allows it")
    return UsageError(
        "the budget of a series must allow a release of this plan, but none is within the share of a "
        f"series whose epsilon is {share.epsilon:g} and delta {delta:g}, and in which each user takes "
        f"part in {share.most} at most. Take {', or '.join(remedies) or 'another plan'}."
    )
