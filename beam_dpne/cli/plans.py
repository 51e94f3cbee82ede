"""`beam-dpne plan`, and public words."""

import argparse
from collections.abc import Sequence
from typing import Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from beam_dpne.accounting.division import plan_of_each
from beam_dpne.cli import display, forecasting
from beam_dpne.cli.privacy import plan_from_options
from beam_dpne.cli.small_files import read_text, write_text
from beam_dpne.documents.tokenizers import Tokenizer, resolve_tokenizer, tokenize, tokenizer_name
from beam_dpne.errors import UsageError
from beam_dpne.validation import about_large_delta


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
        write_text(parsed.output, plan.to_json())
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
    text = read_text(path, "vocabulary", "a UTF-8 text file with one word a line")
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
