"""The ledger of a release: what was spent on what, under which guarantee, and which files it lists.

It holds public parameters, released numbers and checksums; no time, path, host, runner or partition
count, so that the same release has the same ledger wherever it was made. What is common to all
programs is here; `ngrams_ledger` and `set_union_ledger` have what is particular to one.
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
from beam_dpne.mechanism.user_count import about_large_delta
from beam_dpne.reading.description import InputDescription
from beam_dpne.release.privacy_unit import input_section, user_sentence
from beam_dpne.release.release_notes import ReleaseNotes
from beam_dpne.version import __version__

SCHEMA = "beam_dpne/ledger/2"
# Schema 1 has no sections on groups, on the input, and on what the operator says.
READABLE_SCHEMAS = ("beam_dpne/ledger/1", SCHEMA)
SCHEMA_FAMILY = "beam_dpne/ledger/"
LEDGER_NAME = "ledger.json"
PART_NAME = re.compile(
    r"(ngrams|items|probabilities|probabilities_without_privacy)"
    r"-[0-9a-f]{16}-\d{5,}-of-\d{5,}\.(jsonl|tsv|parquet)"
)
_PACKAGES = ("apache-beam", "numpy", "scipy", "pyarrow", "cryptography", "msgspec")

_COMPLETE = (
    "It is complete when every part listed here is there with its SHA-256; files that are not listed "
    "do not belong to it."
)
_NEIGHBOURS = "one user is added or removed with all of that user's documents"
_STATEMENT = (
    "Parts and ledger together are user-level (epsilon, delta)-differentially private: for any two "
    "inputs that are neighbours and any set O of releases, "
    "P[release of one in O] <= exp(epsilon) * P[release of the other in O] + delta."
)
_ONE_KEY_ONE_INPUT = (
    "One run key on two different inputs with the same parameters voids the guarantee: the difference "
    "of the two releases is free of noise. So do two tokenizers of the operator's with the same name "
    "and version. The noise also depends on mechanism_version, the plan with its constants, the "
    "tokenizer with its version, and on how records became documents as the section input says: where "
    "one of these differs, the noise is independent. The key is as secret as the data."
)
_NOT_PROTECTED = (
    "run time, memory, autoscaling, retries and crashes, which depend on the data, as does whether a "
    "run fails because too many of its records were rejected",
    "the operator's channel: rejected records, counters and logs; it is as private as the data",
    "the run key, and staging and temporary storage; who has the key can subtract the noise",
    "what a tokenizer of the user's own lets one document do to another's tokens: it must treat each "
    "document alone",
    "the plan, if any of it was chosen by looking at the data",
    "groups of several users as much as one user: the section groups says what they are guaranteed",
    "one person with several user ids as much as one user: such a person counts as a group",
    "against an adversary who can tell AES from random: the guarantee is computational",
    "what is true of many users whether or not one of them takes part",
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
    """What a ledger of one program holds beyond the common sections.

    Attributes:
      stem: with which the names of its parts begin.
      noun: what is released.
      sections: names and types.
      released: from a ledger, the number of rows that its sections tell; None if they are damaged.
      damage: what is wrong then.
    """

    stem: str
    noun: str
    sections: Mapping[str, type]
    released: Callable[[Mapping[str, Any]], int | None]
    damage: str


class Plan(Protocol):
    """What a ledger wants of the public parameters of a run, whichever program's they are."""

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


def whole_ledger(
    program: str,
    *,
    plan: Plan,
    sections: Mapping[str, Any],
    spent: Mapping[str, Any],
    columns: Mapping[str, str],
    parts: Sequence[Part],
    run_key_given: bool,
    tokenizer: str | Callable[..., Any],
    described: InputDescription | None,
    notes: ReleaseNotes,
    grounds: Mapping[str, Any],
    groups: Mapping[str, Any],
    not_protected: Sequence[str] = (),
) -> dict[str, Any]:
    """Returns the ledger of a release, as JSON types in reading order.

    Args:
      program: one of `PROGRAMS`.
      plan: of the run.
      sections: those of this program.
      spent: what the budget went into.
      columns: what the columns of the parts mean.
      parts: files of the release, in order.
      run_key_given: whether the run key was given instead of fresh.
      tokenizer: its name, or the function itself (see `tokenizer_name`).
      described: how records became documents; None if nobody said.
      notes: what the operator says of the release.
      grounds: on what the guarantee rests, beyond its statement.
      groups: what is guaranteed to groups of users (see `group_privacy`).
      not_protected: what this program does not protect, beyond what none does.

    Raises:
      ValueError: if the parts do not hold what was released.
    """
    kind = PROGRAMS[program]
    if sum(part.rows for part in parts) != kind.released(sections):
        raise ValueError(f"parts must hold as many rows as {kind.noun} were released.")
    return {
        "schema": SCHEMA,
        "what": f"A differentially private release of {kind.noun}. {_COMPLETE}",
        "notes": notes.to_dict(),
        "program": program,
        "guarantee": {**_statement(plan, user_sentence(described, notes)), **grounds},
        "groups": dict(groups),
        "not_protected": [
            *_NOT_PROTECTED,
            *filter(None, [about_large_delta(plan.delta)]),
            *not_protected,
        ],
        "plan": json.loads(plan.to_json()),
        "spent": dict(spent),
        **sections,
        "run_key": {
            "given": run_key_given,
            "mechanism_version": MECHANISM_VERSION,
            "warning": _ONE_KEY_ONE_INPUT,
        },
        "input": input_section(described),
        "tokenizer": tokenizer_name(tokenizer),
        "columns": dict(columns),
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


def ledger_bytes(ledger: Mapping[str, Any]) -> bytes:
    """Returns a ledger as indented UTF-8 JSON: equal ledgers give equal bytes."""
    return (json.dumps(ledger, indent=2, ensure_ascii=False, allow_nan=False) + "\n").encode()


def read_ledger(path: str) -> dict[str, Any]:
    """Reads the ledger of a release.

    Args:
      path: of the release's directory, or of its `ledger.json`; local or on any Beam file system.

    Returns:
      What `whole_ledger` returned.

    Raises:
      ReleaseError: if there is none, or it is not a whole ledger of this schema.
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
      ReleaseError: if it is not a whole ledger of this schema.
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
    """Whether this is a ledger of ours, of any schema version."""
    schema = (_json_object(data) or {}).get("schema")
    return isinstance(schema, str) and schema.startswith(SCHEMA_FAMILY)


def listed_parts(data: bytes | None) -> frozenset[str]:
    """The names of the parts that a ledger lists; none if there is no ledger."""
    parts = (_json_object(data or b"") or {}).get("parts")
    return frozenset(part["name"] for part in parts or () if _is_part(part, ""))


def ledger_path(path: str) -> str:
    """Returns the path of a release's ledger from that of its directory, or its own."""
    last = re.split(r"[/\\]", path)[-1]
    return path if last == LEDGER_NAME else FileSystems.join(path, LEDGER_NAME)


def reason(error: Exception) -> str:
    """Returns why an operation failed, without the data that a library may quote."""
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    return type(error).__name__


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
    """Also a guard: a name outside the pattern could lead out of the release's directory."""
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
        sections={"mechanism_columns": dict, "mechanism": dict},
        released=_released_items,
        damage="'mechanism' must tell how many items were released",
    ),
    "bayesian": Program(
        stem="probabilities",
        noun="n-gram probabilities",
        sections={"mechanism_columns": dict, "mechanism": dict},
        released=_released_items,
        damage="'mechanism' must tell how many n-grams have a probability",
    ),
}
