"""Users of made-up items, as the set union's functions take them."""

import numpy as np
import pyarrow as pa

from beam_dpne.elements.batches import DocumentBlock
from beam_dpne.mechanism.randomness import RunKey, keyed_hashes
from beam_dpne.set_union.elements import ItemSums
from beam_dpne.set_union.in_memory import UnionInMemory
from beam_dpne.set_union.plan import SetUnionPlan

KEY = RunKey(b"set union".ljust(32, b"."))
ONE = 2**50
FALSE_FAILURE = 1e-6


def users_of(corpus: dict[str, set[str]]) -> DocumentBlock:
    """Users and items by keyed hash, in the order given."""
    names = sorted({item for held in corpus.values() for item in held})
    number = {name: place for place, name in enumerate(names)}
    return DocumentBlock(
        users=keyed_hashes(KEY.sub_key("user"), [user.encode() for user in corpus]),
        offsets=np.cumsum([0, *(len(held) for held in corpus.values())]),
        codes=np.array([number[i] for held in corpus.values() for i in sorted(held)], np.int32),
        words=pa.array(names, pa.string()),
        word_hashes=keyed_hashes(KEY.sub_key("word"), [name.encode() for name in names]),
    )


def held_by(items: DocumentBlock) -> list[set[str]]:
    """The items of each user."""
    names = items.words.to_pylist()
    return [
        {names[item] for item in items.codes[start:end]}
        for start, end in zip(items.offsets[:-1], items.offsets[1:], strict=True)
    ]


def sums_of(sums: ItemSums) -> dict[str, int]:
    """Sums by item."""
    return dict(zip(sums.words.to_pylist(), sums.sums.tolist(), strict=True))


def round_histogram(
    users: DocumentBlock, plan: SetUnionPlan, key: RunKey, number: int = 1
) -> ItemSums:
    """The whole histogram of a round."""
    return UnionInMemory(plan=plan, run_key=key).sum_round([users], number, [])


def weights_of(
    corpus: dict[str, set[str]], plan: SetUnionPlan, key: RunKey, number: int = 1
) -> dict[str, int]:
    """A round's histogram by the package, in units of 2^-50."""
    unit = 1 if plan.has_cutoff else 2**18
    found = sums_of(round_histogram(users_of(corpus), plan, key, number))
    return {item: weight * unit for item, weight in found.items()}


def many_items(count: int, weight: int = 0) -> ItemSums:
    """Items "0", "1", … of one weight."""
    return ItemSums(
        words=pa.array([str(number) for number in range(count)]),
        word_hashes=np.arange(2 * count, dtype=np.uint64).reshape(-1, 2),
        sums=np.full(count, weight),
    )
