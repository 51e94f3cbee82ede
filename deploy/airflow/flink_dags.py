"""Private releases on a Flink cluster, through Beam's job server; see deploy/flink.

The task is deferred while the job runs. Input, output and run key must be on storage that the Flink
workers and the Airflow worker share.
"""

from airflow.sdk import DAG, Param
from release_params import PROGRAMS, Program, param, release_fields, release_params

from beam_dpne.airflow.operators import FlinkReleaseOperator


def flink_dag(program: Program) -> DAG:
    """Returns the DAG of one program."""
    with DAG(
        f"beam_dpne_flink{program.suffix}",
        description=f"Releases private {program.noun} on a Flink cluster",
        doc_md=__doc__,
        schedule=None,
        params=release_params(
            program,
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
                description="Tasks of each stage: the cluster's slots, or more, so that each reads at "
                "most 128 MB of text.",
            ),
            flink_master=Param(
                "flink-jobmanager:8081",
                type="string",
                description="Flink's REST interface, HOST:PORT; a task that is stopped cancels its "
                "job there.",
            ),
        ),
        tags=["beam_dpne"],
    ) as dag:
        FlinkReleaseOperator(
            **release_fields(program),
            job_endpoint=param("job_endpoint"),
            environment_config=param("environment_config"),
            parallelism=param("parallelism"),
            flink_master=param("flink_master"),
            deferrable=True,
        )
    return dag


ngrams, set_union, bayesian = map(flink_dag, PROGRAMS)
