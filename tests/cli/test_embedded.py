"""The embedded runner's modes: the same release, and elements that are never cut."""

import dataclasses
import pathlib
import time

import apache_beam as beam
import pytest
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


@pytest.mark.parametrize("workers", [1, 2])
def test_workers_in_threads_release_what_a_single_one_does(cli, tmp_path, workers):
    key = tmp_path / "run.key"
    key.write_text("5eed" * 16)
    sample = ROOT / "pipelines" / "data" / "reddit_titles_sample.jsonl.gz"
    given = ("--input", sample, "--epsilon", 4, "--delta", 1e-6, "--max_length", 2)
    threads = ("--direct_running_mode", "multi_threading", "--direct_num_workers", workers)
    releases = []
    for name, mode in (("single", ()), ("threads", threads)):
        output = tmp_path / name
        ended = cli("ngrams", *given, "--run_key_file", key, "--output", output, *mode)
        assert ended.status == 0, ended.err
        releases.append(files(output))
    assert releases[0] == releases[1]


def files(release: pathlib.Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in release.iterdir()}
