"""A report as Markdown (CommonMark with tables), without plots and the search box."""

import re
from collections.abc import Callable, Mapping, Sequence

from beam_dpne.report.blocks import (
    Block,
    Bullets,
    Cards,
    Cell,
    Code,
    Figures,
    Fold,
    Heading,
    Paragraph,
    Report,
    Search,
    Table,
    Tables,
)

_SPECIAL = re.compile(r"([\\`*_\[\]<>|~$#])|(&)|(:)(?=//)|(?<=www)\.|(@)")
_BEGINNING = re.compile(r"^(\s*)([-+=]|\d+[.)](?=\s|$))")


def render_markdown(report: Report) -> str:
    """Returns the text of a report; whatever it quotes shows as it is, and is no markup."""
    parts = [f"# {escaped(report.title)}\n\n{escaped(report.subtitle)}\n"]
    for section in report.sections:
        parts.append(f"\n## {escaped(section.title)}\n")
        texts = filter(None, map(_block, section.blocks))
        parts += [f"\n{text}\n" for text in texts]
    return "".join(parts)


def escaped(text: str) -> str:
    r"""Returns Markdown that shows a text as it is: neither markup, nor HTML, nor links.

    >>> print(escaped("<b> *a* | http://x www.y &lt; 1."))
    \<b\> \*a\* \| http\://x www\.y &amp;lt; 1.
    """
    return _BEGINNING.sub(_at_beginning, _SPECIAL.sub(_special, text))


def _special(match: re.Match[str]) -> str:
    sign = match[0]
    return {"&": "&amp;", "@": "&#64;"}.get(sign, f"\\{sign}")


def _at_beginning(match: re.Match[str]) -> str:
    space, sign = match.groups()
    return f"{space}{sign[:-1]}\\{sign[-1]}"


def _block(block: Block) -> str:
    return _RENDERERS[type(block)](block)


def _paragraph(block: Paragraph) -> str:
    return f"> **{escaped(block.text)}**" if block.note else escaped(block.text)


def _bullets(block: Bullets) -> str:
    return "\n".join(f"- {escaped(item)}" for item in block.items)


def _cards(block: Cards) -> str:
    return "\n".join(f"- **{escaped(value)}** {escaped(meaning)}" for value, meaning in block.items)


def _fold(block: Fold) -> str:
    return "\n\n".join([f"#### {escaped(block.summary)}", *map(_block, block.blocks)])


def _table(table: Table) -> str:
    numeric = set(table.numeric)
    rule = ["---:" if place in numeric else "---" for place in range(len(table.headings))]
    lines = [list(map(escaped, table.headings)), rule]
    lines += [[_cell(cell) for cell in row] for row in table.rows]
    return f"**{escaped(table.caption)}**\n\n" + "\n".join(map(_line, lines))


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _cell(cell: Cell) -> str:
    text = cell if isinstance(cell, str) else cell.text
    return escaped(text).replace("\n", " ")


def _code(block: Code) -> str:
    longest = max([2, *(len(run) for run in re.findall("`+", block.text))])
    fence = "`" * (longest + 1)
    return f"{fence}{block.language}\n{block.text}\n{fence}"


def _nothing(_: Block) -> str:
    return ""


_RENDERERS: Mapping[type, Callable[..., str]] = {
    Paragraph: _paragraph,
    Heading: lambda block: f"### {escaped(block.text)}",
    Bullets: _bullets,
    Cards: _cards,
    Code: _code,
    Figures: _nothing,
    Fold: _fold,
    Table: _table,
    Tables: lambda block: "\n\n".join(map(_table, block.tables)),
    Search: _nothing,
}
