"""The words of n-grams that are given by codes."""

import numpy as np
import pyarrow as pa

from beam_dpne.evaluation.corpus import Corpus


def gram_texts(corpus: Corpus, grams: np.ndarray) -> list[tuple[str, ...]]:
    """The words of (r, k) codes."""
    flat = corpus.words.take(pa.array(grams.reshape(-1))).to_pylist()
    length = grams.shape[1]
    return [tuple(flat[at : at + length]) for at in range(0, len(flat), length)]
