"""BayesianPlan: every public parameter of private n-gram probabilities, and the noise that follows.

PaperBayesianPlan has the parameters of the paper's mechanism, which is not private.
"""

import abc
import dataclasses
import functools
import json
import math
from typing import Annotated, Any, ClassVar

from beam_dpne.bayesian import log_global
from beam_dpne.mechanism import finite_noise, gaussian, integer_noise
from beam_dpne.validation import (
    ADJACENCY,
    MAX_USERS,
    Parameter,
    PlanParameters,
    as_float,
    check_budget,
    check_choice,
    check_integer,
    check_least_delta,
    check_user_count,
)

MODES = ("counts", "log_global")
MAX_LENGTH = 5
DEFAULT_DECAY = 0.01
_MAX_VOCABULARY = 2**28
_MAX_CLAMP = 2**20
_MAX_CONTRIBUTIONS = 10_000_000
_DECAYS = (1e-6, 1e6)
SENSITIVITIES = ("brute_force", "claim1")
TUNING_SHARE = 1 / 3
NO_GUARANTEE = (
    "no differential privacy guarantee: the noise is scaled by a sensitivity of this very database, "
    "so that the noise itself reveals who is in it"
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class CountingPlan(abc.ABC):
    """The parameters by which users' n-grams are found and limited, which both plans here document."""

    epsilon: float
    delta: float
    length: int = 3
    vocabulary_size: int = 50_000
    max_count: int = 1
    max_contributions: int = 10
    max_tokens_per_user: int = 1_000_000

    def __post_init__(self):
        for name in ("epsilon", "delta"):
            # Whole numbers become floats, so that equal plans compare equal.
            object.__setattr__(self, name, as_float(name, getattr(self, name)))
        check_budget(self.epsilon, self.delta)
        check_integer("length", self.length, 1, MAX_LENGTH)
        check_integer("vocabulary_size", self.vocabulary_size, 1, _MAX_VOCABULARY)
        check_integer("max_count", self.max_count, 1, _MAX_CLAMP)
        check_integer("max_contributions", self.max_contributions, 1, _MAX_CONTRIBUTIONS)
        check_integer("max_tokens_per_user", self.max_tokens_per_user, 1, MAX_USERS)

    @property
    def contribution_limit(self) -> int:
        """W; no user has more n-grams than tokens, or more than the vocabulary has."""
        return min(self.max_contributions, self.max_tokens_per_user, self.vocabulary_size)

    @property
    @abc.abstractmethod
    def guarantee(self) -> str:
        """The guarantee of a run in words, or the statement that there is none."""

    @abc.abstractmethod
    def key_parameters(self) -> dict[str, Any]:
        """Returns the parameters that a run key is bound to, as JSON types."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class BayesianPlan(PlanParameters, CountingPlan):
    """The public parameters of private n-gram probabilities.

    None of them may be chosen by looking at the private data. A run is user-level (ε, δ)-differentially
    private: neighbouring inputs differ in one user with all of that user's documents.

    Attributes:
      epsilon: ε > 0 of the whole run.
      delta: δ in (0, 1) of the whole run; it should be well below one over the number of users.
      mode: "counts" adds noise to the counts, and computes their posterior under the public ones;
        "log_global" adds noise to decayed logarithms of the counts (`log_global`).
      length: n, words in an n-gram, 1 to 5.
      vocabulary_size: the largest number of public n-grams; the most frequent ones are kept.
      max_count: C ≥ 1, the largest count that one user adds to an n-gram.
      max_contributions: W ≥ 1, the largest number of distinct n-grams that one user adds. The default
        was chosen on public titles dealt to made-up users.
      public_weight: 1 − ρ in [0, 1), the weight of the public logarithms beside the private ones, as in
        the paper; only "log_global" has it. With None the probabilities are the posterior of the counts
        behind the noisy logarithms, which is better. The released values may be evaluated again with
        any weight, since the noise does not depend on it.
      decay: S in [1e-6, 1e6]: an n-gram of N users has the weight min(1, S·N/C); only "log_global" has
        it. With None it is 0.01. It should be chosen on public data.
      max_tokens_per_user: the largest number of tokens that are read of one user.
      public_user_count: the number of users of the input, if it is public: a δ above one over it is
        rejected. Nothing else depends on it; it must never be counted in private data.
      adjacency: "add_or_remove_one_user", the only choice.

    Raises:
      ValueError: with the name of the parameter, its requirement and the value.

    Example:
      >>> plan = BayesianPlan(epsilon=0.2, delta=1e-7, max_contributions=25)
      >>> round(plan.sensitivity, 6), round(plan.noise_stddev, 2)
      (5.0, 107.14)
      >>> BayesianPlan.from_json(plan.to_json()) == plan
      True

    References: Ramadan, Withers and Orr, "N-grams Bayesian Differential Privacy"; Balle and Wang 2018.
    """

    decides_defaults: ClassVar[str] = "mode"

    length: Annotated[
        int,
        Parameter(
            least=1,
            most=MAX_LENGTH,
            help="Number of words in an n-gram. Public n-grams of another length are refused.",
        ),
    ] = 3
    vocabulary_size: Annotated[
        int,
        Parameter(
            least=1,
            most=_MAX_VOCABULARY,
            help="Number of public n-grams that are kept, the most frequent ones. More n-grams "
            "cover more of the private texts, and each has independent noise.",
        ),
    ] = 50_000
    max_count: Annotated[
        int,
        Parameter(
            least=1,
            most=_MAX_CLAMP,
            rare=True,
            help="Largest number of times that one n-gram of one user counts, C. Noise grows with "
            "it; 1 counts users. It must not be computed from the private data.",
        ),
    ] = 1
    max_contributions: Annotated[
        int,
        Parameter(
            least=1,
            most=_MAX_CONTRIBUTIONS,
            help="Largest number of distinct public n-grams that one user adds, W. Noise grows "
            "with its square root; the number that a typical user has is sensible. It must not be "
            "computed from the private data.",
        ),
    ] = 10
    max_tokens_per_user: Annotated[
        int,
        Parameter(
            least=1,
            most=MAX_USERS,
            rare=True,
            help="Largest number of tokens of one user that are read. Users above it keep a "
            "random subset of their documents.",
        ),
    ] = 1_000_000

    mode: Annotated[str, Parameter(choices=MODES, rare=True, help="The mechanism.")] = "counts"
    public_weight: Annotated[
        float | None, Parameter(least=0, below=1, rare=True, help="Weight of public logarithms.")
    ] = None
    decay: Annotated[
        float | None, Parameter(least=1e-6, most=1e6, rare=True, help="Parameter S of decay.")
    ] = None

    def __post_init__(self):
        super().__post_init__()
        for name in ("public_weight", "decay"):
            if (value := getattr(self, name)) is not None:
                object.__setattr__(self, name, as_float(name, value))
        check_least_delta(self.delta)
        check_user_count(self.delta, self.public_user_count)
        check_choice("mode", self.mode, MODES)
        check_choice("adjacency", self.adjacency, (ADJACENCY,))
        self._check_logarithms()
        self._check_noise()

    @property
    def guarantee(self) -> str:
        """The guarantee of a run, in words."""
        return f"user-level ({self.epsilon:g}, {self.delta:g})-differential privacy"

    @property
    def decay_rate(self) -> float:
        """S, with its default resolved."""
        return DEFAULT_DECAY if self.decay is None else self.decay

    @property
    def grid(self) -> float:
        """The step between released values: 1 count, or under "log_global" a power of ½."""
        if self.mode == "counts":
            return 1.0
        return math.ldexp(1.0, -log_global.grid_bits(self.gram_bound))

    @property
    def gram_bound(self) -> float:
        """The most by which one user moves one value: C, or under "log_global" B before rounding."""
        if self.mode == "counts":
            return float(self.max_count)
        return log_global.gram_bound(max_count=self.max_count, decay=self.decay_rate)

    @property
    def sensitivity(self) -> float:
        """The most by which one user moves all values, in ℓ2: C·√W, or √W·B and the rounding."""
        if self.mode == "counts":
            return math.nextafter(self.max_count * math.sqrt(self.contribution_limit), math.inf)
        return self.grid * log_global.grid_sensitivity(
            max_count=self.max_count,
            decay=self.decay_rate,
            max_contributions=self.contribution_limit,
        )

    @property
    def numerical_slack(self) -> float:
        """The most that floating point may cost of ε; it is a part of the reserve.

        One user changes the values of at most W grams; see `integer_noise`.
        """
        return integer_noise.epsilon_slack(stddev=self.noise_steps, draws=self.contribution_limit)

    @property
    def far_tails(self) -> float:
        """The most that noise in far tails may cost of δ; it is a part of the reserve."""
        return integer_noise.delta_slack(
            stddev=self.noise_steps, draws=self.contribution_limit, epsilon=self.epsilon
        )

    @property
    def gaussian_epsilon(self) -> float:
        """The ε for which noise is calibrated: ε less the reserve."""
        return finite_noise.usable_epsilon(self.epsilon)

    @property
    def gaussian_delta(self) -> float:
        """The δ for which noise is calibrated: δ less the reserve."""
        return finite_noise.usable_delta(epsilon=self.epsilon, delta=self.delta)

    @functools.cached_property
    def noise_stddev(self) -> float:
        """σ of the analytic Gaussian mechanism, in the units of the values: counts, or logarithms.

        It is raised by a margin for the error of the root.
        """
        exact = gaussian.gaussian_noise_stddev(
            epsilon=self.gaussian_epsilon, delta=self.gaussian_delta
        )
        return exact * self.sensitivity * (1 + gaussian.ROOT_MARGIN)

    @property
    def noise_steps(self) -> float:
        """σ in steps of the grid."""
        return self.noise_stddev / self.grid

    def report(self) -> dict[str, Any]:
        """Returns the public numbers of the mechanism for the ledger, as JSON types."""
        common = {
            "mode": self.mode,
            "max_count": self.max_count,
            "max_contributions": self.contribution_limit,
        }
        if self.mode == "log_global":
            common |= {"decay": self.decay_rate}
        if self.public_weight is not None:
            common |= {"public_weight": self.public_weight}
        return common | {
            "noise": "gaussian",
            "noise_stddev": self.noise_stddev,
            "gram_bound": self.gram_bound,
            "sensitivity": self.sensitivity,
            "grid": self.grid,
            "numerical_slack": self.numerical_slack,
            "gaussian_delta": self.gaussian_delta,
        }

    def _check_logarithms(self) -> None:
        """Checks ρ and S, which only the mode of logarithms has."""
        for name in ("public_weight", "decay"):
            if getattr(self, name) is not None and self.mode != "log_global":
                raise ValueError(
                    f"{name} must be left out with mode={self.mode!r}, which has none; only the mode "
                    "log_global has it."
                )
        if self.public_weight is not None:
            check_weight("public_weight", self.public_weight)
        if self.decay is not None:
            check_decay("decay", self.decay)

    def _check_noise(self) -> None:
        """Checks that noise of 128 bits and floating point are good enough for the budget."""
        if self.noise_steps > integer_noise.MAX_STDDEV:
            raise ValueError(
                f"max_contributions must be lower, got max_contributions={self.max_contributions}: the "
                "noise has more steps than its integers hold. Lower it or max_count, or raise epsilon."
            )
        finite_noise.check(
            self, remedy=f"Lower max_contributions={self.max_contributions} or max_count."
        )


@dataclasses.dataclass(frozen=True, kw_only=True)
class PaperBayesianPlan(CountingPlan):
    """The parameters of `PaperBayesianCounts`, which has no differential privacy guarantee.

    With more than one candidate (S, ρ) the mechanism is tuned as the paper does ("EndToEndDP"): a part
    of the users scores the candidates, and a third of ε pays for the choice.

    Attributes:
      epsilon: the ε of the paper's formula, > 0; it is not the ε of any guarantee.
      delta: the δ of the paper's formula, in (0, 1).
      sensitivity: "brute_force", over the users of the database, or "claim1", from its sums.
      length: n, words in an n-gram, 1 to 5.
      vocabulary_size: the largest number of public n-grams; the most frequent ones are kept.
      max_count: C ≥ 1, the largest count that one user adds to an n-gram.
      max_contributions: W ≥ 1, the largest number of distinct n-grams that one user adds.
      decays: the candidates for S, each in [1e-6, 1e6].
      public_weights: the candidates for 1 − ρ, each in [0, 1).
      tuning_fraction: the part of the users that scores the candidates, in (0, 1).
      max_tokens_per_user: the largest number of tokens that are read of one user.

    Raises:
      ValueError: with the name of the parameter, its requirement and the value.

    Example:
      >>> PaperBayesianPlan(epsilon=1, delta=1e-7, decays=(0.1, 1.0)).candidates
      ((0.1, 0.5), (1.0, 0.5))
    """

    sensitivity: str = "brute_force"
    decays: tuple[float, ...] = (DEFAULT_DECAY,)
    public_weights: tuple[float, ...] = (0.5,)
    tuning_fraction: float = 0.1

    def __post_init__(self):
        super().__post_init__()
        check_choice("sensitivity", self.sensitivity, SENSITIVITIES)
        for name, check in (("decays", check_decay), ("public_weights", check_weight)):
            values = getattr(self, name)
            if not isinstance(values, list | tuple) or not values:
                raise ValueError(f"{name} must be a list of numbers, got {name}={values!r}.")
            object.__setattr__(self, name, tuple(as_float(name, value) for value in values))
            for value in getattr(self, name):
                check(name, value)
        if not 0 < self.tuning_fraction < 1:
            raise ValueError(
                f"tuning_fraction must be in (0, 1), got tuning_fraction={self.tuning_fraction}."
            )

    @property
    def guarantee(self) -> str:
        """The statement that there is no guarantee."""
        return NO_GUARANTEE

    @property
    def candidates(self) -> tuple[tuple[float, float], ...]:
        """The pairs (S, ρ) that are tried."""
        return tuple((decay, 1.0 - one) for decay in self.decays for one in self.public_weights)

    @property
    def is_tuned(self) -> bool:
        """Whether there is a choice between candidates."""
        return len(self.candidates) > 1

    @property
    def tuning_epsilon(self) -> float:
        """The part of ε that the choice spends; 0 without tuning."""
        return self.epsilon * TUNING_SHARE if self.is_tuned else 0.0

    def key_parameters(self) -> dict[str, Any]:
        """Returns everything that decides a run, as JSON types."""
        resolved = {"contribution_limit": self.contribution_limit, "mechanism": "paper"}
        return json.loads(json.dumps(dataclasses.asdict(self) | resolved))


def check_weight(name: str, value: float) -> None:
    """Raises ValueError unless 1 − ρ, the weight of public logarithms, is in its range."""
    if not 0 <= value < 1:
        raise ValueError(
            f"{name} must be in [0, 1), got {value}; at 1 nothing of the private data would be left."
        )


def check_decay(name: str, value: float) -> None:
    """Raises ValueError unless S, by which an n-gram's weight grows with its users, is in its range."""
    least, most = _DECAYS
    if not least <= value <= most:
        raise ValueError(f"{name} must be from {least} to {most}, got {value}.")
