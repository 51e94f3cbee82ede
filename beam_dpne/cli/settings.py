"""The parameters of `beam-dpne plan`, `evaluate` and `audit`.

They are defined as `validation.Parameter` says, and loaded without Beam.
"""

import dataclasses
from typing import Annotated

from beam_dpne.validation import Parameter, Parameters

_RELEASE = Parameter(
    path="directory",
    help="Directory of the release, e.g. release/titles or gs://bucket/releases/2025-01. A "
    "release that is incomplete or damaged is refused.",
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Planning(Parameters):
    """What `beam-dpne plan` does with a plan."""

    releases: Annotated[
        int | None,
        Parameter(
            least=1,
            help="Number of equal releases about the same users, e.g. 12 for a year of months. "
            "epsilon and delta are then the budget of all of them together, and the plan is that "
            "of one. By default they are the budget of one release.",
        ),
    ] = None
    output: Annotated[
        str | None,
        Parameter(
            help="File for the plan as JSON, e.g. plan.json or gs://bucket/plan.json. By default "
            "it is not written.",
        ),
    ] = None


@dataclasses.dataclass(frozen=True, kw_only=True)
class Forecasting(Parameters):
    """A forecast of a release."""

    users: Annotated[
        int | None,
        Parameter(
            least=1,
            help="Number of users of the release to come, e.g. 100000. It must be public: state a "
            "round number, and never count it in the private data. It is required with like.",
        ),
    ] = None
    like: Annotated[
        str | tuple[str, ...] | None,
        Parameter(
            path="files",
            help="Public text that resembles the private one, as files like the input of "
            "beam-dpne ngrams, or titles for a built-in profile of Reddit titles. From it and the "
            "number of users follows a forecast: released n-grams, users that an n-gram needs, "
            "and the width of counts. It must never be a sample of the private data.",
        ),
    ] = None
    documents_per_user: Annotated[
        float | None,
        Parameter(
            least=1,
            most=10_000,
            rare=True,
            default_text="the users of the text",
            help="Mean number of documents of a user, e.g. 8. The documents of the public text "
            "are then dealt to made-up users, few of whom have many. Give it where the public "
            "text names no users.",
        ),
    ] = None
    epsilons: Annotated[
        tuple[float, ...] | None,
        Parameter(
            above=0,
            default_text="half of epsilon, epsilon, and twice epsilon",
            help="Privacy budgets ε of the forecast, e.g. 0.5, 1, 2 and 4. All other parameters "
            "are those of the plan.",
        ),
    ] = None
    seed: Annotated[
        int,
        Parameter(
            least=0,
            most=2**31,
            rare=True,
            help="Seed of the made-up users and runs of the forecast. The same seed, text and "
            "plan give the same forecast. It has no effect on a release.",
        ),
    ] = 0


@dataclasses.dataclass(frozen=True, kw_only=True)
class Evaluating(Parameters):
    """An evaluation."""

    release: Annotated[str, _RELEASE]
    output: Annotated[
        str | None,
        Parameter(
            path="directory",
            help="Directory of the operator for tables (JSON, CSV) and plots (PNG), e.g. "
            "gs://bucket/evaluations. Files of an earlier evaluation there are replaced. It is as "
            "private as the data, and refused inside a release. By default the tables are only "
            "printed.",
        ),
    ] = None
    k_anonymity: Annotated[
        tuple[int, ...],
        Parameter(
            least=1,
            rare=True,
            help="Numbers of users k, e.g. 1, 10 and 100. For each k, the evaluation reports the "
            "released share of the n-grams that at least k users have.",
        ),
    ] = (1, 2, 5, 10, 20, 50, 100)
    top_k: Annotated[
        int,
        Parameter(
            least=1,
            rare=True,
            help="Size k of the tops that are compared for each length: the k n-grams that most "
            "users have, and the first k of the release by users and by score.",
        ),
    ] = 20
    strict: Annotated[
        bool,
        Parameter(
            rare=True, help="Fail at the first rejected record instead of continuing without it."
        ),
    ] = False


@dataclasses.dataclass(frozen=True, kw_only=True)
class Auditing(Parameters):
    """An audit."""

    mechanism: Annotated[
        str,
        Parameter(choices=("ngrams", "set-union", "bayesian"), help="Mechanism to attack."),
    ]
    epsilon: Annotated[
        float | None, Parameter(above=0, help="ε of the plan, where no file has it.")
    ] = None
    delta: Annotated[
        float | None, Parameter(above=0, below=1, help="δ of the plan, where no file has it.")
    ] = None
    plan: Annotated[
        str | None,
        Parameter(
            path="file",
            help="JSON file with the parameters of the plan to attack, e.g. as written by beam-dpne "
            "plan. By default the mechanism has its default parameters.",
        ),
    ] = None
    runs: Annotated[
        int,
        Parameter(
            least=200,
            most=10_000_000,
            help="Number of runs of each game with the user, and as many without. Time grows with "
            "it, and so does the power. A small ε needs more than the default.",
        ),
    ] = 20_000
    confidence: Annotated[
        float,
        Parameter(
            above=0,
            below=1,
            help="Probability, at least, with which all printed bounds hold together.",
        ),
    ] = 0.99
    seed: Annotated[
        int,
        Parameter(
            least=0,
            help="Seed of all runs. The same parameters and seed give the same result. Choose one "
            "of yours, so that nobody can have chosen it for you.",
        ),
    ] = 1
    json: Annotated[bool, Parameter(help="Print JSON instead of a table.")] = False
