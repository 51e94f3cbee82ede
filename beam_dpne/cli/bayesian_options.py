"""The options of `beam-dpne bayesian`: those of `ngrams`, the public counts, and the modes'."""

from beam_dpne.cli.options import (
    PUBLIC_USER_COUNT,
    READING,
    RUNNING,
    WRITING,
    Option,
    integer,
    number,
)
from beam_dpne.cli.set_union_options import changed

PUBLIC = (
    Option(
        name="public",
        path="file",
        help="Public n-grams and how common they are elsewhere, e.g. gs://bucket/public.txt.gz: a "
        "text, one document a line, split by the same tokenizer; a file of counts, lines "
        "ngram<TAB>count; or the directory of a release of beam-dpne ngrams, whose scores count. Only "
        "these n-grams get a probability. It must not be made from the private data; one of the input "
        "files is refused.",
    ),
)

PROBABILITIES_READING = (*READING, *PUBLIC)

BAYESIAN = (
    Option(
        name="epsilon",
        parse=number,
        help="Privacy budget ε > 0 of the whole run, per user. Required; 0.1 to 1 is common here, "
        "above 10 little is protected, and a smaller one leans more on the public counts.",
    ),
    Option(
        name="delta",
        parse=number,
        help="Privacy budget δ in (0, 1) of the whole run, per user. Required; well below one over "
        "the number of users, e.g. 1e-7 for a million users. A larger one may expose single users.",
    ),
    Option(
        name="mode",
        default="counts",
        choices=("counts", "log_global"),
        help="The mechanism. counts: noise on the counts, then the posterior under the public counts; "
        "log_global: noise on decayed logarithms, with a bound over all databases.",
    ),
    Option(
        name="length",
        default=3,
        parse=integer,
        help="Words in an n-gram, 1 to 5. Public n-grams of another length are refused.",
    ),
    Option(
        name="vocabulary_size",
        default=50_000,
        parse=integer,
        help="Public n-grams that are kept, the most frequent ones, at least 1. More cover more of the "
        "private texts; each has noise of its own.",
    ),
    Option(
        name="max_count",
        default=1,
        parse=integer,
        help="How often one user's n-gram counts, C, at least 1. Noise grows with it; 1 counts users. "
        "It must not be read off the private data.",
    ),
    Option(
        name="max_contributions",
        default=10,
        parse=integer,
        help="Distinct public n-grams that one user adds, W, at least 1. Noise grows with its root; "
        "about what a typical user holds is sensible. It must not be read off the private data.",
    ),
    Option(
        name="public_weight",
        parse=number,
        shown_default="log_global by the noise, counts none",
        help="Weight of the public logarithms, 1 − ρ, in [0, 1); the private ones have the rest. Only "
        "of log_global, refused with counts, which fits it to the noisy counts.",
    ),
    Option(
        name="decay",
        parse=number,
        shown_default="0.01, counts none",
        help="S, 1e-6 to 1e6: an n-gram of N users counts min(1, S·N/C), so that rare ones need less "
        "noise. Only of log_global, refused with counts.",
    ),
    Option(
        name="max_tokens_per_user",
        default=1_000_000,
        parse=integer,
        help="Tokens of one user that are looked at, at least 1; of users with more, a random part of "
        "their documents is.",
    ),
    PUBLIC_USER_COUNT,
)

ARPA = Option(
    name="arpa",
    help="File for a back-off language model in ARPA format, e.g. model.arpa, made from the "
    "probabilities after the run. One that exists is refused without overwrite, and so is any with a "
    "template, whose launcher does not wait.",
)

PROBABILITIES_WRITING = (
    *changed(
        WRITING,
        output={
            "help": "Directory of the release, e.g. gs://bucket/releases/2025-01: probabilities-* "
            "files and ledger.json, written last. A new one for each run; one with files in it is "
            "refused.",
        },
        output_format={
            "help": "Format of the files of probabilities, whichever their reader wants; the release "
            "is the same.",
        },
    ),
    ARPA,
)

# No released set travels there.
PROBABILITIES_RUNNING = tuple(option for option in RUNNING if option.name != "side_input_limit")
