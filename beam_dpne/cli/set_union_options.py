"""The options of `beam-dpne set-union`: those of `ngrams`, in its own words, and the policies'."""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

from beam_dpne.cli.options import (
    NAME_PATTERN,
    PUBLIC_USER_COUNT,
    READING,
    RUNNING,
    WRITING,
    Option,
    integer,
    number,
)
from beam_dpne.set_union.policies import DEFAULT_POLICY, POLICIES

_DOTTED = f"{NAME_PATTERN}(\\.{NAME_PATTERN})*"


def changed(options: Sequence[Option], **changes: Mapping[str, Any]) -> tuple[Option, ...]:
    """Returns options with other fields for those named."""
    return tuple(dataclasses.replace(option, **changes.get(option.name, {})) for option in options)


ITEMS_READING = changed(
    READING,
    tokenizer={
        "form_pattern": f"words|unicode_words|whitespace|tokens|item|{_DOTTED}:{_DOTTED}",
        "help": "How texts become items. words (runs of letters, digits, their marks, _ and "
        "inner apostrophes, lower-cased); unicode_words (Unicode's word boundaries; extra unicode); "
        "whitespace; tokens (the text field is a list of items, of any "
        "characters); item (each text is one item, as it is); or package.module:function over an Arrow "
        "string array, which must treat each text alone, or the guarantee is void. For sequences the "
        "default is whitespace. An unknown name is refused.",
    },
)

SET_UNION = (
    Option(
        name="epsilon",
        parse=number,
        help="Privacy budget ε > 0 of the whole run, per user. Required; 1 to 4 is common, above 10 "
        "little is protected, and a smaller one releases fewer items.",
    ),
    Option(
        name="delta",
        parse=number,
        help="Privacy budget δ in (0, 1) of the whole run, per user. Required; well below one over "
        "the number of users, e.g. 1e-7 for a million users. A larger one may expose single users.",
    ),
    Option(
        name="policy",
        default=DEFAULT_POLICY,
        choices=POLICIES,
        help="How users divide their weight among their items. count_*: one for each; weighted_*: "
        "evenly; policy_*: to the items that need it, users one after the other; screened_gaussian: "
        "that in two rounds, the second about what the first leaves open; greedy: to a user's most "
        "frequent items first; mad: what is too much is given back and spent again.",
    ),
    Option(
        name="max_contributions",
        default=100,
        parse=integer,
        help="Distinct items that one user adds, Δ ≥ 1. About what a typical user holds is sensible; "
        "more raises threshold or noise for nothing. It must not be read off the private data.",
    ),
    Option(
        name="cutoff_margin",
        parse=number,
        shown_default="5, mad 2, others none",
        help="How far over the threshold items are filled, in scales of the noise, ≥ 0. Only of "
        "policy_*, screened_gaussian, greedy and mad; refused with others.",
    ),
    Option(
        name="shards",
        parse=integer,
        shown_default="2, others none",
        help="Parts into which users are divided, at least 1; each fills a histogram of its own, in "
        "sequence, on one worker. More scale out and release a little less. Only of policy_*, "
        "screened_gaussian and greedy; refused with others.",
    ),
    Option(
        name="max_shard_users",
        default=5_000_000,
        parse=integer,
        help="Users that one worker takes in sequence, at most, at least 1; max_users/shards above it "
        "is refused. Raise it where workers have the memory and the time.",
    ),
    Option(
        name="vocabulary_delta_share",
        parse=number,
        shown_default="0.5, Laplace none",
        help="Part of delta for items that only one user holds, in (0, 1); the rest goes into the "
        "noise. Refused with Laplace noise and greedy, which need no other delta.",
    ),
    Option(
        name="max_users",
        default=10_000_000,
        parse=integer,
        help="Users that the input has at most, at least 1: a promise of yours, never checked against "
        "the data. Under policy_*, screened_gaussian, greedy and mad the bound on rounding rests on "
        "it; with others it is ignored. Choose a round number well above what is known in public.",
    ),
    Option(
        name="max_items_per_user",
        default=1_000_000,
        parse=integer,
        help="Items of one user that are looked at, with repetitions, at least 1; of users with more, "
        "a random part of their texts is.",
    ),
    PUBLIC_USER_COUNT,
)

ITEMS_WRITING = changed(
    WRITING,
    output={
        "help": "Directory of the release, e.g. gs://bucket/releases/2025-01: items-* files and "
        "ledger.json, written last. A new one for each run; one with files in it is refused.",
    },
    output_format={
        "help": "Format of the files of items, whichever their reader wants; the release is the same.",
    },
)

# No set travels there.
ITEMS_RUNNING = tuple(option for option in RUNNING if option.name != "side_input_limit")
