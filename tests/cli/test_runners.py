"""Beam's options, engines whose workers may not start, and the modes of the embedded runner."""

import dataclasses
import gzip
import itertools
import pathlib
import threading
import time

import apache_beam as beam
import pytest
from apache_beam.options.pipeline_options import (
    DebugOptions,
    PipelineOptions,
    PortableOptions,
    SetupOptions,
)
from apache_beam.runners.portability.fn_api_runner import FnApiRunner
from apache_beam.runners.worker import sdk_worker
from apache_beam.runners.worker.data_plane import PeriodicThread

from beam_dpne import PrivacyPlan, PrivateNgrams
from beam_dpne.cli.failures import ErrorRecords, printable_reason
from beam_dpne.cli.runners import (
    EmbeddedRunner,
    _silence_workers,
    beam_options,
    run_pipeline,
)
from beam_dpne.engines import harnesses
from beam_dpne.errors import SharedStorageError
from beam_dpne.reading.transform import ReadDocuments
from beam_dpne.release.publishing import WriteRelease
from beam_dpne.storage.run_files import Markers, make_marker
from tests.conftest import ROOT

FLEX = "gs://stage/staging/template_launches/2026-07-16_07_08_11-11717246933709634581/job_object"


@pytest.mark.parametrize(
    ("location", "classic"),
    [
        (None, False),
        ("gs://bucket/templates/ngrams", True),
        ("template", True),
        ("gs://bucket/job_object", True),
        ("gs://bucket/template_launches/mine/job_object", True),
        (FLEX, False),
        (f"{FLEX}/more", True),
    ],
)
def test_a_flex_launch_is_no_classic_template(location, classic):
    given = [] if location is None else ["--template_location", location]
    assert beam_options(given).is_template == classic


def test_harnesses_are_kept_between_stages_and_the_main_module_stays_at_home():
    options = beam_options(["--runner", "PrismRunner"]).pipeline_options
    assert options.view_as(PortableOptions).environment_cache_millis >= 60_000
    assert options.view_as(SetupOptions).save_main_session is False


IDLE_SECONDS = "DEFAULT_BUNDLE_PROCESSOR_CACHE_SHUTDOWN_THRESHOLD_S"
seen_in_step = []


def note_idle_seconds(element):
    """A step; the embedded runner runs it in this process."""
    seen_in_step.append(getattr(sdk_worker, IDLE_SECONDS))


def test_the_program_is_a_harness_that_drops_idle_processors(monkeypatch):
    """It is one with LOOPBACK and on Prism."""
    monkeypatch.setattr(sdk_worker, IDLE_SECONDS, 60)
    seen_in_step.clear()
    pipeline = beam.Pipeline(runner=EmbeddedRunner())
    _ = pipeline | beam.Create([1]) | beam.Map(note_idle_seconds)
    run_pipeline(pipeline)
    assert seen_in_step == [harnesses._IDLE_SECONDS]


def test_errors_of_threads_of_beam_are_for_the_failure_log_and_not_printed(monkeypatch, capsys):
    """Their messages may quote the data; a host program's own threads stay as they are."""
    passed_on = []
    monkeypatch.setattr(threading, "excepthook", passed_on.append)
    _silence_workers()
    _silence_workers()

    def fail() -> None:
        raise ValueError("the data")

    logged = ErrorRecords()
    with logged.caught():
        for thread in (PeriodicThread(0.001, fail), threading.Thread(target=fail)):
            thread.start()
            thread.join()
    assert [arguments.thread for arguments in passed_on] == [thread]
    assert logged.text().count("ValueError: the data") == 1
    assert "An error ended a thread." in logged.text()
    assert capsys.readouterr().err == ""


def test_what_is_given_is_not_replaced():
    given = ["--runner", "PrismRunner", "--environment_cache_millis=7", "--save_main_session"]
    options = beam_options(given).pipeline_options
    assert options.view_as(PortableOptions).environment_cache_millis == "7"
    assert options.view_as(SetupOptions).save_main_session is True


@pytest.mark.parametrize(
    ("runner", "experiments"),
    [
        ("PrismRunner", ["prism_disable_sdf_split"]),
        ("apache_beam.runners.portability.prism_runner.PrismRunner", ["prism_disable_sdf_split"]),
        ("PortableRunner", []),
        ("embedded", []),
    ],
)
def test_only_prism_is_told_not_to_split_bundles(runner, experiments):
    options = beam_options([f"--runner={runner}"]).pipeline_options
    assert (options.view_as(DebugOptions).experiments or []) == experiments


def test_experiments_that_are_given_are_kept_on_prism():
    options = beam_options(["--runner=PrismRunner", "--experiments=other"]).pipeline_options
    assert options.view_as(DebugOptions).experiments == ["other", "prism_disable_sdf_split"]


@pytest.mark.parametrize(
    ("runner", "hangs"), [("FnApiRunner", False), ("embedded", False), ("PrismRunner", True)]
)
def test_engines_are_watched_and_the_embedded_runner_is_not(runner, hangs):
    options = beam_options([f"--runner={runner}"])
    assert options.can_hang is hangs
    assert isinstance(options.runner, EmbeddedRunner) is not hangs


def test_the_first_step_leaves_the_mark_before_anything_is_read(tmp_path):
    marks = Markers(str(tmp_path / "run"))
    make_marker(marks.wanted)
    missing = str(tmp_path / "missing.jsonl")
    with pytest.raises(Exception, match="existing files"), beam.Pipeline(runner=FnApiRunner()) as p:
        _ = p | ReadDocuments(inputs=[missing], on_start=marks.report_start)
    assert pathlib.Path(marks.started).exists()


def test_workers_that_start_after_the_launcher_gave_up_do_not_revive_the_run(tmp_path):
    marks = Markers(str(tmp_path / "run"))
    with pytest.raises(SharedStorageError, match="launcher gave this run up"):
        marks.report_start()
    assert not pathlib.Path(marks.folder).exists()


def test_a_mark_that_cannot_be_made_names_the_setting(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(SharedStorageError, match="temp_location must be writable"):
        make_marker(Markers(str(tmp_path / "file")).wanted)


def test_a_run_that_its_launcher_gave_up_publishes_nothing(tmp_path):
    """An engine may run on: Beam's job server for Flink only forgets a job that is cancelled."""
    plan = PrivacyPlan(epsilon=10, delta=1e-4, max_length=2, max_contributions=2)
    for there in (False, True):
        marks = Markers(str(tmp_path / f"run-{there}"))
        if there:
            make_marker(marks.wanted)
        publish = WriteRelease(
            output=str(tmp_path / f"out-{there}"),
            output_format="jsonl",
            permit=marks.require_wanted,
        )
        raised = None
        try:
            with beam.Pipeline(runner=FnApiRunner()) as pipeline:
                documents = pipeline | beam.Create([(f"u{i}", "Good morning") for i in range(200)])
                _ = documents | PrivateNgrams(plan=plan) | publish
        except Exception as error:
            raised = printable_reason(error)
        assert (raised is None) == there
        assert (tmp_path / f"out-{there}").exists() == there


def test_a_job_on_an_engine_is_watched_and_asks_whether_it_is_wanted(tmp_path, monkeypatch):
    """Without the canary every run of more than --harness_timeout would be cancelled."""
    from beam_dpne.cli import runners
    from beam_dpne.cli.main import main

    seen = []

    def run(pipeline, canary):
        labels = {t.unique_name for t in pipeline.to_runner_api().components.transforms.values()}
        wanted = pathlib.Path(canary.marks.wanted).exists()
        seen.append((labels, wanted, canary.timeout))
        raise runners.RunError("stop here")

    monkeypatch.setattr(runners, "run_pipeline", run)
    path = tmp_path / "a.jsonl"
    path.write_text('{"user": "u", "text": "t"}\n')
    files = ["--input", str(path), "--output", str(tmp_path / "out")]
    given = ["ngrams", "--epsilon", "1", "--delta", "1e-5", *files, "--harness_timeout", "9"]
    assert main([*given, "--runner", "PrismRunner"]) == 1
    ((labels, wanted, timeout),) = seen
    assert "Read/Canary" in labels
    assert wanted
    assert timeout == 9
    assert [p.name for p in tmp_path.iterdir()] == ["a.jsonl"]


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
