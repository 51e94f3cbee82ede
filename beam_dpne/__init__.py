"""Differentially private n-grams, vocabularies and phrase statistics on Apache Beam.

Public names are imported when they are first used, so that programs start quickly.
"""

import importlib
from typing import TYPE_CHECKING, Any

from beam_dpne.storage.import_messages import leave_out_expected
from beam_dpne.version import __version__

leave_out_expected()

if TYPE_CHECKING:
    from beam_dpne.bayesian.counting import NgramProbabilities, NoisyCounts
    from beam_dpne.bayesian.paper import PaperBayesianCounts
    from beam_dpne.bayesian.paper_formulas import PaperBayesianPlan
    from beam_dpne.bayesian.plan import BayesianPlan
    from beam_dpne.bayesian.public_counts import PublicCounts
    from beam_dpne.bayesian.transform import BayesianCounts, BayesianCountsResult
    from beam_dpne.documents.batch import BatchDocuments
    from beam_dpne.documents.group_by_user import GroupByUser
    from beam_dpne.elements.batches import (
        Contributions,
        DocumentBlock,
        GramSet,
        HistogramShard,
        SpuriousGrams,
        StandingGrams,
        UserBatch,
    )
    from beam_dpne.elements.rows import (
        NgramProbability,
        ReleasedItem,
        ReleasedNgram,
    )
    from beam_dpne.elements.side_inputs import SetStore
    from beam_dpne.mechanism.randomness import RunKey
    from beam_dpne.mechanism.rules import LengthRule, RoundRule, length_rule
    from beam_dpne.ngrams.budgets import SpendBudgets, SpendResult
    from beam_dpne.ngrams.candidates import ExtractGrams, PruneInvalid
    from beam_dpne.ngrams.contributions import LimitContributions
    from beam_dpne.ngrams.decoding import DecodeGrams, join_tokens, split_ngram
    from beam_dpne.ngrams.histogram import WeightedHistogram
    from beam_dpne.ngrams.plan import LengthPlan, PrivacyPlan
    from beam_dpne.ngrams.report import LengthFacts, ListFacts, RoundFacts
    from beam_dpne.ngrams.strategies import Adaptive, OneRound
    from beam_dpne.ngrams.threshold import DecideRound, NoisyThreshold, RoundResult, SampleSpurious
    from beam_dpne.ngrams.transform import PrivateNgrams, PrivateNgramsResult
    from beam_dpne.set_union.elements import ItemSet
    from beam_dpne.set_union.plan import SetUnionPlan
    from beam_dpne.set_union.release import ReleaseItems
    from beam_dpne.set_union.transform import PrivateSetUnion, PrivateSetUnionResult
    from beam_dpne.storage.run_key_file import RunKeyFile

_HOME = {
    "Contributions": "beam_dpne.elements.batches",
    "DocumentBlock": "beam_dpne.elements.batches",
    "GramSet": "beam_dpne.elements.batches",
    "HistogramShard": "beam_dpne.elements.batches",
    "SpuriousGrams": "beam_dpne.elements.batches",
    "StandingGrams": "beam_dpne.elements.batches",
    "UserBatch": "beam_dpne.elements.batches",
    "BayesianCounts": "beam_dpne.bayesian.transform",
    "BayesianCountsResult": "beam_dpne.bayesian.transform",
    "BayesianPlan": "beam_dpne.bayesian.plan",
    "PaperBayesianCounts": "beam_dpne.bayesian.paper",
    "PaperBayesianPlan": "beam_dpne.bayesian.paper_formulas",
    "LimitContributions": "beam_dpne.ngrams.contributions",
    "DecodeGrams": "beam_dpne.ngrams.decoding",
    "join_tokens": "beam_dpne.ngrams.decoding",
    "split_ngram": "beam_dpne.ngrams.decoding",
    "BatchDocuments": "beam_dpne.documents.batch",
    "NgramProbabilities": "beam_dpne.bayesian.counting",
    "NoisyCounts": "beam_dpne.bayesian.counting",
    "ExtractGrams": "beam_dpne.ngrams.candidates",
    "PruneInvalid": "beam_dpne.ngrams.candidates",
    "WeightedHistogram": "beam_dpne.ngrams.histogram",
    "ReleaseItems": "beam_dpne.set_union.release",
    "ItemSet": "beam_dpne.set_union.elements",
    "LengthRule": "beam_dpne.mechanism.rules",
    "RoundRule": "beam_dpne.mechanism.rules",
    "length_rule": "beam_dpne.mechanism.rules",
    "LengthFacts": "beam_dpne.ngrams.report",
    "ListFacts": "beam_dpne.ngrams.report",
    "PrivateNgrams": "beam_dpne.ngrams.transform",
    "PrivateNgramsResult": "beam_dpne.ngrams.transform",
    "RoundFacts": "beam_dpne.ngrams.report",
    "LengthPlan": "beam_dpne.ngrams.plan",
    "PrivacyPlan": "beam_dpne.ngrams.plan",
    "PublicCounts": "beam_dpne.bayesian.public_counts",
    "RunKey": "beam_dpne.mechanism.randomness",
    "NgramProbability": "beam_dpne.elements.rows",
    "ReleasedItem": "beam_dpne.elements.rows",
    "ReleasedNgram": "beam_dpne.elements.rows",
    "RunKeyFile": "beam_dpne.storage.run_key_file",
    "DecideRound": "beam_dpne.ngrams.threshold",
    "NoisyThreshold": "beam_dpne.ngrams.threshold",
    "RoundResult": "beam_dpne.ngrams.threshold",
    "SampleSpurious": "beam_dpne.ngrams.threshold",
    "PrivateSetUnion": "beam_dpne.set_union.transform",
    "PrivateSetUnionResult": "beam_dpne.set_union.transform",
    "SetUnionPlan": "beam_dpne.set_union.plan",
    "SpendBudgets": "beam_dpne.ngrams.budgets",
    "SpendResult": "beam_dpne.ngrams.budgets",
    "SetStore": "beam_dpne.elements.side_inputs",
    "Adaptive": "beam_dpne.ngrams.strategies",
    "OneRound": "beam_dpne.ngrams.strategies",
    "GroupByUser": "beam_dpne.documents.group_by_user",
}

__all__ = [
    "Adaptive",
    "BatchDocuments",
    "BayesianCounts",
    "BayesianCountsResult",
    "BayesianPlan",
    "Contributions",
    "DecideRound",
    "DecodeGrams",
    "DocumentBlock",
    "ExtractGrams",
    "GramSet",
    "GroupByUser",
    "HistogramShard",
    "ItemSet",
    "LengthFacts",
    "LengthPlan",
    "LengthRule",
    "LimitContributions",
    "ListFacts",
    "NgramProbabilities",
    "NgramProbability",
    "NoisyCounts",
    "NoisyThreshold",
    "OneRound",
    "PaperBayesianCounts",
    "PaperBayesianPlan",
    "PrivacyPlan",
    "PrivateNgrams",
    "PrivateNgramsResult",
    "PrivateSetUnion",
    "PrivateSetUnionResult",
    "PruneInvalid",
    "PublicCounts",
    "ReleaseItems",
    "ReleasedItem",
    "ReleasedNgram",
    "RoundFacts",
    "RoundResult",
    "RoundRule",
    "RunKey",
    "RunKeyFile",
    "SampleSpurious",
    "SetStore",
    "SetUnionPlan",
    "SpendBudgets",
    "SpendResult",
    "SpuriousGrams",
    "StandingGrams",
    "UserBatch",
    "WeightedHistogram",
    "__version__",
    "join_tokens",
    "length_rule",
    "split_ngram",
]


def __getattr__(name: str) -> Any:
    """Imports a public name from its module."""
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(importlib.import_module(_HOME[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
