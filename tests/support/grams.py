"""The words of n-grams that are given by codes."""

import numpy as np
import pyarrow as pa

from beam_dpne.evaluation.corpus import Corpus
from beam_dpne.mechanism.randomness import RunKey
from beam_dpne.mechanism.rules import LengthRule
from beam_dpne.ngrams.decisions import decide as decide_range
from beam_dpne.ngrams.decisions import decide_round, released_part
from beam_dpne.ngrams.elements import GramSet, HistogramShard


def gram_texts(corpus: Corpus, grams: np.ndarray) -> list[tuple[str, ...]]:
    """The words of (r, k) codes."""
    flat = corpus.words.take(pa.array(grams.reshape(-1))).to_pylist()
    length = grams.shape[1]
    return [tuple(flat[at : at + length]) for at in range(0, len(flat), length)]


def decide(
    shard: HistogramShard,
    *,
    rule: LengthRule,
    run_key: RunKey,
    drawn: HistogramShard | None = None,
) -> GramSet:
    """What a hash range releases after its last round, unsorted, with spurious grams if any."""
    if drawn is None:
        return released_part(decide_round(shard, rule=rule, run_key=run_key))
    return released_part(decide_range(shard, drawn, run_key=run_key))
