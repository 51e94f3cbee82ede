"""Finds the n-grams of a public list in texts."""

import numpy as np
import pyarrow as pa

from beam_dpne.elements.arrays import places_in


def find_rows(ids: np.ndarray, grams: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Returns the position and the row of each n-gram that a text has: (m,) int64 each.

    Args:
      ids: (p,) int32, the word at each position by its code; −1 for other words, and between documents.
      grams: (n, k) int32, the codes of each n-gram's words, and −1 after them.
    """
    sizes = (grams >= 0).sum(axis=1)
    found = [(np.zeros(0, np.int64), np.zeros(0, np.int64))]
    for size in np.unique(sizes).tolist():
        rows = np.flatnonzero(sizes == size)
        starts, windows = _windows(ids, size)
        places = places_in(gram_keys(windows), gram_keys(grams[rows, :size]))
        found.append((starts[places >= 0], rows[places[places >= 0]]))
    return np.concatenate([each[0] for each in found]), np.concatenate([each[1] for each in found])


def _windows(ids: np.ndarray, length: int) -> tuple[np.ndarray, np.ndarray]:
    """Returns where the runs of n known words begin, (m,) int64, and these runs, (m, n) int32."""
    if ids.size < length:
        return np.zeros(0, np.int64), np.zeros((0, length), np.int32)
    windows = np.lib.stride_tricks.sliding_window_view(ids, length)
    # The bitwise or of n words is negative if one of them is −1.
    starts = np.flatnonzero(np.bitwise_or.reduce(windows.T) >= 0)
    return starts, windows[starts]


def gram_keys(codes: np.ndarray) -> pa.Array:
    """Returns each gram, a row of its words' ids, as one value by which Arrow finds and counts it."""
    ids = np.ascontiguousarray(codes, dtype=np.int32)
    kind = pa.binary(ids.itemsize * ids.shape[1])
    return pa.Array.from_buffers(kind, len(ids), [None, pa.py_buffer(ids)])
