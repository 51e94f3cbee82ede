"""BayesianCounts: a probability for every n-gram of a public vocabulary, as one pipeline."""

import dataclasses
import functools
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import apache_beam as beam
import numpy as np
from apache_beam.pvalue import AsIter, AsSingleton, PCollection
from apache_beam.transforms.window import GlobalWindows
from apache_beam.typehints.decorators import IOTypeHints

from beam_dpne.bayesian import counting, log_global, paper, posterior
from beam_dpne.bayesian.counting import (
    GramSums,
    NgramProbabilities,
    NoisyCounts,
    UserGrams,
    probability_table,
    unprotected_table,
)
from beam_dpne.bayesian.plan import NO_GUARANTEE, BayesianPlan
from beam_dpne.bayesian.public_counts import PublicCounts
from beam_dpne.documents.batch import BatchDocuments
from beam_dpne.documents.group_by_user import GroupByUser
from beam_dpne.documents.key_context import check_run_key, key_context, require_identified
from beam_dpne.documents.rows import checked_names
from beam_dpne.documents.tokenizers import Tokenizer, resolve_tokenizer
from beam_dpne.elements import progress
from beam_dpne.elements.batches import UserBatch
from beam_dpne.elements.coders import spill
from beam_dpne.elements.rows import NgramProbability, UnprotectedProbability, as_rows
from beam_dpne.elements.side_inputs import SetStore
from beam_dpne.engines import run
from beam_dpne.mechanism import integer_noise
from beam_dpne.mechanism.randomness import RunKey, keyed_bits, normals
from beam_dpne.reading.description import InputDescription, description_of_rows

_KeyedSums = tuple[int, GramSums]
# A constant is part of the job's graph, which engines bound.
_LARGEST_CONSTANT = 2**20


class _Released(NamedTuple):
    released: PCollection[NgramProbabilities]
    noisy: PCollection[NoisyCounts]


class BayesianCountsResult(_Released):
    """What `BayesianCounts` returns.

    Attributes:
      released: PCollection of one `NgramProbabilities`.
      noisy: PCollection of `NoisyCounts`, which together have every row of the public counts; they are
        as public as `released`, which is computed from them. Empty under the paper's modes.
    """

    @functools.cached_property
    def rows(self) -> PCollection[NgramProbability] | PCollection[UnprotectedProbability]:
        """All n-grams, one `NgramProbability` each, equal to the rows of published files.

        They have a schema, so that Beam's sinks, data frames and SQL take them. Asking for them adds
        one step to the pipeline. Under the paper's modes they are `UnprotectedProbability`: each says
        that it has no guarantee.
        """
        return as_rows([self.released], NgramProbability, probability_table)


class UnprotectedCountsResult(BayesianCountsResult):
    """What `BayesianCounts` returns under the paper's modes: nothing in it has a guarantee."""

    @functools.cached_property
    def rows(self) -> PCollection[UnprotectedProbability]:
        """All n-grams, one `UnprotectedProbability` each: each says that it has no guarantee."""
        return as_rows([self.released], UnprotectedProbability, unprotected_table)


@dataclasses.dataclass(eq=False, kw_only=True)
class BayesianCounts(beam.PTransform):
    """Estimates a probability for every n-gram of a public vocabulary from users' texts.

    Input: documents as `BatchDocuments` takes them: rows with field names (NamedTuple, `beam.Row`,
    dict), `pyarrow.RecordBatch`, or plain tuples of (user, text); bounded and in the global window.

    Output: `BayesianCountsResult`.

    Privacy: under the modes "counts" and "log_global", `released` and `noisy` together are user-level
    (plan.epsilon, plan.delta)-DP when one user with all documents is added or removed, for a run key
    that is secret and used on one input only. Every gram of the vocabulary gets noise, whether or not
    anybody has it. Under the paper's modes there is no differential privacy guarantee.

    Cost: one shuffle of the corpus, and one of partial sums; the paper's modes look at every user a
    second time. One worker holds a number for each gram of the vocabulary.

    Attributes:
      plan: the parameters of the run.
      public: the public counts, not made from the private data; the most frequent
        plan.vocabulary_size of them are used.
      tokenizer: "words", "whitespace", "tokens", "package.module:function", or a function; the words
        of `public` are such tokens.
      partitions: hash partitions of users; the sums, which are smaller, get a quarter of that.
      run_key: secret of the run; by default a fresh one each time the transform is applied. It is bound
        to all that decides the mechanism (`key_context`) and to the public counts, so the same key
        under other parameters, another tokenizer or another version draws other noise.
      store: where public counts go that are too large for the job's graph; None: they stay in it.
      described: how records became documents, if they were read from files; part of what the key is
        bound to. By default the elements are rows with these fields.
      user_field: name of the field that holds the user: it defines whom the guarantee protects.
      text_field: name of the field that holds the text, or several names: each text is a document.

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

    References: Ramadan et al., Algorithms 1 and 2 (the paper's modes); the mode "counts" is our own.
    """

    plan: BayesianPlan
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
        """None: Beam would log a warning about a result that is a named tuple."""
        return IOTypeHints.empty()

    def expand(self, documents: PCollection) -> BayesianCountsResult:
        """Groups by user, finds and limits the public grams, and adds them up."""
        run.check_options(documents.pipeline)
        kept = self.public.most_frequent(self.plan.vocabulary_size)
        given = self.run_key or RunKey.generate()
        if self.run_key is not None:
            require_identified(self.tokenizer)
        rows = description_of_rows(self.user_field, self.text_field)
        context = run_context(self.plan, self.tokenizer, kept, self.described, rows)
        run_key = given.bound_to(context)
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
        sums = self._sums(grams, public, run_key)
        if self.plan.is_private:
            return self._add_noise(sums, public, run_key)
        return self._as_the_paper(grams, sums, public, run_key)

    @property
    def input_description(self) -> InputDescription:
        """How records became documents, as far as it is known; `PublishRelease` asks for it."""
        return self.described or description_of_rows(self.user_field, self.text_field)

    def _constant(self, kept: PublicCounts) -> beam.PTransform:
        store = self.store and dataclasses.replace(
            self.store, limit=min(self.store.limit, _LARGEST_CONSTANT)
        )
        return beam.Create([spill(kept, store)])

    def _sums(self, grams: Any, public: AsSingleton, run_key: RunKey) -> Any:
        """From users' grams to sums by range of rows; a range that nobody has is there too."""
        pipeline = grams.pipeline
        every = pipeline | "Ranges" >> beam.Create(range(self._ranges))
        nothing = beam.Map(_no_sums, width=_width(self.plan)).with_output_types(_KeyedSums)
        add = beam.ParDo(_SumBundle(self.plan, run_key, self._ranges), public)
        parts = (
            grams | "AddUp" >> add.with_output_types(_KeyedSums),
            every | "Nothing" >> nothing,
        )
        return parts | "Sums" >> beam.Flatten() | "ByRange" >> beam.GroupByKey()

    def _add_noise(self, sums: Any, public: AsSingleton, run_key: RunKey) -> BayesianCountsResult:
        decide = beam.FlatMap(
            _noisy_range, public, plan=self.plan, run_key=run_key, ranges=self._ranges
        )
        noisy = sums | "AddNoise" >> decide.with_output_types(NoisyCounts)
        once = sums.pipeline | "Once" >> beam.Create([None])
        release = beam.Map(_release, AsIter(noisy), public, plan=self.plan)
        released = once | "Release" >> release.with_output_types(NgramProbabilities)
        return BayesianCountsResult(released, noisy)

    def _as_the_paper(
        self, grams: Any, sums: Any, public: AsSingleton, run_key: RunKey
    ) -> BayesianCountsResult:
        """A second look at every user, for the sensitivity of this database."""
        parts = sums | "Parts" >> beam.FlatMap(lambda keyed: keyed[1]).with_output_types(GramSums)
        look = beam.Map(_paper_norms, AsIter(parts), public, plan=self.plan, run_key=run_key)
        norms = grams | "LookAtUsers" >> look.with_output_types(paper.Norms)
        once = sums.pipeline | "Once" >> beam.Create([None])
        release = beam.Map(
            _paper_release, AsIter(parts), AsIter(norms), public, plan=self.plan, run_key=run_key
        )
        released = once | "Release" >> release.with_output_types(NgramProbabilities)
        nothing = once | "NoCounts" >> beam.FlatMap(lambda _: []).with_output_types(NoisyCounts)
        return UnprotectedCountsResult(released, nothing)

    @property
    def _ranges(self) -> int:
        return -(-self.partitions // 4)


def run_context(
    plan: BayesianPlan,
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


def guarantee_of(plan: BayesianPlan) -> str:
    """Returns in words what a run under a plan guarantees."""
    if not plan.is_private:
        return NO_GUARANTEE
    return f"user-level ({plan.epsilon:g}, {plan.delta:g})-differential privacy"


def limited_grams(grams: UserGrams, plan: BayesianPlan, run_key: RunKey) -> UserGrams:
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
      plan: of a mode with a guarantee.
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
      plan: of a mode with a guarantee.
    """
    if plan.mode == "counts":
        return posterior.probabilities(values, public.counts, public.grams, plan.noise_stddev)
    logs = plan.private_weight * plan.grid * values
    return paper.softmax(logs + (1 - plan.private_weight) * np.log1p(public.counts))


class _SumBundle(beam.DoFn):
    """Adds up the users of a bundle, and sends the sums at its end."""

    def __init__(self, plan: BayesianPlan, run_key: RunKey, ranges: int):
        self._plan = plan
        self._run_key = run_key
        self._ranges = ranges

    def start_bundle(self):
        self._table: np.ndarray | None = None

    def process(self, element: UserGrams, public: PublicCounts):
        if self._table is None:
            self._table = np.zeros((len(public), _width(self._plan)), dtype=np.int64)
        scoring = _is_scoring(element, self._plan, self._run_key)
        counting.add_up(element, scoring, self._table)

    def finish_bundle(self) -> Any:
        if self._table is not None:
            for piece in counting.cut_by_range(self._table, self._ranges):
                yield GlobalWindows.windowed_value(piece)
        self._table = None


def _width(plan: BayesianPlan) -> int:
    if plan.mode == "counts":
        return 1
    return 3 if plan.tune else 2


def _no_sums(number: int, *, width: int) -> _KeyedSums:
    return number, GramSums(rows=np.zeros(0, np.int32), width=width, sums=np.zeros(0, np.int64))


def _is_scoring(grams: UserGrams, plan: BayesianPlan, run_key: RunKey) -> np.ndarray:
    if not plan.tune:
        return np.zeros(len(grams.users), dtype=bool)
    sub_key = run_key.sub_key("tuning users")
    return counting.is_scoring(grams.users, plan.tuning_share_of_users, sub_key)


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
    start, stop = counting.range_starts(len(public), ranges)[number : number + 2].tolist()
    table = counting.merge_sums(parts, start, stop, _width(plan))
    yield from counting.cut_values(start, noisy_values(table, start, plan=plan, run_key=run_key))


def _release(
    _: None, noisy: Iterable[NoisyCounts], public: PublicCounts, *, plan: BayesianPlan
) -> NgramProbabilities:
    progress.enter(progress.RELEASED, None)
    values = counting.whole_values(noisy, len(public))
    return _result(probabilities_of(values, public, plan), public, plan, plan.facts())


def _paper_sums(
    parts: Iterable[GramSums], public: PublicCounts, plan: BayesianPlan
) -> paper.PaperSums:
    return paper.PaperSums(counting.merge_sums(parts, 0, len(public), _width(plan)))


def _paper_norms(
    grams: UserGrams,
    parts: Iterable[GramSums],
    public: PublicCounts,
    *,
    plan: BayesianPlan,
    run_key: RunKey,
) -> paper.Norms:
    scoring = _is_scoring(grams, plan, run_key)
    sums = _paper_sums(parts, public, plan)
    return paper.largest_norms(grams, scoring, sums, public.counts, plan)


def _paper_release(
    _: None,
    parts: Iterable[GramSums],
    norms: Iterable[paper.Norms],
    public: PublicCounts,
    *,
    plan: BayesianPlan,
    run_key: RunKey,
) -> NgramProbabilities:
    progress.enter(progress.RELEASED, None)
    sums = _paper_sums(parts, public, plan)
    largest = paper.merge_norms(norms, plan)
    found, facts = paper.sample(sums, largest, public.counts, plan, run_key)
    return _result(found, public, plan, plan.facts() | facts)


def _result(
    found: np.ndarray, public: PublicCounts, plan: BayesianPlan, facts: dict[str, Any]
) -> NgramProbabilities:
    facts = facts | {
        "public": {
            "ngrams": len(public),
            "length": public.length,
            "sha256": public.fingerprint(),
        }
    }
    return NgramProbabilities(
        ngrams=public.texts(), probabilities=found, guarantee=guarantee_of(plan), facts=facts
    )
