"""The parameters of runs that are not those of a plan, of reading, or of notes.

Each class is one group of parameters, defined as `validation.Parameter` says, of which commands, keys
of YAML, launch forms and Airflow's operators are made. This module is loaded without Beam.
"""

import dataclasses
from typing import Annotated

from beam_dpne.validation import Parameter, Parameters

# Far more processes than cores only take memory.
MOST_WORKERS = 256
# A reader cuts what it has read into so many blocks, which for many more than are ever needed take more
# than the texts: 40 MiB each are 40 TiB.
MOST_PARTITIONS = 2**20
# The names of `masks.MASK_NAMES`, `folding.FOLDS` and `masks.KEPT`.
MASKS = ("urls", "emails", "mentions", "numbers", "html")
FOLDS = ("apostrophes", "width", "compatibility", "case")
KEPT = ("emoji", "hashtags", "mentions")
TOKENIZERS = ("words", "unicode_words", "icu_words", "whitespace", "tokens", "item")
_NAME = r"[A-Za-z_][A-Za-z0-9_]*(\.[A-Za-z_][A-Za-z0-9_]*)*"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Input(Parameters):
    """The files of a run."""

    input: Annotated[
        str | tuple[str, ...],
        Parameter(
            "Files to read: a path, glob, folder or lake table. There may be several, e.g. "
            "gs://bucket/notes/*.jsonl.gz. Their extensions say how they are compressed.",
            path="files",
        ),
    ]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Tokenizing(Parameters):
    """How texts become tokens."""

    tokenizer: Annotated[
        str | None,
        Parameter(
            "How texts become words: words, icu_words (for Chinese, Japanese, Thai, too), "
            "unicode_words, whitespace, tokens (texts are lists), item (a text is one item), or your "
            "function of each text alone.",
            names=TOKENIZERS,
            pattern=f"{'|'.join(TOKENIZERS)}|{_NAME}:{_NAME}",
            requirement=f"{', '.join(TOKENIZERS)} or package.module:function",
            default_text="words; whitespace for sequences; in an evaluation that of the release",
        ),
    ] = None
    item_separator: Annotated[
        str | None,
        Parameter(
            "Text between the items of a record, e.g. a semicolon, if each text is a list of items.",
            pattern=r"[^\r\n]{1,8}",
            requirement="1 to 8 characters",
            value="TEXT",
        ),
    ] = None
    mask: Annotated[
        tuple[str, ...] | None,
        Parameter(
            "What is left out of each text: emails, urls, numbers, mentions, html (tags; entities are "
            "decoded), or several with commas.",
            choices=MASKS,
        ),
    ] = None
    fold: Annotated[
        tuple[str, ...] | None,
        Parameter(
            "What is made one in each text: apostrophes (all signs for one), width (full-width forms), "
            "compatibility (Unicode's form KC), case (full folding), or several with commas.",
            choices=FOLDS,
            in_short_help=False,
        ),
    ] = None
    keep: Annotated[
        tuple[str, ...] | None,
        Parameter(
            "What stays one word: emoji, hashtags, mentions, or several with commas.",
            choices=KEPT,
            in_short_help=False,
        ),
    ] = None
    stop_list: Annotated[
        str | None,
        Parameter(
            "File of public words that are left out of each text. Each line has one, or a phrase.",
            path="file",
        ),
    ] = None

    def name(self, default: str = "words") -> str:
        """Returns the name of the tokenizer."""
        return self.tokenizer or ("item" if self.item_separator else default)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Rejecting(Parameters):
    """What is done with records that cannot be used."""

    rejects: Annotated[
        str | None,
        Parameter(
            "Directory for a list of rejected records: file, position and reason. It is outside "
            "releases, and as private as the data.",
            path="directory",
        ),
    ] = None
    max_rejected: Annotated[
        float,
        Parameter(
            "Largest share of rejected records; above it the run fails.",
            least=0,
            most=1,
            in_short_help=False,
        ),
    ] = 0.05


@dataclasses.dataclass(frozen=True, kw_only=True)
class PlanFile(Parameters):
    """A file of parameters."""

    plan: Annotated[
        str | None,
        Parameter(
            "JSON file with any of the parameters by their names. A parameter in it must not be given "
            "beside it.",
            path="file",
        ),
    ] = None


@dataclasses.dataclass(frozen=True, kw_only=True)
class Writing(Parameters):
    """The release as files."""

    output: Annotated[
        str,
        Parameter(
            "New directory of the release. It is local or e.g. gs://bucket/releases/2025-01, and "
            "complete when it has ledger.json.",
            path="directory",
        ),
    ]
    output_format: Annotated[
        str,
        Parameter(
            "Format of the files of rows. A csv has each text exactly, also what a spreadsheet would "
            "compute; the export csv is for spreadsheets.",
            choices=("jsonl", "csv", "tsv", "parquet"),
        ),
    ] = "jsonl"
    overwrite: Annotated[
        bool, Parameter("Replace a release in the output directory; the budgets of both add up.")
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
            most=MOST_PARTITIONS,
            in_short_help=False,
            default_text="by the size of the input",
        ),
    ] = None
    workers: Annotated[
        int | None,
        Parameter(
            "Number of processes on this machine, where no engine does the work. The release is the "
            "same.",
            least=1,
            most=MOST_WORKERS,
            default_text="the cores that this process may use; fewer for a short input",
        ),
    ] = None
    side_input_limit: Annotated[
        int,
        Parameter(
            "Bytes above which a set reaches workers as a file.", least=1, in_short_help=False
        ),
    ] = 64 * 2**20
    harness_timeout: Annotated[
        int,
        Parameter(
            "Seconds for a first step of workers; 0 is no limit.", least=0, in_short_help=False
        ),
    ] = 120
    budget: Annotated[
        str | None, Parameter("Folder of a budget; a run above it is refused.", value="DIR")
    ] = None
    series: Annotated[
        str | None,
        Parameter(
            "Folder of a series, whose next release this is; it gives epsilon and delta.",
            path="directory",
            in_short_help=False,
        ),
    ] = None
    participants: Annotated[
        str | None,
        Parameter(
            "Private folder of the series, with digests of the users who took part. It is as secret as "
            "the data.",
            path="directory",
            in_short_help=False,
        ),
    ] = None


@dataclasses.dataclass(frozen=True, kw_only=True)
class FailureLogging(Parameters):
    """The failure log."""

    failure_log: Annotated[
        str | None,
        Parameter("Local file for what a failure withholds, as private as data.", value="FILE"),
    ] = None


@dataclasses.dataclass(frozen=True, kw_only=True)
class Quiet(Parameters):
    """The display."""

    quiet: Annotated[
        bool, Parameter("Print no progress and no table of a release; errors and warnings remain.")
    ] = False
