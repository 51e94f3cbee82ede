"""ReleaseItems: the steps from users' items to a released set, under every update policy."""

import dataclasses
import functools
from collections.abc import Iterable, Iterator
from typing import Any, cast

import apache_beam as beam
from apache_beam.pvalue import AsIter, PCollection, TaggedOutput

from beam_dpne.elements import progress
from beam_dpne.elements.batches import SumBundle, UserBatch
from beam_dpne.mechanism.randomness import RunKey
from beam_dpne.set_union import mad, threshold, weights
from beam_dpne.set_union.elements import (
    ItemSet,
    ItemSums,
    UserItems,
    cut_by_hash_range,
    merge_sums,
)
from beam_dpne.set_union.plan import SetUnionPlan

_KeyedSums = tuple[int, ItemSums]
_OPEN = "open"


@dataclasses.dataclass(eq=False, kw_only=True)
class ReleaseItems(beam.PTransform):
    """Releases the union of users' items, after their grouping.

    Input: `UserBatch` of length 0.

    Output: PCollection of one `ItemSet`.

    Privacy: that of `PrivateSetUnion`, if each user is in one batch only.

    Cost: see `PrivateSetUnion`.

    Attributes:
      plan: the parameters of the run.
      run_key: the secret of the run, bound to its parameters (`run_context`).
      ranges: the number of hash ranges of the histogram.

    Raises:
      ValueError: if ranges < 1.

    Example:
      >>> from apache_beam.runners.portability.fn_api_runner import FnApiRunner
      >>> from beam_dpne import BatchDocuments, GroupByUser, RunKey, SetUnionPlan
      >>> from beam_dpne.set_union.release import ReleaseItems
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

    def __post_init__(self):
        super().__init__()
        if self.ranges < 1:
            raise ValueError(f"ranges must be at least 1, got ranges={self.ranges}.")

    def expand(self, users: PCollection[UserBatch]) -> PCollection[ItemSet]:
        """Unrolls the rounds; the items found in each are joined into one set."""
        items: Any = users | "Items" >> beam.Map(weights.items_of_users).with_output_types(
            UserItems
        )
        found: list[Any] = []
        for decider in self.plan.union_rounds:
            number = decider.number
            decided = (
                self._sums(items, number)
                | f"{number}/ByRange" >> beam.GroupByKey()
                | f"{number}/Decide"
                >> beam.ParDo(_Decide(self, number)).with_outputs(_OPEN, main="found")
            )
            found.append(decided["found"])
            if decider.cut is not None:
                still_open = AsIter(decided[_OPEN])
                keep_open = beam.ParDo(_KeepOpen(), still_open)
                items = items | f"{number}/KeepOpen" >> keep_open.with_output_types(UserItems)
        together = found | "Found" >> beam.Flatten()
        once = users.pipeline | "Once" >> beam.Create([None])
        sort = beam.Map(_merge_and_report, AsIter(together), plan=self.plan)
        return cast("PCollection[ItemSet]", once | "Sort" >> sort.with_output_types(ItemSet))

    def _sums(self, items: Any, number: int) -> Any:
        """Turns items into parts of a round's histogram, keyed by hash range."""
        limited = items | f"{number}/Limit" >> beam.Map(
            weights.limit_items, plan=self.plan, run_key=self.run_key, number=number
        ).with_output_types(UserItems)
        if self.plan.update_policy.rule == "descent":
            return self._descended(items, limited, number)
        if self.plan.update_policy.rule == "reroute":
            return self._rerouted(limited)
        weigh = beam.ParDo(_SumBundle(weights.weigh_items, self.plan, self.ranges))
        return limited | f"{number}/Weigh" >> weigh.with_output_types(_KeyedSums)

    def _descended(self, items: Any, limited: Any, number: int) -> Any:
        """Takes users in sequence, shard by shard; before a cut every present item has weight 0 too."""
        split = beam.FlatMap(weights.split_to_shards, plan=self.plan, run_key=self.run_key)
        run = beam.FlatMap(
            _run_shard, plan=self.plan, run_key=self.run_key, number=number, ranges=self.ranges
        )
        sums = (
            limited
            | f"{number}/ToShards" >> split.with_output_types(tuple[int, UserItems])
            | f"{number}/ByShard" >> beam.GroupByKey()
            | f"{number}/Descend" >> run.with_output_types(_KeyedSums)
        )
        if self.plan.union_rounds[number - 1].cut is None:
            return sums
        list_present = beam.ParDo(_SumBundle(_present, self.plan, self.ranges))
        present = items | f"{number}/Present" >> list_present.with_output_types(_KeyedSums)
        return (sums, present) | f"{number}/Sums" >> beam.Flatten()

    def _rerouted(self, limited: Any) -> Any:
        """Makes two passes: the first finds the weight in excess, the second gives it back."""
        first = beam.ParDo(_SumBundle(mad.first_weights, self.plan, self.ranges))
        excess = (
            limited
            | "First/Weigh" >> first.with_output_types(_KeyedSums)
            | "First/ByRange" >> beam.GroupByKey()
            | "First/Excess" >> beam.Map(_excess, plan=self.plan).with_output_types(ItemSums)
        )
        reroute = beam.ParDo(
            _SumBundle(_reroute, self.plan, self.ranges), AsIter(cast("PCollection", excess))
        )
        return limited | "1/Reroute" >> reroute.with_output_types(_KeyedSums)


class _MergesBeside(beam.DoFn):
    """A DoFn with sums as a side input in parts: they are merged once a bundle, not once a batch."""

    def start_bundle(self):
        super().start_bundle()
        self._merged: ItemSums | None = None

    def _whole(self, parts: Iterable[ItemSums]) -> ItemSums:
        if self._merged is None:
            self._merged = merge_sums(parts)
        return self._merged


class _KeepOpen(_MergesBeside):
    """Keeps the items that the last round left open; users without any drop out."""

    def process(self, element: UserItems, still_open: Iterable[ItemSums]) -> Iterator[UserItems]:
        kept = weights.keep_open(element, self._whole(still_open))
        if len(kept.users):
            yield kept


class _SumBundle(_MergesBeside, SumBundle):
    """Weighs the batches of a bundle, and adds the weights up."""

    def __init__(self, weigh, plan: SetUnionPlan, ranges: int):
        super().__init__(
            sum_batch=functools.partial(weigh, plan=plan),
            merge=merge_sums,
            cut=functools.partial(cut_by_hash_range, ranges=ranges),
        )

    def process(self, element: UserItems, *beside: Any) -> Iterator[_KeyedSums]:
        yield from super().process(element, *map(self._whole, beside))


class _Decide(beam.DoFn):
    """Decides a hash range; the items that are still open have a separate output."""

    def __init__(self, settings: ReleaseItems, number: int):
        self._plan = settings.plan
        self._run_key = settings.run_key
        self._number = number

    def process(self, element: tuple[int, Iterable[ItemSums]]) -> Iterator[Any]:
        progress.enter("decide", None)
        sums = merge_sums(element[1])
        decision = threshold.decide(sums, self._plan, self._run_key, self._number)
        yield from threshold.bounded_parts(decision.found)
        if decision.still_open is not None:
            for _, part in cut_by_hash_range(decision.still_open, 1):
                yield TaggedOutput(_OPEN, part)


def _run_shard(
    keyed: tuple[int, Iterable[UserItems]],
    *,
    plan: SetUnionPlan,
    run_key: RunKey,
    number: int,
    ranges: int,
) -> Iterator[_KeyedSums]:
    progress.enter("users", None)
    sums = weights.run_shard(keyed[1], plan, run_key, number)
    return cut_by_hash_range(sums, ranges)


def _present(items: UserItems, *, plan: SetUnionPlan) -> ItemSums:
    return weights.present_items(items)


def _reroute(items: UserItems, shares: ItemSums, *, plan: SetUnionPlan) -> ItemSums:
    return mad.rerouted_weights(items, shares, plan)


def _excess(keyed: tuple[int, Iterable[ItemSums]], *, plan: SetUnionPlan) -> ItemSums:
    return mad.excess_shares(merge_sums(keyed[1]), plan)


def _merge_and_report(_: None, parts: Iterable[ItemSet], *, plan: SetUnionPlan) -> ItemSet:
    progress.enter(progress.RELEASED, None)
    return threshold.merge_released(parts, plan)
