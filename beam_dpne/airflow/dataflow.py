"""Operators that launch a program on Dataflow: from a Flex Template, or from a YAML file.

They are Google's operators, with this package's checks before the launch and after the job. They need
the extra `airflow-dataflow`. Paths must be on Google Cloud Storage.
"""

from collections.abc import Mapping
from typing import Any, ClassVar

from airflow.configuration import conf
from airflow.providers.google.cloud.operators.dataflow import (
    DataflowStartFlexTemplateOperator,
    DataflowStartYamlJobOperator,
)

from beam_dpne.airflow.base import Release
from beam_dpne.airflow.options import ENDS_BEFORE_JOB

_DEFERRABLE = conf.getboolean("operators", "default_deferrable", fallback=False)


class OnDataflow(Release):
    """A release that a job on Dataflow publishes."""

    template_fields = (*Release.template_fields, "project_id", "gcp_conn_id")
    remote: ClassVar[bool] = True
    without: Mapping[str, str] = {
        **ENDS_BEFORE_JOB,
        "harness_timeout": "Dataflow itself ends a job whose workers do not start",
        "quiet": "nobody looks at the launcher's progress",
    }

    def parameters(self, context: Mapping[str, Any]) -> dict[str, str]:
        """Returns the parameters of a launch by name, as a launch form would send them.

        Raises:
          ValueError: An option has several values, which a form has no field for.
        """
        found: dict[str, str] = {}
        for argument in self.arguments():
            name, _, text = argument[2:].partition("=")
            if name in found and name != "input":
                raise ValueError(f"{name} must have one value on Dataflow, got several.")
            found[name] = f"{found[name]},{text}" if name in found else text
        return {**found, "output": self.directory(context)}


class DataflowTemplateReleaseOperator(OnDataflow, DataflowStartFlexTemplateOperator):
    """Publishes a release on Dataflow, launched from a Flex Template.

    All tries of a run have one job name: while a job of this run lives, Dataflow refuses another one.
    Workers have no public addresses.

    Args:
      template: Address of the launch specification, gs://….
      project_id: Project of Google Cloud that runs the job.
      location: Region of the job.
      temp_location: Address of the folder for temporary files, which is as private as the data.
      staging_location: Address of the folder for the job graph, which holds a fresh run key and is as
        private as the data.
      service_account: Account of the workers; None for the project's default.
      subnetwork: `regions/REGION/subnetworks/NAME`, with private access to Google; None for the
        default.
      max_workers: Largest number of workers; None for Dataflow's own limit.
      deferrable: Whether the task waits for the job in the triggerer.
      kwargs: Fields of `Release` and of Google's `DataflowStartFlexTemplateOperator`.

    Raises:
      ValueError: A field is wrong.
    """

    template_fields = (
        *OnDataflow.template_fields,
        *("location", "template", "temp_location", "staging_location", "service_account"),
        *("subnetwork", "max_workers"),
    )

    def __init__(
        self,
        *,
        template: str,
        location: str,
        temp_location: str,
        staging_location: str,
        service_account: str | None = None,
        subnetwork: str | None = None,
        max_workers: int | None = None,
        deferrable: bool = _DEFERRABLE,
        **kwargs: Any,
    ):
        super().__init__(
            # The request is made when the task runs.
            body={},
            location=location,
            append_job_name=False,
            wait_until_finished=not deferrable,
            deferrable=deferrable,
            **kwargs,
        )
        self.template = template
        self.temp_location = temp_location
        self.staging_location = staging_location
        self.service_account = service_account
        self.subnetwork = subnetwork
        self.max_workers = max_workers

    def request(self, context: Mapping[str, Any]) -> dict[str, Any]:
        """Returns the body of the request to launch the template."""
        environment = {
            "tempLocation": self.temp_location,
            "stagingLocation": self.staging_location,
            "serviceAccountEmail": self.service_account,
            "subnetwork": self.subnetwork,
            "maxWorkers": self.max_workers,
        }
        return {
            "launchParameter": {
                "jobName": self.engine_name(context),
                "containerSpecGcsPath": self.template,
                "parameters": self.parameters(context),
                "environment": {
                    **{name: value for name, value in environment.items() if value is not None},
                    "ipConfiguration": "WORKER_IP_PRIVATE",
                },
            }
        }

    def start(self, context: Any) -> None:
        """Launches the template, and waits for the job or defers the task."""
        self.body = self.request(context)
        DataflowStartFlexTemplateOperator.execute(self, context)

    def execute_complete(self, context: Any, event: dict[str, Any]) -> dict[str, Any]:
        """Goes on when the job has ended: checks the release."""
        DataflowStartFlexTemplateOperator.execute_complete(self, context, event)
        return self.finish(context)


class DataflowYamlReleaseOperator(OnDataflow, DataflowStartYamlJobOperator):
    """Publishes a release on Dataflow, launched from a YAML file by `gcloud dataflow yaml run`.

    The file gets the fields and options as Jinja variables of the same names, among them `output`, the
    directory of this run's release, to which its transform `WriteRelease` must write. The operator
    cannot check that the file uses them all; after the job it checks the release's program and budget.

    Args:
      yaml_pipeline_file: Path of the YAML file, local or gs://….
      project_id: Project of Google Cloud that runs the job.
      region: Region of the job.
      gcloud_options: Further options of `gcloud dataflow yaml run` by name, e.g.
        `{"pipeline-options": "temp_location=gs://…"}`.
      deferrable: Whether the task waits for the job in the triggerer.
      kwargs: Fields of `Release` and of Google's `DataflowStartYamlJobOperator`.

    Raises:
      ValueError: A field is wrong.
    """

    template_fields = (
        *OnDataflow.template_fields,
        *("region", "yaml_pipeline_file", "gcloud_options"),
    )

    def __init__(
        self,
        *,
        yaml_pipeline_file: str,
        region: str,
        gcloud_options: Mapping[str, Any] | None = None,
        deferrable: bool = _DEFERRABLE,
        **kwargs: Any,
    ):
        super().__init__(
            # The name and the variables are made when the task runs.
            job_name="",
            yaml_pipeline_file=yaml_pipeline_file,
            region=region,
            append_job_name=False,
            deferrable=deferrable,
            **kwargs,
        )
        self.gcloud_options = gcloud_options

    def start(self, context: Any) -> None:
        """Launches the job, and waits for it or defers the task."""
        self.job_name = self.engine_name(context)
        self.jinja_variables = self.parameters(context)
        # Google's operator has the options of gcloud under the name of the program's options.
        options, self.options = self.options, dict(self.gcloud_options or {})
        try:
            DataflowStartYamlJobOperator.execute(self, context)
        finally:
            self.options = options

    def execute_complete(self, context: Any, event: dict[str, Any]) -> dict[str, Any]:
        """Goes on when the job has ended: checks the release."""
        DataflowStartYamlJobOperator.execute_complete(self, context, event)
        return self.finish(context)
