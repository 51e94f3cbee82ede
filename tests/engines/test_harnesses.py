"""Harnesses give memory back: soon after a step, and whatever thread has used it."""

import contextlib
import ctypes
import os
import pathlib
import platform
import tempfile
import threading
import time

import apache_beam as beam
import pytest
from apache_beam.options.pipeline_options import PortableOptions
from apache_beam.runners.portability.fn_api_runner import FnApiRunner
from apache_beam.transforms.environments import ExternalEnvironment

from beam_dpne.engines import harnesses
from tests.engines.pools import MODULE, running_pool

SECONDS = 10
THREADS = 8


@contextlib.contextmanager
def pipeline_in(pool):
    """A pipeline whose steps run in harnesses of a pool."""
    options = PortableOptions([f"--environment_config=localhost:{pool.port}"])
    runner = FnApiRunner(default_environment=ExternalEnvironment.from_options(options))
    with beam.Pipeline(runner=runner) as pipeline:
        yield pipeline


class Marked(beam.DoFn):
    """Passes elements on; the end of this object, with its memory, makes a file."""

    def __init__(self, path: str):
        self._path = path

    def process(self, element):
        """Yields the element."""
        yield element

    def teardown(self):
        """Beam calls it before it drops the object."""
        pathlib.Path(self._path).touch()


def waited_for(path: str) -> bool:
    """Whether a file is there within some seconds, for which Beam would have kept the step."""
    until = time.monotonic() + SECONDS
    while not os.path.exists(path) and time.monotonic() < until:
        time.sleep(0.1)
    return os.path.exists(path)


def test_a_step_is_dropped_while_a_later_one_runs(tmp_path):
    path, said = str(tmp_path / "dropped"), tmp_path / "said"
    assert harnesses._IDLE_SECONDS * 2 < SECONDS
    with running_pool(*MODULE) as pool, pipeline_in(pool) as pipeline:
        marked = pipeline | beam.Create([("key", 1)]) | beam.ParDo(Marked(path))
        later = marked | beam.GroupByKey() | beam.Map(lambda _: waited_for(path))
        _ = later | beam.io.WriteToText(str(said), shard_name_template="")
    assert said.read_text() == "True\n"


def arenas() -> int:
    """The number of arenas of this process after many threads had memory at the same time."""
    barrier = threading.Barrier(THREADS)

    def hold() -> None:
        barrier.wait()
        kept = bytes(200_000)
        barrier.wait()
        del kept

    threads = [threading.Thread(target=hold) for _ in range(THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    libc = ctypes.CDLL(None)
    libc.fopen.restype = ctypes.c_void_p
    with tempfile.NamedTemporaryFile() as described:
        file = ctypes.c_void_p(libc.fopen(os.fsencode(described.name), b"w"))
        libc.malloc_info(0, file)
        libc.fclose(file)
        return described.read().count(b"<heap nr=")


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="Other systems have no arenas.")
@pytest.mark.parametrize(("given", "expected"), [(None, 2), ("", 2), ("1", 1), ("5", 5)])
def test_threads_share_arenas_as_the_operator_says(tmp_path, monkeypatch, given, expected):
    monkeypatch.delenv("MALLOC_ARENA_MAX", raising=False)
    if given is not None:
        monkeypatch.setenv("MALLOC_ARENA_MAX", given)
    said = tmp_path / "said"
    with running_pool(*MODULE) as pool, pipeline_in(pool) as pipeline:
        counted = pipeline | beam.Create([0]) | beam.Map(lambda _: arenas())
        _ = counted | beam.io.WriteToText(str(said), shard_name_template="")
    assert said.read_text() == f"{expected}\n"
