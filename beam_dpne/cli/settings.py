"""The parameters of the commands that publish no release, each group as `parameters` has them."""

import dataclasses
from typing import Annotated

from beam_dpne.lists.parameters import KNOWN_MIN_COUNT, MIN_COUNT, Known
from beam_dpne.release.report import PARTS
from beam_dpne.validation import MAX_USERS, Parameter, Parameters

_RELEASE = Parameter("Directory of the release, local or e.g. gs://bucket/out.", path="directory")
# The names of `exports.writing.KINDS`, which is loaded when an export is made.
EXPORTS = ("tokenizers", "arpa", "csv", "card")


_LENGTH = Parameter("Number of words of the rows.", least=1)
_TOP = Parameter("Rows of each length, those with the largest values.", least=1)
_AT_LEAST = Parameter(
    "Least users of a row; where rows have no numbers of users, least score or probability.",
    least=0,
)
PROGRAMS = ("ngrams", "set-union", "bayesian")
Overwriting = Annotated[bool, Parameter("Replace a file that exists.")]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Checking(Parameters):
    """A check of an input."""

    program: Annotated[str, Parameter("Program of the run.", choices=PROGRAMS)]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Planning(Parameters):
    """What `beam-dpne plan` does with a plan, and a forecast of a release."""

    program: Annotated[str, Parameter("Program of the plan.", choices=PROGRAMS)] = "ngrams"
    releases: Annotated[
        int | None, Parameter("Number of equal releases that share epsilon and delta.", least=1)
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

    release: Annotated[str, _RELEASE]
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
class Auditing(Parameters):
    """An audit."""

    program: Annotated[str, Parameter("Program to attack.", choices=PROGRAMS)]
    runs: Annotated[int, Parameter("Runs with the user, and without.", least=200, most=10**7)] = (
        20_000
    )
    seed: Annotated[int, Parameter("Seed of all runs; choose one of yours.", least=0)] = 1
    json: Annotated[bool, Parameter("Print JSON instead of a table.")] = False


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


@dataclasses.dataclass(frozen=True, kw_only=True)
class Exporting(Parameters):
    """An export."""

    release: Annotated[str, _RELEASE]
    to: Annotated[
        str, Parameter("Format, see the page on exports.", choices=EXPORTS, value="FORMAT")
    ]
    output: Annotated[str, Parameter("File to write, outside the release.", value="FILE")]
    overwrite: Overwriting = False
    at_least: Annotated[float | None, _AT_LEAST] = None
    top: Annotated[int | None, _TOP] = None
    group: Annotated[str | None, Parameter("Group for tokenizers and arpa.")] = None
    public: Annotated[
        str | None, Parameter("Public counts, for arpa of bayesian.", value="FILE")
    ] = None
    license: Annotated[str | None, Parameter("Licence for card, e.g. cc-by-4.0.")] = None


@dataclasses.dataclass(frozen=True, kw_only=True)
class Comparing(Parameters):
    """A comparison of two releases."""

    releases: Annotated[
        tuple[str, ...], Parameter("The old release and the new one.", path="directory")
    ]
    output: Annotated[
        str | None, Parameter("File for the rows: .jsonl, .csv or .parquet.", value="FILE")
    ] = None
    overwrite: Overwriting = False


@dataclasses.dataclass(frozen=True, kw_only=True)
class Showing(Parameters):
    """A first look at a release."""

    release: Annotated[str, _RELEASE]
    length: Annotated[int | None, _LENGTH] = None
    top: Annotated[
        int | None,
        Parameter(
            "Rows of each length, those with the largest values.",
            least=1,
            default_text="10 in a table, all in csv and jsonl",
        ),
    ] = None
    at_least: Annotated[float | None, _AT_LEAST] = None
    group: Annotated[str | None, Parameter("Group of the rows.")] = None
    format: Annotated[
        str, Parameter("How rows are printed.", choices=("table", "csv", "jsonl"), value="FORMAT")
    ] = "table"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Reporting(Parameters):
    """A report."""

    release: Annotated[str, _RELEASE]
    output: Annotated[
        str, Parameter("File outside releases, in .html or .md.", essential=True, value="FILE")
    ] = "report.html"
    overwrite: Overwriting = False
    at_least: Annotated[float | None, _AT_LEAST] = None
    top: Annotated[int, _TOP] = 20
    since: Annotated[str | None, Parameter("Earlier release, for changes.", value="DIR")] = None
    public: Annotated[
        bool, Parameter("Leave out title, contact, fields, tokenizer, versions and operator.")
    ] = False
    leave_out: Annotated[
        tuple[str, ...] | None, Parameter("Parts to leave out.", choices=tuple(PARTS), value="PART")
    ] = None
