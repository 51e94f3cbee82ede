"""Private releases on Beam's embedded runner: in a process of the Airflow worker, nothing to start."""

from airflow.providers.apache.beam.operators.beam import BeamRunPythonPipelineOperator
from airflow.sdk import DAG
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


def embedded_dag(program: Program) -> DAG:
    """Returns the DAG of one program."""
    with DAG(
        f"beam_dpne_embedded{program.suffix}",
        description=f"Releases private {program.noun}; small corpora, on this worker",
        doc_md=__doc__,
        schedule=None,
        params=release_params(program),
        tags=["beam_dpne"],
    ) as dag:
        release = BeamRunPythonPipelineOperator(
            task_id="release",
            py_file=program.file,
            # Airflow's own Python has other packages than the program.
            py_interpreter=PYTHON,
            runner="FnApiRunner",
            pipeline_options=lambda context, jinja_env: program_options(program, context),
            pre_execute=skip_if_released,
            retries=RETRIES,
        )
        release >> ledger()
    return dag


ngrams, set_union, bayesian = map(embedded_dag, PROGRAMS)
