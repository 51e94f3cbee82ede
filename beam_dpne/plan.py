"""PrivacyPlan: every public parameter of a run, and the noise that follows from them."""

import dataclasses
import functools
import json
import math
from collections.abc import Sequence
from typing import Any

from beam_dpne import adaptive, calibration
from beam_dpne.mechanism import RoundRule

ADJACENCY = "add_or_remove_one_user"
STRATEGIES = ("adaptive", "one_round")
PRUNING_RULES = ("both", "single")
VALID_COUNTS = ("exact", "estimate")
LAPLACE_POLICIES = ("count_laplace", "weighted_laplace", "policy_laplace", "greedy")
VOCABULARY_POLICIES = (
    "rounds",
    "weighted_gaussian",
    "public",
    "count_laplace",
    "count_gaussian",
    "weighted_laplace",
    "policy_laplace",
    "policy_gaussian",
    "screened_gaussian",
    "greedy",
    "mad",
)
RELATIVE_ERROR_PER_DECISION = 2e-12
_MAX_LENGTH = 100
_MIN_DELTA = 1e-20
_MAX_SLACK_SHARE = 1e-3
_MIN_SHARE = 1e-9
_DEFAULTS = {
    "adaptive": {
        "max_contributions": 300,
        "vocabulary_delta_share": 0.1,
        "rounds": 3,
        "user_budgets": "individual",
        "vocabulary_policy": "rounds",
    },
    "one_round": {
        "max_contributions": 100,
        "vocabulary_delta_share": 0.5,
        "noise_growth": 1.0,
        "vocabulary_policy": "weighted_gaussian",
    },
}
# A set union looks at the words twice, at most.
_UNION_ROUNDS = 2
# What its decisions may cost of ε; they may all depend on one user (`SetUnionPlan.numerical_slack`).
UNION_SLACK = 1e-5
_OF_ONE_STRATEGY = ("noise_growth", "rounds", "user_budgets")


@dataclasses.dataclass(frozen=True, kw_only=True)
class LengthPlan:
    """What is known of one length before the data.

    Attributes:
      length: k.
      max_contributions: Δ_k.
      budget_share: f_k; the f_k sum to 1; None where each user divides a budget of its own.
      noise_stddev: of each round, in units of weight: σ_k = σ/√f_k; 1 with "adaptive", where the
        weights carry the budget; 0 for a public vocabulary, which has none.
      threshold: ρ_1 at k = 1; None for longer grams, whose threshold depends on |S_{k−1}|, |V_k|.
      rounds: what is fixed of each round ("adaptive" only).
      word_rules: the rules of the rounds at k = 1 ("adaptive" only).

    Of words that a set union finds, noise and threshold are in its own plan.
    """

    length: int
    max_contributions: int
    budget_share: float | None
    noise_stddev: float
    threshold: float | None
    rounds: tuple[adaptive.Round, ...] = ()
    word_rules: tuple[RoundRule, ...] = ()


@dataclasses.dataclass(frozen=True, kw_only=True)
class PrivacyPlan:
    """The parameters of a run of DPNE: frozen, checked, public; never chosen from private data.

    A run under a plan is user-level (ε, δ)-differentially private: neighbouring inputs differ in one
    user with all of that user's documents.

    Attributes:
      epsilon: ε > 0 of the whole run.
      delta: δ in (0, 1) of the whole run; well below one over the number of users.
      max_length: T, words in the longest gram.
      max_contributions: Δ, distinct grams a user adds in one round of a length: one number, or one
        per length; by default 300, "one_round" 100.
      spurious_fraction: η in (0, 1): expected spurious k-grams per released (k−1)-gram, at most.
      pruning: "both": a valid gram's prefix and suffix are released; "single": its prefix and last
        word.
      valid_count: "exact" or "estimate" (the paper's EstimateValidKgrams; pruning "both" only).
      vocabulary_delta_share: δ_T/δ in (0, 1); the rest is δ_G, for the noise; by default 0.1,
        "one_round" 0.5; 0 with a public vocabulary, which needs none.
      noise_growth: c in σ_k = c·σ_{k−1}; 1, the default, is the same noise at every length
        ("one_round" only).
      budget_shares: f_k, one per length, summing to 1, instead of noise_growth ("one_round" only).
      rounds: rounds of each length k ≥ 2, 1 to 3; by default 3 ("adaptive" only).
      user_budgets: "individual", by default: each user divides one budget among lengths by what it
        holds; "even": an equal part for each length ("adaptive" only).
      vocabulary_policy: how words are found: by the strategy itself ("rounds", for "one_round"
        "weighted_gaussian"), the defaults; "public": they are given, and cost nothing; or by another
        policy of set union, with the same part of the budget as each other length: of μ² under
        Gaussian noise, of ε and δ under Laplace noise, which composes by addition only.
      max_tokens_per_user: tokens of one user that are looked at; bounds the numerical slack.
      strategy: "adaptive", or "one_round", the paper's algorithm.
      adjacency: "add_or_remove_one_user", the only one.

    Raises:
      ValueError: naming the parameter, its requirement and the value.

    Example:
      >>> plan = PrivacyPlan(
      ...     epsilon=1, delta=1e-7, max_length=6, max_contributions=10, strategy="one_round")
      >>> [round(length.noise_stddev, 3) for length in plan.lengths][:2]
      [11.779, 11.779]
      >>> PrivacyPlan.from_json(plan.to_json()) == plan
      True

    References: DPNE Theorem 2.1.
    """

    epsilon: float
    delta: float
    max_length: int = 5
    max_contributions: int | tuple[int, ...] | None = None
    spurious_fraction: float = 0.01
    pruning: str = "both"
    valid_count: str = "exact"
    vocabulary_delta_share: float | None = None
    noise_growth: float | None = None
    budget_shares: tuple[float, ...] | None = None
    rounds: int | None = None
    user_budgets: str | None = None
    vocabulary_policy: str | None = None
    max_tokens_per_user: int = 1_000_000
    strategy: str = "adaptive"
    adjacency: str = ADJACENCY

    def __post_init__(self):
        _check_choice("strategy", self.strategy, STRATEGIES)
        self._take_defaults()
        _check_choice("vocabulary_policy", self.vocabulary_policy, VOCABULARY_POLICIES)
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
        if not 0 < self.spurious_fraction < 1:
            raise ValueError(
                "spurious_fraction must be in (0, 1), got "
                f"spurious_fraction={self.spurious_fraction}."
            )
        self._check_vocabulary()
        if self.is_adaptive:
            self._check_adaptive()
        else:
            self._check_growth()
        _check_choice("pruning", self.pruning, PRUNING_RULES)
        _check_choice("valid_count", self.valid_count, VALID_COUNTS)
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
        if self.is_adaptive:
            adaptive.user_budget(self.noise_stddev)

    @property
    def is_adaptive(self) -> bool:
        """Whether users have one budget for all rounds, instead of one weight at each length."""
        return self.strategy == "adaptive"

    @property
    def has_public_vocabulary(self) -> bool:
        """Whether the words are given instead of found."""
        return self.vocabulary_policy == "public"

    @property
    def has_union_vocabulary(self) -> bool:
        """Whether words are found by a set union instead of the strategy's first length."""
        own = _DEFAULTS[self.strategy]["vocabulary_policy"]
        return self.vocabulary_policy not in ("public", own)

    @property
    def private_lengths(self) -> range:
        """The lengths on which budget is spent."""
        return range(2 if self.has_public_vocabulary else 1, self.max_length + 1)

    @property
    def strategy_lengths(self) -> range:
        """The lengths that are found by the strategy."""
        return self.private_lengths[1:] if self.has_union_vocabulary else self.private_lengths

    @property
    def union_share(self) -> float:
        """The part of the budget that a set union has for the words; 0 without one."""
        return self._shares()[0] if self.has_union_vocabulary else 0.0

    @property
    def _apart(self) -> float:
        """The part of ε and δ that composes by addition: a set union's with Laplace noise."""
        return self.union_share if self.vocabulary_policy in LAPLACE_POLICIES else 0.0

    def rounds_of(self, length: int) -> int:
        """Returns how often a length is looked at."""
        if length not in self.private_lengths:
            return 0
        if length not in self.strategy_lengths:
            return _UNION_ROUNDS
        if not self.is_adaptive:
            return 1
        return len(adaptive.rounds_of(length, self.rounds or 1))

    @property
    def round_count(self) -> int:
        """How often the data are looked at."""
        return sum(map(self.rounds_of, self.private_lengths))

    @property
    def allotment(self) -> int:
        """What a user may spend before it runs dry, in units of 2^-56 ("adaptive" only).

        On all lengths together, or with even budgets on each.
        """
        whole = adaptive.user_budget(self.noise_stddev / math.sqrt(1 - self._union_part))
        return whole // len(self.strategy_lengths) if self.user_budgets == "even" else whole

    @property
    def _union_part(self) -> float:
        """The part of μ² that a set union with Gaussian noise has."""
        return self.union_share - self._apart

    @property
    def numerical_slack(self) -> float:
        """What floating point may cost of ε, subtracted before the noise is calibrated.

        Every decision's probability is right to a relative 1e-12 with and without the user, and a
        user changes at most max_tokens_per_user decisions in a round.
        """
        decisions = self.round_count * self.max_tokens_per_user
        of_union = UNION_SLACK if self.has_union_vocabulary else 0.0
        return decisions * RELATIVE_ERROR_PER_DECISION + of_union

    @property
    def gaussian_delta(self) -> float:
        """δ_G, spent on the noise of all lengths; the slack's factor e^−slack is taken off too."""
        rest = self.delta * (1 - self._apart) * (1 - self._delta_share)
        return rest * math.exp(-self.numerical_slack)

    @property
    def vocabulary_delta(self) -> float:
        """δ_T, spent on words that one user alone holds, less the slack's factor."""
        return self.delta * self._delta_share * math.exp(-self.numerical_slack)

    @property
    def _delta_share(self) -> float:
        return 0.0 if self._apart else self.vocabulary_delta_share or 0.0

    @functools.cached_property
    def noise_stddev(self) -> float:
        """The noise σ of one Gaussian mechanism as private as all lengths together.

        Raised by a relative 1e-10: more than the errors of the root and of the shares' sum.
        """
        exact = calibration.gaussian_noise_stddev(
            epsilon=self.epsilon * (1 - self._apart) - self.numerical_slack,
            delta=self.gaussian_delta,
        )
        return exact * (1 + 1e-10)

    @functools.cached_property
    def lengths(self) -> tuple[LengthPlan, ...]:
        """What is known of each length k = 1..T before the data."""
        return self._adaptive_lengths() if self.is_adaptive else self._one_round_lengths()

    def _one_round_lengths(self) -> tuple[LengthPlan, ...]:
        shares = self._shares()[-len(self.strategy_lengths) :]
        # What Laplace noise has spent apart leaves the whole of the rest to these lengths.
        shares = tuple(share / (1 - self._apart) for share in shares)
        stddevs = calibration.split_noise_stddev(self.noise_stddev, shares)
        limits = self.contribution_limits
        lengths = [
            LengthPlan(
                length=length,
                max_contributions=limits[length - 1],
                budget_share=share,
                noise_stddev=stddev,
                threshold=self._one_round_threshold(stddev) if length == 1 else None,
            )
            for length, share, stddev in zip(self.strategy_lengths, shares, stddevs, strict=True)
        ]
        return (*self._other_lengths(), *lengths)

    def _adaptive_lengths(self) -> tuple[LengthPlan, ...]:
        lengths = []
        even = 1 / len(self.strategy_lengths) if self.user_budgets == "even" else None
        for length in self.strategy_lengths:
            limit = self.contribution_limits[length - 1]
            rules = ()
            if length == 1:
                rules = adaptive.vocabulary_rounds(
                    allotment=self.allotment, delta=self.vocabulary_delta, max_contributions=limit
                )
            lengths.append(
                LengthPlan(
                    length=length,
                    max_contributions=limit,
                    budget_share=even,
                    noise_stddev=1.0,
                    threshold=rules[-1].threshold if rules else None,
                    rounds=adaptive.rounds_of(length, self.rounds or 1),
                    word_rules=rules,
                )
            )
        return (*self._other_lengths(), *lengths)

    def _other_lengths(self) -> tuple[LengthPlan, ...]:
        """Length 1, where the strategy does not find it: a public vocabulary or a set union."""
        if 1 in self.strategy_lengths:
            return ()
        limit = 0 if self.has_public_vocabulary else self.contribution_limits[0]
        return (
            LengthPlan(
                length=1,
                max_contributions=limit,
                budget_share=self.union_share,
                noise_stddev=0.0,
                threshold=None,
            ),
        )

    def _shares(self) -> tuple[float, ...]:
        if self.budget_shares:
            return calibration.normalise_shares(self.budget_shares)
        return calibration.growth_shares(self.noise_growth or 1.0, len(self.private_lengths))

    def _one_round_threshold(self, noise_stddev: float) -> float:
        return calibration.vocabulary_threshold(
            noise_stddev=noise_stddev,
            delta=self.vocabulary_delta,
            max_contributions=self.contribution_limits[0],
        )

    @property
    def contribution_limits(self) -> tuple[int, ...]:
        """Δ_k for each length; no user has more grams than max_tokens_per_user."""
        given = self.max_contributions or 0
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

    def _take_defaults(self) -> None:
        """Sets what was left out to the strategy's default; refuses what it does not have."""
        defaults = _DEFAULTS[self.strategy]
        for name in _OF_ONE_STRATEGY:
            if name not in defaults and getattr(self, name) is not None:
                raise ValueError(
                    f"{name} must be left out with strategy={self.strategy!r}, which does not have "
                    f"it, got {name}={getattr(self, name)!r}."
                )
        if self.has_public_vocabulary and self.vocabulary_delta_share is None:
            object.__setattr__(self, "vocabulary_delta_share", 0.0)
        for name, value in defaults.items():
            if getattr(self, name) is None:
                object.__setattr__(self, name, value)

    def _check_vocabulary(self) -> None:
        """Checks δ_T's part, and that something is left to find."""
        share = self.vocabulary_delta_share
        if self.has_public_vocabulary:
            if share != 0:
                raise ValueError(
                    "vocabulary_delta_share must be left out with a public vocabulary, which needs "
                    f"none, got vocabulary_delta_share={share}."
                )
            if self.max_length == 1:
                raise ValueError(
                    "max_length must be at least 2 with a public vocabulary, got max_length=1."
                )
            return
        if self.has_union_vocabulary:
            self._check_union()
        if share is None or not 0 < share < 1:
            raise ValueError(
                f"vocabulary_delta_share must be in (0, 1), got vocabulary_delta_share={share}."
            )

    def _check_union(self) -> None:
        if self.vocabulary_policy == "rounds":
            raise ValueError(
                "vocabulary_policy must not be 'rounds' with strategy='one_round': rounds divide the "
                "budgets of strategy='adaptive'."
            )
        if self.max_length == 1:
            raise ValueError(
                "max_length must be at least 2 with another vocabulary_policy than the strategy's "
                f"own, got vocabulary_policy={self.vocabulary_policy!r}: use PrivateSetUnion."
            )

    def _check_adaptive(self) -> None:
        """Checks what only "adaptive" has, and refuses what it does not have."""
        if self.budget_shares is not None:
            raise ValueError(
                "budget_shares must be left out with strategy='adaptive', where each user divides a "
                f"budget of its own, got budget_shares={self.budget_shares}."
            )
        if self.valid_count != "exact":
            raise ValueError(
                "valid_count must be 'exact' with strategy='adaptive', got "
                f"valid_count={self.valid_count!r}."
            )
        _check_integer("rounds", self.rounds, 1)
        _check_choice("rounds", self.rounds, tuple(adaptive.GRAM_ROUNDS))
        _check_choice("user_budgets", self.user_budgets, adaptive.USER_BUDGETS)
        if self.spurious_fraction > adaptive.MAX_SPURIOUS_FRACTION:
            raise ValueError(
                f"spurious_fraction must be at most {adaptive.MAX_SPURIOUS_FRACTION} with "
                "strategy='adaptive', beyond which some thresholds do not exist, got "
                f"spurious_fraction={self.spurious_fraction}."
            )

    def _check_growth(self) -> None:
        growth = self.noise_growth or 0.0
        if not (math.isfinite(growth) and growth > 0):
            raise ValueError(
                f"noise_growth must be a finite number > 0, got noise_growth={growth}."
            )
        if min(calibration.growth_shares(growth, len(self.private_lengths))) < _MIN_SHARE:
            raise ValueError(
                f"noise_growth must leave each length a share of at least {_MIN_SHARE}, got "
                f"noise_growth={growth} with max_length={self.max_length}; move it nearer to 1."
            )

    def _normalise(self) -> None:
        """Turns lists (from JSON) into tuples and whole numbers into floats, so plans compare."""
        for name in ("epsilon", "delta", "spurious_fraction"):
            object.__setattr__(self, name, _as_float(name, getattr(self, name)))
        for name in ("vocabulary_delta_share", "noise_growth"):
            if getattr(self, name) is not None:
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
        _check_count("budget_shares", self.budget_shares, len(self.private_lengths))
        if self.noise_growth not in (None, 1.0):
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


def _check_choice(name: str, value: Any, choices: Sequence[Any]) -> None:
    if value not in choices:
        listed = ", ".join(map(str, choices))
        raise ValueError(f"{name} must be one of {listed}, got {name}={value!r}.")
