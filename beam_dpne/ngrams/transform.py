"""PrivateNgrams: the loop over k of DPNE, as one pipeline."""

import collections
import contextlib
import dataclasses
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import apache_beam as beam
from apache_beam.pvalue import AsIter, AsSingleton, PCollection, TaggedOutput

from beam_dpne.documents.masks import left_out_by
from beam_dpne.documents.transform import DocumentsTransform, create_public
from beam_dpne.elements.batches import DocumentBlock, UserBatch
from beam_dpne.elements.bundles import apply
from beam_dpne.elements.encoding import SetStore, keep, spill, take
from beam_dpne.elements.processes import Processes, most_forks
from beam_dpne.elements.rows import CountedGroupedNgram, CountedNgram, GroupedNgram, ReleasedNgram
from beam_dpne.engines import is_one_process
from beam_dpne.mechanism.randomness import RunKey
from beam_dpne.ngrams.elements import GROUPED_ROOT, ROOT, GramSet
from beam_dpne.ngrams.in_memory import InMemory, InProcesses, keep_users
from beam_dpne.ngrams.ledger import ngrams_contents
from beam_dpne.ngrams.length_rules import rule_for
from beam_dpne.ngrams.plan import PrivacyPlan
from beam_dpne.ngrams.range_steps import (
    DecideRound,
    NoisyThreshold,
    SampleSpurious,
    WeightedHistogram,
)
from beam_dpne.ngrams.released_rows import ReleasedRows
from beam_dpne.ngrams.user_steps import (
    CountUsers,
    ExtractGrams,
    LimitContributions,
    PruneInvalid,
    SpendBudgets,
)
from beam_dpne.reading.options import InputDescription
from beam_dpne.release.ledger import Run
from beam_dpne.release.result import Form, Result

if TYPE_CHECKING:
    from beam_dpne.ngrams.known import KnownNgrams

# Hash ranges of a histogram for each worker, so that all have about the same work.
_RANGES_OF_A_WORKER = 2


class _Released(NamedTuple):
    released: tuple[PCollection[GramSet], ...]
    run: Run


def _row_type(plan: PrivacyPlan) -> type[ReleasedNgram] | type[CountedNgram]:
    return CountedNgram if plan.count_share else ReleasedNgram


class PrivateNgramsResult(Result[ReleasedNgram | CountedNgram], _Released):
    """The result of `PrivateNgrams`, which `WriteRelease` takes.

    Its `rows` are `CountedNgram`, or `ReleasedNgram` with count_share=0.

    Attributes:
      released: S_1, …, S_T, a PCollection of one `GramSet` for each.
      run: the public facts of the run, for the ledger.
    """

    form = Form(_row_type, ReleasedRows.of, ngrams_contents)


class GroupedNgramsResult(PrivateNgramsResult):
    """The result of `PrivateNgrams` with a group_field.

    Its `rows` are `CountedGroupedNgram`, or `GroupedNgram` with count_share=0.
    """

    form = PrivateNgramsResult.form._replace(
        row_type=lambda plan: CountedGroupedNgram if plan.count_share else GroupedNgram
    )


@dataclasses.dataclass(eq=False, kw_only=True)
class PrivateNgrams(DocumentsTransform):
    """Releases n-grams of up to T words that many users share.

    Input: documents as `BatchDocuments` takes them: rows with field names (NamedTuple, `beam.Row`,
    dict), `pyarrow.RecordBatch`, or plain tuples of (user, text), with a group_field of (user, text,
    group); bounded and in the global window.

    Output: `PrivateNgramsResult`.

    Privacy: `released`, with its rules, is user-level (plan.epsilon, plan.delta)-DP when one
    user with all documents is added or removed, for a run key that is secret and used on one input
    only.

    Cost: one shuffle of the corpus; then, for each round of each length, one pass over the positions
    that users still have, and one shuffle of partial sums.

    Attributes:
      plan: the parameters of the run.
      known: n-grams that are likely by what is public, never by the private data; they need less
        evidence. Only the strategy adaptive takes them. They are made with the tokenizer of the run
        if that is `TextRules`.
      tokenizer: "words", "whitespace", "tokens", "package.module:function", or a function. What
        `TextRules` leave out of texts is never released.
      partitions: the number of hash partitions of users; a histogram, which is smaller, has a quarter
        as many.
      run_key: the secret of the run; by default a fresh one each time the transform is applied. It is
        bound to all that decides the mechanism (`key_context`), so the same key under other
        parameters, another tokenizer or another version draws other noise.
      described: how records became documents, if they were read from files; the key is bound to it.
        By default the elements are rows with these fields.
      store: where sets go that are too large for an element. The workers must share it, and it must be
        as private as the data. With None every set is one element.
      user_field: the name of the field with the user, which defines whom the guarantee protects.
      text_field: the name of the field with the text, or several names, of which each is a document.
      group_field: the name of the field with the group of a text, or None. N-grams of different groups
        are different n-grams, and rows have the column group. Nobody lists the groups; a group is
        released only with an n-gram of it.
      workers: with None, as with --workers 0 on the command line, every step is spread over the
        workers of the runner. With a number, which must be at least 1, one step of one worker does
        all lengths, in so many processes that it forks (`elements.processes`; one where that is not
        Linux). It holds the whole corpus: some 75 bytes for each token. The embedded runner does so
        anyway. There, and on an engine whose worker has the memory, one step is faster. It changes no
        release.

    Raises:
      ValueError: if partitions < 1 or workers < 1, on an unknown tokenizer, if `known` has what the
        tokenizer leaves out, or if `BatchDocuments` refuses the fields or the input.

    Example:
      >>> from apache_beam.runners.portability.fn_api_runner import FnApiRunner
      >>> from beam_dpne import PrivacyPlan, PrivateNgrams
      >>> plan = PrivacyPlan(epsilon=10, delta=1e-4, max_length=2, max_contributions=2,
      ...                    spurious_fraction=1e-9)
      >>> with beam.Pipeline(runner=FnApiRunner()) as pipeline:
      ...     documents = pipeline | beam.Create([(f"u{i}", "Good morning") for i in range(200)])
      ...     result = documents | PrivateNgrams(plan=plan)
      ...     pairs = result.rows | beam.Filter(lambda row: row.length == 2)
      ...     _ = pairs | beam.Map(lambda row: print(row.ngram))
      good morning

    References: DPNE Algorithm 1; appendix A, Algorithm 1.
    """

    plan: PrivacyPlan
    known: "KnownNgrams | None" = None
    store: SetStore | None = None
    group_field: str | None = None

    @property
    def row_description(self) -> InputDescription:
        """The fields by which the elements of the pipeline are read."""
        return dataclasses.replace(super().row_description, group_field=self.group_field)

    def __post_init__(self):
        super().__post_init__()
        if self.known is not None:
            self.plan.check_known()
            self.known.check_left_out(self.tokenizer)
        if self.group_field is not None and self.plan.pruning == "single":
            raise ValueError("pruning must be 'both' with group_field, got pruning='single'.")

    def expand(self, documents: PCollection) -> PrivateNgramsResult:
        """Brings users together and unrolls the loop over lengths and rounds."""
        root = self._known_root
        keys = self.run_keys()
        run_key = keys.bound
        run = Run.of(self, keys)
        result = PrivateNgramsResult if self.group_field is None else GroupedNgramsResult
        if self.workers is not None:
            released = self._released_in_one_step(documents, run_key, self.workers, root)
            return result(released, run)
        users = self.grouped_by_user(documents, run_key, self.plan.max_tokens_per_user)
        return result(self._released(users, run_key, root), run)

    @property
    def _known_root(self) -> GramSet | None:
        """The root of the known n-grams that this run can use; None if there are none."""
        if not self.known:
            return None
        is_grouped = self.group_field is not None
        return self.known.root(self.plan.max_length, is_grouped=is_grouped)

    def public_digest(self) -> str:
        """Returns the digest of the known n-grams that decide the run; "" if there are none."""
        # An empty list decides nothing, so that it must not change the noise either.
        return self.known.sha256 if self.known and self._known_root else ""

    def _root(self, documents: PCollection, root: GramSet | None) -> Any:
        """Returns the PCollection of the root of known n-grams, which is public; None without any."""
        return root and documents.pipeline | "Known" >> create_public(root, self.store)

    def _released_in_one_step(
        self, documents: PCollection, run_key: RunKey, workers: int, root: GramSet | None
    ) -> tuple[PCollection[GramSet], ...]:
        """Brings all blocks to one worker; the loop over k has an output for each length."""
        is_here = is_one_process(documents.pipeline)
        group = self.group_by_user(run_key, self.plan.max_tokens_per_user)
        # On an engine the one step alone forks, and no worker beside it.
        group.workers = workers if is_here else 1
        blocks = group.cut_by_user(self.batched(documents))
        if is_here:
            kept = beam.MapTuple(lambda number, block: (number, keep(block)))
            blocks = apply(blocks, "Keep", kept, tuple[int, int])
        run = InMemory(
            plan=self.plan,
            run_key=run_key,
            left_out=left_out_by(self.tokenizer),
            start=ROOT if self.group_field is None else GROUPED_ROOT,
            histogram_ranges=1 if workers == 1 else _RANGES_OF_A_WORKER * workers,
            workers=workers,
        )
        names = [str(length) for length in range(1, self.plan.max_length + 1)]
        known = self._root(documents, root)
        beside = {} if known is None else {"root": AsSingleton(known)}
        release = beam.FlatMap(_release_all, AsIter(blocks), run=run, store=self.store, **beside)
        # Without documents there is no block, and the sets are released all the same: empty ones.
        once = documents.pipeline | "Once" >> beam.Create([None])
        released = once | "ReleaseLengths" >> release.with_outputs(*names)
        for name in names:
            released[name].element_type = GramSet
        return tuple(released[name] for name in names)

    def _released(
        self, users: PCollection[UserBatch], run_key: RunKey, root: GramSet | None
    ) -> tuple[PCollection[GramSet], ...]:
        """Returns S_1, …, S_T, with numbers of users if the plan has a count_share."""
        released: list[PCollection[GramSet]] = []
        everybody = users
        before = None
        first_of_all = self._root(users, root)
        for length in range(1, self.plan.max_length + 1):
            previous = released[-1] if released else first_of_all
            found, users, before, first = self._released_length(
                length, users, previous, before, run_key
            )
            # Users have the same positions after the first round of length 1, and only less budget.
            # So that round's stage need not put out its input too.
            everybody = first if length == 1 else everybody
            released.append(found)
        if not self.plan.count_share:
            return tuple(released)
        count = CountUsers(plan=self.plan, released=released, run_key=run_key, store=self.store)
        return cast("tuple[PCollection[GramSet], ...]", everybody | "CountUsers" >> count)

    def _released_length(
        self, length: int, users: Any, previous: Any, before: Any, run_key: RunKey
    ) -> tuple[Any, Any, Any, Any]:
        """Releases one length in its rounds, as `InMemory.release_length` does.

        Returns:
          S_k, the users, the set to which their positions refer, and the users after the first round.
        """
        last = self.plan.rounds_of(length)
        start = ROOT if self.group_field is None else GROUPED_ROOT
        rule = rule_for(self.plan, start) if previous is None else None
        deciding: dict[str, Any] = {"rule": rule, "run_key": run_key, "store": self.store}
        present = still_open = found = first = cast("Any", None)
        for number in range(1, last + 1):
            label = f"{length}/{number}"
            is_first = number == 1 and previous is not None
            beside = {"previous": previous, "present": present, "before": before}
            sent, users = self._contribute(length, number, users, run_key, beside)
            first = first or users
            before = present
            weighted = WeightedHistogram(
                histogram_ranges=self.histogram_ranges,
                previous=previous if is_first else None,
                open_pieces=still_open,
            )
            shards: Any = sent | f"{label}/WeightedHistogram" >> weighted
            spurious = None
            if is_first:
                histogram = shards if self.plan.is_adaptive else None
                draw = SampleSpurious(plan=self.plan, run_key=run_key, histogram=histogram)
                spurious = previous | f"{label}/SampleSpurious" >> draw
            deciding |= {"previous": previous, "spurious": spurious}
            if number < last:
                decide = DecideRound(round_number=number, **deciding)
                present, still_open = shards | f"{label}/DecideRound" >> decide
            else:
                decide = NoisyThreshold(left_out=left_out_by(self.tokenizer), **deciding)
                found = shards | f"{label}/NoisyThreshold" >> decide
        return found, users, before, first

    def _contribute(
        self, length: int, number: int, users: Any, run_key: RunKey, beside: dict[str, Any]
    ) -> tuple[Any, Any]:
        """Returns what users send to a round, and the users with what they have left."""
        label = f"{length}/{number}"
        if self.plan.is_adaptive:
            spend = SpendBudgets(
                plan=self.plan, length=length, round_number=number, run_key=run_key, **beside
            )
            return users | f"{label}/SpendBudgets" >> spend
        if beside["previous"] is not None:
            prune = PruneInvalid(released=beside["previous"], pruning=self.plan.pruning)
            users = users | f"{label}/PruneInvalid" >> prune
        limit = LimitContributions(
            max_contributions=self.plan.contribution_limits[length - 1], run_key=run_key
        )
        grams = users | f"{label}/ExtractGrams" >> ExtractGrams()
        return grams | f"{label}/LimitContributions" >> limit, users


def _release_all(
    _: None,
    blocks: Iterable[tuple[int, DocumentBlock | int]],
    *,
    run: InMemory,
    store: SetStore | None,
    root: GramSet | None = None,
) -> Iterator[Any]:
    by_number: dict[int, list[DocumentBlock]] = {}
    for number, block in blocks:
        by_number.setdefault(number, []).append(take(block))
    partitions = list(by_number.values())
    run = dataclasses.replace(run, root=root)
    by_number.clear()
    most = most_forks(run.workers, len(partitions))
    with contextlib.closing(Processes(keep_users(run, partitions), most)) as forks:
        users: list[UserBatch] = []
        if most:
            shares = (range(first, len(partitions), most) for first in range(most))
            collections.deque(forks.stream(("lay_out", share) for share in shares), 0)
            run = InProcesses(**vars(run), forks=forks)
        else:
            users = run.lay_out(partitions, range(len(partitions)))
        partitions.clear()
        for grams in run.release(users):
            yield TaggedOutput(str(grams.length), spill(grams, store))
