"""The parameters of the commands that read releases alone: account, export and report.

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
class Adding(Parameters):
    """The total of several releases."""

    ledgers: Annotated[
        tuple[str, ...] | None,
        Parameter(
            path="directory",
            help="Releases about the same users, each by its directory or its ledger, e.g. "
            "releases/2026-01 or gs://bucket/ledgers/2026-01.json. Their files are not read, and "
            "may be gone. A release that is named twice is refused.",
        ),
    ] = None
    delta: Annotated[
        float | None,
        Parameter(
            above=0,
            below=1,
            default_text="sum of the ledgers",
            help="δ of the total, e.g. 1e-6. A larger δ gives a smaller ε. With create it is the "
            "δ of the cap, and required.",
        ),
    ] = None
    same_users: Annotated[
        bool,
        Parameter(
            help="State that the units in the ledgers' notes are the same users, though their "
            "names differ. Otherwise such ledgers are refused.",
        ),
    ] = False
    json: Annotated[bool, Parameter(help="Print JSON instead of tables.")] = False


@dataclasses.dataclass(frozen=True, kw_only=True)
class Keeping(Parameters):
    """A budget, and a change of it."""

    budget: Annotated[
        str | None,
        Parameter(
            help="Folder with the budget of one population, e.g. budgets/shop or "
            "gs://bucket/budgets/shop. Alone it is shown, after a check of every ledger.",
        ),
    ] = None
    create: Annotated[
        bool,
        Parameter(
            help="Make a new budget with population, epsilon and delta, in a folder without one.",
        ),
    ] = False
    population: Annotated[
        str | None,
        Parameter(
            pattern=r"[^\x00-\x20\x7f][^\x00-\x1f\x7f]*",
            requirement="one line of text",
            help="Name of the population, e.g. 'customers of the shop'. It is required with "
            "create, and refused otherwise. Use one budget for all releases about users who may "
            "be the same people.",
        ),
    ] = None
    epsilon: Annotated[
        float | None,
        Parameter(
            above=0,
            help="Largest ε of all releases together, e.g. 8. It is required with create, and "
            "refused otherwise.",
        ),
    ] = None
    add: Annotated[
        bool,
        Parameter(
            help="Add the ledgers that are named to the budget. They count even above the cap, "
            "since they have been spent; further runs are then refused.",
        ),
    ] = False
    settle: Annotated[
        str | None,
        Parameter(
            help="Name of a run whose launcher could not replace its note by the ledger of its "
            "release; this does so.",
        ),
    ] = None
    remove: Annotated[
        str | None,
        Parameter(
            help="Name of a failed run whose note is removed. You state that its job has ended "
            "and that nobody has read a file of it; a directory with files of a release is "
            "refused.",
        ),
    ] = None


@dataclasses.dataclass(frozen=True, kw_only=True)
class Exporting(Parameters):
    """An export."""

    release: Annotated[str, _RELEASE]
    to: Annotated[
        str,
        Parameter(
            help="Kind of the export: tokenizers is the tokenizer.json of Hugging Face, arpa a "
            "back-off language model, aosp the word list of Android's keyboard, elasticsearch "
            "NDJSON for a completion field, csv a CSV for spreadsheets, duckdb a SQL script that "
            "makes a database, and card the README.md of a data set on the Hugging Face Hub.",
        ),
    ]
    output: Annotated[
        str,
        Parameter(
            help="File to write, e.g. tokenizer.json or gs://bucket/exports/titles.csv. "
            "Directories that do not exist are made. A file inside a release is refused, unless "
            "it is a card.",
        ),
    ]
    overwrite: Annotated[bool, Parameter(help="Replace a file that exists.")] = False
    locale: Annotated[
        str | None,
        Parameter(
            help="Locale of the keyboard, e.g. en or pt_BR. aosp needs it, and other kinds refuse it."
        ),
    ] = None
    kept_back: Annotated[
        float | None,
        Parameter(
            least=0,
            below=1,
            default_text="0.4, other kinds none",
            help="Share of probability that each context of arpa keeps for words that do not "
            "follow it in the release. Released n-grams are a part of those in the texts, so a "
            "small share promises too much. It is refused with other kinds and for a release of "
            "beam-dpne bayesian.",
        ),
    ] = None
    public: Annotated[
        str | None,
        Parameter(
            help="The public counts of a release of beam-dpne bayesian, for arpa: the same text, "
            "file or release as its parameter public. arpa needs it then, and refuses another "
            "file. The model also lists public n-grams that are not in the release.",
        ),
    ] = None
    min_count: Annotated[
        int | None,
        Parameter(
            least=1,
            default_text="1, only with public",
            help="Least public count of the n-grams of two words and more that arpa lists beside "
            "those of the release. With 2 the file is much smaller and the model a little worse.",
        ),
    ] = None
    license: Annotated[
        str | None,
        Parameter(
            help="The Hugging Face Hub's name of the licence of the release, e.g. cc-by-4.0, for "
            "card. By default the card states no licence. Other kinds refuse it.",
        ),
    ] = None


@dataclasses.dataclass(frozen=True, kw_only=True)
class Reporting(Parameters):
    """A report."""

    release: Annotated[str, _RELEASE]
    output: Annotated[
        str | None,
        Parameter(
            default_text="report.html; Markdown report.md",
            help="File for the report, e.g. reports/titles.html or "
            "gs://bucket/reports/titles.html. A file inside a release is refused. Directories "
            "that do not exist are made.",
        ),
    ] = None
    overwrite: Annotated[bool, Parameter(help="Replace a report that is already there.")] = False
    format: Annotated[
        str | None,
        Parameter(
            choices=("html", "markdown"),
            default_text="markdown for an output that ends in .md, else html",
            help="Format of the report. html has plots and a search box, makes no request and "
            "needs no other file. markdown has the same text and tables.",
        ),
    ] = None
    public: Annotated[
        bool,
        Parameter(
            help="Make a report for the public: leave out title, contact, fields, tokenizer, "
            "versions and operator, and whatever leave_out names. The guarantee, its limits and "
            "the files stay in. The ledger of the release states what is left out all the same.",
        ),
    ] = False
    leave_out: Annotated[
        tuple[str, ...] | None,
        Parameter(
            choices=(
                "title",
                "contact",
                "unit",
                "fields",
                "tokenizer",
                "versions",
                "operator",
                "top",
                "search",
                "parameters",
            ),
            help="Parts of the report to leave out.",
        ),
    ] = None
    search_rows: Annotated[
        int,
        Parameter(
            least=0,
            help="Largest number of rows that the search box of an HTML report holds, those with "
            "the largest values of each length. The report says how many are left out. 100,000 "
            "n-grams make a file of about 3 MB.",
        ),
    ] = 100_000
