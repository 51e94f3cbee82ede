"""The steps of the programs, and what travels between them, for pipelines of one's own.

They are provisional: a later version may change them, where the names of `beam_dpne` stay. Programs as
a whole are `PrivateNgrams`, `PrivateSetUnion` and `BayesianCounts` in `beam_dpne`.
"""

from beam_dpne.bayesian.grams import NgramProbabilities
from beam_dpne.documents.steps import BatchDocuments, GroupByUser
from beam_dpne.elements.batches import DocumentBlock, UserBatch
from beam_dpne.elements.encoding import SetStore
from beam_dpne.mechanism.rules import LengthRule, RoundRule, length_rule
from beam_dpne.ngrams.elements import (
    Contributions,
    GramSet,
    HistogramShard,
    NextCandidates,
    PresentGrams,
)
from beam_dpne.ngrams.length_rules import rule_for
from beam_dpne.ngrams.plan import LengthPlan
from beam_dpne.ngrams.range_steps import (
    DecideRound,
    NoisyThreshold,
    RoundResult,
    SampleSpurious,
    WeightedHistogram,
)
from beam_dpne.ngrams.user_steps import (
    CountUsers,
    ExtractGrams,
    LimitContributions,
    PruneInvalid,
    SpendBudgets,
    SpendResult,
)
from beam_dpne.set_union.elements import ItemSet
from beam_dpne.set_union.steps import ReleaseItems

__all__ = [
    "BatchDocuments",
    "Contributions",
    "CountUsers",
    "DecideRound",
    "DocumentBlock",
    "ExtractGrams",
    "GramSet",
    "GroupByUser",
    "HistogramShard",
    "ItemSet",
    "LengthPlan",
    "LengthRule",
    "LimitContributions",
    "NextCandidates",
    "NgramProbabilities",
    "NoisyThreshold",
    "PresentGrams",
    "PruneInvalid",
    "ReleaseItems",
    "RoundResult",
    "RoundRule",
    "SampleSpurious",
    "SetStore",
    "SpendBudgets",
    "SpendResult",
    "UserBatch",
    "WeightedHistogram",
    "length_rule",
    "rule_for",
]
