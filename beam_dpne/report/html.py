"""A report as one HTML file that makes no request.

All text is escaped. A content security policy in the page forbids every request, and all scripts and
styles other than the two of this package, which it names by their SHA-256. Rows for the search box are
JSON in a script element that no browser runs, written without any character that could end it.
"""

import base64
import functools
import hashlib
import importlib.resources
import json
import string
from collections.abc import Callable, Mapping, Sequence
from html import escape

from beam_dpne.report.blocks import (
    Block,
    Bullets,
    Cards,
    Cell,
    Code,
    Figures,
    Fold,
    Heading,
    Measured,
    Paragraph,
    Released,
    Report,
    Search,
    Section,
    Table,
    Tables,
)

_BAR_WIDTH = 100
_PAGE = string.Template("""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="$policy">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="referrer" content="no-referrer">
<meta name="color-scheme" content="light dark">
<link rel="icon" href="data:,">
<title>$title</title>
<style>$style</style>
</head>
<body>
<header>
<h1 dir="auto">$title</h1>
<p class="subtitle">$subtitle</p>
<nav aria-label="Sections"><ul>$contents</ul></nav>
</header>
<main>
$sections
</main>
$script</body>
</html>
""")
# Characters that could end a script element, or a line of JavaScript.
_IN_SCRIPT = {ord(sign): f"\\u{ord(sign):04x}" for sign in "<>&'\u2028\u2029"}


def render_html(report: Report) -> str:
    """Returns the page of a report."""
    style, script = _asset("page.css"), _asset("search.js")
    has_search = any(isinstance(block, Search) for each in report.sections for block in each.blocks)
    policy = (
        f"default-src 'none'; img-src data:; style-src {_hash(style)}; base-uri 'none'; "
        "form-action 'none'"
    )
    if has_search:
        policy += f"; script-src {_hash(script)}"
    return _PAGE.substitute(
        policy=policy,
        title=escape(report.title),
        subtitle=escape(report.subtitle).replace(" = ", "&nbsp;=&nbsp;"),
        style=style,
        contents="".join(
            f'<li><a href="#{each.name}">{escape(each.title)}</a></li>' for each in report.sections
        ),
        sections="\n".join(map(_section, report.sections)),
        script=f"<script>{script}</script>\n" if has_search else "",
    )


def in_script(value: object) -> str:
    r"""Returns JSON that may stand in a script element, whatever texts it has.

    >>> print(in_script(["</script><!--", "it's"]))
    ["\u003c/script\u003e\u003c!--","it\u0027s"]
    """
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).translate(_IN_SCRIPT)


@functools.cache
def _asset(name: str) -> str:
    return importlib.resources.files("beam_dpne.report").joinpath(name).read_text(encoding="utf-8")


def _hash(text: str) -> str:
    digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
    return f"'sha256-{digest}'"


def _section(section: Section) -> str:
    blocks = "\n".join(map(_block, section.blocks))
    return f'<section id="{section.name}">\n<h2>{escape(section.title)}</h2>\n{blocks}\n</section>'


def _block(block: Block) -> str:
    return _RENDERERS[type(block)](block)


def _unbroken(text: str) -> str:
    """Returns a text of which no line ends between a number and its percent sign."""
    return text.replace(" %", "&nbsp;%")


def _paragraph(block: Paragraph) -> str:
    return f"<p{' class=note' if block.note else ''}>{_unbroken(escape(block.text))}</p>"


def _bullets(block: Bullets) -> str:
    return f"<ul>{''.join(f'<li>{_unbroken(escape(item))}</li>' for item in block.items)}</ul>"


def _cards(block: Cards) -> str:
    cards = "".join(
        f"<div><dt>{escape(meaning)}</dt><dd>{escape(value)}</dd></div>"
        for value, meaning in block.items
    )
    return f'<dl class="cards">{cards}</dl>'


def _figures(block: Figures) -> str:
    figures = "".join(
        f"<figure><figcaption>{escape(caption)}</figcaption>{svg}</figure>"
        for caption, svg in block.charts
    )
    return f'<div class="figures">{figures}</div>'


def _fold(block: Fold) -> str:
    inside = "".join(map(_block, block.blocks))
    return f"<details><summary>{escape(block.summary)}</summary>{inside}</details>"


def _table(table: Table) -> str:
    head = "".join(
        f'<th scope="col"{_align(table, place)}>{escape(name)}</th>'
        for place, name in enumerate(table.headings)
    )
    rows = "\n".join(f"<tr>{_row(table, row)}</tr>" for row in table.rows)
    name = escape(table.caption)
    kind = ' class="text"' if _is_text(table) else ""
    return (
        f'<div class="wide" tabindex="0" role="region" aria-label="{name}"><table{kind}>'
        f"<caption>{name}</caption><thead><tr>{head}</tr></thead>\n"
        f"<tbody>{rows}</tbody></table></div>"
    )


def _is_text(table: Table) -> bool:
    """Returns whether the cells of a row stand one below the other on a narrow screen."""
    return not table.numeric and len(table.headings) > 2


def _row(table: Table, row: Sequence[Cell]) -> str:
    return "".join(
        f"<td{_align(table, place)}>{_cell(cell)}</td>" for place, cell in enumerate(row)
    )


def _align(table: Table, place: int) -> str:
    return ' class="number"' if place in table.numeric else ""


def _cell(cell: Cell) -> str:
    match cell:
        case Released(text):
            return f'<bdi class="released">{escape(text)}</bdi>'
        case Measured(text):
            return f"{escape(text)}{_bar(cell)}"
    return escape(cell)


def _bar(cell: Measured) -> str:
    """Returns the bar of a value, with its interval as a line; the number beside it says the same."""
    width = _BAR_WIDTH * cell.value
    shapes = f'<rect class="bar" y="2" width="{width:.1f}" height="8"/>'
    if cell.low is not None and cell.high is not None:
        low, high = _BAR_WIDTH * cell.low, _BAR_WIDTH * cell.high
        shapes += (
            f'<path class="interval" d="M{low:.1f} 3v6M{low:.1f} 6H{high:.1f}M{high:.1f} 3v6"/>'
        )
    return f'<svg class="inline" viewBox="0 0 {_BAR_WIDTH} 12" aria-hidden="true">{shapes}</svg>'


def _search(search: Search) -> str:
    groups = [group for group in search.groups if group.texts]
    options = "".join(
        f'<option value="{place}">{escape(group.name)}</option>'
        for place, group in enumerate(groups)
    )
    named = any(group.name for group in groups)
    chooser = (
        '<label>Words <select id="search-length"><option value="">all</option>'
        f"{options}</select></label>"
        if named
        else ""
    )
    text, value = map(escape, search.columns)
    length = '<th scope="col" class="number">words</th>' if named else ""
    data = in_script([[group.name, group.texts, group.values] for group in groups])
    return (
        '<noscript><p class="note">The search needs JavaScript. Everything else on this page does '
        "not.</p></noscript>"
        '<div class="search" hidden><label>Find <input id="search-text" type="search" '
        f'autocomplete="off" spellcheck="false"></label>{chooser}</div>'
        '<p id="search-state" role="status"></p>'
        '<div class="wide" id="search-found" tabindex="0" role="region" aria-label="Rows found" hidden>'
        f'<table><thead><tr>{length}<th scope="col">{text}</th><th scope="col" class="number">{value}'
        '</th></tr></thead><tbody></tbody></table></div><button id="search-more" type="button" hidden>'
        f'Show more</button><script type="application/json" id="search-rows">{data}</script>'
    )


_RENDERERS: Mapping[type, Callable[..., str]] = {
    Paragraph: _paragraph,
    Heading: lambda block: f"<h3>{escape(block.text)}</h3>",
    Bullets: _bullets,
    Cards: _cards,
    Code: lambda block: f'<pre tabindex="0"><code>{escape(block.text)}</code></pre>',
    Figures: _figures,
    Fold: _fold,
    Table: _table,
    Tables: lambda block: f'<div class="tables">{"".join(map(_table, block.tables))}</div>',
    Search: _search,
}
