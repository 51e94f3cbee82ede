"""Private n-grams on a Flink cluster, through Beam's job server; see deploy/flink.

Input, releases and run key must be on storage that the Flink workers and the Airflow worker share.
"""

from airflow.sdk import DAG, Param
from launch import NATIVE, launch_fields, launch_params

from beam_dpne.airflow.operators import ReleaseOperator

PARAMS = launch_params(
    job_endpoint=Param(
        "flink-jobserver:8099", type="string", description="Beam's job server, HOST:PORT."
    ),
    environment_config=Param(
        "localhost:50000",
        type="string",
        description="Worker pool as the TaskManagers reach it, HOST:PORT.",
    ),
    parallelism=Param(
        2,
        type="integer",
        minimum=1,
        description="Tasks of each stage: the cluster's slots, or more, so that each reads at most "
        "128 MB of text.",
    ),
)

with DAG("beam_dpne_flink", doc_md=__doc__, params=PARAMS, **NATIVE):
    ReleaseOperator(
        **launch_fields(),
        runner="PortableRunner",
        pipeline_options={
            "job_endpoint": "{{ params.job_endpoint }}",
            "environment_type": "EXTERNAL",
            "environment_config": "{{ params.environment_config }}",
            "parallelism": "{{ params.parallelism }}",
            # Stages run one after the other, so that there may be more tasks than slots.
            "execution_mode_for_batch": "BATCH",
        },
    )
