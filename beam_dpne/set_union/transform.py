"""PrivateSetUnion, the union of users' items as one pipeline, with its steps and its ledger."""

import dataclasses
import functools
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple, cast

import apache_beam as beam
import numpy as np
import pyarrow as pa
from apache_beam.pvalue import AsIter, PCollection, TaggedOutput

from beam_dpne.counts.measuring import count_in_beam
from beam_dpne.documents.tokenizers import Tokenizer
from beam_dpne.documents.transform import DocumentsTransform
from beam_dpne.elements import progress
from beam_dpne.elements.arrays import join_words
from beam_dpne.elements.batches import SumBundle, UserBatch
from beam_dpne.elements.rows import CountedItem, ReleasedItem
from beam_dpne.mechanism.randomness import RunKey
from beam_dpne.release.ledger import Contents, Run
from beam_dpne.release.result import Form, Result
from beam_dpne.release.schema import UnionMechanism
from beam_dpne.set_union import decisions, elements, weights
from beam_dpne.set_union.elements import (
    ItemSet,
    ItemSums,
    UserItems,
    cut_by_hash_range,
    item_table,
    merge_sums,
)
from beam_dpne.set_union.plan import SetUnionPlan

_KeyedSums = tuple[int, ItemSums]
_OPEN = "open"
_SHARDS = (
    "Users are divided among shards by a keyed hash, and each shard fills a separate histogram, up to "
    "cutoff / shards."
)
# Key: the first word of a policy's name.
_POLICIES = {
    "weighted": "Each user divides one unit of weight, in the norm of the sensitivity, evenly among at "
    "most max_contributions items that the user has.",
    "sips": "There are three rounds of weighted_gaussian, with one, three and nine thirteenths of the "
    "budget. Users give weight to items only that no earlier round has found.",
    "policy": "Users come one after the other, in the order of a keyed hash. Each user moves at most "
    "max_contributions items that the user has towards the cutoff, by one unit in all, in the norm of "
    f"the sensitivity. Items at the cutoff get nothing. {_SHARDS}",
    "screened": "There are three rounds of policy_gaussian, with 0.12, 0.23 and 0.65 of the budget. "
    "Later rounds are about the items that those before them have neither found nor closed. "
    f"{_SHARDS}",
}
_COUNTED_TOGETHER = (
    "The items were found with the part 1 - budget_share of the budget mu^2 of one Gaussian mechanism, "
    "and the users of the released items were measured with the rest: over all rounds and sums, the "
    "squares of sensitivity over noise add up to at most mu^2, with mu = sensitivity / "
    "composed_noise_scale."
)
_PROMISE = (
    "The operator promises that the input has at most max_users users. This is never checked against "
    "the data, since a run that refused or dropped users would reveal their number. With more users, "
    "the part of the sensitivity that is due to rounding, and the numerical slack, could exceed the "
    "bounds stated here."
)
_ITEM = (
    r"the item as it is; in tsv, backslash is written \\, a tab \t, a line feed \n, a carriage return "
    r"\r, and the empty item \e (beam_dpne.elements.rows.unescape_item reads it)"
)
_SCORE = (
    "the noisy weight in the round in which the item was found, as the middle of a cell one 64th of "
    "the round's noise_stddev wide, rounded to six decimals"
)


def set_union_contents(plan: SetUnionPlan, released: Sequence[ItemSet]) -> Contents:
    """Returns the contents of the ledger of a release of items, which is one set."""
    (items,) = released
    grounds: dict[str, Any] = {}
    if plan.count_noise is not None:
        grounds["composition"] = _COUNTED_TOGETHER
    if plan.has_cutoff:
        grounds["promise"] = {"max_users": plan.max_users, "meaning": _PROMISE}
    mechanism = UnionMechanism(
        policy=plan.policy,
        meaning=_POLICIES[plan.policy.partition("_")[0]],
        max_contributions=plan.contribution_limit,
        sensitivity=plan.sensitivity,
        rounding_bound=plan.rounding_bound,
        composed_noise_scale=plan.noise_stddev,
        cutoff_margin=plan.margin,
        shards=plan.shard_count,
        rounds=[each._asdict() for each in plan.union_rounds],
        released=len(items),
    )
    columns = {"item": _ITEM, "score": _SCORE}
    return Contents(found=mechanism, columns=columns, grounds=grounds, found_alone="item")


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

    form = Form(
        lambda plan: CountedItem if plan.count_share else ReleasedItem,
        item_table,
        set_union_contents,
    )


@dataclasses.dataclass(eq=False, kw_only=True)
class PrivateSetUnion(DocumentsTransform):
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
      tokenizer: "tokens", "words", "whitespace", "package.module:function", or a function.
      partitions, run_key, described, user_field, text_field: as in `PrivateNgrams`.
      workers: the number of threads in which a worker tokenizes; None means one.

    Raises:
      ValueError: if partitions < 1, on an unknown tokenizer, or if `BatchDocuments` refuses the fields
        or the input.

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

    plan: SetUnionPlan
    plan_type = SetUnionPlan
    tokenizer: str | Tokenizer = "tokens"

    def expand(self, items_of_users: PCollection) -> PrivateSetUnionResult:
        """Groups by user and releases."""
        run_key = self.bound_key()
        users = self.grouped_by_user(items_of_users, run_key, self.plan.max_items_per_user)
        release = ReleaseItems(plan=self.plan, run_key=run_key, ranges=self.histogram_ranges)
        found = cast("PCollection[ItemSet]", users | "ReleaseItems" >> release)
        return PrivateSetUnionResult(found, Run.of(self))


@dataclasses.dataclass(eq=False, kw_only=True)
class ReleaseItems(beam.PTransform):
    """Releases the union of users' items, after their grouping.

    Input: `UserBatch` of length 0.

    Output: PCollection of one `ItemSet`.

    Privacy: that of `PrivateSetUnion`, if each user is in one batch only.

    Cost: see `PrivateSetUnion`.

    Attributes:
      plan: the parameters of the run.
      run_key: the secret of the run, bound to its parameters (`key_context`).
      ranges: the number of hash ranges of the histogram.

    Raises:
      ValueError: if ranges < 1.

    Example:
      >>> from apache_beam.runners.portability.fn_api_runner import FnApiRunner
      >>> from beam_dpne import BatchDocuments, GroupByUser, RunKey, SetUnionPlan
      >>> from beam_dpne.set_union.transform import ReleaseItems
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
        """Unrolls the rounds, joins the items found in each into one set, and counts their users."""
        items: Any = users | "Items" >> beam.Map(elements.items_of_users).with_output_types(
            UserItems
        )
        found: list[Any] = []
        for decider in self.plan.union_rounds:
            number = decider.round
            decide = beam.FlatMap(_decide, plan=self.plan, run_key=self.run_key, number=number)
            decided = (
                self._sums(items, number)
                | f"{number}/ByRange" >> beam.GroupByKey()
                | f"{number}/Decide" >> decide.with_outputs(_OPEN, main="found")
            )
            found.append(decided["found"])
            if number < len(self.plan.union_rounds):
                has_cut = decider.cut is not None
                known = AsIter(decided[_OPEN if has_cut else "found"])
                left = beam.ParDo(_Narrow(is_open=has_cut), known).with_output_types(UserItems)
                items = items | f"{number}/LeftOpen" >> left
        together = found | "Found" >> beam.Flatten()
        once = users.pipeline | "Once" >> beam.Create([None])
        sort = beam.Map(_merge, AsIter(together))
        released: Any = once | "Sort" >> sort.with_output_types(ItemSet)
        if self.plan.count_share:
            released = count_in_beam(
                decisions.ItemRows(),
                users,
                [released],
                kind=ItemSet,
                noise=self.plan.count_noise,
                run_key=self.run_key,
            )
        return cast("PCollection[ItemSet]", released)

    def _sums(self, items: Any, number: int) -> Any:
        """Turns items into parts of a round's histogram, keyed by hash range."""
        limited = items | f"{number}/Limit" >> beam.Map(
            weights.limit_items, plan=self.plan, run_key=self.run_key, number=number
        ).with_output_types(UserItems)
        if self.plan.has_cutoff:
            return self._descended(limited, items, number)
        weigh = beam.ParDo(self._sum_bundle(weights.weigh_items, plan=self.plan))
        return limited | f"{number}/Weigh" >> weigh.with_output_types(_KeyedSums)

    def _descended(self, limited: Any, items: Any, number: int) -> Any:
        """Takes users in sequence, shard by shard.

        Before a cut, items that users have but gave no weight are added with weight 0.
        """
        how = {"plan": self.plan, "run_key": self.run_key}
        split = beam.FlatMap(weights.split_to_shards, **how)
        run = beam.FlatMap(_run_shard, **how, number=number, ranges=self.ranges)
        sums = (
            limited
            | f"{number}/ToShards" >> split.with_output_types(tuple[int, UserItems])
            | f"{number}/ByShard" >> beam.GroupByKey()
            | f"{number}/Descend" >> run.with_output_types(_KeyedSums)
        )
        if self.plan.union_rounds[number - 1].cut is None:
            return sums
        list_present = beam.ParDo(self._sum_bundle(weights.present_items))
        present = items | f"{number}/Present" >> list_present.with_output_types(_KeyedSums)
        return (sums, present) | f"{number}/Sums" >> beam.Flatten()

    def _sum_bundle(self, weigh: Callable[..., ItemSums], **parameters: Any) -> SumBundle:
        return SumBundle(
            sum_batch=functools.partial(weigh, **parameters),
            merge=merge_sums,
            cut=functools.partial(cut_by_hash_range, ranges=self.ranges),
        )


class _Narrow(beam.DoFn):
    """Keeps what a round left open of users' items, and drops users who have none of it.

    The side input, sets of items in parts, is joined once per bundle and not once per batch.
    """

    def __init__(self, *, is_open: bool):
        self._is_open = is_open

    def start_bundle(self):
        super().start_bundle()
        self._known: pa.Array | None = None

    def process(self, element: UserItems, known: Iterable[ItemSet]) -> Iterator[UserItems]:
        if self._known is None:
            self._known = join_words(part.items for part in known)
        left = elements.left_open(element, self._known, is_open=self._is_open)
        if len(left.users):
            yield left


def _decide(
    keyed: tuple[int, Iterable[ItemSums]], *, plan: SetUnionPlan, run_key: RunKey, number: int
) -> Iterator[Any]:
    """Decides the items of a hash range, and sends those that stay open to a separate output."""
    progress.enter("decide", None)
    decision = decisions.decide(merge_sums(keyed[1]), plan, run_key, number)
    yield from decisions.bounded_parts(decision.found)
    if decision.still_open is not None:
        words = decision.still_open
        for part in decisions.bounded_parts(ItemSet(items=words, scores=np.zeros(len(words)))):
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


def _merge(_: None, parts: Iterable[ItemSet]) -> ItemSet:
    progress.enter(progress.RELEASED, None)
    return decisions.merge_released(parts)
