"""What Airflow asks a provider: its name and its version. This module does not import Airflow."""

from typing import Any

from beam_dpne.version import __version__


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
