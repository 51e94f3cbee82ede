"""A data card: the README.md of a data set on the Hugging Face Hub, made from the ledger alone.

It names no n-gram and no item. The front matter lists the parts, so that `datasets.load_dataset` loads
the release from the repository that has its files and this card.
"""

import functools
import re
from typing import Any

import jinja2
import yaml

from beam_dpne.errors import ExportError
from beam_dpne.exports.source import Rendered, Source

_SPECIAL = re.compile(r"([\\`*_\[\]<>|#~$])")
_LICENSE = re.compile(r"[a-z0-9][a-z0-9.-]{0,63}")
_SIZES = ("n<1K", "1K<n<10K", "10K<n<100K", "100K<n<1M", "1M<n<10M", "10M<n<100M", "100M<n<1B")
_TASKS = {"ngrams": "n-grams", "set-union": "vocabulary", "bayesian": "language-model"}
# A file of tabs has no quotes; 3 is `csv.QUOTE_NONE`.
_TABS = {"sep": "\t", "quoting": 3}


def render(source: Source, license: str | None = None) -> Rendered:
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
    card = _template().render(
        head=yaml.safe_dump(
            _front_matter(source, license), sort_keys=False, allow_unicode=True, width=1000
        ),
        title=source.title,
        ledger=source.ledger,
        rows=len(source.rows),
        noun=source.noun,
        sha256=source.ledger_sha256,
    )
    return Rendered(card.encode(), source)


def escaped(text: str) -> str:
    r"""Returns a text as one line of Markdown that shows the same characters.

    >>> escaped("<b>*bold*</b>\n# no heading")
    '\\<b\\>\\*bold\\*\\</b\\> \\# no heading'
    """
    return _SPECIAL.sub(r"\\\1", " ".join(text.replace("&", "&amp;").split()))


@functools.cache
def _template() -> jinja2.Template:
    made = jinja2.Environment(
        loader=jinja2.PackageLoader("beam_dpne.exports", ""),
        trim_blocks=True,
        keep_trailing_newline=True,
        autoescape=False,
    )
    made.filters["md"] = escaped
    return made.get_template("card.jinja")


def _front_matter(source: Source, license_name: str | None) -> dict[str, Any]:
    ledger = source.ledger
    names = [part["name"] for part in ledger["parts"]]
    config = {"config_name": "default", "data_files": [{"split": "train", "path": names}]}
    size = max(len(str(len(source.rows))) - 3, 0)
    return {
        "pretty_name": source.title,
        **({"license": license_name} if license_name is not None else {}),
        "tags": ["differential-privacy", _TASKS[source.program]],
        "size_categories": [_SIZES[size] if size < len(_SIZES) else "n>1B"],
        "configs": [config | (_TABS if names[0].endswith(".tsv") else {})],
        "differential_privacy": {
            "epsilon": ledger["guarantee"]["epsilon"],
            "delta": ledger["guarantee"]["delta"],
            "unit": ledger["guarantee"]["user"],
            "ledger_sha256": source.ledger_sha256,
        },
    }
