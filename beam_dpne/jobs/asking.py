"""The parameters of forecasts, evaluations and accounts, each group as `parameters` has them."""

import dataclasses
from typing import Annotated

from beam_dpne.jobs.programs import PROGRAMS
from beam_dpne.lists.parameters import KNOWN_MIN_COUNT, MIN_COUNT, Known
from beam_dpne.validation import MAX_USERS, Parameter, Parameters

RELEASE = Parameter("Directory of the release, local or e.g. gs://bucket/out.", path="directory")
Overwriting = Annotated[bool, Parameter("Replace a file that exists.")]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Planning(Parameters):
    """What `beam-dpne plan` does with a plan, and a forecast of a release."""

    program: Annotated[str, Parameter("Program of the plan.", choices=tuple(PROGRAMS))] = "ngrams"
    releases: Annotated[
        int | None, Parameter("Number of equal releases that share epsilon and delta.", least=1)
    ] = None
    releases_per_user: Annotated[
        tuple[int, ...] | None,
        Parameter(
            "Numbers of releases of a series in which one user takes part at most; each is planned.",
            least=1,
        ),
    ] = None
    output: Annotated[str | None, Parameter("File for the plan, JSON.", value="FILE")] = None
    overwrite: Overwriting = False
    users: Annotated[
        int | None,
        Parameter("Public number of users to forecast.", least=1, most=MAX_USERS, essential=True),
    ] = None
    like: Annotated[
        str | tuple[str, ...] | None,
        Parameter(
            "Public text that resembles the private one, or titles for a built-in profile: it gives a "
            "forecast. It must never be a sample of the private data.",
            essential=True,
            path="files",
        ),
    ] = None
    documents_per_user: Annotated[
        float | None,
        Parameter(
            "Mean number of documents of a user, where the text names none.",
            least=1,
            most=10_000,
            in_short_help=False,
        ),
    ] = None
    known: Known = None
    known_min_count: Annotated[int, MIN_COUNT] = KNOWN_MIN_COUNT
    epsilons: Annotated[
        tuple[float, ...] | None,
        Parameter("ε of the forecast.", above=0, default_text="half of epsilon, it, and twice it"),
    ] = None


@dataclasses.dataclass(frozen=True, kw_only=True)
class Evaluating(Parameters):
    """An evaluation."""

    release: Annotated[str, RELEASE]
    output: Annotated[
        str | None, Parameter("Directory for tables, as private as the data.", path="directory")
    ] = None
    top_k: Annotated[
        int, Parameter("Number of n-grams compared.", least=1, in_short_help=False)
    ] = 20
    known: Annotated[
        str | tuple[str, ...] | None,
        Parameter(
            "The lists that the run knew. Known and new n-grams are judged apart.", path="files"
        ),
    ] = None


@dataclasses.dataclass(frozen=True, kw_only=True)
class Accounting(Parameters):
    """The total of several releases, and a budget."""

    ledgers: Annotated[
        tuple[str, ...] | None,
        Parameter("Releases, each by its directory or a copy of its ledger.", path="directory"),
    ] = None
    delta: Annotated[
        float | None,
        Parameter(
            "δ of the total, or of the cap; a larger δ gives a smaller ε.",
            above=0,
            below=1,
            default_text="sum of the ledgers",
        ),
    ] = None
    same_users: Annotated[bool, Parameter("All ledgers are about the same users.")] = False
    json: Annotated[bool, Parameter("Print JSON instead of tables.")] = False
    budget: Annotated[
        str | None, Parameter("Folder of a budget; alone it is shown.", value="DIR")
    ] = None
    create: Annotated[bool, Parameter("Make a budget of population, epsilon and delta.")] = False
    population: Annotated[str | None, Parameter("Name of all users, for create.", value="NAME")] = (
        None
    )
    epsilon: Annotated[float | None, Parameter("ε of the cap, for create.", above=0)] = None
    add: Annotated[bool, Parameter("Add ledgers to the budget, even above the cap.")] = False
    settle: Annotated[str | None, Parameter("Release whose run has only a note.", value="DIR")] = (
        None
    )
    remove: Annotated[
        str | None,
        Parameter("Note to remove: its run has ended, and nobody has a file of it.", value="NOTE"),
    ] = None
