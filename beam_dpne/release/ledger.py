"""The ledger of a release: its guarantee, what was spent on what, and the files that belong to it.

It holds public parameters, released numbers and checksums. It holds no time, path, host, runner or
number of partitions, so that the same release has the same ledger wherever it was made. This module
has the sections that all programs share; `ngrams_ledger`, `set_union_ledger` and `bayesian_ledger`
have those of one program.
"""

import importlib.metadata
import json
import platform
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

from apache_beam.io.filesystem import CompressionTypes
from apache_beam.io.filesystems import FileSystems

from beam_dpne.documents.key_context import MECHANISM_VERSION
from beam_dpne.documents.tokenizers import tokenizer_name
from beam_dpne.errors import ReleaseError
from beam_dpne.reading.options import InputDescription
from beam_dpne.release.release_notes import (
    NO_NOTES,
    ReleaseNotes,
    input_section,
    user_sentence,
)
from beam_dpne.storage.directories import reason
from beam_dpne.validation import about_large_delta
from beam_dpne.version import __version__

SCHEMA = "beam_dpne/ledger/2"
# Schema 1 lacks the sections groups, input and notes.
READABLE_SCHEMAS = ("beam_dpne/ledger/1", SCHEMA)
SCHEMA_FAMILY = "beam_dpne/ledger/"
LEDGER_NAME = "ledger.json"
PART_NAME = re.compile(
    r"(ngrams|items|probabilities|probabilities_without_privacy)"
    r"-[0-9a-f]{16}-\d{5,}-of-\d{5,}\.(jsonl|tsv|parquet)"
)
_PACKAGES = ("apache-beam", "numpy", "scipy", "pyarrow", "cryptography", "msgspec")

_COMPLETE = (
    "The release is complete if every part listed here is there and has the SHA-256 listed for it. "
    "Files that are not listed do not belong to it."
)
_NEIGHBOURS = "one user is added or removed with all of that user's documents"
_STATEMENT = (
    "Parts and ledger together are user-level (epsilon, delta)-differentially private: for any two "
    "inputs that are neighbours and any set O of releases, "
    "P[release of one in O] <= exp(epsilon) * P[release of the other in O] + delta."
)
_ONE_KEY_ONE_INPUT = (
    "One run key on two different inputs with the same parameters voids the guarantee, because the "
    "difference of the two releases is free of noise. It is also void if one run key is used with two "
    "tokenizers of the operator that have the same name and version. The noise depends on the key, "
    "mechanism_version, the plan with its constants, the tokenizer with its version, and the way in "
    "which records became documents, which the section input describes; runs that differ in one of "
    "these have independent noise. The key is as secret as the data."
)
_NOT_PROTECTED = (
    "run time, memory, autoscaling, retries and crashes, which depend on the data, and whether a run "
    "fails because too many of its records were rejected",
    "the operator's channel: rejected records, counters and logs are as private as the data",
    "the run key, and staging and temporary storage: whoever has the key can subtract the noise",
    "the tokens of other documents, if a tokenizer that the operator wrote lets one document change "
    "them: it must treat each document alone",
    "the plan, if any of it was chosen by looking at the data",
    "groups of several users as much as one user: the section groups states their guarantee",
    "one person with several user ids as much as one user: such a person counts as a group",
    "against an adversary who can distinguish AES from random bits: the guarantee is computational",
    "facts that are true of many users whether or not one of them takes part",
)
FAR_TAILS_MEANING = (
    "The share of delta that pays for noise so far out that its 128 bits no longer give it the right "
    "probability. It is the probability of such noise, times 1 + exp(epsilon) for the two inputs with "
    "and without a user, and is subtracted from delta before the noise is calibrated."
)
_INDIVIDUAL_BUDGETS = (
    "Every user has one budget for the whole run, mu^2 with mu = 1 / composed_noise_stddev. A "
    "contribution costs the sum of its squared weights, computed from the integers that were sent. "
    "Over all lengths and rounds the costs of one user add up to at most mu^2, whatever was released "
    "on the way. The budget that a user has left is a private state: it decides what this user sends "
    "next, and affects everything else only through sums with noise of standard deviation 1. By the "
    "theorem on fully adaptive composition with individual budgets for Gaussian noise, the whole run "
    "is as private as one Gaussian mechanism of sensitivity mu and noise of standard deviation 1."
)
_REFERENCES = (
    "A. Smith and A. Thakurta (2022): Fully Adaptive Composition for Gaussian Differential Privacy",
    "A. Koskela, M. Tobaben and A. Honkela (2022): Individual Privacy Accounting with Gaussian "
    "Differential Privacy",
    "V. Feldman and T. Zrnic (2021): Individual Privacy Accounting via a Rényi Filter",
)


class Part(NamedTuple):
    """One file of a release.

    Attributes:
      name: in the release's directory.
      rows: n-grams or items in it.
      sha256: of its bytes, hexadecimal.
      bytes: its size.
    """

    name: str
    rows: int
    sha256: str
    bytes: int


class Program(NamedTuple):
    """The sections and parts that only the ledgers of one program have.

    Attributes:
      stem: beginning of the names of its parts.
      noun: name of one kind of released row, in the plural.
      sections: names and types of its sections.
      released: returns the number of rows that its sections state, or None if they are damaged.
      damage: description of the damage if that is None.
    """

    stem: str
    noun: str
    sections: Mapping[str, type]
    released: Callable[[Mapping[str, Any]], int | None]
    damage: str


class Plan(Protocol):
    """The public parameters of a run that every ledger states, whichever program's they are."""

    @property
    def epsilon(self) -> float:
        """ε of the whole run."""
        ...

    @property
    def delta(self) -> float:
        """δ of the whole run."""
        ...

    def to_json(self) -> str:
        """Returns all of them as a JSON object."""
        ...


class Contents(NamedTuple):
    """What one program writes into its ledger.

    Attributes:
      program: one of `PROGRAMS`.
      plan: of the run.
      sections: the sections that only this program has.
      spent: how the budget was divided.
      columns: the meaning of the columns of the parts.
      grounds: the theorems and promises on which the guarantee rests, by name.
      groups: the guarantee for groups of users (see `group_privacy`).
      not_protected: what this program does not protect, beyond `_NOT_PROTECTED`.
    """

    program: str
    plan: Plan
    sections: Mapping[str, Any]
    spent: Mapping[str, Any]
    columns: Mapping[str, str]
    grounds: Mapping[str, Any]
    groups: Mapping[str, Any]
    not_protected: Sequence[str] = ()


def whole_ledger(
    contents: Contents,
    *,
    parts: Sequence[Part],
    run_key_given: bool,
    tokenizer: str | Callable[..., Any],
    described: InputDescription | None = None,
    notes: ReleaseNotes = NO_NOTES,
) -> dict[str, Any]:
    """Returns the ledger of a release, as JSON types in reading order.

    Args:
      contents: what its program writes.
      parts: files of the release, in order.
      run_key_given: whether the run key was given instead of fresh.
      tokenizer: its name, or the function itself (see `tokenizer_name`).
      described: how records became documents, which says what one user is; None if that is unknown.
      notes: what the operator says of the release.

    Raises:
      ValueError: if the parts do not hold what was released.
    """
    program, plan = contents.program, contents.plan
    kind = PROGRAMS[program]
    if sum(part.rows for part in parts) != kind.released(contents.sections):
        raise ValueError(f"parts must hold as many rows as {kind.noun} were released.")
    return {
        "schema": SCHEMA,
        "what": f"A differentially private release of {kind.noun}. {_COMPLETE}",
        "notes": notes.to_dict(),
        "program": program,
        "guarantee": {
            **_statement(plan, user_sentence(described, notes)),
            **contents.grounds,
        },
        "groups": dict(contents.groups),
        "not_protected": [
            *_NOT_PROTECTED,
            *filter(None, [about_large_delta(plan.delta)]),
            *contents.not_protected,
        ],
        "plan": json.loads(plan.to_json()),
        "spent": dict(contents.spent),
        **contents.sections,
        "run_key": {
            "given": run_key_given,
            "mechanism_version": MECHANISM_VERSION,
            "warning": _ONE_KEY_ONE_INPUT,
        },
        "input": input_section(described),
        "tokenizer": tokenizer_name(tokenizer),
        "columns": dict(contents.columns),
        "versions": _versions(),
        "parts": [part._asdict() for part in parts],
    }


def _statement(plan: Plan, users: str) -> dict[str, Any]:
    return {
        "epsilon": plan.epsilon,
        "delta": plan.delta,
        "neighbours": _NEIGHBOURS,
        "user": users,
        "statement": _STATEMENT,
    }


def individual_budgets(noise_stddev: float) -> dict[str, Any]:
    """Returns the theorem that replaces ordinary composition where users have budgets.

    Args:
      noise_stddev: of one Gaussian mechanism as private as the whole run, in units of weight.
    """
    return {
        "individual_budgets": {
            "statement": _INDIVIDUAL_BUDGETS,
            "mu": 1 / noise_stddev,
            "references": list(_REFERENCES),
        }
    }


def ledger_bytes(ledger: Mapping[str, Any]) -> bytes:
    """Returns a ledger as indented UTF-8 JSON: equal ledgers give equal bytes."""
    return (json.dumps(ledger, indent=2, ensure_ascii=False, allow_nan=False) + "\n").encode()


def read_ledger(path: str) -> dict[str, Any]:
    """Reads the ledger of a release.

    Args:
      path: of the release's directory, or of its `ledger.json`; local or on any Beam file system.

    Returns:
      The ledger, as `whole_ledger` returned it.

    Raises:
      ReleaseError: if there is none, or it is not a whole ledger of a readable schema.
    """
    place = ledger_path(path)
    try:
        if FileSystems.get_scheme(place) is not None and not FileSystems.exists(place):
            raise FileNotFoundError(place)
        with FileSystems.open(place, compression_type=CompressionTypes.UNCOMPRESSED) as file:
            data = file.read()
    except FileNotFoundError:
        raise ReleaseError(
            f"{place} does not exist: there is no release, or its publication was not completed."
        ) from None
    except Exception as error:
        raise ReleaseError(f"{place} cannot be read: {reason(error)}.") from None
    return parse_ledger(data, place)


def parse_ledger(data: bytes, place: str) -> dict[str, Any]:
    """Checks and returns a ledger's JSON; `place` is for messages.

    Raises:
      ReleaseError: if it is not a whole ledger of a readable schema.
    """
    ledger = _json_object(data)
    if ledger is None or not is_ledger(data):
        raise ReleaseError(f"{place} is not a ledger of beam_dpne.")
    if ledger["schema"] not in READABLE_SCHEMAS:
        raise ReleaseError(
            f"{place} has schema {ledger['schema']!r}; this version reads "
            f"{' and '.join(READABLE_SCHEMAS)}."
        )
    program = PROGRAMS.get(str(ledger.get("program")))
    if program is None:
        raise ReleaseError(
            f"{place} is damaged: 'program' is missing or not one of {', '.join(PROGRAMS)}."
        )
    common = _COMMON | (_SINCE_2 if ledger["schema"] == SCHEMA else {})
    for name, kind in (common | dict(program.sections)).items():
        if not isinstance(ledger.get(name), kind):
            raise ReleaseError(f"{place} is damaged: {name!r} is missing or not a {kind.__name__}.")
    if not ledger["parts"] or not all(_is_part(part, program.stem) for part in ledger["parts"]):
        raise ReleaseError(f"{place} is damaged: 'parts' must list the files of the release.")
    released = program.released(ledger)
    if released is None:
        raise ReleaseError(f"{place} is damaged: {program.damage}.")
    if released != sum(part["rows"] for part in ledger["parts"]):
        raise ReleaseError(f"{place} is damaged: its parts do not hold what it says was released.")
    return ledger


def is_ledger(data: bytes) -> bool:
    """Whether this is a ledger of this package, of any schema version."""
    schema = (_json_object(data) or {}).get("schema")
    return isinstance(schema, str) and schema.startswith(SCHEMA_FAMILY)


def listed_parts(data: bytes | None) -> frozenset[str]:
    """Returns the names of the parts that a ledger lists; none if there is no ledger."""
    parts = (_json_object(data or b"") or {}).get("parts")
    return frozenset(part["name"] for part in parts or () if _is_part(part, ""))


def ledger_path(path: str) -> str:
    """Returns the path of a release's ledger from that of its directory, or its own."""
    last = re.split(r"[/\\]", path)[-1]
    return path if last == LEDGER_NAME else FileSystems.join(path, LEDGER_NAME)


_COMMON: dict[str, type] = {
    "what": str,
    "program": str,
    "guarantee": dict,
    "not_protected": list,
    "plan": dict,
    "spent": dict,
    "run_key": dict,
    "tokenizer": str,
    "columns": dict,
    "versions": dict,
    "parts": list,
}
_SINCE_2: dict[str, type] = {"notes": dict, "groups": dict, "input": dict}


def _versions() -> dict[str, str]:
    packages = {name: importlib.metadata.version(name) for name in _PACKAGES}
    return {"beam_dpne": __version__, **packages, "python": platform.python_version()}


def _json_object(data: bytes) -> dict[str, Any] | None:
    try:
        value = json.loads(data)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def _is_part(part: object, stem: str) -> bool:
    """Whether a part is described whole.

    The pattern is also a guard: another name could lead out of the release's directory.
    """
    return (
        isinstance(part, dict)
        and all(_is_count(part.get(name)) for name in ("rows", "bytes"))
        and bool(re.fullmatch(r"[0-9a-f]{64}", str(part.get("sha256"))))
        and bool(PART_NAME.fullmatch(str(part.get("name"))))
        and str(part.get("name")).startswith(stem)
    )


def _released_ngrams(ledger: Mapping[str, Any]) -> int | None:
    if not all(map(_is_length, ledger["lengths"])):
        return None
    return sum(length["released"] for length in ledger["lengths"])


def _is_length(length: object) -> bool:
    return isinstance(length, dict) and all(map(_is_count, map(length.get, ("length", "released"))))


def _released_items(ledger: Mapping[str, Any]) -> int | None:
    released = ledger["mechanism"].get("released")
    return released if _is_count(released) else None


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


_MECHANISM = {"mechanism_columns": dict, "mechanism": dict}
PROGRAMS = {
    "ngrams": Program(
        stem="ngrams",
        noun="n-grams",
        sections={"lengths_columns": dict, "lengths": list},
        released=_released_ngrams,
        damage="'lengths' must describe each length",
    ),
    "set-union": Program(
        stem="items",
        noun="items",
        sections=_MECHANISM,
        released=_released_items,
        damage="'mechanism' must tell how many items were released",
    ),
    "bayesian": Program(
        stem="probabilities",
        noun="n-gram probabilities",
        sections=_MECHANISM,
        released=_released_items,
        damage="'mechanism' must tell how many n-grams have a probability",
    ),
}
