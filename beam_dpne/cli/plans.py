"""`beam-dpne plan`; the plan that options describe, public words, and advice on the budget."""

import argparse
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from beam_dpne.cli import display
from beam_dpne.cli.options import with_defaults
from beam_dpne.cli.tables import PLAN
from beam_dpne.documents.tokenizers import Tokenizer, resolve_tokenizer, tokenize, tokenizer_name
from beam_dpne.errors import UsageError
from beam_dpne.ngrams.plan import PrivacyPlan
from beam_dpne.validation import about_large_delta

_SINGLE = tuple(option for option in PLAN["privacy"] if option.name != "plan")


class SpendsDelta(Protocol):
    """The privacy parameters of a run, whichever program's they are."""

    @property
    def delta(self) -> float:
        """δ of the whole run."""
        ...

    @property
    def public_user_count(self) -> int | None:
        """How many users the input has, where that is public."""
        ...


def run_command(given: argparse.Namespace, beam_arguments: list[str]) -> None:
    """Prints the table of a plan, and writes it where asked."""
    if beam_arguments:
        raise UsageError(f"beam-dpne plan has no option {beam_arguments[0].split('=')[0]}.")
    plan = plan_from_options(given)
    warn_of_large_delta(plan)
    if given.output is not None:
        _write(given.output, plan.to_json())
    display.print_plan(plan)
    if given.output is not None:
        display.print_notice(f"beam-dpne: the plan is in {given.output}.")


def plan_from_options(given: argparse.Namespace) -> PrivacyPlan:
    """Returns the plan that the options describe, by single parameters or by a file.

    Raises:
      UsageError: if a parameter is missing, wrong, or given twice.
    """
    if given.plan is None:
        return _plan_from_single(given)
    both = [option.name for option in _SINGLE if getattr(given, option.name) is not None]
    if both:
        raise UsageError(f"--plan stands for the single parameters; leave out --{both[0]}.")
    return PrivacyPlan.from_json(
        _read(given.plan, "plan", "a JSON file as written by `beam-dpne plan`")
    )


def _plan_from_single(given: argparse.Namespace) -> PrivacyPlan:
    values = with_defaults(given, _SINGLE)
    require_budget(values)
    if getattr(given, "vocabulary", None) is not None and values["vocabulary_policy"] is None:
        values["vocabulary_policy"] = "public"
    return PrivacyPlan(**values)


def require_budget(values: Mapping[str, Any], common: str = "1 to 4 is common for text") -> None:
    """Raises UsageError, with advice, unless epsilon and delta are given."""
    missing = [name for name in ("epsilon", "delta") if values[name] is None]
    if missing:
        raise UsageError(
            f"{' and '.join(missing)} must be given, there is no default: --epsilon is the privacy "
            f"budget of the whole run, {common}; --delta is well below one over "
            "the number of users, e.g. 1e-7 for a million users."
        )


def warn_of_large_delta(plan: SpendsDelta) -> None:
    """Warns on stderr of a δ of 0.001 or more, with --quiet too, since it weakens the guarantee.

    A public number of users silences it, since a δ above one over that number is refused.
    """
    warning = about_large_delta(plan.delta)
    if warning is not None and plan.public_user_count is None:
        display.print_notice(
            f"beam-dpne: warning: {warning}. Take a delta well below one over the number of users; if "
            "their number is public and small, give --public_user_count."
        )


def read_vocabulary(path: str) -> list[str]:
    """Reads a public vocabulary, one word a line; empty lines are left out.

    Raises:
      UsageError: if it cannot be read, or has no word.
    """
    text = _read(path, "vocabulary", "a UTF-8 text file with one word a line")
    words = [line for line in text.replace("\r\n", "\n").split("\n") if line]
    if not words:
        raise UsageError(f"vocabulary must have at least one word, got {path}, which has none.")
    return words


def check_tokens(words: Sequence[str], tokenizer: str | Tokenizer) -> None:
    """Raises UsageError unless each word of a public vocabulary is a token that texts can have."""
    if tokenizer == "tokens":
        return
    tokens = tokenize(resolve_tokenizer(tokenizer), pa.array(words, pa.string()))
    counts = np.diff(tokens.offsets.to_numpy())
    alone = np.flatnonzero(counts == 1)
    same = np.zeros(len(words), dtype=bool)
    found = tokens.values.take(pa.array(tokens.offsets.to_numpy()[alone]))
    same[alone] = pc.call_function(
        "equal", [found, pa.array(words, pa.string()).take(pa.array(alone))]
    ).to_numpy(zero_copy_only=False)
    if not same.all():
        raise UsageError(
            f"vocabulary must have one token a line, as tokenizer={tokenizer_name(tokenizer)} writes "
            f"it; {int((~same).sum())} of {len(words)} lines are none, the first of them word "
            f"{int(np.argmin(same)) + 1}."
        )


def _read(path: str, name: str, wanted: str) -> str:
    """Returns the text of a small file, local or on any Beam file system."""
    file = _file(path)
    try:
        return file.read_bytes().decode("utf-8")
    except Exception as error:
        raise UsageError(
            f"{name} cannot be read, got {path} ({type(error).__name__}). Name {wanted}."
        ) from None


def _write(path: str, text: str) -> None:
    file = _file(path)
    try:
        file.write_bytes(text.encode("utf-8"))
    except Exception as error:
        why = getattr(error, "strerror", None) or type(error).__name__
        raise UsageError(f"output cannot be written, got {path} ({why}).") from None


def _file(path: str) -> "pathlib.Path | _RemoteFile":
    """Returns a file to read and write; raises AccessError if its storage cannot be used."""
    return _RemoteFile(path) if "://" in path else pathlib.Path(path)


class _RemoteFile:
    """A file on one of Beam's file systems; Beam is imported late, since it takes two seconds."""

    def __init__(self, path: str) -> None:
        from apache_beam.io.filesystem import CompressionTypes
        from apache_beam.io.filesystems import FileSystems

        from beam_dpne.storage.access import check_access
        from beam_dpne.storage.directories import connect_anonymously_to_emulators

        connect_anonymously_to_emulators()
        check_access([path], [])
        self._systems = FileSystems
        self._where = {"path": path, "compression_type": CompressionTypes.UNCOMPRESSED}

    def read_bytes(self) -> bytes:
        with self._systems.open(**self._where) as file:
            return file.read()

    def write_bytes(self, data: bytes) -> None:
        with self._systems.create(**self._where) as file:
            file.write(data)
