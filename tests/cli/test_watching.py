"""What a launcher decides before and after an engine has the job."""

import importlib
import pathlib
import pkgutil

import apache_beam as beam
import pytest
from apache_beam.options.pipeline_options import PortableOptions, SetupOptions
from apache_beam.runners.portability.fn_api_runner import FnApiRunner

import beam_dpne
from beam_dpne import PrivacyPlan, PrivateNgrams, errors
from beam_dpne.cli.beam_options import beam_options
from beam_dpne.cli.embedded import EmbeddedRunner
from beam_dpne.cli.jobs import default_partitions
from beam_dpne.cli.watching import reason
from beam_dpne.errors import BeamDpneError, SharedStorageError, may_be_printed
from beam_dpne.reading import InputFile, ReadDocuments
from beam_dpne.release.publishing import PublishRelease
from beam_dpne.storage.markers import Markers, make_marker

FLEX = "gs://stage/staging/template_launches/2026-07-16_07_08_11-11717246933709634581/job_object"
MIB = 2**20


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


def test_what_is_given_is_not_replaced():
    given = ["--runner", "PrismRunner", "--environment_cache_millis=7", "--save_main_session"]
    options = beam_options(given).pipeline_options
    assert options.view_as(PortableOptions).environment_cache_millis == "7"
    assert options.view_as(SetupOptions).save_main_session is True


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
    with pytest.raises(SharedStorageError, match="gave this run up"):
        marks.report_start()
    assert not pathlib.Path(marks.folder).exists()


def test_a_mark_that_cannot_be_made_names_the_setting(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(SharedStorageError, match="temp_location must be writable"):
        make_marker(Markers(str(tmp_path / "file")).wanted)


FLINK_SAYS = """Pipeline BeamApp_1 failed in state FAILED: java.lang.RuntimeException: Error received \
from SDK harness for instruction 7: Traceback (most recent call last):
  File "sdk_worker.py", line 300, in _execute
    raise ValueError("private words")
ValueError: private words

During handling of the above exception, another exception occurred:

Traceback (most recent call last):
  File "publishing.py", line 12, in _replace
beam_dpne.errors.ReleaseError: out is a release already. [while running 'Publish/Publish']

\tat java.base/java.lang.Thread.run(Thread.java:840)"""


def test_of_an_engines_error_our_own_words_are_told():
    assert reason(RuntimeError(FLINK_SAYS)) == "out is a release already."


@pytest.mark.parametrize(
    "raised",
    [
        "beam_dpne_acme.tokenizers.BadText: cannot split 'patient John Smith'",
        "acme.Error: hello\nbeam_dpne.ledger.ReleaseError: patient John Smith",
        "ValueError: a\nMrSmithIsPositiveError",
        "ValueError: a\n[Errno 123456789] Smith",
        "ValueError: [Errno 4111] Smith",
        "OSError: [Errno 4111111111111111] Smith",
        "Smith: John",
        "SmithError",
    ],
)
def test_of_an_engines_error_nothing_that_may_be_data_is_told(raised):
    line = (
        "beam_dpne.errors.ReleaseError: out is a release already. [while running 'Publish/Publish']"
    )
    text = reason(RuntimeError(FLINK_SAYS.replace(line, raised)))
    assert "Smith" not in text
    assert "4111" not in text
    assert "withheld" in text


def test_known_errors_of_the_system_are_told_in_its_words():
    line = (
        "beam_dpne.errors.ReleaseError: out is a release already. [while running 'Publish/Publish']"
    )
    full = FLINK_SAYS.replace(line, "OSError: [Errno 28] No space left on device: '/smith'")
    assert reason(RuntimeError(full)) == "No space left on device."


def test_all_our_errors_and_only_ours_are_told():
    kinds = set()
    for module in pkgutil.walk_packages(beam_dpne.__path__, "beam_dpne."):
        if module.name == "beam_dpne.storage.gcs":  # Of an extra.
            continue
        found = vars(importlib.import_module(module.name)).values()
        kinds |= {k for k in found if isinstance(k, type) and issubclass(k, Exception)}
    kinds = {kind for kind in kinds if kind.__module__.startswith("beam_dpne.")}
    names = {f"{kind.__module__}.{kind.__qualname__}" for kind in kinds}
    # The reader catches these and reports them by its own phrases.
    caught = {f"beam_dpne.reading.records.{name}" for name in ("BrokenText", "TruncatedRecord")}
    printed = {f"{kind.__module__}.{kind.__qualname__}" for kind in kinds - {BeamDpneError}}
    assert len(printed - caught) == len(BeamDpneError.__subclasses__())
    assert {name for name in names if may_be_printed(name)} == names - caught
    assert all(issubclass(k, BeamDpneError) for k in kinds if k.__module__ == errors.__name__)


def test_messages_of_subclasses_that_others_write_are_withheld():
    class Theirs(errors.ReleaseError):
        pass

    assert "withheld" in reason(Theirs("Smith"))
    assert not may_be_printed("beam_dpne.errors.Callable")
    assert not may_be_printed("beam_dpne.errors.may_be_printed")


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


def test_compressed_files_count_as_the_text_they_hold():
    assert default_partitions([InputFile(0, "a.jsonl.gz", 8 * MIB)]) == 4


def test_paths_of_workers_are_absolute(cli, tmp_path, monkeypatch):
    """A worker has a working directory of its own."""
    from beam_dpne.cli import jobs

    seen = []
    build = jobs.PublishRelease

    def publish(**settings):
        seen.append(settings["output"])
        return build(**settings)

    monkeypatch.setattr(jobs, "PublishRelease", publish)
    monkeypatch.chdir(tmp_path)
    pathlib.Path("a.jsonl").write_text('{"user": "u", "text": "t"}\n')
    ended = cli("ngrams", "--epsilon", 1, "--delta", 1e-5, "--input", "a.jsonl", "--output", "out")
    assert ended.status == 0, ended.err
    assert seen == [str(tmp_path / "out")]


def test_a_run_that_its_launcher_gave_up_publishes_nothing(tmp_path):
    """An engine may run on: Beam's job server for Flink only forgets a job that is cancelled."""
    plan = PrivacyPlan(epsilon=10, delta=1e-4, max_length=2, max_contributions=2)
    for there in (False, True):
        marks = Markers(str(tmp_path / f"run-{there}"))
        if there:
            make_marker(marks.wanted)
        publish = PublishRelease(
            output=str(tmp_path / f"out-{there}"),
            output_format="jsonl",
            plan=plan,
            tokenizer="words",
            run_key_given=False,
            permit=marks.require_wanted,
        )
        raised = None
        try:
            with beam.Pipeline(runner=FnApiRunner()) as pipeline:
                documents = pipeline | beam.Create([(f"u{i}", "Good morning") for i in range(200)])
                _ = documents | PrivateNgrams(plan=plan) | publish
        except Exception as error:
            raised = reason(error)
        assert (raised is None) == there
        assert (tmp_path / f"out-{there}").exists() == there


def test_a_job_on_an_engine_is_watched_and_asks_whether_it_is_wanted(tmp_path, monkeypatch):
    """Without the canary every run of more than --harness_timeout would be cancelled."""
    from beam_dpne.cli import watching
    from beam_dpne.cli.main import main

    seen = []

    def run(pipeline, canary):
        labels = {t.unique_name for t in pipeline.to_runner_api().components.transforms.values()}
        wanted = pathlib.Path(canary.marks.wanted).exists()
        seen.append((labels, wanted, canary.timeout))
        raise watching.RunError("stop here")

    monkeypatch.setattr(watching, "run_pipeline", run)
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
