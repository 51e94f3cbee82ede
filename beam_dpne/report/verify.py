"""Sections on parameters, citing and verifying a release."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from beam_dpne.report.blocks import Block, Code, Fold, Paragraph, Section, Table, Tables, number
from beam_dpne.report.blocks import shown as text_of
from beam_dpne.report.facts import Facts

_MOST_PARTS = 100
# Sections of the ledger that describe the operator's input and programs.
_ABOUT_RUN = ("input", "tokenizer", "versions")
_SECTIONS = {
    "mechanism": "The mechanism",
    "vocabulary": "The vocabulary",
    "counts": "The measurement of numbers of users",
}
_BIBTEX = str.maketrans(
    {
        "\\": r"\textbackslash{}",
        "~": r"\textasciitilde{}",
        "^": r"\textasciicircum{}",
        **{sign: f"\\{sign}" for sign in "{}%&#_$"},
    }
)


def parameters_section(facts: Facts) -> Section:
    """Returns the section with all parameters of the run."""
    ledger = facts.ledger
    tables = [
        Table("The plan", ("parameter", "value"), _flat(ledger["plan"])),
        Table("How the budget was spent", ("part", "value"), _flat(ledger["spent"])),
    ]
    meanings = [
        (f"{name.removesuffix('_meaning')}", text_of(str(value), 2000))
        for name, value in ledger["spent"].items()
        if name.endswith("_meaning")
    ]
    for name, caption in _SECTIONS.items():
        if isinstance(ledger.get(name), Mapping):
            rows = _flat(ledger[name])
            tables.append(Table(caption, ("parameter", "value"), rows))
            if _is_table(ledger[name].get("rounds")):
                tables.append(_rounds(ledger[name]["rounds"]))
        columns = ledger.get(f"{name}_columns", {})
        meanings += [(key, text_of(str(value), 2000)) for key, value in columns.items()]
    if facts.lengths:
        columns = ledger.get("lengths_columns", {})
        meanings += [(key, text_of(str(value), 2000)) for key, value in columns.items()]
    about = _flat({name: ledger[name] for name in _ABOUT_RUN if name in ledger})
    if about:
        tables.append(Table("Input and programs", ("field", "value"), about))
    blocks: list[Block] = [Tables(tables), *([_lengths(facts)] if facts.lengths else [])]
    rows = [(name, text_of(str(value), 2000)) for name, value in ledger["columns"].items()]
    blocks.append(Table("Columns of the files", ("column", "meaning"), rows))
    if meanings:
        found = Table("Meanings", ("name", "meaning"), list(dict(meanings).items()))
        blocks.append(Fold("What these numbers mean", [found]))
    return Section("parameters", "Parameters", blocks)


def verify_section(facts: Facts, title: str) -> Section:
    """Returns the section on citing the release, and on checking that files belong to it.

    Args:
      facts: The release.
      title: Name of the release.
    """
    parts = facts.parts
    lines = [(part.sha256, part.name) for part in parts[:_MOST_PARTS]]
    sums = "\n".join(
        f"{digest}  {name}" for digest, name in [(facts.ledger_sha256, "ledger.json"), *lines]
    )
    blocks: list[Block] = [
        Paragraph(
            "Name the release by the SHA-256 of its ledger, which lists the SHA-256 of every file. Add "
            "its publisher, address and date, which the ledger does not know."
        ),
        Code(_citation(facts, title), "bibtex"),
        Paragraph("In the directory of the release, this command checks every byte:"),
        Code(f"sha256sum --check <<'END'\n{sums}\nEND", "sh"),
    ]
    if len(parts) > _MOST_PARTS:
        blocks.append(
            Paragraph(
                f"It checks the ledger and the first {_MOST_PARTS:,} of {len(parts):,} files; the "
                "ledger has the SHA-256 of all, and the next command checks all."
            )
        )
    blocks += [
        Paragraph("The library checks the same, and that no row is missing:"),
        Code("python -c \"from beam_dpne import read_release; read_release('.').verify()\"", "sh"),
        Paragraph(
            "Equal ledger, files and version of beam_dpne give this report again, byte by byte."
        ),
    ]
    return Section("verify", "How to cite and verify", blocks)


def _citation(facts: Facts, title: str) -> str:
    budget = f"ε = {number(facts.epsilon)}, δ = {number(facts.delta)}"
    return (
        f"@misc{{release_{facts.ledger_sha256[:12]},\n"
        f"  title = {{{title.translate(_BIBTEX)}}},\n"
        f"  note = {{Differentially private release of {facts.noun}, {budget}, made with beam\\_dpne. "
        f"SHA-256 of the ledger: {facts.ledger_sha256}}}\n}}"
    )


def _lengths(facts: Facts) -> Table:
    names = ("max_contributions", "budget_share", "noise_stddev", "threshold", "valid", "released")
    rows = [
        (number(entry["length"]), *(number(entry.get(name)) for name in names))
        for entry in facts.lengths
    ]
    return Table("Each length", ("length", *names), rows, range(len(names) + 1))


def _flat(values: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Returns the scalars and short lists of a section of the ledger, by name, without sentences."""
    rows: list[tuple[str, str]] = []
    for name, value in values.items():
        if name.endswith("meaning") or _is_table(value):
            continue
        if isinstance(value, Mapping):
            rows += [(f"{text_of(name)}: {key}", text) for key, text in _flat(value)]
        elif isinstance(value, list):
            rows.append((text_of(name), ", ".join(map(_value, value)) or "–"))
        else:
            rows.append((text_of(name), _value(value)))
    return rows


def _is_table(value: object) -> bool:
    """Returns whether a value of the ledger is a list of objects, which a table shows."""
    return isinstance(value, list) and bool(value) and isinstance(value[0], Mapping)


def _rounds(rounds: Sequence[Mapping[str, Any]]) -> Table:
    names = ("round", "noise_stddev", "threshold", "cutoff", "cut")
    rows = [tuple(number(each.get(name)) for name in names) for each in rounds]
    return Table("Each round", names, rows, range(len(names)))


def _value(value: object) -> str:
    """Returns a value exactly, since a reader may compare it with the ledger.

    >>> _value(1e-06), _value(True), _value(None), _value("words")
    ('1e-06', 'true', '–', 'words')
    """
    if value is None:
        return "–"
    return text_of(value if isinstance(value, str) else json.dumps(value, ensure_ascii=False))
