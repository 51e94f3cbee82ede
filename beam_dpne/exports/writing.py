"""Exports: the release that they are made from, their kinds, and the function that writes one."""

import dataclasses
import functools
import importlib
import unicodedata
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from beam_dpne.elements.rows import split_ngram
from beam_dpne.errors import ExportError
from beam_dpne.release.publishing import write_file
from beam_dpne.release.reading import Release, read_ledger
from beam_dpne.storage.directories import check_access

Floats = npt.NDArray[np.float64]


class Source(Release):
    """A release from which exports are made."""

    @property
    def title(self) -> str:
        """Title that the operator gave the release, or else a name of its program."""
        return self.ledger.get("notes", {}).get("title") or f"A private release of {self.noun}"

    @functools.cached_property
    def texts(self) -> list[str]:
        """The n-gram of each row as `join_tokens` writes it, or its item as it is."""
        return self.rows.column(self.text_column).to_pylist()

    @functools.cached_property
    def tokens(self) -> list[tuple[str, ...]]:
        """The words of each row; an item is one word."""
        if self.program == "set-union":
            return [(item,) for item in self.texts]
        return [split_ngram(text) for text in self.texts]

    @functools.cached_property
    def lengths(self) -> npt.NDArray[np.int64]:
        """Number of words of each row, (rows,) int64."""
        return np.fromiter(map(len, self.tokens), np.int64, count=len(self.tokens))

    @functools.cached_property
    def weights(self) -> Floats:
        """A number > 0 for each row, (rows,) float64: users if the release estimates them, else scores.

        An estimate of at most 0 counts as the smallest number > 0 of the release, or as 1.
        """
        values = self.rows.column(self.value_column).to_numpy().astype(np.float64)
        positive = values[values > 0]
        return np.maximum(values, positive.min() if positive.size else 1.0)


def is_unbroken(word: str) -> bool:
    r"""Returns whether a word has no white space and no control character of Unicode.

    >>> is_unbroken("naïve"), is_unbroken("New York"), is_unbroken("a\x00")
    (True, False, False)
    """
    return not any(sign.isspace() or unicodedata.category(sign) == "Cc" for sign in word)


class Exported(NamedTuple):
    """An export that was written.

    Attributes:
      ledger_sha256: SHA-256 of the ledger of the release.
      left_out: Number of rows that the format cannot hold, by the reason.
    """

    ledger_sha256: str
    left_out: Mapping[str, int]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Kind:
    """One kind of export.

    Attributes:
      holds: Description of its file, with an article.
      made_by: Module and name of the function from the release (a `Source`) and the settings to the
        text of the file and the number of rows that it cannot hold, by the reason.
      settings: Names of the settings that it knows.
      programs: Programs whose releases it takes.
    """

    holds: str
    made_by: str
    settings: tuple[str, ...] = ()
    programs: tuple[str, ...] = ("ngrams", "set-union", "bayesian")


_FOUND = ("ngrams", "set-union")
KINDS: Mapping[str, Kind] = {
    "tokenizers": Kind(
        holds="a tokenizer.json of Hugging Face's library tokenizers",
        made_by="language:tokenizer",
        programs=_FOUND,
    ),
    "arpa": Kind(
        holds="a back-off language model in ARPA format",
        made_by="language:arpa",
        settings=("kept_back", "public", "min_count"),
        programs=("ngrams", "bayesian"),
    ),
    "aosp": Kind(
        holds="a word list for Android's LatinIME keyboard",
        made_by="language:keyboard",
        settings=("locale",),
        programs=_FOUND,
    ),
    "elasticsearch": Kind(
        holds="documents with a completion field, as NDJSON for _bulk",
        made_by="tables:suggestions",
    ),
    "csv": Kind(holds="a CSV that spreadsheets can open without risk", made_by="tables:csv_file"),
    "card": Kind(
        holds="a data card, the README.md of a data set on the Hugging Face Hub",
        made_by="tables:card",
        settings=("license",),
    ),
}


def export(
    release: str, to: str, output: str, *, overwrite: bool = False, **settings: Any
) -> Exported:
    """Exports a release to one file, which is written as a whole or not at all.

    It reads the release alone (and public counts, where a model needs them) and costs no budget.

    Args:
      release: Path of the release's directory, or of its `ledger.json`; local or on any Beam file
        system.
      to: Name of the kind, see `KINDS`.
      output: Path of the file; folders that are missing are made.
      overwrite: Whether a file that exists is replaced.
      **settings: Choices that only some kinds know; None leaves one out. `locale` of a keyboard's word
        list, which "aosp" needs; `kept_back`, the share of probability that each context of "arpa"
        keeps for other words, in [0, 1); `public`, the path of the public counts of a release of
        probabilities, for "arpa"; `min_count`, the least public count of n-grams that "arpa" lists
        beside those of the release; `license`, the Hugging Face Hub's name of a licence, for "card".

    Raises:
      ReleaseError: The release is incomplete or damaged.
      ExportError: The kind is unknown or cannot take this release, or a setting is wrong.
      UsageError: The output exists, cannot be written, or is in a release, where only "card" may be.

    >>> export("release/titles", "tokenizer", "titles.json")
    Traceback (most recent call last):
    beam_dpne.errors.ExportError: to must be one of tokenizers, arpa, aosp, elasticsearch, csv, \
    card, got to=tokenizer.
    """
    given = {name: value for name, value in settings.items() if value is not None}
    if to not in KINDS:
        raise ExportError(f"to must be one of {', '.join(KINDS)}, got to={to}.")
    kind = KINDS[to]
    if unknown := sorted(set(given) - set(kind.settings)):
        raise ExportError(f"{unknown[0]} must be left out with to={to}, which has no such setting.")
    check_access([release], [])
    program = read_ledger(release)["program"]
    if program not in kind.programs:
        others = ", ".join(name for name, each in KINDS.items() if program in each.programs)
        raise ExportError(
            f"to={to} cannot take a release of beam-dpne {program}. Use one of {others}."
        )
    module, _, function = kind.made_by.partition(":")
    make = getattr(importlib.import_module(f"beam_dpne.exports.{module}"), function)
    source = Source.read(release)
    text, left_out = make(source, **given)
    inside = to == "card"
    write_file(output, text.encode(), release=release, overwrite=overwrite, may_be_inside=inside)
    return Exported(source.ledger_sha256, left_out)
