"""Private n-grams on Dataflow, launched from a Flex Template; see templates."""

from airflow.sdk import DAG, Param
from launch import NATIVE, launch_fields, launch_params

from beam_dpne.airflow.dataflow import DataflowReleaseOperator

PARAMS = launch_params(
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
        description="Directory for the job graph, which holds a fresh run key; as "
        "sensitive as the data.",
    ),
    subnetwork=Param(
        None,
        type=["null", "string"],
        description="regions/REGION/subnetworks/NAME with private access to Google; workers have no "
        "public addresses.",
    ),
)

with DAG("beam_dpne_dataflow", doc_md=__doc__, params=PARAMS, **NATIVE):
    DataflowReleaseOperator(
        **launch_fields(),
        template="{{ params.template }}",
        project_id="{{ params.project }}",
        location="{{ params.location }}",
        environment={
            "tempLocation": "{{ params.temp_location }}",
            "stagingLocation": "{{ params.staging_location }}",
            "subnetwork": "{{ params.subnetwork }}",
        },
        deferrable=True,
    )
