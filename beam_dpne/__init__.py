"""Differentially private n-grams, vocabularies and phrase statistics on Apache Beam."""

from beam_dpne.batches import (
    Contributions,
    DocumentBlock,
    GramSet,
    HistogramShard,
    SpuriousGrams,
    UserBatch,
)
from beam_dpne.contributions import LimitContributions
from beam_dpne.decoding import DecodeGrams, join_tokens, split_ngram
from beam_dpne.grams import ExtractGrams, PruneInvalid
from beam_dpne.histogram import WeightedHistogram
from beam_dpne.mechanism import LengthRule, length_rule
from beam_dpne.ngrams import LengthFacts, PrivateNgrams, PrivateNgramsResult
from beam_dpne.plan import LengthPlan, PrivacyPlan
from beam_dpne.randomness import RunKey
from beam_dpne.selection import NoisyThreshold, SampleSpurious
from beam_dpne.users import BatchDocuments, GroupByUser
from beam_dpne.version import __version__

__all__ = [
    "BatchDocuments",
    "Contributions",
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
    "NoisyThreshold",
    "PrivacyPlan",
    "PrivateNgrams",
    "PrivateNgramsResult",
    "PruneInvalid",
    "RunKey",
    "SampleSpurious",
    "SpuriousGrams",
    "UserBatch",
    "WeightedHistogram",
    "__version__",
    "join_tokens",
    "length_rule",
    "split_ngram",
]
