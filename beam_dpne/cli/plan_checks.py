"""Checks of privacy parameters and of public words that need more than the parameters themselves."""

from collections.abc import Sequence
from typing import Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from beam_dpne.bayesian.public_counts_files import same_file
from beam_dpne.cli import display
from beam_dpne.cli.small_files import read_text
from beam_dpne.documents.tokenizers import Tokenizer, resolve_tokenizer, tokenize, tokenizer_name
from beam_dpne.errors import UsageError
from beam_dpne.reading.files import InputFile
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


def check_public(name: str, path: str, files: Sequence[InputFile]) -> None:
    """Raises UsageError if a public file is one of the private ones, or has the same text."""
    for file in files:
        if same_file(path, file.path):
            raise UsageError(
                f"{name} must not be private data, got {name}={path}, which is the same as an input, "
                f"{file.path}. Give data that anybody may see."
            )
