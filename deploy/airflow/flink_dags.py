"""Private releases on a Flink cluster, through Beam's job server; see deploy/flink.

The launcher runs on the Airflow worker until the job has ended. Input, output and run key must be on
storage that the Flink workers and the Airflow worker share.
"""

from typing import Any

from airflow.providers.apache.beam.operators.beam import BeamRunPythonPipelineOperator
from airflow.sdk import DAG, Param
from release_tasks import (
    PROGRAMS,
    PYTHON,
    RETRIES,
    Program,
    ledger,
    program_options,
    release_params,
    skip_if_released,
)


def flink_options(program: Program, context: Any) -> dict[str, Any]:
    """Returns the options of the program and of Beam's portable runner."""
    names = ("job_endpoint", "environment_config", "parallelism", "flink_master")
    engine = {name: context["params"][name] for name in names}
    fixed = {"environment_type": "EXTERNAL", "execution_mode_for_batch": "BATCH_FORCED"}
    return {**program_options(program, context), **fixed, **engine}


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
                description="Flink's REST interface, HOST:PORT; a launcher that is stopped cancels "
                "there.",
            ),
        ),
        tags=["beam_dpne"],
    ) as dag:
        release = BeamRunPythonPipelineOperator(
            task_id="release",
            py_file=program.file,
            py_interpreter=PYTHON,
            runner="PortableRunner",
            pipeline_options=lambda context, jinja_env: flink_options(program, context),
            pre_execute=skip_if_released,
            retries=RETRIES,
        )
        release >> ledger()
    return dag


ngrams, set_union, bayesian = map(flink_dag, PROGRAMS)
