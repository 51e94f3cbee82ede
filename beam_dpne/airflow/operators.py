"""The operator that starts a program on the Airflow worker, for every runner of Beam."""

import json
import sys
import tempfile
from collections.abc import Mapping
from typing import Any

import psutil
from airflow.providers.apache.beam.hooks.beam import BeamHook

from beam_dpne.airflow.release import Release


class ReleaseOperator(Release):
    """Publishes a release by Airflow's hook for Beam pipelines in Python.

    The runner is Beam's embedded one, in a process of the worker, or for instance a Flink cluster
    through Beam's job server: `runner="PortableRunner"` and `pipeline_options` with `job_endpoint`,
    `environment_type`, `environment_config` and `parallelism`. (Airflow's operator for such pipelines
    does the same, and needs Google's provider even where no Google Cloud is used.)

    Args:
      runner: Runner of Beam.
      py_interpreter: Python with beam-dpne; by default Airflow's own.
      pipeline_options: Options of Beam by name.
      kwargs: Fields of `Release`.

    Raises:
      ValueError: A field is wrong.
    """

    template_fields = (*Release.template_fields, "runner", "pipeline_options")

    def __init__(
        self,
        *,
        runner: str = "FnApiRunner",
        py_interpreter: str = sys.executable,
        pipeline_options: Mapping[str, Any] | None = None,
        **kwargs: Any,
    ):
        super().__init__(**kwargs)
        self.runner = runner
        self.py_interpreter = py_interpreter
        self.pipeline_options = dict(pipeline_options or {})

    def variables(self, context: Mapping[str, Any]) -> dict[str, Any]:
        """Returns the options of Beam and the parameters of the program by name, without rare ones."""
        given, rare = self.arguments(context), self.rare()
        shown = {name: value for name, value in given.items() if name not in rare}
        return {"job_name": self.job_name(context), **self.pipeline_options, **shown}

    def start(self, context: Any) -> None:
        """Runs `python -m beam_dpne PROGRAM` to its end; rare parameters are in a plan file."""
        variables, rare = self.variables(context), self.rare()
        with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
            if rare:
                json.dump(rare, file)
                file.flush()
                variables["plan"] = file.name
            BeamHook(runner=self.runner).start_python_pipeline(
                variables=variables,
                py_file=self.program,
                py_options=["-m", "beam_dpne"],
                py_interpreter=self.py_interpreter,
            )

    def on_kill(self) -> None:
        """Terminates the program, which then cancels its job; the task ends with it."""
        for child in psutil.Process().children(recursive=True):
            child.terminate()
