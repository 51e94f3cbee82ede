"""The parameters of commands of this face alone, each group as `jobs.parameters` has them."""

import dataclasses
from typing import Annotated

from beam_dpne.jobs.asking import RELEASE, Overwriting
from beam_dpne.release.report import PARTS
from beam_dpne.validation import Parameter, Parameters

# The names of `exports.trained.MODELS` and of `exports.writing.KINDS`, which are loaded when an export
# is made.
TRAINED = ("bpe", "unigram", "wordpiece", "wordlevel")
EXPORTS = ("tokenizers", "arpa", "csv", "card")


_LENGTH = Parameter("Number of words of the rows.", least=1)
_TOP = Parameter("Rows of each length, those with the largest values.", least=1)
_AT_LEAST = Parameter(
    "Least users of a row; where rows have no numbers of users, least score or probability.",
    least=0,
)
PROGRAMS = ("ngrams", "set-union", "bayesian", "count")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Checking(Parameters):
    """A check of an input."""

    program: Annotated[str, Parameter("Program of the run.", choices=PROGRAMS)]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Auditing(Parameters):
    """An audit."""

    program: Annotated[str, Parameter("Program to attack.", choices=PROGRAMS)]
    runs: Annotated[int, Parameter("Runs with the user, and without.", least=200, most=10**7)] = (
        20_000
    )
    releases: Annotated[
        int | None,
        Parameter(
            "Number of releases of a series that is attacked as a whole.", least=1, most=9999
        ),
    ] = None
    releases_per_user: Annotated[
        int | None,
        Parameter("Number of them in which one user takes part at most.", least=1, most=9999),
    ] = None
    seed: Annotated[int, Parameter("Seed of all runs; choose one of yours.", least=0)] = 1
    json: Annotated[bool, Parameter("Print JSON instead of a table.")] = False


@dataclasses.dataclass(frozen=True, kw_only=True)
class CreatingSeries(Parameters):
    """A new series."""

    folder: Annotated[
        str, Parameter("New folder of the series, whose files are public.", path="directory")
    ]
    participants: Annotated[
        str,
        Parameter(
            "New folder for digests of the users who take part, as secret as the data.",
            path="directory",
        ),
    ]
    releases: Annotated[int, Parameter("Largest number of releases.", least=1, most=9999)]
    releases_per_user: Annotated[
        int,
        Parameter(
            "Largest number of releases in which one user takes part. It must not be chosen by looking "
            "at the data.",
            least=1,
            most=9999,
        ),
    ]
    epsilon: Annotated[float, Parameter("ε of all releases together, per user.", above=0)]
    delta: Annotated[float, Parameter("δ of all releases together, per user.", above=0, below=1)]


@dataclasses.dataclass(frozen=True, kw_only=True)
class ShowingSeries(Parameters):
    """What a series has spent."""

    folder: Annotated[str, Parameter("Folder of the series.", path="directory")]
    json: Annotated[bool, Parameter("Print JSON instead of a table.")] = False


@dataclasses.dataclass(frozen=True, kw_only=True)
class Exporting(Parameters):
    """An export."""

    release: Annotated[str, RELEASE]
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
    model: Annotated[
        str | None,
        Parameter(
            "Model for tokenizers, trained on the released words instead of taking them as they are.",
            choices=TRAINED,
        ),
    ] = None
    vocabulary_size: Annotated[
        int | None,
        Parameter("Largest number of tokens of the model.", least=2, default_text="8000"),
    ] = None
    special_tokens: Annotated[
        tuple[str, ...] | None,
        Parameter(
            "Special tokens of the model, the first for what is unknown.",
            value="TOKENS",
            default_text="[UNK],[PAD]",
        ),
    ] = None
    bom: Annotated[bool, Parameter("Begin csv with the mark by which spreadsheets know UTF-8.")] = (
        False
    )
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

    release: Annotated[str, RELEASE]
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

    release: Annotated[str, RELEASE]
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
