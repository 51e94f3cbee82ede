"""A record for OpenDP's Deployments Registry, made from a ledger and from facts that only people know.

The registry's records are YAML files. `registry_schema.json` has the fields and values that it allows,
as they were at one commit, and says from where; the order of the fields matters to the registry. A
record is a draft of tier 2. Its owner should read it, and add a justification for tier 3.
"""

import dataclasses
import datetime
import functools
import importlib.resources
import json
import re
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import yaml

from beam_dpne.errors import ReportError
from beam_dpne.report.facts import Facts
from beam_dpne.report.left_out import without
from beam_dpne.storage import is_installed

SCHEMA_NAME = "registry_schema.json"
_CENTRAL = (
    "The data curator holds the texts and runs beam_dpne on them. Users trust the curator, and those "
    "who run the curator's machines, with their texts; readers of the release are not trusted."
)
_ACTORS = (
    "Users wrote the texts. The data curator holds them, the run key and the temporary storage of the "
    "run. Everybody else may see the release, and may know anything about all other users."
)
_DOMAIN = "All sets of users, each with any number of documents, which are sequences of words."
_POST = (
    "The released rows are sorted and written to files. Probabilities and estimates are computed from "
    "noisy numbers and public parameters alone."
)


# The facts that every record must have, each with a form of its value.
_REQUIRED = {
    "curator": "NAME",
    "curator_type": "Government|Industry|Nonprofit",
    "intended_use": "TEXT",
    "region": "REGION",
    "publication_date": "YYYY-MM-DD",
    "author": "NAME",
}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Deployment:
    """The facts of a record that no ledger has.

    Attributes:
      curator: Name of the entity that publishes the release.
      curator_type: "Government", "Industry" or "Nonprofit".
      intended_use: What the release is for.
      region: Region that the data describe, e.g. "Global".
      publication_date: Date of the publication, as YYYY-MM-DD.
      author: Names of those who write the record.
      product_name: Name of the data product; None for the title in the ledger.
      sector: One of the registry's sectors, e.g. "Technology"; None to leave it out.
      many_releases: Whether releases of the same population are published again and again. The record
        then says that the data are dynamic, and otherwise that they are static.
    """

    curator: str | None = None
    curator_type: str | None = None
    intended_use: str | None = None
    region: str | None = None
    publication_date: str | None = None
    author: Sequence[str] | None = None
    product_name: str | None = None
    sector: str | None = None
    many_releases: bool = False


def registry_record(
    facts: Facts, deployment: Deployment, *, left_out: Collection[str] = ()
) -> dict[str, Any]:
    """Returns a record of a release, valid under the registry's schema.

    Args:
      facts: The release (see `read_facts`).
      deployment: The facts that the ledger does not have.
      left_out: Names of what the record must not quote from the ledger, keys of `PARTS`.

    Raises:
      ReportError: A fact is missing or not one that the registry allows, or the package jsonschema of
        the extra `registry` is not installed. The message names all facts that are missing.
    """
    facts = without(facts, left_out)
    name = deployment.product_name or facts.note["title"] or ""
    _check_whole(deployment, name)
    ledger = facts.ledger
    plan, guarantee = ledger["plan"], ledger["guarantee"]
    users = plan.get("public_user_count")
    record = {
        "url_slug": _slug(name),
        "deployment": {
            "basic": {
                "name": name,
                "data_curators": [
                    {
                        "data_curator_name": deployment.curator,
                        "data_curator_type": deployment.curator_type,
                    }
                ],
                "description": _description(facts),
                "intended_use": deployment.intended_use,
                "data_product_type": "Summary statistics",
                "data_product_region": deployment.region,
                **({} if deployment.sector is None else {"data_product_sector": deployment.sector}),
                "publication_date": deployment.publication_date,
            },
            "dp_variant": {
                "variant_name": "Approximate DP",
                "data_domain": _DOMAIN,
                "unprotected_quantities": _listed(ledger["not_protected"]),
            },
            "privacy_loss": {
                "privacy_unit": guarantee.get("user") or facts.note["unit"] or "a user",
                "privacy_unit_details": guarantee["neighbours"],
                **({} if users is None else {"number_of_privacy_units": users}),
                "privacy_parameters": {"epsilon": plan["epsilon"], "delta": plan["delta"]},
                "privacy_parameters_details": guarantee["statement"],
            },
            "deployment_model": {
                "model_name": "Central",
                "trust_assumptions": _CENTRAL,
                "actors": _ACTORS,
                "release_type": "Many releases" if deployment.many_releases else "One release",
                "data_source_type": "Dynamic" if deployment.many_releases else "Static",
                "access_type": "Non-interactive",
            },
            "implementation": {
                "preprocessing_and_hyperparameter_tuning": _preprocessing(ledger),
                "mechanisms": _mechanisms(ledger),
                "composition": _composition(ledger),
                "post_processing": _POST,
                "additional_information": (
                    f"SHA-256 of the release's ledger.json: {facts.ledger_sha256}"
                ),
            },
            "administrative": {
                "status": "Draft",
                "registry_authors": list(deployment.author or ()),
                "tier": 2,
            },
        },
    }
    check_record(record)
    return record


def record_bytes(record: Mapping[str, Any]) -> bytes:
    """Returns a record as YAML, with each text in quotes, as the registry requires."""
    text = yaml.dump(
        _quoted(record), Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=100
    )
    return text.encode()


def record_name(record: Mapping[str, Any]) -> str:
    """Returns the name that the file of a record must have in the registry.

    >>> record_name({"url_slug": "support-phrases-2025"})
    'support_phrases_2025.yaml'
    """
    return record["url_slug"].replace("-", "_") + ".yaml"


def check_record(record: Mapping[str, Any]) -> None:
    """Checks a record by the registry's schema.

    Raises:
      ReportError: The record is not valid, or the package jsonschema is not installed.
    """
    if not is_installed("jsonschema"):
        raise ReportError(
            "A record of a registry needs the package jsonschema: pip install 'beam-dpne[registry]'."
        )
    import jsonschema

    # The package rfc3339-validator, which checks dates for jsonschema, is not needed for this one.
    _check_date(record)
    errors = sorted(
        jsonschema.Draft7Validator(registry_schema()).iter_errors(record),
        key=lambda error: error.path,
    )
    if errors:
        place = ".".join(map(str, errors[0].absolute_path)) or "the record"
        raise ReportError(f"The registry refuses {place}: {errors[0].message}.")


@functools.cache
def registry_schema() -> dict[str, Any]:
    """Returns the registry's schema as this version knows it, and the source of it in `$comment`."""
    file = importlib.resources.files("beam_dpne.report") / SCHEMA_NAME
    return json.loads(file.read_text(encoding="utf-8"))


class _Quoted(str):
    """A text that YAML shows in double quotes."""


class _Dumper(yaml.SafeDumper):
    """A dumper of quoted texts, which indents lists."""

    def increase_indent(self, flow: bool = False, indentless: bool = False) -> None:
        super().increase_indent(flow, indentless=False)


_Dumper.add_representer(
    _Quoted, lambda dumper, text: dumper.represent_scalar("tag:yaml.org,2002:str", text, style='"')
)


def _quoted(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {name: _quoted(each) for name, each in value.items()}
    if isinstance(value, list):
        return [_quoted(each) for each in value]
    return _Quoted(value) if isinstance(value, str) else value


def _check_whole(deployment: Deployment, name: str) -> None:
    """Raises ReportError if a fact is missing that a record must have; it names all of them."""
    missing = [
        f"--{fact} {form}" for fact, form in _REQUIRED.items() if not _is_given(deployment, fact)
    ]
    if not name.strip():
        missing.append("--product_name NAME (the ledger has no title, or it is left out)")
    if missing:
        raise ReportError(
            f"registry needs facts that no ledger has. Give also {', '.join(missing)}."
        )


def _is_given(deployment: Deployment, fact: str) -> bool:
    value = getattr(deployment, fact)
    texts = [value] if isinstance(value, str) else value or []
    return bool(texts) and all(text.strip() for text in texts)


def _check_date(record: Mapping[str, Any]) -> None:
    date = record.get("deployment", {}).get("basic", {}).get("publication_date")
    if not (isinstance(date, str) and re.fullmatch(r"\d{4}-\d\d-\d\d", date)):
        raise ReportError(
            f"publication_date must be a date as YYYY-MM-DD, got publication_date={date}."
        )
    try:
        datetime.date.fromisoformat(date)
    except ValueError:
        raise ReportError(
            f"publication_date must be a day of the calendar, got publication_date={date}."
        ) from None


def _slug(name: str) -> str:
    """Returns the part of an address that stands for a name.

    >>> _slug("Support phrases, spring 2025")
    'support-phrases-spring-2025'
    """
    slug = "-".join(re.findall("[a-z0-9]+", name.lower()))
    if not slug:
        raise ReportError(
            "product_name must have a letter from a to z or a digit for the record's address; it is "
            "the title of the release if it is not given."
        )
    return slug


def _description(facts: Facts) -> str:
    meanings = "; ".join(f"{name}: {meaning}" for name, meaning in facts.ledger["columns"].items())
    count = f"{len(facts.rows):,}"
    return f"A differentially private release of {count} {facts.noun}. Columns: {meanings}."


def _preprocessing(ledger: Mapping[str, Any]) -> str:
    tokenizer = f" {ledger['tokenizer']}" if "tokenizer" in ledger else ""
    return (
        f"The tokenizer{tokenizer} splits each text. The operator promises that no parameter was "
        "chosen by looking at the data."
    )


def _mechanisms(ledger: Mapping[str, Any]) -> str:
    plan = ledger["plan"]
    how = (
        "noise is added, and rows above a threshold that depends on public parameters are released"
    )
    if ledger["program"] == "bayesian":
        how = "and noise is added to each n-gram of a public vocabulary, whether or not any user has it"
    choices = [name for name in ("strategy", "policy", "mode") if plan.get(name)]
    chosen = "".join(f", {name} {plan[name]}" for name in choices)
    if "counts" in ledger:
        how += (
            ". Numbers of users of the released rows are estimated from further sums, whose Gaussian "
            "noise is within the same epsilon and delta"
        )
    return (
        f"beam_dpne {ledger['versions']['beam_dpne']}, program {ledger['program']}{chosen}. Users' "
        f"contributions are bounded, {how}; the ledger has all numbers. Floating-point arithmetic is "
        f"paid for by a part of epsilon, {ledger['spent']['numerical_slack']:g}. The run time is not "
        "protected."
    )


def _composition(ledger: Mapping[str, Any]) -> str:
    individual = ledger["guarantee"].get("individual_budgets")
    if individual:
        return individual["statement"]
    return (
        "Epsilon and delta hold for the whole release, with all of its lengths and rounds. Releases of "
        "the same users add up."
    )


def _listed(sentences: Sequence[str]) -> str:
    return " ".join(sentences)
