"""The driver in memory: the rounds of a set union on arrays, over batches of users.

A round has the steps that the transforms of `PrivateSetUnion` have: items are limited for each user,
weighed and added up; sums with noise are decided; and users keep what is open. So a release in memory
equals the pipeline's, bit for bit, under the same run key.
"""

import dataclasses
from collections.abc import Callable, Generator, Iterator, Sequence
from typing import TypeVar

from beam_dpne.counts.measuring import estimated, rule_of, sum_counts
from beam_dpne.elements import progress
from beam_dpne.elements.batches import DocumentBlock, RowSums, add_rows, add_up
from beam_dpne.elements.processes import answers
from beam_dpne.lists.known import KnownItems
from beam_dpne.mechanism.randomness import RunKey
from beam_dpne.set_union import weights
from beam_dpne.set_union.decisions import Decision, ItemRows, decide, merge_released
from beam_dpne.set_union.elements import ItemSet, ItemSums, known_sums, left_open, merge_sums
from beam_dpne.set_union.plan import SetUnionPlan

_Out = TypeVar("_Out")


def release_items(
    items: DocumentBlock, plan: SetUnionPlan, run_key: RunKey, known: KnownItems | None = None
) -> ItemSet:
    """Releases the union of users in memory: the mechanism of `PrivateSetUnion` without Beam.

    Args:
      items: all users, not yet limited.
      plan: the plan of the run.
      run_key: bound to the run's parameters; see `key_context`.
      known: items that are likely by what is public.

    Example:
      >>> import hashlib
      >>> import numpy as np, pyarrow as pa
      >>> words = pa.array(["a", "b"])
      >>> crowd = DocumentBlock(users=np.arange(200, dtype=np.uint64).reshape(-1, 2), words=words,
      ...                       offsets=np.arange(0, 202, 2), codes=np.tile([0, 1], 100),
      ...                       word_hashes=np.eye(2, dtype=np.uint64))
      >>> plan = SetUnionPlan(epsilon=10, delta=1e-4, policy="sips")
      >>> release_items(crowd, plan, RunKey(bytes(32))).items.to_pylist()
      ['a', 'b']
    """
    return UnionInMemory(plan=plan, run_key=run_key, known=known).release([items])


@dataclasses.dataclass(frozen=True, kw_only=True)
class UnionInMemory:
    """The rounds of a set union on arrays; its methods are the steps of a round.

    Attributes:
      plan: the parameters of the run.
      run_key: a key that is bound to the run's parameters.
      known: items that are likely by what is public; None if there are none.
      workers: the largest number of processes; it changes no release.
    """

    plan: SetUnionPlan
    run_key: RunKey = dataclasses.field(repr=False)
    known: KnownItems | None = None
    workers: int = 1

    def release(self, everybody: Sequence[DocumentBlock]) -> ItemSet:
        """Returns the released items, with numbers of users if the plan has a count_share.

        Args:
          everybody: the items of all users, not yet limited; each user is in one batch only.

        References: DPSU Algorithms 1 and 2.
        """
        size = len(self.known or ())
        rest = [known_sums(self.known, self.run_key)] if self.known else []
        users = list(everybody)
        decided: list[Decision] = []
        for number in range(1, len(self.plan.union_rounds) + 1):
            sums = self.sum_round(users, number, rest)
            threshold = self.plan.known_threshold(size, [each.low for each in decided])
            progress.enter("decide", None, number)
            decision = decide(sums, self.plan, self.run_key, number, threshold)
            decided.append(decision)
            rest = [decision.known]
            if number < len(self.plan.union_rounds):
                users = self.narrow(users, decision, number + 1)
        past = [each.low for each in decided]
        found = merge_released((each.found for each in decided), self.plan, size, past)
        if not self.plan.count_share:
            return found
        return self.count(everybody, found)

    def sum_round(
        self, users: Sequence[DocumentBlock], number: int, known: Sequence[ItemSums]
    ) -> ItemSums:
        """Returns the histogram of a round.

        Args:
          users: what is open of each user's items.
          number: the number of the round, from 1.
          known: the known items that are open, with weight 0.
        """

        def limit(place: int) -> DocumentBlock:
            return weights.limit_items(users[place], self.plan, self.run_key, number)

        def weigh(place: int) -> ItemSums:
            return weights.weigh_items(limit(place), self.plan)

        def present(place: int) -> ItemSums:
            return weights.present_items(users[place])

        def split(place: int) -> list[tuple[int, DocumentBlock]]:
            return list(weights.split_to_shards(limit(place), self.plan, self.run_key))

        batches = range(len(users))
        if not self.plan.has_cutoff:
            sums = self.mapped(weigh, batches, number)
            return merge_sums([add_up(sums, merge_sums), *known] if users else list(known))
        shards: dict[int, list[DocumentBlock]] = {}
        for parts in self.mapped(split, batches, number):
            for shard, part in parts:
                shards.setdefault(shard, []).append(part)
        in_order = list(shards.values())

        def descend(place: int) -> ItemSums:
            return weights.run_shard(
                in_order[place], self.plan, self.run_key, number, progress.advancing
            )

        pieces = [*self.mapped(descend, range(len(in_order)), number), *known]
        if self.plan.union_rounds[number - 1].cut is not None:
            pieces += self.mapped(present, batches, number)
        return merge_sums(pieces)

    def narrow(
        self, users: Sequence[DocumentBlock], decision: Decision, number: int
    ) -> list[DocumentBlock]:
        """Returns what a round leaves open of users' items, without users who have none of it."""
        still_open = decision.still_open
        named = decision.found.items if still_open is None else still_open

        def narrowed(place: int) -> DocumentBlock:
            return left_open(users[place], named, is_open=still_open is not None)

        left = self.mapped(narrowed, range(len(users)), number)
        return [each for each in left if len(each.users)]

    def count(self, everybody: Sequence[DocumentBlock], found: ItemSet) -> ItemSet:
        """Returns the released items with the numbers of users who have each of them."""

        def sums_of(place: int) -> RowSums:
            return add_rows(sum_counts(ItemRows().held(everybody[place], [found]), rule))

        rule = rule_of(ItemRows(), found)
        sums = list(self.mapped(sums_of, range(len(everybody)), stage="count"))
        (counted,) = estimated(
            found,
            sums,
            rows=ItemRows(),
            noise=self.plan.count_noise,
            run_key=self.run_key,
            workers=self.workers,
        )
        return counted

    def mapped(
        self,
        function: Callable[[int], _Out],
        places: Sequence[int],
        number: int = 0,
        *,
        stage: str = "users",
    ) -> Iterator[_Out]:
        """Yields what a function returns for each place, in any order; forks share the work.

        A fork begins with all that this process holds, so that only the places and what the function
        returns travel.

        Args:
          function: maps a place.
          places: the places.
          number: the number of the round, for the display; 0 if there is none.
          stage: the stage, for the display.
        """

        def answer(place: int) -> Generator[_Out, None, None]:
            progress.enter(stage, None, number)
            yield function(place)

        with progress.counting(places):
            yield from answers(answer, places, self.workers)
