"""The draw of spurious n-grams: those that noise alone would release.

Each candidate that nobody holds is drawn with the probability Σ_r P_r of its class, with a round and
the cell of its noise. Known n-grams stand in lists, so that each is drawn by its own key. The others
are too many: of each class a Poisson number of uniform members is drawn, repeated ones are merged, and
known ones are dropped, since the law of their family has drawn them already.
"""

import math

import numpy as np

from beam_dpne.elements.arrays import hash_words
from beam_dpne.mechanism import randomness, thresholds
from beam_dpne.mechanism.randomness import RunKey
from beam_dpne.mechanism.rules import KNOWN_CLASS, ClassRule, LengthRule
from beam_dpne.ngrams.elements import GramSet, HistogramShard
from beam_dpne.ngrams.histogram import join_open
from beam_dpne.ngrams.keys import Pairs, Words, no_keys
from beam_dpne.ngrams.valid import class_numbers, class_sizes, known_words, members

_PURPOSES = ("spurious round", "spurious noise")


def sample_spurious(previous: GramSet, *, rule: LengthRule, run_key: RunKey) -> HistogramShard:
    """Draws each member of V_c with Σ_r P_{r,c}, with the round and the cell of its noise.

    Returns:
      What was drawn as it stands after the first round, of all hash ranges, with members that somebody
      holds: they must be dropped, since the noise on their weights decides them.
    """
    if previous.length == 0:
        return _sample_words(previous, rule, run_key)
    sizes = class_sizes(previous, rule.pruning, by_prediction=rule.by_prediction)
    present = [own for own in rule.classes if own.number in sizes and not own.is_known]
    chosen = {}
    for own in present:
        # Known members are numbered as well.
        size = sizes[own.number] + sizes.get(own.number + KNOWN_CLASS, 0)
        chosen[own.number] = _chosen(size, own, rule.length, run_key)
    drawn = members(previous, chosen, rule.pruning, by_prediction=rule.by_prediction)
    parts = [_sampled_class(previous, drawn[own.number], own, rule, run_key) for own in present]
    if previous.candidates.known is not None:
        known = Pairs(previous.candidates.known)
        bits = _bits(known, rule.length, run_key)
        numbers = class_numbers(previous, previous.candidates.known)
        parts += [
            _listed(known, bits, numbers == own.number, own, rule)
            for own in rule.classes
            if own.is_known
        ]
    return join_open([_nothing(rule), *parts])


def _sample_words(root: GramSet, rule: LengthRule, run_key: RunKey) -> HistogramShard:
    """Draws known words, each by its hash; words that nobody knows are never spurious."""
    texts = known_words(root)
    words = Words.numbered(texts, hash_words(run_key.sub_key("word"), texts))
    bits = _bits(words, 1, run_key)
    everything = np.ones(len(words), bool)
    known = [_listed(words, bits, everything, own, rule) for own in rule.classes if own.is_known]
    return join_open([_nothing(rule), *known])


def _nothing(rule: LengthRule) -> HistogramShard:
    """Returns the result where nothing is drawn, which has the rule of the length all the same."""
    nothing = np.zeros(0)
    return _with_cells(no_keys(rule.length), nothing, nothing, ClassRule(rounds=()), rule)


def _chosen(size: int, own: ClassRule, length: int, run_key: RunKey) -> np.ndarray:
    """Returns a Poisson number of uniform draws from a class's numbers: (draws,) int64."""
    number = np.int64(own.number)
    mean = -size * math.log1p(-own.null_probability)
    blocks = np.arange(randomness.poisson_blocks(mean), dtype=np.uint64)
    count_bits = randomness.keyed_bits(run_key.sub_key("spurious count", length), number, blocks)
    draws = np.arange(randomness.poisson(count_bits, mean), dtype=np.uint64)
    bits = randomness.keyed_bits(run_key.sub_key("spurious draw", length), number, draws)
    return randomness.scaled_integers(bits, size)


def _sampled_class(
    previous: GramSet, drawn: np.ndarray, own: ClassRule, rule: LengthRule, run_key: RunKey
) -> HistogramShard:
    """Returns drawn members of one class, each once, without known ones."""
    # (s,) int64: draws of the same member are merged.
    keys = np.sort(drawn)
    keys = keys[np.diff(keys, prepend=-1) != 0]
    if previous.candidates.known is not None:
        keys = keys[class_numbers(previous, keys) == own.number]
    members_drawn = Pairs(keys)
    round_bits, noise_bits = _bits(members_drawn, rule.length, run_key)
    # (s,) float64 in (0, p]: the round in which each is found is r with probability P_r/p.
    places = randomness.uniforms(round_bits) * own.null_probability
    return _with_cells(members_drawn, places, noise_bits, own, rule)


def _bits(ngrams: Words | Pairs, length: int, run_key: RunKey) -> list[np.ndarray]:
    """Returns the keyed bits of each n-gram's round and noise: (s, 2) uint64 each."""
    return [ngrams.noise_bits(run_key.sub_key(each, length)) for each in _PURPOSES]


def _listed(
    ngrams: Words | Pairs,
    bits: list[np.ndarray],
    chosen: np.ndarray,
    own: ClassRule,
    rule: LengthRule,
) -> HistogramShard:
    """Draws each of the chosen ones of (n,) listed candidates with its probability, independently."""
    places = randomness.uniforms(bits[0])
    drawn = np.flatnonzero(chosen & (places <= own.null_probability))
    return _with_cells(ngrams.select(drawn), places[drawn], bits[1][drawn], own, rule)


def _with_cells(
    ngrams: Words | Pairs,
    places: np.ndarray,
    bits: np.ndarray,
    own: ClassRule,
    rule: LengthRule,
) -> HistogramShard:
    """Returns drawn n-grams of a class with their cells, rounds and classes.

    Args:
      ngrams: s of them.
      places: (s,) float64, uniform in (0, Σ_r P_r]; the r-th part of it stands for round r.
      bits: (s, 2) uint64, of their noise.
      own: the class's rule.
      rule: that of the length.
    """
    borders = np.cumsum([each.null_probability for each in own.rounds[:-1]])
    rounds = (1 + np.searchsorted(borders, places)).astype(np.int8)
    size = len(ngrams)
    cells = np.zeros(size, dtype=np.int64)
    for found in np.unique(rounds).tolist():
        inside = rounds == found
        cells[inside] = thresholds.spurious_cells(
            bits[inside], own.rounds, found, rule.noise_stddev
        )
    return HistogramShard(
        length=rule.length,
        # It joins what round 1 has decided, which round 2 takes.
        round=2,
        keys=ngrams.keys,
        words=ngrams.words,
        word_hashes=ngrams.word_hashes,
        weights=np.zeros(size, np.int64),
        classes=np.full(size, own.number, np.int16) if rule.by_prediction else None,
        earlier=np.zeros((1, size), np.int64),
        found=rounds,
        cells=cells,
        rule=rule,
    )
