"""The kinds of exports, and the function that writes one."""

import dataclasses
import difflib
from collections.abc import Callable, Mapping
from typing import Any

from beam_dpne.errors import ExportError
from beam_dpne.exports import card, language_model, tables, vocabularies
from beam_dpne.exports.source import Rendered, Source
from beam_dpne.release.publishing import write_file
from beam_dpne.release.reading import read_ledger
from beam_dpne.storage.access import check_access


@dataclasses.dataclass(frozen=True, kw_only=True)
class Kind:
    """One kind of export.

    Attributes:
      holds: Description of its file, with an article.
      render: Function from the release and the settings to the file.
      settings: Names of the settings that it knows.
      programs: Programs whose releases it takes.
    """

    holds: str
    render: Callable[..., Rendered]
    settings: tuple[str, ...] = ()
    programs: tuple[str, ...] = ("ngrams", "set-union", "bayesian")


_FOUND = ("ngrams", "set-union")
KINDS: Mapping[str, Kind] = {
    "tokenizers": Kind(
        holds="a tokenizer.json of Hugging Face's library tokenizers",
        render=vocabularies.tokenizer,
        programs=_FOUND,
    ),
    "arpa": Kind(
        holds="a back-off language model in ARPA format",
        render=language_model.render,
        settings=("kept_back", "public", "min_count"),
        programs=("ngrams", "bayesian"),
    ),
    "aosp": Kind(
        holds="a word list for Android's LatinIME keyboard",
        render=vocabularies.keyboard,
        settings=("locale",),
        programs=_FOUND,
    ),
    "elasticsearch": Kind(
        holds="documents with a completion field, as NDJSON for _bulk",
        render=tables.suggestions,
    ),
    "csv": Kind(holds="a CSV that spreadsheets can open without risk", render=tables.csv_file),
    "duckdb": Kind(
        holds="a SQL script from which DuckDB makes a database", render=tables.duckdb_script
    ),
    "card": Kind(
        holds="a data card, the README.md of a data set on the Hugging Face Hub",
        render=card.render,
        settings=("license",),
    ),
}


def export(
    release: str, to: str, output: str, *, overwrite: bool = False, **settings: Any
) -> Rendered:
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

    Returns:
      The bytes of the file, how many rows the format could not hold, and the SHA-256 of the ledger.

    Raises:
      ReleaseError: The release is incomplete or damaged.
      ExportError: The kind is unknown or cannot take this release, or a setting is wrong.
      UsageError: The output exists, cannot be written, or is in a release, where only "card" may be.

    >>> export("release/titles", "tokenizer", "titles.json")
    Traceback (most recent call last):
    beam_dpne.errors.ExportError: to must be one of tokenizers, arpa, aosp, elasticsearch, csv, \
    duckdb, card, got to=tokenizer. Did you mean tokenizers?
    """
    given = {name: value for name, value in settings.items() if value is not None}
    kind = _kind(to, given)
    check_access([release], [])
    program = read_ledger(release)["program"]
    if program not in kind.programs:
        others = ", ".join(name for name, each in KINDS.items() if program in each.programs)
        raise ExportError(
            f"to={to} cannot take a release of beam-dpne {program}. Use one of {others}."
        )
    rendered = kind.render(Source.read(release), **given)
    inside = kind.render is card.render
    write_file(output, rendered.data, release=release, overwrite=overwrite, may_be_inside=inside)
    return rendered


def _kind(name: str, settings: Mapping[str, Any]) -> Kind:
    """Returns a kind by its name, after a check that it knows the settings."""
    if name not in KINDS:
        near = difflib.get_close_matches(name.lower(), KINDS, n=2, cutoff=0.5)
        hint = f" Did you mean {' or '.join(near)}?" if near else ""
        raise ExportError(f"to must be one of {', '.join(KINDS)}, got to={name}.{hint}")
    for setting in settings:
        if setting not in KINDS[name].settings:
            owner = next((to for to, kind in KINDS.items() if setting in kind.settings), "no kind")
            raise ExportError(f"{setting} belongs to to={owner}; leave it out with to={name}.")
    return KINDS[name]
