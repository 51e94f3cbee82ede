"""BayesianCounts, which gives every n-gram of a public vocabulary a probability, and its ledger."""

import dataclasses
import functools
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import apache_beam as beam
from apache_beam.pvalue import AsIter, AsSingleton, PCollection

from beam_dpne.bayesian import counting, posterior
from beam_dpne.bayesian.counting import NgramProbabilities, NoisyCounts, probability_table
from beam_dpne.bayesian.plan import BayesianPlan
from beam_dpne.bayesian.public_counts import PublicCounts
from beam_dpne.documents.transform import DocumentsTransform, create_public
from beam_dpne.elements import progress
from beam_dpne.elements.batches import RowSums, UserBatch, apply, sum_rows, table_of_sums
from beam_dpne.elements.coders import SetStore
from beam_dpne.elements.rows import NgramProbability
from beam_dpne.mechanism.randomness import RunKey
from beam_dpne.release.ledger import Contents, Run
from beam_dpne.release.result import Form, Result
from beam_dpne.release.schema import ProbabilityMechanism

_MEANING = (
    "Each user adds to at most max_contributions distinct n-grams of the public vocabulary, and at "
    "most max_count to each. Every n-gram of the vocabulary gets Gaussian noise, rounded to whole "
    "counts, whether or not any user has it. Probabilities are computed from noisy and public counts "
    "alone."
)
_PUBLIC = (
    "The public counts are not protected: every n-gram in them gets a probability. If they were made "
    "from the private data, the release reveals whatever they reveal of those data. If they are a "
    "private release of the same data, both releases count: beam-dpne account computes their total "
    "epsilon and delta from both ledgers, and no total is above the sums."
)


def bayesian_contents(plan: BayesianPlan, released: Sequence[NgramProbabilities]) -> Contents:
    """Returns the contents of the ledger of n-gram probabilities, which are one element."""
    (found,) = released
    mechanism = ProbabilityMechanism(
        meaning=_MEANING,
        max_count=plan.max_count,
        max_contributions=plan.contribution_limit,
        public=found.public,
        sensitivity=plan.sensitivity,
        noise_stddev=plan.noise_stddev,
        released=len(found),
    )
    columns = {
        "ngram": "the words, joined by one blank; see beam_dpne.join_tokens",
        "probability": "a number with nine significant digits; all probabilities sum to 1 up to that "
        "rounding",
    }
    return Contents(found=mechanism, columns=columns, not_protected=[_PUBLIC])


class _Released(NamedTuple):
    released: PCollection[NgramProbabilities]
    noisy: PCollection[NoisyCounts]
    run: Run


class BayesianCountsResult(Result[NgramProbability], _Released):
    """The outputs of `BayesianCounts`, which `WriteRelease` takes; `rows` are `NgramProbability`.

    Attributes:
      released: PCollection of one `NgramProbabilities`.
      noisy: PCollection of one `NoisyCounts`, as public as `released`, which is computed from them.
      run: the public facts of the run, for the ledger.
    """

    form = Form(lambda _: NgramProbability, probability_table, bayesian_contents)


@dataclasses.dataclass(eq=False, kw_only=True)
class BayesianCounts(DocumentsTransform):
    """Estimates a probability for every n-gram of a public vocabulary from users' texts.

    Input: documents as `BatchDocuments` takes them: rows with field names (NamedTuple, `beam.Row`,
    dict), `pyarrow.RecordBatch`, or plain tuples of (user, text); bounded and in the global window.

    Output: `BayesianCountsResult`.

    Privacy: `released` and `noisy` together are user-level (plan.epsilon, plan.delta)-DP when one user
    with all documents is added or removed, for a run key that is secret and used on one input only.
    Every n-gram of the vocabulary gets noise, whether or not anybody has it.

    Cost: one shuffle of the corpus, and one of partial sums. One worker holds a number for each n-gram
    of the vocabulary.

    Attributes:
      plan: the parameters of the run.
      public: the public counts, which must not be made from the private data; the most frequent
        plan.vocabulary_size of them are used.
      tokenizer: "words", "whitespace", "tokens", "package.module:function", or a function; the words
        of `public` are such tokens.
      partitions, described, user_field, text_field: as in `PrivateNgrams`.
      run_key: as there; it is bound to the public counts, too.
      store: where public counts go that are too large for the job's graph; with None they stay in it.
      workers: the number of threads in which a worker tokenizes; None means one.

    Raises:
      ValueError: if partitions < 1, public has grams of another length, on an unknown tokenizer, or if
        `BatchDocuments` refuses the fields or the input.

    Example:
      >>> from apache_beam.runners.portability.fn_api_runner import FnApiRunner
      >>> from beam_dpne import BayesianCounts, BayesianPlan, PublicCounts
      >>> public = PublicCounts.of([("good", "morning"), ("good", "night")], [1, 1])
      >>> plan = BayesianPlan(epsilon=10, delta=1e-4, length=2, max_contributions=1)
      >>> with beam.Pipeline(runner=FnApiRunner()) as pipeline:
      ...     documents = pipeline | beam.Create([(f"u{i}", "Good morning") for i in range(9999)])
      ...     result = documents | BayesianCounts(plan=plan, public=public)
      ...     _ = result.rows | beam.Map(lambda row: print(row.ngram, round(row.probability, 1)))
      good morning 1.0
      good night 0.0

    References: Ramadan, Withers and Orr, "N-grams Bayesian Differential Privacy", has the public prior.
      The mechanism, noise on counts, is not from the paper, whose own is not private.
    """

    plan: BayesianPlan
    plan_type = BayesianPlan
    public: PublicCounts
    store: SetStore | None = None

    def __post_init__(self):
        super().__post_init__()
        if not isinstance(self.public, PublicCounts):
            raise TypeError(
                f"public must be PublicCounts, got {type(self.public).__name__}. "
                "PublicCounts.of makes them of public n-grams and their counts."
            )
        if self.public.length != self.plan.length:
            raise ValueError(
                f"public must have grams of length={self.plan.length} words, as the plan says, got "
                f"grams of {self.public.length}."
            )

    def expand(self, documents: PCollection) -> BayesianCountsResult:
        """Adds noise to the sums over users, and computes probabilities from the noisy values."""
        kept = self.public.most_frequent(self.plan.vocabulary_size)
        run_key = self.bound_key(kept.fingerprint())
        users = self.grouped_by_user(documents, run_key, self.plan.max_tokens_per_user)
        public = AsSingleton(documents.pipeline | "Public" >> create_public(kept, self.store))
        find = functools.partial(_sums_of_users, plan=self.plan, run_key=run_key)
        sums = AsIter(sum_rows(users, find, public))
        once = documents.pipeline | "Once" >> beam.Create([None])
        add_noise = beam.Map(_noisy, sums, public, plan=self.plan, run_key=run_key)
        noisy = apply(once, "AddNoise", add_noise, NoisyCounts)
        released = apply(
            noisy, "Release", beam.Map(_release, public, plan=self.plan), NgramProbabilities
        )
        return BayesianCountsResult(released, noisy, Run.of(self))


def _sums_of_users(batch: UserBatch, public: PublicCounts, **how: Any) -> RowSums:
    progress.enter("users", None)
    grams = counting.limit_grams(counting.find_grams(batch, public), **how)
    return RowSums(rows=grams.rows, sums=grams.counts)


def _noisy(
    _: None,
    sums: Iterable[RowSums],
    public: PublicCounts,
    *,
    plan: BayesianPlan,
    run_key: RunKey,
) -> NoisyCounts:
    progress.enter("decide", None)
    table = table_of_sums(sums, len(public))
    return NoisyCounts(values=counting.noisy_values(table, plan, run_key))


def _release(noisy: NoisyCounts, public: PublicCounts, *, plan: BayesianPlan) -> NgramProbabilities:
    progress.enter(progress.RELEASED, None)
    return NgramProbabilities(
        ngrams=public.texts(),
        probabilities=posterior.probabilities(
            noisy.values, public.counts, public.grams, plan.noise_stddev
        ),
        public={"ngrams": len(public), "length": public.length, "sha256": public.fingerprint()},
    )
