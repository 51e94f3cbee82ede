"""Operators, executed without a scheduler: what they start, refuse, hand on and stop.

Run by Airflow's own Python, which `tests/engines/test_airflow.py` starts; beam_dpne is a wheel there.
"""

import json
import pathlib
import shutil
import stat
import subprocess
import sys
import threading
import time

import pytest
from airflow.sdk import DAG, AssetAlias
from airflow.sdk.bases.operator import ExecutorSafeguard
from airflow.sdk.exceptions import AirflowException, AirflowFailException
from airflow.sdk.execution_time.context import OutletEventAccessors

from beam_dpne.accounting.budget import Note, create_budget, open_budget
from beam_dpne.accounting.population import read_counted
from beam_dpne.accounting.series import create_series, open_series
from beam_dpne.airflow.dataflow import DataflowReleaseOperator
from beam_dpne.airflow.operators import ReleaseOperator
from beam_dpne.errors import BudgetError, ReleaseError, UsageError

RUN = "manual__2026-01-02T03:04:05+00:00"


@pytest.fixture(autouse=True)
def _outside_of_a_task_runner(monkeypatch):
    monkeypatch.setattr(ExecutorSafeguard, "test_mode", True)


@pytest.fixture
def context():
    return {"run_id": RUN, "outlet_events": OutletEventAccessors()}


@pytest.fixture(scope="session")
def notes(tmp_path_factory):
    path = tmp_path_factory.mktemp("notes") / "notes.jsonl"
    rows = [{"user": f"u{place}", "text": "Good morning, you"} for place in range(100)]
    path.write_text("\n".join(json.dumps(row) for row in rows))
    return path


@pytest.fixture
def make(tmp_path, notes):
    """Makes an operator of a DAG; by default a small run that really runs."""

    def made(kind=ReleaseOperator, dag="titles", task_id="release", **fields):
        common = {
            "program": "ngrams",
            "input": [str(notes)],
            "releases": str(tmp_path / "releases"),
            "epsilon": 10,
            "delta": 1e-4,
        }
        if fields.get("program", "ngrams") == "ngrams":
            common["max_length"] = 2
        with DAG(dag, schedule=None):
            return kind(task_id=task_id, **{**common, **fields})

    return made


@pytest.fixture
def interpreter(tmp_path):
    """Makes a stand-in for the Python that runs the program; ARGUMENTS holds what it was given."""

    def made(script):
        path = tmp_path / "python"
        version = 'case "$1" in -c) echo 2.77.0; exit 0;; esac'
        said = f'printf "%s\\n" "$@" > "{tmp_path}/arguments"'
        path.write_text(f"#!/bin/sh\n{version}\n{said}\n{script}\n")
        path.chmod(path.stat().st_mode | stat.S_IXUSR)
        return str(path)

    return made


def test_a_run_publishes_hands_its_facts_on_and_is_settled(make, context, tmp_path):
    path = str(tmp_path / "budget")
    create_budget(path, population="readers", epsilon=12, delta=1e-3)
    operator = make(budget=path)
    facts = operator.execute(context)
    folder = pathlib.Path(facts["path"])
    ledger = json.loads((folder / "ledger.json").read_text())
    assert folder.parts[-3:] == ("titles", "release", RUN)
    assert (facts["program"], facts["epsilon"], facts["delta"]) == ("ngrams", 10, 1e-4)
    assert facts["released"] == sum(facts["lengths"].values())
    assert operator.outlets == [AssetAlias("beam-dpne/titles/release")]
    (event,) = context["outlet_events"][AssetAlias("beam-dpne/titles/release")].asset_alias_events
    assert (event.dest_asset_key.uri, event.extra) == (f"file://{folder}", facts)
    (run,) = open_budget(path).runs().values()
    assert json.loads(run.data) == ledger
    # A second try of the run finds the release; a second run is beyond the cap.
    again = {**context, "outlet_events": OutletEventAccessors()}
    assert make(budget=path, py_interpreter="/none").execute(again) == facts
    with pytest.raises(BudgetError, match="does not allow this run"):
        make(budget=path).execute({**again, "run_id": "second"})
    assert not (folder.parent / "second").exists()


def test_runs_of_a_series_are_its_releases_and_hand_on_nothing_private(make, context, tmp_path):
    folders = {"series": str(tmp_path / "series"), "participants": str(tmp_path / "private")}
    total = {"epsilon": 10, "delta": 1e-4}
    create_series(*folders.values(), releases=3, releases_per_user=1, **total)
    named = {"epsilon": None, "delta": None, **folders}
    facts = make(**named).execute(context)
    again = {"run_id": "second", "outlet_events": OutletEventAccessors()}
    nobody = make(**named).execute(again)
    # Everybody has taken part in the first one.
    assert facts["released"] > 0 == nobody["released"]
    assert {*facts} <= {"path", "program", "epsilon", "delta", "released", "lengths"}
    assert folders["participants"] not in json.dumps([facts, nobody])
    with pytest.raises(UsageError, match="must both be on an object store"):
        make(**named, runner="PortableRunner").execute({**again, "run_id": "third"})
    assert [*open_series(folders["series"]).runs()] == [1, 2]


def test_a_budget_that_cannot_be_read_stops_the_run(make, context, interpreter, tmp_path):
    operator = make(py_interpreter=interpreter("exit 0"), budget=str(tmp_path / "none"))
    with pytest.raises(BudgetError, match="must be a folder with"):
        operator.execute(context)
    assert not (tmp_path / "arguments").exists()


def test_tries_that_fail_count_once(make, context, interpreter, tmp_path):
    path = str(tmp_path / "budget")
    create_budget(path, population="readers", epsilon=12, delta=1e-3)
    for _ in range(2):
        with pytest.raises(AirflowException, match="return code 3") as failed:
            make(py_interpreter=interpreter("exit 3"), budget=path).execute(context)
        assert not isinstance(failed.value, AirflowFailException)
    (note,) = open_budget(path).runs().values()
    assert isinstance(note, Note)


@pytest.mark.parametrize("is_in_a_file", [False, True])
def test_a_run_starts_when_the_release_that_it_knows_of_the_same_people_counts(
    make, context, tmp_path, is_in_a_file
):
    first, path = make(task_id="first").execute(context)["path"], str(tmp_path / "budget")
    create_budget(path, population="readers", epsilon=30, delta=1e-3)
    given = {"known": first, "known_same_people": True, "unit": "a reader"}
    if is_in_a_file:
        (tmp_path / "plan.json").write_text(json.dumps(given))
        given = {"plan": str(tmp_path / "plan.json")}
    operator = make(budget=path, **given)
    with pytest.raises(BudgetError, match="knows a release about the same people"):
        operator.execute(context)
    assert open_budget(path).runs() == {}
    assert not pathlib.Path(operator.directory(context)).exists()
    open_budget(path).add([read_counted(first)])
    operator.execute({**context, "outlet_events": OutletEventAccessors()})
    budget = open_budget(path)
    assert 10 < budget.total(budget.runs()).epsilon < 20
    # Their names begin with digests of where they are, so that either may come first.
    assert {run.unit for run in budget.runs().values()} == {None, "a reader"}


def test_a_parameter_of_the_task_and_of_its_plan_file_is_refused_before_its_budget_is_charged(
    make, context, tmp_path
):
    path = str(tmp_path / "budget")
    create_budget(path, population="readers", epsilon=12, delta=1e-3)
    plan = tmp_path / "plan.json"
    plan.write_text('{"epsilon": 1}')
    with pytest.raises(UsageError, match=r"^epsilon is in the file"):
        make(budget=path, plan=str(plan)).execute(context)
    assert open_budget(path).runs() == {}


def test_the_program_gets_its_options_and_beam_s(make, context, interpreter, tmp_path):
    operator = make(
        py_interpreter=interpreter("exit 0"),
        runner="PortableRunner",
        pipeline_options={"job_endpoint": "localhost:1", "environment_type": "EXTERNAL"},
        output_format="tsv",
        unit="a customer",
        columns=["user", "text, long"],
        text_field="text, long",
        run_key_file=None,
    )
    with pytest.raises(ReleaseError, match="there is no release"):
        operator.execute(context)
    given = (tmp_path / "arguments").read_text().splitlines()
    assert given[:4] == ["-m", "beam_dpne", "ngrams", "--runner=PortableRunner"]
    for argument in (
        f"--output={operator.directory(context)}",
        f"--job_name={operator.job_name(context)}",
        *("--epsilon=10", "--delta=0.0001", "--max_length=2", "--output_format=tsv"),
        *("--job_endpoint=localhost:1", "--environment_type=EXTERNAL"),
    ):
        assert argument in given
    assert {"--unit=a customer", '--columns=user,"text, long"'} <= set(given)
    assert not any("run_key_file" in argument or "plan" in argument for argument in given)


@pytest.mark.parametrize("fields", [{"epsilon": 9}, {"delta": 1e-5}, {"program": "set-union"}])
def test_a_release_of_another_task_is_not_taken_for_this_run_s(make, context, tmp_path, fields):
    facts = make(task_id="other").execute(context)
    operator = make(**fields)
    shutil.copytree(facts["path"], operator.directory(context))
    with pytest.raises(AirflowFailException, match="a release of another program or budget"):
        operator.execute(context)


def test_tasks_dags_runs_and_mapped_tasks_have_directories_of_their_own(make, context):
    class Mapped:
        map_index = 4

    found = {
        make().directory(context),
        make(dag="notes").directory(context),
        make(task_id="other").directory(context),
        make().directory({**context, "run_id": "another"}),
        make().directory({**context, "ti": Mapped}),
    }
    assert len(found) == 5
    for run_id in (".", "..", "../other/run"):
        with pytest.raises(AirflowFailException, match="run_id must be the name of a directory"):
            make().directory({"run_id": run_id})


@pytest.mark.parametrize(
    ("fields", "error", "message"),
    [
        ({"program": "ngram"}, ValueError, "`program` must be one of"),
        ({"overwrite": True}, ValueError, "`overwrite` must be left out"),
        ({"output": "/mine"}, ValueError, "`output` must be left out"),
        ({"max_lenght": 2}, TypeError, "max_lenght"),
        ({"series": "s", "budget": "b"}, ValueError, "budget must be left out with series"),
    ],
)
def test_a_wrong_field_fails_the_parsing_of_the_dag(make, fields, error, message):
    with pytest.raises(error, match=message):
        make(**fields)


def test_parsing_a_dag_imports_neither_beam_nor_google_s_provider():
    script = (
        "import beam_dpne.airflow.operators, sys; "
        "assert not {'apache_beam', 'airflow.providers.google.cloud'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", script], check=True)


def test_a_task_that_is_stopped_ends_its_program(make, context, interpreter, tmp_path):
    operator = make(py_interpreter=interpreter("exec sleep 60"))
    caught = []

    def run():
        try:
            operator.execute(context)
        except AirflowException as error:
            caught.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    while not (tmp_path / "arguments").exists():
        time.sleep(0.01)
    operator.on_kill()
    thread.join(timeout=30)
    assert not thread.is_alive()
    assert "return code -15" in str(caught[0])


def test_dataflow_gets_the_request_that_google_s_operator_sends(make, context):
    fields = {
        "input": ["gs://bucket/*.csv"],
        "releases": "gs://bucket/releases",
        "project_id": "project",
        "location": "europe-west1",
        "template": "gs://bucket/templates/ngrams.json",
        "environment": {"tempLocation": "gs://bucket/temp", "subnetwork": None},
    }
    how = {"output_format": "tsv", "unit": "a customer", "columns": ["user", "text"]}
    operator = make(DataflowReleaseOperator, **how, **fields)
    launch = operator.request(context)["launchParameter"]
    assert launch["jobName"] == operator.job_name(context)
    assert launch["parameters"] == {
        "input": "gs://bucket/*.csv",
        "epsilon": "10",
        "delta": "0.0001",
        "max_length": "2",
        "output_format": "tsv",
        "unit": "a customer",
        "columns": "user,text",
        "output": operator.directory(context),
    }
    assert launch["environment"] == {
        "ipConfiguration": "WORKER_IP_PRIVATE",
        "tempLocation": "gs://bucket/temp",
    }
    assert operator.append_job_name is False
    with pytest.raises(ValueError, match="`input` must be one value on Dataflow"):
        make(DataflowReleaseOperator, **fields | {"input": ["a", "b"]}).request(context)
    failed = {"status": "error", "message": "The job failed."}
    with pytest.raises(AirflowException, match="The job failed"):
        operator.execute_complete(context, failed)
