"""The options of each command of `beam-dpne`: tables of what the others do not share."""

from beam_dpne.cli.options import (
    Option,
    Table,
    changed,
    integer,
    integers,
    number,
    numbers,
)
from beam_dpne.cli.shared_options import (
    FAILURE_LOG,
    FUNCTION_PATTERN,
    QUIET,
    READING,
    RUNNING,
    WRITING,
)
from beam_dpne.set_union.policy_names import DEFAULT_POLICY, POLICIES, VOCABULARY_POLICIES

K_ANONYMITY = (1, 2, 5, 10, 20, 50, 100)
# No set of released n-grams reaches the workers of the other programs.
_WITHOUT_SETS = tuple(option for option in RUNNING if option.name != "side_input_limit")


def _epsilon(advice: str) -> Option:
    budget = "Privacy budget ε > 0 of the whole run, per user."
    return Option(name="epsilon", parse=number, help=f"{budget} Required; {advice}")


_DELTA = Option(
    name="delta",
    parse=number,
    help="Privacy budget δ in (0, 1) of the whole run, per user. Required; well below one over "
    "the number of users, e.g. 1e-7 for a million users. A larger one may expose single users.",
)

_PUBLIC_USER_COUNT = Option(
    name="public_user_count",
    parse=integer,
    help="Number of users of the input, where it is public, e.g. 50000; it must never be counted in "
    "the private data. A delta above one over it is refused. Without it, a delta of 0.001 and more "
    "is warned about. Does not change the release.",
)

_NGRAMS_PRIVACY = (
    _epsilon(
        "1 to 4 is common for text, above 10 little is protected, and a smaller one releases fewer "
        "n-grams."
    ),
    _DELTA,
    Option(
        name="max_length",
        default=5,
        parse=integer,
        help="Words in the longest n-gram, T, 1 to 100. More lengths share the same budget, so that "
        "each has more noise.",
    ),
    Option(
        name="strategy",
        default="adaptive",
        choices=("adaptive", "one_round"),
        help="How users spend their budget. adaptive: each user divides one budget among lengths and "
        "rounds by what it holds, which releases about twice as much. one_round: the paper's, once per "
        "length.",
    ),
    Option(
        name="max_contributions",
        parse=integers,
        shown_default="300, one_round 100",
        help="Distinct n-grams that one user adds at one length (in each of its rounds), Δ ≥ 1: one "
        "number, or one for each length, e.g. 10,20,20. About what a typical user holds is sensible; "
        "more than users hold raises the threshold for nothing. It must not be read off the private "
        "data.",
    ),
    Option(
        name="spurious_fraction",
        default=0.01,
        parse=number,
        help="Tolerated n-grams that nobody holds, η in (0, 1): at most this fraction of the "
        "released n-grams one word shorter, in expectation. Larger releases more of both kinds.",
    ),
    Option(
        name="pruning",
        default="both",
        choices=("both", "single"),
        help="Which n-grams are candidates: both: prefix and suffix were released; single: prefix "
        "and last word were released. With both they are fewer, and the threshold is lower; the "
        "privacy is the same.",
    ),
    Option(
        name="valid_count",
        default="exact",
        choices=("exact", "estimate"),
        help="How candidates are counted: exact, or estimate as in the paper, which pruning=single "
        "refuses.",
    ),
    Option(
        name="rounds",
        parse=integer,
        shown_default="3, one_round none",
        help="Rounds of each length of two words and more, 1 to 3: later ones spend only on what is "
        "still open, so that more is released, and each is a pass over the data. Refused with "
        "one_round.",
    ),
    Option(
        name="user_budgets",
        choices=("individual", "even"),
        shown_default="individual, one_round none",
        help="How a user's budget is divided among lengths. individual: by what the user holds; even: "
        "the same for each length, which needs ordinary composition only, and releases less. Refused "
        "with one_round.",
    ),
    Option(
        name="vocabulary_policy",
        choices=VOCABULARY_POLICIES,
        shown_default="rounds, one_round weighted_gaussian",
        help="How single words are found. The defaults are the strategies' own; public: they are given "
        "with --vocabulary; the others are policies of beam-dpne set-union, which take the share of "
        "one length.",
    ),
    Option(
        name="vocabulary_delta_share",
        parse=number,
        shown_default="0.1, one_round 0.5",
        help="Part of delta for single words that only one user holds, in (0, 1); the rest goes "
        "into the noise. A small share raises the threshold of single words, a large one all noise.",
    ),
    Option(
        name="noise_growth",
        parse=number,
        shown_default="1, adaptive none",
        help="Noise of each length over that of the length before, c > 0, e.g. 0.8; below 1 favours "
        "long n-grams, 1 treats all alike. One far from 1 leaves some length no budget and is "
        "refused, and so is any with adaptive.",
    ),
    Option(
        name="budget_shares",
        parse=numbers,
        help="Share of the budget for each length, summing to 1, e.g. 0.2,0.4,0.4 for max_length=3; "
        "instead of noise_growth. Another number of shares, or another sum, is refused, and so are "
        "any with adaptive.",
    ),
    Option(
        name="max_tokens_per_user",
        default=1_000_000,
        parse=integer,
        help="Tokens of one user that are looked at, at least 1; of users with more, a random part of "
        "their documents is. So many that the numerical slack would pass epsilon/1000 are refused.",
    ),
    Option(
        name="max_users",
        default=10_000_000,
        parse=integer,
        help="Users that the input has at most, at least 1: a promise of yours, never checked against "
        "the data. Under a vocabulary_policy of policy_*, screened_gaussian, greedy or mad the bound "
        "on rounding and the number of shards rest on it; with others it is ignored. Choose a round "
        "number well above what is known in public.",
    ),
    _PUBLIC_USER_COUNT,
    Option(
        name="plan",
        path="file",
        help="JSON file with all of these privacy parameters, as written by `beam-dpne plan`, e.g. "
        "gs://bucket/plan.json; instead of the single ones, which are refused beside it.",
    ),
)

_VOCABULARY = (
    Option(
        name="vocabulary",
        path="file",
        help="File with a public vocabulary, one token a line as the tokenizer writes it, e.g. "
        "gs://bucket/words.txt: single words are then given instead of found, cost nothing and are "
        "not released. It must not be made from the private data. An empty file is refused.",
    ),
)

_ITEMS_READING = changed(
    READING,
    tokenizer={
        "form_pattern": f"words|unicode_words|whitespace|tokens|item|{FUNCTION_PATTERN}",
        "help": "How texts become items. words (runs of letters, digits, their marks, _ and "
        "inner apostrophes, lower-cased); unicode_words (Unicode's word boundaries; extra unicode); "
        "whitespace; tokens (the text field is a list of items, of any "
        "characters); item (each text is one item, as it is); or package.module:function over an Arrow "
        "string array, which must treat each text alone, or the guarantee is void. For sequences the "
        "default is whitespace. An unknown name is refused.",
    },
)

_UNION_PRIVACY = (
    _epsilon(
        "1 to 4 is common, above 10 little is protected, and a smaller one releases fewer items."
    ),
    _DELTA,
    Option(
        name="policy",
        default=DEFAULT_POLICY,
        choices=POLICIES,
        help="How users divide their weight among their items. count_*: one for each; weighted_*: "
        "evenly; policy_*: to the items that need it, users one after the other; screened_gaussian: "
        "that in two rounds, the second about what the first leaves open; greedy: to a user's most "
        "frequent items first; mad: what is too much is given back and spent again; rounds: evenly, in "
        "two rounds.",
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
        shown_default="0.5, rounds 0.1, Laplace none",
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
    _PUBLIC_USER_COUNT,
)

_PUBLIC = (
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

_BAYESIAN_PRIVACY = (
    _epsilon(
        "0.1 to 1 is common here, above 10 little is protected, and a smaller one leans more on the "
        "public counts."
    ),
    _DELTA,
    Option(
        name="mode",
        default="counts",
        choices=("counts", "log_global", "paper_brute_force", "paper_claim1"),
        help="The mechanism. counts: noise on the counts, then the posterior under the public counts; "
        "log_global: noise on decayed logarithms, with a bound over all databases. paper_brute_force "
        "and paper_claim1: the paper's, which have no differential privacy guarantee.",
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
        shown_default="log_global by the noise, paper_* 0.5, counts none",
        help="Weight of the public logarithms, 1 − ρ, in [0, 1); the private ones have the rest. Only "
        "of log_global and paper_*, refused with counts, which fits it to the noisy counts.",
    ),
    Option(
        name="decay",
        parse=number,
        shown_default="0.01, counts none",
        help="S, 1e-6 to 1e6: an n-gram of N users counts min(1, S·N/C), so that rare ones need less "
        "noise. Only of log_global and paper_*, refused with counts.",
    ),
    Option(
        name="tune",
        flag=True,
        help="Choose public_weight and decay on a part of the users. Only of paper_*: refused with "
        "counts, which tunes itself for nothing, and with log_global, where no useful bound exists.",
    ),
    Option(
        name="tuning_fraction",
        parse=number,
        shown_default="0.1, without tune none",
        help="Part of the users that scores the candidates, in (0, 1). Refused without tune.",
    ),
    Option(
        name="public_weights",
        parse=numbers,
        shown_default="0.1,0.3,0.5,0.7,0.9, without tune none",
        help="Candidates for public_weight, e.g. 0.2,0.5,0.8. Refused without tune.",
    ),
    Option(
        name="decays",
        parse=numbers,
        shown_default="0.001,0.01,0.1,1, without tune none",
        help="Candidates for decay, e.g. 0.01,0.1. Refused without tune.",
    ),
    Option(
        name="max_tokens_per_user",
        default=1_000_000,
        parse=integer,
        help="Tokens of one user that are looked at, at least 1; of users with more, a random part of "
        "their documents is.",
    ),
    _PUBLIC_USER_COUNT,
    Option(
        name="accept_no_guarantee",
        flag=True,
        help="Accept that paper_* has no differential privacy guarantee; without it they are refused, "
        "and with other modes it is.",
    ),
)

_ARPA = Option(
    name="arpa",
    help="File for a back-off language model in ARPA format, e.g. model.arpa, made from the "
    "probabilities after the run. One that exists is refused without overwrite, and so is any with a "
    "template, whose launcher does not wait.",
)


def _writing(parts: str, of: str) -> tuple[Option, ...]:
    """Returns the options for writing, with the names of what another program publishes."""
    return changed(
        WRITING,
        output={
            "help": f"Directory of the release, e.g. gs://bucket/releases/2025-01: {parts}-* files "
            "and ledger.json, written last. A new one for each run; one with files in it is refused.",
        },
        output_format={
            "help": f"Format of the files of {of}, whichever their reader wants; the release is the "
            "same.",
        },
    )


NGRAMS: Table = {
    "reading": READING,
    "privacy": (*_NGRAMS_PRIVACY, *_VOCABULARY),
    "writing": WRITING,
    "running": RUNNING,
}
SET_UNION: Table = {
    "reading": _ITEMS_READING,
    "privacy": _UNION_PRIVACY,
    "writing": _writing("items", "items"),
    "running": _WITHOUT_SETS,
}
BAYESIAN: Table = {
    "reading": (*READING, *_PUBLIC),
    "privacy": _BAYESIAN_PRIVACY,
    "writing": (*_writing("probabilities", "probabilities"), _ARPA),
    "running": _WITHOUT_SETS,
}
PLAN: Table = {
    "privacy": _NGRAMS_PRIVACY,
    "writing": (
        Option(
            name="output",
            help="File for the plan as JSON, e.g. plan.json or gs://bucket/plan.json; without it the "
            "JSON is not written.",
        ),
    ),
}

_EVALUATING = (
    Option(
        name="release",
        path="directory",
        help="Directory of the release to judge, e.g. release/titles or gs://bucket/releases/2025-01, "
        "of n-grams or of items. Required; one that is incomplete or damaged is refused.",
    ),
    Option(
        name="k_anonymity",
        default=K_ANONYMITY,
        parse=integers,
        shown_default=",".join(map(str, K_ANONYMITY)),
        help="Numbers of users k, e.g. 1,10,100: how much of what at least k users hold is released. "
        "Numbers below 1 are refused.",
    ),
    Option(
        name="output",
        path="directory",
        help="Directory of the operator for tables (JSON, CSV) and plots (PNG), e.g. "
        "gs://bucket/evaluations; files of an earlier evaluation there are replaced. As private as the "
        "data, and refused inside a release. Without it the tables are only printed.",
    ),
    *FAILURE_LOG,
    QUIET,
)

EVALUATE: Table = {
    "reading": tuple(
        option
        for option in changed(
            _ITEMS_READING,
            tokenizer={
                "default": None,
                "shown_default": "that of the release",
                "help": "How texts become tokens: as the release had it, which its ledger names, "
                "unless it was a function of your own that is now elsewhere: "
                "package.module:function. Under another tokenizer, n-grams that users hold look "
                "spurious.",
            },
        )
        # The run that made the release has reported its rejects.
        if option.name not in ("rejects", "max_rejected")
    ),
    "evaluating": _EVALUATING,
}
