"""The kinds of exports, those of rows and of the ledger themselves, and how an export is written.

The card is the README.md of a data set on the Hugging Face Hub, made from the ledger alone: it names no
n-gram and no item. Its front matter lists the parts, so that `datasets.load_dataset` loads the release
from the repository that has its files and this card.
"""

import csv
import dataclasses
import io
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import pyarrow as pa
import yaml

from beam_dpne.elements.rows import guard, to_cell
from beam_dpne.errors import ExportError
from beam_dpne.release.first_look import Choice
from beam_dpne.release.publishing import write_file
from beam_dpne.release.reading import Release
from beam_dpne.release.report.document import environment
from beam_dpne.validation import did_you_mean

_LICENSE = re.compile(r"[a-z0-9][a-z0-9.-]{0,63}")
# A file of tabs has no quotes; 3 is `csv.QUOTE_NONE`.
_TABS = {"sep": "\t", "quoting": 3}
# Settings that choose rows, for kinds that can hold a part of a release.
_CHOICE = ("at_least", "top")
_DTYPES = {
    pa.string(): "string",
    pa.int32(): "int32",
    pa.int64(): "int64",
    pa.float64(): "float64",
}


class Exported(NamedTuple):
    """An export that was written.

    Attributes:
      ledger_sha256: SHA-256 of the ledger of the release.
      left_out: Number of rows that the format cannot hold, by the reason.
    """

    ledger_sha256: str
    left_out: Mapping[str, int]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Settings:
    """Choices that only some kinds know; None leaves one out.

    Attributes:
      group: The group whose n-grams are exported, where a release has groups and the format has no
        place for them.
      public: Path of the public counts of a release of probabilities.
      license: The Hugging Face Hub's name of a licence.
      at_least: Least value of a row, of the column `Release.value_column`.
      top: Number of rows of each length, those with the largest values.
      model: Name of a model of `trained.MODELS`.
      vocabulary_size: Largest number of tokens of a trained model.
      special_tokens: Special tokens of a trained model, the first for what is unknown.
      bom: Whether a CSV begins with the mark by which spreadsheets know UTF-8.
    """

    group: str | None = None
    public: str | None = None
    license: str | None = None
    at_least: float | None = None
    top: int | None = None
    model: str | None = None
    vocabulary_size: int | None = None
    special_tokens: Sequence[str] | None = None
    bom: bool | None = None

    def given(self) -> list[str]:
        """Returns the names of those that are given, in the order of the alphabet."""
        return sorted(name for name, value in vars(self).items() if value is not None)


# What a kind makes of a release: the text of the file, and the number of rows that it cannot hold, by
# the reason.
Contents = tuple[str, Mapping[str, int]]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Kind:
    """One kind of export.

    Attributes:
      holds: Description of its file, with an article.
      make: Makes it of a release, of those of its rows that are exported, and of the settings.
      settings: Names of the settings that it knows.
      programs: Programs whose releases it takes.
    """

    holds: str
    make: Callable[[Release, pa.Table, Settings], Contents]
    settings: tuple[str, ...] = ()
    programs: tuple[str, ...] = ("ngrams", "set-union", "bayesian", "count")


def csv_text(rows: pa.Table) -> str:
    """Returns rows as CSV with a line of headings; each text is one line and no formula."""
    stream = io.StringIO(newline="")
    writer = csv.writer(stream, lineterminator="\n")
    writer.writerow(rows.column_names)
    columns = [column.to_pylist() for column in rows.columns]
    for place, name in enumerate(rows.column_names):
        if name in ("item", "ngram", "group"):
            columns[place] = [to_cell(name, text) for text in columns[place]]
    for row in zip(*columns, strict=True):
        writer.writerow([guard(cell) if isinstance(cell, str) else cell for cell in row])
    return stream.getvalue()


def card(release: Release, license: str | None = None) -> str:
    """Returns the card.

    Args:
      release: A release of any program.
      license: The Hub's name of the licence, or None to leave it out.

    Raises:
      ExportError: The licence has another form.
    """
    if license is not None and not _LICENSE.fullmatch(license):
        raise ExportError(
            f"`license` must be the Hub's name of a licence like cc-by-4.0, got `license={license}`."
        )
    head = _front_matter(release, license)
    template = environment("markdown").get_template("card.jinja")
    return template.render(
        head=yaml.safe_dump(head, sort_keys=False, allow_unicode=True, width=1000),
        title=title_of(release),
        ledger=release.ledger,
        rows=release.num_rows,
        noun=release.noun,
        sha256=release.ledger_sha256,
    )


def title_of(release: Release) -> str:
    """Returns the title that the operator gave the release, or else a name of its program."""
    return release.title or f"A private release of {release.noun}"


def _front_matter(release: Release, license_name: str | None) -> dict[str, Any]:
    names = [part.name for part in release.parts]
    config = {"config_name": "default", "data_files": [{"split": "train", "path": names}]}
    if names[0].endswith((".csv", ".tsv")):
        # Else the words "null" and "NA" would be nothing.
        config["keep_default_na"] = False
    if names[0].endswith(".tsv"):
        config |= _TABS
    # Else words that look like numbers would become such.
    config["features"] = [
        {"name": field.name, "dtype": _DTYPES[field.type]} for field in release.schema
    ]
    head: dict[str, Any] = {"pretty_name": title_of(release)}
    if license_name is not None:
        head["license"] = license_name
    head["tags"] = ["differential-privacy", release.program]
    head["configs"] = [config]
    head["differential_privacy"] = {
        "epsilon": release.epsilon,
        "delta": release.delta,
        "unit": release.ledger["guarantee"]["user"],
        "ledger_sha256": release.ledger_sha256,
    }
    return head


def _tokenizer(release: Release, rows: pa.Table, settings: Settings) -> Contents:
    # The models of languages are loaded by those exports alone that need them.
    from beam_dpne.exports import language, trained

    if settings.model is not None:
        return trained.trained_tokenizer(
            release,
            rows,
            model=settings.model,
            vocabulary_size=settings.vocabulary_size or trained.VOCABULARY_SIZE,
            special_tokens=settings.special_tokens or trained.SPECIALS,
        )
    if settings.vocabulary_size is not None or settings.special_tokens is not None:
        raise ExportError(
            "`vocabulary_size` and `special_tokens` must be left out without `model`: the tokenizer "
            "of all released words and phrases has its own."
        )
    return language.tokenizer(release, rows), {}


def _arpa(release: Release, rows: pa.Table, settings: Settings) -> Contents:
    from beam_dpne.exports import language

    return language.arpa(release, rows, settings.public)


def _csv_file(_release: Release, rows: pa.Table, settings: Settings) -> Contents:
    text = csv_text(rows)
    return f"\ufeff{text}" if settings.bom else text, {}


def _card_file(release: Release, _rows: pa.Table, settings: Settings) -> Contents:
    return card(release, settings.license), {}


KINDS: Mapping[str, Kind] = {
    "tokenizers": Kind(
        holds="a tokenizer.json of Hugging Face's library tokenizers",
        make=_tokenizer,
        settings=("group", *_CHOICE, "model", "vocabulary_size", "special_tokens"),
        programs=("ngrams", "set-union"),
    ),
    "arpa": Kind(
        holds="a back-off language model in ARPA format",
        make=_arpa,
        settings=("group", "public", *_CHOICE),
        programs=("ngrams", "bayesian"),
    ),
    "csv": Kind(
        holds="a CSV that spreadsheets can open without risk",
        make=_csv_file,
        settings=(*_CHOICE, "bom"),
    ),
    "card": Kind(
        holds="a data card, the README.md of a data set on the Hugging Face Hub",
        make=_card_file,
        settings=("license",),
    ),
}


def export(
    release: Release,
    to: str,
    output: str,
    *,
    overwrite: bool = False,
    group: str | None = None,
    public: str | None = None,
    license: str | None = None,
    at_least: float | None = None,
    top: int | None = None,
    model: str | None = None,
    vocabulary_size: int | None = None,
    special_tokens: Sequence[str] | None = None,
    bom: bool | None = None,
) -> Exported:
    """Exports a release to one file, which is written as a whole or not at all.

    It reads the release alone (and public counts, where a model needs them) and costs no budget.

    Args:
      release: The release (see `read_release`).
      to: Name of the kind, see `KINDS`.
      output: Path of the file; folders that are missing are made.
      overwrite: Whether a file that exists is replaced.
      group: See `Settings`; for "tokenizers" and "arpa".
      public: See `Settings`; for "arpa".
      license: See `Settings`; for "card".
      at_least: See `Settings`; for all but "card".
      top: See `Settings`; for all but "card".
      model: See `Settings`; for "tokenizers".
      vocabulary_size: See `Settings`; for "tokenizers" with a model.
      special_tokens: See `Settings`; for "tokenizers" with a model.
      bom: See `Settings`; for "csv".

    Raises:
      ReleaseError: A file of the release is missing, damaged or unreadable.
      ExportError: The kind is unknown or cannot take this release, or a setting is wrong.
      UsageError: The output exists, cannot be written, or is in a release, where only "card" may be.
    """
    settings = Settings(
        group=group,
        public=public,
        license=license,
        at_least=at_least,
        top=top,
        model=model,
        vocabulary_size=vocabulary_size,
        special_tokens=special_tokens,
        bom=bom,
    )
    if to not in KINDS:
        hint = did_you_mean(to, KINDS)
        raise ExportError(f"`to` must be one of {', '.join(KINDS)}, got `to={to}`.{hint}")
    kind = KINDS[to]
    if unknown := [name for name in settings.given() if name not in kind.settings]:
        raise ExportError(
            f"`{unknown[0]}` must be left out with `to={to}`, which has no such setting."
        )
    if release.program not in kind.programs:
        others = ", ".join(name for name, each in KINDS.items() if release.program in each.programs)
        raise ExportError(
            f"`to={to}` cannot take a release of beam-dpne {release.program}. Use one of {others}."
        )
    rows = _chosen_rows(release, kind, settings)
    text, left_out = kind.make(release, rows, settings)
    write_file(
        output,
        text.encode(),
        release=release.path,
        overwrite=overwrite,
        may_be_inside=to == "card",
    )
    return Exported(release.ledger_sha256, left_out)


def _chosen_rows(release: Release, kind: Kind, settings: Settings) -> pa.Table:
    """Returns the rows that are exported, in the order of the release."""
    if "group" in kind.settings:
        rows_of_group(release, settings.group)
    choice = Choice(group=settings.group, at_least=settings.at_least, top=settings.top)
    if not choice.is_everything and settings.public is not None:
        raise ExportError(
            "`at_least` and `top` must be left out with `public`, since a model of probabilities "
            "needs all rows of the release."
        )
    return choice.rows(release)


def rows_of_group(release: Release, group: str | None) -> pa.Table:
    """Returns the rows of one group; None stands for a release without groups.

    Raises:
      ExportError: The release has groups and none of them is named, or it has no such group.
    """
    if group is None and not release.has_groups:
        return release.rows
    if group is not None and release.has_groups:
        rows = release.rows_of(group)
        if len(rows):
            return rows
    raise ExportError(
        "`group` must name a group of a release with groups, and be left out for others, got "
        f"`group={group}`."
    )
