"""A provider for Apache Airflow: operators that publish releases, on any engine.

`operators` has the operators for the embedded runner and for Flink, `dataflow` those for Dataflow, and
`budget` a check before the start. Nothing here imports Beam while a DAG is parsed. Other rooms of the
package do not import this one, and only this one imports Airflow.
"""
