"""What a ledger says: the type of each section, and the meaning of each field.

Each ledger has the meanings in its section `meanings`, and a ledger that is read must have these types.
Ledgers hold public parameters, released numbers and checksums; nothing exact, nothing private.
"""

import dataclasses
from typing import Annotated, Any

import msgspec
from msgspec import UNSET, Meta, UnsetType

from beam_dpne.validation import Parameter, Parameters

SCHEMA = "beam_dpne/ledger/3"
SCHEMA_FAMILY = "beam_dpne/ledger/"
PART_PATTERN = (
    r"(ngrams|items|probabilities|counts)-[0-9a-f]{16}-\d{5,}-of-\d{5,}\.(jsonl|csv|tsv|parquet)"
)

_Count = Annotated[int, Meta(ge=0)]
# 32 bytes, hexadecimal.
_Sha256 = Annotated[str, Meta(pattern=r"\A[0-9a-f]{64}\Z")]


class Section(msgspec.Struct, kw_only=True):
    """A section of a ledger."""


# Control characters, separators of lines, and marks that change the order of the letters after them.
_REFUSED = r"\x00-\x1f\x7f-\x9f" "\u2028-\u202e\u2066-\u2069"


def _note(help: str) -> Parameter:
    return Parameter(
        pattern=f"[^ {_REFUSED}][^{_REFUSED}]{{0,199}}",
        requirement="one line of 1 to 200 characters without control characters",
        remedy="Leave it out if there is none.",
        in_short_help=False,
        help=f"{help} It is published in the ledger and changes nothing else.",
    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class ReleaseNotes(Parameters):
    """The operator's notes on a release, which are published in its ledger and change nothing else.

    Raises:
      ValueError: A note is blank, longer than 200 characters, or has a control character.

    Example:
      >>> ReleaseNotes(unit="a customer").unit
      'a customer'
    """

    title: Annotated[
        str | None, _note("Name of the release, e.g. 'Support phrases, spring 2025'.")
    ] = None
    contact: Annotated[
        str | None, _note("Address for questions of readers, e.g. privacy@example.com.")
    ] = None
    unit: Annotated[
        str | None,
        _note(
            "Noun for one user, with its article, e.g. 'a customer'. The guarantee is stated for each "
            "of them, so each value of the user field must stand for one."
        ),
    ] = None


NO_NOTES = ReleaseNotes()


def plain_unit(unit: str) -> str:
    """Returns the operator's noun for one user in the form in which nouns are compared.

    >>> plain_unit("A  Customer")
    'a customer'
    """
    return " ".join(unit.split()).casefold()


class Guarantee(Section):
    """The guarantee of rows and ledger together, with the theorem and the promise on which it rests."""

    epsilon: Annotated[float, Meta(gt=0)]
    delta: Annotated[float, Meta(gt=0, lt=1)]
    neighbours: str
    user: str
    statement: str
    individual_budgets: dict[str, Any] | UnsetType = UNSET
    composition: str | UnsetType = UNSET
    promise: dict[str, Any] | UnsetType = UNSET


class GroupSize(Section):
    """The guarantee of a group of users.

    Attributes:
      users: G, the number of users in the group.
      epsilon: G * epsilon; null where it is too large for a number.
      delta: Delta of the whole release at that epsilon; 1 guarantees nothing.
      gaussian_mu: G * mu.
      gaussian_epsilon: Epsilon of the Gaussian noise alone at the delta that it has for one user,
        gaussian_delta.
      gaussian_delta: Delta of the Gaussian noise alone at g times the epsilon that it has for one
        user, which is 999/1000 of that of the release.
    """

    users: _Count
    epsilon: float | None
    delta: float
    gaussian_mu: float
    gaussian_epsilon: float
    gaussian_delta: float | None


class Groups(Section):
    """The guarantee of groups of users, and of a person with several ids."""

    statement: str
    gaussian_noise: str
    sizes: list[GroupSize]
    held_by_a_group_alone: str | UnsetType = UNSET


class Spent(Section):
    """What was spent on what.

    Attributes:
      gaussian_delta: Part of delta that the noise has.
      far_tails: Part of delta that pays for noise so far out that its 128 bits no longer give it
        the right probability: the probability of such noise, times 1 + exp(epsilon) for the two
        inputs with and without a user. Noise is calibrated for less than 999/1000 of delta, so that
        at least a thousandth of delta is left for it.
      numerical_slack: Part of epsilon that pays for floating-point arithmetic and for noise of
        128 bits. The probability of a decision is right to a relative 1e-12, and that of a noisy
        integer to 2e-12, or to 1e-13 * sigma if that is more. Noise is calibrated for 999/1000 of
        epsilon, so that a thousandth of epsilon is left for it.
      vocabulary_delta: Part of delta that bounds the probability that a word or an item is found
        which one user alone has, and no known list.
      composed_noise_stddev: Standard deviation of the noise of one Gaussian mechanism of
        sensitivity 1 that is as private as the whole run; mu is 1 divided by it.
    """

    gaussian_delta: _Count | float
    far_tails: float
    numerical_slack: float
    vocabulary_delta: float | UnsetType = UNSET
    composed_noise_stddev: float | UnsetType = UNSET


class Length(Section):
    """The n-grams of one length.

    Attributes:
      length: Number of words in the n-gram.
      budget_share: Part of the budget mu^2 that this length has; all of these parts and that of
        numbers of users add up to 1; null if each user divides one budget among the lengths.
      max_contributions: Largest number of distinct n-grams that one user adds in one round.
      noise_stddev: Standard deviation of the noise of every round, in units of weight. Under
        one_round it is composed_noise_stddev / sqrt(budget_share). Under adaptive the squared
        weights that one user sends, over all lengths and rounds, add up to at most (1 -
        count_share) / composed_noise_stddev^2.
      threshold: N-grams with a noisy weight above it are released; that of the last round, and
        the lowest of all classes but those of known words; null if no n-gram of this length could
        be released.
      released: Number of n-grams of this length in the release.
      valid: Number of candidates of this length, whether or not anybody has them; null for single
        words.
      expected_spurious_at_most: Upper bound on the expected number of released n-grams that
        nobody has, in all rounds together, and as a mean over the noise of private counts of
        candidates.
      rounds: One entry for each round, in order. loadings: factors of the noisy weights of the
        rounds so far in the evidence; evidence_stddev: standard deviation of the noise in that sum;
        threshold: n-grams with evidence above it are found; cut: n-grams with evidence below it are
        closed and get no further weight, null in the last round; null_probability: probability that
        an n-gram which nobody has is found in this round. At lengths of two words and more these
        are the numbers of the class with the best prediction.
      classes: Candidates of two words and more are sorted into classes by a prediction from the
        scores of released n-grams one and two words shorter. One entry for each class. number:
        twice the logarithm to base 2 of the prediction; valid: number of candidates of the class;
        thresholds, cuts, null_probabilities: for each round, as in rounds. Known n-grams, if there
        are any, have classes and groups of their own, which say so.
      groups: Groups of neighbouring classes, the best one first, which have one probability.
        lowest: the lowest class; candidates: number of candidates, weighted by their predictions;
        noise_stddev: standard deviation of the noise of a private count of those that somebody has,
        0 without a count; noisy_unheld: noisy number of those that nobody has, the upper edge of a
        cell one 64th of that deviation wide; unheld: number by which the tolerated number is
        divided; probability: probability that a candidate of the best class which nobody has is
        released, at most. Counts are paid from the users' budgets.
    """

    length: Annotated[int, Meta(ge=1)]
    budget_share: float | None
    max_contributions: int
    noise_stddev: float
    threshold: float | None
    released: _Count
    valid: int | None
    expected_spurious_at_most: float
    rounds: list[dict[str, Any]] | UnsetType = UNSET
    classes: list[dict[str, Any]] | UnsetType = UNSET
    groups: list[dict[str, Any]] | UnsetType = UNSET


class UnionMechanism(Section):
    """How items were found.

    Attributes:
      policy: Name of the way in which users add weight to items.
      max_contributions: Largest number of items to which one user adds weight in one round.
      sensitivity: Upper bound on the l2 distance by which one user moves the weights of a round,
        in units of weight; it includes rounding_bound.
      rounding_bound: Upper bound on the distance that rounding adds, over all users that follow
        in sequence, if there are at most max_users of them; 0 where all arithmetic is exact.
      composed_noise_scale: Sigma of one mechanism of this sensitivity that is as private as all
        rounds and the measurement of users together.
      cutoff_margin: Distance of a cutoff above its threshold, in units of sigma; null for
        policies without a cutoff.
      shards: Number of histograms among which the users are divided.
      rounds: One entry for each round, in order; most policies have one. noise_stddev: sigma;
        threshold: items with a noisy weight above it and a positive weight are released; cutoff:
        users add nothing beyond it; cut: items with a noisy weight below it are closed and get no
        further weight, null in rounds that close nothing but what they find.
      known_thresholds: With lists of known items, their threshold in each round, which follows from
        noisy weights; they are released whether or not their weight is positive. Where a round has
        a cut, theirs is -0.35 times noise_stddev instead.
      released: Number of items in the release.
    """

    policy: str
    meaning: str
    max_contributions: int
    sensitivity: float
    rounding_bound: float
    composed_noise_scale: float
    cutoff_margin: float | None
    shards: int | None
    rounds: list[dict[str, Any]]
    released: _Count
    known_thresholds: list[float] | UnsetType = UNSET


class ProbabilityMechanism(Section):
    """How probabilities were computed.

    Attributes:
      max_count: C, the largest number of times that one n-gram of one user counts.
      max_contributions: W, the largest number of distinct n-grams that one user adds.
      public: The number of n-grams in the public vocabulary, the number of words in each, and the
        SHA-256 of n-grams and counts (beam_dpne.PublicCounts.fingerprint); nothing protects them.
      sensitivity: Upper bound on the l2 distance by which one user moves all counts, C * sqrt(W).
      noise_stddev: Sigma, before the noise is rounded to whole counts.
      released: Number of n-grams with a probability, which are all n-grams of the public
        vocabulary.
    """

    meaning: str
    max_count: int
    max_contributions: int
    public: dict[str, Any]
    sensitivity: float
    noise_stddev: float
    released: _Count


class PhraseMechanism(Section):
    """How the users of the phrases of a public list were counted.

    Attributes:
      phrases: Number of phrases of the list, in all groups together; every one of them has a row.
      size_share: Part of the budget mu^2 with which users were counted by how many phrases they hold.
      excess_share: Part of mu^2 with which the shortfall was measured; 0 where no user can be above
        the bound. The rows have the rest.
      bound: Users who hold more phrases than this send less than 1 for each of them: the root of bound
        over their number. It was chosen from the noisy counts of users.
      noise_stddev: Standard deviation of the noise of each row, in users.
      shortfall: What the users above the bound send too little for a phrase that all of them hold, with
        noise, in users; 0 if the noisy number is below 0. No phrase misses more but for this noise.
      shortfall_stddev: Standard deviation of that noise.
      confidence: Probability with which the interval of a row contains the number of its users, for
        each phrase by itself.
    """

    meaning: str
    phrases: _Count
    size_share: float
    excess_share: float
    bound: _Count
    noise_stddev: float
    shortfall: float
    shortfall_stddev: float
    confidence: float


class Counts(Section):
    """How the users of released rows were counted.

    Attributes:
      budget_share: Part of the budget mu^2 of the run that the measurement of users has.
      row_noise_stddev: Standard deviation of the noise on each sum, of rows and of classes of users;
        every user adds a vector of length 1 at most to all of them together.
      confidence: Share of rows whose interval is meant to contain the number of users. How rows
        differ is learned from the noisy sums, so the share varies with the text.
    """

    budget_share: float
    row_noise_stddev: float
    confidence: float


class Series(Section):
    """The series of releases to which a release belongs.

    Attributes:
      id: Random name of the series.
      number: Number of this release in the series, from 1.
      releases: Number of releases that the series has at most.
      releases_per_user: Number of releases of the series in which one user takes part at most.
      epsilon: Epsilon of all releases of the series together.
      delta: Delta of all releases of the series together.
      users: What one user is in each release of the series.
      statement: The guarantee of the series, and whom the rows of this release count.
    """

    id: str
    number: Annotated[int, Meta(ge=1)]
    releases: Annotated[int, Meta(ge=1)]
    releases_per_user: Annotated[int, Meta(ge=1)]
    epsilon: Annotated[float, Meta(gt=0)]
    delta: Annotated[float, Meta(gt=0, lt=1)]
    users: str
    statement: str


class Key(Section):
    """The run key, which is not here.

    Attributes:
      given: Whether the operator gave it.
      mechanism_version: Version of the mechanism.
      warning: What voids the guarantee.
      commitment: Digest of the key (see `RunKey.commitment`); ledgers of older versions have none.
      bound_commitment: The same of the key bound to the context of the run, from which its noise
        follows.
    """

    given: bool
    mechanism_version: int
    warning: str
    commitment: _Sha256 | UnsetType = UNSET
    bound_commitment: _Sha256 | UnsetType = UNSET


class Rows(Section):
    """The rows before they are in files."""

    count: _Count
    sha256: _Sha256 | UnsetType = UNSET


class Part(Section, forbid_unknown_fields=True):
    """One file of a release with some of its rows.

    Attributes:
      name: File name; it cannot lead out of the release's directory.
      rows: Number of n-grams or items in the file.
      sha256: SHA-256 of the file's bytes, hexadecimal.
      bytes: Size of the file.
    """

    name: Annotated[str, Meta(pattern=rf"\A{PART_PATTERN}\Z")]
    rows: _Count
    sha256: _Sha256
    bytes: _Count


class Ledger(Section):
    """The sections that the ledgers of all programs have.

    Attributes:
      content: SHA-256 of the rows in the files, which is the same in each format and each division
        into parts; ledgers of older versions have none.
    """

    schema: str
    what: str
    notes: ReleaseNotes
    guarantee: Guarantee
    groups: Groups
    not_protected: list[str]
    plan: dict[str, Any]
    spent: Spent
    run_key: Key
    input: dict[str, Any]
    tokenizer: str
    columns: dict[str, str]
    meanings: dict[str, dict[str, str]]
    versions: dict[str, str]
    text_rules: dict[str, Any] | UnsetType = UNSET
    series: Series | UnsetType = UNSET
    counts: Counts | UnsetType = UNSET
    rows: Rows | UnsetType = UNSET
    content: _Sha256 | UnsetType = UNSET
    parts: Annotated[list[Part], Meta(min_length=1)] | UnsetType = UNSET


class NgramsLedger(Ledger, tag_field="program", tag="ngrams", kw_only=True):
    """The ledger of a release of n-grams."""

    lengths: Annotated[list[Length], Meta(min_length=1)]
    known: dict[str, Any] | UnsetType = UNSET


class UnionLedger(Ledger, tag_field="program", tag="set-union", kw_only=True):
    """The ledger of a release of items."""

    mechanism: UnionMechanism
    known: dict[str, Any] | UnsetType = UNSET


class ProbabilitiesLedger(Ledger, tag_field="program", tag="bayesian", kw_only=True):
    """The ledger of n-gram probabilities."""

    mechanism: ProbabilityMechanism


class PhrasesLedger(Ledger, tag_field="program", tag="count", kw_only=True):
    """The ledger of numbers of users of a public list."""

    mechanism: PhraseMechanism
    phrases: dict[str, Any]


AnyLedger = NgramsLedger | UnionLedger | ProbabilitiesLedger | PhrasesLedger
