"""Private releases on Dataflow, launched from a Flex Template; see templates."""

from airflow.sdk import DAG, Param
from release_params import PROGRAMS, Program, param, release_fields, release_params

from beam_dpne.airflow.dataflow import DataflowTemplateReleaseOperator


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
        DataflowTemplateReleaseOperator(
            **release_fields(program),
            template=param("template"),
            project_id=param("project"),
            location=param("location"),
            temp_location=param("temp_location"),
            staging_location=param("staging_location"),
            service_account=param("service_account"),
            subnetwork=param("subnetwork"),
            max_workers=param("max_workers"),
            deferrable=True,
        )
    return dag


ngrams, set_union, bayesian = map(dataflow_dag, PROGRAMS)
