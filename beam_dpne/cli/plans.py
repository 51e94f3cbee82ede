"""`beam-dpne plan`, the plan that options describe, and public words."""

import argparse
import pathlib
from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from apache_beam.io.filesystem import CompressionTypes
from apache_beam.io.filesystems import FileSystems

from beam_dpne.accounting.division import plan_of_each
from beam_dpne.cli import display, forecasting
from beam_dpne.cli.options import Option, with_defaults
from beam_dpne.cli.options_by_command import PLAN
from beam_dpne.documents.tokenizers import Tokenizer, resolve_tokenizer, tokenize, tokenizer_name
from beam_dpne.errors import UsageError
from beam_dpne.ngrams.plan import PrivacyPlan
from beam_dpne.storage.access import check_access
from beam_dpne.storage.directories import connect_anonymously_to_emulators
from beam_dpne.validation import about_large_delta

_SINGLE = tuple(option for option in PLAN["privacy"] if option.name != "plan")


class SpendsDelta(Protocol):
    """The privacy parameters of a run, which the plans of all programs have."""

    @property
    def delta(self) -> float:
        """δ of the whole run."""
        ...

    @property
    def public_user_count(self) -> int | None:
        """Number of users of the input if it is public, else None."""
        ...


def run_command(parsed: argparse.Namespace, beam_arguments: list[str]) -> None:
    """Prints what an n-gram needs, or a forecast, and writes the plan to the file `output`."""
    if beam_arguments:
        raise UsageError(f"beam-dpne plan has no option {beam_arguments[0].split('=')[0]}.")
    whole = plan_from_options(parsed)
    warn_of_large_delta(whole)
    plan = whole if parsed.releases is None else plan_of_each(whole, parsed.releases)
    vocabulary = read_vocabulary(parsed.vocabulary) if parsed.vocabulary is not None else None
    job = forecasting.job_from_options(parsed, whole, vocabulary)
    if parsed.output is not None:
        _write(parsed.output, plan.to_json())
    if parsed.releases is not None:
        display.print_line(
            f"{parsed.releases} releases under this plan have at most ε = {whole.epsilon:g} at δ = "
            f"{whole.delta:g} together. Each may have:"
        )
    if job is None:
        forecasting.print_needs(plan)
    else:
        forecasting.run_job(job)
    display.print_budget(plan)
    if parsed.output is not None:
        display.print_notice(f"beam-dpne: the plan is in {parsed.output}.")


def plan_from_options(parsed: argparse.Namespace) -> PrivacyPlan:
    """Returns the plan that the options describe, by single parameters or by a file.

    Raises:
      UsageError: if a parameter is missing, wrong, or given twice.
    """
    if parsed.plan is not None:
        both = [option.name for option in _SINGLE if getattr(parsed, option.name) is not None]
        if both:
            raise UsageError(f"--plan stands for the single parameters; leave out --{both[0]}.")
        text = _read(parsed.plan, "plan", "a JSON file as written by `beam-dpne plan`")
        return PrivacyPlan.from_json(text)
    values = privacy_values(parsed, _SINGLE)
    if getattr(parsed, "vocabulary", None) is not None and values["vocabulary_policy"] is None:
        values["vocabulary_policy"] = "public"
    return PrivacyPlan(**values)


def privacy_values(
    parsed: argparse.Namespace, options: Sequence[Option], common: str = "1 to 4 is common for text"
) -> dict[str, Any]:
    """Returns the values of the options for privacy.

    Args:
      parsed: parsed options.
      options: those for privacy.
      common: advice on epsilon, for the error.

    Raises:
      UsageError: if epsilon or delta is missing.
    """
    values = with_defaults(parsed, options)
    missing = [name for name in ("epsilon", "delta") if values[name] is None]
    if missing:
        raise UsageError(
            f"{' and '.join(missing)} must be given, there is no default: --epsilon is the privacy "
            f"budget of the whole run, {common}; --delta is well below one over "
            "the number of users, e.g. 1e-7 for a million users."
        )
    return values


def warn_of_large_delta(plan: SpendsDelta) -> None:
    """Warns on stderr, even with --quiet, of a δ of 0.001 or more, which weakens the guarantee.

    There is no warning if the number of users is public, since a δ above one over that number is
    refused.
    """
    warning = about_large_delta(plan.delta)
    if warning is not None and plan.public_user_count is None:
        display.print_notice(
            f"beam-dpne: warning: {warning}. Take a delta well below one over the number of users; if "
            "their number is public and small, give --public_user_count."
        )


def read_vocabulary(path: str) -> list[str]:
    """Reads a public vocabulary with one word in each line; empty lines are skipped.

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
    texts = pa.array(words, pa.string())
    tokens = tokenize(resolve_tokenizer(tokenizer), texts)
    starts = tokens.offsets.to_numpy()
    # Indices of the words that the tokenizer does not split, and the one token of each.
    alone = np.flatnonzero(np.diff(starts) == 1)
    found = tokens.values.take(pa.array(starts[alone]))
    equal = pc.call_function("equal", [found, texts.take(pa.array(alone))])
    # One flag for each word: its only token is the word, unchanged.
    same = np.zeros(len(words), dtype=bool)
    same[alone] = equal.to_numpy(zero_copy_only=False)
    if not same.all():
        raise UsageError(
            f"vocabulary must have one token a line, as tokenizer={tokenizer_name(tokenizer)} writes "
            f"it; {int((~same).sum())} of {len(words)} lines are none, the first of them word "
            f"{int(np.argmin(same)) + 1}."
        )


def _read(path: str, name: str, wanted: str) -> str:
    """Returns the text of a small file, local or on any Beam file system."""
    is_remote = _is_remote(path)
    try:
        if not is_remote:
            return pathlib.Path(path).read_bytes().decode("utf-8")
        with FileSystems.open(path, compression_type=CompressionTypes.UNCOMPRESSED) as file:
            return file.read().decode("utf-8")
    except Exception as error:
        raise UsageError(
            f"{name} cannot be read, got {path} ({type(error).__name__}). Name {wanted}."
        ) from None


def _write(path: str, text: str) -> None:
    """Writes a small file, local or on any Beam file system."""
    is_remote = _is_remote(path)
    try:
        if not is_remote:
            pathlib.Path(path).write_bytes(text.encode("utf-8"))
            return
        with FileSystems.create(path, compression_type=CompressionTypes.UNCOMPRESSED) as file:
            file.write(text.encode("utf-8"))
    except Exception as error:
        why = getattr(error, "strerror", None) or type(error).__name__
        raise UsageError(f"output cannot be written, got {path} ({why}).") from None


def _is_remote(path: str) -> bool:
    """Whether a path is on a Beam file system; raises AccessError if that cannot be used."""
    if "://" not in path:
        return False
    connect_anonymously_to_emulators()
    check_access([path], [])
    return True
