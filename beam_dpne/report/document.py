"""A whole report of a release: its sections, and what the operator leaves out of it."""

from collections.abc import Collection

from beam_dpne.report.blocks import Block, Bullets, Cards, Paragraph, Report, Section, number, shown
from beam_dpne.report.facts import Facts
from beam_dpne.report.guarantee import guarantee_section, not_protected_section, unit_sentence
from beam_dpne.report.html import render_html
from beam_dpne.report.left_out import PARTS, without
from beam_dpne.report.markdown import render_markdown
from beam_dpne.report.questions import questions_section
from beam_dpne.report.rows import released_section, search_section, top_section
from beam_dpne.report.verify import parameters_section, verify_section
from beam_dpne.version import __version__

FORMATS = ("html", "markdown")
_RENDERERS = {"html": render_html, "markdown": render_markdown}
_TITLES = {
    "ngrams": "Released n-grams",
    "set-union": "Released items",
    "bayesian": "Private n-gram probabilities",
}


def render_report(
    facts: Facts,
    *,
    output_format: str = "html",
    left_out: Collection[str] = (),
    top_rows: int = 20,
    search_rows: int = 100_000,
) -> bytes:
    """Returns a report of a release as a file.

    Equal arguments give equal bytes.

    Args:
      facts: The release (see `read_facts`).
      output_format: "html" or "markdown".
      left_out: Names of what is left out, keys of `PARTS`.
      top_rows: Largest number of rows of each length in the tables of top rows.
      search_rows: Largest number of rows that the search box of an HTML report holds.
    """
    facts = without(facts, left_out)
    title = shown(facts.note["title"] or _TITLES[facts.program])
    sections = [
        _summary(facts),
        released_section(facts),
        guarantee_section(facts, with_operator="operator" not in left_out),
        not_protected_section(facts),
        top_section(facts, top_rows),
        *([search_section(facts, search_rows)] if output_format == "html" else []),
        parameters_section(facts),
        questions_section(facts),
        verify_section(facts, title),
        _about(left_out),
    ]
    report = Report(
        title=title,
        subtitle=f"A differentially private release of {facts.noun}: ε = {number(facts.epsilon)}, "
        f"δ = {number(facts.delta)}",
        sections=[section for section in sections if section.name not in left_out],
    )
    return _RENDERERS[output_format](report).encode()


def _summary(facts: Facts) -> Section:
    cards = [
        (f"{len(facts.rows):,}", f"released {facts.noun}"),
        (f"ε = {number(facts.epsilon)}", "privacy loss of each user, at most"),
        (f"δ = {number(facts.delta)}", "slack in probability, at most"),
    ]
    if facts.expected_spurious is not None:
        cards.append((number(facts.expected_spurious), "expected spurious n-grams, at most"))
    blocks: list[Block] = [
        Cards(cards),
        Paragraph(
            "The guarantee holds for each user with all documents, and for the whole release. "
            f"{unit_sentence(facts)}"
        ),
    ]
    if facts.note["contact"]:
        blocks.append(Paragraph(f"Questions: {shown(facts.note['contact'])}"))
    return Section("summary", "Summary", blocks)


def _about(left_out: Collection[str]) -> Section:
    blocks: list[Block] = [
        Paragraph(
            f"beam_dpne {__version__} made this report from the ledger and the rows of the release. It "
            "did not read the data from which the release was made, so the report costs no privacy."
        )
    ]
    omitted = [PARTS[name] for name in PARTS if name in left_out]
    if omitted:
        blocks += [
            Paragraph(
                "The operator left these out. The ledger of the release may state them all the same:"
            ),
            Bullets([f"{text[0].upper()}{text[1:]}." for text in omitted]),
        ]
    return Section("about", "About this report", blocks)
