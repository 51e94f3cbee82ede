"""The worst cases of set unions: one user more of an item, and items that one user alone has.

Many runs are made at once. Each has items and users of its own, so that one call of the product's
kernels decides about all of them. Where a user's weights depend on this user alone, the others are made
up as sums, far above the threshold. Under a cutoff, and in policies of several rounds, they are users
like any other, in such a number that they fill their item to the threshold.
"""

import dataclasses
import functools
import math

import numpy as np
import pyarrow as pa

from beam_dpne.audit import observations
from beam_dpne.audit.bounds import Claim
from beam_dpne.audit.count_games import count_games
from beam_dpne.audit.games import Game, Mistake, Play, Seen, world_keys
from beam_dpne.mechanism import gaussian
from beam_dpne.mechanism.randomness import RunKey
from beam_dpne.mechanism.rules import UNITS
from beam_dpne.set_union import threshold, weights
from beam_dpne.set_union.elements import ItemSums, UserItems, merge_sums
from beam_dpne.set_union.plan import SetUnionPlan

# Items that are decided at once, and users of all runs together; they bound memory and time.
_ITEMS_AT_ONCE, _MOST_USERS = 400_000, 4_000_000
# A user has no more items than this, also if more are allowed.
_MOST_ITEMS = 100
_FEW_ITEMS = 4
# From this share on, items that have the whole budget show with the default number of runs.
_NOTICED_SHARE = 0.5
_SURE = 40.0
_BITS = np.uint64(32)


class _QuietUnion(SetUnionPlan):
    """A planted mistake: all noise has a quarter of its standard deviation."""

    @functools.cached_property
    def composed_noise_scale(self) -> float:
        """A quarter of the noise."""
        return super().composed_noise_scale / 4


class _OpenUnion(SetUnionPlan):
    """A planted mistake: the threshold ignores items of one user alone."""

    def _threshold(self, number: int, scale: float, delta: float) -> float:
        return 0.0


class _OneItemUnion(SetUnionPlan):
    """A planted mistake: the noise is that for users with one item each."""

    @functools.cached_property
    def composed_noise_scale(self) -> float:
        """The noise without the number of items."""
        return super().composed_noise_scale / self.contribution_limit


def union_games(plan: SetUnionPlan) -> tuple[Game, ...]:
    """Returns all games of a set union."""
    claim = items_claim(plan)
    number = _item_number(plan)
    items = "one item" if number == 1 else f"{number} items"
    if plan.noise_kind == "laplace" and number > _FEW_ITEMS:
        # Laplace noise on many items shows its ε only where hardly any run gets.
        name, quiet = "The noise is that for users with one item.", _as(plan, _OneItemUnion)
    else:
        name, quiet = "The noise has a quarter of its scale.", _as(plan, _QuietUnion)
    quiet_mistake = Mistake(name=name, play=_play(quiet, is_alone=False))
    mistakes = [quiet_mistake]
    if plan.count_part >= _NOTICED_SHARE and (
        plan.noise_kind == "gaussian" or number <= _FEW_ITEMS
    ):
        whole = dataclasses.replace(plan, count_share=0.0)
        spent = "Items have the whole budget, though numbers of users have a share of it."
        mistakes.append(Mistake(name=spent, play=_play(whole, is_alone=False)))
    open_mistake = Mistake(
        name="The threshold ignores items of one user.",
        play=_play(_as(plan, _OpenUnion), is_alone=True),
    )
    games = (
        Game(
            name="items of many users",
            description=f"A user who has {items}, which many others have too, takes part or not. The "
            "attacker sees which items are released, and their scores.",
            claim=claim,
            play=_play(plan, is_alone=False),
            mistakes=tuple(mistakes),
        ),
        Game(
            name="items of one user",
            description=f"A user who has {items}, which nobody else has, takes part or not. The "
            "attacker sees which items are released, and their scores.",
            claim=claim,
            play=_play(plan, is_alone=True),
            mistakes=(open_mistake,),
        ),
    )
    return (*games, *_counts(plan, union_claim(plan)))


def union_claim(plan: SetUnionPlan) -> Claim:
    """Returns the claim of a whole run, from ε, δ and its division alone."""
    if plan.noise_kind == "laplace":
        return Claim(epsilon=plan.epsilon, delta=plan.delta)
    gaussian_delta = plan.delta * (1 - plan.delta_share)
    stddev = gaussian.gaussian_noise_stddev(epsilon=plan.epsilon, delta=gaussian_delta)
    return Claim(
        epsilon=plan.epsilon,
        delta=plan.delta,
        mu=1 / stddev,
        gaussian_delta=gaussian_delta,
        alone_delta=plan.delta * plan.delta_share,
    )


def items_claim(plan: SetUnionPlan) -> Claim:
    """Returns the claim of the items alone: without the share of the budget that counts have."""
    claim, part = union_claim(plan), 1 - plan.count_part
    if claim.mu is not None:
        return claim.of_part(part)
    return Claim(epsilon=part * plan.epsilon, delta=part * plan.delta)


def _counts(plan: SetUnionPlan, claim: Claim) -> tuple[Game, ...]:
    """Returns the game of numbers of users, if the plan measures them."""
    if claim.mu is not None:
        return count_games(plan, mu=claim.mu, gaussian_delta=claim.gaussian_delta)
    share = plan.count_part
    if not share:
        return ()
    # Beside Laplace noise, the sums of users are a Gaussian mechanism with this part of ε and of δ.
    stddev = gaussian.gaussian_noise_stddev(epsilon=share * plan.epsilon, delta=share * plan.delta)
    return count_games(plan, mu=1 / (stddev * math.sqrt(share)), gaussian_delta=share * plan.delta)


def _as(plan: SetUnionPlan, kind: type[SetUnionPlan]) -> SetUnionPlan:
    return kind(**plan.to_dict())


def _item_number(plan: SetUnionPlan) -> int:
    """Returns the number of items with which a user moves the histogram furthest."""
    return min(plan.contribution_limit, _MOST_ITEMS) if plan.update_policy.rule == "count" else 1


def _play(plan: SetUnionPlan, *, is_alone: bool) -> Play:
    def play(runs: int, key: RunKey) -> Seen:
        seen = [
            _observe(plan, runs, own, present=present, is_alone=is_alone)
            for present, own in zip((True, False), world_keys(key), strict=True)
        ]
        ratios = observations.learned(*seen)
        return Seen(
            *(np.column_stack((r, each[:, 0])) for r, each in zip(ratios, seen, strict=True))
        )

    return play


def _observe(
    plan: SetUnionPlan, runs: int, key: RunKey, *, present: bool, is_alone: bool
) -> np.ndarray:
    """Makes many runs of one world.

    Returns:
      (runs, 1 + 3 · rounds) float64: the number of released items, and for each round their number and
      the sums of how far above the threshold they are, and of its square.
    """
    number = _item_number(plan)
    others = 0 if is_alone else min(_others(plan), max(1, _MOST_USERS // runs))
    at_once = max(1, _ITEMS_AT_ONCE // (number * max(1, others)))
    parts = []
    for start in range(0, runs, at_once):
        size = min(at_once, runs - start)
        users = others if _needs_users(plan) else 0
        items = _users(size, number, users + present, first=start)
        crowd = None if is_alone or users else _crowd(plan, size, number, start)
        parts.append(_decide(plan, items, crowd, key, runs=size, number=number))
    return np.concatenate(parts)


def _decide(
    plan: SetUnionPlan,
    items: UserItems,
    crowd: ItemSums | None,
    key: RunKey,
    *,
    runs: int,
    number: int,
) -> np.ndarray:
    """Decides about the items of some runs, by the product's kernels."""
    released, columns = np.zeros(runs), []
    for decider in plan.union_rounds:
        sums = [weights.histogram(items, plan, key, decider.number)] if len(items.users) else []
        sums += [] if crowd is None else [crowd]
        if not sums:
            columns += [np.zeros(runs)] * 3
            continue
        decision = threshold.decide(merge_sums(sums), plan, key, decider.number)
        run = decision.found.items.cast(pa.int64()).to_numpy() // number
        above = (decision.found.scores - decider.threshold) / decider.noise.stddev
        if crowd is not None:
            above = above - _SURE
        released = released + np.bincount(run, minlength=runs)
        columns += [np.bincount(run, above**power, minlength=runs) for power in range(3)]
        if decider.number < len(plan.union_rounds):
            items = threshold.left_open(items, decision)
    return np.column_stack([released, *columns])


def _needs_users(plan: SetUnionPlan) -> bool:
    """Returns whether the others' weights follow the histogram, or what a round has found."""
    return plan.update_policy.has_cutoff or len(plan.union_rounds) > 1


def _others(plan: SetUnionPlan) -> int:
    """Returns a number of users with one item that fill it to the threshold, or a little less.

    Under a cutoff there is room for one more user.
    """
    last = plan.union_rounds[-1]
    room = last.threshold if last.cutoff is None else min(last.threshold, last.cutoff - 1)
    return max(1, int(room))


def _users(runs: int, number: int, users: int, *, first: int) -> UserItems:
    """Returns so many users in each run, each of whom has all items of the run."""
    total = runs * users
    names, hashes = _items(runs, number, first)
    grams = np.arange(runs)[:, np.newaxis, np.newaxis] * number + np.arange(number)
    held = np.broadcast_to(grams, (runs, users, number)).reshape(-1)
    numbers = (np.arange(total, dtype=np.uint64)) + (np.uint64(first * max(users, 1)) << _BITS)
    return UserItems(
        users=np.stack((numbers, ~numbers), axis=1),
        offsets=np.arange(total + 1) * number,
        items=held.astype(np.int32),
        counts=np.ones(held.size, np.int32),
        words=names,
        word_hashes=hashes,
    )


def _crowd(plan: SetUnionPlan, runs: int, number: int, first: int) -> ItemSums:
    """Returns the sums of others, so many that every item is released in any case."""
    (only,) = plan.union_rounds
    weight = round((only.threshold + _SURE * only.noise.stddev) * UNITS)
    names, hashes = _items(runs, number, first)
    return ItemSums(
        words=names, word_hashes=hashes, width=1, sums=np.full(runs * number, weight, np.int64)
    )


def _items(runs: int, number: int, first: int) -> tuple[pa.Array, np.ndarray]:
    """Returns the names of all items of some runs, and hashes that no other runs have."""
    rows = np.arange(runs * number)
    places = (rows + first * number).astype(np.uint64)
    return pa.array(rows).cast(pa.string()), np.stack((places, ~places), axis=1)
