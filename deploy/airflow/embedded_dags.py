"""Private releases on Beam's embedded runner: in a process of the Airflow worker, nothing to start."""

from airflow.sdk import DAG
from release_params import PROGRAMS, Program, release_fields, release_params

from beam_dpne.airflow.operators import ReleaseOperator


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
        ReleaseOperator(**release_fields(program))
    return dag


ngrams, set_union, bayesian = map(embedded_dag, PROGRAMS)
