"""BayesianPlan: every public parameter of private n-gram probabilities, and the noise that follows."""

import dataclasses
import functools
import json
import math
from typing import Any, Protocol

from beam_dpne.bayesian import log_global
from beam_dpne.mechanism import finite_noise, gaussian, integer_noise
from beam_dpne.validation import (
    ADJACENCY,
    as_float,
    check_choice,
    check_delta,
    check_integer,
    check_user_count,
    json_parameters,
)

MODES = ("counts", "log_global")
MAX_LENGTH = 5
DEFAULT_DECAY = 0.01
_MAX_VOCABULARY = 2**28
_MAX_CLAMP = 2**20
_MAX_CONTRIBUTIONS = 10_000_000
_MAX_TOKENS = 2**30
_MAX_SLACK_SHARE = finite_noise.LARGEST_SHARE
# Beyond it e^ε times any far tail is above 1, so that σ need not be known.
_HOPELESS_EPSILON = 100
_DECAYS = (1e-6, 1e6)
# Parameters of modes that plans no longer have, at the only values that private modes allowed. Run keys
# are bound to them, so that a key gives the noise that it always gave.
_FORMER_PARAMETERS = {
    "accept_no_guarantee": False,
    "decays": None,
    "public_weights": None,
    "tune": False,
    "tuning_fraction": None,
}
_FORMER_TUNING = {"tuning_share_of_users": 0.0}
# Nothing is computed from it.
_DECIDES_NOTHING = "public_user_count"


class CountingPlan(Protocol):
    """The parameters by which users' n-grams are found and limited: those of every plan here."""

    @property
    def length(self) -> int:
        """Words in an n-gram."""
        ...

    @property
    def vocabulary_size(self) -> int:
        """The most frequent public n-grams that are kept, at most."""
        ...

    @property
    def max_count(self) -> int:
        """C: how often one user's n-gram counts, at most."""
        ...

    @property
    def contribution_limit(self) -> int:
        """W: distinct n-grams that one user adds, at most."""
        ...

    @property
    def max_tokens_per_user(self) -> int:
        """Tokens of one user that are looked at, at most."""
        ...

    @property
    def guarantee(self) -> str:
        """In words: the guarantee of a run, or that there is none."""
        ...

    def mechanism_parameters(self) -> dict[str, Any]:
        """Returns everything that decides a run, as JSON types."""
        ...


@dataclasses.dataclass(frozen=True, kw_only=True)
class BayesianPlan:
    """The parameters of private n-gram probabilities: frozen, checked, public.

    None of them may be chosen by looking at the private data. A run is user-level (ε, δ)-differentially
    private: neighbouring inputs differ in one user with all of that user's documents.

    Attributes:
      epsilon: ε > 0 of the whole run.
      delta: δ in (0, 1) of the whole run; well below one over the number of users.
      mode: "counts", noise on the counts and then their posterior under the public ones, or
        "log_global", noise on decayed logarithms of the counts (`log_global`).
      length: n, words in an n-gram, 1 to 5.
      vocabulary_size: the most frequent public n-grams that are kept, at most.
      max_count: C ≥ 1, how often one user's n-gram counts, at most.
      max_contributions: W ≥ 1, distinct n-grams that one user adds, at most. The default was chosen on
        public titles dealt to made-up users.
      public_weight: 1 − ρ in [0, 1), the weight of the public logarithms beside the private ones, of
        "log_global" only. With None it is σ²/(1 + σ²), for noise σ beside a spread of 1 of the
        logarithms. It may be tried at will on the released values, since the noise does not depend on
        it.
      decay: S in [1e-6, 1e6], of "log_global" only: an n-gram of N users counts min(1, S·N/C). With
        None it is 0.01. It is to be chosen on public data.
      max_tokens_per_user: tokens of one user that are looked at.
      public_user_count: number of users of the input, where it is public: a δ above one over it is
        refused. Nothing else depends on it; it must never be counted in private data.
      adjacency: "add_or_remove_one_user", the only one.

    Raises:
      ValueError: naming the parameter, its requirement and the value.

    Example:
      >>> plan = BayesianPlan(epsilon=0.2, delta=1e-7, max_contributions=25)
      >>> round(plan.sensitivity, 6), round(plan.noise_stddev, 2)
      (5.0, 107.14)
      >>> BayesianPlan.from_json(plan.to_json()) == plan
      True

    References: Ramadan, Withers and Orr, "N-grams Bayesian Differential Privacy"; Balle and Wang 2018.
    """

    epsilon: float
    delta: float
    mode: str = "counts"
    length: int = 3
    vocabulary_size: int = 50_000
    max_count: int = 1
    max_contributions: int = 10
    public_weight: float | None = None
    decay: float | None = None
    max_tokens_per_user: int = 1_000_000
    public_user_count: int | None = None
    adjacency: str = ADJACENCY

    def __post_init__(self):
        self._normalise()
        gaussian.check_budget(self.epsilon, self.delta)
        check_delta(self.delta)
        check_user_count(self.delta, self.public_user_count)
        check_choice("mode", self.mode, MODES)
        check_choice("adjacency", self.adjacency, (ADJACENCY,))
        check_integer("length", self.length, 1, MAX_LENGTH)
        check_integer("vocabulary_size", self.vocabulary_size, 1, _MAX_VOCABULARY)
        check_integer("max_count", self.max_count, 1, _MAX_CLAMP)
        check_integer("max_contributions", self.max_contributions, 1, _MAX_CONTRIBUTIONS)
        check_integer("max_tokens_per_user", self.max_tokens_per_user, 1, _MAX_TOKENS)
        self._check_logarithms()
        self._check_finite_noise()
        self._check_slack()

    @property
    def guarantee(self) -> str:
        """The guarantee of a run, in words."""
        return f"user-level ({self.epsilon:g}, {self.delta:g})-differential privacy"

    @property
    def contribution_limit(self) -> int:
        """W; no user has more n-grams than tokens, or more than the vocabulary has."""
        return min(self.max_contributions, self.max_tokens_per_user, self.vocabulary_size)

    @property
    def private_weight(self) -> float:
        """ρ, the weight of the private logarithms; by default it follows the noise."""
        if self.public_weight is not None:
            return 1.0 - self.public_weight
        return 1.0 / (1.0 + self.noise_stddev**2)

    @property
    def decay_rate(self) -> float:
        """S."""
        return DEFAULT_DECAY if self.decay is None else self.decay

    @property
    def grid(self) -> float:
        """The step of the released values: 1 count, or under "log_global" a power of ½."""
        if self.mode == "counts":
            return 1.0
        return math.ldexp(1.0, -log_global.grid_bits(self.gram_bound))

    @property
    def gram_bound(self) -> float:
        """How far one user may move one value: C, or under "log_global" B, before it is rounded."""
        if self.mode == "counts":
            return float(self.max_count)
        return log_global.gram_bound(max_count=self.max_count, decay=self.decay_rate)

    @property
    def sensitivity(self) -> float:
        """How far one user may move all values, in ℓ2: C·√W, or √W·(B and rounding)."""
        if self.mode == "counts":
            return math.nextafter(self.max_count * math.sqrt(self.contribution_limit), math.inf)
        return self.grid * log_global.grid_sensitivity(
            max_count=self.max_count,
            decay=self.decay_rate,
            max_contributions=self.contribution_limit,
        )

    @functools.cached_property
    def numerical_slack(self) -> float:
        """What floating point may cost of ε, subtracted before the noise is calibrated.

        One user changes the values of at most W grams; see `integer_noise`. Counted for the noise of a
        slightly smaller ε, which is larger.
        """
        return integer_noise.epsilon_slack(
            stddev=self._largest_steps, draws=self.contribution_limit
        )

    @property
    def gaussian_delta(self) -> float:
        """δ less what the far tails of the noise may cost, and the slack's factor."""
        return (self.delta - self.far_tails) * math.exp(-self.numerical_slack)

    @functools.cached_property
    def far_tails(self) -> float:
        """What noise so far out that its probability is not right to the slack may cost of δ."""
        return self._noise_draws(self.epsilon, self.delta).far_tails

    @functools.cached_property
    def noise_stddev(self) -> float:
        """σ, in the units of the values: counts, or logarithms.

        By the analytic Gaussian mechanism, raised by a margin for the error of its root.
        """
        epsilon = self.epsilon - self.numerical_slack
        return self._stddev(epsilon, self.gaussian_delta)

    @property
    def noise_steps(self) -> float:
        """σ in steps of the grid."""
        return self.noise_stddev / self.grid

    def facts(self) -> dict[str, Any]:
        """Returns the public numbers of the mechanism for the ledger, as JSON types."""
        common = {
            "mode": self.mode,
            "max_count": self.max_count,
            "max_contributions": self.contribution_limit,
        }
        if self.mode == "log_global":
            common |= {"decay": self.decay_rate, "public_weight": 1 - self.private_weight}
        return common | {
            "noise": "gaussian",
            "noise_stddev": self.noise_stddev,
            "gram_bound": self.gram_bound,
            "sensitivity": self.sensitivity,
            "grid": self.grid,
            "numerical_slack": self.numerical_slack,
            "gaussian_delta": self.gaussian_delta,
        }

    def mechanism_parameters(self) -> dict[str, Any]:
        """Returns everything that decides the noisy values, as JSON types.

        It holds the parameters with their defaults resolved, and the constants behind grid and noise,
        each read from the module that uses it. Constants of the step from noisy values to probabilities
        are left out: however often the same noisy values are evaluated, nothing more is learned.
        """
        resolved: dict[str, Any] = {"contribution_limit": self.contribution_limit}
        if self.mode == "log_global":
            resolved |= {"decay": self.decay_rate, **_FORMER_TUNING}
        parameters = {**self.to_dict(), **_FORMER_PARAMETERS, **resolved, "grid": self.grid}
        del parameters[_DECIDES_NOTHING]
        return {
            "plan": parameters,
            "noise": {**gaussian.constants(), **finite_noise.constants()},
            "integer_noise": integer_noise.constants(),
            "log_global": log_global.constants(),
        }

    def to_dict(self) -> dict[str, Any]:
        """Returns the parameters as JSON types."""
        return dataclasses.asdict(self)

    def to_json(self) -> str:
        """Returns the parameters as a JSON object; inverse of `from_json`."""
        return json.dumps(self.to_dict(), indent=2) + "\n"

    @classmethod
    def from_json(cls, text: str) -> "BayesianPlan":
        """Reads a plan written by `to_json`; absent parameters take their defaults.

        Raises:
          ValueError: if it is not such an object, or a parameter is wrong.
        """
        known = [field.name for field in dataclasses.fields(cls)]
        return cls(**json_parameters(text, known, ("epsilon", "delta")))

    @property
    def _largest_steps(self) -> float:
        """An upper bound of `noise_steps` for a numerical slack of at most ε/1000."""
        return self._largest_steps_at(self.epsilon, self.delta)

    def _largest_steps_at(self, epsilon: float, delta: float) -> float:
        least_delta = delta * (1 - _MAX_SLACK_SHARE) * math.exp(-_MAX_SLACK_SHARE * epsilon)
        return self._stddev(epsilon * (1 - _MAX_SLACK_SHARE), least_delta) / self.grid

    def _noise_draws(self, epsilon: float, delta: float) -> finite_noise.NoiseDraws:
        """Returns the noise of the plan with another ε and δ."""
        steps = 0.0 if epsilon > _HOPELESS_EPSILON else self._largest_steps_at(epsilon, delta)
        return finite_noise.NoiseDraws(
            kind="gaussian",
            count=self.contribution_limit,
            moved=self.contribution_limit,
            far_tail=integer_noise.far_tails(steps),
            epsilon=epsilon,
            delta=delta,
            gaussian_delta=delta,
        )

    def _stddev(self, epsilon: float, delta: float) -> float:
        exact = gaussian.gaussian_noise_stddev(epsilon=epsilon, delta=delta)
        return exact * self.sensitivity * (1 + gaussian.ROOT_MARGIN)

    def _normalise(self) -> None:
        for name in ("epsilon", "delta", "public_weight", "decay"):
            value = getattr(self, name)
            if value is not None or name in ("epsilon", "delta"):
                object.__setattr__(self, name, as_float(name, value))

    def _check_logarithms(self) -> None:
        """Checks ρ and S, which only the mode of logarithms has."""
        for name in ("public_weight", "decay"):
            if getattr(self, name) is not None and self.mode != "log_global":
                raise ValueError(
                    f"{name} must be left out with mode={self.mode!r}, which has none; it is of "
                    "log_global."
                )
        if self.public_weight is not None:
            check_weight("public_weight", self.public_weight)
        if self.decay is not None:
            check_decay("decay", self.decay)

    def _check_finite_noise(self) -> None:
        finite_noise.check(
            lambda epsilon, delta: [self._noise_draws(epsilon, delta)],
            epsilon=self.epsilon,
            delta=self.delta,
        )

    def _check_slack(self) -> None:
        if self._largest_steps > integer_noise.MAX_STDDEV or (
            self.numerical_slack > _MAX_SLACK_SHARE * self.epsilon
        ):
            raise ValueError(
                f"max_contributions must be small enough that the numerical slack "
                f"{self.numerical_slack:.2g} is at most epsilon/1000, got "
                f"max_contributions={self.max_contributions}; lower it or max_count, or raise epsilon."
            )


def check_weight(name: str, value: float) -> None:
    """Checks 1 − ρ, the weight of public logarithms; raises ValueError."""
    if not 0 <= value < 1:
        raise ValueError(
            f"{name} must be in [0, 1), got {value}; at 1 nothing of the private data would be left."
        )


def check_decay(name: str, value: float) -> None:
    """Checks S, by which the weight of an n-gram grows with its users; raises ValueError."""
    least, most = _DECAYS
    if not least <= value <= most:
        raise ValueError(f"{name} must be from {least} to {most}, got {value}.")
