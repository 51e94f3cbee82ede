"""The parameters that name public lists."""

import dataclasses
from typing import Annotated

from beam_dpne.validation import Parameter, Parameters

# The longest n-grams that public counts may have.
MAX_COUNTED_LENGTH = 5
KNOWN_MIN_COUNT = 5

# Also of a forecast.
Known = Annotated[
    str | tuple[str, ...] | None,
    Parameter(
        "Likely n-grams or items, which need less evidence: a public text, one document a line, a "
        "table with a column ngram or item (csv, tsv, jsonl, parquet), lines ngram<TAB>count, or the "
        "directory of a release. Never a sample of the private data.",
        path="files",
    ),
]
MIN_COUNT = Parameter(
    "Least count of a known n-gram: how often it stands in its text, or the number in the column "
    "count of its table.",
    least=1,
    in_short_help=False,
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class KnownLists(Parameters):
    """The lists of n-grams or items that a run knows."""

    known: Known = None
    known_min_count: Annotated[int, MIN_COUNT] = KNOWN_MIN_COUNT
    known_same_people: Annotated[
        bool,
        Parameter(
            "Known releases are of the same users: users of this input, so that the budgets of all "
            "add up (beam-dpne account)."
        ),
    ] = False

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.known_same_people and self.known is None:
            raise ValueError(
                "`known_same_people` must be given with `known`, which names the releases about the "
                "same people."
            )


@dataclasses.dataclass(frozen=True, kw_only=True)
class PublicCounting(Parameters):
    """The public n-grams of `beam-dpne bayesian`."""

    public: Annotated[
        str,
        Parameter(
            "Public n-grams, never from the private data. They are a text, one document a line; lines "
            "ngram<TAB>count, or a table with columns ngram and count (csv, tsv, jsonl, parquet); or "
            "the directory of a release.",
            path="file",
        ),
    ]


@dataclasses.dataclass(frozen=True, kw_only=True)
class ListedPhrases(Parameters):
    """Where the list is whose users `beam-dpne count` counts."""

    phrases: Annotated[
        str,
        Parameter(
            "Public phrases or items, one a line. A table with a column ngram or item (csv, tsv, "
            "jsonl, parquet) and the directory of a release are lists, too. Never made from the "
            "private data, other than as a release.",
            path="file",
        ),
    ]
    phrases_same_people: Annotated[
        bool,
        Parameter(
            "The release that gives the phrases is of the same users: users of this input, so that the "
            "budgets of both add up (beam-dpne account).",
            in_short_help=False,
        ),
    ] = False


@dataclasses.dataclass(frozen=True, kw_only=True)
class CountedPhrases(Parameters):
    """In which groups the phrases of a list are counted, and what is done with those of no text."""

    groups: Annotated[
        tuple[str, ...] | None,
        Parameter(
            "Public groups, in each of which every phrase is counted, with group_field; a table "
            "with a column group has its own pairs instead.",
        ),
    ] = None
    unmakeable: Annotated[
        str,
        Parameter(
            choices=("refuse", "leave_out"),
            in_short_help=False,
            help="What is done with phrases that the tokenizer cannot make of any text, and with those "
            "that it makes equal to another phrase of the list.",
        ),
    ] = "refuse"
