"""The parameters of a plan of n-grams, with their ranges, defaults and checks."""

import dataclasses
import math
from collections.abc import Mapping
from typing import Annotated, Any, ClassVar

from beam_dpne.counts.rule import COUNT_SHARE, CountShare
from beam_dpne.mechanism import gaussian
from beam_dpne.mechanism.plan import GaussianPlan, TokensPerUser
from beam_dpne.validation import Parameter, check_count, told_value

# Defaults that depend on the strategy; a parameter that only one of them has is None with the other.
DEFAULTS: Mapping[str, Mapping[str, Any]] = {
    "adaptive": {
        "max_contributions": 1000,
        "vocabulary_delta_share": 0.1,
        "rounds": 3,
        "favour": "balanced",
    },
    "one_round": {"max_contributions": 100, "vocabulary_delta_share": 0.5, "noise_growth": 1.0},
}
_OF_ONE_STRATEGY = ("noise_growth", "rounds", "favour")
# Beyond it some thresholds of rounds do not exist.
_MAX_ADAPTIVE_FRACTION = 0.5
_MIN_SHARE = 1e-9


@dataclasses.dataclass(frozen=True, kw_only=True)
class NgramsParameters(GaussianPlan):
    """The fields of `NgramsPlan`, complete and checked one against another.

    Raises:
      ValueError: naming the parameter, its requirement and the value.
    """

    program: ClassVar[str] = "ngrams"
    decides_defaults: ClassVar[str] = "strategy"

    max_length: Annotated[
        int,
        Parameter(
            least=1,
            most=100,
            help="Number of words in the longest n-gram, T. More lengths share the same budget, "
            "so that each has more noise.",
        ),
    ] = 5
    strategy: Annotated[
        str,
        Parameter(
            choices=("adaptive", "one_round"),
            help="How users spend their budget: with adaptive each divides one budget among lengths "
            "and rounds, which releases two to four times as much text; one_round is of the paper.",
        ),
    ] = "adaptive"
    max_contributions: Annotated[
        int | tuple[int, ...] | None,
        Parameter(
            least=1,
            default_text="1000, one_round 100",
            help="Largest number of distinct n-grams that one user adds, Δ, at one length or in one "
            "round of it: one number, or one for each length. Never compute it from the data.",
        ),
    ] = None
    count_share: CountShare = COUNT_SHARE
    spurious_fraction: Annotated[
        float,
        Parameter(
            least=1e-100,
            below=1,
            in_short_help=False,
            help="Upper bound η on the expected number of released n-grams that nobody has, as a "
            "part of those one word shorter. A larger η releases more n-grams of both kinds.",
        ),
    ] = 0.01
    rounds: Annotated[
        int | None,
        Parameter(
            least=1,
            most=3,
            in_short_help=False,
            default_text="3, one_round none",
            help="Number of rounds of each length of two words and more; later ones spend only "
            "on n-grams that are undecided. Each is a pass over the data. Only adaptive has it.",
        ),
    ] = None
    favour: Annotated[
        str | None,
        Parameter(
            choices=("words", "balanced", "long"),
            in_short_help=False,
            default_text="balanced, one_round none",
            help="Lengths of which more is released: words (single words, at the cost of all longer "
            "n-grams) or long (the longest n-grams, at the cost of those of two or three words). It is "
            "chosen by the purpose and never by the data. Only adaptive has it.",
        ),
    ] = None
    vocabulary_delta_share: Annotated[
        float | None,
        Parameter(
            above=0,
            below=1,
            in_short_help=False,
            default_text="0.1, one_round 0.5",
            help="Share of delta for the probability that a single word of one user alone is "
            "released; the noise gets the rest. A small share raises the threshold of words.",
        ),
    ] = None
    pruning: Annotated[
        str,
        Parameter(
            choices=("both", "single"),
            in_short_help=False,
            help="Candidates are n-grams whose prefix and suffix were released (both), or prefix "
            "and last word (single, more candidates with one privacy). adaptive has only both.",
        ),
    ] = "both"
    valid_count: Annotated[
        str,
        Parameter(
            choices=("exact", "estimate"),
            in_short_help=False,
            help="exact counts the candidates; estimate is the estimate of the paper, which only "
            "one_round with pruning both has.",
        ),
    ] = "exact"
    noise_growth: Annotated[
        float | None,
        Parameter(
            above=0,
            in_short_help=False,
            default_text="1, adaptive none",
            help="Ratio c of each length's noise to that of the length before, e.g. 0.8, which "
            "favours long n-grams. Only one_round has it.",
        ),
    ] = None
    budget_shares: Annotated[
        tuple[float, ...] | None,
        Parameter(
            above=0,
            in_short_help=False,
            help="Share of the budget of each length, e.g. 0.2, 0.4 and 0.4, instead of "
            "noise_growth; they must sum to 1. Only one_round has them.",
        ),
    ] = None
    max_tokens_per_user: TokensPerUser = 1_000_000

    def __post_init__(self):
        super().__post_init__()
        defaults = DEFAULTS[self.strategy]
        for name in _OF_ONE_STRATEGY:
            if name not in defaults and getattr(self, name) is not None:
                self._refuse(name, "left out")
        for name, value in defaults.items():
            if getattr(self, name) is None:
                object.__setattr__(self, name, value)
        if isinstance(self.max_contributions, tuple):
            check_count("max_contributions", self.max_contributions, self.max_length)
        if self.strategy == "adaptive":
            self._check_adaptive()
        else:
            self._check_one_round()

    @property
    def is_adaptive(self) -> bool:
        """Whether each user divides one budget among rounds, and candidates have classes."""
        return self.strategy == "adaptive"

    def check_known(self) -> None:
        """Raises ValueError if a run of the strategy can have no known n-grams."""
        if not self.is_adaptive:
            raise ValueError(
                "`known` must be left out with another strategy than adaptive, got `strategy="
                f"{self.strategy!r}`."
            )

    @property
    def shares(self) -> tuple[float, ...]:
        """f_k, the part of the lengths' budget that each length has; they sum to 1."""
        if self.budget_shares is not None:
            return gaussian.normalise_shares(self.budget_shares)
        return gaussian.growth_shares(self.noise_growth or 1.0, self.max_length)

    def _check_adaptive(self) -> None:
        if self.budget_shares is not None:
            self._refuse("budget_shares", "left out")
        for name, only in (("valid_count", "exact"), ("pruning", "both")):
            if getattr(self, name) != only:
                self._refuse(name, repr(only))
        if self.spurious_fraction > _MAX_ADAPTIVE_FRACTION:
            self._refuse("spurious_fraction", f"at most {_MAX_ADAPTIVE_FRACTION}")

    def _check_one_round(self) -> None:
        shares = self.budget_shares
        if shares is not None:
            if self.noise_growth != 1.0:
                raise ValueError("Give `budget_shares` or `noise_growth`, not both.")
            check_count("budget_shares", shares, self.max_length)
            if abs(math.fsum(shares) - 1) > 1e-9:
                raise ValueError(
                    f"`budget_shares` must sum to 1, got {told_value(shares)}, whose sum is "
                    f"{math.fsum(shares):g}."
                )
        elif not math.isfinite(self.noise_growth or 1.0) or min(self.shares) < _MIN_SHARE:
            raise ValueError(
                f"`noise_growth` must leave each length a share of at least {_MIN_SHARE}, got "
                f"`noise_growth={self.noise_growth}` with `max_length={self.max_length}`; move it "
                "nearer to 1."
            )
        if self.pruning == "single" and self.valid_count == "estimate":
            raise ValueError(
                "`valid_count` must be 'exact' with `pruning='single'`, got `valid_count='estimate'`: "
                "there |V_k| is a product and needs no estimate."
            )

    def _refuse(self, name: str, requirement: str) -> None:
        raise ValueError(
            f"`{name}` must be {requirement} with `strategy={self.strategy!r}`, got "
            f"`{name}={told_value(getattr(self, name))}`."
        )
