"""The operator that launches a program on Dataflow, from a Flex Template.

It needs the extra `airflow-dataflow`. Paths must be on Google Cloud Storage.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from airflow.providers.google.cloud.operators.dataflow import DataflowStartFlexTemplateOperator

from beam_dpne.airflow.operators import Release


class DataflowReleaseOperator(Release, DataflowStartFlexTemplateOperator):
    """Publishes a release on Dataflow by Google's operator for Flex Templates.

    All tries of a run have one job name: while a job of this run lives, Dataflow refuses another one.
    Workers have no public addresses.

    Args:
      template: Address of the launch specification, gs://….
      environment: Environment of the launch by the names of Dataflow's API, such as `tempLocation` and
        `stagingLocation`, both as private as the data.
      kwargs: Fields of `Release` and of `DataflowStartFlexTemplateOperator`.

    Raises:
      ValueError: A field is wrong.
    """

    template_fields = (
        *Release.template_fields,
        *DataflowStartFlexTemplateOperator.template_fields,
        *("template", "environment"),
    )

    def __init__(
        self, *, template: str, environment: Mapping[str, Any] | None = None, **kwargs: Any
    ):
        # The request is made when the task runs.
        super().__init__(body={}, append_job_name=False, **kwargs)
        self.template = template
        self.environment = dict(environment or {})

    def request(self, context: Mapping[str, Any]) -> dict[str, Any]:
        """Returns the body of the request to launch the template.

        Raises:
          ValueError: A parameter has several texts, for which a form has no field.
        """
        given = {name: value for name, value in self.environment.items() if value is not None}
        parameters = {name: _field(name, texts) for name, texts in self.arguments(context).items()}
        return {
            "launchParameter": {
                "jobName": self.job_name(context),
                "containerSpecGcsPath": self.template,
                "parameters": parameters,
                "environment": {"ipConfiguration": "WORKER_IP_PRIVATE", **given},
            }
        }

    def start(self, context: Any) -> None:
        """Launches the template, and waits for the job or defers the task."""
        self.body = self.request(context)
        DataflowStartFlexTemplateOperator.execute(self, context)

    def execute_complete(self, context: Any, event: dict[str, Any]) -> dict[str, Any]:
        """Goes on when the job of a deferred task has ended."""
        DataflowStartFlexTemplateOperator.execute_complete(self, context, event)
        return self.finish(context)


def _field(name: str, texts: Sequence[str]) -> str:
    """Returns the one text that the field of a launch form holds.

    Raises:
      ValueError: There are several texts, for which a form has no field.
    """
    if len(texts) != 1:
        raise ValueError(
            f"`{name}` must be one value on Dataflow, e.g. a folder, got {len(texts)}."
        )
    return texts[0]
