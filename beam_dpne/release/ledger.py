"""The ledger of a release: its guarantee, what was spent on what, and the files that belong to it.

It holds public parameters, released numbers and checksums. It holds no time, path, host, runner or
number of partitions, so that the same release has the same ledger wherever it was made. This module
has the sections that all programs share, among them the operator's notes; the modules `ledger` of
`ngrams`, `set_union` and `bayesian` have those of one program, and `files` reads ledgers back.
"""

import dataclasses
import importlib.metadata
import json
import platform
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from beam_dpne.documents.key_context import MECHANISM_VERSION
from beam_dpne.documents.tokenizers import tokenizer_name
from beam_dpne.documents.transform import DocumentsTransform
from beam_dpne.reading.options import InputDescription
from beam_dpne.release.files import SCHEMA
from beam_dpne.release.notes import NO_NOTES, ReleaseNotes
from beam_dpne.release.parts import PROGRAMS, Part
from beam_dpne.validation import about_large_delta
from beam_dpne.version import __version__

_PACKAGES = ("apache-beam", "numpy", "scipy", "pyarrow", "cryptography", "msgspec")

_COMPLETE = (
    "The release is complete if every part listed here is there and has the SHA-256 listed for it. "
    "Files that are not listed do not belong to it."
)
_NEIGHBOURS = (
    "Two inputs are neighbours if one user is added or removed with all of that user's documents."
)
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
    "these have independent noise. The key is as secret as the data."
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
)
_FAR_TAILS = (
    "This share of delta pays for noise so far out that its 128 bits no longer give it the right "
    "probability. It is the probability of such noise, times 1 + exp(epsilon) for the two inputs with "
    "and without a user. The noise is calibrated for less than 999/1000 of delta, so that at least a "
    "thousandth of delta is left for it."
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Run:
    """The public facts of a run that its ledger states and no released set holds.

    Attributes:
      plan: Plan of the run.
      tokenizer: Name of the tokenizer (see `tokenizer_name`).
      run_key_given: Whether the run key was given instead of fresh; the key is not here.
      described: How records became documents, which says what one user is; None if that is unknown.
    """

    plan: Any
    tokenizer: str
    run_key_given: bool
    described: InputDescription | None = None

    @classmethod
    def of(cls, transform: DocumentsTransform) -> "Run":
        """Returns the facts of the runs of a private transform."""
        return cls(
            plan=transform.plan,
            tokenizer=tokenizer_name(transform.tokenizer),
            run_key_given=transform.run_key is not None,
            described=transform.input_description,
        )


class Contents(NamedTuple):
    """The contents of a ledger that depend on the program.

    Attributes:
      program: One of `PROGRAMS`.
      sections: The sections that only this program has.
      spent: The parts of the budget that only this program has.
      slack_meaning: Meaning of the plan's numerical slack.
      columns: Meanings of the columns of the parts.
      groups: The guarantee for groups of users (see `group_privacy`).
      grounds: The theorems and promises on which the guarantee rests, by name.
      not_protected: Sentences about what this program does not protect, beyond `_NOT_PROTECTED`.
    """

    program: str
    sections: Mapping[str, Any]
    spent: Mapping[str, Any]
    slack_meaning: str
    columns: Mapping[str, str]
    groups: Mapping[str, Any]
    grounds: Mapping[str, Any]
    not_protected: Sequence[str] = ()


def whole_ledger(
    contents: Contents, run: Run, rows: Mapping[str, Any], notes: ReleaseNotes = NO_NOTES
) -> dict[str, Any]:
    """Returns the ledger of a release, as JSON types in reading order.

    Its last section is `rows`, for which `with_parts` puts the files once they are written.

    Args:
      contents: The contents that depend on the program.
      run: The public facts of the run.
      rows: Number of the rows, and more about them if it is known (see `rows_section`).
      notes: The operator's notes on the release.

    Raises:
      ValueError: There are not as many rows as were released.
    """
    plan, described, program = run.plan, run.described, PROGRAMS[contents.program]
    if rows["count"] != program.released(contents.sections):
        raise ValueError(f"There must be as many rows as {program.noun} were released.")
    packages = {name: importlib.metadata.version(name) for name in _PACKAGES}
    return {
        "schema": SCHEMA,
        "what": f"A differentially private release of {program.noun}. {_COMPLETE}",
        "notes": notes.to_dict(),
        "program": contents.program,
        "guarantee": {
            "epsilon": plan.epsilon,
            "delta": plan.delta,
            "neighbours": _NEIGHBOURS,
            "user": user_sentence(described, notes),
            "statement": _STATEMENT,
            **contents.grounds,
        },
        "groups": dict(contents.groups),
        "not_protected": [
            *_NOT_PROTECTED,
            *filter(None, [about_large_delta(plan.delta)]),
            *contents.not_protected,
        ],
        "plan": json.loads(plan.to_json()),
        "spent": {
            "gaussian_delta": plan.gaussian_delta,
            **contents.spent,
            "far_tails": plan.far_tails,
            "far_tails_meaning": _FAR_TAILS,
            "numerical_slack": plan.numerical_slack,
            "numerical_slack_meaning": contents.slack_meaning,
        },
        **contents.sections,
        "run_key": {
            "given": run.run_key_given,
            "mechanism_version": MECHANISM_VERSION,
            "warning": _ONE_KEY_ONE_INPUT,
        },
        "input": input_section(described),
        "tokenizer": run.tokenizer,
        "columns": dict(contents.columns),
        "versions": {"beam_dpne": __version__, **packages, "python": platform.python_version()},
        "rows": dict(rows),
    }


def with_parts(ledger: Mapping[str, Any], parts: Sequence[Part]) -> dict[str, Any]:
    """Returns a ledger that lists the files in which its rows are, instead of their digest."""
    listed = {"parts": [part._asdict() for part in parts]}
    return {name: value for name, value in ledger.items() if name != "rows"} | listed


def with_notes(ledger: Mapping[str, Any], notes: ReleaseNotes) -> dict[str, Any]:
    """Returns a ledger with other notes, and with the phrase that begins with their unit."""
    read = ledger["input"]
    described = None
    if read["format"] == "sequences" or read["user_field"] is not None:
        described = InputDescription(user_field=read["user_field"], format=read["format"])
    guarantee = {**ledger["guarantee"], "user": user_sentence(described, notes)}
    return {**ledger, "notes": notes.to_dict(), "guarantee": guarantee}


def ledger_bytes(ledger: Mapping[str, Any]) -> bytes:
    """Returns a ledger as indented UTF-8 JSON: equal ledgers give equal bytes."""
    return (json.dumps(ledger, indent=2, ensure_ascii=False, allow_nan=False) + "\n").encode()


def user_sentence(described: InputDescription | None, notes: ReleaseNotes) -> str:
    """Returns a phrase that says what one user of the guarantee is.

    Args:
      described: How records became documents; None if that is unknown.
      notes: The operator's notes; their unit begins the phrase.

    >>> described = InputDescription(user_field="customer_email", format="csv")
    >>> user_sentence(described, ReleaseNotes(unit="a customer"))
    'a customer: each value of the field "customer_email"'
    >>> user_sentence(described, ReleaseNotes())
    'each value of the field "customer_email" is one user'
    """
    records = _records_of_a_user(described)
    if notes.unit is not None:
        return f"{notes.unit}: {records}"
    return records if described is None else f"{records} is one user"


def _records_of_a_user(described: InputDescription | None) -> str:
    if described is None:
        return "as the input of the pipeline names them"
    if described.format == "sequences":
        return "each line of a file"
    return f'each value of the field "{described.user_field}"'


def input_section(described: InputDescription | None) -> dict[str, Any]:
    """Returns a description for the ledger; names of fields are None where there are no fields."""
    if described is None or described.format == "sequences":
        without_fields = {"user_field": None, "text_fields": None}
        return (described or InputDescription()).to_dict() | without_fields
    return described.to_dict()
