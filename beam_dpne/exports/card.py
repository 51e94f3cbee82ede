"""A data card: the README.md of a data set on the Hugging Face Hub, made from the ledger alone.

It names no n-gram and no item. The front matter lists the parts, so that `datasets.load_dataset` loads
the release from the repository that has its files and this card.
"""

import re
from collections.abc import Iterator, Sequence
from typing import Any

import yaml

from beam_dpne.exports.source import Rendered, Source

_SPECIAL = re.compile(r"([\\`*_\[\]<>|#~$])")
_LICENSE = re.compile(r"[a-z0-9][a-z0-9.-]{0,63}")
_SIZES = (
    *((10**3, "n<1K"), (10**4, "1K<n<10K"), (10**5, "10K<n<100K"), (10**6, "100K<n<1M")),
    *((10**7, "1M<n<10M"), (10**8, "10M<n<100M"), (10**9, "100M<n<1B")),
)
_TASKS = {"ngrams": "n-grams", "set-union": "vocabulary", "bayesian": "language-model"}
# A file of tabs has no quotes; 3 is `csv.QUOTE_NONE`.
_TABS = {"sep": "\t", "quoting": 3}
_CHECK = """```python
from beam_dpne import read_release

read_release("FOLDER").verify()  # It raises an error unless every file is as the ledger says.
```"""


def is_license(text: str) -> bool:
    """Returns whether a text has the form of the Hub's names of licences, e.g. cc-by-4.0."""
    return bool(_LICENSE.fullmatch(text))


def render(source: Source, license_name: str | None) -> Rendered:
    """Returns the card.

    Args:
      source: A release of any program.
      license_name: The Hub's name of the licence, or None to leave it out.
    """
    head = yaml.safe_dump(
        _front_matter(source, license_name), sort_keys=False, allow_unicode=True, width=1000
    )
    return Rendered(f"---\n{head}---\n\n{chr(10).join(_body(source))}".encode())


def escaped(text: str) -> str:
    r"""Returns a text as one line of Markdown that shows the same characters.

    >>> escaped("<b>*bold*</b>\n# no heading")
    '\\<b\\>\\*bold\\*\\</b\\> \\# no heading'
    """
    return _SPECIAL.sub(r"\\\1", " ".join(text.replace("&", "&amp;").split()))


def _front_matter(source: Source, license_name: str | None) -> dict[str, Any]:
    plan, names = source.ledger["plan"], [part["name"] for part in source.ledger["parts"]]
    files = [{"split": "train", "path": names}]
    config = {"config_name": "default", "data_files": files}
    if names[0].endswith(".tsv"):
        config |= _TABS
    return {
        "pretty_name": source.title,
        **({"license": license_name} if license_name is not None else {}),
        "tags": ["differential-privacy", _TASKS[source.program]],
        "size_categories": [
            next((name for most, name in _SIZES if len(source.rows) < most), "n>1B")
        ],
        "configs": [config],
        "differential_privacy": {
            "epsilon": plan["epsilon"],
            "delta": plan["delta"],
            "unit": source.ledger["guarantee"].get("user", "a user"),
            "ledger_sha256": source.ledger_sha256,
        },
    }


def _body(source: Source) -> Iterator[str]:
    """Yields the lines of the card below its front matter."""
    ledger, guarantee, plan = source.ledger, source.ledger["guarantee"], source.ledger["plan"]
    yield f"# {escaped(source.title)}\n"
    yield f"{escaped(ledger['what'])}\n"
    if contact := ledger.get("notes", {}).get("contact"):
        yield f"Questions about this release: {escaped(contact)}\n"
    yield "## Guarantee\n"
    yield f"- ε = {plan['epsilon']:g} and δ = {plan['delta']:g}, for the whole release."
    if user := guarantee.get("user"):
        yield f"- User: {escaped(user)}."
    yield f"- {escaped(guarantee['neighbours'])}"
    yield f"- {escaped(guarantee['statement'])}\n"
    yield "## What is not protected\n"
    yield from (f"- {escaped(sentence)}" for sentence in ledger["not_protected"])
    yield "\n## Rows\n"
    yield f"The release has {len(source.rows):,} rows ({escaped(source.noun)}).\n"
    if source.program == "ngrams":
        entries = [[each["length"], f"{each['released']:,}"] for each in ledger["lengths"]]
        yield from _table(("length", "n-grams"), entries)
    yield from _table(("column", "meaning"), list(ledger["columns"].items()))
    if counts := ledger.get("counts"):
        meaning = ledger["counts_columns"]["confidence"]
        yield (
            "Numbers of users are estimates, and inside ε and δ like all rows. The confidence of "
            f"their intervals is {counts['confidence']:.0%}: {escaped(meaning)}.\n"
        )
    yield "## Files\n"
    parts = [
        (part["name"], f"{part['rows']:,}", f"{part['bytes']:,}", part["sha256"])
        for part in ledger["parts"]
    ]
    yield from _table(("file", "rows", "bytes", "SHA-256"), parts)
    yield f"The SHA-256 of `ledger.json` is `{source.ledger_sha256}`. Check all files with\n"
    yield f"{_CHECK}\n"
    yield "## How it was made\n"
    yield f"- beam_dpne {escaped(ledger['versions']['beam_dpne'])}, program {source.program}"
    yield f"- Tokenizer: {escaped(ledger['tokenizer'])}"
    yield "- Method, plan and everything that was spent: `ledger.json`\n"


def _table(headings: Sequence[str], rows: Sequence[Sequence[Any]]) -> Iterator[str]:
    for cells in (headings, ["---"] * len(headings), *rows):
        shown = (str(cell) if cell == "---" else escaped(str(cell)) for cell in cells)
        yield f"| {' | '.join(shown)} |"
    yield ""
