"""PrivacyPlan: every public parameter of a run, and the noise that follows from them."""

import dataclasses
import functools
import json
import math
from collections.abc import Sequence
from typing import Any

from beam_dpne import calibration

ADJACENCY = "add_or_remove_one_user"
STRATEGIES = ("one_round",)
PRUNING_RULES = ("both", "single")
VALID_COUNTS = ("exact", "estimate")
RELATIVE_ERROR_PER_DECISION = 2e-12
_MAX_LENGTH = 100
_MIN_DELTA = 1e-20
_MAX_SLACK_SHARE = 1e-3
_MIN_SHARE = 1e-9


@dataclasses.dataclass(frozen=True, kw_only=True)
class LengthPlan:
    """What is known of one length before the data.

    Attributes:
      length: k.
      max_contributions: Δ_k.
      budget_share: f_k; the f_k sum to 1.
      noise_stddev: σ_k = σ/√f_k, in units of weight.
      threshold: ρ_1 at k = 1; None for longer grams, whose threshold depends on |S_{k−1}|, |V_k|.
    """

    length: int
    max_contributions: int
    budget_share: float
    noise_stddev: float
    threshold: float | None


@dataclasses.dataclass(frozen=True, kw_only=True)
class PrivacyPlan:
    """The parameters of a run of DPNE: frozen, checked, public; never chosen from private data.

    A run under a plan is user-level (ε, δ)-differentially private: neighbouring inputs differ in one
    user with all of that user's documents.

    Attributes:
      epsilon: ε > 0 of the whole run.
      delta: δ in (0, 1) of the whole run; well below one over the number of users.
      max_length: T, words in the longest gram.
      max_contributions: Δ, distinct grams a user adds at one length: one number, or one per length.
      spurious_fraction: η in (0, 1): expected spurious k-grams per released (k−1)-gram, at most.
      pruning: "both": a valid gram's prefix and suffix are released; "single": its prefix and last
        word.
      valid_count: "exact" or "estimate" (the paper's EstimateValidKgrams; pruning "both" only).
      vocabulary_delta_share: δ_T/δ in (0, 1); the rest is δ_G, for the noise.
      noise_growth: c in σ_k = c·σ_{k−1}; 1 is the same noise at every length.
      budget_shares: f_k, one per length, summing to 1, instead of noise_growth.
      max_tokens_per_user: tokens of one user that are looked at; bounds the numerical slack.
      strategy: "one_round", the paper's algorithm.
      adjacency: "add_or_remove_one_user", the only one.

    Raises:
      ValueError: naming the parameter, its requirement and the value.

    Example:
      >>> plan = PrivacyPlan(epsilon=1, delta=1e-7, max_length=6, max_contributions=10)
      >>> [round(length.noise_stddev, 3) for length in plan.lengths][:2]
      [11.779, 11.779]
      >>> PrivacyPlan.from_json(plan.to_json()) == plan
      True

    References: DPNE Theorem 2.1.
    """

    epsilon: float
    delta: float
    max_length: int = 5
    max_contributions: int | tuple[int, ...] = 100
    spurious_fraction: float = 0.01
    pruning: str = "both"
    valid_count: str = "exact"
    vocabulary_delta_share: float = 0.5
    noise_growth: float = 1.0
    budget_shares: tuple[float, ...] | None = None
    max_tokens_per_user: int = 1_000_000
    strategy: str = "one_round"
    adjacency: str = ADJACENCY

    def __post_init__(self):
        self._normalise()
        calibration.check_budget(self.epsilon, self.delta)
        if self.delta < _MIN_DELTA:
            raise ValueError(
                f"delta must be at least {_MIN_DELTA}, where the noise of 128 bits ends, got "
                f"delta={self.delta}."
            )
        _check_integer("max_length", self.max_length, 1)
        if self.max_length > _MAX_LENGTH:
            raise ValueError(
                f"max_length must be at most {_MAX_LENGTH}, since each length is a stage of its own, "
                f"got max_length={self.max_length}."
            )
        _check_integer("max_tokens_per_user", self.max_tokens_per_user, 1)
        self._check_lists()
        for name in ("spurious_fraction", "vocabulary_delta_share"):
            if not 0 < getattr(self, name) < 1:
                raise ValueError(f"{name} must be in (0, 1), got {name}={getattr(self, name)}.")
        if not (math.isfinite(self.noise_growth) and self.noise_growth > 0):
            raise ValueError(
                f"noise_growth must be a finite number > 0, got noise_growth={self.noise_growth}."
            )
        if min(calibration.growth_shares(self.noise_growth, self.max_length)) < _MIN_SHARE:
            raise ValueError(
                f"noise_growth must leave each length a share of at least {_MIN_SHARE}, got "
                f"noise_growth={self.noise_growth} with max_length={self.max_length}; move it "
                "nearer to 1."
            )
        _check_choice("pruning", self.pruning, PRUNING_RULES)
        _check_choice("valid_count", self.valid_count, VALID_COUNTS)
        _check_choice("strategy", self.strategy, STRATEGIES)
        _check_choice("adjacency", self.adjacency, (ADJACENCY,))
        if self.pruning == "single" and self.valid_count == "estimate":
            raise ValueError(
                "valid_count must be 'exact' with pruning='single', got valid_count='estimate': "
                "there |V_k| is a product and needs no estimate."
            )
        if self.numerical_slack > _MAX_SLACK_SHARE * self.epsilon:
            raise ValueError(
                f"max_tokens_per_user must be small enough that the numerical slack "
                f"{self.numerical_slack:.2g} is at most epsilon/1000, got "
                f"max_tokens_per_user={self.max_tokens_per_user}; lower it or raise epsilon."
            )

    @property
    def numerical_slack(self) -> float:
        """What floating point may cost of ε, subtracted before the noise is calibrated.

        Every decision's probability is right to a relative 1e-12 with and without the user, and a
        user changes at most max_tokens_per_user decisions at a length.
        """
        return self.max_length * self.max_tokens_per_user * RELATIVE_ERROR_PER_DECISION

    @property
    def gaussian_delta(self) -> float:
        """δ_G, spent on the noise of all lengths; the slack's factor e^−slack is taken off too."""
        return self.delta * (1 - self.vocabulary_delta_share) * math.exp(-self.numerical_slack)

    @property
    def vocabulary_delta(self) -> float:
        """δ_T, spent on words that one user alone holds, less the slack's factor."""
        return self.delta * self.vocabulary_delta_share * math.exp(-self.numerical_slack)

    @functools.cached_property
    def noise_stddev(self) -> float:
        """The noise σ of one Gaussian mechanism as private as all lengths together.

        Raised by a relative 1e-10: more than the errors of the root and of the shares' sum.
        """
        exact = calibration.gaussian_noise_stddev(
            epsilon=self.epsilon - self.numerical_slack, delta=self.gaussian_delta
        )
        return exact * (1 + 1e-10)

    @functools.cached_property
    def lengths(self) -> tuple[LengthPlan, ...]:
        """What is known of each length k = 1..T before the data."""
        shares = (
            calibration.normalise_shares(self.budget_shares)
            if self.budget_shares
            else calibration.growth_shares(self.noise_growth, self.max_length)
        )
        stddevs = calibration.split_noise_stddev(self.noise_stddev, shares)
        limits = self.contribution_limits
        vocabulary_threshold = calibration.vocabulary_threshold(
            noise_stddev=stddevs[0], delta=self.vocabulary_delta, max_contributions=limits[0]
        )
        return tuple(
            LengthPlan(
                length=length,
                max_contributions=limit,
                budget_share=share,
                noise_stddev=stddev,
                threshold=vocabulary_threshold if length == 1 else None,
            )
            for length, limit, share, stddev in zip(
                range(1, self.max_length + 1), limits, shares, stddevs, strict=True
            )
        )

    @property
    def contribution_limits(self) -> tuple[int, ...]:
        """Δ_k for each length; no user has more grams than max_tokens_per_user."""
        given = self.max_contributions
        limits = given if isinstance(given, tuple) else (given,) * self.max_length
        return tuple(min(limit, self.max_tokens_per_user) for limit in limits)

    def to_dict(self) -> dict[str, Any]:
        """Returns the parameters as JSON types."""
        return dataclasses.asdict(self)

    def to_json(self) -> str:
        """Returns the parameters as a JSON object; inverse of `from_json`."""
        return json.dumps(self.to_dict(), indent=2) + "\n"

    @classmethod
    def from_json(cls, text: str) -> "PrivacyPlan":
        """Reads a plan written by `to_json`; absent parameters take their defaults.

        Raises:
          ValueError: if it is not a JSON object, or has a parameter that plans do not have.
        """
        try:
            parameters = json.loads(text)
        except json.JSONDecodeError as error:
            raise ValueError(
                f"A plan must be a JSON object; line {error.lineno} is not JSON."
            ) from None
        except (ValueError, RecursionError):
            raise ValueError("A plan must be a JSON object of plain numbers and words.") from None
        if not isinstance(parameters, dict):
            raise ValueError(f"A plan must be a JSON object, got {type(parameters).__name__}.")
        known = {field.name for field in dataclasses.fields(cls)}
        if unknown := sorted(set(parameters) - known):
            raise ValueError(f"A plan has no parameter {unknown[0]!r}; it has {sorted(known)}.")
        if missing := sorted({"epsilon", "delta"} - set(parameters)):
            raise ValueError(f"A plan needs {' and '.join(missing)}, without a default.")
        return cls(**parameters)

    def _normalise(self) -> None:
        """Turns lists (from JSON) into tuples and whole numbers into floats, so plans compare."""
        for name in (
            "epsilon",
            "delta",
            "spurious_fraction",
            "vocabulary_delta_share",
            "noise_growth",
        ):
            object.__setattr__(self, name, _as_float(name, getattr(self, name)))
        if isinstance(self.max_contributions, Sequence):
            object.__setattr__(self, "max_contributions", tuple(self.max_contributions))
        if isinstance(self.budget_shares, str) or not isinstance(
            self.budget_shares, Sequence | None
        ):
            raise ValueError(
                f"budget_shares must be a list of numbers, got budget_shares={self.budget_shares!r}."
            )
        if self.budget_shares is not None:
            shares = tuple(_as_float("budget_shares", share) for share in self.budget_shares)
            object.__setattr__(self, "budget_shares", shares)

    def _check_lists(self) -> None:
        """Checks Δ_k and f_k, each on its own and in number."""
        given = self.max_contributions
        for limit in given if isinstance(given, tuple) else (given,):
            _check_integer("max_contributions", limit, 1)
        if isinstance(given, tuple):
            _check_count("max_contributions", given, self.max_length)
        if self.budget_shares is None:
            return
        _check_count("budget_shares", self.budget_shares, self.max_length)
        if self.noise_growth != 1.0:
            raise ValueError("Give budget_shares or noise_growth, not both.")
        if not all(0 < share <= 1 for share in self.budget_shares):
            raise ValueError(f"budget_shares must each be in (0, 1], got {self.budget_shares}.")
        if abs(math.fsum(self.budget_shares) - 1) > 1e-9:
            raise ValueError(
                f"budget_shares must sum to 1, got {self.budget_shares}, "
                f"which sum to {math.fsum(self.budget_shares)}."
            )


def _as_float(name: str, value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ValueError(f"{name} must be a number, got {name}={value!r}.")
    try:
        return float(value)
    except OverflowError:
        raise ValueError(f"{name} must be a number that a float can hold.") from None


def _check_integer(name: str, value: Any, least: int) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise ValueError(f"{name} must be an integer of at least {least}, got {name}={value!r}.")


def _check_count(name: str, values: Sequence[Any], count: int) -> None:
    if len(values) != count:
        raise ValueError(
            f"{name} must have one value for each of the {count} lengths, got {len(values)}."
        )


def _check_choice(name: str, value: Any, choices: Sequence[str]) -> None:
    if value not in choices:
        raise ValueError(f"{name} must be one of {', '.join(choices)}, got {name}={value!r}.")
