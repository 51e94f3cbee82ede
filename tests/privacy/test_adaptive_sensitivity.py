"""Adaptive rounds: on one public past a user moves the sums of all rounds by μ at most, in integers.

Neighbours are a corpus and the corpus without one user. Both go through the product's loop; what is
found, open or closed after each round is drawn at random over all valid n-grams, the same for both, as
the proof asks. Other users must then send the same to the last unit.
"""

import collections
import dataclasses
import itertools
import random
from collections.abc import Sequence
from fractions import Fraction

import numpy as np
import pyarrow as pa
from hypothesis import event, given, settings
from hypothesis import strategies as st

from beam_dpne import KnownNgrams, NgramsPlan, RunKey
from beam_dpne.documents.blocks import (
    encode_documents,
    hash_users,
    lay_out_positions,
    split_by_user,
    with_group,
)
from beam_dpne.mechanism.rules import KNOWN_CLASS, LengthRule
from beam_dpne.ngrams import adaptive
from beam_dpne.ngrams.contributions import Counted
from beam_dpne.ngrams.decisions import _known_after
from beam_dpne.ngrams.elements import ROOT, Past
from beam_dpne.ngrams.in_memory import InMemory
from beam_dpne.ngrams.keys import pack_pairs, unpack_pairs
from beam_dpne.ngrams.known import root_of
from beam_dpne.ngrams.length_rules import counted_classes, rule_for
from beam_dpne.ngrams.valid import class_numbers, suffix_bins
from beam_dpne.steps import GramSet, PresentGrams
from tests.privacy.test_sensitivity import WORDS, Corpus, corpora

KEY = RunKey(b"adaptive sensitivity".ljust(32, b"."))
# Budgets are in units of 2^-56, squares of weights in units of 2^-64.
SQUARES = 2**8
Place = tuple[int, int]
User = tuple[int, ...]
# For each place (length, round) and user: gram → weight.
Sent = dict[Place, dict[User, dict[object, int]]]


@st.composite
def plans(draw) -> NgramsPlan:
    return NgramsPlan(
        epsilon=draw(st.sampled_from([0.5, 4.0, 25.0])),
        delta=draw(st.sampled_from([1e-6, 0.3])),
        max_length=draw(st.integers(1, 4)),
        max_contributions=draw(st.sampled_from([1, 2, 5, 300])),
        spurious_fraction=0.3,
        rounds=draw(st.sampled_from([1, 2, 3])),
        favour=draw(st.sampled_from(["balanced", "long"])),
        max_tokens_per_user=1000,
    )


@given(
    corpora,
    plans(),
    st.integers(0, 2**32),
    st.integers(1, 4),
    st.integers(0, 3),
    st.none() | st.lists(st.text("abcd", min_size=1, max_size=3), max_size=20),
)
@settings(max_examples=80, deadline=None)
def test_removing_any_user_moves_the_sums_of_all_rounds_by_at_most_the_budget(
    corpus, plan, seed, partitions, groups, known
):
    """Also if a user has texts, the same ones or others, in several groups: there is one budget.

    Also with known n-grams: words, classes' counts and the two counts of known words share it.
    """
    corpus = {user: in_groups(own, groups) for user, own in corpus.items()}
    words = list(itertools.chain(*in_groups([[*WORDS]], groups)))
    event(f"groups of a user: {max(len({t[0][:1] for t in own if t}) for own in corpus.values())}")
    root = grouped_root(known, words)
    steps = steps_on_one_past(corpus, plan, seed, partitions, words, root)
    whole = steps.sent
    event(f"lengths with known classes that are counted: {sorted(known_counts(steps))}")
    budget = adaptive.user_budget(plan.ngrams_noise_stddev) * SQUARES
    event(f"rounds in which something was sent: {sum(map(bool, map(any_weight, whole.values())))}")
    for user in corpus:
        name = hash_of(user)
        less = steps_on_one_past(
            {other: own for other, own in corpus.items() if other != user},
            plan,
            seed,
            partitions,
            words,
            root,
        )
        without = less.sent
        squares: collections.Counter = collections.Counter()
        for place in whole:
            others = {each: own for each, own in whole[place].items() if own and each != name}
            # Who sends nothing may be there still, as others of the batch have positions.
            assert others == {each: own for each, own in without.get(place, {}).items() if own}
            with_user, rest = added_up(whole[place]), added_up(without.get(place, {}))
            moves = [weight - rest.get(gram, 0) for gram, weight in with_user.items()]
            assert rest.keys() <= with_user.keys()
            assert sum(move != 0 for move in moves) <= plan.contribution_limits[place[0] - 1]
            squares[place[0]] += sum(move**2 for move in moves)
        for length, counted in steps.counted.items():
            # Of counts of held candidates, in units of s: as much as their noise covers.
            with_user = held_of(steps.tallied.get(length, {}), counted)
            rest = held_of(less.tallied.get(length, {}), counted)
            counts = [Fraction(a - b, 2**40) for a, b in zip(with_user, rest, strict=True)]
            moved = sum(count**2 for count in counts) / Fraction(plan.held_stddev) ** 2
            # What is charged covers the farthest that the user could move them, whoever the others are.
            farthest = farthest_move(steps.tallied.get(length, {}).get(name, {}), counted, plan)
            assert moved <= farthest
            squares[length] += farthest * 2**64
            event(f"a count of held candidates moved: {moved > 0}")
            event(f"it moved by less than the farthest: {moved < farthest}")
        assert squares.total() <= budget


def in_groups(texts: list[list[str]], groups: int) -> list[list[str]]:
    """The texts in each of so many groups, which the product puts in front of words; 0 is without."""
    if not groups:
        return texts
    names = [str(group) for group in range(groups) for _ in texts]
    tokens = pa.array([*texts] * groups, pa.list_(pa.string()))
    return with_group(pa.array(names), tokens).to_pylist()


def test_a_user_with_open_grams_to_the_end_reaches_the_budget():
    """So that the bound above is not one that nobody comes near, over words and longer n-grams."""
    plan = NgramsPlan(
        epsilon=4,
        delta=0.3,
        max_length=3,
        max_tokens_per_user=1000,
    )
    budget = adaptive.user_budget(plan.ngrams_noise_stddev) * SQUARES
    corpus = {"ann": [list("abcdabdcbacd")], "bob": [list("dcba")]}
    closest = 0
    for seed in range(20):
        steps = steps_on_one_past(corpus, plan, seed, 1)
        own = [weights.get(hash_of("ann"), {}) for weights in steps.sent.values()]
        squares = sum(weight**2 for weights in own for weight in weights.values())
        for length, counted in steps.counted.items():
            tallied = steps.tallied.get(length, {}).get(hash_of("ann"), {})
            squares += farthest_move(tallied, counted, plan) * 2**64
        assert squares <= budget
        closest = max(closest, squares)
    assert closest > 0.999 * budget


def grouped_root(known: list[str] | None, words: Sequence[str]) -> GramSet | None:
    """The root of some n-grams in each group, and of words that nobody has, so that words count."""
    if known is None:
        return None
    heads = sorted({word[:-1] for word in words})
    grams = [tuple(head + word for word in gram) for head in heads for gram in known]
    known = KnownNgrams.of([*grams, *((f"unheld {number}",) for number in range(300))])
    return root_of(known, 4)


def known_counts(steps: "OnePast") -> set[int]:
    """The lengths at which somebody sends something for known n-grams."""
    return {
        length
        for length, users in steps.tallied.items()
        for own in users.values()
        for number, tally in own.values()
        if number > KNOWN_CLASS // 2 and tally
    }


def test_a_user_pays_for_counts_of_known_words_and_of_longer_ones():
    """So that the bound above is one on something."""
    plan = NgramsPlan(epsilon=25, delta=0.3, max_length=2, max_tokens_per_user=1000)
    corpus = {"ann": [list("abcdabdcbacd")], "bob": [list("dcba")]}
    pairs = ["".join(pair) for pair in itertools.product("abcd", repeat=2)]
    root = grouped_root([*"abcd", *pairs], WORDS)
    seen = set()
    for seed in range(20):
        steps = steps_on_one_past(corpus, plan, seed, 1, WORDS, root)
        seen |= known_counts(steps)
        own = steps.tallied[1][hash_of("ann")]
        assert farthest_move(own, steps.counted[1], plan) > 0
    assert 1 in seen


def held_of(tallied: dict[User, dict[int, tuple[int, int]]], counted: Counted) -> list[int]:
    """h_G of each group in units of 2^-40: Σ ω·min(1, Σ_u t_u), in exact integers."""
    sums: dict[tuple[int, int], int] = {}
    for own in tallied.values():
        for gram, (number, tally) in own.items():
            sums[gram, number] = sums.get((gram, number), 0) + tally
    held = [0] * len(counted.groups)
    columns = (counted.numbers.tolist(), counted.factors.tolist(), counted.places.tolist())
    of_class = {number: (factor, place) for number, factor, place in zip(*columns, strict=True)}
    for (_, number), total in sums.items():
        if number in of_class:
            factor, place = of_class[number]
            held[place] += factor * min(total, 2**24)
    return held


def farthest_move(own: dict[int, tuple[int, int]], counted: Counted, plan: NgramsPlan) -> Fraction:
    """Σ_G (t·n_G/s)², the square of the farthest that a user can move the counts, exactly."""
    alone = held_of({(0, 0): own}, counted)
    return sum((Fraction(held, 2**40) ** 2 for held in alone), Fraction()) / (
        Fraction(plan.held_stddev) ** 2
    )


def steps_on_one_past(
    corpus: Corpus,
    plan: NgramsPlan,
    seed: int,
    partitions: int,
    words: Sequence[str] = WORDS,
    root: GramSet | None = None,
) -> "OnePast":
    """A run whose released past is drawn from the seed."""
    steps = OnePast(
        plan=plan,
        run_key=KEY,
        seed=seed,
        words=words,
        root=root,
    )
    rows = [(user, text) for user, own in corpus.items() for text in own]
    tokens = pa.array([text for _, text in rows], pa.list_(pa.string()))
    names = hash_users(pa.array([user for user, _ in rows], pa.string()), KEY.sub_key("user"))
    block = encode_documents(names, tokens)
    batches = [
        lay_out_positions(part, KEY.sub_key("word")) for _, part in split_by_user(block, partitions)
    ]
    steps.release(batches)
    return steps


@dataclasses.dataclass(kw_only=True)
class OnePast(InMemory):
    """The product's steps for users; what is decided does not follow from what they send.

    Each n-gram of V_k, whether or not somebody holds it, is found, left open at some cell, or closed,
    as the seed, its length, the round and its key say.

    Attributes:
      seed: of the past.
      words: all words that anybody may have.
      sent: what users send.
      tallied: for each length and user the class and the tally of each candidate.
      counted: the counted groups of each length.
      state: of the length: for each n-gram that is open or found the round in which it was found, or 0,
        and its cell.
    """

    seed: int
    words: Sequence[str] = WORDS
    sent: Sent = dataclasses.field(default_factory=dict)
    tallied: dict = dataclasses.field(default_factory=dict)
    counted: dict[int, Counted] = dataclasses.field(default_factory=dict)
    state: dict[object, tuple[int, int]] = dataclasses.field(default_factory=dict)

    def sums(self, sent):
        here = self.sent.setdefault((sent.length, sent.round), {})
        names = sent.keys.tolist()
        if sent.words is not None:
            names = sent.words.take(sent.keys).to_pylist()
        borders = itertools.pairwise(sent.offsets.tolist())
        for user, (start, stop) in zip(sent.users.tolist(), borders, strict=True):
            weights = sent.weights[start:stop].tolist()
            here[tuple(user)] = dict(zip(names[start:stop], weights, strict=True))
            if sent.tallies is not None:
                pairs = zip(
                    sent.classes[start:stop].tolist(),
                    sent.tallies[start:stop].tolist(),
                    strict=True,
                )
                own = dict(zip(names[start:stop], pairs, strict=True))
                self.tallied.setdefault(sent.length, {})[tuple(user)] = own
        return []

    def release_length(self, length, users, past):
        previous = past.released
        known = ROOT if previous is None else previous
        rule = rule_for(self.plan, known)
        if previous is not None:
            self.counted[length] = counted_classes(previous, self.plan.held_stddev)
        last = self.plan.rounds_of(length)
        for number in range(1, last + 1):
            self.sent.setdefault((length, number), {})
            _, users = self.contribute(length, number, users, past)
            assert all((batch.left >= 0).all() for batch in users)
            self._draw(length, number, previous, rule)
            if number < last:
                present = self._present(known, number, rule)
                past = Past(released=previous, present=present, positions=past.present)
        return self._found(known, rule), users, past.present

    def _present(self, known, number, rule):
        length, names = known.length + 1, sorted(self.state)
        rounds, cells = np.array([self.state[name] for name in names]).reshape(-1, 2).T
        keys = np.arange(len(names)) if length == 1 else np.array(names, np.int64)
        return PresentGrams(
            length=length,
            round=number,
            keys=keys,
            cells=np.where(rounds > 0, 0, cells).astype(np.int32),
            found=(rounds > 0).astype(np.int8),
            words=pa.array(names, pa.string()) if length == 1 else None,
            classes=None if length == 1 else class_numbers(known, keys),
            parent_size=len(known),
            vocabulary_size=known.vocabulary_size,
            rule=rule if names else None,
        )

    def _found(self, known, rule):
        found = sorted(name for name, (number, _) in self.state.items() if number)
        scores = random.Random(f"{self.seed} scores {rule.length}")
        is_first = rule.length == 1
        keys = np.arange(len(found)) if is_first else np.array(found, np.int64)
        words = pa.array(found, pa.string()) if is_first else None
        return GramSet(
            length=rule.length,
            keys=keys,
            scores=np.array([scores.uniform(-1, 9) for _ in found]),
            words=words,
            parent_size=len(known),
            vocabulary_size=len(found) if is_first else known.vocabulary_size,
            rule=rule,
            candidates=dataclasses.replace(
                _known_after(known, keys, words), suffix_bins=suffix_bins(known, keys)
            ),
        )

    def _draw(self, length: int, number: int, previous: GramSet | None, rule: LengthRule) -> None:
        """Draws what becomes of the n-grams that are open; they are all of V_k in round 1."""
        if number <= 1:
            self.state = dict.fromkeys(valid_names(previous, self.words), (0, 0))
        cut = rule.rounds[number - 1].cut_cell if rule.rounds else 0
        is_last = number == len(rule.rounds)
        for name, (found, _) in list(self.state.items()):
            rng = random.Random(f"{self.seed} {length} {number} {name}")
            fate = rng.random()
            if found:
                continue
            if fate < (0.7 if is_last else 0.3):
                self.state[name] = number, 0
            elif fate < 0.9 and cut < 0:
                self.state[name] = 0, rng.randrange(cut, 0)
            else:
                del self.state[name]


def valid_names(previous: GramSet | None, words: Sequence[str]) -> list[object]:
    """All members of V_k: words at k = 1, else packed pairs."""
    if previous is None or previous.length == 0:
        return list(words)
    size = len(previous)
    firsts, seconds = (part.tolist() for part in unpack_pairs(previous.keys))
    pairs = (
        (a, b)
        for a, b in itertools.product(range(size), range(size))
        if previous.length == 1 or seconds[a] == firsts[b]
    )
    return [int(pack_pairs(np.array([a]), np.array([b]))[0]) for a, b in pairs]


def added_up(sent: dict[User, dict[object, int]]) -> dict[object, int]:
    """The histogram of a round, exactly."""
    sums: dict[object, int] = {}
    for weights in sent.values():
        for gram, weight in weights.items():
            sums[gram] = sums.get(gram, 0) + weight
    return sums


def any_weight(sent: dict[User, dict[object, int]]) -> bool:
    return any(weight for weights in sent.values() for weight in weights.values())


def hash_of(user: str) -> User:
    (name,) = hash_users(pa.array([user]), KEY.sub_key("user")).tolist()
    return tuple(name)
