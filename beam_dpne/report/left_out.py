"""What an operator leaves out of a report, by name.

Leaving something out changes no guarantee: the ledger of the release is differentially private, and it
states all of this. It keeps a public page free of what its readers need not know, such as the names of
the operator's fields. What states the guarantee and its limits cannot be left out.
"""

import dataclasses
from collections.abc import Collection
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from beam_dpne.report.facts import Facts

PARTS = {
    "title": "the title that the operator gave the release",
    "contact": "the operator's address for questions",
    "unit": "the operator's noun for one user",
    "fields": "the names of the input's fields, and its format",
    "tokenizer": "the name of the tokenizer",
    "versions": "the versions of the packages other than beam_dpne",
    "operator": "the words for the operator",
    "top": "the tables of the top rows",
    "search": "the search box, with the rows that it holds",
    "parameters": "the section on parameters",
    "questions": "the questions of NIST SP 800-226",
}
# What --public leaves out, unless the operator names other parts.
PUBLIC = ("title", "contact", "fields", "tokenizer", "versions", "operator")
_NOTES = ("title", "contact", "unit")


def without(facts: "Facts", left_out: Collection[str]) -> "Facts":
    """Returns a release whose ledger lacks what is left out, so that no section can show it.

    Args:
      facts: The release.
      left_out: Keys of `PARTS`.
    """
    ledger: dict[str, Any] = {**facts.ledger, "guarantee": dict(facts.ledger["guarantee"])}
    user, unit = ledger["guarantee"].pop("user", None), facts.note["unit"]
    if isinstance(user, str) and "fields" not in left_out:
        hides_unit = unit is not None and "unit" in left_out
        ledger["guarantee"]["user"] = user.removeprefix(f"{unit}: ") if hides_unit else user
    ledger["notes"] = {name: None if name in left_out else facts.note[name] for name in _NOTES}
    if "fields" in left_out:
        ledger.pop("input", None)
    if "tokenizer" in left_out:
        ledger.pop("tokenizer")
    if "versions" in left_out:
        own = {"beam_dpne": ledger["versions"].get("beam_dpne")}
        ledger["versions"] = {name: value for name, value in own.items() if value is not None}
    return dataclasses.replace(facts, ledger=ledger)
