"""The complete table of options of each command of `beam-dpne`, and the options for privacy."""

from beam_dpne.cli.options import (
    FAILURE_LOG,
    INPUT,
    QUIET,
    RECORDS,
    RUNNING,
    Option,
    Table,
    addresses,
    integer,
    integers,
    names,
    number,
    numbers,
    tokenizer_option,
    tokenizer_pattern,
    writing,
)
from beam_dpne.counts.defaults import COUNT_SHARE
from beam_dpne.report.document import PARTS, PUBLIC
from beam_dpne.set_union.policies import (
    DEFAULT_POLICY,
    POLICIES,
)

_K_ANONYMITY = (1, 2, 5, 10, 20, 50, 100)
_TOP_K = 20
# Only beam-dpne ngrams sends sets of released n-grams to the workers.
_WITHOUT_SETS = tuple(option for option in RUNNING if option.name != "side_input_limit")


def _epsilon(advice: str) -> Option:
    budget = "Privacy budget ε > 0 of the whole run, per user."
    return Option(name="epsilon", parse=number, help=f"{budget} It is required. {advice}")


def _max_users(use: str) -> Option:
    return Option(
        name="max_users",
        default=10_000_000,
        parse=integer,
        help="Upper bound on the number of users of the input, at least 1. You promise it; it is never "
        f"checked against the data. {use} Otherwise it is ignored. Choose a round number well above "
        "the number that is publicly known.",
    )


def _max_tokens(limit: str = "") -> Option:
    text = (
        "Largest number of tokens of one user that are read, at least 1. Users above it keep a random "
        f"subset of their documents. {limit}"
    )
    return Option(name="max_tokens_per_user", default=1_000_000, parse=integer, help=text.rstrip())


_DELTA = Option(
    name="delta",
    parse=number,
    help="Privacy budget δ in (0, 1) of the whole run, per user. It is required. Choose it well below "
    "one over the number of users, e.g. 1e-7 for a million users. A larger δ may expose single "
    "users.",
)

_PUBLIC_USER_COUNT = Option(
    name="public_user_count",
    parse=integer,
    help="Number of users of the input, if it is public, e.g. 50000; it must never be counted in the "
    "private data. A delta above one over this number is refused. Without this option, a delta of "
    "0.001 or more causes a warning. It does not change the release.",
)

_NGRAMS_PRIVACY = (
    _epsilon(
        "1 to 4 is common for text; above 10 little is protected. A smaller ε releases fewer n-grams."
    ),
    _DELTA,
    Option(
        name="max_length",
        default=5,
        parse=integer,
        help="Number of words in the longest n-gram, T, 1 to 100. More lengths share the same budget, "
        "so that each has more noise.",
    ),
    Option(
        name="strategy",
        default="adaptive",
        choices=("adaptive", "one_round"),
        help="How users spend their budget. With adaptive, each user divides one budget among lengths "
        "and rounds according to the n-grams that the user has, which releases two to three times "
        "as much. one_round is the mechanism of the paper, with one round for each length.",
    ),
    Option(
        name="max_contributions",
        parse=integers,
        shown_default="1000, one_round 100",
        help="Largest number of distinct n-grams that one user adds at one length (with adaptive, in "
        "each round of it), Δ ≥ 1: one number, or one for each length, e.g. 10,20,20. The number "
        "that a typical user has is sensible; a larger one raises the threshold without any gain. "
        "It must not be computed from the private data.",
    ),
    Option(
        name="spurious_fraction",
        default=0.01,
        parse=number,
        help="Upper bound η, in (0, 1), on the expected number of released n-grams of each length that "
        "nobody has, as a fraction of the released n-grams one word shorter. A larger η releases "
        "more n-grams of both kinds, real and spurious.",
    ),
    Option(
        name="rounds",
        parse=integer,
        shown_default="3, one_round none",
        help="Number of rounds of each length of two words and more, 1 to 3. Later rounds spend only "
        "on n-grams that are undecided, so that more are released; each round is a pass over the "
        "data. It is refused with one_round.",
    ),
    Option(
        name="favour",
        choices=("words", "balanced", "long"),
        shown_default="balanced, one_round none",
        help="The lengths of which more is released, at the cost of the others. words keeps less of a "
        "user's budget for longer n-grams, long keeps more. Choose it by the purpose of the release, "
        "and never by looking at the data. It is refused with one_round, and with even budgets only "
        "balanced is allowed.",
    ),
    Option(
        name="vocabulary_delta_share",
        parse=number,
        shown_default="0.1, one_round 0.5",
        help="Share of delta that bounds the probability of releasing a single word that only one user "
        "has, in (0, 1). The noise gets the rest of delta. A small share raises the threshold of "
        "single words; a large share raises the noise of all lengths.",
    ),
    Option(
        name="count_share",
        default=COUNT_SHARE,
        parse=number,
        help="Part of the budget that measures how many users have each released n-gram, from 1e-6 to "
        "0.9; 0 switches it off. The rows then have the columns users, users_low and users_high, an "
        "estimate and its 95 % interval, and come in the order of users. With 0.15 about 7 % fewer "
        "n-grams are released.",
    ),
    _max_tokens("A number is refused if it makes the numerical slack exceed epsilon/1000."),
    _PUBLIC_USER_COUNT,
    Option(
        name="plan",
        path="file",
        help="JSON file with all of these privacy parameters, as written by `beam-dpne plan`, e.g. "
        "gs://bucket/plan.json. It replaces the single parameters, which are refused beside it.",
    ),
)

_UNION_PRIVACY = (
    _epsilon("1 to 4 is common; above 10 little is protected. A smaller ε releases fewer items."),
    _DELTA,
    Option(
        name="policy",
        default=DEFAULT_POLICY,
        choices=POLICIES,
        help="How users divide their weight among their items. weighted_gaussian divides it evenly. "
        "policy_gaussian lets users, one after the other, fill the items that need weight. "
        "screened_gaussian does that in three rounds, of which each is about the items that the one "
        "before it leaves undecided. sips divides the weight evenly in three rounds, each about the "
        "items that the rounds before it have not found.",
    ),
    Option(
        name="max_contributions",
        default=100,
        parse=integer,
        help="Largest number of distinct items that one user adds, Δ ≥ 1. The number that a typical "
        "user has is sensible; a larger one raises threshold or noise without any gain. It must "
        "not be computed from the private data.",
    ),
    Option(
        name="cutoff_margin",
        parse=number,
        shown_default="5, weighted_gaussian and sips none",
        help="Distance above the threshold up to which items are filled, in scales of the noise, at "
        "least 0. It belongs to policy_gaussian and screened_gaussian, and is refused with other "
        "policies.",
    ),
    Option(
        name="shards",
        parse=integer,
        shown_default="max_users/max_shard_users, at most 8; others none",
        help="Number of parts into which users are divided, at least 1. Each part fills a separate "
        "histogram, one user after the other, on one worker. More shards use more workers and "
        "release a little less. The option belongs to policy_gaussian and screened_gaussian, and "
        "is refused with other policies.",
    ),
    Option(
        name="max_shard_users",
        default=5_000_000,
        parse=integer,
        help="Largest number of users that one worker takes in sequence, at least 1. A run is refused "
        "if max_users/shards is above it. Raise it where workers have the memory and the time.",
    ),
    Option(
        name="vocabulary_delta_share",
        default=0.5,
        parse=number,
        help="Share of delta that bounds the probability of releasing an item that only one user has, "
        "in (0, 1). The noise gets the rest of delta.",
    ),
    Option(
        name="count_share",
        default=COUNT_SHARE,
        parse=number,
        help="Part of the budget that measures how many users have each released item, from 1e-6 to "
        "0.9; 0 switches it off. The rows then have the columns users, users_low and users_high, an "
        "estimate and its 95 % interval, and come in the order of users. The defaults release 7 to "
        "10 % fewer items than 0.",
    ),
    _max_users(
        "If policy is policy_gaussian or screened_gaussian, the bound on rounding depends on it."
    ),
    Option(
        name="max_items_per_user",
        default=1_000_000,
        parse=integer,
        help="Largest number of items of one user that are read, with repetitions, at least 1. Users "
        "above it keep a random subset of their texts.",
    ),
    _PUBLIC_USER_COUNT,
)

_PUBLIC = Option(
    name="public",
    path="file",
    help="Public n-grams with the numbers of their occurrences elsewhere, e.g. "
    "gs://bucket/public.txt.gz. It is a text with one document in each line, which the same "
    "tokenizer splits; or a file of counts with lines ngram<TAB>count; or the directory of a "
    "release of beam-dpne ngrams, whose numbers of users, or scores if it has none, are the counts. "
    "Only these n-grams get a probability. They must not be made from the private data; one of the "
    "input files is refused.",
)

_BAYESIAN_PRIVACY = (
    _epsilon(
        "0.1 to 1 is common here; above 10 little is protected. With a smaller ε the result depends "
        "more on the public counts."
    ),
    _DELTA,
    Option(
        name="length",
        default=3,
        parse=integer,
        help="Number of words in an n-gram, 1 to 5. Public n-grams of another length are refused.",
    ),
    Option(
        name="vocabulary_size",
        default=50_000,
        parse=integer,
        help="Number of public n-grams that are kept, the most frequent ones, at least 1. More n-grams "
        "cover more of the private texts, and each has independent noise.",
    ),
    Option(
        name="max_count",
        default=1,
        parse=integer,
        help="Largest number of times that one n-gram of one user counts, C, at least 1. Noise grows "
        "with it; 1 counts users. It must not be computed from the private data.",
    ),
    Option(
        name="max_contributions",
        default=10,
        parse=integer,
        help="Largest number of distinct public n-grams that one user adds, W, at least 1. Noise grows "
        "with its square root; the number that a typical user has is sensible. It must not be "
        "computed from the private data.",
    ),
    _max_tokens(),
    _PUBLIC_USER_COUNT,
)

_ARPA = Option(
    name="arpa",
    help="File for a back-off language model in ARPA format, e.g. model.arpa, made from the "
    "probabilities and the public counts after the run; export makes the same file. A file that exists "
    "is refused without overwrite. Every file is refused with a template, whose launcher does not wait "
    "for the run.",
)


_ITEMS_TOKENIZER = tokenizer_option(
    "items",
    tokens="the text field is a list of items, of any characters",
    item="each text is one item, as it is",
)
_READING = (
    *INPUT,
    tokenizer_option("tokens", tokens="the text field is a list of tokens already"),
    *RECORDS,
)

NGRAMS: Table = {
    "reading": _READING,
    "privacy": _NGRAMS_PRIVACY,
    "writing": writing("ngrams", "n-grams"),
    "running": RUNNING,
}
SET_UNION: Table = {
    "reading": (
        *INPUT,
        _ITEMS_TOKENIZER,
        *RECORDS,
    ),
    "privacy": _UNION_PRIVACY,
    "writing": writing("items", "items"),
    "running": _WITHOUT_SETS,
}
BAYESIAN: Table = {
    "reading": (*_READING, _PUBLIC),
    "privacy": _BAYESIAN_PRIVACY,
    "writing": (*writing("probabilities", "probabilities"), _ARPA),
    "running": _WITHOUT_SETS,
}
_PUBLIC_READING = (
    *(option for option in INPUT if option.name != "input"),
    tokenizer_option("tokens", tokens="the text field is a list of tokens already"),
    *(option for option in RECORDS if option.name == "max_record_bytes"),
)
_FORECAST = (
    Option(
        name="users",
        parse=integer,
        help="Number of users of the release to come, at least 1, e.g. 100000. It must be public: "
        "state a round number, and never count it in the private data. It is required with like.",
    ),
    Option(
        name="like",
        parse=addresses,
        repeatable=True,
        path="files",
        help="Public text that resembles the private one, as files like the input of beam-dpne ngrams, "
        "or titles for a built-in profile of Reddit titles. From it and the number of users follows a "
        "forecast: released n-grams, users that an n-gram needs, and the width of counts. It must be "
        "public, and never a sample of the private data.",
    ),
    Option(
        name="documents_per_user",
        parse=number,
        shown_default="the users of the text",
        help="Mean number of documents of a user, at least 1, e.g. 8. The documents of the public text "
        "are then dealt to made-up users, few of whom have many. Give it where the public text names "
        "no users, e.g. one text in each line. Without this option its users stay as they are.",
    ),
    Option(
        name="epsilons",
        parse=numbers,
        shown_default="half of epsilon, epsilon, and twice epsilon",
        help="Privacy budgets ε of the forecast, e.g. 0.5,1,2,4. All other parameters are those of the "
        "plan. Each takes some seconds for public text of a million words.",
    ),
    Option(
        name="seed",
        default=0,
        parse=integer,
        help="Seed of the made-up users and runs of the forecast, at least 0. The same seed, text and "
        "plan give the same forecast. It has no effect on a release.",
    ),
    QUIET,
)
PLAN: Table = {
    "privacy": _NGRAMS_PRIVACY,
    "dividing": (
        Option(
            name="releases",
            parse=integer,
            help="Number of equal releases about the same users, at least 1, e.g. 12 for a year of "
            "months. epsilon and delta are then the budget of all of them together, and the plan is "
            "that of one. Without this option they are the budget of one release.",
        ),
    ),
    "forecasting": _FORECAST,
    "reading the public text": _PUBLIC_READING,
    "writing": (
        Option(
            name="output",
            help="File for the plan as JSON, e.g. plan.json or gs://bucket/plan.json. Without this "
            "option the JSON is not written.",
        ),
    ),
}

ACCOUNT: Table = {
    "adding up": (
        Option(
            name="ledgers",
            repeatable=True,
            positional=True,
            path="directory",
            help="Releases about the same users, each by its directory or its ledger, e.g. "
            "releases/2026-01 or gs://bucket/ledgers/2026-01.json. Their files are not read, and "
            "may be gone. A ledger that is named twice is refused.",
        ),
        Option(
            name="delta",
            parse=number,
            shown_default="sum of the ledgers",
            help="δ of the total, in (0, 1), e.g. 1e-6. A larger δ gives a smaller ε. With "
            "create it is the δ of the cap, and required.",
        ),
        Option(
            name="same_users",
            flag=True,
            help="State that the units in the ledgers' notes are the same users, though their "
            "names differ. Without this option such ledgers are refused.",
        ),
        Option(
            name="json",
            flag=True,
            help="Print JSON instead of tables.",
        ),
    ),
    "keeping a budget": (
        Option(
            name="budget",
            help="Folder with the budget of one population, e.g. budgets/customers or "
            "gs://bucket/budgets/customers. Alone it is shown.",
        ),
        Option(
            name="create",
            flag=True,
            help="Make a new budget with population, epsilon and delta. A folder that has one is "
            "refused.",
        ),
        Option(
            name="population",
            help="Name of the population, e.g. 'customers of the shop'. It is required with "
            "create, and refused otherwise. Use one budget for all releases about users who may "
            "be the same people.",
        ),
        Option(
            name="epsilon",
            parse=number,
            help="Largest ε of all releases together, e.g. 8. It is required with create, and "
            "refused otherwise.",
        ),
        Option(
            name="add",
            flag=True,
            help="Add the ledgers that are named to the budget. They count even above the cap, "
            "since they have been spent; further runs are then refused.",
        ),
        Option(
            name="settle",
            path="directory",
            help="Release whose ledger replaces the note of its run, e.g. releases/2026-01, where the "
            "launcher could not do so.",
        ),
        Option(
            name="remove",
            help="Remove the note of a failed run. You state that its job has ended and that nobody "
            "has read a file of it; an output directory with files of it is refused. Name the run as "
            "the budget lists it.",
        ),
    ),
}

_EVALUATING = (
    Option(
        name="release",
        path="directory",
        help="Directory of the release to judge, e.g. release/titles or gs://bucket/releases/2025-01, "
        "of n-grams or of items. It is required. A release that is incomplete or damaged is "
        "refused.",
    ),
    Option(
        name="k_anonymity",
        default=_K_ANONYMITY,
        parse=integers,
        shown_default=",".join(map(str, _K_ANONYMITY)),
        help="Numbers of users k, e.g. 1,10,100. For each k, the evaluation reports the released share "
        "of the n-grams that at least k users have. Numbers below 1 are refused.",
    ),
    Option(
        name="top_k",
        default=_TOP_K,
        parse=integer,
        help="Size k ≥ 1 of the tops that are compared for each length: the k n-grams that most users "
        "have, and the first k of the release by users and by score. A value below 1 is refused.",
    ),
    Option(
        name="output",
        path="directory",
        help="Directory of the operator for tables (JSON, CSV) and plots (PNG), e.g. "
        "gs://bucket/evaluations. Files of an earlier evaluation there are replaced. It is as "
        "private as the data, and refused inside a release. Without this option the tables are "
        "only printed.",
    ),
    *FAILURE_LOG,
    QUIET,
)

EVALUATE: Table = {
    "reading": (
        *INPUT,
        Option(
            name="tokenizer",
            form_pattern=tokenizer_pattern("tokens", "item"),
            shown_default="that of the release",
            help="How texts become tokens. The default is the tokenizer of the release, which its "
            "ledger names. Give package.module:function if that was a function of yours that has "
            "moved since. Under another tokenizer, n-grams that users have look spurious.",
        ),
        # The run that made the release has reported its rejects.
        *(option for option in RECORDS if option.name not in ("rejects", "max_rejected")),
    ),
    "evaluating": _EVALUATING,
}

EXPORT: Table = {
    "exporting": (
        Option(
            name="release",
            path="directory",
            positional=True,
            help="Directory of the release, e.g. release/titles or gs://bucket/releases/2025-01. It is "
            "required. A release that is incomplete or damaged is refused.",
        ),
        Option(
            name="to",
            form_pattern="[a-z]{1,20}",
            help="Kind of the export. It is required. tokenizers is the tokenizer.json of Hugging "
            "Face, arpa a back-off language model, aosp the word list of Android's keyboard, "
            "elasticsearch NDJSON for a completion field, csv a CSV for spreadsheets, duckdb a SQL "
            "script that makes a database, and card the README.md of a data set on the Hugging Face "
            "Hub.",
        ),
        Option(
            name="output",
            help="File to write, e.g. tokenizer.json or gs://bucket/exports/titles.csv. It is "
            "required. Directories that do not exist are made. A file inside a release is refused, "
            "unless it is a card. Kinds whose format has no place for the ledger's hash (tokenizers, "
            "arpa, elasticsearch, csv) also get a file with .source.json added to this name.",
        ),
        Option(
            name="overwrite",
            flag=True,
            help="Replace the files if they exist. Without this option an export does not start then.",
        ),
        Option(
            name="locale",
            form_pattern="[A-Za-z]{2,3}([_-][A-Za-z0-9]{2,8})*",
            help="Locale of the keyboard, e.g. en or pt_BR. aosp needs it, and other kinds refuse it.",
        ),
        Option(
            name="kept_back",
            parse=number,
            shown_default="0.4, other kinds none",
            help="Share of probability that each context of arpa keeps for words that do not follow it "
            "in the release, in [0, 1). Released n-grams are a part of those in the texts, so a small "
            "share promises too much. It is refused with other kinds and for a release of "
            "beam-dpne bayesian.",
        ),
        Option(
            name="public",
            help="The public counts of the release, for arpa of a release of beam-dpne bayesian: the "
            "same text, file or release as its option public. arpa needs it then, and refuses another "
            "file. The model also lists public n-grams that are not in the release.",
        ),
        Option(
            name="min_count",
            parse=integer,
            shown_default="1, only with public",
            help="Least public count of the n-grams of two words and more that arpa lists beside those "
            "of the release, at least 1. With 2 the file is much smaller and the model a little worse.",
        ),
        Option(
            name="license",
            form_pattern="[a-z0-9][a-z0-9.-]{0,63}",
            help="The Hugging Face Hub's name of the licence of the release, e.g. cc-by-4.0, for card. "
            "Without this option the card states no licence. Other kinds refuse it.",
        ),
    ),
}

REPORT: Table = {
    "release": (
        Option(
            name="release",
            positional=True,
            path="directory",
            help="Directory of the release, e.g. release/titles or gs://bucket/releases/2025-01, of "
            "any program. It is required. A release that is incomplete, damaged or being replaced is "
            "refused.",
        ),
    ),
    "report": (
        Option(
            name="output",
            shown_default="report.html, Markdown report.md",
            help="File for the report, e.g. reports/titles.html or gs://bucket/reports/titles.html. A "
            "file inside a release is refused, and so is a file that exists, without overwrite. "
            "Directories that do not exist are made.",
        ),
        Option(
            name="overwrite",
            flag=True,
            help="Replace a report that is already there.",
        ),
        Option(
            name="format",
            choices=("html", "markdown"),
            help="Format of the report. html has plots and a search box, makes no request and needs no "
            "other file. markdown has the same text and tables.",
            shown_default="markdown for an output that ends in .md, else html",
        ),
        Option(
            name="public",
            flag=True,
            help=f"Make a report for the public: leave out {', '.join(PUBLIC)}, and whatever leave_out "
            "names. The guarantee, its limits and the files stay in. The ledger of the release states "
            "what is left out all the same.",
        ),
        Option(
            name="leave_out",
            parse=names,
            help=f"Parts to leave out, separated by commas: {', '.join(PARTS)}. Other names are "
            "refused.",
        ),
        Option(
            name="top_rows",
            default=20,
            parse=integer,
            help="Largest number of rows of each length in the tables of the top rows, at least 0.",
        ),
        Option(
            name="search_rows",
            default=100_000,
            parse=integer,
            help="Largest number of rows that the search box of an HTML report holds, at least 0, "
            "those with the largest values of each length. The report says how many are left out. "
            "100,000 n-grams make a file of about 3 MB.",
        ),
        QUIET,
    ),
}

# The privacy options of each mechanism that `beam-dpne audit` attacks.
AUDITED = {"ngrams": _NGRAMS_PRIVACY, "set-union": _UNION_PRIVACY, "bayesian": _BAYESIAN_PRIVACY}


def _audited_privacy() -> tuple[Option, ...]:
    """Returns the privacy options of all mechanisms, each once, without their defaults."""
    programs: dict[str, list[str]] = {}
    first: dict[str, Option] = {}
    for program, options in AUDITED.items():
        for option in options:
            programs.setdefault(option.name, []).append(f"`beam-dpne {program}`")
            first.setdefault(option.name, option)
    return tuple(
        Option(
            name=name,
            parse=first[name].parse,
            choices=first[name].choices,
            path=first[name].path,
            shown_default="none"
            if name in ("epsilon", "delta", "plan")
            else "that of the mechanism",
            help=f"The option of {' and '.join(programs[name])}. It is refused with other mechanisms."
            if len(programs[name]) < len(AUDITED)
            else "The option of all three programs."
            + (" It is required." if name in ("epsilon", "delta") else ""),
        )
        for name in first
    )


AUDIT: Table = {
    "mechanism": (
        Option(
            name="mechanism",
            positional=True,
            form_pattern="|".join(AUDITED),
            help="Mechanism to attack: ngrams, set-union or bayesian. It is required.",
        ),
    ),
    "plan": _audited_privacy(),
    "audit": (
        Option(
            name="runs",
            default=20_000,
            parse=integer,
            help="Number of runs of each game with the user, and as many without, 200 to 10000000. "
            "Time grows with it, and so does the power. A small ε, or an ε of 7 and more under Laplace "
            "noise, needs more than the default.",
        ),
        Option(
            name="confidence",
            default=0.99,
            parse=number,
            help="Probability, at least, with which all printed bounds hold together, in (0, 1).",
        ),
        Option(
            name="seed",
            default=1,
            parse=integer,
            help="Seed of all runs, at least 0. The same options and seed give the same result. Choose "
            "one of yours, so that nobody can have chosen it for you.",
        ),
        Option(
            name="plot",
            help="File for a picture of all bounds, e.g. audit.png or gs://bucket/audits/audit.png. A "
            "file that exists is refused. It needs the extra plots.",
        ),
        Option(
            name="json",
            flag=True,
            help="Print JSON instead of a table.",
        ),
        QUIET,
    ),
}
