"""BayesianCounts, the probabilities of public n-grams as one pipeline."""

import dataclasses
import functools
from collections.abc import Iterable
from typing import NamedTuple

import apache_beam as beam
from apache_beam.pvalue import AsIter, AsSingleton, PCollection

from beam_dpne.bayesian.grams import NgramProbabilities, probabilities_of, sums_of_users
from beam_dpne.bayesian.plan import ProbabilitiesPlan
from beam_dpne.bayesian.run import PROBABILITIES, BayesianRun
from beam_dpne.documents.steps import DocumentsTransform, create_public
from beam_dpne.elements import progress
from beam_dpne.elements.batches import RowSums, UserBatch
from beam_dpne.elements.bundles import apply, sum_rows
from beam_dpne.elements.coders import register_batches
from beam_dpne.elements.rows import NgramProbability
from beam_dpne.lists.public_counts import PublicCounts
from beam_dpne.mechanism.randomness import RunKey
from beam_dpne.release.ledger import Run
from beam_dpne.release.steps import Result

register_batches(PublicCounts, NgramProbabilities)


class _Released(NamedTuple):
    released: PCollection[NgramProbabilities]
    run: Run


class BayesianCountsResult(Result[NgramProbability], _Released):
    """The outputs of `BayesianCounts`, which `WriteRelease` takes; `rows` are `NgramProbability`.

    Attributes:
      released: PCollection of one `NgramProbabilities`.
      run: the public facts of the run, for the ledger.
    """

    form = PROBABILITIES


@dataclasses.dataclass(eq=False, kw_only=True)
class BayesianCounts(BayesianRun, DocumentsTransform):
    """Estimates a probability for every n-gram of a public vocabulary from users' texts.

    Input: documents as `BatchDocuments` takes them: rows with field names (NamedTuple, `beam.Row`,
    dict), `pyarrow.RecordBatch`, or plain tuples of (user, text); bounded and in the global window.

    Output: `BayesianCountsResult`.

    Privacy: `released`, noisy counts included, is user-level (plan.epsilon, plan.delta)-DP when one
    user with all documents is added or removed, for a run key that is secret and used on one input
    only. Every n-gram of the vocabulary gets noise, whether or not anybody has it.

    Cost: one shuffle of the corpus, and one of partial sums. One worker holds a number for each n-gram
    of the vocabulary.

    Attributes:
      plan: the parameters of the run.
      public: the public counts, which must not be made from the private data; the most frequent
        plan.vocabulary_size of them are used, without those that `TextRules` leave out.
      tokenizer: "words", "whitespace", "tokens", "package.module:function", or a function; the words
        of `public` are such tokens.
      partitions, described, user_field, text_field: as in `PrivateNgrams`.
      run_key: as there; it is bound to the public counts, too.
      participation: who may take part, if the release is of a series; the command line sets it.
      store: where public counts go that are too large for the job's graph; with None they stay in it.

    Raises:
      ValueError: if partitions < 1, public has grams of another length, on an unknown tokenizer, or if
        `BatchDocuments` refuses the fields or the input.

    Example:
      >>> from apache_beam.runners.portability.fn_api_runner import FnApiRunner
      >>> from beam_dpne import BayesianCounts, ProbabilitiesPlan, PublicCounts
      >>> public = PublicCounts.of([("good", "morning"), ("good", "night")], [1, 1])
      >>> plan = ProbabilitiesPlan(epsilon=10, delta=1e-4, length=2, max_contributions=1)
      >>> with beam.Pipeline(runner=FnApiRunner()) as pipeline:
      ...     documents = pipeline | beam.Create([(f"u{i}", "Good morning") for i in range(9999)])
      ...     result = documents | BayesianCounts(plan=plan, public=public)
      ...     _ = result.rows | beam.Map(lambda row: print(row.ngram, round(row.probability, 1)))
      good morning 1.0
      good night 0.0

    References: Ramadan, Withers and Orr, "N-grams Bayesian Differential Privacy", has the public prior.
      The mechanism, noise on counts, is not from the paper, whose own is not private.
    """

    def expand(self, documents: PCollection) -> BayesianCountsResult:
        """Adds noise to the sums over users, and computes probabilities from the noisy values."""
        keys = self.run_keys()
        users = self.grouped_by_user(documents, keys.bound)
        listed = documents.pipeline | "Public" >> create_public(self.used_counts, self.store)
        public = AsSingleton(listed)
        find = functools.partial(_sums_of_users, plan=self.plan, run_key=keys.bound)
        sums = AsIter(sum_rows(users, find, public))
        once = documents.pipeline | "Once" >> beam.Create([None])
        release = beam.Map(_release, sums, public, plan=self.plan, run_key=keys.bound)
        released = apply(once, "Release", release, NgramProbabilities)
        return BayesianCountsResult(released, Run.of(self, keys))


def _sums_of_users(
    batch: UserBatch, public: PublicCounts, *, plan: ProbabilitiesPlan, run_key: RunKey
) -> RowSums:
    return sums_of_users(batch, public, plan, run_key)


def _release(
    _: None,
    sums: Iterable[RowSums],
    public: PublicCounts,
    *,
    plan: ProbabilitiesPlan,
    run_key: RunKey,
) -> NgramProbabilities:
    progress.enter("decide", None)
    found = probabilities_of(sums, public, plan, run_key)
    progress.enter(progress.RELEASED, None)
    return found
