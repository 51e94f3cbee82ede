"""The parameters of commands that are not those of a plan, of reading, or of notes.

Each class is one group of parameters, defined as `validation.Parameter` says, of which commands, keys
of YAML, launch forms and Airflow's operators are made. This module is loaded without Beam.
"""

import dataclasses
from typing import Annotated

from beam_dpne.report import PARTS
from beam_dpne.validation import MAX_USERS, Parameter, Parameters

# Far more threads than cores only take memory.
MOST_WORKERS = 256
_RELEASE = Parameter("Directory of the release, local or e.g. gs://bucket/out.", path="directory")
# The names of `exports.writing.KINDS`, which is loaded when an export is made.
EXPORTS = ("tokenizers", "arpa", "aosp", "elasticsearch", "csv", "card")
_NAME = r"[A-Za-z_][A-Za-z0-9_]*(\.[A-Za-z_][A-Za-z0-9_]*)*"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Input(Parameters):
    """The files of a run."""

    input: Annotated[
        str | tuple[str, ...],
        Parameter(
            "Files to read: a path, a glob or a folder, e.g. gs://bucket/notes/*.jsonl.gz, or several. "
            "Gzip, bzip2 and zstd are decompressed by extension.",
            path="files",
        ),
    ]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Tokenizing(Parameters):
    """How texts become tokens."""

    tokenizer: Annotated[
        str | None,
        Parameter(
            "How texts become words: words, unicode_words (for Chinese, Japanese, Thai, too), "
            "whitespace, tokens (texts are lists), item (a text is one item), or your function of each "
            "text alone.",
            pattern=f"words|unicode_words|whitespace|tokens|item|{_NAME}:{_NAME}",
            requirement="words, unicode_words, whitespace, tokens, item or package.module:function",
            default_text="words; whitespace for sequences; in an evaluation that of the release",
        ),
    ] = None


@dataclasses.dataclass(frozen=True, kw_only=True)
class Rejecting(Parameters):
    """What is done with records that cannot be used."""

    rejects: Annotated[
        str | None,
        Parameter(
            "Directory outside releases for a list of rejected records: file, position and reason. It "
            "is as private as the data.",
            path="directory",
        ),
    ] = None
    max_rejected: Annotated[
        float,
        Parameter(
            "Largest share of rejected records. Above it the run fails before anything is released.",
            least=0,
            most=1,
            rare=True,
        ),
    ] = 0.05
    strict: Annotated[bool, Parameter("Fail at the first rejected record.", rare=True)] = False


@dataclasses.dataclass(frozen=True, kw_only=True)
class PlanFile(Parameters):
    """A file of parameters."""

    plan: Annotated[
        str | None,
        Parameter(
            "JSON file with parameters by their names, rare ones included. A parameter in it must not "
            "be given beside it.",
            path="file",
        ),
    ] = None


@dataclasses.dataclass(frozen=True, kw_only=True)
class Writing(Parameters):
    """The release as files."""

    output: Annotated[
        str,
        Parameter(
            "New directory of the release, e.g. gs://bucket/releases/2025-01. It is complete when it "
            "has ledger.json.",
            path="directory",
        ),
    ]
    output_format: Annotated[
        str, Parameter("Format of the files of rows.", choices=("jsonl", "tsv", "parquet"))
    ] = "jsonl"
    overwrite: Annotated[
        bool,
        Parameter("Replace a release in the output directory; the budgets of both add up."),
    ] = False


@dataclasses.dataclass(frozen=True, kw_only=True)
class Running(Parameters):
    """How a pipeline runs."""

    run_key_file: Annotated[
        str | None,
        Parameter(
            "File with the run key, 64 hexadecimal digits, as secret as the data. One key gives the "
            "same release of the same input; with two inputs it voids the guarantee.",
            path="file",
            default_text="a fresh key for each run",
        ),
    ] = None
    partitions: Annotated[
        int | None,
        Parameter(
            "Number of parts of the users, one of which a worker holds at a time.",
            least=1,
            rare=True,
            default_text="by the size of the input",
        ),
    ] = None
    workers: Annotated[
        int | None,
        Parameter(
            "Number of threads of one worker that does everything in one step; 0 makes a graph of many "
            "steps, which an engine spreads. The release is the same.",
            least=0,
            most=MOST_WORKERS,
            default_text="the cores that this process may use; 0 on an engine",
        ),
    ] = None
    side_input_limit: Annotated[
        int, Parameter("Bytes above which a set reaches workers as a file.", least=1, rare=True)
    ] = 64 * 2**20
    harness_timeout: Annotated[
        int,
        Parameter(
            "Seconds in which an engine's workers must do a first step; 0 omits it.",
            least=0,
            rare=True,
        ),
    ] = 120
    budget: Annotated[
        str | None,
        Parameter("Folder with a budget (beam-dpne account); a run above it is refused."),
    ] = None


@dataclasses.dataclass(frozen=True, kw_only=True)
class FailureLogging(Parameters):
    """The failure log."""

    failure_log: Annotated[
        str | None,
        Parameter("Local file, as private as the data, for what a failed run withholds."),
    ] = None


@dataclasses.dataclass(frozen=True, kw_only=True)
class Quiet(Parameters):
    """The display."""

    quiet: Annotated[bool, Parameter("Print no progress; errors are still printed.")] = False


@dataclasses.dataclass(frozen=True, kw_only=True)
class PublicCounting(Parameters):
    """The public n-grams of `beam-dpne bayesian`."""

    public: Annotated[
        str,
        Parameter(
            "Public n-grams, never from the private data: a text with one document in each line, lines "
            "ngram<TAB>count, or the directory of a release.",
            path="file",
        ),
    ]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Planning(Parameters):
    """What `beam-dpne plan` does with a plan, and a forecast of a release."""

    releases: Annotated[
        int | None, Parameter("Number of equal releases that share epsilon and delta.", least=1)
    ] = None
    output: Annotated[str | None, Parameter("File for the plan as JSON, e.g. plan.json.")] = None
    users: Annotated[
        int | None, Parameter("Public number of users to forecast.", least=1, most=MAX_USERS)
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
        int, Parameter("Number of runs with the user, and without.", least=200, most=10_000_000)
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
        str | None, Parameter("Name of all users who may be the same people, for create.")
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
    to: Annotated[str, Parameter("Format, see the page on exports.", choices=EXPORTS)]
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
        tuple[str, ...] | None, Parameter("Parts of the report to leave out.", choices=tuple(PARTS))
    ] = None
    search_rows: Annotated[
        int, Parameter("Largest number of rows in the search box of HTML.", least=0)
    ] = 100_000
