"""The ledger of a release of n-grams: each length's limits, budget, noise and released number."""

import dataclasses
from collections.abc import Sequence
from typing import Any

from msgspec import UNSET, UnsetType

from beam_dpne.mechanism.rules import KNOWN_CLASS, ClassRule, GroupRule, LengthRule
from beam_dpne.ngrams.elements import GramSet
from beam_dpne.ngrams.plan import NgramsPlan
from beam_dpne.release.ledger import Contents
from beam_dpne.release.schema import Length

_INDIVIDUAL_BUDGETS = (
    "Every user has one budget for the n-grams of all lengths, (1 - count_share) * mu^2 with mu = 1 "
    "/ composed_noise_stddev. A contribution costs the sum of its squared weights, computed from the "
    "integers that were sent. Counts of held candidates cost the sum of the squares of the largest "
    "distances, in units of their noise, by which the user can move them. Over all lengths and "
    "rounds the costs of one user add up to at most this budget, whatever the released sets are. The "
    "budget that a user has left is a private state: it decides what this user sends next, and "
    "affects everything else only through sums with noise of standard deviation 1 and through counts "
    "with the noise that groups state. Numbers of users, if there are any, are measured last, at a "
    "cost of at most count_share * mu^2 for each user. By the theorem on fully adaptive composition "
    "with individual budgets for Gaussian noise, the whole run is as private as one Gaussian "
    "mechanism of sensitivity mu and noise of standard deviation 1."
)
_REFERENCES = (
    "A. Smith and A. Thakurta (2022): Fully Adaptive Composition for Gaussian Differential Privacy",
    "A. Koskela, M. Tobaben and A. Honkela (2022): Individual Privacy Accounting with Gaussian "
    "Differential Privacy",
    "V. Feldman and T. Zrnic (2021): Individual Privacy Accounting via a Rényi Filter",
)
_TEXT = (
    r"the words, joined by one blank; within a word, backslash is written \\, a blank \s, a tab \t, a "
    r"line feed \n and a carriage return \r, and the empty word \e; in tsv, what ends a line or a text "
    r"for some readers is \uXXXX, too (beam_dpne.split_ngram reads it)"
)
_GROUP = (
    "the group of the texts that have the n-gram, the value of their group field; the same words in "
    "another group are another n-gram"
)
_SCORES = {
    "one_round": "the noisy weight, as the middle of a cell one 64th of noise_stddev wide, rounded to "
    "six decimals; it is above the threshold of the length",
    "adaptive": "the noisy weight, estimated from the evidence of all rounds until the n-gram was "
    "found (of single words that no list has, from that round alone), in units of the weights of "
    "round 1, as the middle of a cell one 64th of the evidence's standard deviation wide, rounded to "
    "six decimals",
}


def ngrams_contents(plan: NgramsPlan, released: Sequence[GramSet]) -> Contents:
    """Returns the contents of the ledger of S_1, …, S_T; see `reported_contents`."""
    is_grouped = any(grams.is_grouped for grams in released)
    sections = [length_section(plan, grams) for grams in released]
    return reported_contents(plan, sections, is_grouped=is_grouped)


def reported_contents(
    plan: NgramsPlan, reports: Sequence[Length], *, is_grouped: bool = False
) -> Contents:
    """Returns the contents of the ledger of a release of n-grams.

    Args:
      plan: Plan of the run.
      reports: The section of each length, in any order.
      is_grouped: Whether n-grams have groups.
    """
    ordered = sorted(reports, key=lambda report: report.length)
    theorem: dict[str, Any] | UnsetType = UNSET
    if plan.is_adaptive:
        theorem = {
            "statement": _INDIVIDUAL_BUDGETS,
            "mu": 1 / plan.noise_stddev,
            "references": list(_REFERENCES),
        }
    return Contents(
        found=ordered,
        composed_noise_stddev=plan.noise_stddev,
        columns={
            "length": "number of words in the n-gram",
            **({"group": _GROUP} if is_grouped else {}),
            "ngram": _TEXT,
            "score": _SCORES[plan.strategy],
        },
        individual_budgets=theorem,
        found_alone="word",
    )


def length_section(plan: NgramsPlan, grams: GramSet) -> Length:
    """Returns what the ledger says of a released set; each of the numbers may be published."""
    rule = grams.rule
    numbers = plan.lengths[grams.length - 1]
    if rule is None:
        raise ValueError("A set without a rule has no section in a ledger.")
    details = {}
    if plan.is_adaptive:
        details = {
            "rounds": _rounds(rule),
            "classes": [_class(own) for own in rule.classes] if rule.by_prediction else [],
            "groups": [_group(each) for each in rule.groups],
        }
    return Length(
        length=grams.length,
        budget_share=numbers.budget_share,
        max_contributions=numbers.max_contributions,
        noise_stddev=rule.noise_stddev,
        threshold=rule.threshold,
        released=len(grams),
        valid=rule.valid,
        expected_spurious_at_most=rule.expected_spurious,
        **details,
    )


def _rounds(rule: LengthRule) -> list[dict[str, Any]]:
    return [
        {
            "round": number,
            "evidence_stddev": own.evidence_stddev,
            "threshold": own.threshold,
            "cut": own.cut if number < len(rule.rounds) else None,
            "null_probability": own.null_probability,
            "loadings": [loading / own.loading_unit for loading in own.loadings],
        }
        for number, own in enumerate(rule.rounds, start=1)
    ]


def _class(own: ClassRule) -> dict[str, Any]:
    return {
        **_class_number(own.number),
        "valid": own.valid or 0,
        "thresholds": [each.threshold for each in own.rounds],
        "cuts": [*(each.cut for each in own.rounds[:-1]), None],
        "null_probabilities": [each.null_probability for each in own.rounds],
    }


def _class_number(number: int, name: str = "number") -> dict[str, Any]:
    """Returns the number of a class, and that it is of known n-grams, if it is."""
    is_known = number > KNOWN_CLASS // 2
    return {name: number - KNOWN_CLASS, "known": True} if is_known else {name: number}


def _group(own: GroupRule) -> dict[str, Any]:
    fields = {name: value for name, value in dataclasses.asdict(own).items() if value is not None}
    return {**_class_number(fields.pop("lowest"), "lowest"), **fields}
