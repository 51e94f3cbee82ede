"""Operators, executed without a scheduler: what they start, refuse, hand on and stop.

Run by Airflow's own Python, which `tests/engines/test_airflow.py` starts; beam_dpne is a wheel there.
"""

import json
import os
import pathlib
import shutil
import signal
import stat
import subprocess
import sys
import threading
import time

import pytest
from airflow.sdk import DAG, Asset, AssetAlias
from airflow.sdk.bases.operator import ExecutorSafeguard
from airflow.sdk.exceptions import AirflowException, AirflowFailException, TaskDeferred
from airflow.sdk.execution_time.context import OutletEventAccessors
from flink_server import serve_flink

from beam_dpne.airflow.budget import Budget
from beam_dpne.airflow.dataflow import (
    DataflowTemplateReleaseOperator,
    DataflowYamlReleaseOperator,
)
from beam_dpne.airflow.operators import FlinkReleaseOperator, ReleaseOperator

RUN = "manual__2026-01-02T03:04:05+00:00"
FLINK = {"job_endpoint": "localhost:1", "flink_master": "localhost:2", "parallelism": 3}
TEMPLATE = {
    "template": "gs://bucket/templates/ngrams.json",
    "location": "europe-west1",
    "temp_location": "gs://bucket/temp",
    "staging_location": "gs://bucket/staging",
}
YAML = {"yaml_pipeline_file": "gs://bucket/ngrams.yaml", "region": "europe-west1"}


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
            "input": str(notes),
            "releases": str(tmp_path / "releases"),
            "epsilon": 10,
            "delta": 1e-4,
            "options": {"max_length": 2, "max_contributions": 5},
        }
        with DAG(dag, schedule=None):
            return kind(task_id=task_id, **{**common, **fields})

    return made


@pytest.fixture(scope="session")
def released(tmp_path_factory, notes):
    """The files of a release that the program has made; the releases of tests are copies of it."""
    folder = tmp_path_factory.mktemp("released")
    with DAG("titles", schedule=None), pytest.MonkeyPatch.context() as patch:
        patch.setattr(ExecutorSafeguard, "test_mode", True)
        operator = ReleaseOperator(
            task_id="release",
            program="ngrams",
            input=str(notes),
            releases=str(folder),
            epsilon=10,
            delta=1e-4,
            options={"max_length": 2, "max_contributions": 5},
        )
        context = {"run_id": RUN, "outlet_events": OutletEventAccessors()}
        result = operator.execute(context)
    return pathlib.Path(result["path"]), result, context


@pytest.fixture
def flink():
    with serve_flink() as served:
        yield served


@pytest.fixture
def interpreter(tmp_path):
    """Makes a stand-in for the Python that runs the program; ARGUMENTS holds what it was given."""

    def made(script):
        path = tmp_path / "python"
        path.write_text(f'#!/bin/sh\nprintf "%s\\n" "$@" > "{tmp_path}/arguments"\n{script}\n')
        path.chmod(path.stat().st_mode | stat.S_IXUSR)
        return str(path)

    return made


def test_beam_dpne_is_installed_and_not_the_checkout():
    import beam_dpne

    assert pathlib.Path(beam_dpne.__file__).is_relative_to(pathlib.Path(sys.prefix))


# A run and what it hands on


def test_a_run_hands_on_the_public_part_of_its_ledger(released):
    folder, result, _ = released
    ledger = json.loads((folder / "ledger.json").read_text())
    assert result == {
        "path": str(folder),
        "ledger": f"{folder}/ledger.json",
        "program": "ngrams",
        "epsilon": 10,
        "delta": 1e-4,
        "released": sum(part["rows"] for part in ledger["parts"]),
        "lengths": {str(one["length"]): one["released"] for one in ledger["lengths"]},
        "parts": ledger["parts"],
    }
    assert result["lengths"]["1"] == 3
    assert len(json.dumps(result)) < 1000
    assert folder.parts[-3:] == ("titles", "release", RUN)


def test_a_run_announces_its_release_as_an_asset(released, make):
    folder, result, context = released
    assert make().outlets == [AssetAlias("beam-dpne/titles/release")]
    (event,) = context["outlet_events"][AssetAlias("beam-dpne/titles/release")].asset_alias_events
    assert event.dest_asset_key.uri == Asset(f"file://{folder}").uri
    names = ("ledger", "program", "epsilon", "delta", "released", "lengths")
    assert event.extra == {name: result[name] for name in names}


def test_a_try_after_a_release_starts_nothing_and_hands_the_release_on(
    released, make, context, interpreter, tmp_path
):
    operator = make(python=interpreter("exit 1"))
    shutil.copytree(released[0], operator.directory(context))
    result = operator.execute(context)
    assert result["path"] == operator.directory(context)
    assert result["parts"] == released[1]["parts"]
    assert not (tmp_path / "arguments").exists()


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"epsilon": 9}, "another"),
        ({"delta": 1e-5}, "another"),
        ({"program": "set-union"}, "another"),
    ],
)
def test_a_release_of_another_task_is_not_taken_for_this_run_s(
    released, make, context, fields, reason
):
    options = {"max_contributions": 5}
    operator = make(**{"options": options, **fields})
    shutil.copytree(released[0], operator.directory(context))
    with pytest.raises(
        AirflowFailException, match=f"holds a release of {reason} program or budget"
    ):
        operator.execute(context)


def test_a_damaged_release_is_not_handed_on(released, make, context):
    operator = make()
    folder = pathlib.Path(operator.directory(context))
    shutil.copytree(released[0], folder)
    (part,) = folder.glob("ngrams-*")
    part.write_text(part.read_text().replace("good", "evil"))
    with pytest.raises(AirflowFailException, match="is missing or damaged; the ledger lists it"):
        operator.execute(context)
    part.unlink()
    with pytest.raises(AirflowFailException, match="is missing or damaged; the ledger lists it"):
        operator.execute(context)


def test_a_ledger_that_is_not_whole_stops_the_run(make, context, interpreter, tmp_path):
    operator = make(python=interpreter("exit 0"))
    folder = pathlib.Path(operator.directory(context))
    folder.mkdir(parents=True)
    (folder / "ledger.json").write_text('{"schema": "beam_dpne/ledger/2"}')
    with pytest.raises(AirflowFailException, match="Look at it before going on"):
        operator.execute(context)
    assert not (tmp_path / "arguments").exists()


def test_a_program_that_ends_well_without_a_release_fails_the_task(make, context, interpreter):
    with pytest.raises(AirflowFailException, match="nothing was published there"):
        make(python=interpreter("exit 0")).execute(context)


def test_a_program_that_fails_may_be_tried_again(make, context, interpreter):
    with pytest.raises(AirflowException, match="ended with status 3; the log above") as failed:
        make(python=interpreter("exit 3")).execute(context)
    assert not isinstance(failed.value, AirflowFailException)


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
    assert not any(
        one.startswith(f"{other}/")
        for one in found - {make().directory(context)}
        for other in found - {make().directory(context)}
    )


@pytest.mark.parametrize("run_id", [".", "..", "../other/run"])
def test_a_run_whose_id_leads_elsewhere_is_refused(make, run_id):
    with pytest.raises(AirflowFailException, match="run_id must be the name of a directory"):
        make().directory({"run_id": run_id})


def test_parsing_a_dag_imports_no_beam():
    script = "import beam_dpne.airflow.operators, sys; assert 'apache_beam' not in sys.modules"
    subprocess.run([sys.executable, "-c", script], check=True)


# What a DAG or a task is refused for


@pytest.mark.parametrize(
    ("kind", "fields", "message"),
    [
        (ReleaseOperator, {"options": {"max_lenght": 2}}, "did you mean 'max_length'"),
        (ReleaseOperator, {"program": "ngram"}, "did you mean 'ngrams'"),
        (ReleaseOperator, {"options": {"overwrite": True}}, "must not have overwrite"),
        (ReleaseOperator, {"beam_options": {"overwrite": True}}, "options of Beam"),
        (ReleaseOperator, {"beam_options": {"output=/other": True}}, "options of Beam"),
        (ReleaseOperator, {"beam_options": {"runner": "DirectRunner"}}, "options of Beam"),
        (FlinkReleaseOperator, {**FLINK, "beam_options": {"job_name": "mine"}}, "got 'job_name'"),
        (
            FlinkReleaseOperator,
            {**FLINK, "deferrable": True, "options": {"failure_log": "/private/log"}},
            "must not have failure_log here: the program that starts the job ends before",
        ),
        (DataflowTemplateReleaseOperator, TEMPLATE, "releases must be an address on Google Cloud"),
        (
            DataflowTemplateReleaseOperator,
            {
                **TEMPLATE,
                "input": "gs://bucket/a.csv",
                "releases": "gs://bucket/out",
                "options": {"harness_timeout": 5},
            },
            "must not have harness_timeout here",
        ),
        (
            DataflowYamlReleaseOperator,
            {**YAML, "releases": "gs://bucket/out"},
            "input must be an address on Google Cloud",
        ),
    ],
)
def test_a_wrong_field_fails_the_parsing_of_the_dag(make, kind, fields, message):
    with pytest.raises(ValueError, match=message):
        make(kind, **fields)


@pytest.mark.parametrize(
    ("rendered", "message"),
    [
        ({"options": {"max_lenght": 2}}, "did you mean 'max_length'"),
        ({"epsilon": "much"}, "epsilon must match"),
        ({"input": "{{ a typo }}"}, "input must be rendered to a value"),
        ({"options": {"max_length": "{{ 2 }}"}}, "options must be rendered to a value"),
    ],
)
def test_a_field_is_checked_again_when_it_is_rendered(
    make, context, interpreter, tmp_path, rendered, message
):
    operator = make(python=interpreter("exit 0"), **dict.fromkeys(rendered, "{{ params.x }}"))
    for name, value in rendered.items():
        setattr(operator, name, value)
    with pytest.raises((ValueError, AirflowFailException), match=message):
        operator.execute(context)
    assert not (tmp_path / "arguments").exists()


@pytest.mark.parametrize("name", ["rejects", "run_key_file"])
def test_a_path_in_a_release_elsewhere_is_refused_before_the_start(
    released, make, context, interpreter, tmp_path, name
):
    path = f"{released[0]}/further/file"
    field = {"run_key_file": path} if name == "run_key_file" else {"options": {name: path}}
    with pytest.raises(AirflowFailException, match=f"{name} must be outside every release, got"):
        make(python=interpreter("exit 0"), **field).execute(context)
    assert not (tmp_path / "arguments").exists()


# The budget


@pytest.fixture
def population(released, tmp_path):
    """The folder of the operators' releases, with two of (10, 1e-4) at different depths."""
    folder = tmp_path / "releases"
    shutil.copytree(released[0], folder / "first")
    shutil.copytree(released[0], folder / "dag" / "task" / RUN)
    (folder / "population.txt").touch()
    return folder


@pytest.mark.parametrize(
    ("limits", "refused"),
    [
        ({"max_epsilon": 30, "max_delta": 3e-4}, None),
        # Two releases of ε = 10 have less than 20 together, and the run to start is added.
        ({"max_epsilon": 26, "max_delta": 3e-4}, None),
        ({"max_epsilon": 20, "max_delta": 1e-3}, "epsilon 20 at delta 0.001"),
        ({"max_epsilon": 100, "max_delta": 1e-4}, "epsilon 100 at delta 0.0001"),
    ],
)
def test_a_run_starts_only_if_its_budget_suffices(
    make, context, population, interpreter, tmp_path, limits, refused
):
    budget = Budget(releases=str(population), **limits)
    operator = make(python=interpreter("exit 0"), budget=budget)
    with pytest.raises(AirflowFailException) as failed:
        operator.execute(context)
    cap = f"does not allow this run: its cap is {refused}. Its 2 releases have"
    message = cap if refused else "nothing was published"
    assert message in str(failed.value)
    assert (tmp_path / "arguments").exists() == (refused is None)
    note = pathlib.Path(operator.directory(context)).parent.glob(f"{RUN}.started-*.json")
    assert any(note) == (refused is None)


def test_the_budget_of_a_plan_is_that_of_its_file(make, context, population, interpreter, tmp_path):
    plan = tmp_path / "plan.json"
    plan.write_text(json.dumps({"epsilon": 20.5, "delta": 1e-4}))
    fields = {"epsilon": None, "delta": None, "options": {"plan": str(plan)}}
    budget = Budget(releases=str(population), max_epsilon=30, max_delta=3e-4)
    for text, message in (
        ('{"epsilon": 20.5, "delta": 1e-4}', r"with this run of epsilon 20\.5 and delta 0\.0001"),
        ('{"epsilon": -10, "delta": 1e-4}', "epsilon must be a number above 0"),
        ('{"epsilon": NaN, "delta": 1e-4}', "epsilon must be a number above 0"),
        ("{}", "with epsilon and delta"),
    ):
        plan.write_text(text)
        with pytest.raises(AirflowFailException, match=message):
            make(python=interpreter("exit 0"), budget=budget, **fields).execute(context)
    assert not (tmp_path / "arguments").exists()


@pytest.mark.parametrize(
    ("folder", "message"),
    [
        ("releases/none", "must be in the folder of its budget"),
        ("other", "must be in the folder of its budget"),
        ("", "must be a folder with the file population.txt"),
    ],
)
def test_a_budget_of_another_folder_stops_a_run_before_its_start(
    make, context, population, interpreter, tmp_path, folder, message
):
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "population.txt").touch()
    budget = Budget(releases=str(tmp_path / folder), max_epsilon=1000, max_delta=0.5)
    with pytest.raises(AirflowFailException, match=message):
        make(python=interpreter("exit 0"), budget=budget).execute(context)
    assert not (tmp_path / "arguments").exists()


def test_a_ledger_that_cannot_be_read_stops_a_run_with_a_budget(make, context, population):
    (population / "first" / "ledger.json").write_text("{}")
    budget = Budget(releases=str(population), max_epsilon=1000, max_delta=0.5)
    with pytest.raises(AirflowFailException, match="is not a ledger of beam_dpne"):
        make(budget=budget).execute(context)


def test_a_storage_that_fails_may_be_tried_again(make, context, tmp_path):
    (tmp_path / "releases").write_text("no folder")
    budget = Budget(releases=str(tmp_path / "releases"), max_epsilon=1000, max_delta=0.5)
    with pytest.raises(AirflowException, match="cannot be listed") as failed:
        make(budget=budget).execute(context)
    assert not isinstance(failed.value, AirflowFailException)


def test_a_try_after_a_release_needs_no_budget_again(released, make, context):
    operator = make()
    shutil.copytree(released[0], operator.directory(context))
    operator.budget = Budget(releases=operator.releases, max_epsilon=10, max_delta=1e-4)
    assert operator.execute(context)["epsilon"] == 10


def test_a_run_in_an_empty_population_publishes_beside_its_note(make, context, tmp_path):
    """A run of the program, to its end."""
    (tmp_path / "releases").mkdir()
    (tmp_path / "releases" / "population.txt").touch()
    budget = Budget(releases=str(tmp_path / "releases"), max_epsilon=10, max_delta=1e-4)
    operator = make(budget=budget)
    result = operator.execute(context)
    (note,) = pathlib.Path(result["path"]).parent.glob(f"{RUN}.started-*.json")
    assert json.loads(note.read_text()) == {"epsilon": 10, "delta": 1e-4}
    with pytest.raises(AirflowFailException, match="Its 1 release has epsilon 10 at"):
        operator.execute({**context, "run_id": "another"})


@pytest.mark.parametrize(
    "limits",
    [
        {"max_epsilon": 0},
        {"max_epsilon": "1"},
        {"max_epsilon": float("nan")},
        {"max_delta": 1},
        {"max_delta": True},
    ],
)
def test_a_budget_without_limits_is_refused(limits):
    with pytest.raises(ValueError, match=f"{next(iter(limits))} must be in"):
        Budget(releases="/releases", **{"max_epsilon": 1, "max_delta": 1e-6, **limits})


def test_a_budget_of_a_relative_folder_is_refused_when_the_dag_is_parsed():
    with pytest.raises(ValueError, match="must be an absolute path or an address"):
        Budget(releases="releases", max_epsilon=1, max_delta=1e-6)
    Budget(releases="{{ params.releases }}", max_epsilon=1, max_delta=1e-6)


def test_another_check_may_stand_in_for_the_budget(make, context, interpreter):
    asked = []

    class Approval:
        def check(self, epsilon, delta, directory):
            asked.append((epsilon, delta, directory))
            raise AirflowFailException("no approval")

    operator = make(python=interpreter("exit 0"), budget=Approval(), epsilon="2.5")
    with pytest.raises(AirflowFailException, match="no approval"):
        operator.execute(context)
    assert asked == [(2.5, 1e-4, operator.directory(context))]


# Commands and kills


def test_the_command_is_the_program_of_the_python_that_is_given(make, context):
    operator = make(
        python="/opt/python", beam_options={"direct_num_workers": 2, "streaming": False}
    )
    assert operator.command(context) == [
        *("/opt/python", "-m", "beam_dpne.cli.main", "ngrams"),
        *(f"--input={operator.input}", "--epsilon=10", "--delta=0.0001"),
        *("--max_length=2", "--max_contributions=5"),
        *(f"--output={operator.directory(context)}", "--direct_num_workers=2"),
    ]


def test_the_worker_s_environment_names_the_python_and_else_it_is_airflow_s(
    make, context, monkeypatch
):
    monkeypatch.setenv("BEAM_DPNE_PYTHON", "/opt/python")
    assert make().command(context)[0] == "/opt/python"
    monkeypatch.delenv("BEAM_DPNE_PYTHON")
    assert make().command(context)[0] == sys.executable


def test_a_job_on_flink_has_one_name_for_all_tries_of_a_run(make, context):
    command = make(FlinkReleaseOperator, **FLINK).command(context)
    (name,) = (part for part in command if part.startswith("--job_name="))
    assert name in make(FlinkReleaseOperator, **FLINK).command(context)
    other = make(FlinkReleaseOperator, **FLINK).command({**context, "run_id": "another"})
    assert name not in other


def test_killing_a_task_terminates_the_program_and_waits_for_its_end(
    make, context, interpreter, tmp_path
):
    script = f"trap 'sleep 1; echo cancelled > \"{tmp_path}/end\"; exit 143' TERM\n"
    script += f'touch "{tmp_path}/started"\nwhile true; do sleep 0.1; done'
    operator = make(python=interpreter(script))
    failures = []

    def run():
        try:
            operator.execute(context)
        except AirflowException as error:
            failures.append(str(error))

    task = threading.Thread(target=run)
    task.start()
    while not (tmp_path / "started").exists():
        time.sleep(0.05)
    operator.on_kill()
    assert (tmp_path / "end").read_text() == "cancelled\n"
    task.join()
    assert "status 143" in failures[0]
    assert operator.process.sub_process.returncode in (143, -signal.SIGTERM)


def test_killing_a_task_that_has_started_nothing_does_nothing(make):
    make().on_kill()


def test_a_deferrable_task_hands_its_job_over_to_the_triggerer(
    handing_over, context, tmp_path, folder, flink
):
    operator = handing_over(f'echo \'{{"folder": "{folder}"}}\' > "$3"')
    with pytest.raises(TaskDeferred) as deferred:
        operator.execute(context)
    arguments = (tmp_path / "arguments").read_text().splitlines()
    assert arguments[:2] == ["-m", "beam_dpne.airflow.hand_over"]
    assert arguments[3:] == operator.command(context)[3:]
    assert deferred.value.method_name == "execute_complete"
    _, fields = deferred.value.trigger.serialize()
    assert fields == {
        "flink_master": flink.address,
        "job": "1" * 32,
        "folder": str(folder),
        "poll_interval": 7,
        "patience": 600,
    }
    assert folder.exists()
    # A task that is killed before the triggerer has its trigger cancels the job itself.
    operator.on_kill()
    assert flink.asked[-1] == CANCEL
    assert not folder.exists()


CANCEL = f"PATCH /jobs/{'1' * 32}?mode=cancel"


@pytest.fixture
def folder(tmp_path):
    """The temporary folder of a run that is handed over."""
    made = tmp_path / ".beam_dpne-1"
    made.mkdir()
    return made


@pytest.fixture
def handing_over(make, context, interpreter, flink):
    """Makes a deferrable task; its program is a stand-in that leaves a job at Flink."""

    def made(script):
        operator = make(
            FlinkReleaseOperator,
            **{**FLINK, "flink_master": flink.address},
            deferrable=True,
            poll_interval=7,
            python=interpreter(script),
        )
        job = {
            "jid": "1" * 32,
            "name": operator.engine_name(context),
            "state": "RUNNING",
            "start-time": 1,
        }
        flink.answers["GET /jobs/overview"] = [(200, {"jobs": [job]})]
        flink.answers[CANCEL] = [(202, {})]
        return operator

    return made


@pytest.fixture
def terminable(monkeypatch):
    """SIGTERM reaches a task as in Airflow's task runner, which lets the task go on after that."""

    def made(operator):
        signal.signal(signal.SIGTERM, lambda *_: operator.on_kill())

    earlier = signal.getsignal(signal.SIGTERM)
    yield made
    signal.signal(signal.SIGTERM, earlier)


@pytest.mark.parametrize(
    "ending", ["kill -TERM $PPID", "kill -TERM $PPID; sleep 1", "kill -KILL $$"]
)
def test_a_task_that_is_killed_while_its_program_ends_stops_the_job(
    handing_over, context, folder, flink, terminable, ending
):
    """The program has left a job, and it may end well, be killed too, or be killed alone."""
    operator = handing_over(f'echo \'{{"folder": "{folder}"}}\' > "$3"\n{ending}')
    terminable(operator)
    with pytest.raises(AirflowException, match=r"was stopped|ended with status"):
        operator.execute(context)
    assert CANCEL in flink.asked
    assert not folder.exists()


def test_a_task_that_is_killed_while_it_looks_for_its_job_stops_the_job(
    handing_over, context, folder, flink, terminable
):
    operator = handing_over(f'echo \'{{"folder": "{folder}"}}\' > "$3"')
    terminable(operator)
    flink.meanwhile = lambda: os.kill(os.getpid(), signal.SIGTERM)
    with pytest.raises(AirflowException, match="was stopped"):
        operator.execute(context)
    assert CANCEL in flink.asked
    assert not folder.exists()


def test_a_job_that_is_not_found_at_flink_publishes_nothing(handing_over, context, folder, flink):
    operator = handing_over(f'echo \'{{"folder": "{folder}"}}\' > "$3"')
    flink.answers["GET /jobs/overview"] = [(200, {"jobs": []})]
    with pytest.raises(AirflowException, match="has no job") as failed:
        operator.execute(context)
    assert not isinstance(failed.value, AirflowFailException)
    assert not folder.exists()


def test_a_program_that_has_sent_nothing_leaves_nothing_to_stop(handing_over, context, flink):
    with pytest.raises(AirflowException, match="ended with status 2"):
        handing_over("exit 2").execute(context)
    assert flink.asked == []


def test_a_task_that_was_stopped_starts_no_program(make, context, interpreter, tmp_path):
    operator = make(python=interpreter("exit 0"))

    class Slow:
        def check(self, epsilon, delta, directory):
            operator.on_kill()

    operator.budget = Slow()
    with pytest.raises(AirflowException, match="was stopped"):
        operator.execute(context)
    assert not (tmp_path / "arguments").exists()


@pytest.fixture
def deferred(make, released, context, tmp_path):
    """A deferrable task, its temporary folder, and its directory with or without a release."""
    operator = make(FlinkReleaseOperator, **FLINK, deferrable=True)
    folder = tmp_path / ".beam_dpne-1"
    folder.mkdir()

    def resumed(state, published):
        if published:
            shutil.copytree(released[0], operator.directory(context))
        event = {"state": state, "job": "0" * 32, "folder": str(folder)}
        try:
            return operator.execute_complete(context, event)
        finally:
            assert not folder.exists()

    return resumed


@pytest.mark.parametrize("state", ["FINISHED", "FORGOTTEN", "UNREACHABLE", "FAILED"])
def test_a_resumed_task_hands_a_whole_release_on_whatever_flink_says(deferred, state):
    assert deferred(state, published=True)["released"] > 0


@pytest.mark.parametrize("state", ["FAILED", "CANCELED", "FORGOTTEN", "UNREACHABLE"])
def test_a_resumed_task_without_a_release_may_be_tried_again(deferred, state):
    with pytest.raises(AirflowException, match=f"The job at Flink is {state}; the log") as failed:
        deferred(state, published=False)
    assert not isinstance(failed.value, AirflowFailException)


def test_a_finished_job_without_a_release_fails_the_task(deferred):
    with pytest.raises(AirflowFailException, match="nothing was published there"):
        deferred("FINISHED", published=False)
