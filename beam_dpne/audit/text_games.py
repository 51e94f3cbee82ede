"""The worst cases of n-grams and of set unions: plain runs of the product on made-up corpora.

A corpus has many copies of the user in question, each with words or n-grams that are watched for it
alone. In each run of `release_ngrams` or `release_items` a fair coin decides for each copy whether its
user takes part. So one run gives many observations of both worlds, and the other copies are other
users like any others. The attacker sees released n-grams and scores, and learns from half of the copies
what tells the worlds apart best.
"""

import bisect
import dataclasses
import functools
import itertools
import math
from collections.abc import Callable

import numpy as np
import pyarrow as pa

from beam_dpne.audit.games import (
    FOUR_USERS,
    MECHANISM,
    PEOPLE,
    Claim,
    Game,
    SameNoise,
    Seen,
    count_games,
    key_of,
    learned,
)
from beam_dpne.documents.blocks import with_group
from beam_dpne.elements.arrays import offsets_of, places_in
from beam_dpne.elements.sums import add_at
from beam_dpne.evaluation.corpus import BORDER, Corpus, codes_of_sets
from beam_dpne.lists.known import KnownNgrams
from beam_dpne.mechanism.randomness import RunKey, keyed_bits
from beam_dpne.ngrams.elements import GROUPED_ROOT, ROOT, GramSet
from beam_dpne.ngrams.in_memory import InMemory
from beam_dpne.ngrams.known import root_of
from beam_dpne.ngrams.plan import NgramsPlan
from beam_dpne.set_union.elements import items_of_users
from beam_dpne.set_union.in_memory import release_items
from beam_dpne.set_union.plan import SetUnionPlan

TextPlan = NgramsPlan | SetUnionPlan
# A document as numbers of words, and an n-gram.
Words = tuple[int, ...]
# N-grams are counted by score, two borders an octave.
_SCORE_BORDERS = 2.0 ** np.arange(-3, 5, 0.5)
# Users of a corpus, roughly at most: it bounds the memory.
_MOST_USERS = 200_000
# With so many users the weight of a word that all of them have is searched.
_MOST_TIPPING = 2**17
_TRIED_COPIES = 50
# Copies of two words, and words of which all pairs are copies.
_PAIRS_OF_WORDS = 64
_COMMON_WORDS = 32
_ALONE_LENGTH = 3
ONLY_HELD = "N-grams that nobody has are never released."
# Tolerated spurious n-grams where one user alone has n-grams: with few of them nothing would show.
_MOST_SPURIOUS = 0.5


@dataclasses.dataclass(frozen=True, kw_only=True)
class World:
    """Users with documents.

    Attributes:
      own: the documents of the user of each copy, repeatedly if the user counts as several.
      others: documents of other users, and how many users have each of them as their only document.
      watched: for each copy its n-grams by kind; the attacker learns what each kind tells.
      knows_words: whether the run knows all words.
      is_grouped: whether words have groups; each word is then the only one of its group.
    """

    own: tuple[tuple[Words, ...], ...]
    others: tuple[tuple[Words, int], ...]
    watched: tuple[tuple[tuple[Words, ...], ...], ...]
    knows_words: bool = False
    is_grouped: bool = False

    @functools.cached_property
    def root(self) -> GramSet | None:
        """The root of the known words, if any are known."""
        if not self.knows_words:
            return None
        rows = np.arange(len(self.corpus.words), dtype=np.int32)[:, np.newaxis]
        return root_of(KnownNgrams.of_codes(self.corpus.words, [rows]), 1)

    @functools.cached_property
    def corpus(self) -> Corpus:
        """All users, those of copies first; the word of a number is its decimal number."""
        texts = [tuple(word for text in own for word in (*text, BORDER)) for own in self.own]
        for text, number in self.others:
            texts += [(*text, BORDER)] * number
        codes = np.fromiter(itertools.chain.from_iterable(texts), np.int32)
        words = pa.array([f"{number:08}" for number in range(codes.max() + 1)])
        if self.is_grouped:
            words = with_group(words, pa.array([["word"]] * len(words))).values
        return Corpus(
            words=words,
            users=pa.array(range(len(texts))),
            offsets=offsets_of(np.array([len(text) for text in texts])),
            codes=codes,
            tokenizer="tokens",
        )

    @functools.cached_property
    def places(self) -> dict[Words, tuple[int, int]]:
        """The copy and the kind of each n-gram that is watched."""
        return {
            gram: (copy, kind)
            for copy, kinds in enumerate(self.watched)
            for kind, grams in enumerate(kinds)
            for gram in grams
        }

    def observe(self, plan: TextPlan, present: np.ndarray, run_key: RunKey) -> np.ndarray:
        """Releases the corpus, and returns what the attacker sees of each copy.

        Args:
          plan: the plan of the run.
          present: (copies,) bool, which users of copies take part.
          run_key: of the run.

        Returns:
          (copies, statistics) float64: of each kind of n-grams the number of released ones, the sums of
          their scores and of their squares, and how many have about each score.
        """
        others = np.arange(len(self.own), len(self.corpus.users))
        users = np.append(np.flatnonzero(np.resize(present, len(self.own))), others)
        batch = self.corpus.of_users(users).batch(run_key)
        if isinstance(plan, SetUnionPlan):
            found = release_items(items_of_users(batch), plan, run_key)
            released = [(places_in(found.items, self.corpus.words)[:, np.newaxis], found.scores)]
        else:
            start = GROUPED_ROOT if self.is_grouped else ROOT
            sets = InMemory(plan=plan, run_key=run_key, root=self.root, start=start).release(
                [batch]
            )
            scores = [grams.scores for grams in sets]
            released = zip(codes_of_sets(self.corpus, sets), scores, strict=True)
        seen = np.zeros((len(self.watched), len(self.watched[0]), 4 + _SCORE_BORDERS.size))
        for grams, scores in released:
            rows = [
                (row, *self.places[gram])
                for row, gram in enumerate(map(tuple, grams.tolist()))
                if gram in self.places
            ]
            row, copies, kinds = np.array(rows, np.int64).reshape(-1, 3).T
            powers = scores[row, np.newaxis] ** np.arange(3)
            add_at(seen[..., :3], (copies, kinds), powers)
            near = 3 + np.searchsorted(_SCORE_BORDERS, scores[row])
            add_at(seen, (copies, kinds, near), 1)
        return seen.reshape(len(self.watched), -1)


def union_games(plan: SetUnionPlan) -> tuple[Game, ...]:
    """Returns all games of a set union."""
    claim = Claim.of_plan(plan.epsilon, plan.delta, plan.vocabulary_delta_share)
    items = _words(plan, "items", claim.of_part(1 - plan.count_share))
    return (items, *count_games(plan.count_share, plan.count_noise, claim))


def gram_games(plan: NgramsPlan) -> tuple[Game, ...]:
    """Returns all games of a plan of n-grams."""
    claim = Claim.of_plan(plan.epsilon, plan.delta, plan.vocabulary_delta_share or 0.0)
    games = [_words(plan, "words", claim.of_part(_part(plan, 1)))]
    games.append(_groups(plan, claim.of_part(_part(plan, 1))))
    if plan.is_adaptive:
        games.append(_known_words(plan, claim.of_part(_part(plan, 1))))
    if plan.max_length > 1:
        longest = min(plan.max_length, _ALONE_LENGTH)
        games.append(_alone(plan, longest, claim.of_part(_part(plan, longest))))
        games.append(_many(plan, claim.of_part(_part(plan, 2))))
    return (*games, *count_games(plan.count_share, plan.count_noise, claim))


def _part(plan: NgramsPlan, longest: int) -> float:
    """Returns the part of μ² that n-grams up to a length have."""
    # Under adaptive users divide one budget among the lengths, and may spend all of it on the first.
    shares = (1.0,) if plan.is_adaptive else plan.shares
    return min(1.0, math.fsum(shares[:longest])) * (1 - plan.count_share)


def _words(plan: TextPlan, name: str, claim: Claim) -> Game:
    """A user has one word that nobody else has, and two whose weights are near the threshold."""
    play = functools.partial(_play, lambda: _word_world(_tipping(plan)), plan)
    return Game(
        name=name,
        claim=claim,
        plays={
            MECHANISM: play,
            FOUR_USERS: functools.partial(play, people=PEOPLE),
            "One person is counted as so many users that what they alone have is "
            "released.": functools.partial(play, counts_as_crowd=True),
        },
    )


def _word_world(others: int, copies: int = 0, near: int = 2) -> World:
    """Words of a user that so many others have each, two or more, and one that nobody else has."""
    copies = copies or max(1, _MOST_USERS // (near * others + 1))
    numbers = np.arange(copies * (near + 1)).reshape(copies, -1, 1)
    words = [tuple(map(tuple, own)) for own in numbers.tolist()]
    return World(
        own=tuple(words),
        others=tuple((word, others) for own in words for word in own[:-1]),
        watched=tuple((own[:-1], own[-1:]) for own in words),
    )


def _groups(plan: NgramsPlan, claim: Claim) -> Game:
    """As for words, but others have eight of a user's words, and each word is alone in its group."""

    def build() -> World:
        return dataclasses.replace(_word_world(_tipping(plan), near=8), is_grouped=True)

    def apart() -> World:
        texts = itertools.chain.from_iterable(zip(*build().own, strict=True))
        return dataclasses.replace(build(), own=tuple((text,) for text in texts))

    plays = {MECHANISM: functools.partial(_play, build, plan)}
    plays["A user has one budget in each group."] = functools.partial(_play, apart, plan)
    return Game(name="words of groups", claim=claim, plays=plays)


def _known_words(plan: NgramsPlan, claim: Claim) -> Game:
    """As for words, in a run that knows all of them; nobody has many of them without the user."""
    patient = _patient(plan)

    def build(others: int, copies: int = 0) -> World:
        return dataclasses.replace(_word_world(others, copies), knows_words=True)

    tried = functools.partial(build, copies=_TRIED_COPIES)
    play = functools.partial(_play, lambda: build(_tipping_number(tried, patient)), patient)
    return Game(
        name="known words",
        claim=claim,
        plays={
            MECHANISM: play,
            ONLY_HELD: functools.partial(play, only_held=True),
            FOUR_USERS: functools.partial(play, people=PEOPLE),
        },
    )


def _patient(plan: NgramsPlan) -> NgramsPlan:
    return dataclasses.replace(plan, spurious_fraction=max(plan.spurious_fraction, _MOST_SPURIOUS))


def _alone(plan: NgramsPlan, longest: int, claim: Claim) -> Game:
    """A user has all short sequences of two common words, which nobody else has."""
    patient = _patient(plan)
    play = functools.partial(_play, lambda: _alone_world(2 * _tipping(plan), longest), patient)
    same = functools.partial(play, key_kind=SameNoise)
    return Game(
        name="n-grams of one user",
        claim=claim,
        plays={
            MECHANISM: play,
            ONLY_HELD: functools.partial(play, only_held=True),
            "Every round of a length has the same noise.": same,
        },
    )


def _alone_world(others: int, longest: int) -> World:
    """All sequences of two words that are released anyway; nobody else has them."""
    pairs = [(2 * copy, 2 * copy + 1) for copy in range(_PAIRS_OF_WORDS)]
    texts = [(a, a, b, b, a) if longest == 2 else (a, a, a, b, a, b, b, b, a, a) for a, b in pairs]
    return World(
        own=tuple((text,) for text in texts),
        others=tuple(((word,), others) for pair in pairs for word in pair),
        watched=tuple(
            tuple(tuple(itertools.product(pair, repeat=k)) for k in range(2, longest + 1))
            for pair in pairs
        ),
    )


def _many(plan: NgramsPlan, claim: Claim) -> Game:
    """A user has two common words, in an order that others have so that it is at the threshold."""

    def build(others: int) -> World:
        """A pair of common words for each copy, which so many others have."""
        pairs = tuple(itertools.product(range(_COMMON_WORDS), repeat=2))
        words = tuple(((word,), 2 * _tipping(plan)) for word in range(_COMMON_WORDS))
        return World(
            own=tuple((pair,) for pair in pairs),
            others=(*((pair, others) for pair in pairs), *words),
            watched=tuple(((pair,),) for pair in pairs),
        )

    play = functools.partial(_play, lambda: build(_tipping_number(build, plan)), plan)
    return Game(
        name="n-grams of many users",
        claim=claim,
        plays={MECHANISM: play, FOUR_USERS: functools.partial(play, people=PEOPLE)},
    )


@functools.cache
def _tipping(plan: TextPlan) -> int:
    """Returns so many users with one word that it is released about every other time."""
    return _tipping_number(functools.partial(_word_world, copies=_TRIED_COPIES), plan)


def _tipping_number(build: Callable[[int], World], plan: TextPlan) -> int:
    """Returns the least number of others with which half of what is watched is released."""

    def is_enough(others: int) -> bool:
        world = build(others)
        nobody = np.zeros(len(world.own), bool)
        seen = world.observe(plan, nobody, key_of(0, "others", others))
        return seen[:, 0].mean() >= len(world.watched[0][0]) / 2

    high = 1
    while high < _MOST_TIPPING and not is_enough(high):
        high *= 2
    tried = range(high // 2 + 1, high)
    return high // 2 + 1 + bisect.bisect_left(tried, True, key=is_enough)


def _play(
    build: Callable[[], World],
    plan: TextPlan,
    runs: int,
    key: RunKey,
    *,
    people: int = 1,
    counts_as_crowd: bool = False,
    only_held: bool = False,
    key_kind: type[RunKey] = RunKey,
) -> Seen:
    """Makes runs until each world of the user has so many copies.

    Args:
      build: makes the corpus.
      plan: of each run.
      runs: the number of copies with the user, and of those without.
      key: of all runs.
      people: as how many users the user of each copy counts, a planted mistake beyond 1.
      counts_as_crowd: whether the user counts as so many that a word of theirs alone is released about
        every other time, a planted mistake.
      only_held: n-grams that nobody has are dropped from the release, a planted mistake.
      key_kind: of the keys of runs; other kinds are planted mistakes.
    """
    world = build()
    if counts_as_crowd:
        people = _tipping(plan)
    crowd = dataclasses.replace(world, own=world.own * people)
    taken = np.zeros(0, bool)
    seen = []
    while min(np.count_nonzero(taken), np.count_nonzero(~taken)) < runs:
        own = key_kind(key.bound_to(f"run {len(seen)}").sub_key("run"))
        coins = keyed_bits(own.sub_key("presence"), 0, np.arange(len(world.watched)))[:, 0]
        takes_part = (coins & np.uint64(1)).astype(bool)
        shown = crowd.observe(plan, takes_part, own)
        seen.append(shown * takes_part[:, np.newaxis] if only_held else shown)
        taken = np.append(taken, takes_part)
    shown = np.concatenate(seen)
    return learned(Seen(shown[taken][:runs], shown[~taken][:runs]))
