"""Differentially private n-grams, vocabularies and phrase statistics on Apache Beam.

Public names are imported when they are first used, so that programs start quickly.
"""

import importlib
from typing import TYPE_CHECKING, Any

from beam_dpne.version import __version__

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
    from beam_dpne.contributions import LimitContributions
    from beam_dpne.decoding import DecodeGrams, join_tokens, split_ngram
    from beam_dpne.documents import BatchDocuments
    from beam_dpne.grams import ExtractGrams, PruneInvalid
    from beam_dpne.histogram import WeightedHistogram
    from beam_dpne.mechanism import LengthRule, RoundRule, length_rule
    from beam_dpne.ngrams import (
        LengthFacts,
        ListFacts,
        PrivateNgrams,
        PrivateNgramsResult,
        RoundFacts,
    )
    from beam_dpne.plan import LengthPlan, PrivacyPlan
    from beam_dpne.randomness import RunKey
    from beam_dpne.run_key_file import RunKeyFile
    from beam_dpne.selection import DecideRound, NoisyThreshold, RoundResult, SampleSpurious
    from beam_dpne.spending import SpendBudgets, SpendResult
    from beam_dpne.stored import SetStore
    from beam_dpne.strategies import Adaptive, OneRound
    from beam_dpne.users import GroupByUser

_HOME = {
    "Contributions": "beam_dpne.batches",
    "SpendResult": "beam_dpne.spending",
    "RoundResult": "beam_dpne.selection",
    "RoundRule": "beam_dpne.mechanism",
    "RoundFacts": "beam_dpne.ngrams",
    "StandingGrams": "beam_dpne.batches",
    "SpendBudgets": "beam_dpne.spending",
    "DecideRound": "beam_dpne.selection",
    "Adaptive": "beam_dpne.strategies",
    "DocumentBlock": "beam_dpne.batches",
    "GramSet": "beam_dpne.batches",
    "HistogramShard": "beam_dpne.batches",
    "SpuriousGrams": "beam_dpne.batches",
    "UserBatch": "beam_dpne.batches",
    "LimitContributions": "beam_dpne.contributions",
    "DecodeGrams": "beam_dpne.decoding",
    "join_tokens": "beam_dpne.decoding",
    "split_ngram": "beam_dpne.decoding",
    "ExtractGrams": "beam_dpne.grams",
    "PruneInvalid": "beam_dpne.grams",
    "WeightedHistogram": "beam_dpne.histogram",
    "LengthRule": "beam_dpne.mechanism",
    "length_rule": "beam_dpne.mechanism",
    "LengthFacts": "beam_dpne.ngrams",
    "ListFacts": "beam_dpne.ngrams",
    "PrivateNgrams": "beam_dpne.ngrams",
    "PrivateNgramsResult": "beam_dpne.ngrams",
    "LengthPlan": "beam_dpne.plan",
    "PrivacyPlan": "beam_dpne.plan",
    "RunKey": "beam_dpne.randomness",
    "RunKeyFile": "beam_dpne.run_key_file",
    "SetStore": "beam_dpne.stored",
    "NoisyThreshold": "beam_dpne.selection",
    "SampleSpurious": "beam_dpne.selection",
    "OneRound": "beam_dpne.strategies",
    "BatchDocuments": "beam_dpne.documents",
    "GroupByUser": "beam_dpne.users",
}

__all__ = [
    "Adaptive",
    "BatchDocuments",
    "Contributions",
    "DecideRound",
    "DecodeGrams",
    "DocumentBlock",
    "ExtractGrams",
    "GramSet",
    "GroupByUser",
    "HistogramShard",
    "LengthFacts",
    "LengthPlan",
    "LengthRule",
    "LimitContributions",
    "ListFacts",
    "NoisyThreshold",
    "OneRound",
    "PrivacyPlan",
    "PrivateNgrams",
    "PrivateNgramsResult",
    "PruneInvalid",
    "RoundFacts",
    "RoundResult",
    "RoundRule",
    "RunKey",
    "RunKeyFile",
    "SampleSpurious",
    "SetStore",
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
