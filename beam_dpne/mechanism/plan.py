"""What all plans share: a budget, its division, its reserve, and the JSON form of their parameters."""

import dataclasses
import functools
import json
from collections.abc import Sequence
from typing import Annotated, Any, ClassVar, TypeVar

from beam_dpne.mechanism import gaussian
from beam_dpne.mechanism.randomness import NORMAL_END
from beam_dpne.validation import (
    DELTA,
    EPSILON,
    MAX_USERS,
    Parameter,
    Parameters,
    check_choice,
    json_parameters,
    made_from,
)

TokensPerUser = Annotated[
    int,
    Parameter(
        least=1,
        most=MAX_USERS,
        in_short_help=False,
        help="Largest number of tokens of one user that are read. Users above it keep a random subset "
        "of their documents.",
    ),
]
_ADJACENCY = "add_or_remove_one_user"
_MIN_DELTA = 1e-20
_LARGEST_ADVISED_DELTA = 1e-6
_SMALLEST_ADVISED_EPSILON = 1e-6
_Plan = TypeVar("_Plan", bound="GaussianPlan")


@dataclasses.dataclass(frozen=True, kw_only=True)
class GaussianPlan(Parameters):
    """The base of plans, whose fields are all parameters of a run: its noise is Gaussian throughout.

    `program` names the program that runs the plan, and `decides_defaults` the parameter on which
    defaults of others depend. No release follows from those of `decides_nothing`. A plan under which a
    threshold protects what one user alone has says by `vocabulary_delta_share` which part of δ that
    takes.
    """

    program: ClassVar[str]
    decides_defaults: ClassVar[str]
    decides_nothing: ClassVar[Sequence[str]] = ("public_user_count", "adjacency")

    epsilon: Annotated[float, EPSILON]
    delta: Annotated[float, DELTA]
    public_user_count: Annotated[
        int | None,
        Parameter(
            "Number of users of the input, if it is public; it must never be counted in the private "
            "data. A delta above one over it is refused, and a count of a list has no number above it; "
            "other releases do not change.",
            least=1,
            in_short_help=False,
        ),
    ] = None
    adjacency: str = _ADJACENCY

    def __post_init__(self) -> None:
        super().__post_init__()
        check_choice("adjacency", self.adjacency, (_ADJACENCY,))
        delta = self.delta
        users = self.public_user_count
        if delta < _MIN_DELTA:
            raise ValueError(
                f"`delta` must be at least {_MIN_DELTA}, got `{delta=}`: noise of 128 random bits "
                "has no values that are as rare."
            )
        if users is not None and delta * users > 1:
            raise ValueError(
                f"`delta` must be at most 1/public_user_count={1 / users:.3g}, got `{delta=}` and "
                f"`public_user_count={users}`: with more, a run that publishes everything about "
                "one user would be within the guarantee. Lower `delta` to well below that."
            )

    @property
    def sensitivity(self) -> float:
        """The largest ℓ2 distance by which one user moves what gets the noise."""
        return 1.0

    @property
    def count_noise(self) -> Any:
        """The noise of the measurement of users; None if nothing is measured."""
        return None

    @property
    def decisions(self) -> int:
        """The number of decisions and numbers that one user changes, at most."""
        raise NotImplementedError

    @property
    def numerical_slack(self) -> float:
        """The most that floating point may cost of ε; it is a part of the reserve."""
        return gaussian.slack_of(self.decisions)

    @property
    def far_tails(self) -> float:
        """The most that noise in far tails may cost of δ; it is a part of the reserve."""
        return gaussian.far_tails(self.decisions, epsilon=self.epsilon)

    @property
    def gaussian_epsilon(self) -> float:
        """The ε for which the noise of the run is calibrated: ε less the reserve."""
        return gaussian.usable_epsilon(self.epsilon)

    @property
    def gaussian_delta(self) -> float:
        """δ_G, which the noise of the run spends."""
        return self._usable_delta * (1 - self._vocabulary_share)

    @property
    def vocabulary_delta(self) -> float:
        """δ_T, spent on words or items that one user alone holds."""
        return self._usable_delta * self._vocabulary_share

    @functools.cached_property
    def noise_stddev(self) -> float:
        """σ of one Gaussian mechanism of this sensitivity, as private as the whole run.

        It is raised by a margin for the errors of the root and of sums of shares.
        """
        exact = gaussian.gaussian_noise_stddev(
            epsilon=self.gaussian_epsilon, delta=self.gaussian_delta
        )
        return exact * self.sensitivity * (1 + gaussian.ROOT_MARGIN)

    @property
    def mu(self) -> float:
        """μ, the sensitivity over σ, all rounds together."""
        return self.sensitivity / self.noise_stddev

    def check_reserve(self, remedy: str) -> None:
        """Refuses a plan whose reserve does not pay for floating point and far tails.

        Args:
          remedy: a sentence about other parameters that can be changed.

        Raises:
          ValueError: if ε or δ is too small for the other. The message says what would be enough.
        """
        epsilon = self.epsilon
        delta = self.delta
        slack = self.numerical_slack
        lost = self.far_tails
        kept = gaussian.RESERVED
        if slack > kept * epsilon:
            raise ValueError(
                f"`epsilon` must be at least {1.01 * slack / kept:.3g}, got `{epsilon=}`: the "
                f"numerical slack {slack:.2g} must be at most epsilon/1000. {remedy}"
            )
        if lost > kept * delta:
            enough = 1.01 * lost / kept
            largest = self._largest_epsilon()
            needed = []
            # A large δ protects nobody, so that it is only named where no ε helps.
            if enough < _LARGEST_ADVISED_DELTA or not largest:
                needed.append(f"`delta` must be at least {enough:.3g} with `{epsilon=}`")
            if largest:
                needed.append(
                    f"`epsilon` must be at most {largest:.3g} with `{delta=}`, got `{epsilon=}`"
                )
            raise ValueError(
                f"{', or '.join(needed)}. With so little noise, the values beyond {NORMAL_END:.1f} "
                "standard deviations, which noise of 128 random bits does not have, would weaken the "
                f"guarantee by more than delta/1000. {remedy}"
            )

    def _largest_epsilon(self) -> float:
        """Returns the largest ε whose far tails the reserve of δ pays for, rounded down to 3 digits.

        It is 0 if there is none above a millionth.
        """

        def fits(epsilon: float) -> bool:
            # It is not checked as plans are, which would ask for the largest ε again.
            trial = object.__new__(type(self))
            for field in dataclasses.fields(self):
                object.__setattr__(trial, field.name, getattr(self, field.name))
            object.__setattr__(trial, "epsilon", epsilon)
            return trial.far_tails <= gaussian.RESERVED * self.delta

        smallest = _SMALLEST_ADVISED_EPSILON
        if not fits(smallest):
            return 0.0
        return gaussian.largest_rounded(fits, smallest, self.epsilon, digits=3)

    def to_dict(self) -> dict[str, Any]:
        """Returns the parameters as JSON types."""
        return dataclasses.asdict(self)

    def to_json(self) -> str:
        """Returns the parameters as a JSON object; inverse of `from_json`."""
        return json.dumps(self.to_dict(), indent=2) + "\n"

    def key_parameters(self) -> dict[str, Any]:
        """Returns ε, δ and the resolved parameters that differ from their defaults, as JSON types.

        A run key is bound to them (`key_context`). So a parameter that goes, or one that is added,
        changes no release in which it has its default.
        """
        cls = type(self)
        chosen = self.decides_defaults
        values = {"epsilon": 1.0, "delta": 1e-6, chosen: getattr(self, chosen)}
        plain = made_from(cls, values).to_dict()
        default = next(field.default for field in dataclasses.fields(cls) if field.name == chosen)
        plain = plain | {"epsilon": None, "delta": None, chosen: default}
        return {
            name: value
            for name, value in self.to_dict().items()
            if value != plain[name] and name not in self.decides_nothing
        }

    @classmethod
    def from_json(cls: type[_Plan], text: str) -> _Plan:
        """Reads a plan written by `to_json`; absent parameters take their defaults.

        Raises:
          ValueError: if it is not a JSON object, or has a parameter that plans do not have.
        """
        values = json_parameters(text, [field.name for field in dataclasses.fields(cls)])
        if missing := {"epsilon", "delta"} - set(values):
            raise ValueError(
                f"`plan` must have {' and '.join(sorted(missing))}, without a default."
            )
        return made_from(cls, values)

    @property
    def _usable_delta(self) -> float:
        return gaussian.usable_delta(epsilon=self.epsilon, delta=self.delta)

    @property
    def _vocabulary_share(self) -> float:
        return getattr(self, "vocabulary_delta_share", None) or 0.0
