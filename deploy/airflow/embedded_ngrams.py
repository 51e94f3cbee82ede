"""Private n-grams on Beam's embedded runner: in a process of the Airflow worker, nothing to start."""

from airflow.providers.apache.beam.operators.beam import BeamRunPythonPipelineOperator
from airflow.sdk import DAG
from release_tasks import (
    PROGRAM,
    PYTHON,
    RETRIES,
    ledger,
    program_options,
    release_params,
    skip_if_released,
)

with DAG(
    "beam_dpne_embedded",
    description="Releases private n-grams; small corpora, on this worker",
    doc_md=__doc__,
    schedule=None,
    params=release_params(),
    tags=["beam_dpne"],
):
    release = BeamRunPythonPipelineOperator(
        task_id="release",
        py_file=PROGRAM,
        # Airflow's own Python has other packages than the program.
        py_interpreter=PYTHON,
        runner="FnApiRunner",
        pipeline_options=lambda context, jinja_env: program_options(context),
        pre_execute=skip_if_released,
        retries=RETRIES,
    )
    release >> ledger()
