"""The embedded runner's modes: the same release, and elements that are never cut."""

import dataclasses
import gzip
import itertools
import pathlib
import time

import apache_beam as beam
from apache_beam.options.pipeline_options import PipelineOptions

from beam_dpne.cli.embedded import EmbeddedRunner
from tests.conftest import ROOT

# Beam's own runner sends what is written once a second.
_SECONDS_OF_ENCODING = 1.4


@dataclasses.dataclass
class Slow:
    """An element that takes long to encode, as a large set does on a busy machine."""

    number: int


class SlowCoder(beam.coders.Coder):
    """Encodes a `Slow`; its key is written before that."""

    def encode(self, value):
        time.sleep(_SECONDS_OF_ENCODING)
        return b"%d" % value.number

    def decode(self, encoded):
        return Slow(int(encoded))

    def is_deterministic(self):
        return False


beam.coders.registry.register_coder(Slow, SlowCoder)


def keyed(number: int) -> tuple[int, Slow]:
    return number, Slow(number)


def test_an_element_that_is_slow_to_encode_is_not_cut_in_two(tmp_path):
    options = PipelineOptions(["--direct_running_mode", "multi_threading"])
    with beam.Pipeline(runner=EmbeddedRunner(), options=options) as pipeline:
        _ = (
            pipeline
            | beam.Create([1, 2])
            | beam.Map(keyed).with_output_types(tuple[int, Slow])
            | beam.GroupByKey()
            | beam.MapTuple(lambda key, values: f"{key} {[value.number for value in values]}")
            | beam.io.WriteToText(str(tmp_path / "out"), shard_name_template="")
        )
    assert sorted((tmp_path / "out").read_text().splitlines()) == ["1 [1]", "2 [2]"]


def test_workers_in_threads_release_what_a_single_one_does(cli, tmp_path):
    key = tmp_path / "run.key"
    key.write_text("5eed" * 16)
    with gzip.open(ROOT / "pipelines" / "data" / "reddit_titles_sample.jsonl.gz") as lines:
        (tmp_path / "titles.jsonl").write_bytes(b"".join(itertools.islice(lines, 10_000)))
    files = ("--input", tmp_path / "titles.jsonl", "--run_key_file", key)
    budget = ("--epsilon", 4, "--delta", 1e-6, "--max_length", 2)
    threads = ("--direct_running_mode", "multi_threading", "--direct_num_workers")
    releases = []
    for name, mode in (("single", ()), ("one", (*threads, 1)), ("two", (*threads, 2))):
        ended = cli("ngrams", *files, *budget, "--output", tmp_path / name, *mode)
        assert ended.status == 0, ended.err
        releases.append(files_of(tmp_path / name))
    single, one, two = releases
    assert one == single
    assert two == single


def files_of(release: pathlib.Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in release.iterdir()}
