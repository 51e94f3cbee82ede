"""ReadDocuments in a pipeline, what it counts, and runs that lose too many records."""

import contextlib
import functools
import gzip
import json
import os
import pathlib
import re
from collections.abc import Iterator

import apache_beam as beam
import pytest
from apache_beam.metrics.metric import MetricsFilter
from apache_beam.runners.portability.fn_api_runner import FnApiRunner
from apache_beam.testing.util import assert_that, equal_to

from beam_dpne import NgramsPlan, PrivateNgrams
from beam_dpne.elements import progress
from beam_dpne.elements.processes import answers
from beam_dpne.errors import InputError, TooManyRejectedError, printable_reason
from beam_dpne.reading.files import match_inputs
from beam_dpne.reading.options import ReadOptions
from beam_dpne.reading.records import WorkItem, plan_reads, read_item
from beam_dpne.reading.rejects import Tally, require_few_rejected
from beam_dpne.reading.steps import ReadDocuments
from beam_dpne.release.reading import read_release
from beam_dpne.release.steps import WriteRelease
from tests.reading.files import CANARY, write

BUDGET = ("--epsilon", 10, "--delta", 1e-4)
LENGTHS = ("--max_length", 2, "--max_contributions", 5)


def test_the_pipeline_reads_all_parts_and_counts_rejects(tmp_path) -> None:
    lines = [json.dumps({"user": f"u{i}", "text": f"t{i}"}) for i in range(500)]
    write(tmp_path / "a.jsonl", "\n".join([*lines[:300], "x"]))
    write(tmp_path / "b.jsonl.gz", gzip.compress("\n".join(lines[300:]).encode()))
    write(tmp_path / "c.jsonl", "")
    progress.reset()
    pipeline = beam.Pipeline(runner=FnApiRunner())
    read = pipeline | ReadDocuments(inputs=[str(tmp_path / "*")], split_bytes=1000, block_bytes=99)
    users = read.documents | beam.FlatMap(lambda batch: batch.column("user").to_pylist())
    assert_that(users, equal_to([f"u{i}" for i in range(500)]))
    result = pipeline.run()
    counters = result.metrics().query(MetricsFilter().with_name("rejected_records"))["counters"]
    assert [counter.committed for counter in counters] == [1]
    sizes = sum(path.stat().st_size for path in tmp_path.iterdir())
    assert progress.snapshot().bytes_read == sizes


# Reading ahead in a thread


@pytest.fixture(params=["a.jsonl", "a.jsonl.gz", "a.csv", "a.json"])
def item(request, tmp_path) -> WorkItem:
    """A file of many blocks, each of whose records but the first cannot be used."""
    rows = [{"user": "ann", "text": "be" * 600}, *[{"user": "", "text": "to"}] * 1000]
    text = "".join(f"{json.dumps(row)}\n" for row in rows)
    if request.param == "a.csv":
        text = "user,text\n" + "".join(f"{row['user']},{row['text']}\n" for row in rows)
    data = (json.dumps(rows) if request.param == "a.json" else text).encode()
    path = write(tmp_path / request.param, gzip.compress(data) if ".gz" in request.param else data)
    (found,) = plan_reads(match_inputs([str(path)])[0], ReadOptions(block_bytes=1000))
    return found


def reading():
    """What a worker does with a piece of work."""
    return functools.partial(read_item, options=ReadOptions(block_bytes=1000))


@contextlib.contextmanager
def nothing_is_left(item: WorkItem) -> Iterator[None]:
    """No fork that the block has started goes on, and the file is closed."""
    yield
    with pytest.raises(ChildProcessError):
        os.waitpid(-1, os.WNOHANG)
    links = [fd for fd in pathlib.Path("/proc/self/fd").iterdir() if fd.is_symlink()]
    assert item.file.path not in [os.readlink(link) for link in links if link.is_symlink()]


@pytest.mark.parametrize("workers", [1, 3])
def test_a_file_that_is_not_read_to_its_end_is_closed(item, workers) -> None:
    with nothing_is_left(item):
        batches = answers(reading(), [item] * 2, workers)
        assert next(batches).documents.num_rows == 1
        batches.close()
    with nothing_is_left(item):
        batches = answers(reading(), [item] * 2, workers)
        with pytest.raises(KeyError):
            list(map(lambda batch: batch.documents.column("of no name"), batches))
        batches.close()


@pytest.mark.parametrize("workers", [1, 3])
def test_each_item_is_read_once_by_whoever_reads_it(item, workers) -> None:
    progress.reset()
    one = [batch.documents.to_pylist() for batch in answers(reading(), [item], 1)]
    read = progress.snapshot().bytes_read
    assert read > 0
    several = [batch.documents.to_pylist() for batch in answers(reading(), [item] * 7, workers)]
    assert sorted(several, key=repr) == sorted(one * 7, key=repr)
    assert progress.snapshot().bytes_read == 8 * read


def test_what_is_wrong_with_a_file_is_said_by_whoever_reads_it(tmp_path) -> None:
    cut = write(tmp_path / "a.jsonl.gz", gzip.compress(b'{"user": "a", "text": "b"}' * 99)[:-20])
    items = plan_reads(match_inputs([str(cut)])[0], ReadOptions()) * 2
    for workers in (1, 2):
        with pytest.raises(InputError, match="truncated or damaged"):
            list(answers(reading(), items, workers))


# max_rejected


def good(count: int) -> list[str]:
    return [json.dumps({"user": f"u{place}", "text": "good morning"}) for place in range(count)]


def lines(path: pathlib.Path, rows: list[str]) -> pathlib.Path:
    return write(path, "\n".join(rows) + "\n")


def test_a_run_that_rejects_too_many_records_publishes_nothing_and_lists_them(
    cli, tmp_path
) -> None:
    rows = [*good(7), "{", '{"user":null,"text":"a"}', f'{{"text":"{CANARY}"}}']
    lines(tmp_path / "a.jsonl", rows)
    write(tmp_path / "b.jsonl.gz", gzip.compress(b"{\n[]\n"))
    out = tmp_path / "out"
    run = ("ngrams", "--input", tmp_path / "?.jsonl*", "--output", out, *BUDGET, *LENGTHS)
    reasons = ["malformed JSON", "not a JSON object", "user is null or missing"]
    ended = cli(*run, "--quiet", "--max_rejected", 0.4, "--rejects", tmp_path / "rejects")
    assert (ended.status, ended.out) == (1, "")
    said = f"max_rejected=0.4 allows, because of: {', '.join(reasons)}."
    assert said in ended.err
    # No exact number of records, which is as private as the data.
    assert re.findall(r"\d+", ended.err.partition(said)[2]) == []
    assert CANARY not in ended.err
    assert not out.exists()
    (listed,) = (tmp_path / "rejects").iterdir()
    found = [json.loads(line)["reason"] for line in listed.read_text().splitlines()]
    assert [found.count(reason) for reason in reasons] == [2, 1, 2]
    ended = cli(*run, "--max_rejected", 0.42)
    assert ended.status == 0, ended.err
    assert "5 records were rejected" in ended.err
    before = {path.name: path.read_bytes() for path in out.iterdir()}
    assert cli(*run, "--overwrite").status == 1
    assert {path.name: path.read_bytes() for path in out.iterdir()} == before


@pytest.mark.parametrize("rows", [[], ["{", "[]"]])
def test_an_input_without_usable_records_can_give_an_empty_release(cli, tmp_path, rows) -> None:
    path = lines(tmp_path / "a.jsonl", rows)
    ended = cli(
        *("ngrams", "--input", path, "--output", tmp_path / "out"),
        *(*BUDGET, *LENGTHS, "--max_rejected", 1),
    )
    assert ended.status == 0, ended.err
    assert len(read_release(str(tmp_path / "out")).table()) == 0


def test_a_pipeline_of_ones_own_can_ask_for_it(tmp_path) -> None:
    """A record of several texts counts once: 8 of 108 records are 7.4 %, of the texts 2.6 %."""
    rows = [json.dumps({"user": f"u{i}", "a": "to", "b": "be", "c": "or"}) for i in range(100)]
    path = lines(tmp_path / "a.jsonl", [*rows, *["{"] * 8])
    plan = NgramsPlan(epsilon=10, delta=1e-4, max_length=2, max_contributions=2)
    for limit, is_released in ((0.074, False), (0.075, True)):
        raised = ""
        try:
            with beam.Pipeline(runner=FnApiRunner()) as pipeline:
                # Small pieces of work, so that there are many tallies.
                read = pipeline | ReadDocuments(
                    inputs=[str(path)], text_field=["a", "b", "c"], split_bytes=256, block_bytes=64
                )
                writing = WriteRelease(
                    output=str(tmp_path / "out"),
                    output_format="jsonl",
                    tally=read.tally,
                    max_rejected=limit,
                )
                _ = read.documents | PrivateNgrams(plan=plan) | writing
        except Exception as error:
            raised = printable_reason(error) or ""
        assert ("because of: malformed JSON." in raised) == (not is_released)
        assert (tmp_path / "out").exists() == is_released


@pytest.mark.parametrize("wrong", [-0.1, 2, float("nan")])
def test_what_is_no_share_is_refused(wrong) -> None:
    with pytest.raises(ValueError, match=r"`max_rejected` must be .* got `max_rejected="):
        WriteRelease(output="out", max_rejected=wrong)


@pytest.mark.parametrize(
    ("records", "rejected", "max_rejected", "fails"),
    [
        (0, 0, 0.0, False),
        (100, 0, 0.0, False),
        (100, 1, 0.0, True),
        (100, 29, 0.29, False),  # 0.29 * 100 is below 29.
        (100, 30, 0.29, True),
        (10, 10, 1, False),
    ],
)
def test_the_share_is_compared_exactly(records, rejected, max_rejected, fails) -> None:
    tally = Tally(records, {"malformed JSON": rejected} if rejected else {})
    tallies = [tally, Tally(0, {})]
    if fails:
        with pytest.raises(TooManyRejectedError, match="malformed JSON"):
            require_few_rejected(tallies, max_rejected)
    else:
        require_few_rejected(tallies, max_rejected)
