"""The parameters of a run that are not those of a plan or of the reading room.

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
            path="files",
            help="Files to read: a path, a glob or a folder, local or on any Beam file system, "
            "e.g. gs://bucket/notes/*.jsonl.gz, or several of them. A folder stands for the files "
            "in it, which must have one format; names that begin with . or _ are left out. Gzip, "
            "bzip2 and zstd are decompressed by extension; archives such as .zip are refused.",
        ),
    ]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Tokenizing(Parameters):
    """How texts become tokens."""

    tokenizer: Annotated[
        str | None,
        Parameter(
            pattern=f"words|unicode_words|whitespace|tokens|item|{_NAME}:{_NAME}",
            requirement="words, unicode_words, whitespace, tokens, item or package.module:function",
            default_text="words; whitespace for sequences; in an evaluation that of the release",
            help="How texts become words or items. words takes runs of letters, digits, their "
            "marks, _ and inner apostrophes, lower-cased, and fits most languages with blanks. "
            "unicode_words uses Unicode's word boundaries, fits Chinese, Japanese or Thai, and "
            "needs the extra unicode. whitespace splits at blanks. tokens means that the text "
            "field is a list of tokens or items already, item that each text is one item. "
            "package.module:function names your own function over an Arrow string array; it must "
            "treat each text alone, or the guarantee is void.",
        ),
    ] = None


@dataclasses.dataclass(frozen=True, kw_only=True)
class Rejecting(Parameters):
    """What is done with records that cannot be used."""

    rejects: Annotated[
        str | None,
        Parameter(
            path="directory",
            help="Directory of the operator for a list of rejected records, e.g. "
            "gs://bucket/rejects, with file, position and reason of each, without its text. It is "
            "as private as the data, and refused inside a release. By default rejected records "
            "are only counted.",
        ),
    ] = None
    max_rejected: Annotated[
        float,
        Parameter(
            least=0,
            most=1,
            rare=True,
            help="Largest share of the records that may be rejected. Above it the run fails "
            "before anything is released, and reports how many records were rejected for which "
            "reason, which finds files that are read in a wrong format or encoding. 1 allows "
            "everything.",
        ),
    ] = 0.05
    strict: Annotated[
        bool,
        Parameter(
            rare=True,
            help="Fail at the first rejected record instead of continuing without it. A failed "
            "run releases nothing.",
        ),
    ] = False


@dataclasses.dataclass(frozen=True, kw_only=True)
class PlanFile(Parameters):
    """A file of parameters."""

    plan: Annotated[
        str | None,
        Parameter(
            path="file",
            help="JSON file with parameters of this command by their names, rare ones included, "
            "e.g. an approved plan as written by beam-dpne plan. A parameter that is in the file "
            "must not be given beside it.",
        ),
    ] = None


@dataclasses.dataclass(frozen=True, kw_only=True)
class Writing(Parameters):
    """The release as files."""

    output: Annotated[
        str,
        Parameter(
            path="directory",
            help="Directory of the release, e.g. gs://bucket/releases/2025-01, which gets the "
            "files of rows and, last, ledger.json. Use a new directory for each run; one with "
            "files in it is refused.",
        ),
    ]
    output_format: Annotated[
        str,
        Parameter(
            choices=("jsonl", "tsv", "parquet"),
            help="Format of the files of rows. The release is the same in each.",
        ),
    ] = "jsonl"
    overwrite: Annotated[
        bool,
        Parameter(
            help="Replace a release that is already in the output directory. The budget of the "
            "first release stays spent: for anybody who has seen both, the budgets of the two add "
            "up."
        ),
    ] = False


@dataclasses.dataclass(frozen=True, kw_only=True)
class Running(Parameters):
    """How a pipeline runs."""

    run_key_file: Annotated[
        str | None,
        Parameter(
            path="file",
            default_text="a fresh key for each run",
            help="File with the run key, 64 hexadecimal digits, e.g. gs://bucket/secret/run.key, "
            "which the launcher and every worker can read. One key gives the same release for the "
            "same input, parameters, tokenizer and way of reading. Keep it as secret as the data. "
            "Using one key on two different inputs, filtered rows included, voids the guarantee, "
            "and so does using it with two of your tokenizers of one name and version.",
        ),
    ] = None
    partitions: Annotated[
        int | None,
        Parameter(
            least=1,
            rare=True,
            default_text="by the size of the input",
            help="Number of parts into which users are divided. A worker holds one part at a "
            "time, so too few parts fill its memory. The number does not change the release.",
        ),
    ] = None
    workers: Annotated[
        int | None,
        Parameter(
            least=0,
            most=MOST_WORKERS,
            default_text="the cores that this process may use; 0 on an engine",
            help="Number of threads in which one worker does everything in one step. 0 makes a "
            "graph of many steps, which an engine spreads over its workers. On an engine one step "
            "is faster if the corpus fits into the memory of one worker. The number does not "
            "change the release.",
        ),
    ] = None
    side_input_limit: Annotated[
        int,
        Parameter(
            least=1,
            rare=True,
            help="Size in bytes above which a set of n-grams reaches the workers as a file in the "
            "temporary location, which is as private as the data, instead of directly. A larger "
            "limit needs more memory on every worker. It does not change the release.",
        ),
    ] = 64 * 2**20
    harness_timeout: Annotated[
        int,
        Parameter(
            least=0,
            rare=True,
            help="Seconds in which the workers of an engine must have done a first step, before "
            "the job is sent. Raise it where workers take long to start; 0 sends the job without "
            "that step.",
        ),
    ] = 120


@dataclasses.dataclass(frozen=True, kw_only=True)
class Budgeting(Parameters):
    """The budget of a population."""

    budget: Annotated[
        str | None,
        Parameter(
            help="Folder with the budget of the population, as made by beam-dpne account, e.g. "
            "budgets/customers. A run that would exceed it together with the runs so far is refused "
            "before it starts. A run counts from its start. By default no budget is kept.",
        ),
    ] = None


@dataclasses.dataclass(frozen=True, kw_only=True)
class FailureLogging(Parameters):
    """The failure log."""

    failure_log: Annotated[
        str | None,
        Parameter(
            help="Local file for the whole failure of a run, e.g. private/failure.log: tracebacks "
            "of the launcher and, where the engine hands them on, of its workers, which may quote "
            "texts and are never printed. It is as private as the data, can be read by its owner "
            "alone, and is refused inside a release.",
        ),
    ] = None


@dataclasses.dataclass(frozen=True, kw_only=True)
class Quiet(Parameters):
    """The display."""

    quiet: Annotated[
        bool,
        Parameter(help="Print no progress and no log lines on stderr; errors are still printed."),
    ] = False


@dataclasses.dataclass(frozen=True, kw_only=True)
class PublicCounting(Parameters):
    """The public n-grams of `beam-dpne bayesian`."""

    public: Annotated[
        str,
        Parameter(
            path="file",
            help="Public n-grams with the numbers of their occurrences elsewhere, e.g. "
            "gs://bucket/public.txt.gz: a text with one document in each line, which the same "
            "tokenizer splits; or a file of counts with lines ngram<TAB>count; or the directory "
            "of a release of n-grams. Only these n-grams get a probability. They must not be made "
            "from the private data.",
        ),
    ]
