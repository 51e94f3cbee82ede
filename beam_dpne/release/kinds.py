"""The kinds of releases: which rows their sets become, in which files, under which ledger."""

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa

from beam_dpne.bayesian.counting import NgramProbabilities, probability_table, unprotected_table
from beam_dpne.bayesian.plan import BayesianPlan
from beam_dpne.ngrams.decoding import ngram_table
from beam_dpne.ngrams.elements import GramSet
from beam_dpne.ngrams.plan import PrivacyPlan
from beam_dpne.ngrams.report import length_report
from beam_dpne.release.bayesian_ledger import bayesian_ledger
from beam_dpne.release.ngrams_ledger import ngrams_ledger
from beam_dpne.release.parts import (
    ITEM_FILES,
    NGRAM_FILES,
    PROBABILITY_FILES,
    UNPROTECTED_FILES,
    Layout,
)
from beam_dpne.release.set_union_ledger import set_union_ledger
from beam_dpne.set_union.elements import ItemSet, item_table
from beam_dpne.set_union.plan import SetUnionPlan


@dataclasses.dataclass(frozen=True, kw_only=True)
class ReleaseKind:
    """How the released sets of one program are published.

    Attributes:
      layout: of the files.
      rows: from the released sets, in the order of a release.
      ledger: from the plan, the released sets, and what is common to all ledgers, by name.
    """

    layout: Layout
    rows: Callable[[Sequence[Any]], pa.Table]
    ledger: Callable[..., dict[str, Any]]


def kind_of(plan: PrivacyPlan | SetUnionPlan | BayesianPlan) -> ReleaseKind:
    """Returns how what was released under a plan is published."""
    if isinstance(plan, BayesianPlan):
        return BAYESIAN if plan.is_private else UNPROTECTED
    return NGRAMS if isinstance(plan, PrivacyPlan) else SET_UNION


def _ngrams_ledger(plan: PrivacyPlan, released: Sequence[GramSet], **common: Any) -> dict[str, Any]:
    return ngrams_ledger(plan=plan, facts=[length_report(grams) for grams in released], **common)


def _set_union_ledger(
    plan: SetUnionPlan, released: Sequence[ItemSet], **common: Any
) -> dict[str, Any]:
    (found,) = released
    return set_union_ledger(plan=plan, items=found, **common)


def _bayesian_ledger(
    plan: BayesianPlan, released: Sequence[NgramProbabilities], **common: Any
) -> dict[str, Any]:
    (found,) = released
    return bayesian_ledger(plan=plan, found=found, **common)


NGRAMS = ReleaseKind(
    layout=NGRAM_FILES,
    rows=ngram_table,
    ledger=_ngrams_ledger,
)
SET_UNION = ReleaseKind(
    layout=ITEM_FILES,
    rows=item_table,
    ledger=_set_union_ledger,
)
BAYESIAN = ReleaseKind(
    layout=PROBABILITY_FILES,
    rows=probability_table,
    ledger=_bayesian_ledger,
)
UNPROTECTED = dataclasses.replace(BAYESIAN, layout=UNPROTECTED_FILES, rows=unprotected_table)
