"""The ledger of a release: what was spent on what, under which guarantee, and which files it lists.

It holds public parameters, released numbers and checksums; no time, path, host, runner or partition
count, so that the same release has the same ledger wherever it was made.
"""

import importlib.metadata
import json
import math
import platform
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from apache_beam.io.filesystem import CompressionTypes
from apache_beam.io.filesystems import FileSystems

from beam_dpne.ngrams import LengthFacts
from beam_dpne.plan import LengthPlan, PrivacyPlan
from beam_dpne.tokenizers import tokenizer_name
from beam_dpne.version import __version__

SCHEMA = "beam_dpne/ledger/1"
SCHEMA_FAMILY = "beam_dpne/ledger/"
LEDGER_NAME = "ledger.json"
PART_NAME = re.compile(r"ngrams-[0-9a-f]{16}-\d{5,}-of-\d{5,}\.(jsonl|tsv|parquet)")
_PACKAGES = ("apache-beam", "numpy", "scipy", "pyarrow", "cryptography", "msgspec")

_WHAT = (
    "A differentially private release of n-grams. It is complete when every part listed here is "
    "there with its SHA-256; files that are not listed do not belong to it."
)
_NEIGHBOURS = "one user is added or removed with all of that user's documents"
_STATEMENT = (
    "Parts and ledger together are user-level (epsilon, delta)-differentially private: for any two "
    "inputs that are neighbours and any set O of releases, "
    "P[release of one in O] <= exp(epsilon) * P[release of the other in O] + delta."
)
_SLACK = (
    "What floating-point arithmetic may cost of epsilon: every decision's probability is right to "
    "a relative 1e-12, and a user changes at most max_tokens_per_user decisions at a length. It is "
    "subtracted from epsilon before the noise is calibrated, and its factor from both deltas."
)
_ONE_KEY_ONE_INPUT = (
    "One run key on two different inputs (or tokenizers of one name) with the same parameters voids "
    "the guarantee: the difference of the two releases "
    "is free of noise. The key is as secret as the data."
)
AS_GIVEN = "as the input of the pipeline names them"
_LENGTHS_COLUMNS = {
    "noise_stddev": "standard deviation of the noise in units of weight: composed_noise_stddev / "
    "sqrt(budget_share), where composed_noise_stddev is that of one Gaussian mechanism as private as "
    "all lengths together",
    "threshold": "noisy weights above it are released; null where nothing could be",
    "released": "n-grams of this length in the release",
    "valid": "candidates of this length, held by somebody or not; null for single words",
    "expected_spurious_at_most": "expected number of released n-grams that nobody holds, at most",
}
_COLUMNS = {
    "length": "words in the n-gram",
    "ngram": (
        r"its words joined by one blank; in a word, backslash is \\, blank \s, tab \t, line feed "
        r"\n, carriage return \r, and the empty word is \e (beam_dpne.split_ngram reads it)"
    ),
    "score": (
        "the noisy weight, to the middle of a cell one 64th of noise_stddev wide, rounded to six "
        "decimals; above the length's threshold"
    ),
    "order": "by length, then falling score, then the bytes of the n-gram",
}
_NOT_PROTECTED = (
    "run time, memory, autoscaling, retries and crashes, which depend on the data",
    "the operator's channel: rejected records, counters and logs; it is as private as the data",
    "the run key, and staging and temporary storage; who has the key can subtract the noise",
    "what a tokenizer of the user's own lets one document do to another's tokens: it must treat each "
    "document alone",
    "the plan, if any of it was chosen by looking at the data",
    "groups of several users: for a group of g users epsilon grows to g * epsilon",
    "one person with several user ids, who counts as several users",
    "against an adversary who can tell AES from random: the guarantee is computational",
    "what is true of many users whether or not one of them takes part",
)


class ReleaseError(ValueError):
    """A release cannot be published or read; the message holds no n-gram."""


class Part(NamedTuple):
    """One file of a release.

    Attributes:
      name: in the release's directory.
      rows: n-grams in it.
      sha256: of its bytes, hexadecimal.
      bytes: its size.
    """

    name: str
    rows: int
    sha256: str
    bytes: int


def build_ledger(
    *,
    plan: PrivacyPlan,
    facts: Sequence[LengthFacts],
    parts: Sequence[Part],
    run_key_given: bool,
    tokenizer: str | Callable[..., Any],
    users: str = AS_GIVEN,
    program: str = "ngrams",
) -> dict[str, Any]:
    """Returns the ledger of a release, as JSON types in reading order.

    Args:
      plan: of the run.
      facts: of each length, in any order.
      parts: files of the release, in order.
      run_key_given: whether the run key was given instead of fresh.
      tokenizer: its name, or the function itself (see `tokenizer_name`).
      users: what one user was, in words; the guarantee is for each of them.
      program: which kind of release it is.

    Raises:
      ValueError: if facts or parts are not those of one run under this plan.
    """
    ordered = sorted(facts, key=lambda fact: fact.length)
    _check_facts(plan, ordered, parts)
    return {
        "schema": SCHEMA,
        "what": _WHAT,
        "program": program,
        "guarantee": {
            "epsilon": plan.epsilon,
            "delta": plan.delta,
            "neighbours": _NEIGHBOURS,
            "user": users,
            "statement": _STATEMENT,
        },
        "not_protected": list(_NOT_PROTECTED),
        "plan": json.loads(plan.to_json()),
        "spent": {
            "gaussian_delta": plan.gaussian_delta,
            "vocabulary_delta": plan.vocabulary_delta,
            "composed_noise_stddev": plan.noise_stddev,
            "numerical_slack": plan.numerical_slack,
            "numerical_slack_meaning": _SLACK,
        },
        "lengths_columns": dict(_LENGTHS_COLUMNS),
        "lengths": [_length(*pair) for pair in zip(plan.lengths, ordered, strict=True)],
        "run_key": {"given": run_key_given, "warning": _ONE_KEY_ONE_INPUT},
        "tokenizer": tokenizer_name(tokenizer),
        "columns": dict(_COLUMNS),
        "versions": _versions(),
        "parts": [part._asdict() for part in parts],
    }


def ledger_bytes(ledger: Mapping[str, Any]) -> bytes:
    """Returns a ledger as indented UTF-8 JSON: equal ledgers give equal bytes."""
    return (json.dumps(ledger, indent=2, ensure_ascii=False, allow_nan=False) + "\n").encode()


def read_ledger(path: str) -> dict[str, Any]:
    """Reads the ledger of a release.

    Args:
      path: of the release's directory, or of its `ledger.json`; local or on any Beam file system.

    Returns:
      What `build_ledger` returned.

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
    if ledger["schema"] != SCHEMA:
        raise ReleaseError(
            f"{place} has schema {ledger['schema']!r}; this version reads {SCHEMA!r}."
        )
    for name, kind in _REQUIRED.items():
        if not isinstance(ledger.get(name), kind):
            raise ReleaseError(f"{place} is damaged: {name!r} is missing or not a {kind.__name__}.")
    if not ledger["parts"] or not all(map(_is_part, ledger["parts"])):
        raise ReleaseError(f"{place} is damaged: 'parts' must list the files of the release.")
    if not all(map(_is_length, ledger["lengths"])):
        raise ReleaseError(f"{place} is damaged: 'lengths' must describe each length.")
    rows = sum(part["rows"] for part in ledger["parts"])
    if rows != sum(length["released"] for length in ledger["lengths"]):
        raise ReleaseError(f"{place} is damaged: its parts do not hold what its lengths released.")
    return ledger


def is_ledger(data: bytes) -> bool:
    """Whether this is a ledger of ours, of any schema version."""
    schema = (_json_object(data) or {}).get("schema")
    return isinstance(schema, str) and schema.startswith(SCHEMA_FAMILY)


def listed_parts(data: bytes | None) -> frozenset[str]:
    """The names of the parts that a ledger lists; none if there is no ledger."""
    parts = (_json_object(data or b"") or {}).get("parts")
    return frozenset(part["name"] for part in parts or () if _is_part(part))


def ledger_path(path: str) -> str:
    """Returns the path of a release's ledger from that of its directory, or its own."""
    last = re.split(r"[/\\]", path)[-1]
    return path if last == LEDGER_NAME else FileSystems.join(path, LEDGER_NAME)


def reason(error: Exception) -> str:
    """Returns why an operation failed, without the data that a library may quote."""
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    return type(error).__name__


_REQUIRED: dict[str, type] = {
    "what": str,
    "program": str,
    "guarantee": dict,
    "not_protected": list,
    "plan": dict,
    "spent": dict,
    "lengths_columns": dict,
    "lengths": list,
    "run_key": dict,
    "tokenizer": str,
    "columns": dict,
    "versions": dict,
    "parts": list,
}


def _check_facts(plan: PrivacyPlan, facts: Sequence[LengthFacts], parts: Sequence[Part]) -> None:
    """A ledger with another run's plan would claim a guarantee that nobody gave."""
    if [fact.length for fact in facts] != [length.length for length in plan.lengths]:
        raise ValueError(
            f"facts must be of the plan's lengths 1 to {plan.max_length}, "
            f"got {[fact.length for fact in facts]}."
        )
    for length, fact in zip(plan.lengths, facts, strict=True):
        if not math.isclose(length.noise_stddev, fact.noise_stddev, rel_tol=1e-12):
            raise ValueError(
                f"facts must be of a run under this plan: at length {fact.length} the noise has "
                f"deviation {fact.noise_stddev}, the plan says {length.noise_stddev}."
            )
    first = plan.lengths[0].threshold
    if facts[0].threshold is None or (first is not None and facts[0].threshold < first):
        raise ValueError(
            "facts must be of a run under this plan: its vocabulary threshold is below the plan's."
        )
    if sum(part.rows for part in parts) != sum(fact.released for fact in facts):
        raise ValueError("parts must hold as many rows as the lengths released.")


def _length(length: LengthPlan, fact: LengthFacts) -> dict[str, Any]:
    return {
        "length": length.length,
        "budget_share": length.budget_share,
        "max_contributions": length.max_contributions,
        "noise_stddev": fact.noise_stddev,
        "threshold": fact.threshold,
        "released": fact.released,
        "valid": fact.valid,
        "expected_spurious_at_most": fact.spurious_bound,
    }


def _versions() -> dict[str, str]:
    packages = {name: importlib.metadata.version(name) for name in _PACKAGES}
    return {"beam_dpne": __version__, **packages, "python": platform.python_version()}


def _json_object(data: bytes) -> dict[str, Any] | None:
    try:
        value = json.loads(data)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def _is_part(part: object) -> bool:
    """Also a guard: a name outside the pattern could lead out of the release's directory."""
    return (
        isinstance(part, dict)
        and all(_is_count(part.get(name)) for name in ("rows", "bytes"))
        and bool(re.fullmatch(r"[0-9a-f]{64}", str(part.get("sha256"))))
        and bool(PART_NAME.fullmatch(str(part.get("name"))))
    )


def _is_length(length: object) -> bool:
    return isinstance(length, dict) and all(map(_is_count, map(length.get, ("length", "released"))))


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0
