"""Private n-grams on a Flink cluster, through Beam's job server; see deploy/flink.

The launcher runs on the Airflow worker until the job has ended. Input, output and run key must be on
storage that the Flink workers and the Airflow worker share.
"""

from typing import Any

from airflow.providers.apache.beam.operators.beam import BeamRunPythonPipelineOperator
from airflow.sdk import DAG, Param
from release_tasks import (
    PROGRAM,
    PYTHON,
    RETRIES,
    ledger,
    program_options,
    release_params,
    skip_if_released,
)


def flink_options(context: Any, jinja_env: Any) -> dict[str, Any]:
    """Returns the options of the program and of Beam's portable runner."""
    names = ("job_endpoint", "environment_config", "parallelism", "flink_master")
    engine = {name: context["params"][name] for name in names}
    fixed = {"environment_type": "EXTERNAL", "execution_mode_for_batch": "BATCH_FORCED"}
    return {**program_options(context), **fixed, **engine}


with DAG(
    "beam_dpne_flink",
    description="Releases private n-grams on a Flink cluster",
    doc_md=__doc__,
    schedule=None,
    params=release_params(
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
        flink_master=Param(
            "flink-jobmanager:8081",
            type="string",
            description="Flink's REST interface, HOST:PORT; a launcher that is stopped cancels there.",
        ),
    ),
    tags=["beam_dpne"],
):
    release = BeamRunPythonPipelineOperator(
        task_id="release",
        py_file=PROGRAM,
        py_interpreter=PYTHON,
        runner="PortableRunner",
        pipeline_options=flink_options,
        pre_execute=skip_if_released,
        retries=RETRIES,
    )
    release >> ledger()
