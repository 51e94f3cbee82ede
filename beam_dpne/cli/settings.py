"""The parameters of the commands that do not publish: plan, evaluate, account, export, report, audit.

They are defined as `validation.Parameter` says, and loaded without Beam.
"""

import dataclasses
from typing import Annotated

from beam_dpne.validation import MAX_USERS, Parameter, Parameters

_RELEASE = Parameter("Directory of the release, local or e.g. gs://bucket/out.", path="directory")
_EXPORTS = (
    "Kind of the file: tokenizers (Hugging Face), arpa (a language model), aosp (a keyboard's words), "
    "elasticsearch (suggestions), csv, duckdb or card (a data card)."
)
_PARTS = (
    *("title", "contact", "unit", "fields", "tokenizer", "versions", "operator", "top", "search"),
    "parameters",
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Planning(Parameters):
    """What `beam-dpne plan` does with a plan, and a forecast of a release."""

    releases: Annotated[
        int | None, Parameter("Number of equal releases that share epsilon and delta.", least=1)
    ] = None
    output: Annotated[str | None, Parameter("File for the plan as JSON, e.g. plan.json.")] = None
    users: Annotated[
        int | None,
        Parameter("Number of users to forecast: public, never counted.", least=1, most=MAX_USERS),
    ] = None
    like: Annotated[
        str | tuple[str, ...] | None,
        Parameter(
            "Public text that resembles the private one, or titles for a built-in profile: it gives a "
            "forecast. It must never be a sample of the private data.",
            path="files",
        ),
    ] = None
    documents_per_user: Annotated[
        float | None,
        Parameter(
            "Mean number of documents of a user, where the text names no users.",
            least=1,
            most=10_000,
            rare=True,
        ),
    ] = None
    epsilons: Annotated[
        tuple[float, ...] | None,
        Parameter("ε of the forecast.", above=0, default_text="half of epsilon, it, and twice it"),
    ] = None


@dataclasses.dataclass(frozen=True, kw_only=True)
class Evaluating(Parameters):
    """An evaluation."""

    release: Annotated[str, _RELEASE]
    output: Annotated[
        str | None,
        Parameter("Directory for tables and a picture, as private as the data.", path="directory"),
    ] = None
    k_anonymity: Annotated[
        tuple[int, ...],
        Parameter("Numbers k: which part is released of what k users have.", least=1, rare=True),
    ] = (1, 2, 5, 10, 20, 50, 100)
    top_k: Annotated[
        int, Parameter("Number of first n-grams that are compared.", least=1, rare=True)
    ] = 20


@dataclasses.dataclass(frozen=True, kw_only=True)
class Auditing(Parameters):
    """An audit."""

    mechanism: Annotated[
        str, Parameter("Mechanism to attack.", choices=("ngrams", "set-union", "bayesian"))
    ]
    epsilon: Annotated[float | None, Parameter("ε, where no file has it.", above=0)] = None
    delta: Annotated[float | None, Parameter("δ, where no file has it.", above=0, below=1)] = None
    plan: Annotated[
        str | None, Parameter("JSON file with the parameters of the plan to attack.", path="file")
    ] = None
    runs: Annotated[
        int,
        Parameter("Number of runs with the user, and without.", least=200, most=10_000_000),
    ] = 20_000
    confidence: Annotated[
        float, Parameter("Confidence of all bounds together.", above=0, below=1)
    ] = 0.99
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
    same_users: Annotated[
        bool, Parameter("State that ledgers with different units are about the same users.")
    ] = False
    json: Annotated[bool, Parameter("Print JSON instead of tables.")] = False
    budget: Annotated[str | None, Parameter("Folder of a budget; alone it is shown.")] = None
    create: Annotated[
        bool, Parameter("Make a budget with population, epsilon and delta as its cap.")
    ] = False
    population: Annotated[
        str | None,
        Parameter(
            "Name of all users who may be the same people, for create.",
            pattern=r"[^\x00-\x20\x7f][^\x00-\x1f\x7f]*",
            requirement="one line of text",
        ),
    ] = None
    epsilon: Annotated[float | None, Parameter("ε of the cap, for create.", above=0)] = None
    add: Annotated[bool, Parameter("Add ledgers to the budget, even above the cap.")] = False
    settle: Annotated[
        str | None, Parameter("Release whose ledger replaces the note of its run.")
    ] = None
    remove: Annotated[
        str | None, Parameter("Note to remove: its run has ended, and nobody has a file of it.")
    ] = None


@dataclasses.dataclass(frozen=True, kw_only=True)
class Exporting(Parameters):
    """An export."""

    release: Annotated[str, _RELEASE]
    to: Annotated[str, Parameter(_EXPORTS)]
    output: Annotated[str, Parameter("File to write, e.g. tokenizer.json; outside the release.")]
    overwrite: Annotated[bool, Parameter("Replace a file that exists.")] = False
    locale: Annotated[str | None, Parameter("Locale of the keyboard, e.g. pt_BR, for aosp.")] = None
    kept_back: Annotated[
        float | None,
        Parameter(
            "Share of probability that arpa keeps for words that do not follow a context.",
            least=0,
            below=1,
            default_text="0.4 for arpa",
        ),
    ] = None
    public: Annotated[
        str | None, Parameter("Public counts of a release of bayesian, which arpa needs then.")
    ] = None
    min_count: Annotated[
        int | None, Parameter("Least public count of further n-grams of arpa.", least=1)
    ] = None
    license: Annotated[str | None, Parameter("Licence for card, e.g. cc-by-4.0.")] = None


@dataclasses.dataclass(frozen=True, kw_only=True)
class Reporting(Parameters):
    """A report."""

    release: Annotated[str, _RELEASE]
    output: Annotated[
        str, Parameter("File outside a release: HTML, or Markdown if its name ends in .md.")
    ] = "report.html"
    overwrite: Annotated[bool, Parameter("Replace a report that is already there.")] = False
    public: Annotated[
        bool, Parameter("Leave out title, contact, fields, tokenizer, versions and operator.")
    ] = False
    leave_out: Annotated[
        tuple[str, ...] | None, Parameter("Parts of the report to leave out.", choices=_PARTS)
    ] = None
    search_rows: Annotated[
        int, Parameter("Largest number of rows in the search box of HTML.", least=0)
    ] = 100_000
