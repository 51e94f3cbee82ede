"""A provider for Apache Airflow: operators that publish a release in each run.

They are those of Airflow's own providers for Apache Beam (`operators`) and for Google's Dataflow
(`dataflow`), with what a release adds: a directory for each run, a check of the budget, and the ledger
for what comes next. Nothing here imports Beam while a DAG is parsed. Other rooms
of the package do not import this one, and only this one imports Airflow; this module does not.
"""

from typing import Any

from beam_dpne import __version__


def get_provider_info() -> dict[str, Any]:
    """Returns the provider's description, as Airflow's entry point `apache_airflow_provider` wants it.

    Example:
      >>> get_provider_info()["package-name"]
      'beam-dpne'
    """
    return {
        "package-name": "beam-dpne",
        "name": "beam-dpne",
        "description": "Differentially private n-grams, set unions and n-gram probabilities from "
        "private text, on Apache Beam.",
        "versions": [__version__],
    }
