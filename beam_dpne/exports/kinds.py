"""The kinds of exports: which releases each takes, and the function that makes its file."""

import dataclasses
import difflib
from collections.abc import Callable, Mapping

from beam_dpne.errors import ExportError
from beam_dpne.exports import card, keyboard, language_model, suggestions, tables, tokenizer
from beam_dpne.exports.source import Rendered, Source


@dataclasses.dataclass(frozen=True, kw_only=True)
class Settings:
    """The choices of a user that only some kinds know.

    Attributes:
      locale: Locale of a keyboard's word list, which "aosp" needs.
      kept_back: Share of probability that each context of "arpa" keeps for other words, in [0, 1).
      public: Path of the public counts of a release of n-gram probabilities, for "arpa".
      min_count: Least public count of the n-grams that "arpa" lists beside those of the release.
      license: The Hugging Face Hub's name of a licence, for "card".

    Raises:
      ExportError: A value is not of the form that its kind needs.
    """

    locale: str | None = None
    kept_back: float | None = None
    public: str | None = None
    min_count: int | None = None
    license: str | None = None

    def __post_init__(self):
        if self.locale is not None and not keyboard.is_locale(self.locale):
            raise ExportError(
                f"locale must be a locale like en or pt_BR, got locale={self.locale}."
            )
        if self.kept_back is not None and not 0 <= self.kept_back < 1:
            raise ExportError(f"kept_back must be in [0, 1), got kept_back={self.kept_back}.")
        if self.min_count is not None and self.min_count < 1:
            raise ExportError(f"min_count must be at least 1, got min_count={self.min_count}.")
        if self.license is not None and not card.is_license(self.license):
            raise ExportError(
                "license must be the Hub's name of a licence like cc-by-4.0, got "
                f"license={self.license}."
            )


@dataclasses.dataclass(frozen=True, kw_only=True)
class Kind:
    """One kind of export.

    Attributes:
      name: Its name on the command line.
      holds: Description of its file, with an article.
      settings: The fields of `Settings` that it knows.
      render: Function that makes the file.
      has_hash: Whether the file itself has the hash of the ledger.
      beside_release: Whether its file may be in the directory of a release.
      refused: Reasons why programs cannot be exported, by program.
    """

    name: str
    holds: str
    render: Callable[[Source, Settings], Rendered]
    settings: tuple[str, ...] = ()
    has_hash: bool = False
    beside_release: bool = False
    refused: Mapping[str, str] = dataclasses.field(default_factory=dict)


_ITEMS = "items of a set union are no sequences of words"
_PUBLIC = "its n-grams are public, and the private part of it is their probabilities"

KINDS: Mapping[str, Kind] = {
    kind.name: kind
    for kind in (
        Kind(
            name="tokenizers",
            holds="a tokenizer.json of Hugging Face's library tokenizers",
            render=lambda source, _: tokenizer.render(source),
            refused={"bayesian": _PUBLIC},
        ),
        Kind(
            name="arpa",
            holds="a back-off language model in ARPA format",
            settings=("kept_back", "public", "min_count"),
            render=lambda source, settings: language_model.render(
                source, settings.kept_back, settings.public, settings.min_count
            ),
            refused={"set-union": _ITEMS},
        ),
        Kind(
            name="aosp",
            holds="a word list for Android's LatinIME keyboard",
            settings=("locale",),
            render=lambda source, settings: keyboard.render(source, settings.locale or ""),
            has_hash=True,
            refused={"bayesian": _PUBLIC},
        ),
        Kind(
            name="elasticsearch",
            holds="documents with a completion field, as NDJSON for _bulk",
            render=lambda source, _: suggestions.render(source),
        ),
        Kind(
            name="csv",
            holds="a CSV that spreadsheets can open without risk",
            render=lambda source, _: tables.render_csv(source),
        ),
        Kind(
            name="duckdb",
            holds="a SQL script from which DuckDB makes a database",
            render=lambda source, _: tables.render_duckdb(source),
            has_hash=True,
        ),
        Kind(
            name="card",
            holds="a data card, the README.md of a data set on the Hugging Face Hub",
            settings=("license",),
            render=lambda source, settings: card.render(source, settings.license),
            has_hash=True,
            beside_release=True,
        ),
    )
}


def kind_named(name: str) -> Kind:
    """Returns a kind by its name.

    Raises:
      ExportError: There is no such kind; the message has the names that are near.

    >>> kind_named("duckdb").has_hash
    True
    >>> kind_named("tokenizer")
    Traceback (most recent call last):
    beam_dpne.errors.ExportError: to must be one of tokenizers, arpa, aosp, elasticsearch, csv, \
    duckdb, card, got to=tokenizer. Did you mean tokenizers?
    """
    if name in KINDS:
        return KINDS[name]
    near = difflib.get_close_matches(name.lower(), KINDS, n=2, cutoff=0.5)
    hint = f" Did you mean {' or '.join(near)}?" if near else ""
    raise ExportError(f"to must be one of {', '.join(KINDS)}, got to={name}.{hint}")


def check_settings(kind: Kind, settings: Settings) -> None:
    """Checks that a kind has the settings it needs, and none that it does not know.

    Raises:
      ExportError: A setting is missing or belongs to another kind.
    """
    for field in dataclasses.fields(settings):
        if getattr(settings, field.name) is not None and field.name not in kind.settings:
            (owner,) = (each.name for each in KINDS.values() if field.name in each.settings)
            raise ExportError(
                f"{field.name} belongs to to={owner}; leave it out with to={kind.name}."
            )
    if kind.name == "aosp" and settings.locale is None:
        raise ExportError("locale must be given with to=aosp, e.g. --locale en or --locale pt_BR.")


def check_program(kind: Kind, program: str) -> None:
    """Checks that releases of a program can be exported as this kind.

    Raises:
      ExportError: They cannot; the message has the reason and the kinds that can be used.
    """
    reason = kind.refused.get(program)
    if reason is not None:
        others = ", ".join(each.name for each in KINDS.values() if program not in each.refused)
        raise ExportError(
            f"to={kind.name} cannot take a release of beam-dpne {program}: {reason}. Use one of "
            f"{others}."
        )
