"""BayesianCounts: a probability for every n-gram of a public vocabulary, as one pipeline."""

import abc
import dataclasses
import functools
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import apache_beam as beam
import numpy as np
from apache_beam.pvalue import AsIter, AsSingleton, PCollection
from apache_beam.transforms.window import GlobalWindows
from apache_beam.typehints.decorators import IOTypeHints

from beam_dpne.bayesian import counting, log_global, posterior
from beam_dpne.bayesian.counting import (
    GramSums,
    NgramProbabilities,
    NoisyCounts,
    UserGrams,
    probability_table,
)
from beam_dpne.bayesian.plan import BayesianPlan, CountingPlan
from beam_dpne.bayesian.public_counts import PublicCounts
from beam_dpne.documents.batch import BatchDocuments, checked_names
from beam_dpne.documents.group_by_user import GroupByUser
from beam_dpne.documents.key_context import check_run_key, key_context, require_identified
from beam_dpne.documents.tokenizers import Tokenizer, resolve_tokenizer
from beam_dpne.elements import progress
from beam_dpne.elements.batches import UserBatch
from beam_dpne.elements.coders import spill
from beam_dpne.elements.rows import NgramProbability, as_rows
from beam_dpne.elements.side_inputs import SetStore
from beam_dpne.engines import run
from beam_dpne.mechanism import integer_noise
from beam_dpne.mechanism.randomness import RunKey, keyed_bits, normals
from beam_dpne.reading.options import InputDescription, description_of_rows

_KeyedSums = tuple[int, GramSums]
AddUp = Callable[[UserGrams, np.ndarray], None]
# A constant is part of the job's graph, whose size the engines limit.
_LARGEST_CONSTANT = 2**20


class _Released(NamedTuple):
    released: PCollection[NgramProbabilities]
    noisy: PCollection[NoisyCounts]


class BayesianCountsResult(_Released):
    """The outputs of `BayesianCounts`.

    Attributes:
      released: PCollection of one `NgramProbabilities`.
      noisy: PCollection of `NoisyCounts`, which together have every row of the public counts; they are
        as public as `released`, which is computed from them.
    """

    @functools.cached_property
    def rows(self) -> PCollection[NgramProbability]:
        """All n-grams, one `NgramProbability` each, equal to the rows of published files.

        They have a schema, so that Beam's sinks, data frames and SQL take them. The first access adds
        one step to the pipeline.
        """
        return as_rows([self.released], NgramProbability, probability_table)


class Counted(NamedTuple):
    """Users' n-grams and their sums, inside a pipeline; nothing in it is private.

    Attributes:
      grams: PCollection of `UserGrams`, limited.
      sums: PCollection of (number of a range of rows, its `GramSums`), for every range.
      public: the public counts that are used, as a side input.
      run_key: the run key, bound to the plan, the tokenizer and the public counts.
    """

    grams: Any
    sums: Any
    public: AsSingleton
    run_key: RunKey


@dataclasses.dataclass(eq=False, kw_only=True)
class CountingTransform(beam.PTransform, abc.ABC):
    """The fields, checks and first steps of `BayesianCounts` and `PaperBayesianCounts`."""

    plan: Any
    public: PublicCounts
    tokenizer: str | Tokenizer = "words"
    partitions: int = 8
    run_key: RunKey | None = dataclasses.field(default=None, repr=False)
    store: SetStore | None = None
    described: InputDescription | None = None
    user_field: str = "user"
    text_field: str | Sequence[str] = "text"

    def __post_init__(self):
        super().__init__()
        if self.partitions < 1:
            raise ValueError(f"partitions must be at least 1, got partitions={self.partitions}.")
        checked_names(self.user_field, self.text_field)
        if self.public.length != self.plan.length:
            raise ValueError(
                f"public must have grams of length={self.plan.length} words, as the plan says, got "
                f"grams of {self.public.length}."
            )
        check_run_key(self.run_key)
        resolve_tokenizer(self.tokenizer)

    def default_type_hints(self) -> IOTypeHints:
        """Returns no hints: Beam would log a warning about a result that is a named tuple."""
        return IOTypeHints.empty()

    @property
    def input_description(self) -> InputDescription:
        """How records became documents, as far as it is known; `PublishRelease` reads it."""
        return self.described or description_of_rows(self.user_field, self.text_field)

    @abc.abstractmethod
    def summing(self, run_key: RunKey) -> tuple[int, AddUp]:
        """Returns how many columns the sums have, and the function that adds one batch of users."""

    def counted(self, documents: PCollection) -> Counted:
        """Groups documents by user, finds and limits the public n-grams, and adds them up."""
        run.check_options(documents.pipeline)
        kept = self.public.most_frequent(self.plan.vocabulary_size)
        run_key = self._bound_key(kept)
        public = AsSingleton(documents.pipeline | "Public" >> self._constant(kept))
        users = (
            documents
            | "BatchDocuments"
            >> BatchDocuments(user_field=self.user_field, text_field=self.text_field)
            | "GroupByUser"
            >> GroupByUser(
                tokenizer=self.tokenizer,
                partitions=self.partitions,
                max_tokens_per_user=self.plan.max_tokens_per_user,
                run_key=run_key,
            )
        )
        find = beam.FlatMap(_find_and_limit, public, plan=self.plan, run_key=run_key)
        grams = users | "FindGrams" >> find.with_output_types(UserGrams)
        sums = self._sums(grams, public, *self.summing(run_key))
        return Counted(grams, sums, public, run_key)

    @property
    def ranges(self) -> int:
        """How many ranges of rows the sums are cut into."""
        return -(-self.partitions // 4)

    def _bound_key(self, kept: PublicCounts) -> RunKey:
        if self.run_key is not None:
            require_identified(self.tokenizer)
        rows = description_of_rows(self.user_field, self.text_field)
        context = run_context(self.plan, self.tokenizer, kept, self.described, rows)
        return (self.run_key or RunKey.generate()).bound_to(context)

    def _constant(self, kept: PublicCounts) -> beam.PTransform:
        store = self.store and dataclasses.replace(
            self.store, limit=min(self.store.limit, _LARGEST_CONSTANT)
        )
        return beam.Create([spill(kept, store)])

    def _sums(self, grams: Any, public: AsSingleton, width: int, add: AddUp) -> Any:
        """From users' grams to sums by range of rows; a range of grams that nobody has is there too."""
        every = grams.pipeline | "Ranges" >> beam.Create(range(self.ranges))
        nothing = beam.Map(_no_sums, width=width).with_output_types(_KeyedSums)
        bundle = beam.ParDo(_SumBundle(width, self.ranges, add), public)
        parts = (
            grams | "AddUp" >> bundle.with_output_types(_KeyedSums),
            every | "Nothing" >> nothing,
        )
        return parts | "Sums" >> beam.Flatten() | "ByRange" >> beam.GroupByKey()


@dataclasses.dataclass(eq=False, kw_only=True)
class BayesianCounts(CountingTransform):
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
      partitions: hash partitions of users; the sums, which are smaller, get a quarter of that.
      run_key: secret of the run; by default a fresh one each time the transform is applied. It is bound
        to everything that decides the mechanism (`key_context`) and to the public counts, so the same
        key under other parameters, another tokenizer or another version draws other noise.
      store: where public counts go that are too large for the job's graph; with None they stay in it.
      described: how records became documents, if they were read from files; the key is bound to it. By
        default the elements are rows with these fields.
      user_field: name of the field that holds the user: it defines whom the guarantee protects.
      text_field: name of the field that holds the text, or several names, whose texts are documents
        each.

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

    References: Ramadan, Withers and Orr, "N-grams Bayesian Differential Privacy", for the public prior
      and for the logarithms of the mode "log_global"; the mode "counts" and both bounds of the
      sensitivity are not from the paper, whose own mechanism is `PaperBayesianCounts`.
    """

    plan: BayesianPlan

    def expand(self, documents: PCollection) -> BayesianCountsResult:
        """Adds noise to the sums over users, and computes probabilities from the noisy values."""
        counted = self.counted(documents)
        decide = beam.FlatMap(
            _noisy_range,
            counted.public,
            plan=self.plan,
            run_key=counted.run_key,
            ranges=self.ranges,
        )
        noisy = counted.sums | "AddNoise" >> decide.with_output_types(NoisyCounts)
        once = documents.pipeline | "Once" >> beam.Create([None])
        release = beam.Map(_release, AsIter(noisy), counted.public, plan=self.plan)
        released = once | "Release" >> release.with_output_types(NgramProbabilities)
        return BayesianCountsResult(released, noisy)

    def summing(self, run_key: RunKey) -> tuple[int, AddUp]:
        """Returns the columns that the mode needs, and `counting.add_up`."""
        return _width(self.plan), counting.add_up


def run_context(
    plan: CountingPlan,
    tokenizer: str | Tokenizer,
    public: PublicCounts,
    described: InputDescription | None = None,
    rows: InputDescription | None = None,
) -> str:
    """Returns what the key of a run of `BayesianCounts` is bound to; see `key_context`.

    Args:
      plan: of the run.
      tokenizer: its name, or the function.
      public: the counts that are used, no more than plan.vocabulary_size.
      described: how records became documents.
      rows: the fields by which the elements of the pipeline are read.
    """
    digest = public.fingerprint()
    return key_context(
        "bayesian", plan, tokenizer=tokenizer, described=described, rows=rows, public=digest
    )


def limited_grams(grams: UserGrams, plan: CountingPlan, run_key: RunKey) -> UserGrams:
    """Returns what each user adds under a plan."""
    return counting.limit_grams(
        grams,
        max_contributions=plan.contribution_limit,
        max_count=plan.max_count,
        sub_key=run_key.sub_key("gram subset", plan.length),
    )


def noisy_values(
    table: np.ndarray, start: int, *, plan: BayesianPlan, run_key: RunKey
) -> np.ndarray:
    """Returns the values of successive rows with their noise: the mechanism.

    The noise is keyed by the row, and the run key is bound to the public counts: each gram has its own.

    Args:
      table: (m, width) int64, whole sums over users; see `GramSums`.
      start: the first row.
      plan: of the run.
      run_key: bound, see `run_context`.

    Returns:
      (m,) int64, in steps of plan.grid.
    """
    values = table[:, 0]
    if plan.mode == "log_global":
        values = log_global.grid_values(
            table[:, 0], table[:, 1], max_count=plan.max_count, decay=plan.decay_rate
        )
    rows = np.arange(start, start + len(table))
    draws = normals(keyed_bits(run_key.sub_key("gram noise", plan.length), rows, 0))
    return values + integer_noise.integer_normals(draws, plan.noise_steps)


def probabilities_of(values: np.ndarray, public: PublicCounts, plan: BayesianPlan) -> np.ndarray:
    """Returns each gram's probability from the noisy values: post-processing.

    Args:
      values: (V,) int64, in steps of plan.grid.
      public: the counts that are used.
      plan: of the run.
    """
    if plan.mode == "counts":
        return posterior.probabilities(values, public.counts, public.grams, plan.noise_stddev)
    logs = plan.private_weight * plan.grid * values
    return log_global.softmax(logs + (1 - plan.private_weight) * np.log1p(public.counts))


def result_of(
    probabilities: np.ndarray, public: PublicCounts, plan: CountingPlan, facts: dict[str, Any]
) -> NgramProbabilities:
    """Returns probabilities with their n-grams, and the numbers of the ledger.

    Args:
      probabilities: (V,) float64.
      public: the counts that are used.
      plan: of the run.
      facts: JSON types.
    """
    used = {"ngrams": len(public), "length": public.length, "sha256": public.fingerprint()}
    return NgramProbabilities(
        ngrams=public.texts(),
        probabilities=probabilities,
        guarantee=plan.guarantee,
        facts=facts | {"public": used},
    )


class _SumBundle(beam.DoFn):
    """Adds up the users of a bundle, and sends the sums at its end."""

    def __init__(self, width: int, ranges: int, add: AddUp):
        self._width = width
        self._ranges = ranges
        self._add = add

    def start_bundle(self):
        self._table: np.ndarray | None = None

    def process(self, element: UserGrams, public: PublicCounts):
        if self._table is None:
            self._table = np.zeros((len(public), self._width), dtype=np.int64)
        self._add(element, self._table)

    def finish_bundle(self) -> Any:
        if self._table is not None:
            for piece in counting.cut_by_range(self._table, self._ranges):
                yield GlobalWindows.windowed_value(piece)
        self._table = None


def _width(plan: BayesianPlan) -> int:
    return 1 if plan.mode == "counts" else 2


def _no_sums(number: int, *, width: int) -> _KeyedSums:
    return number, GramSums(rows=np.zeros(0, np.int32), width=width, sums=np.zeros(0, np.int64))


# Beam checks arguments against annotations, which it cannot do for a protocol: hence `Any`.
def _find_and_limit(
    batch: UserBatch, public: PublicCounts, *, plan: Any, run_key: RunKey
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
    start, stop = counting.range_starts(len(public), ranges)[number : number + 2].tolist()
    table = counting.merge_sums(parts, start, stop, _width(plan))
    yield from counting.cut_values(start, noisy_values(table, start, plan=plan, run_key=run_key))


def _release(
    _: None, noisy: Iterable[NoisyCounts], public: PublicCounts, *, plan: BayesianPlan
) -> NgramProbabilities:
    progress.enter(progress.RELEASED, None)
    values = counting.whole_values(noisy, len(public))
    return result_of(probabilities_of(values, public, plan), public, plan, plan.facts())
