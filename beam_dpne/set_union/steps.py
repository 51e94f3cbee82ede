"""PrivateSetUnion, the union of users' items as one pipeline, with its steps and its ledger."""

import dataclasses
import functools
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple, cast

import apache_beam as beam
import numpy as np
from apache_beam.pvalue import AsIter, PCollection, TaggedOutput

from beam_dpne.counts.steps import count_in_beam
from beam_dpne.documents.steps import DocumentsTransform, create_public
from beam_dpne.elements import progress
from beam_dpne.elements.arrays import join_words
from beam_dpne.elements.batches import DocumentBlock, UserBatch
from beam_dpne.elements.bundles import SumBundle, UnhintedTransform, apply
from beam_dpne.elements.coders import register_batches
from beam_dpne.elements.encoding import SetStore
from beam_dpne.elements.rows import CountedItem, ReleasedItem
from beam_dpne.lists.known import KnownItems
from beam_dpne.mechanism.randomness import RunKey
from beam_dpne.release.ledger import Run
from beam_dpne.release.steps import Result
from beam_dpne.set_union import decisions, elements, weights
from beam_dpne.set_union.elements import (
    ItemSet,
    ItemSums,
    cut_by_hash_range,
    known_sums,
    merge_sums,
)
from beam_dpne.set_union.plan import SetUnionPlan
from beam_dpne.set_union.run import ITEMS, SetUnionRun

register_batches(ItemSums, ItemSet, KnownItems)
_KeyedSums = tuple[int, ItemSums]
_OPEN, _KNOWN, _PAST = _ASIDE = ("open", "known", "past")


class _Released(NamedTuple):
    released: PCollection[ItemSet]
    run: Run


class PrivateSetUnionResult(Result[ReleasedItem | CountedItem], _Released):
    """The result of `PrivateSetUnion`, which `WriteRelease` takes.

    Its `rows` are `CountedItem`, or `ReleasedItem` with count_share=0.

    Attributes:
      released: PCollection of one `ItemSet`.
      run: the public facts of the run, for the ledger.
    """

    form = ITEMS


@dataclasses.dataclass(eq=False, kw_only=True)
class PrivateSetUnion(SetUnionRun, DocumentsTransform):
    """Releases items that many users have: words, queries, product names, any strings.

    Input: documents as `BatchDocuments` takes them: rows with field names (NamedTuple, `beam.Row`,
    dict), `pyarrow.RecordBatch`, or plain tuples of (user, items); bounded and in the global window.
    The text is a list of items; with another tokenizer than "tokens" it is a str, and its tokens are
    the items.

    Output: `PrivateSetUnionResult`.

    Privacy: `released` is user-level (plan.epsilon, plan.delta)-DP when one user with all items is
    added or removed, for a run key that is secret and used on one input only, and an input of at most
    plan.max_users users, which is the operator's promise.

    Cost: one shuffle of the corpus, and one of partial sums for each round; the descent policies
    shuffle users' items once more, and one worker has all items of a shard in memory. With a
    count_share, one more pass over the users' items.

    Attributes:
      plan: the parameters of the run.
      known: items that are likely by what is public, never by the private data; they need less
        evidence. `KnownNgrams.items` gives them.
      tokenizer: "tokens", "words", "whitespace", "package.module:function", or a function.
      partitions, run_key, described, participation, store, user_field, text_field: as in
        `PrivateNgrams`; the store is for known items only.

    Raises:
      ValueError: if partitions < 1, on an unknown tokenizer, if `known` has what the tokenizer leaves
        out, or if `BatchDocuments` refuses the fields or the input.

    Example:
      >>> from apache_beam.runners.portability.fn_api_runner import FnApiRunner
      >>> from beam_dpne import PrivateSetUnion, SetUnionPlan
      >>> plan = SetUnionPlan(epsilon=10, delta=1e-4)
      >>> with beam.Pipeline(runner=FnApiRunner()) as pipeline:
      ...     items_of_users = pipeline | beam.Create(
      ...         [(f"user {i}", ["rye bread", "tea", f"my {i}"]) for i in range(200)])
      ...     union = items_of_users | PrivateSetUnion(plan=plan)
      ...     items = union.rows | beam.Map(lambda row: row.item) | beam.combiners.ToList()
      ...     _ = items | beam.Map(lambda items: print(sorted(items)))
      ['rye bread', 'tea']

    References: DPSU (Gopi et al. 2020) Algorithms 1 and 2.
    """

    def expand(self, items_of_users: PCollection) -> PrivateSetUnionResult:
        """Groups by user and releases."""
        keys = self.run_keys()
        users = self.grouped_by_user(items_of_users, keys.bound)
        release = ReleaseItems(
            plan=self.plan,
            run_key=keys.bound,
            ranges=self.histogram_ranges,
            known=self.known or None,
            store=self.store,
        )
        found = cast("PCollection[ItemSet]", users | "ReleaseItems" >> release)
        return PrivateSetUnionResult(found, Run.of(self, keys))


@dataclasses.dataclass(eq=False, kw_only=True)
class ReleaseItems(UnhintedTransform):
    """Releases the union of users' items, after their grouping.

    Input: `UserBatch` of length 0.

    Output: PCollection of one `ItemSet`.

    Privacy: that of `PrivateSetUnion`, if each user is in one batch only.

    Cost: see `PrivateSetUnion`.

    Attributes:
      plan: the parameters of the run.
      run_key: the secret of the run, bound to its parameters (`key_context`).
      ranges: the number of hash ranges of the histogram.
      known, store: as in `PrivateSetUnion`.

    Example:
      >>> from apache_beam.runners.portability.fn_api_runner import FnApiRunner
      >>> from beam_dpne import RunKey, SetUnionPlan
      >>> from beam_dpne.steps import BatchDocuments, GroupByUser
      >>> from beam_dpne.set_union.steps import ReleaseItems
      >>> key = RunKey.generate()
      >>> plan = SetUnionPlan(epsilon=10, delta=1e-4, policy="weighted_gaussian")
      >>> with beam.Pipeline(runner=FnApiRunner()) as pipeline:
      ...     documents = pipeline | beam.Create([(f"u{i}", "Good morning") for i in range(200)])
      ...     users = documents | BatchDocuments() | GroupByUser(run_key=key)
      ...     released = users | ReleaseItems(plan=plan, run_key=key)
      ...     _ = released | beam.Map(lambda released: print(released.items.to_pylist()))
      ['good', 'morning']

    References: DPSU Algorithms 1 and 2.
    """

    plan: SetUnionPlan
    run_key: RunKey = dataclasses.field(repr=False)
    ranges: int = 1
    known: KnownItems | None = None
    store: SetStore | None = None

    def expand(self, users: PCollection[UserBatch]) -> PCollection[ItemSet]:
        """Unrolls the rounds, joins the items found in each into one set, and counts their users."""
        items = apply(users, "Items", beam.Map(elements.items_of_users), DocumentBlock)
        run_key = self.run_key
        ranges = self.ranges
        known = self.known
        size = len(known or ())
        found: list[PCollection[ItemSet]] = []
        past: list[AsIter] = []
        rest: list[PCollection[_KeyedSums]] = []
        if known:
            listed = users.pipeline | "Known" >> create_public(known, self.store)
            cut = beam.FlatMap(lambda known: cut_by_hash_range(known_sums(known, run_key), ranges))
            rest = [apply(listed, "KnownSums", cut, _KeyedSums)]
        for decider in self.plan.union_rounds:
            number = decider.round
            sums = self._sums(items, number)
            if known:
                sums = (sums, *rest) | f"{number}/WithKnown" >> beam.Flatten()
            decide = beam.FlatMap(
                _decide,
                *past,
                plan=self.plan,
                run_key=run_key,
                ranges=ranges,
                size=size,
                number=number,
            )
            by_range = sums | f"{number}/ByRange" >> beam.GroupByKey()
            decided: Any = by_range | f"{number}/Decide" >> decide.with_outputs(
                *_ASIDE, main="found"
            )
            found.append(decided["found"])
            if known:
                decided[_KNOWN].element_type = _KeyedSums
                rest = [decided[_KNOWN]]
                past = [*past, AsIter(decided[_PAST])]
            if number < len(self.plan.union_rounds):
                has_cut = decider.cut is not None
                named = AsIter(decided[_OPEN if has_cut else "found"])
                narrow = beam.FlatMap(_left_open, named, is_open=has_cut, number=number + 1)
                items = apply(items, f"{number}/LeftOpen", narrow, DocumentBlock)
        together: Any = found | "Found" >> beam.Flatten()
        once = users.pipeline | "Once" >> beam.Create([None])
        merge = beam.Map(_merge, AsIter(together), *past, plan=self.plan, size=size)
        released = apply(once, "Sort", merge, ItemSet)
        if not self.plan.count_share:
            return released
        return count_in_beam(
            decisions.ItemRows(),
            users,
            [released],
            kind=ItemSet,
            noise=self.plan.count_noise,
            run_key=self.run_key,
        )

    def _sums(self, items: PCollection[DocumentBlock], number: int) -> PCollection[_KeyedSums]:
        """Turns items into parts of a round's histogram, keyed by hash range.

        In policies with a cutoff users come in sequence, shard by shard. Before a cut, items that users
        have but gave no weight are added with weight 0.
        """
        plan = self.plan
        run_key = self.run_key
        limit = beam.Map(weights.limit_items, plan=plan, run_key=run_key, number=number)
        limited = apply(items, f"{number}/Limit", limit, DocumentBlock)
        if not self.plan.has_cutoff:
            weigh = functools.partial(weights.weigh_items, plan=self.plan)
            return self._summed(limited, f"{number}/Weigh", weigh)
        split = beam.FlatMap(weights.split_to_shards, plan=plan, run_key=run_key)
        shards = apply(limited, f"{number}/ToShards", split, tuple[int, DocumentBlock])
        run = beam.FlatMap(
            _run_shard, plan=plan, run_key=run_key, number=number, ranges=self.ranges
        )
        by_shard = shards | f"{number}/ByShard" >> beam.GroupByKey()
        sums = apply(by_shard, f"{number}/Descend", run, _KeyedSums)
        if self.plan.union_rounds[number - 1].cut is None:
            return sums
        present = self._summed(items, f"{number}/Present", weights.present_items)
        both = (sums, present) | f"{number}/Sums" >> beam.Flatten()
        return cast("PCollection[_KeyedSums]", both)

    def _summed(
        self, items: PCollection[DocumentBlock], label: str, weigh: Callable[..., ItemSums]
    ) -> PCollection[_KeyedSums]:
        cut = functools.partial(cut_by_hash_range, ranges=self.ranges)
        bundle = SumBundle(sum_batch=weigh, merge=merge_sums, cut=cut)
        return apply(items, label, beam.ParDo(bundle), _KeyedSums)


def _left_open(
    items: DocumentBlock, known: Iterable[ItemSet], *, is_open: bool, number: int
) -> Iterator[DocumentBlock]:
    """Keeps what is open of users' items in a round, and drops users who have none of it."""
    progress.enter("users", None, number)
    left = elements.left_open(items, join_words(part.items for part in known), is_open=is_open)
    if len(left.users):
        yield left


def _decide(
    keyed: tuple[int, Iterable[ItemSums]],
    # Beam would take the type of each side input for that of all of them.
    *past: Any,
    plan: SetUnionPlan,
    run_key: RunKey,
    ranges: int,
    size: int,
    number: int,
) -> Iterator[Any]:
    """Decides the items of a hash range, and sends those that stay open to separate outputs."""
    progress.enter("decide", None, number)
    threshold = plan.known_threshold(size, list(map(sum, past)))
    decision = decisions.decide(merge_sums(keyed[1]), plan, run_key, number, threshold)
    yield from decisions.bounded_parts(decision.found)
    yield TaggedOutput(_PAST, decision.low)
    for part in cut_by_hash_range(decision.known, ranges):
        yield TaggedOutput(_KNOWN, part)
    if decision.still_open is not None:
        words = decision.still_open
        for part in decisions.bounded_parts(ItemSet(items=words, scores=np.zeros(len(words)))):
            yield TaggedOutput(_OPEN, part)


def _run_shard(
    keyed: tuple[int, Iterable[DocumentBlock]],
    *,
    plan: SetUnionPlan,
    run_key: RunKey,
    number: int,
    ranges: int,
) -> Iterator[_KeyedSums]:
    progress.enter("users", None, number)
    sums = weights.run_shard(keyed[1], plan, run_key, number, progress.advancing)
    return cut_by_hash_range(sums, ranges)


def _merge(_: None, parts: Iterable[ItemSet], *past: Any, plan: SetUnionPlan, size: int) -> ItemSet:
    progress.enter(progress.RELEASED, None)
    return decisions.merge_released(parts, plan, size, list(map(sum, past)))
