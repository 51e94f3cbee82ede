"""BayesianCounts: a probability for every n-gram of a public vocabulary, as one pipeline."""

import dataclasses
import functools
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import apache_beam as beam
import numpy as np
from apache_beam.pvalue import AsIter, AsSingleton, PCollection

from beam_dpne.bayesian import counting, posterior
from beam_dpne.bayesian.counting import (
    GramSums,
    NgramProbabilities,
    NoisyCounts,
    UserGrams,
    probability_table,
)
from beam_dpne.bayesian.ledger import bayesian_contents
from beam_dpne.bayesian.plan import BayesianPlan
from beam_dpne.bayesian.public_counts import PublicCounts
from beam_dpne.documents.key_context import key_context
from beam_dpne.documents.tokenizers import Tokenizer
from beam_dpne.documents.transform import DocumentsTransform, create_public
from beam_dpne.elements import progress
from beam_dpne.elements.batches import SumBundle, UserBatch
from beam_dpne.elements.coders import SetStore
from beam_dpne.elements.rows import NgramProbability
from beam_dpne.mechanism.randomness import RunKey
from beam_dpne.reading.options import InputDescription
from beam_dpne.release.ledger import Run
from beam_dpne.release.result import Form, Result

_KeyedSums = tuple[int, GramSums]


class _Released(NamedTuple):
    released: PCollection[NgramProbabilities]
    noisy: PCollection[NoisyCounts]
    run: Run


class BayesianCountsResult(Result[NgramProbability], _Released):
    """The outputs of `BayesianCounts`, which `WriteRelease` takes; `rows` are `NgramProbability`.

    Attributes:
      released: PCollection of one `NgramProbabilities`.
      noisy: PCollection of `NoisyCounts`, which together have every row of the public counts. They are
        as public as `released`, which is computed from them.
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
      partitions: the number of hash partitions of users; the sums, which are smaller, have a quarter as
        many.
      run_key: the secret of the run; by default a fresh one each time the transform is applied. It is
        bound to everything that decides the mechanism (`key_context`) and to the public counts, so the
        same key under other parameters, another tokenizer or another version draws other noise.
      store: where public counts go that are too large for the job's graph; with None they stay in it.
      described: how records became documents, if they were read from files; the key is bound to it. By
        default the elements are rows with these fields.
      user_field: the name of the field with the user, which defines whom the guarantee protects.
      text_field: the name of the field with the text, or several names, of which each is a document.
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
        context = run_context(self.plan, self.tokenizer, kept, self.described, self.row_description)
        run_key = self.bound_key(context)
        users = self.grouped_by_user(documents, run_key, self.plan.max_tokens_per_user)
        public = AsSingleton(documents.pipeline | "Public" >> create_public(kept, self.store))
        find = beam.FlatMap(_find_and_limit, public, plan=self.plan, run_key=run_key)
        grams = users | "FindGrams" >> find.with_output_types(UserGrams)
        decide = beam.FlatMap(
            _noisy_range, public, plan=self.plan, run_key=run_key, ranges=self.histogram_ranges
        )
        sums = self._sums(grams, len(kept))
        noisy = sums | "AddNoise" >> decide.with_output_types(NoisyCounts)
        once = documents.pipeline | "Once" >> beam.Create([None])
        release = beam.Map(_release, AsIter(noisy), public, plan=self.plan)
        released = once | "Release" >> release.with_output_types(NgramProbabilities)
        return BayesianCountsResult(released, noisy, Run.of(self))

    def _sums(self, grams: Any, size: int) -> Any:
        """Turns users' grams into sums by range of rows, also for ranges of grams that nobody has."""
        sum_bundle = SumBundle(
            sum_batch=_not_summed_yet,
            merge=functools.partial(_add_batches, size=size),
            cut=functools.partial(counting.cut_by_range, ranges=self.histogram_ranges),
        )
        present = grams | "AddUp" >> beam.ParDo(sum_bundle).with_output_types(_KeyedSums)
        every_range = grams.pipeline | "Ranges" >> beam.Create(range(self.histogram_ranges))
        nothing = every_range | "Nothing" >> beam.Map(_no_sums).with_output_types(_KeyedSums)
        return (present, nothing) | "Sums" >> beam.Flatten() | "ByRange" >> beam.GroupByKey()


def run_context(
    plan: BayesianPlan,
    tokenizer: str | Tokenizer,
    public: PublicCounts,
    described: InputDescription | None = None,
    rows: InputDescription | None = None,
) -> str:
    """Returns the text that the key of a run of `BayesianCounts` is bound to; see `key_context`.

    Args:
      plan: the plan of the run.
      tokenizer: the tokenizer's name, or the function.
      public: the counts that are used, at most plan.vocabulary_size of them.
      described: how records became documents.
      rows: the fields by which the elements of the pipeline are read.
    """
    digest = public.fingerprint()
    return key_context(
        "bayesian", plan, tokenizer=tokenizer, described=described, rows=rows, public=digest
    )


def limited_grams(grams: UserGrams, plan: BayesianPlan, run_key: RunKey) -> UserGrams:
    """Limits the n-grams of each user, and their counts, as the plan says."""
    return counting.limit_grams(
        grams,
        max_contributions=plan.contribution_limit,
        max_count=plan.max_count,
        sub_key=run_key.sub_key("gram subset", plan.length),
    )


def probabilities_of(values: np.ndarray, public: PublicCounts, plan: BayesianPlan) -> np.ndarray:
    """Computes each n-gram's probability from the noisy values, which is post-processing.

    Args:
      values: (V,) int64, noisy counts.
      public: the counts that are used.
      plan: the plan of the run.

    Returns:
      (V,) float64, which sum to 1.
    """
    return posterior.probabilities(values, public.counts, public.grams, plan.noise_stddev)


def result_of(
    probabilities: np.ndarray, public: PublicCounts, plan: BayesianPlan, report: dict[str, Any]
) -> NgramProbabilities:
    """Returns probabilities with their n-grams, and the public numbers for the ledger.

    Args:
      probabilities: (V,) float64.
      public: the counts that are used.
      plan: the plan of the run.
      report: the public numbers of the mechanism, as JSON types.
    """
    used = {"ngrams": len(public), "length": public.length, "sha256": public.fingerprint()}
    return NgramProbabilities(
        ngrams=public.texts(),
        probabilities=probabilities,
        guarantee=plan.guarantee,
        report=report | {"public": used},
    )


def _not_summed_yet(grams: UserGrams) -> UserGrams:
    """Leaves a batch as it is: a table of all rows is filled for many batches at once."""
    return grams


def _add_batches(batches: Iterable[UserGrams], *, size: int) -> np.ndarray:
    """Returns the sums of batches in a table of all rows: (V,) int64."""
    table = np.zeros(size, dtype=np.int64)
    for grams in batches:
        counting.add_up(grams, table)
    return table


def _no_sums(number: int) -> _KeyedSums:
    return number, GramSums(rows=np.zeros(0, np.int32), sums=np.zeros(0, np.int64))


def _find_and_limit(
    batch: UserBatch, public: PublicCounts, *, plan: BayesianPlan, run_key: RunKey
) -> list[UserGrams]:
    progress.enter("users", None)
    grams = limited_grams(counting.find_grams(batch, public), plan, run_key)
    return [grams] if len(grams.users) else []


def _noisy_range(
    keyed: tuple[int, Iterable[GramSums]],
    public: PublicCounts,
    *,
    plan: BayesianPlan,
    run_key: RunKey,
    ranges: int,
) -> Iterator[NoisyCounts]:
    progress.enter("decide", None)
    number, parts = keyed
    # The range has the rows from `start` up to `stop`, of which `table` holds the sums.
    start, stop = counting.range_starts(len(public), ranges)[number : number + 2].tolist()
    table = counting.merge_sums(parts, start, stop)
    yield from counting.cut_values(
        start, counting.noisy_values(table, start, plan=plan, run_key=run_key)
    )


def _release(
    _: None, noisy: Iterable[NoisyCounts], public: PublicCounts, *, plan: BayesianPlan
) -> NgramProbabilities:
    progress.enter(progress.RELEASED, None)
    values = counting.whole_values(noisy, len(public))
    return result_of(probabilities_of(values, public, plan), public, plan, plan.report())
