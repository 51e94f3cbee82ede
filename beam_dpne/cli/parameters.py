"""The parameters of runs that are not those of a plan, of reading, or of notes.

Each class is one group of parameters, defined as `validation.Parameter` says. A command is a list of
such groups (`commands`); Beam YAML, launch forms and Airflow's operators take groups, too. This module
is loaded without Beam.
"""

import dataclasses
from typing import Annotated

from beam_dpne.validation import Parameter, Parameters

# Far more threads than cores only take memory.
MOST_WORKERS = 256
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
        int,
        Parameter("Bytes above which a set reaches workers as a file.", least=1, rare=True),
    ] = 64 * 2**20
    harness_timeout: Annotated[
        int,
        Parameter(
            "Seconds in which an engine's workers must do a first step; 0 omits it.",
            least=0,
            rare=True,
        ),
    ] = 120


@dataclasses.dataclass(frozen=True, kw_only=True)
class Budgeting(Parameters):
    """The budget of a population."""

    budget: Annotated[
        str | None,
        Parameter("Folder with a budget (beam-dpne account); a run above its cap is refused."),
    ] = None


@dataclasses.dataclass(frozen=True, kw_only=True)
class FailureLogging(Parameters):
    """The failure log."""

    failure_log: Annotated[
        str | None,
        Parameter("Local file for what a failed run withholds; it is as private as the data."),
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
