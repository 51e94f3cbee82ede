"""Private n-grams in processes of the Airflow worker, without a runner of Beam."""

from airflow.sdk import DAG
from launch import NATIVE, launch_fields, launch_params

from beam_dpne.airflow.operators import ReleaseOperator

with DAG("beam_dpne_embedded", doc_md=__doc__, params=launch_params(), **NATIVE):
    ReleaseOperator(**launch_fields())
