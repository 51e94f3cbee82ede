"""Exports: the release that they are made from, their kinds, those of rows and of the ledger, writing.

The card is the README.md of a data set on the Hugging Face Hub, made from the ledger alone: it names no
n-gram and no item. Its front matter lists the parts, so that `datasets.load_dataset` loads the release
from the repository that has its files and this card.
"""

import csv
import dataclasses
import functools
import importlib
import io
import re
import unicodedata
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import yaml

from beam_dpne.elements.rows import escape_item, guard, split_ngram
from beam_dpne.errors import ExportError
from beam_dpne.release.publishing import write_file
from beam_dpne.release.reading import Release, read_ledger
from beam_dpne.report.document import environment
from beam_dpne.storage.directories import check_access

_LICENSE = re.compile(r"[a-z0-9][a-z0-9.-]{0,63}")
# A file of tabs has no quotes; 3 is `csv.QUOTE_NONE`.
_TABS = {"sep": "\t", "quoting": 3}
Floats = npt.NDArray[np.float64]


class Source(Release):
    """A release from which exports are made."""

    @property
    def title(self) -> str:
        """Title that the operator gave the release, or else a name of its program."""
        return self.ledger.get("notes", {}).get("title") or f"A private release of {self.noun}"

    def of_group(self, group: str | None) -> "Source":
        """Returns the rows of one group; None stands for a release without groups.

        Raises:
          ExportError: The release has groups and none of them is named, or it has none.
        """
        rows = self.rows.filter(pc.field("group") == group) if self.has_groups else self.rows
        if self.has_groups != (group is not None) or (group is not None and not len(rows)):
            raise ExportError(
                "group must name a group of a release with groups, and be left out for others, got "
                f"group={group}."
            )
        chosen = dataclasses.replace(self)
        vars(chosen)["rows"] = rows
        return chosen

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


KINDS: Mapping[str, Kind] = {
    "tokenizers": Kind(
        holds="a tokenizer.json of Hugging Face's library tokenizers",
        made_by="language:tokenizer",
        settings=("group",),
        programs=("ngrams", "set-union"),
    ),
    "arpa": Kind(
        holds="a back-off language model in ARPA format",
        made_by="language:arpa",
        settings=("group", "public"),
        programs=("ngrams", "bayesian"),
    ),
    "csv": Kind(holds="a CSV that spreadsheets can open without risk", made_by="writing:csv_file"),
    "card": Kind(
        holds="a data card, the README.md of a data set on the Hugging Face Hub",
        made_by="writing:card",
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
      **settings: Choices that only some kinds know; None leaves one out. `group`, the group whose
        n-grams are exported where a release has groups and the format has no place for them; `public`,
        the path of the public counts of a release of probabilities, for "arpa"; `license`, the Hugging
        Face Hub's name of a licence, for "card".

    Raises:
      ReleaseError: The release is incomplete or damaged.
      ExportError: The kind is unknown or cannot take this release, or a setting is wrong.
      UsageError: The output exists, cannot be written, or is in a release, where only "card" may be.

    >>> export("release/titles", "tokenizer", "titles.json")
    Traceback (most recent call last):
    beam_dpne.errors.ExportError: to must be one of tokenizers, arpa, csv, card, got to=tokenizer.
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
    if "group" in kind.settings:
        source = source.of_group(given.pop("group", None))
    text, left_out = make(source, **given)
    inside = to == "card"
    write_file(output, text.encode(), release=release, overwrite=overwrite, may_be_inside=inside)
    return Exported(source.ledger_sha256, left_out)


def csv_file(source: Source) -> tuple[str, Mapping[str, int]]:
    """Returns the rows with one line of headings; texts are one line each and are no formulas."""
    return csv_text(source.rows), {}


def csv_text(rows: pa.Table) -> str:
    """Returns rows of a release as CSV."""
    stream = io.StringIO(newline="")
    writer = csv.writer(stream, lineterminator="\n")
    writer.writerow(rows.column_names)
    # The text of an n-gram is one line already.
    line = escape_item if "item" in rows.column_names else str
    for row in zip(*(column.to_pylist() for column in rows.columns), strict=True):
        writer.writerow([guard(line(cell)) if isinstance(cell, str) else cell for cell in row])
    return stream.getvalue()


def card(source: Source, license: str | None = None) -> tuple[str, Mapping[str, int]]:
    """Returns the card.

    Args:
      source: A release of any program.
      license: The Hub's name of the licence, or None to leave it out.

    Raises:
      ExportError: The licence has another form.
    """
    if license is not None and not _LICENSE.fullmatch(license):
        raise ExportError(
            f"license must be the Hub's name of a licence like cc-by-4.0, got license={license}."
        )
    head = _front_matter(source, license)
    text = (
        environment("markdown")
        .get_template("card.jinja")
        .render(
            head=yaml.safe_dump(head, sort_keys=False, allow_unicode=True, width=1000),
            title=source.title,
            ledger=source.ledger,
            rows=len(source.rows),
            noun=source.noun,
            sha256=source.ledger_sha256,
        )
    )
    return text, {}


def _front_matter(source: Source, license_name: str | None) -> dict[str, Any]:
    ledger = source.ledger
    names = [part["name"] for part in ledger["parts"]]
    config = {"config_name": "default", "data_files": [{"split": "train", "path": names}]}
    return {
        "pretty_name": source.title,
        **({"license": license_name} if license_name is not None else {}),
        "tags": ["differential-privacy", source.program],
        "configs": [config | (_TABS if names[0].endswith(".tsv") else {})],
        "differential_privacy": {
            "epsilon": ledger["guarantee"]["epsilon"],
            "delta": ledger["guarantee"]["delta"],
            "unit": ledger["guarantee"]["user"],
            "ledger_sha256": source.ledger_sha256,
        },
    }
