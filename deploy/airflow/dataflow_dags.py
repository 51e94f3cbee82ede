"""Private releases on Dataflow, launched from a Flex Template; see templates."""

import hashlib
from typing import Any

from airflow.providers.google.cloud.operators.dataflow import DataflowStartFlexTemplateOperator
from airflow.sdk import DAG, Param
from release_tasks import (
    PROGRAMS,
    RETRIES,
    Program,
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


def launch_request(program: Program, context: Any) -> dict[str, Any]:
    """Returns the body of Dataflow's request to launch a Flex Template."""
    params = context["params"]
    environment = {key: params[name] for key, name in _ENVIRONMENT.items()}
    # One name for all tries: while a job of this run lives, Dataflow refuses another one.
    name = hashlib.sha256(release_directory(context).encode()).hexdigest()[:16]
    return {
        "launchParameter": {
            "jobName": f"beam-dpne-{name}",
            "containerSpecGcsPath": params["template"],
            "parameters": {
                key: _as_text(value) for key, value in program_options(program, context).items()
            },
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


def dataflow_dag(program: Program) -> DAG:
    """Returns the DAG of one program."""
    with DAG(
        f"beam_dpne_dataflow{program.suffix}",
        description=f"Releases private {program.noun} on Dataflow",
        doc_md=__doc__,
        schedule=None,
        params=release_params(
            program,
            template=Param(
                type="string",
                pattern="^gs://.+",
                description="Launch specification of the template, e.g. "
                f"gs://bucket/templates/{program.name}.json.",
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
                description="Directory for the job graph, which holds a fresh run key; as sensitive "
                "as the data.",
            ),
            service_account=Param(
                None,
                type=["null", "string"],
                description="Account of the workers; empty: the default.",
            ),
            subnetwork=Param(
                None,
                type=["null", "string"],
                description="regions/REGION/subnetworks/NAME with private access to Google; workers "
                "have no public addresses.",
            ),
            max_workers=Param(
                None, type=["null", "integer"], minimum=1, description="At most so many workers."
            ),
        ),
        tags=["beam_dpne"],
    ) as dag:
        release = DataflowStartFlexTemplateOperator(
            task_id="release",
            body=lambda context, jinja_env: launch_request(program, context),
            project_id="{{ params.project }}",
            location="{{ params.location }}",
            append_job_name=False,
            wait_until_finished=True,
            deferrable=False,
            pre_execute=skip_if_released,
            retries=RETRIES,
        )
        release >> ledger()
    return dag


ngrams, set_union, bayesian = map(dataflow_dag, PROGRAMS)
