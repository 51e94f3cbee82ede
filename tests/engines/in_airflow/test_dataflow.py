"""The launches on Dataflow, up to the request that is sent, and up to the command of gcloud.

Run by Airflow's own Python, which `tests/engines/test_airflow.py` starts.
"""

import json
import os

import pytest
from airflow.sdk import DAG
from airflow.sdk.bases.operator import ExecutorSafeguard
from airflow.sdk.exceptions import AirflowException, TaskDeferred

from beam_dpne.airflow.dataflow import (
    DataflowTemplateReleaseOperator,
    DataflowYamlReleaseOperator,
)

RUN = "manual__2026-01-02"
JOB = "2026-01-02_03_04_05-123"
FIELDS = {
    "program": "set-union",
    "input": ["gs://bucket/a.csv", "gs://bucket/b.csv"],
    "releases": "gs://bucket/releases/",
    "epsilon": 2,
    "delta": 1e-7,
    "options": {"tokenizer": "item", "strict": True},
    "project_id": "project",
}
PARAMETERS = {
    "input": "gs://bucket/a.csv,gs://bucket/b.csv",
    "epsilon": "2",
    "delta": "1e-07",
    "tokenizer": "item",
    "strict": "true",
    "output": f"gs://bucket/releases/titles/release/{RUN}",
}
TEMPLATE = {
    "template": "gs://bucket/templates/set_union.json",
    "location": "europe-west1",
    "temp_location": "gs://bucket/temp",
    "staging_location": "gs://bucket/staging",
}
YAML = {"yaml_pipeline_file": "gs://bucket/set_union.yaml", "region": "europe-west1"}


class TaskInstance:
    """As much of a task instance as Google's links ask for."""

    def __init__(self):
        self.pushed = {}

    def xcom_push(self, key, value):
        self.pushed[key] = value


@pytest.fixture
def context():
    return {"run_id": RUN, "ti": TaskInstance(), "task_instance": TaskInstance()}


def make(kind, **fields):
    with DAG("titles", schedule=None):
        return kind(task_id="release", **{**FIELDS, **fields})


@pytest.fixture
def gcloud(tmp_path, monkeypatch):
    """A stand-in for gcloud, which writes down its arguments and prints the id of a job."""
    program = tmp_path / "gcloud"
    program.write_text(f'#!/bin/sh\nprintf "%s\\n" "$@" > "{tmp_path}/arguments"\necho {JOB}\n')
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    extra = {"is_anonymous": True, "project": "project"}
    connection = {"conn_type": "google_cloud_platform", "extra": extra}
    monkeypatch.setenv("AIRFLOW_CONN_GOOGLE_CLOUD_DEFAULT", json.dumps(connection))
    monkeypatch.setattr(ExecutorSafeguard, "test_mode", True)
    return tmp_path / "arguments"


def test_a_template_gets_the_fields_and_the_options_as_a_form_would_send_them(context):
    launch = make(DataflowTemplateReleaseOperator, **TEMPLATE).request(context)["launchParameter"]
    assert launch["parameters"] == PARAMETERS
    assert launch["environment"] == {
        "tempLocation": "gs://bucket/temp",
        "stagingLocation": "gs://bucket/staging",
        "ipConfiguration": "WORKER_IP_PRIVATE",
    }


@pytest.mark.parametrize("deferrable", [True, False])
def test_a_template_is_waited_for_on_the_worker_or_in_the_triggerer(deferrable):
    operator = make(DataflowTemplateReleaseOperator, **TEMPLATE, deferrable=deferrable)
    assert operator.wait_until_finished is not deferrable
    assert operator.cancel_on_kill is True


def test_a_yaml_file_is_launched_by_gcloud_with_the_options_as_variables(context, gcloud):
    operator = make(
        DataflowYamlReleaseOperator,
        **YAML,
        gcloud_options={"pipeline-options": "temp_location=gs://bucket/temp"},
        deferrable=True,
    )
    with pytest.raises(TaskDeferred) as deferred:
        operator.start(context)
    *command, name = (arguments := gcloud.read_text().splitlines())[:4]
    assert command == ["dataflow", "yaml", "run"]
    assert name == operator.engine_name(context)
    flags = dict(argument[2:].split("=", 1) for argument in arguments[4:])
    assert json.loads(flags.pop("jinja-variables")) == PARAMETERS
    assert flags == {
        "yaml-pipeline-file": "gs://bucket/set_union.yaml",
        "project": "project",
        "region": "europe-west1",
        "format": "value(job.id)",
        "pipeline-options": "temp_location=gs://bucket/temp",
    }
    assert deferred.value.trigger.serialize()[1]["job_id"] == JOB
    assert operator.options == FIELDS["options"]


def test_a_job_that_failed_on_dataflow_fails_the_task_which_may_be_tried_again(context, gcloud):
    operator = make(DataflowYamlReleaseOperator, **YAML, deferrable=True)
    event = {"status": "error", "message": "the job failed", "job": {"id": JOB}}
    with pytest.raises(AirflowException, match="the job failed"):
        operator.execute_complete(context, event)


def test_an_option_with_several_values_has_no_field_in_a_form(context):
    options = {"text_field": ["title", "body"]}
    operator = make(DataflowTemplateReleaseOperator, **TEMPLATE, options=options)
    with pytest.raises(ValueError, match="text_field must have one value on Dataflow"):
        operator.request(context)
