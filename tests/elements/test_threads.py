"""Threads: results in order, errors as they are, and bounded numbers of waiting calls."""

import threading
import time

import pytest

from beam_dpne.elements.arrays import map_in_threads


@pytest.mark.parametrize("workers", [1, 2, 5])
def test_results_are_in_the_order_of_the_items(workers):
    def slow_first(n: int) -> int:
        time.sleep(0.01 if n == 0 else 0)
        return n * n

    assert map_in_threads(slow_first, range(20), workers) == [n * n for n in range(20)]


def test_several_threads_work_at_the_same_time():
    met = threading.Barrier(2, timeout=30)
    assert map_in_threads(lambda _: met.wait() in (0, 1), range(2), 2) == [True, True]


@pytest.mark.parametrize("workers", [1, 2])
def test_an_error_is_raised_and_items_that_wait_are_left_out(workers):
    begun = []

    def fail(n: int) -> None:
        begun.append(n)
        if n:
            time.sleep(0.001)
        raise KeyError(n)

    with pytest.raises(KeyError, match="0"):
        map_in_threads(fail, range(1000), workers)
    assert len(begun) < 1000
