"""Private n-grams on Dataflow, launched from a Flex Template; see templates."""

import hashlib
from typing import Any

from airflow.providers.google.cloud.operators.dataflow import DataflowStartFlexTemplateOperator
from airflow.sdk import DAG, Param
from release_tasks import (
    RETRIES,
    ledger,
    program_options,
    release_directory,
    release_params,
    skip_if_released,
)

_ENVIRONMENT = {
    "tempLocation": "temp_location",
    "stagingLocation": "staging_location",
    "serviceAccountEmail": "service_account",
    "subnetwork": "subnetwork",
    "maxWorkers": "max_workers",
}


def launch_request(context: Any, jinja_env: Any) -> dict[str, Any]:
    """Returns the body of Dataflow's request to launch a Flex Template."""
    params = context["params"]
    environment = {key: params[name] for key, name in _ENVIRONMENT.items()}
    # One name for all tries: while a job of this run lives, Dataflow refuses another one.
    name = hashlib.sha256(release_directory(context).encode()).hexdigest()[:16]
    return {
        "launchParameter": {
            "jobName": f"beam-dpne-{name}",
            "containerSpecGcsPath": params["template"],
            "parameters": {key: _as_text(value) for key, value in program_options(context).items()},
            "environment": {
                **{key: value for key, value in environment.items() if value is not None},
                "ipConfiguration": "WORKER_IP_PRIVATE",
            },
        }
    }


def _as_text(value: Any) -> str:
    """Returns a value as the template's form would send it."""
    if isinstance(value, bool):
        return str(value).lower()
    return ",".join(map(str, value)) if isinstance(value, list) else str(value)


with DAG(
    "beam_dpne_dataflow",
    description="Releases private n-grams on Dataflow",
    doc_md=__doc__,
    schedule=None,
    params=release_params(
        template=Param(
            type="string",
            pattern="^gs://.+",
            description="Launch specification of the template, e.g. gs://bucket/templates/ngrams.json.",
        ),
        project=Param(type="string", description="Google Cloud project that runs the job."),
        location=Param("us-central1", type="string", description="Region of the job."),
        temp_location=Param(
            type="string",
            pattern="^gs://.+",
            description="Directory for temporary files; as sensitive as the data.",
        ),
        staging_location=Param(
            type="string",
            pattern="^gs://.+",
            description="Directory for the job graph, which holds a fresh run key; as sensitive as the "
            "data.",
        ),
        service_account=Param(
            None, type=["null", "string"], description="Account of the workers; empty: the default."
        ),
        subnetwork=Param(
            None,
            type=["null", "string"],
            description="regions/REGION/subnetworks/NAME with private access to Google; workers have "
            "no public addresses.",
        ),
        max_workers=Param(
            None, type=["null", "integer"], minimum=1, description="At most so many workers."
        ),
    ),
    tags=["beam_dpne"],
):
    release = DataflowStartFlexTemplateOperator(
        task_id="release",
        body=launch_request,
        project_id="{{ params.project }}",
        location="{{ params.location }}",
        append_job_name=False,
        wait_until_finished=True,
        deferrable=False,
        pre_execute=skip_if_released,
        retries=RETRIES,
    )
    release >> ledger()
