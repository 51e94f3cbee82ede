"""A first look at a release: how many rows it has, the first of them, and what its guarantee says.

A terminal shows it by `beam-dpne show`, and a notebook where a release is the value of a cell.
The report has its sentences.
"""

import dataclasses
from collections.abc import Sequence
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
from markupsafe import Markup

from beam_dpne.elements.rows import in_order
from beam_dpne.errors import UsageError
from beam_dpne.release.bounds import guessing_bound
from beam_dpne.release.reading import Release
from beam_dpne.release.wording import html_text, number, percent
from beam_dpne.validation import did_you_mean

# Rows of each length in a first look.
FIRST_ROWS = 10
_ENDS = ("users_low", "users_high")
_TITLES = {
    "ngrams": "Released n-grams",
    "set-union": "Released items",
    "bayesian": "Private n-gram probabilities",
    "count": "Numbers of users of a list",
}
_LIMITS = (
    "The guarantee protects users as authors of their records. It does not protect somebody about whom "
    "many users write."
)
# Notebooks align all cells right, and would join blanks that a text has.
_TEXT_STYLE = "text-align: left; white-space: pre-wrap; overflow-wrap: anywhere; max-width: 40em"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Choice:
    """Which rows of a release are wanted; a condition that is None is left out.

    Attributes:
      length: Number of words.
      group: Name of a group of the release.
      at_least: Least value, of the column `Release.value_column`.
      top: Number of rows of each length, those with the largest values.
    """

    length: int | None = None
    group: str | None = None
    at_least: float | None = None
    top: int | None = None

    @property
    def is_everything(self) -> bool:
        """Whether no row is left out."""
        return self == Choice()

    def ranked(self, release: Release) -> dict[int | None, pa.Table]:
        """Returns these rows of each length by falling value; None stands for rows without a length.

        Raises:
          UsageError: The release has no rows of this length, or no such group.
        """
        self._check(release)
        return {
            length: self._of_length(release, rows)
            for length, rows in release.ranked().items()
            if self.length in (None, length)
        }

    def rows(self, release: Release) -> pa.Table:
        """Returns these rows in the order of the release.

        Raises:
          UsageError: The release has no rows of this length, or no such group.
        """
        if self.is_everything:
            return release.rows
        return in_order(pa.concat_tables(list(self.ranked(release).values())))

    def _of_length(self, release: Release, rows: pa.Table) -> pa.Table:
        if self.group is not None:
            rows = rows.filter(pc.field("group") == self.group)
        if self.at_least is not None:
            rows = rows.filter(pc.field(release.value_column) >= self.at_least)
        return rows if self.top is None else rows.slice(0, self.top)

    def _check(self, release: Release) -> None:
        lengths = [each["length"] for each in release.lengths]
        if self.length is not None and self.length not in lengths:
            wanted = (
                f"from 1 to {max(lengths)}" if lengths else "left out for rows without a length"
            )
            raise UsageError(f"`length` must be {wanted}, got `length={self.length}`.")
        if self.group is None:
            return
        if not release.has_groups:
            raise UsageError("`group` must be left out for a release without groups.")
        groups = release.rows.column("group").unique().to_pylist()
        if self.group not in groups:
            hint = did_you_mean(self.group, groups)
            raise UsageError(
                f"`group` must be a group of the release, which are {len(groups):,}, got "
                f"`group={self.group}`.{hint}"
            )


class FirstLook(NamedTuple):
    """What a first look at a release shows.

    Attributes:
      title: Title of the release.
      size: Sentence about the number of rows.
      text: Heading of the column of n-grams or items.
      rows: The first rows, each by the headings of its columns; texts are as they were released.
      shown: Sentence about which rows these are, or an empty text if they are all.
      guarantee: Sentence about ε and δ, and the odds of a guess.
      limits: Two sentences about whom the guarantee does not protect.
      not_protected: All limits that the ledger states.
    """

    title: str
    size: str
    text: str
    rows: Sequence[dict[str, str]]
    shown: str
    guarantee: str
    limits: str
    not_protected: Sequence[str]


def first_look(release: Release, choice: Choice) -> FirstLook:
    """Returns a first look at these rows of a release.

    Raises:
      UsageError: The release has no rows of this length, or no such group.
      ReleaseError: A file of the release is missing, damaged or unreadable.
    """
    ranked = choice.ranked(release)
    found = pa.concat_tables(list(ranked.values()))
    return FirstLook(
        title=title_of(release),
        size=size_sentence(release),
        text=release.row_noun,
        rows=_cells(release, found),
        shown=_shown_sentence(release, choice, len(found)),
        guarantee=guarantee_sentence(release.epsilon, release.delta) + series_sentence(release),
        limits=_LIMITS,
        not_protected=release.ledger["not_protected"],
    )


def title_of(release: Release) -> str:
    """Returns the title that the operator gave the release, or else the name of its rows."""
    return release.title or _TITLES.get(release.program, f"Released {release.noun}")


def size_sentence(release: Release) -> str:
    """Returns a sentence about the number of rows, in all and of each length."""
    whole = f"{release.num_rows:,} {release.noun}"
    counts = [(each["length"], each["released"]) for each in release.lengths if each["released"]]
    if len(counts) < 2:
        return f"{whole}."
    own = [f"{count:,} of {words_of(length)}" for length, count in counts]
    return f"{whole}: {', '.join(own[:-1])} and {own[-1]}."


def words_of(length: int) -> str:
    """Returns a number of words as a text.

    >>> words_of(1), words_of(2)
    ('1 word', '2 words')
    """
    return "1 word" if length == 1 else f"{length} words"


def guarantee_sentence(epsilon: float, delta: float) -> str:
    """Returns what (ε, δ) means for the odds of a guess.

    >>> guarantee_sentence(1, 1e-6)
    'Without any one user the release would have come out almost the same (ε = 1, δ = 1e-6). Whoever \
guesses whether that user is in the data, with nothing that favours either answer, is right in 50 % of \
the cases without the release, and in at most 73.2 % with it.'
    """
    right = percent(guessing_bound(epsilon, delta))
    return (
        f"Without any one user the release would have come out almost the same (ε = {number(epsilon)}, "
        f"δ = {number(delta)}). Whoever guesses whether that user is in the data, with nothing that "
        "favours either answer, is right in 50 % of the cases without the release, and in at most "
        f"{right} with it."
    )


def series_sentence(release: Release) -> str:
    """Returns what follows after the guarantee of a release of a series: that of all its releases."""
    series = release.ledger.get("series")
    if series is None:
        return ""
    return (
        f" This is release {number(series['number'])} of a series, in "
        f"{number(series['releases_per_user'])} of whose releases each user takes part at most: all "
        f"together have ε = {number(series['epsilon'])} and δ = {number(series['delta'])}."
    )


def _shown_sentence(release: Release, choice: Choice, count: int) -> str:
    conditions = []
    if choice.length is not None:
        conditions.append(f"of {words_of(choice.length)}")
    if choice.group is not None:
        conditions.append(f"of the group {choice.group}")
    if choice.at_least is not None:
        conditions.append(f"with {release.value_column} of at least {number(choice.at_least)}")
    if count == release.num_rows:
        return ""
    told = " ".join([f"Shown: {count:,} rows", *conditions])
    if choice.top is None:
        return f"{told}."
    each = " of each length" if release.lengths and choice.length is None else ""
    return f"{told}, at most {choice.top:,}{each}, those with the largest {release.value_noun}."


def _cells(release: Release, rows: pa.Table) -> list[dict[str, str]]:
    """Returns the cells of rows by the headings of their columns, numbers as they are shown."""
    columns: dict[str, list[str]] = {}
    for name in rows.column_names:
        values = rows.column(name).to_pylist()
        if name == release.text_column:
            columns[release.row_noun] = values
        elif name == "group":
            columns[name] = values
        elif name not in _ENDS and not (name == "score" and release.has_counts):
            columns[name] = list(map(number, values))
    if release.has_counts:
        ends = zip(*(rows.column(name).to_pylist() for name in _ENDS), strict=True)
        columns[f"{release.confidence:.0%} interval"] = [f"{low:,}–{high:,}" for low, high in ends]
    return [dict(zip(columns, cells, strict=True)) for cells in zip(*columns.values(), strict=True)]


def as_html(look: FirstLook) -> str:
    """Returns a first look as HTML for a notebook, in which no text is markup."""
    heading = Markup("<strong>{}</strong><br>{}").format(html_text(look.title), look.size)
    sentences = [html_text(text) for text in (look.shown, look.guarantee, look.limits) if text]
    limits = _all("li", [html_text(text, 4000) for text in look.not_protected])
    summary = Markup("<summary>What is not protected</summary><ul>{}</ul>").format(limits)
    parts = [
        _tag("p", heading),
        _table(look) if look.rows else Markup(),
        _all("p", sentences),
        _tag("details", summary),
    ]
    return str(_tag("div", Markup().join(parts)))


def _table(look: FirstLook) -> Markup:
    headings = [_cell(look, "th", name, html_text(name)) for name in look.rows[0]]
    lines = [
        Markup().join(
            _cell(look, "td", name, Markup("<bdi>{}</bdi>").format(html_text(text)))
            for name, text in row.items()
        )
        for row in look.rows
    ]
    head = _tag("thead", _tag("tr", Markup().join(headings)))
    return _tag("table", head + _tag("tbody", _all("tr", lines)))


def _cell(look: FirstLook, tag: str, column: str, content: Markup) -> Markup:
    """Returns a cell: texts begin at the left, numbers end at the right."""
    if column not in (look.text, "group"):
        return _tag(tag, content)
    return Markup('<{0} style="{1}">{2}</{0}>').format(tag, _TEXT_STYLE, content)


def _tag(tag: str, content: Markup) -> Markup:
    return Markup("<{0}>{1}</{0}>").format(tag, content)


def _all(tag: str, contents: Sequence[Markup]) -> Markup:
    return Markup().join(_tag(tag, content) for content in contents)
