"""PhraseCountsPlan: every public parameter of the numbers of a list, and the noise that follows."""

import dataclasses
import math
from typing import Annotated, ClassVar

from beam_dpne.counts.rule import noise_of_budget
from beam_dpne.mechanism.plan import GaussianPlan, TokensPerUser
from beam_dpne.validation import Parameter

_MAX_PHRASES = 10_000_000
# Chosen on public titles that were dealt to users; docs/research has the table.
SIZE_SHARE = 0.03


@dataclasses.dataclass(frozen=True, kw_only=True)
class PhraseCountsPlan(GaussianPlan):
    """The public parameters of the numbers of users of a public list.

    None of them may be chosen by looking at the private data. A run is user-level (ε, δ)-differentially
    private: neighbouring inputs differ in one user with all of that user's documents. The whole of δ
    goes to the noise, since a public list needs no threshold.

    Raises:
      ValueError: with the name of the parameter, its requirement and the value.

    Example:
      >>> plan = PhraseCountsPlan(epsilon=1, delta=1e-6)
      >>> round(plan.noise_stddev, 2), round(plan.noise_of(0.8), 2)
      (4.23, 4.73)
      >>> PhraseCountsPlan.from_json(plan.to_json()) == plan
      True

    References: Balle and Wang 2018.
    """

    program: ClassVar[str] = "count"
    decides_defaults: ClassVar[str] = "adjacency"

    max_phrases: Annotated[
        int,
        Parameter(
            least=1,
            most=_MAX_PHRASES,
            in_short_help=False,
            help="Largest number of phrases of a list, in all groups together. A longer list is "
            "refused.",
        ),
    ] = 1_000_000
    max_tokens_per_user: TokensPerUser = 1_000_000

    def __post_init__(self) -> None:
        super().__post_init__()
        self.check_reserve("Lower `max_phrases`.")

    @property
    def decisions(self) -> int:
        """The noisy numbers that one user changes, at most: one of each phrase, a size, the excess."""
        return self.max_phrases + 2

    def noise_of(self, share: float) -> float:
        """Returns the standard deviation of the noise of a sum with a share of the budget μ²."""
        return noise_of_budget(math.sqrt(share) * self.mu)

    @property
    def size_noise(self) -> float:
        """The standard deviation of the noise of the counts of users by numbers of phrases."""
        return self.noise_of(SIZE_SHARE)
