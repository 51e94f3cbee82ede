"""Options of a launch that neither Beam nor the engine has are refused before any worker starts."""

import json
import pickle

import apache_beam as beam
import pytest
from apache_beam.options.pipeline_options import GoogleCloudOptions, PipelineOptions
from apache_beam.runners.portability.local_job_service import LocalJobServicer

from beam_dpne import NgramsPlan, PrivateNgrams, RunKey
from beam_dpne.errors import UsageError
from beam_dpne.jobs.engine import beam_options


@pytest.fixture
def job_server(tmp_path):
    """The address of Beam's own job server, which describes no option beside Beam's own."""
    server = LocalJobServicer(str(tmp_path / "staging"))
    yield f"localhost:{server.start_grpc_server()}"
    server.stop()


@pytest.mark.parametrize("option", ["--paralellism=2", "--country=us"])
def test_an_option_that_the_engine_lacks_is_refused_before_workers_start(
    cli, tmp_path, job_server, option
):
    texts = [{"user": f"u{i}", "text": "see you soon"} for i in range(99)]
    (tmp_path / "a.jsonl").write_text("\n".join(map(json.dumps, texts)))
    budget = ("account", "--budget", tmp_path / "budget", "--create", "--population", "readers")
    assert cli(*budget, "--epsilon", "9", "--delta", "1e-4").status == 0
    noted = sorted(path.name for path in (tmp_path / "budget").iterdir())
    plan = ("--epsilon", "4", "--delta", "1e-5", "--max_length", "1")
    given = ("--input", tmp_path / "a.jsonl", "--output", tmp_path / "out", *plan)
    engine = ("--runner", "PortableRunner", "--job_endpoint", job_server)
    ended = cli("ngrams", *given, *engine, "--budget", tmp_path / "budget", option)
    assert ended.status == 2, ended.err
    assert f"there is no option {option.partition('=')[0]}" in ended.err
    assert not (tmp_path / "out").exists()
    assert sorted(path.name for path in (tmp_path / "budget").iterdir()) == noted


def test_options_of_beam_are_sent_to_an_engine(job_server):
    engine = ["--runner=PortableRunner", f"--job_endpoint={job_server}"]
    assert beam_options([*engine, "--parallelism=2"]).runner is not None


def test_dataflow_gets_no_option_that_beam_would_drop():
    with pytest.raises(UsageError, match="there is no option --country"):
        beam_options(["--runner=DataflowRunner", "--project=p", "--country=us"])


def test_arguments_are_parsed_once_for_each_kind_of_options():
    options = beam_options(["--runner=FnApiRunner", "--temp_location=gs://b/temp"]).pipeline_options
    view = options.view_as(GoogleCloudOptions)
    assert options.view_as(GoogleCloudOptions) is view
    view.temp_location = "gs://b/other"
    assert beam.Pipeline(options=options).options.view_as(GoogleCloudOptions).temp_location == (
        "gs://b/other"
    )


def test_copied_options_have_one_state():
    account = "--impersonate_service_account=someone@example.com"
    options = beam_options(["--runner=FnApiRunner", account]).pipeline_options
    options.view_as(GoogleCloudOptions).temp_location = "gs://b/temp"
    copied = pickle.loads(pickle.dumps(options))
    copied.view_as(GoogleCloudOptions).temp_location = "gs://b/other"
    assert copied.get_all_options()["temp_location"] == "gs://b/other"


def coders_of(pipeline: beam.Pipeline) -> dict[str, str]:
    """Returns the coder of each PCollection of a graph, by the step and the output that has it."""
    graph = pipeline.to_runner_api()
    coders = graph.components.coders
    return {
        f"{step.unique_name} {name}": str(coders[graph.components.pcollections[made].coder_id])
        for step in graph.components.transforms.values()
        for name, made in step.outputs.items()
    }


def test_elements_have_the_coders_that_they_have_under_beams_own_options():
    found = []
    options = beam_options(["--runner=FnApiRunner"]).pipeline_options
    for each in (options, PipelineOptions(["--runner=FnApiRunner"])):
        pipeline = beam.Pipeline(options=each)
        plan = NgramsPlan(epsilon=1, delta=1e-6, max_length=2)
        _ = (
            pipeline
            | beam.Create([("u", "a b")])
            | PrivateNgrams(plan=plan, run_key=RunKey(bytes(32)))
        )
        found.append(coders_of(pipeline))
    assert found[0] == found[1]
    assert sum("BatchCoder" in coder for coder in found[0].values()) > 20
