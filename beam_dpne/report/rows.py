"""Sections on the released rows: tables and plots for each length, the top rows, the search box."""

from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

from beam_dpne.report import charts
from beam_dpne.report.blocks import (
    Block,
    Bullets,
    Cell,
    Figures,
    Heading,
    Measured,
    Paragraph,
    Released,
    Search,
    SearchGroup,
    Section,
    Table,
    Tables,
    number,
    shown,
)
from beam_dpne.report.facts import Facts, is_number

_MOST_PLOTS = 12
# The end of the longest bar's scale, as a multiple of the largest value.
_WIDEST = 2.0
_SCORES = {
    "one_round": "The score of an n-gram is its noisy weight: the sum of what its users gave it, plus "
    "noise. Rank by it within one length. It is no number of users.",
    "adaptive": "The score of an n-gram is an estimate of its weight in the first round, from what "
    "users gave it until it was found, plus noise. Users divide their weight unevenly, so it is no "
    "number of users, and scores of different lengths cannot be compared.",
    "set-union": "The score of an item is its noisy weight: the sum of what its users gave it, plus "
    "noise. It is no number of users.",
    "bayesian": "All probabilities sum to 1. Every n-gram of the public vocabulary has one, whether or "
    "not any user has the n-gram.",
}
_TOP = {"ngram": "Top n-grams", "item": "Top items"}
_NAMES = {"ngram": "n-gram", "item": "item"}


def released_section(facts: Facts) -> Section:
    """Returns the section that says what was released, with tables and plots."""
    is_empty = not len(facts.rows)
    blocks: list[Block] = [Paragraph(_EMPTY if is_empty else _first_sentence(facts), note=is_empty)]
    if facts.lengths:
        blocks.append(_lengths_table(facts))
        if not is_empty:
            blocks += [Paragraph(_spurious_sentence(facts)), Figures(_length_charts(facts))]
    plots = _rank_charts(facts)
    if plots:
        noun = facts.measure.noun
        blocks += [Heading(f"How to read the {noun}"), *map(Paragraph, _meanings(facts))]
        blocks.append(Figures(plots[:_MOST_PLOTS]))
        if len(plots) > _MOST_PLOTS:
            blocks.append(Paragraph(f"Plots of the lengths above {_MOST_PLOTS} are left out."))
    return Section("released", "What was released", blocks)


_EMPTY = (
    "The release has no row. Under its parameters nothing was shared by enough users to be above the "
    "noise, or the input was empty; the release does not say which of the two."
)


def top_section(facts: Facts, count: int) -> Section:
    """Returns the rows with the largest values, in one table for each length.

    Args:
      facts: The release.
      count: Largest number of rows for each length.
    """
    measure = facts.measure
    tables: list[Table] = []
    for length, rows in facts.groups().items():
        top = rows.slice(0, count)
        if not len(top):
            continue
        name = _of_length(facts.noun, length)
        caption = f"{name}: {len(top):,} of {len(rows):,}"
        cells = _measured(facts, top)
        texts = top.column(facts.text_column).to_pylist()
        lines: list[Sequence[Cell]] = [
            (f"{rank:,}", Released(shown(text)), value)
            for rank, (text, value) in enumerate(zip(texts, cells, strict=True), start=1)
        ]
        headings = ("rank", _NAMES[facts.text_column], measure.heading)
        tables.append(Table(caption, headings, lines, numeric=(0, 2)))
    if not tables:
        return Section("top", _TOP[facts.text_column], [Paragraph("There is no row to show.")])
    return Section("top", _TOP[facts.text_column], [Tables(tables)])


def search_section(facts: Facts, limit: int) -> Section:
    """Returns the search box over the rows, of which a report embeds a limited number.

    Args:
      facts: The release.
      limit: Largest number of rows that are embedded.
    """
    groups = facts.groups()
    kept = shares({length: len(rows) for length, rows in groups.items()}, limit)
    embedded = [
        _search_group(facts, length, groups[length].slice(0, kept[length])) for length in kept
    ]
    left_out = len(facts.rows) - sum(kept.values())
    blocks: list[Block] = [Paragraph(_embedded_sentence(facts, left_out, limit))]
    if left_out:
        lines = [
            f"{_of_length(facts.noun, length)}: {len(rows) - kept[length]:,} of {len(rows):,} are left "
            "out."
            for length, rows in groups.items()
            if len(rows) > kept[length]
        ]
        blocks.append(Bullets(lines))
    blocks.append(Search(embedded, (_NAMES[facts.text_column], facts.measure.heading)))
    return Section("search", "Search", blocks)


def shares(sizes: Mapping[int | None, int], limit: int) -> dict[int | None, int]:
    """Divides a number of rows among lengths, evenly where no length has fewer than its share.

    >>> shares({1: 10, 2: 500, 3: 500}, 110)
    {1: 10, 2: 50, 3: 50}
    """
    kept: dict[int | None, int] = {}
    left = limit
    for done, length in enumerate(sorted(sizes, key=lambda each: sizes[each])):
        kept[length] = min(sizes[length], left // (len(sizes) - done))
        left -= kept[length]
    return {length: kept[length] for length in sizes}


def _embedded_sentence(facts: Facts, left_out: int, limit: int) -> str:
    if not left_out:
        return f"All {len(facts.rows):,} rows are in this file; the search needs no network."
    missing = "1 row is" if left_out == 1 else f"{left_out:,} rows are"
    return (
        f"This file holds {len(facts.rows) - left_out:,} of the {len(facts.rows):,} rows, those with "
        f"the largest values of each length. {missing} left out, since the limit is {limit:,}. The "
        "files of the release have all of them."
    )


def _search_group(facts: Facts, length: int | None, rows: pa.Table) -> SearchGroup:
    texts = [shown(text) for text in rows.column(facts.text_column).to_pylist()]
    values = [cell.text for cell in _measured(facts, rows)]
    return SearchGroup("" if length is None else str(length), texts, values)


def _measured(facts: Facts, rows: pa.Table) -> list[Measured]:
    """Returns the value of each row with its interval, and its bar as a share of the largest."""
    measure = facts.measure
    values = [float(value) for value in rows.column(measure.column).to_pylist()]
    if measure.low is None or measure.high is None:
        top = max([*values, 0.0]) or 1.0
        write = number if measure.column == "probability" else _two_decimals
        return [Measured(write(value), max(value, 0.0) / top) for value in values]
    lows, highs = (
        [float(value) for value in rows.column(name).to_pylist()]
        for name in (measure.low, measure.high)
    )
    # One very wide interval must not make all other bars short; its line ends at the edge then.
    top = min(max([*highs, 0.0]), _WIDEST * max([*values, 0.0])) or 1.0
    return [
        Measured(
            f"{_whole(value)} ({_whole(low)} to {_whole(high)})",
            *(min(max(each, 0.0) / top, 1.0) for each in (value, low, high)),
        )
        for value, low, high in zip(values, lows, highs, strict=True)
    ]


def _two_decimals(value: float) -> str:
    return f"{value:,.2f}"


def _whole(value: float) -> str:
    return f"{value:,.0f}"


def _first_sentence(facts: Facts) -> str:
    released = [entry["length"] for entry in facts.lengths if entry["released"]]
    count = f"{len(facts.rows):,}"
    match facts.program:
        case "ngrams" if released:
            return (
                f"The release has {count} n-grams of {_range(released)}. Each had "
                f"{'noisy evidence' if _is_adaptive(facts) else 'a noisy weight'} above a threshold."
            )
        case "set-union":
            return f"The release has {count} items. Each had a noisy weight above a threshold."
        case "bayesian":
            return (
                f"The release has a probability for each of {count} n-grams of a public vocabulary. "
                "Which n-grams appear was public before; only the probabilities depend on users."
            )
    return f"The release has {count} {facts.noun}."


def _range(lengths: Sequence[int]) -> str:
    first, last = min(lengths), max(lengths)
    if first == last:
        return f"{first} word{'s' if first > 1 else ''}"
    return f"{first} to {last} words"


def _spurious_sentence(facts: Facts) -> str:
    expected = facts.expected_spurious
    text = (
        "Some released n-grams may be spurious: nobody has them, and noise alone put them here. "
        "Nothing marks them, since a mark would reveal whether somebody has an n-gram."
    )
    if expected is None:
        return text
    if not expected:
        return "No n-gram here is spurious: each is one that somebody has."
    return (
        f"{text} In expectation at most {number(expected)} of all {facts.noun} here are spurious."
    )


def _lengths_table(facts: Facts) -> Table:
    headings = ("words", "released", "candidates", "expected spurious, at most")
    rows = [
        (
            number(entry["length"]),
            number(entry["released"]),
            number(entry.get("valid")),
            number(entry.get("expected_spurious_at_most")),
        )
        for entry in facts.lengths
    ]
    return Table("Released n-grams of each length", headings, rows, numeric=range(len(headings)))


def _length_charts(facts: Facts) -> list[tuple[str, str]]:
    names = [str(entry["length"]) for entry in facts.lengths]
    released = [float(entry["released"]) for entry in facts.lengths]
    title = "Released n-grams of each length"
    found = [(title, charts.columns(title, names, released))]
    bounds = [entry.get("expected_spurious_at_most") for entry in facts.lengths]
    spurious = [float(bound) for bound in bounds if is_number(bound)]
    if len(spurious) == len(bounds) and any(spurious):
        share = [
            bound / count if count else 0.0 for bound, count in zip(spurious, released, strict=True)
        ]
        title = "Expected share of spurious n-grams, at most"
        found.append((title, charts.columns(title, names, share, percent=True)))
    return found


def _rank_charts(facts: Facts) -> list[tuple[str, str]]:
    measure = facts.measure
    found = []
    for length, rows in facts.groups().items():
        if not len(rows):
            continue
        lows, highs = (
            None if name is None else rows.column(name).to_pylist()
            for name in (measure.low, measure.high)
        )
        title = f"{_of_length(facts.noun, length)}: {measure.noun} by rank"
        values = rows.column(measure.column).to_pylist()
        found.append((title, charts.by_rank(title, values, lows=lows, highs=highs)))
    return found


def _meanings(facts: Facts) -> list[str]:
    """Returns paragraphs on the measure of the rows, and on scores."""
    kind = facts.program
    if kind == "ngrams":
        kind = "adaptive" if _is_adaptive(facts) else "one_round"
    if not facts.has_counts:
        return [_SCORES[kind]]
    row = _NAMES[facts.text_column]
    spurious = (
        f"A spurious {row}, which nobody has, gets its estimate by the same rule, so that it cannot be "
        "told from others. "
    )
    return [
        f"The number of users who have each {row} is an estimate from sums with noise. It is shrunk "
        f"towards what {row}s with similar scores have. As far as the model behind it holds, "
        f"{facts.confidence} of the intervals, over all rows, contain the true number. "
        f"{spurious if facts.expected_spurious else ''}The estimates are inside the ε and δ of the "
        "release.",
        f"The files of the release also have scores. {_SCORES[kind]}",
    ]


def _is_adaptive(facts: Facts) -> bool:
    """Returns whether n-grams were found over several rounds; the earliest plans name no strategy."""
    plan: Mapping[str, Any] = facts.ledger["plan"]
    return plan.get("strategy", "one_round") == "adaptive"


def _of_length(noun: str, length: int | None) -> str:
    if length is None:
        return noun.capitalize() if noun.islower() else noun
    return f"{noun.capitalize()} of {_range([length])}"
