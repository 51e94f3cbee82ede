"""The public names, by topic and home; `beam_dpne/__init__.py` reads this file."""

# Calls: releases of a frame or of files, a forecast, an evaluation, an account.
from beam_dpne.api.calls import account as account
from beam_dpne.api.calls import check as check
from beam_dpne.api.calls import count_phrases as count_phrases
from beam_dpne.api.calls import estimate_probabilities as estimate_probabilities
from beam_dpne.api.calls import evaluate as evaluate
from beam_dpne.api.calls import plan as plan
from beam_dpne.api.calls import release_items as release_items
from beam_dpne.api.calls import release_ngrams as release_ngrams

# isort: split
# Transforms of whole programs, their plans and results.
from beam_dpne.bayesian.plan import ProbabilitiesPlan as ProbabilitiesPlan
from beam_dpne.bayesian.steps import BayesianCounts as BayesianCounts
from beam_dpne.bayesian.steps import BayesianCountsResult as BayesianCountsResult
from beam_dpne.lists.phrases import PhraseList as PhraseList
from beam_dpne.lists.public_counts import PublicCounts as PublicCounts
from beam_dpne.ngrams.plan import NgramsPlan as NgramsPlan
from beam_dpne.ngrams.steps import PrivateNgrams as PrivateNgrams
from beam_dpne.ngrams.steps import PrivateNgramsResult as PrivateNgramsResult
from beam_dpne.phrase_counts.plan import PhraseCountsPlan as PhraseCountsPlan
from beam_dpne.phrase_counts.steps import CountPhrases as CountPhrases
from beam_dpne.phrase_counts.steps import CountPhrasesResult as CountPhrasesResult
from beam_dpne.set_union.plan import SetUnionPlan as SetUnionPlan
from beam_dpne.set_union.steps import PrivateSetUnion as PrivateSetUnion
from beam_dpne.set_union.steps import PrivateSetUnionResult as PrivateSetUnionResult

# isort: split
# Rows of a release, the text of an n-gram, and what a ledger says of a run.
from beam_dpne.elements.rows import CountedGroupedNgram as CountedGroupedNgram
from beam_dpne.elements.rows import CountedItem as CountedItem
from beam_dpne.elements.rows import CountedNgram as CountedNgram
from beam_dpne.elements.rows import GroupedNgram as GroupedNgram
from beam_dpne.elements.rows import GroupedPhraseCount as GroupedPhraseCount
from beam_dpne.elements.rows import NgramProbability as NgramProbability
from beam_dpne.elements.rows import PhraseCount as PhraseCount
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
from beam_dpne.release.schema import ReleaseNotes as ReleaseNotes
from beam_dpne.release.steps import WriteRelease as WriteRelease
from beam_dpne.release.whole import Release as Release
from beam_dpne.release.whole import read_release as read_release

# isort: split
# Steps of a run; `beam_dpne.steps` has all of them.
from beam_dpne.ngrams.range_steps import NoisyThreshold as NoisyThreshold
from beam_dpne.ngrams.range_steps import SampleSpurious as SampleSpurious
from beam_dpne.ngrams.range_steps import WeightedHistogram as WeightedHistogram
from beam_dpne.ngrams.user_steps import ExtractGrams as ExtractGrams
from beam_dpne.ngrams.user_steps import LimitContributions as LimitContributions
from beam_dpne.ngrams.user_steps import PruneInvalid as PruneInvalid

# isort: split
# Known n-grams, and keys.
from beam_dpne.documents.run_keys import RunKeyFile as RunKeyFile
from beam_dpne.lists.known import KnownNgrams as KnownNgrams
from beam_dpne.mechanism.randomness import RunKey as RunKey

# The former name of NgramsPlan.
PrivacyPlan = NgramsPlan
__version__: str
