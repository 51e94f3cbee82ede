"""NgramsPlan: every public parameter of a run, its checks, and the noise that follows from it."""

import dataclasses
import functools
import math

from beam_dpne.counts.rule import SUMS_OF_A_ROW, SUMS_OF_A_USER, noise_of_budget
from beam_dpne.mechanism import gaussian, thresholds
from beam_dpne.mechanism.rules import RoundRule
from beam_dpne.ngrams import adaptive, tolerances
from beam_dpne.ngrams.parameters import NgramsParameters

# The paper's estimate of |V_k| draws this many pairs of words and n-grams, at most.
ESTIMATE_SAMPLES = 1_000_000
HELD_DIGITS = 24


@dataclasses.dataclass(frozen=True, kw_only=True)
class LengthPlan:
    """The numbers of one length that are known before the data.

    Attributes:
      length: k.
      max_contributions: Δ_k.
      budget_share: f_k, the part of the run's budget; all of them and count_share sum to 1. None where
        each user divides one budget among all lengths.
      noise_stddev: the standard deviation of each round's noise, in units of weight: σ_k = σ/√f_k. It
        is 1 with "adaptive", where the weights carry the budget.
      threshold: ρ_1 at k = 1; None for longer n-grams, whose threshold depends on |S_{k−1}| and |V_k|.
      rounds: the numbers of each round ("adaptive" only).
      word_rules: the rules of the rounds at k = 1 ("adaptive" only).
    """

    length: int
    max_contributions: int
    budget_share: float | None
    noise_stddev: float
    threshold: float | None
    rounds: tuple[adaptive.Round, ...] = ()
    word_rules: tuple[RoundRule, ...] = ()


@dataclasses.dataclass(frozen=True, kw_only=True)
class NgramsPlan(NgramsParameters):
    """The public parameters of a run of DPNE: frozen, checked, and never chosen from private data.

    A run under a plan is user-level (ε, δ)-differentially private: neighbouring inputs differ in one
    user with all of that user's documents. Parameters are flat here, in JSON and on the command line
    (`parameters`); the rules of lengths that follow are in `length_rules`.

    Raises:
      ValueError: naming the parameter, its requirement and the value.

    Example:
      >>> plan = NgramsPlan(
      ...     epsilon=1, delta=1e-7, max_length=6, max_contributions=10, strategy="one_round")
      >>> [round(length.noise_stddev, 3) for length in plan.lengths][:2]
      [12.789, 12.789]
      >>> NgramsPlan.from_json(plan.to_json()) == plan
      True

    References: DPNE Theorem 2.1.
    """

    def __post_init__(self):
        super().__post_init__()
        limit = f"`max_tokens_per_user={self.max_tokens_per_user}`"
        self.check_reserve(f"Lower {limit}, if a public bound allows it.")
        _ = self.count_noise  # refused here if the budget is too small
        if self.is_adaptive:
            adaptive.user_budget(self.ngrams_noise_stddev)
            # No class has a larger probability; without thresholds a run would stop in its middle.
            for rounds in (adaptive.GRAM_ROUNDS[self.rounds or 1], adaptive.WORD_ROUNDS):
                adaptive.gram_rounds(tolerances.LARGEST_PROBABILITY, rounds)

    def rounds_of(self, length: int) -> int:
        """Returns the number of rounds of a length."""
        return len(adaptive.rounds_of(length, self.rounds or 1)) if self.is_adaptive else 1

    @property
    def allotment(self) -> int:
        """The budget of each user for all lengths, in units of 2^-56 ("adaptive" only)."""
        return adaptive.user_budget(self.ngrams_noise_stddev)

    @property
    def held_stddev(self) -> float:
        """The noise s = 10/μ of counts of held candidates ("adaptive" only).

        It is rounded up to 24 binary digits, so that integers can be divided by it exactly.
        """
        stddev = tolerances.HELD_NOISE / math.sqrt(self.allotment / adaptive.BUDGET_UNITS)
        digits, exponent = math.frexp(stddev)
        return math.ldexp(math.ceil(math.ldexp(digits, HELD_DIGITS)), exponent - HELD_DIGITS)

    @property
    def decisions(self) -> int:
        """The number of decisions and numbers that one user changes, at most.

        A user changes at most max_tokens_per_user decisions in a round, and of each length the counts
        of held candidates, if known n-grams are given both of known ones and of others.
        """
        rounds = sum(map(self.rounds_of, range(1, self.max_length + 1)))
        held = 0
        if self.is_adaptive:
            held = 2 * tolerances.MOST_COUNTED * (self.max_length - 1) + tolerances.COUNTS_OF_WORDS
        return rounds * self.max_tokens_per_user + self.count_decisions + held

    @property
    def count_decisions(self) -> int:
        """The numbers that the measurement of users releases and that one user changes, at most."""
        if not self.count_share:
            return 0
        rows = self.max_length * self.max_tokens_per_user
        return SUMS_OF_A_ROW * rows + SUMS_OF_A_USER

    @property
    def ngrams_noise_stddev(self) -> float:
        """The noise σ of one Gaussian mechanism as private as all lengths together, without counts."""
        return self.noise_stddev / math.sqrt(1 - self.count_share)

    @property
    def count_noise(self) -> float | None:
        """The noise of the measurement of users; None if nothing is measured."""
        if not self.count_share:
            return None
        return noise_of_budget(math.sqrt(self.count_share) / self.noise_stddev)

    @functools.cached_property
    def lengths(self) -> tuple[LengthPlan, ...]:
        """The numbers of each length k = 1..T that are known before the data."""
        limits = self.contribution_limits
        shares = self.shares
        stddevs = gaussian.split_noise_stddev(self.ngrams_noise_stddev, shares)
        if self.is_adaptive:
            stddevs = (1.0,) * self.max_length
            rules = adaptive.vocabulary_rounds(
                allotment=self.allotment, delta=self.vocabulary_delta, max_contributions=limits[0]
            )
            threshold = rules[-1].threshold
        else:
            rules = ()
            threshold = thresholds.vocabulary_threshold(
                noise_stddev=stddevs[0], delta=self.vocabulary_delta, max_contributions=limits[0]
            )
        return tuple(
            LengthPlan(
                length=k + 1,
                max_contributions=limits[k],
                budget_share=None if self.is_adaptive else shares[k] * (1 - self.count_share),
                noise_stddev=stddevs[k],
                threshold=None if k else threshold,
                rounds=adaptive.rounds_of(k + 1, self.rounds or 1) if rules else (),
                word_rules=() if k else rules,
            )
            for k in range(self.max_length)
        )

    @property
    def contribution_limits(self) -> tuple[int, ...]:
        """Δ_k for each length; no user has more grams than max_tokens_per_user."""
        limits = self.max_contributions or 0
        limits = limits if isinstance(limits, tuple) else (limits,) * self.max_length
        return tuple(min(limit, self.max_tokens_per_user) for limit in limits)
