"""A provider for Apache Airflow: operators that publish a release in each run.

They are the operators of Airflow's own providers for Apache Beam (`operators`) and for Google's
Dataflow (`dataflow`), with what a release adds (`release`): a directory for each run, a check of the
budget, and the ledger for what comes next. Nothing here imports Beam while a DAG is parsed. Other rooms
of the package do not import this one, and only this one imports Airflow.
"""
