"""The parameters of commands of this face alone, each group as `jobs.parameters` has them."""

import dataclasses
from typing import Annotated

from beam_dpne.jobs.asking import RELEASE, Overwriting
from beam_dpne.release.report import PARTS
from beam_dpne.validation import Parameter, Parameters

# The names of `exports.writing.KINDS`, which is loaded when an export is made.
EXPORTS = ("tokenizers", "arpa", "csv", "card")


PROGRAMS = ("ngrams", "set-union", "bayesian")


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
class Reporting(Parameters):
    """A report."""

    release: Annotated[str, RELEASE]
    output: Annotated[
        str, Parameter("File outside releases, in .html or .md.", essential=True, value="FILE")
    ] = "report.html"
    overwrite: Overwriting = False
    since: Annotated[str | None, Parameter("Earlier release, for changes.", value="DIR")] = None
    public: Annotated[
        bool, Parameter("Leave out title, contact, fields, tokenizer, versions and operator.")
    ] = False
    leave_out: Annotated[
        tuple[str, ...] | None, Parameter("Parts to leave out.", choices=tuple(PARTS), value="PART")
    ] = None
