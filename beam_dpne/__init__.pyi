"""The public names, by topic and home; `beam_dpne/__init__.py` reads this file."""

# Transforms of whole programs, their plans and results.
from beam_dpne.bayesian.plan import BayesianPlan as BayesianPlan
from beam_dpne.bayesian.public_counts import PublicCounts as PublicCounts
from beam_dpne.bayesian.steps import BayesianCounts as BayesianCounts
from beam_dpne.bayesian.steps import BayesianCountsResult as BayesianCountsResult
from beam_dpne.ngrams.plan import PrivacyPlan as PrivacyPlan
from beam_dpne.ngrams.steps import PrivateNgrams as PrivateNgrams
from beam_dpne.ngrams.steps import PrivateNgramsResult as PrivateNgramsResult
from beam_dpne.set_union.plan import SetUnionPlan as SetUnionPlan
from beam_dpne.set_union.steps import PrivateSetUnion as PrivateSetUnion
from beam_dpne.set_union.steps import PrivateSetUnionResult as PrivateSetUnionResult

# isort: split
# Rows of a release, the text of an n-gram, and what a ledger says of a run.
from beam_dpne.elements.rows import CountedGroupedNgram as CountedGroupedNgram
from beam_dpne.elements.rows import CountedItem as CountedItem
from beam_dpne.elements.rows import CountedNgram as CountedNgram
from beam_dpne.elements.rows import GroupedNgram as GroupedNgram
from beam_dpne.elements.rows import NgramProbability as NgramProbability
from beam_dpne.elements.rows import ReleasedItem as ReleasedItem
from beam_dpne.elements.rows import ReleasedNgram as ReleasedNgram
from beam_dpne.elements.rows import join_tokens as join_tokens
from beam_dpne.elements.rows import split_ngram as split_ngram

# isort: split
# Users' texts from files.
from beam_dpne.reading.steps import ReadDocuments as ReadDocuments

# isort: split
# What a tokenizer leaves out of texts.
from beam_dpne.documents.masks import TextRules as TextRules

# isort: split
# Releases as files.
from beam_dpne.release.reading import Release as Release
from beam_dpne.release.reading import read_release as read_release
from beam_dpne.release.schema import ReleaseNotes as ReleaseNotes
from beam_dpne.release.steps import WriteRelease as WriteRelease

# isort: split
# Steps of a run, for pipelines of one's own.
from beam_dpne.documents.steps import BatchDocuments as BatchDocuments
from beam_dpne.documents.steps import GroupByUser as GroupByUser
from beam_dpne.ngrams.range_steps import DecideRound as DecideRound
from beam_dpne.ngrams.range_steps import NoisyThreshold as NoisyThreshold
from beam_dpne.ngrams.range_steps import RoundResult as RoundResult
from beam_dpne.ngrams.range_steps import SampleSpurious as SampleSpurious
from beam_dpne.ngrams.range_steps import WeightedHistogram as WeightedHistogram
from beam_dpne.ngrams.user_steps import CountUsers as CountUsers
from beam_dpne.ngrams.user_steps import ExtractGrams as ExtractGrams
from beam_dpne.ngrams.user_steps import LimitContributions as LimitContributions
from beam_dpne.ngrams.user_steps import PruneInvalid as PruneInvalid
from beam_dpne.ngrams.user_steps import SpendBudgets as SpendBudgets
from beam_dpne.ngrams.user_steps import SpendResult as SpendResult
from beam_dpne.set_union.steps import ReleaseItems as ReleaseItems

# isort: split
# What travels between the steps.
from beam_dpne.bayesian.grams import NgramProbabilities as NgramProbabilities
from beam_dpne.elements.batches import DocumentBlock as DocumentBlock
from beam_dpne.elements.batches import UserBatch as UserBatch
from beam_dpne.ngrams.elements import Contributions as Contributions
from beam_dpne.ngrams.elements import GramSet as GramSet
from beam_dpne.ngrams.elements import HistogramShard as HistogramShard
from beam_dpne.ngrams.elements import PresentGrams as PresentGrams
from beam_dpne.set_union.elements import ItemSet as ItemSet

# isort: split
# Strategies, rules, keys and storage.
from beam_dpne.documents.run_keys import RunKeyFile as RunKeyFile
from beam_dpne.elements.encoding import SetStore as SetStore
from beam_dpne.mechanism.randomness import RunKey as RunKey
from beam_dpne.mechanism.rules import LengthRule as LengthRule
from beam_dpne.mechanism.rules import RoundRule as RoundRule
from beam_dpne.mechanism.rules import length_rule as length_rule
from beam_dpne.ngrams.known import KnownNgrams as KnownNgrams
from beam_dpne.ngrams.length_rules import rule_for as rule_for
from beam_dpne.ngrams.plan import LengthPlan as LengthPlan

__version__: str
