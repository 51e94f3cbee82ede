"""A whole report of a release, from one template for its text and one for each format.

The page of HTML makes no request: a content security policy in it forbids every request, and all
scripts and styles other than the two of this package, which it names by their SHA-256. All text is
escaped. Rows for the search box are JSON in a script element that no browser runs.
"""

import base64
import collections
import dataclasses
import functools
import hashlib
import importlib.resources
import json
import re
from collections.abc import Collection, Mapping, Sequence
from typing import Any, NamedTuple

import jinja2
import pyarrow as pa
import pyarrow.compute as pc
from markupsafe import Markup, escape

from beam_dpne import __version__
from beam_dpne.elements.rows import SEPARATOR
from beam_dpne.release.bounds import detection_bound, guessing_bound
from beam_dpne.release.changes import compare_releases, differences, told_changes
from beam_dpne.release.first_look import (
    Choice,
    guarantee_sentence,
    series_sentence,
    size_sentence,
    title_of,
    words_of,
)
from beam_dpne.release.reading import Release
from beam_dpne.release.report import PARTS, charts
from beam_dpne.release.wording import html_text, markdown_text, number, percent, shown

_SECTIONS = {
    "summary": "Summary",
    "released": "What was released",
    "changes": "What changed",
    "guarantee": "The guarantee in plain words",
    "limits": "What is not protected",
    "top": "Top rows",
    "search": "Search",
    "parameters": "Parameters",
    "verify": "How to cite and verify",
    "about": "About this report",
}
_PARAMETERS = {
    "plan": "The plan",
    "spent": "How the budget was spent",
    "mechanism": "The mechanism",
    "vocabulary": "The vocabulary",
    "counts": "The measurement of numbers of users",
    "input": "Input",
    "versions": "Versions",
}
_FALSE_ALARMS = (0.001, 0.01, 0.05)
_MOST_PLOTS = 12
_MOST_GROUPS = 50
_OF_A_GROUP = 5
# On the first screen: so many lengths, and so many rows of each.
_FIRST_LENGTHS = 3
_FIRST_ROWS = 5
# The end of the longest bar's scale, as a multiple of the largest value.
_WIDEST = 2.0
# The estimate of an interval that is wider than this factor is marked.
_ROUGH = 10
_ROUGHLY = "≈ "
_SPACE = re.compile(r"[ \t\r\n]+")
_BLANKS = re.compile(r"\n\s*\n")
_BIBTEX = str.maketrans(
    {"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}"}
    | {sign: f"\\{sign}" for sign in "{}%&#_$"}
)


class _Row(NamedTuple):
    """A released row: its text, its value as it is shown, and the bar of that value."""

    text: str
    shown: str
    bar: Markup


def render_report(
    release: Release,
    *,
    since: Release | None = None,
    output_format: str = "html",
    left_out: Collection[str] = (),
    top_rows: int = 20,
    at_least: float | None = None,
    search_rows: int = 100_000,
) -> bytes:
    """Returns a report of a release as a file.

    Equal arguments give equal bytes.

    Args:
      release: The release (see `read_release`).
      since: An earlier release with which it is compared, or None.
      output_format: "html" or "markdown".
      left_out: Names of what is left out, keys of `PARTS`.
      top_rows: Largest number of rows of each length in the tables of top rows.
      at_least: Least value, of `Release.value_column`, of rows in tables, in plots by rank and in the
        search box.
      search_rows: Largest number of rows that the search box of an HTML report holds.
    """
    changes = None
    if since is not None:
        found = compare_releases(since, release)
        unlike = differences(since, release, left_out)
        changes = told_changes(found, 10, unlike, program=release.program)
    is_html = output_format == "html"
    chosen = Choice(at_least=at_least).ranked(release)
    ranked = {length: rows for length, rows in chosen.items() if len(rows)}
    held = sum(map(len, ranked.values()))
    rows = release.rows
    # From here on nothing is asked of a ledger that has what is left out.
    release = _without(release, left_out)
    has_search = is_html and "search" not in left_out and held > 0
    epsilon = release.epsilon
    delta = release.delta
    words = {
        "at_least": None if at_least is None else number(at_least),
        "changes": changes,
        "charts": {"lengths": _length_charts(release), "ranks": _rank_charts(release, ranked)},
        "count": len(rows),
        "first": []
        if "top" in left_out
        else _rankings(release, ranked, min(_FIRST_ROWS, top_rows))[:_FIRST_LENGTHS],
        "format": output_format,
        "guarantee_sentence": guarantee_sentence(epsilon, delta) + series_sentence(release),
        "guess": percent(guessing_bound(epsilon, delta)),
        "held": held,
        "left_out": {name: text for name, text in PARTS.items() if name in left_out},
        "rankings": _rankings(release, ranked, top_rows),
        "release": release,
        "since": since,
        "search": _search(release, ranked, search_rows) if has_search else None,
        "sections": {
            name: f"Top {release.row_noun}s" if name == "top" else heading
            for name, heading in _SECTIONS.items()
            if name not in left_out
            and (has_search or name != "search")
            and (held or name != "top")
            and (since or name != "changes")
        },
        "size": size_sentence(release),
        "tables": {
            "detection": [
                (percent(alarms), percent(detection_bound(epsilon, delta, alarms)))
                for alarms in _FALSE_ALARMS
            ],
            "groups": _groups(release, rows) if release.has_groups else [],
            "parameters": _parameters(release.ledger),
        },
        "title": shown(title_of(release)),
        "version": __version__,
        "word_range": _words([each["length"] for each in release.lengths if each["released"]]),
    }
    text = environment(output_format).get_template("report.jinja").render(words)
    return (text.lstrip() if is_html else _BLANKS.sub("\n\n", text.strip()) + "\n").encode()


def _rankings(
    release: Release, ranked: Mapping[int | None, pa.Table], most: int
) -> list[tuple[str, list[_Row]]]:
    """Returns the first rows of each length, each time behind a caption."""
    found = []
    for length, rows in ranked.items():
        first = rows.slice(0, most)
        caption = f"{_of_length(release, length)}: {len(first):,} of {len(rows):,}"
        found.append((caption, _rows(release, first)))
    return found


def _without(release: Release, left_out: Collection[str]) -> Release:
    """Returns a release whose ledger lacks what is left out, so that no section can show it."""
    ledger: dict[str, Any] = {**release.ledger, "guarantee": dict(release.ledger["guarantee"])}
    unit = release.unit
    user = ledger["guarantee"]["user"]
    ledger["notes"] = {
        name: None if name in left_out else note for name, note in release.ledger["notes"].items()
    }
    if "unit" in left_out and unit is not None:
        ledger["guarantee"]["user"] = user.removeprefix(f"{unit}: ")
    if "fields" in left_out:
        del ledger["input"], ledger["guarantee"]["user"]
    if "tokenizer" in left_out:
        del ledger["tokenizer"]
        ledger.pop("text_rules", None)
    if "versions" in left_out:
        ledger["versions"] = {"beam_dpne": ledger["versions"]["beam_dpne"]}
    return dataclasses.replace(release, ledger=ledger)


@functools.cache
def environment(output_format: str) -> jinja2.Environment:
    """Returns the templates for "html" or "markdown"; what is not marked as safe is escaped."""
    is_html = output_format == "html"
    made = jinja2.Environment(
        loader=jinja2.PackageLoader("beam_dpne.release.report", ""),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=jinja2.StrictUndefined,
    )
    made.filters |= {
        "breakable": lambda text: Markup(escape(text).replace("_", Markup("_<wbr>"))),
        "bibtex": lambda text: text.translate(_BIBTEX),
        "number": number,
        "one_line": functools.partial(_one_line, is_html=is_html),
        "picked": _picked,
        "text": html_text if is_html else markdown_text,
        "unbroken": lambda text: escape(text).replace(" = ", "\u00a0=\u00a0"),
    }
    made.policies["json.dumps_kwargs"] = {"ensure_ascii": False, "separators": (",", ":")}
    made.globals |= {
        "blank": "\n\n",
        "digest": _digest,
        "style": _asset("page.css"),
        "script": _asset("search.js"),
    }
    return made


def _one_line(text: Markup, *, is_html: bool) -> Markup:
    """Returns a text in one line, which ends in HTML at no percent sign."""
    # Blanks at which no line may end stay.
    line = _SPACE.sub(" ", text).strip(" ")
    return Markup(line.replace(" %", "\u00a0%") if is_html else line)


def _asset(name: str) -> str:
    return (
        importlib.resources.files("beam_dpne.release.report")
        .joinpath(name)
        .read_text(encoding="utf-8")
    )


def _digest(text: str) -> Markup:
    digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
    return Markup(f"'sha256-{digest}'")


def _words(lengths: Sequence[int]) -> str:
    first = min(lengths, default=1)
    last = max(lengths, default=1)
    if first == last:
        return words_of(first)
    return f"{first} to {last} words"


def _of_length(release: Release, length: int | None) -> str:
    noun = f"{release.row_noun.capitalize()}s"
    return noun if length is None else f"{noun} of {_words([length])}"


def _length_charts(release: Release) -> list[tuple[str, Markup]]:
    if not release.lengths:
        return []
    names = [str(each["length"]) for each in release.lengths]
    released = [float(each["released"]) for each in release.lengths]
    shares = [
        each["expected_spurious_at_most"] / count if count else 0.0
        for each, count in zip(release.lengths, released, strict=True)
    ]
    title = "Released n-grams of each length"
    share = "Expected share of spurious n-grams, at most"
    found = [(title, charts.columns(title, names, released))]
    if any(shares):
        found.append((share, charts.columns(share, names, shares, percent=True)))
    return found


def _rank_charts(
    release: Release, ranked: Mapping[int | None, pa.Table]
) -> list[tuple[str, Markup]]:
    found = []
    # One value is no curve.
    curves = [(length, rows) for length, rows in ranked.items() if len(rows) > 1]
    for length, rows in curves[:_MOST_PLOTS]:
        title = f"{_of_length(release, length)}: {release.value_noun} by rank"
        values, *ends = _values(release, rows)
        lows, highs = ends or (None, None)
        found.append((title, charts.by_rank(title, values, lows=lows, highs=highs)))
    return found


def _values(release: Release, rows: pa.Table) -> list[list[float]]:
    """Returns the values of rows, and the ends of their intervals if they have any."""
    ends = ("users_low", "users_high") if release.has_counts else ()
    names = (release.value_column, *ends)
    return [[float(value) for value in rows.column(name).to_pylist()] for name in names]


def _rows(release: Release, rows: pa.Table) -> list[_Row]:
    """Returns rows with bars, which are shares of the largest value."""
    columns = _values(release, rows)
    # One very wide interval must not make all other bars short; its line ends at the edge then.
    largest = max([*columns[0], 0.0])
    top = min(max([*columns[-1], 0.0]), _WIDEST * largest) or 1.0
    shares = [[min(max(value, 0.0) / top, 1.0) for value in column] for column in columns]
    texts = release.titles(rows)
    bars = [charts.bar(*each) for each in zip(*shares, strict=True)]
    return list(map(_Row, texts, _shown_values(release, columns), bars))


def _shown_values(release: Release, columns: Sequence[Sequence[float]]) -> list[str]:
    if release.value_column == "probability":
        return [number(value) for value in columns[0]]
    if not release.has_counts:
        return [f"{value:,.2f}" for value in columns[0]]
    return [_with_interval(*each) for each in zip(*columns, strict=True)]


def _with_interval(value: float, low: float, high: float) -> str:
    """Returns an estimate with its interval; a wide one is marked as an order of magnitude."""
    mark = _ROUGHLY if high > _ROUGH * max(low, 1) else ""
    return f"{mark}{value:,.0f} ({low:,.0f} to {high:,.0f})"


def _search(release: Release, ranked: Mapping[int | None, pa.Table], limit: int) -> dict[str, Any]:
    """Returns the rows that a report embeds, as [length, texts, values] of each length.

    At the limit no length has more rows than another, unless the other has no more.
    """
    ranks = sorted(rank for rows in ranked.values() for rank in range(len(rows)))
    most = ranks[limit] if limit < len(ranks) else len(ranks)
    embedded = []
    for length, rows in ranked.items():
        kept = rows.slice(0, most)
        if len(kept):
            texts = list(map(shown, release.titles(kept)))
            values = _shown_values(release, _values(release, kept))
            embedded.append(["" if length is None else str(length), texts, values])
    left_out = len(ranks) - sum(len(texts) for _, texts, _ in embedded)
    return {"groups": embedded, "limit": limit, "left_out": left_out}


def _groups(release: Release, rows: pa.Table) -> list[list[str]]:
    """Returns for each of the largest groups its name, its number of rows, and its first rows."""
    rows = rows.sort_by([(release.value_column, "descending")])
    found = []
    sizes = collections.Counter(rows["group"].to_pylist())
    for group in sorted(sizes, key=lambda group: (-sizes[group], group))[:_MOST_GROUPS]:
        own = rows.filter(pc.field("group") == group)
        # Numbers of a list have no column of lengths.
        blank = pc.MatchSubstringOptions(SEPARATOR)
        is_longer = pc.call_function("match_substring", [own["ngram"]], blank)
        parts = own.filter(pc.call_function("invert", [is_longer])), own.filter(is_longer)
        tops = [", ".join(part["ngram"].slice(0, _OF_A_GROUP).to_pylist()) for part in parts]
        found.append([group, number(sizes[group]), *tops])
    return found


def _parameters(ledger: Mapping[str, Any]) -> list[tuple[str, list[tuple[str, str]]]]:
    """Returns the rows of one table for each section of parameters."""
    sections = {name: ledger[name] for name in _PARAMETERS if name in ledger}
    if "input" in sections and "tokenizer" in ledger:
        sections["input"] = sections["input"] | {
            "tokenizer": ledger["tokenizer"],
            **ledger.get("text_rules", {}),
        }
    return [(_PARAMETERS[name], _flat(each)) for name, each in sections.items()]


def _picked(entries: Sequence[Mapping[str, Any]], names: Sequence[str]) -> list[list[str]]:
    return [[number(entry.get(name)) for name in names] for entry in entries]


def _flat(values: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Returns the scalars and short lists of a section of the ledger, by name, without sentences."""
    rows: list[tuple[str, str]] = []
    for name, value in values.items():
        if isinstance(value, Mapping):
            rows += [(f"{name}: {key}", text) for key, text in _flat(value)]
        elif isinstance(value, list):
            if not any(isinstance(each, Mapping) for each in value):
                rows.append((name, ", ".join(map(_exact, value)) or "–"))
        elif not name.endswith("meaning"):
            rows.append((name, _exact(value)))
    return rows


def _exact(value: object) -> str:
    """Returns a value exactly, since a reader may compare it with the ledger.

    >>> _exact(1e-06), _exact(True), _exact(None), _exact("words")
    ('1e-06', 'true', '–', 'words')
    """
    if value is None:
        return "–"
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
