"""Differentially private n-grams, vocabularies and phrase statistics on Apache Beam.

Public names are imported when they are first used, so that programs start quickly.
"""

import importlib
from typing import TYPE_CHECKING, Any

from beam_dpne.import_messages import leave_out_expected
from beam_dpne.version import __version__

leave_out_expected()

if TYPE_CHECKING:
    from beam_dpne.batches import (
        Contributions,
        DocumentBlock,
        GramSet,
        HistogramShard,
        SpuriousGrams,
        StandingGrams,
        UserBatch,
    )
    from beam_dpne.bayesian import BayesianCounts, BayesianCountsResult
    from beam_dpne.bayesian_plan import BayesianPlan
    from beam_dpne.contributions import LimitContributions
    from beam_dpne.decoding import DecodeGrams, join_tokens, split_ngram
    from beam_dpne.documents import BatchDocuments
    from beam_dpne.facts import LengthFacts, ListFacts, RoundFacts
    from beam_dpne.gram_counts import NgramProbabilities, NoisyCounts
    from beam_dpne.grams import ExtractGrams, PruneInvalid
    from beam_dpne.histogram import WeightedHistogram
    from beam_dpne.item_release import ReleaseItems
    from beam_dpne.items import ItemSet
    from beam_dpne.ngrams import PrivateNgrams, PrivateNgramsResult
    from beam_dpne.plan import LengthPlan, PrivacyPlan
    from beam_dpne.public_counts import PublicCounts
    from beam_dpne.randomness import RunKey
    from beam_dpne.released_rows import (
        NgramProbability,
        ReleasedItem,
        ReleasedNgram,
        UnprotectedProbability,
    )
    from beam_dpne.rules import LengthRule, RoundRule, length_rule
    from beam_dpne.run_key_file import RunKeyFile
    from beam_dpne.selection import DecideRound, NoisyThreshold, RoundResult, SampleSpurious
    from beam_dpne.set_union import PrivateSetUnion, PrivateSetUnionResult
    from beam_dpne.set_union_plan import SetUnionPlan
    from beam_dpne.spending import SpendBudgets, SpendResult
    from beam_dpne.stored import SetStore
    from beam_dpne.strategies import Adaptive, OneRound
    from beam_dpne.users import GroupByUser

_HOME = {
    "Contributions": "beam_dpne.batches",
    "DocumentBlock": "beam_dpne.batches",
    "GramSet": "beam_dpne.batches",
    "HistogramShard": "beam_dpne.batches",
    "SpuriousGrams": "beam_dpne.batches",
    "StandingGrams": "beam_dpne.batches",
    "UserBatch": "beam_dpne.batches",
    "BayesianCounts": "beam_dpne.bayesian",
    "BayesianCountsResult": "beam_dpne.bayesian",
    "BayesianPlan": "beam_dpne.bayesian_plan",
    "LimitContributions": "beam_dpne.contributions",
    "DecodeGrams": "beam_dpne.decoding",
    "join_tokens": "beam_dpne.decoding",
    "split_ngram": "beam_dpne.decoding",
    "BatchDocuments": "beam_dpne.documents",
    "NgramProbabilities": "beam_dpne.gram_counts",
    "NoisyCounts": "beam_dpne.gram_counts",
    "ExtractGrams": "beam_dpne.grams",
    "PruneInvalid": "beam_dpne.grams",
    "WeightedHistogram": "beam_dpne.histogram",
    "ReleaseItems": "beam_dpne.item_release",
    "ItemSet": "beam_dpne.items",
    "LengthRule": "beam_dpne.rules",
    "RoundRule": "beam_dpne.rules",
    "length_rule": "beam_dpne.rules",
    "LengthFacts": "beam_dpne.facts",
    "ListFacts": "beam_dpne.facts",
    "PrivateNgrams": "beam_dpne.ngrams",
    "PrivateNgramsResult": "beam_dpne.ngrams",
    "RoundFacts": "beam_dpne.facts",
    "LengthPlan": "beam_dpne.plan",
    "PrivacyPlan": "beam_dpne.plan",
    "PublicCounts": "beam_dpne.public_counts",
    "RunKey": "beam_dpne.randomness",
    "NgramProbability": "beam_dpne.released_rows",
    "ReleasedItem": "beam_dpne.released_rows",
    "ReleasedNgram": "beam_dpne.released_rows",
    "UnprotectedProbability": "beam_dpne.released_rows",
    "RunKeyFile": "beam_dpne.run_key_file",
    "DecideRound": "beam_dpne.selection",
    "NoisyThreshold": "beam_dpne.selection",
    "RoundResult": "beam_dpne.selection",
    "SampleSpurious": "beam_dpne.selection",
    "PrivateSetUnion": "beam_dpne.set_union",
    "PrivateSetUnionResult": "beam_dpne.set_union",
    "SetUnionPlan": "beam_dpne.set_union_plan",
    "SpendBudgets": "beam_dpne.spending",
    "SpendResult": "beam_dpne.spending",
    "SetStore": "beam_dpne.stored",
    "Adaptive": "beam_dpne.strategies",
    "OneRound": "beam_dpne.strategies",
    "GroupByUser": "beam_dpne.users",
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
    "UnprotectedProbability",
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
