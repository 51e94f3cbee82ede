"""Private n-grams on Beam's embedded runner, in a process of the Airflow worker."""

from airflow.sdk import DAG
from launch import NATIVE, launch_fields, launch_params

from beam_dpne.airflow.operators import ReleaseOperator

with DAG("beam_dpne_embedded", doc_md=__doc__, params=launch_params(), **NATIVE):
    ReleaseOperator(**launch_fields())
