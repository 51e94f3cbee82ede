"""The ledger of a release: its guarantee, what was spent on what, and the files that belong to it.

It holds no time, path, host, runner or number of partitions, so that the same release has the same
ledger under equal versions of the packages. `schema` has the types and meanings of its fields. Here
are the sentences that are true of every program. Each program fills in its numbers and grounds in its
own room (`ngrams_contents`, `set_union_contents`, `bayesian_contents`,
`phrase_contents`); `reading` reads
ledgers back.
"""

import dataclasses
import functools
import importlib.metadata
import inspect
import json
import platform
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import msgspec
from msgspec import UNSET, UnsetType

from beam_dpne import __version__
from beam_dpne.counts.rule import CONFIDENCE
from beam_dpne.documents.masks import TextRules
from beam_dpne.documents.participants import SeriesPlace
from beam_dpne.documents.private_run import PrivateRun
from beam_dpne.documents.run_keys import (
    MECHANISM_VERSION,
    Committed,
    RunKeys,
    commitment_of,
    committed,
    tokenizer_identity,
)
from beam_dpne.documents.tokenizers import BOUNDARIES, TOKENIZERS, Tokenizer, tokenizer_name
from beam_dpne.elements.rows import ORDER
from beam_dpne.mechanism.gaussian import GaussianNoise, group_sizes
from beam_dpne.reading.options import InputDescription, names_of
from beam_dpne.release import schema
from beam_dpne.release.parts import PROGRAMS
from beam_dpne.release.schema import (
    NO_NOTES,
    AnyLedger,
    Counts,
    Length,
    PhraseMechanism,
    ProbabilityMechanism,
    ReleaseNotes,
    Section,
    UnionMechanism,
)
from beam_dpne.validation import about_large_delta

# What was released and how.
_Found = Sequence[Length] | UnionMechanism | ProbabilityMechanism | PhraseMechanism
_PACKAGES = ("apache-beam", "numpy", "scipy", "pyarrow", "cryptography", "msgspec")

_COMPLETE = (
    "The release is complete if every part listed here is there and has the SHA-256 listed for it. "
    "Files that are not listed do not belong to it."
)
_NEIGHBOURS = (
    "Two inputs are neighbours if one user is added or removed with all of that user's documents."
)
_IS_ONE_USER = " is one user"
_STATEMENT = (
    "Parts and ledger together are user-level (epsilon, delta)-differentially private: for any two "
    "inputs that are neighbours and any set O of releases, "
    "P[release of one in O] <= exp(epsilon) * P[release of the other in O] + delta."
)
_ONE_KEY_ONE_INPUT = (
    "Using one run key for two different inputs with the same parameters voids the guarantee, because "
    "the difference of the two releases is free of noise. Using one run key with two tokenizers of the "
    "operator that have the same name and version voids it too. The noise depends on the key, "
    "mechanism_version, the plan with its constants, the tokenizer with its version, and the way in "
    "which records became documents, which the section input describes; runs that differ in one of "
    "these have independent noise. The key is as secret as the data. commitment is a digest of the "
    "key, and bound_commitment one of the key together with all on which the noise depends. Two "
    "releases with one bound_commitment have the same noise, and if of one input, they are one release."
)
_NOT_PROTECTED = (
    "The run time, memory, autoscaling, retries and crashes of a run depend on the data and are not "
    "protected. Neither is whether a run fails because too many of its records were rejected.",
    "The operator's channel is not protected: rejected records, counters and logs are as private as "
    "the data.",
    "The run key and the staging and temporary storage of a run are not protected. Whoever has the key "
    "can subtract the noise, and temporary storage may hold intermediate results as private as the "
    "data.",
    "A tokenizer that the operator wrote must treat each document alone. If it lets one document "
    "change the tokens of other documents, those are not protected.",
    "The plan is not protected if any of it was chosen by looking at the data.",
    "Several users together are not protected as much as one user: the section groups states the "
    "guarantee for groups.",
    "One person with several user ids is not protected as much as one user: such a person counts as a "
    "group.",
    "The guarantee is computational: it does not hold against an adversary who can distinguish AES "
    "from random bits.",
    "Facts that are true of many users, whether or not one of them takes part, are not protected.",
    "Third parties are not protected: a name or an address that many users wrote is released, also if "
    "it is that of somebody whose data is not in the input, unless text_rules leave it out.",
)
_GROUPS = (
    "For any two inputs that differ in g users with all of their documents, parts and ledger together "
    "are (g * epsilon, delta * (exp(g * epsilon) - 1) / (exp(epsilon) - 1))-differentially private: "
    "both epsilon and delta grow. One person with g user ids is such a group. A delta of 1 guarantees "
    "nothing."
)
_FOUND_ALONE = (
    "vocabulary_delta bounds the probability that a {noun} is released which only one user holds, and "
    "no known list has. It does not bound that of {noun}s which only the g ids of one person, or only "
    "the members of one group, hold: together they may give them g times the weight of one user, and "
    "the threshold is the same. The columns epsilon and delta cover these {noun}s; no other column "
    "does."
)
_SERIES = (
    "A user takes part in a release of this series if she took part in fewer than releases_per_user "
    "releases before it, and has a record with a token in its input. This follows from her own records "
    "alone, and the lists of those who took part are as secret as the data. So all releases of the "
    "series together, parts and ledgers, are user-level (epsilon, delta)-differentially private with "
    "the epsilon and the delta of this section: of two inputs of the whole series that differ in one "
    "user, at most releases_per_user releases see a difference. Scores and numbers of users are about "
    "those who take part in this release. Where they fall, people may have used up their part."
)
_GAUSSIAN = (
    "A group of g users counts as one user with g times the sensitivity: mu, the sensitivity over the "
    "standard deviation of the noise, all rounds and lengths together, becomes g * mu. The gaussian "
    "columns give the exact curve of that noise. Floating point adds g * numerical_slack to their "
    "epsilon, and its factor to their delta. Noise as it is drawn ends at 13 standard deviations: "
    "where g * mu comes near that, only the columns epsilon and delta hold."
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Run:
    """The public facts of a run that its ledger states and no released set holds.

    Attributes:
      plan: Plan of the run.
      tokenizer: Name of the tokenizer (see `tokenizer_name`).
      run_key_given: Whether the run key was given instead of fresh; the key is not here.
      commitment: Commitment to the run key, or the file of the key (see `committed`).
      bound_commitment: The same for the run key bound to the context of the run.
      described: How records became documents, which says what one user is; None if that is unknown.
      rules: What the tokenizer leaves out of texts, and how it cuts them into items.
      tokenizer_version: Name and version of a tokenizer of this package; None for others.
      known: What the ledger says of lists of known n-grams, or of the list whose users are counted, if
        there are any.
      series: The place of the release in a series, if it is of one.
    """

    plan: Any
    tokenizer: str
    run_key_given: bool
    commitment: Committed
    bound_commitment: Committed
    described: InputDescription | None = None
    rules: Mapping[str, Any] | None = None
    tokenizer_version: str | None = None
    known: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    series: SeriesPlace | None = None

    @classmethod
    def of(cls, private: PrivateRun, keys: RunKeys) -> "Run":
        """Returns the facts of a private run under these keys."""
        known = getattr(private, "known", None) or getattr(private, "phrases", None)
        return cls(
            plan=private.plan,
            tokenizer=tokenizer_name(private.tokenizer),
            run_key_given=private.run_key is not None,
            commitment=committed(keys.own),
            bound_commitment=committed(keys.bound),
            described=private.described or private.row_description,
            rules=getattr(private.tokenizer, "rules", None),
            tokenizer_version=_version_of(private.tokenizer),
            known={} if known is None else known.section,
            series=None if private.participation is None else private.participation.place,
        )


def _version_of(tokenizer: str | Tokenizer) -> str | None:
    """Returns name and version of a tokenizer of this package, without rules; None for others."""
    split = tokenizer.tokenizer if isinstance(tokenizer, TextRules) else tokenizer
    identity = tokenizer_identity(split)
    is_own = identity["name"] in (*TOKENIZERS, *BOUNDARIES)
    return f"{identity['name']} {identity['version']}" if is_own else None


class Contents(NamedTuple):
    """The contents of a ledger that depend on the program.

    Attributes:
      found: What was released and how: each length of n-grams, or the mechanism of another program.
      columns: Meanings of the columns of the parts, without those of numbers of users.
      individual_budgets: The theorem on budgets of single users, if the guarantee rests on it.
      composition: Why several measurements are as private as one, if the guarantee rests on it.
      promise: What the operator promises, if the guarantee rests on it.
      found_alone: "word" or "item", if a threshold protects those that one user alone holds.
      composed_noise_stddev: Standard deviation of the noise of one mechanism of sensitivity 1 that is
        as private as the whole run, where the ledger states it.
      not_protected: Sentences about what this program does not protect, beyond `_NOT_PROTECTED`.
    """

    found: _Found
    columns: Mapping[str, str]
    individual_budgets: dict[str, Any] | UnsetType = UNSET
    composition: str | UnsetType = UNSET
    promise: dict[str, Any] | UnsetType = UNSET
    found_alone: str | None = None
    composed_noise_stddev: float | UnsetType = UNSET
    not_protected: Sequence[str] = ()


def whole_ledger(
    contents: Contents, run: Run, rows: int, notes: ReleaseNotes = NO_NOTES
) -> AnyLedger:
    """Returns the ledger of a release, before its rows are in files.

    Args:
      contents: The contents that depend on the program.
      run: The public facts of the run.
      rows: The number of rows.
      notes: The operator's notes on the release.
    """
    plan = run.plan
    found = contents.found
    alone = contents.found_alone
    packages = {name: importlib.metadata.version(name) for name in _PACKAGES}
    spent = schema.Spent(
        gaussian_delta=plan.gaussian_delta,
        far_tails=plan.far_tails,
        numerical_slack=plan.numerical_slack,
        vocabulary_delta=UNSET if alone is None else plan.vocabulary_delta,
        composed_noise_stddev=contents.composed_noise_stddev,
    )
    groups = schema.Groups(
        statement=_GROUPS,
        held_by_a_group_alone=UNSET if alone is None else _FOUND_ALONE.format(noun=alone),
        gaussian_noise=_GAUSSIAN,
        sizes=_group_sizes(plan),
    )
    versions = {"beam_dpne": __version__, **packages, "python": platform.python_version()}
    if run.tokenizer_version is not None:
        versions["tokenizer"] = run.tokenizer_version
    counts = UNSET if plan.count_noise is None else _counts(plan)
    explained: dict[str, Section | Sequence[Section]] = {"spent": spent}
    explained["mechanism" if isinstance(found, Section) else "lengths"] = found
    explained["groups"] = groups.sizes
    if counts is not UNSET:
        explained["counts"] = counts
    series = UNSET if run.series is None else _series(run.series, run.described)
    if series is not UNSET:
        explained["series"] = series
    ledger = _ledger_of(found, run.known)(
        schema=schema.SCHEMA,
        what=f"A differentially private release of {PROGRAMS[plan.program].noun}. {_COMPLETE}",
        notes=NO_NOTES,
        guarantee=schema.Guarantee(
            epsilon=plan.epsilon,
            delta=plan.delta,
            neighbours=_NEIGHBOURS,
            user=user_sentence(run.described),
            statement=_STATEMENT,
            individual_budgets=contents.individual_budgets,
            composition=contents.composition,
            promise=contents.promise,
        ),
        groups=groups,
        not_protected=[
            *_NOT_PROTECTED,
            *filter(None, [about_large_delta(plan.delta)]),
            *contents.not_protected,
        ],
        plan=json.loads(plan.to_json()),
        spent=spent,
        run_key=schema.Key(
            given=run.run_key_given,
            commitment=commitment_of(run.commitment),
            bound_commitment=commitment_of(run.bound_commitment),
            mechanism_version=MECHANISM_VERSION,
            warning=_ONE_KEY_ONE_INPUT,
        ),
        input=input_section(run.described),
        tokenizer=run.tokenizer,
        text_rules=UNSET if run.rules is None else dict(run.rules),
        columns=_columns(
            contents.columns,
            is_counted=counts is not UNSET,
            is_of_series=series is not UNSET,
        ),
        series=series,
        counts=counts,
        meanings={name: _meanings(section) for name, section in explained.items()},
        versions=versions,
        rows=schema.Rows(count=rows),
    )
    return with_notes(ledger, notes)


def _ledger_of(
    found: _Found,
    known: Mapping[str, Any],
) -> Callable[..., AnyLedger]:
    """Returns the type of a program's ledger with the sections that only this type has.

    Args:
      found: What was released and how.
      known: What the ledger says of known lists; empty without any.
    """
    lists = dict(known) or UNSET
    if isinstance(found, UnionMechanism):
        return functools.partial(schema.UnionLedger, mechanism=found, known=lists)
    if isinstance(found, PhraseMechanism):
        return functools.partial(schema.PhrasesLedger, mechanism=found, phrases=dict(known))
    if isinstance(found, ProbabilityMechanism):
        if known:
            raise TypeError("A ledger of probabilities has no known lists.")
        return functools.partial(schema.ProbabilitiesLedger, mechanism=found)
    return functools.partial(schema.NgramsLedger, lengths=list(found), known=lists)


def _group_sizes(plan: Any) -> list[schema.GroupSize]:
    """Returns the guarantee of a plan for groups of users."""
    noise = GaussianNoise(epsilon=plan.gaussian_epsilon, delta=plan.gaussian_delta, mu=plan.mu)
    return [
        schema.GroupSize(
            users=each.users,
            epsilon=each.epsilon,
            delta=each.delta,
            gaussian_mu=each.gaussian_mu,
            gaussian_epsilon=each.gaussian_epsilon,
            gaussian_delta=each.gaussian_delta,
        )
        for each in group_sizes(epsilon=plan.epsilon, delta=plan.delta, gaussian=noise)
    ]


def _meanings(given: Section | Sequence[Section]) -> dict[str, str]:
    """Returns the meanings of the fields of a section, or of the first of several, from its type."""
    section = given if isinstance(given, Section) else given[0]
    listed = (inspect.getdoc(type(section)) or "").partition("Attributes:\n")[2]
    found = re.findall(r"^  (\w+): (.*(?:\n    .*)*)", listed, re.MULTILINE)
    return {
        name: " ".join(text.split()) for name, text in found if getattr(section, name) is not UNSET
    }


def with_notes(ledger: AnyLedger, notes: ReleaseNotes) -> AnyLedger:
    """Returns a ledger without notes with these, and with the phrase that begins with their unit."""
    guarantee = ledger.guarantee
    if notes.unit is not None:
        records = guarantee.user.removesuffix(_IS_ONE_USER)
        guarantee = msgspec.structs.replace(guarantee, user=f"{notes.unit}: {records}")
    return msgspec.structs.replace(ledger, notes=notes, guarantee=guarantee)


def ledger_bytes(ledger: AnyLedger) -> bytes:
    """Returns a ledger as indented UTF-8 JSON: equal ledgers give equal bytes."""
    data = msgspec.to_builtins(ledger)
    for last in ("meanings", "versions", "rows", "content", "parts"):
        if last in data:
            data[last] = data.pop(last)
    return (json.dumps(data, indent=2, ensure_ascii=False, allow_nan=False) + "\n").encode()


def user_sentence(described: InputDescription | None) -> str:
    """Returns a phrase that says what one user of the guarantee is.

    >>> user_sentence(InputDescription(user_field="customer_email", format="csv"))
    'each value of the field "customer_email" is one user'
    >>> user_sentence(InputDescription(user_field=("user", "month")))
    'each combination of the values of the fields "user" and "month" is one user'
    """
    if described is None:
        return "as the input of the pipeline names them"
    if described.format == "sequences":
        return f"each line of a file{_IS_ONE_USER}"
    details = dict(described.details)
    if "record_is_user" in details:
        return f"each record of a file{_IS_ONE_USER}"
    names = [f'"{name}"' for name in names_of(described.user_field)]
    values = f"each value of the field {names[0]}"
    if len(names) > 1:
        listed = f"{', '.join(names[:-1])} and {names[-1]}"
        values = f"each combination of the values of the fields {listed}"
    if "normalize_users" in details:
        values += ", composed and without format characters and blanks at its ends,"
    return f"{values}{_IS_ONE_USER}"


def input_section(described: InputDescription | None) -> dict[str, Any]:
    """Returns a description for the ledger; names of fields are None where there are no fields."""
    if described is None or described.format == "sequences":
        without_fields = {"user_field": None, "text_fields": None}
        return (described or InputDescription()).to_dict() | without_fields
    if "record_is_user" in dict(described.details):
        return described.to_dict() | {"user_field": None}
    return described.to_dict()


def _counts(plan: Any) -> Counts:
    return Counts(
        budget_share=plan.count_share,
        row_noise_stddev=plan.count_noise,
        confidence=CONFIDENCE,
    )


def _series(place: SeriesPlace, described: InputDescription | None) -> schema.Series:
    return schema.Series(
        id=place.id,
        number=place.number,
        releases=place.releases,
        releases_per_user=place.releases_per_user,
        epsilon=place.epsilon,
        delta=place.delta,
        users=user_sentence(described),
        statement=_SERIES,
    )


def _columns(given: Mapping[str, str], *, is_counted: bool, is_of_series: bool) -> dict[str, str]:
    """Returns the meanings of the columns, those of numbers of users too, and the order of the rows."""
    row = "item" if "item" in given else "n-gram"
    columns = dict(given)
    if is_counted:
        columns |= {
            "users": f"estimated number of users who have the {row}, from noisy sums and from the "
            f"scores of other {row}s; it is shrunk towards what {row}s with similar scores have, and "
            "meant for the rows of the release together: that of one row may be off by a factor of two "
            "or three, if mostly one community of users has it",
            "users_low": f"lower end of the {CONFIDENCE:.0%} interval of users",
            "users_high": f"upper end of the {CONFIDENCE:.0%} interval of users",
        }
    if is_of_series and "users" in columns:
        whom = "only those who take part in this release of the series are counted"
        columns["users"] = f"{columns['users']}; {whom}"
    rising = {"length": "by length", "ngram": f"by the bytes of the {row}"}
    rising |= {"item": rising["ngram"], "group": "by the bytes of the group"}
    keys = [rising.get(name, f"by falling {name}") for name in ORDER if name in columns]
    return {**columns, "order": ", then ".join(keys)}
