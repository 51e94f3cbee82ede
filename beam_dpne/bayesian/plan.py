"""BayesianPlan: every public parameter of private n-gram probabilities, and the noise that follows."""

import dataclasses
import functools
import json
import math
from typing import Any

from beam_dpne.bayesian import log_global
from beam_dpne.mechanism import finite_noise, gaussian, integer_noise
from beam_dpne.mechanism.user_count import check_user_count
from beam_dpne.ngrams import mechanism_parameters
from beam_dpne.validation import (
    ADJACENCY,
    as_float,
    check_choice,
    check_delta,
    check_integer,
    json_parameters,
)

PRIVATE_MODES = ("counts", "log_global")
PAPER_MODES = ("paper_brute_force", "paper_claim1")
MODES = (*PRIVATE_MODES, *PAPER_MODES)
LOG_MODES = ("log_global", *PAPER_MODES)
MAX_LENGTH = 5
NO_GUARANTEE = (
    "no differential privacy guarantee: the noise is scaled by a sensitivity of this very database, "
    "so that the noise itself tells who is in it"
)
PAPER_PUBLIC_WEIGHT = 0.5
DEFAULT_DECAY = 0.01
DEFAULT_TUNING_FRACTION = 0.1
DEFAULT_PUBLIC_WEIGHTS = (0.1, 0.3, 0.5, 0.7, 0.9)
DEFAULT_DECAYS = (0.001, 0.01, 0.1, 1.0)
TUNING_SHARE = 1 / 3
_MAX_VOCABULARY = 2**28
_MAX_CLAMP = 2**20
_MAX_CONTRIBUTIONS = 10_000_000
_MAX_TOKENS = 2**30
_MAX_SLACK_SHARE = finite_noise.LARGEST_SHARE
# Beyond it e^ε times any far tail is above 1, so that σ need not be known.
_HOPELESS_EPSILON = 100
_DECAYS = (1e-6, 1e6)
_OF_TUNING = ("tuning_fraction", "public_weights", "decays")


@dataclasses.dataclass(frozen=True, kw_only=True)
class BayesianPlan:
    """The parameters of private n-gram probabilities: frozen, checked, public.

    None of them may be chosen by looking at the private data. Under the modes "counts" and
    "log_global" a run is user-level (ε, δ)-differentially private: neighbouring inputs differ in one
    user with all of that user's documents. The modes "paper_brute_force" and "paper_claim1" have
    **no** guarantee: they reproduce the paper.

    Attributes:
      epsilon: ε > 0 of the whole run.
      delta: δ in (0, 1) of the whole run; well below one over the number of users.
      mode: one of MODES.
      length: n, words in a gram, 1 to 5.
      vocabulary_size: the most frequent public grams that are kept, at most.
      max_count: C ≥ 1, how often one user's gram counts, at most.
      max_contributions: W ≥ 1, distinct grams that one user adds, at most. The default was chosen on
        public titles dealt to made-up users.
      public_weight: 1 − ρ in [0, 1), the weight of the public logarithms beside the private ones. None:
        σ²/(1 + σ²) under "log_global", for noise σ beside a spread of 1 of the logarithms, and 0.5 in
        the paper's modes; only for the modes of logarithms.
      decay: S in [1e-6, 1e6]: a gram of N users counts min(1, S·N/C). None: 0.01; only for the modes of
        logarithms.
      tune: chooses public_weight and decay on a part of the users ("EndToEndDP"). Only for the paper's
        modes: see `beam_dpne.bayesian.paper` for why "log_global" has none, and "counts" needs none.
      tuning_fraction: the part of the users that scores the candidates, in (0, 1). None: 0.1.
      public_weights: candidates for public_weight. None: 0.1 to 0.9.
      decays: candidates for decay. None: 0.001 to 1.
      max_tokens_per_user: tokens of one user that are looked at.
      public_user_count: number of users of the input, where it is public: a δ above one over it is
        refused. Nothing else depends on it; it must never be counted in private data.
      accept_no_guarantee: must be true for the paper's modes, and only for them.
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
    tune: bool = False
    tuning_fraction: float | None = None
    public_weights: tuple[float, ...] | None = None
    decays: tuple[float, ...] | None = None
    max_tokens_per_user: int = 1_000_000
    public_user_count: int | None = None
    accept_no_guarantee: bool = False
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
        self._check_acceptance()
        self._check_logarithms()
        self._check_tuning()
        if self.is_private:
            self._check_finite_noise()
            self._check_slack()

    @property
    def is_private(self) -> bool:
        """Whether the mode has a differential privacy guarantee."""
        return self.mode in PRIVATE_MODES

    @property
    def contribution_limit(self) -> int:
        """W; no user has more grams than tokens, and none more than the vocabulary has."""
        return min(self.max_contributions, self.max_tokens_per_user, self.vocabulary_size)

    @property
    def private_weight(self) -> float:
        """ρ, the weight of the private logarithms; the default of "log_global" follows the noise."""
        if self.public_weight is not None:
            return 1.0 - self.public_weight
        if self.is_private:
            return 1.0 / (1.0 + self.noise_stddev**2)
        return 1.0 - PAPER_PUBLIC_WEIGHT

    @property
    def decay_rate(self) -> float:
        """S."""
        return DEFAULT_DECAY if self.decay is None else self.decay

    @property
    def tuning_share_of_users(self) -> float:
        """The part of the users that scores candidates; 0 without tuning."""
        if not self.tune:
            return 0.0
        given = self.tuning_fraction
        return DEFAULT_TUNING_FRACTION if given is None else given

    @property
    def candidates(self) -> tuple[tuple[float, float], ...]:
        """The pairs (S, ρ) that are tried: one without tuning."""
        if not self.tune:
            return ((self.decay_rate, self.private_weight),)
        decays = self.decays or DEFAULT_DECAYS
        weights = self.public_weights or DEFAULT_PUBLIC_WEIGHTS
        return tuple((decay, 1.0 - weight) for decay in decays for weight in weights)

    @property
    def tuning_epsilon(self) -> float:
        """ε that the paper's tuning spends: a third of it; 0 without tuning."""
        return self.epsilon * TUNING_SHARE if self.tune else 0.0

    @property
    def grid(self) -> float:
        """The step of the released values: 1 count, or under "log_global" a power of ½."""
        self._require_private("grid")
        if self.mode == "counts":
            return 1.0
        return math.ldexp(1.0, -log_global.grid_bits(self.gram_bound))

    @property
    def gram_bound(self) -> float:
        """How far one user may move one value: C, or under "log_global" B, before it is rounded."""
        self._require_private("gram_bound")
        if self.mode == "counts":
            return float(self.max_count)
        return log_global.gram_bound(max_count=self.max_count, decay=self.decay_rate)

    @property
    def sensitivity(self) -> float:
        """How far one user may move all values, in ℓ2: C·√W, or √W·(B and rounding)."""
        self._require_private("sensitivity")
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
        self._require_private("noise_stddev")
        epsilon = self.epsilon - self.numerical_slack
        return self._stddev(epsilon, self.gaussian_delta)

    @property
    def noise_steps(self) -> float:
        """σ in steps of the grid."""
        return self.noise_stddev / self.grid

    def facts(self) -> dict[str, Any]:
        """Returns what was spent and how, as JSON types, for the ledger: public numbers only."""
        common = {
            "mode": self.mode,
            "max_count": self.max_count,
            "max_contributions": self.contribution_limit,
        }
        if not self.is_private:
            return common
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
        """Returns what decides a release, as JSON types: parameters, resolved, and constants.

        Those of the step from noisy counts to probabilities are left out, since the same noisy counts
        tell nothing more however often they are evaluated.
        """
        return mechanism_parameters.of_bayesian(self)

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

    def _require_private(self, name: str) -> None:
        if not self.is_private:
            raise ValueError(
                f"{name} is of the modes with a guarantee, {' and '.join(PRIVATE_MODES)}, got "
                f"mode={self.mode!r}: there the noise depends on the data."
            )

    def _normalise(self) -> None:
        for name in ("epsilon", "delta", "public_weight", "decay", "tuning_fraction"):
            value = getattr(self, name)
            if value is not None or name in ("epsilon", "delta"):
                object.__setattr__(self, name, as_float(name, value))
        for name in ("public_weights", "decays"):
            values = getattr(self, name)
            if values is None:
                continue
            if not isinstance(values, list | tuple) or not values:
                raise ValueError(f"{name} must be a list of numbers, got {name}={values!r}.")
            object.__setattr__(self, name, tuple(as_float(name, value) for value in values))
        for name in ("tune", "accept_no_guarantee"):
            if not isinstance(getattr(self, name), bool):
                raise ValueError(
                    f"{name} must be true or false, got {name}={getattr(self, name)!r}."
                )

    def _check_acceptance(self) -> None:
        if self.is_private and self.accept_no_guarantee:
            raise ValueError(
                f"accept_no_guarantee must be left out with mode={self.mode!r}, which has a guarantee."
            )
        if not self.is_private and not self.accept_no_guarantee:
            raise ValueError(
                f"accept_no_guarantee must be true with mode={self.mode!r}, got "
                f"accept_no_guarantee=False: the mode has {NO_GUARANTEE}. Use mode='counts' for "
                "anything but a reproduction of the paper."
            )

    def _check_logarithms(self) -> None:
        """Checks ρ and S, which only the modes of logarithms have."""
        for name in ("public_weight", "decay"):
            if getattr(self, name) is not None and self.mode not in LOG_MODES:
                raise ValueError(
                    f"{name} must be left out with mode={self.mode!r}, which has none; it is of "
                    f"{', '.join(LOG_MODES)}."
                )
            if getattr(self, name) is not None and self.tune:
                raise ValueError(f"{name} must be left out with tune, which chooses it.")
        if self.public_weight is not None:
            _check_weight("public_weight", self.public_weight)
        if self.decay is not None:
            _check_decay("decay", self.decay)

    def _check_tuning(self) -> None:
        if self.tune and self.mode not in PAPER_MODES:
            raise ValueError(
                f"tune must be left out with mode={self.mode!r}: it is of {' and '.join(PAPER_MODES)}. "
                "'counts' fits its prior to the noisy counts for nothing, and for 'log_global' no "
                "useful bound of a score over all databases exists: choose decay and public_weight on "
                "public data."
            )
        for name in _OF_TUNING:
            if getattr(self, name) is not None and not self.tune:
                raise ValueError(
                    f"{name} must be left out without tune, got {name}={getattr(self, name)}."
                )
        if self.tuning_fraction is not None and not 0 < self.tuning_fraction < 1:
            raise ValueError(
                f"tuning_fraction must be in (0, 1), got tuning_fraction={self.tuning_fraction}."
            )
        for weight in self.public_weights or ():
            _check_weight("public_weights", weight)
        for decay in self.decays or ():
            _check_decay("decays", decay)

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


def _check_weight(name: str, value: float) -> None:
    if not 0 <= value < 1:
        raise ValueError(
            f"{name} must be in [0, 1), got {value}; at 1 nothing of the private data would be left."
        )


def _check_decay(name: str, value: float) -> None:
    least, most = _DECAYS
    if not least <= value <= most:
        raise ValueError(f"{name} must be from {least} to {most}, got {value}.")
