import numpy as np

from beam_dpne.elements.batches import RowSums


def sums_of_table(table: np.ndarray) -> RowSums:
    """Sums from a table of all rows, most of which nobody adds to."""
    rows = np.flatnonzero(table)
    return RowSums(rows=rows, sums=table[rows])
