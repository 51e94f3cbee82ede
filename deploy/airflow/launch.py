"""What the DAGs beside this file share: the parameters of a launch, and the fields of the task."""

from typing import Any

from airflow.sdk import Param

# A release of items or of probabilities is one with another program and its options.
PROGRAM = "ngrams"
# A folder that `beam-dpne account --budget FOLDER --create` has made, or None to check no budget.
BUDGET = None
# DAGs render templates to values, so that numbers, lists and None stay what they are.
NATIVE = {"schedule": None, "render_template_as_native_obj": True, "tags": ["beam_dpne"]}


def launch_params(**others: Param) -> dict[str, Param]:
    """Returns the parameters of a launch, and further ones of a DAG."""
    return {
        "input": Param(
            type="array",
            items={"type": "string"},
            minItems=1,
            description="Paths or globs of the files to read, one in a line.",
        ),
        "releases": Param(
            type="string",
            minLength=1,
            description="Directory of the releases of all runs; this run's is made inside, in "
            "folders named after DAG, task and run.",
        ),
        "epsilon": Param(
            type="number",
            exclusiveMinimum=0,
            description="Privacy budget ε of this run, per user. Every run spends it anew.",
        ),
        "delta": Param(
            type="number",
            exclusiveMinimum=0,
            exclusiveMaximum=1,
            description="Privacy budget δ of this run, per user; well below one over the number of "
            "users, e.g. 1e-7 for a million users.",
        ),
        "max_length": Param(
            5, type="integer", minimum=1, maximum=100, description="Words in the longest n-gram."
        ),
        "run_key_file": Param(
            None,
            type=["null", "string"],
            description="File with the run key, readable by every worker; only for input that never "
            "changes. Empty: a fresh key for each try.",
        ),
        **others,
    }


def launch_fields() -> dict[str, Any]:
    """Returns the fields of the task that the DAGs of all engines share."""
    names = ("input", "releases", "epsilon", "delta", "max_length", "run_key_file")
    return {
        "task_id": "release",
        "program": PROGRAM,
        "budget": BUDGET,
        "retries": 2,
        **{name: f"{{{{ params.{name} }}}}" for name in names},
    }
