"""Run by Airflow's own Python: what it makes of the DAGs, as one JSON object on the last line.

Arguments: folder of the DAGs, JSON of {dag id: parameters}.
"""

import json
import pathlib
import sys
from collections.abc import Mapping
from typing import Any

from airflow.dag_processing.dagbag import BundleDagBag
from airflow.sdk.definitions.param import ParamsDict
from airflow.serialization.serialized_objects import DagSerialization


def rendered(dag: Any, given: Mapping[str, Any]) -> dict[str, Any]:
    """What the release task would do in a run with these parameters."""
    params = ParamsDict(dag.params)
    params.update(dict(given))
    task = dag.get_task("release")
    context = {"params": params.validate(), "run_id": "manual__1", "dag": dag, "task": task}
    task.render_template_fields(context)
    return {
        "retries": task.retries,
        "tasks": dag.task_ids,
        "arguments": task.arguments(context),
        "body": task.request(context) if hasattr(task, "request") else None,
        "variables": task.variables(context) if hasattr(task, "variables") else None,
    }


def described(params: ParamsDict) -> dict[str, Any]:
    """The schema and the description of each parameter."""
    found = {name: params.get_param(name) for name in params}
    return {
        name: {"schema": param.schema, "description": param.description}
        for name, param in found.items()
    }


def main() -> None:
    folder, runs = pathlib.Path(sys.argv[1]), json.loads(sys.argv[2])
    bag = BundleDagBag(dag_folder=str(folder), bundle_path=folder, bundle_name="dags-folder")
    for dag in bag.dags.values():
        DagSerialization.serialize_dag(dag)
    found = {
        "errors": bag.import_errors,
        "params": {name: described(dag.params) for name, dag in bag.dags.items()},
        "schedules": {name: dag.schedule for name, dag in bag.dags.items()},
        "rendered": {name: rendered(bag.dags[name], given) for name, given in runs.items()},
    }
    print(json.dumps(found))


main()
