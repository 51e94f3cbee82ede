"""A job's settings that follow from the input and from the launcher's working directory."""

import os
import pathlib

import pytest

from beam_dpne.cli.jobs import default_partitions, worker_threads
from beam_dpne.cli.runners import beam_options
from beam_dpne.elements.threads import MOST_WORKERS, usable_cores
from beam_dpne.reading.files import InputFile

MIB = 2**20


@pytest.mark.parametrize(
    ("sizes", "partitions"),
    [
        ([1], 1),
        ([8 * MIB], 1),
        ([9 * MIB], 2),
        ([20 * MIB, 20 * MIB], 5),
        ([2**35], 4096),
        ([2**37], 4096),
        ([40 * MIB * 10_000], 10_000),
    ],
)
def test_partitions_follow_the_size_of_the_text(sizes, partitions):
    files = [InputFile(place, f"{place}.jsonl", size) for place, size in enumerate(sizes)]
    assert default_partitions(files) == partitions


@pytest.mark.parametrize(
    ("size", "workers", "partitions"),
    [(MIB, 4, 1), (3 * MIB, 4, 3), (9 * MIB, 2, 8), (9 * MIB, 1, 4), (200 * MIB, 4, 25)],
)
def test_threads_have_a_few_partitions_each(size, workers, partitions):
    assert default_partitions([InputFile(0, "a.jsonl", size)], workers) == partitions


@pytest.mark.parametrize(
    ("runner", "given", "threads"),
    [
        ("embedded", None, min(usable_cores(), MOST_WORKERS)),
        ("embedded", 3, 3),
        ("embedded", 0, None),
        ("PrismRunner", None, None),
        ("PrismRunner", 3, 3),
        ("PrismRunner", 0, None),
    ],
)
def test_an_engine_works_in_one_step_only_if_it_is_told_to(runner, given, threads):
    assert worker_threads(given, beam_options([f"--runner={runner}"])) == threads


def test_a_machine_of_many_cores_gets_no_more_threads_than_an_option_may_ask_for(monkeypatch):
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(300)), raising=False)
    assert worker_threads(None, beam_options(["--runner=embedded"])) == MOST_WORKERS


def test_compressed_files_count_as_the_text_they_hold():
    assert default_partitions([InputFile(0, "a.jsonl.gz", 8 * MIB)]) == 4


def test_paths_of_workers_are_absolute(cli, tmp_path, monkeypatch):
    """A worker has a working directory of its own."""
    from beam_dpne.cli import jobs

    seen = []
    build = jobs.WriteRelease

    def publish(**settings):
        seen.append(settings["output"])
        return build(**settings)

    monkeypatch.setattr(jobs, "WriteRelease", publish)
    monkeypatch.chdir(tmp_path)
    pathlib.Path("a.jsonl").write_text('{"user": "u", "text": "t"}\n')
    ended = cli("ngrams", "--epsilon", 1, "--delta", 1e-5, "--input", "a.jsonl", "--output", "out")
    assert ended.status == 0, ended.err
    assert seen == [str(tmp_path / "out")]
