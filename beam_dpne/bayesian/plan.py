"""ProbabilitiesPlan: every public parameter of n-gram probabilities, and the noise that follows."""

import dataclasses
import math
from typing import Annotated, ClassVar

from beam_dpne.lists.parameters import MAX_COUNTED_LENGTH
from beam_dpne.mechanism import gaussian
from beam_dpne.mechanism.plan import GaussianPlan, TokensPerUser
from beam_dpne.validation import Parameter

_MAX_VOCABULARY = 2**28
_MAX_CLAMP = 2**20
_MAX_CONTRIBUTIONS = 10_000_000


@dataclasses.dataclass(frozen=True, kw_only=True)
class ProbabilitiesPlan(GaussianPlan):
    """The public parameters of private n-gram probabilities.

    None of them may be chosen by looking at the private data. A run is user-level (ε, δ)-differentially
    private: neighbouring inputs differ in one user with all of that user's documents.

    Raises:
      ValueError: with the name of the parameter, its requirement and the value.

    Example:
      >>> plan = ProbabilitiesPlan(epsilon=0.2, delta=1e-7, max_contributions=25)
      >>> round(plan.sensitivity, 6), round(plan.noise_stddev, 2)
      (5.0, 107.25)
      >>> ProbabilitiesPlan.from_json(plan.to_json()) == plan
      True

    References: Ramadan, Withers and Orr, "N-grams Bayesian Differential Privacy"; Balle and Wang 2018.
    """

    program: ClassVar[str] = "bayesian"
    decides_defaults: ClassVar[str] = "adjacency"

    length: Annotated[
        int,
        Parameter(
            least=1,
            most=MAX_COUNTED_LENGTH,
            help="Number of words in an n-gram. A file of public counts may have shorter ones, too.",
        ),
    ] = 3
    vocabulary_size: Annotated[
        int,
        Parameter(
            least=1,
            most=_MAX_VOCABULARY,
            help="Number of public n-grams kept, the most frequent ones. More of them cover more of "
            "the private texts, each with independent noise.",
        ),
    ] = 50_000
    max_count: Annotated[
        int,
        Parameter(
            least=1,
            most=_MAX_CLAMP,
            in_short_help=False,
            help="Largest number of times that one n-gram of one user counts, C; 1 counts users. It "
            "must not be computed from the private data.",
        ),
    ] = 1
    max_contributions: Annotated[
        int,
        Parameter(
            least=1,
            most=_MAX_CONTRIBUTIONS,
            help="Largest number of n-grams of one user, W; the number of distinct public n-grams "
            "that a typical user has is sensible. Never compute it from the private data.",
        ),
    ] = 10
    max_tokens_per_user: TokensPerUser = 1_000_000

    def __post_init__(self) -> None:
        super().__post_init__()
        self._check_noise()

    @property
    def contribution_limit(self) -> int:
        """W; no user has more n-grams than tokens, or more than the vocabulary has."""
        return min(self.max_contributions, self.max_tokens_per_user, self.vocabulary_size)

    @property
    def sensitivity(self) -> float:
        """C·√W, the most by which one user moves all counts, in ℓ2."""
        return math.nextafter(self.max_count * math.sqrt(self.contribution_limit), math.inf)

    @property
    def numerical_slack(self) -> float:
        """The most that floating point may cost of ε; it is a part of the reserve.

        One user changes the values of at most W grams; see `mechanism.gaussian`.
        """
        return gaussian.integer_slack(stddev=self.noise_stddev, draws=self.contribution_limit)

    @property
    def far_tails(self) -> float:
        """The most that noise in far tails may cost of δ; it is a part of the reserve."""
        return gaussian.integer_far_tails(
            stddev=self.noise_stddev, draws=self.contribution_limit, epsilon=self.epsilon
        )

    def _check_noise(self) -> None:
        """Checks that noise of 128 bits and floating point are good enough for the budget."""
        if self.noise_stddev > gaussian.INTEGER_MAX_STDDEV:
            raise ValueError(
                "`max_contributions` must be lower, got "
                f"`max_contributions={self.max_contributions}`: the noise has more steps than its "
                "integers hold. Lower it or `max_count`, or raise `epsilon`."
            )
        self.check_reserve(f"Lower `max_contributions={self.max_contributions}` or `max_count`.")
