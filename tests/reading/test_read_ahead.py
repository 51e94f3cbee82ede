"""Reading ahead in a thread: the items in order, and nothing left behind when the reader stops."""

import contextlib
import gzip
import json
import os
import pathlib
import threading
from collections.abc import Generator, Iterator

import pytest

from beam_dpne.errors import InputError
from beam_dpne.evaluation.corpus import read_corpus
from beam_dpne.reading.files import match_inputs
from beam_dpne.reading.options import ReadOptions
from beam_dpne.reading.transform import (
    WorkItem,
    _read_text,
    _ReadItem,
    plan_reads,
    read_ahead,
    read_item,
)

OPTIONS = ReadOptions(block_bytes=1000)


class Numbers:
    """0, 1, 2, …, and after `last` an error; keeps the thread that makes them."""

    def __init__(self, last: int = 1000):
        self.threads: set[threading.Thread] = set()
        self.items = self._items(last)

    def _items(self, last: int) -> Generator[int, None, None]:
        for number in range(last + 1):
            self.threads.add(threading.current_thread())
            yield number
        raise KeyError(last)

    @property
    def is_left(self) -> bool:
        """Whether the items are not closed, or their thread goes on."""
        return self.items.gi_frame is not None or any(map(threading.Thread.is_alive, self.threads))


def test_items_come_in_order_from_one_other_thread():
    numbers = Numbers(last=100)
    ahead = read_ahead(numbers.items)
    assert [next(ahead) for _ in range(101)] == list(range(101))
    with pytest.raises(KeyError, match="100"):
        next(ahead)
    assert len(numbers.threads) == 1
    assert threading.current_thread() not in numbers.threads
    assert not numbers.is_left


def test_the_next_item_is_read_while_one_is_used():
    second = threading.Event()

    def items() -> Generator[str, None, None]:
        yield "first"
        second.set()
        yield "second"

    with contextlib.closing(read_ahead(items())) as ahead:
        assert next(ahead) == "first"
        assert second.wait(timeout=30)


def test_a_reader_who_stops_early_leaves_nothing():
    numbers = Numbers()
    ahead = read_ahead(numbers.items)
    assert [next(ahead), next(ahead)] == [0, 1]
    assert numbers.is_left
    ahead.close()
    assert not numbers.is_left


@pytest.fixture(params=["a.jsonl", "a.jsonl.gz"])
def item(request, tmp_path) -> WorkItem:
    """A file of many blocks, each of whose records but the first has no text."""
    records = [{"user": "ann", "text": "be" * 600}, *[{"user": "bob"}] * 1000]
    data = "".join(f"{json.dumps(record)}\n" for record in records).encode()
    path = tmp_path / request.param
    path.write_bytes(gzip.compress(data) if path.suffix == ".gz" else data)
    (found,) = plan_reads(match_inputs([str(path)])[0], OPTIONS)
    return found


@contextlib.contextmanager
def nothing_is_left(item: WorkItem) -> Iterator[None]:
    """No thread that the block has started goes on, and the file is closed."""
    before = set(threading.enumerate())
    yield
    assert set(threading.enumerate()) <= before
    links = [fd for fd in pathlib.Path("/proc/self/fd").iterdir() if fd.is_symlink()]
    assert item.file.path not in [os.readlink(link) for link in links if link.is_symlink()]


def test_a_file_that_is_not_read_to_its_end_is_closed(item):
    with nothing_is_left(item):
        ahead = read_ahead(read_item(item, OPTIONS))
        documents, _, _ = next(ahead)
        assert documents.num_rows == 1
        ahead.close()


@pytest.mark.parametrize("read", [read_item, _read_text])
def test_a_file_whose_reader_is_interrupted_is_closed(item, read):
    """Also while the exception, whose traceback holds the variables of functions, is kept."""
    batches = read(item, OPTIONS)
    with nothing_is_left(item):
        next(batches)
        with pytest.raises(KeyboardInterrupt) as kept:
            batches.throw(KeyboardInterrupt())
    assert kept.tb


def test_a_file_with_a_record_that_stops_a_strict_run_is_closed(item):
    with nothing_is_left(item), pytest.raises(InputError, match="--strict") as kept:
        list(_ReadItem(OPTIONS, strict=True).process(item))
    with nothing_is_left(item), pytest.raises(InputError, match="--strict") as others:
        read_corpus([item.file], OPTIONS, "words", strict=True)
    assert kept.tb is not others.tb
