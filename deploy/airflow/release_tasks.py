"""What the DAGs beside this file share: programs, parameters, a run's release, and what a retry does.

A DAG run has one release, in the directory `output`/`run_id`. No try may publish a second one: a try
that finds the ledger has nothing left to do, and beam_dpne refuses a directory with files of another.
"""

import copy
import dataclasses
import hashlib
import json
import os
import pathlib
from collections.abc import Mapping
from typing import Any

from airflow.sdk import ObjectStoragePath, Param, task
from airflow.sdk.exceptions import AirflowFailException, AirflowSkipException

# The checkout that these files lie in (links are followed), and a Python with beam_dpne installed.
CHECKOUT = pathlib.Path(
    os.environ.get("BEAM_DPNE_CHECKOUT") or pathlib.Path(__file__).resolve().parents[2]
)
PYTHON = os.environ.get("BEAM_DPNE_PYTHON") or str(CHECKOUT / ".venv" / "bin" / "python")
RETRIES = 2
_SCHEMA_FAMILY = "beam_dpne/ledger/"
_COMMON = ("input", "epsilon", "delta", "run_key_file")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Program:
    """A program that has a DAG for each engine.

    Attributes:
      name: of its file in `pipelines`, and of its template.
      suffix: of the ids of its DAGs.
      noun: what it releases.
      params: the parameters that the other programs do not have.
    """

    name: str
    suffix: str
    noun: str
    params: Mapping[str, Param]

    @property
    def file(self) -> str:
        """The path of the program."""
        return str(CHECKOUT / "pipelines" / f"{self.name}.py")


PROGRAMS = (
    Program(
        name="ngrams",
        suffix="",
        noun="n-grams",
        params={
            "max_length": Param(
                5,
                type="integer",
                minimum=1,
                maximum=100,
                description="Words in the longest n-gram.",
            ),
            "strategy": Param(
                None,
                type=["null", "string"],
                enum=[None, "adaptive", "one_round"],
                description="How users spend their budget; empty: the program's default.",
            ),
            "max_contributions": Param(
                None,
                type=["null", "integer"],
                minimum=1,
                description="Distinct n-grams that one user adds at one length; empty: the strategy's "
                "default.",
            ),
        },
    ),
    Program(
        name="set_union",
        suffix="_set_union",
        noun="items",
        params={
            "tokenizer": Param(
                "words",
                type="string",
                description="How texts become items: words, whitespace, tokens (lists of items), item "
                "(each text is one), or package.module:function.",
            ),
            "policy": Param(
                None,
                type=["null", "string"],
                enum=[
                    None,
                    "count_laplace",
                    "count_gaussian",
                    "weighted_laplace",
                    "weighted_gaussian",
                    "policy_laplace",
                    "policy_gaussian",
                    "screened_gaussian",
                    "greedy",
                    "mad",
                ],
                description="How users divide their weight among their items; empty: the program's "
                "default.",
            ),
            "max_contributions": Param(
                100, type="integer", minimum=1, description="Distinct items that one user adds."
            ),
        },
    ),
    Program(
        name="bayesian",
        suffix="_bayesian",
        noun="n-gram probabilities",
        params={
            "public": Param(
                type="string",
                minLength=1,
                description="Public n-grams and how common they are: a text, a file of counts "
                "(ngram<TAB>count), or the directory of a release; never made from the private data.",
            ),
            "mode": Param(
                None,
                type=["null", "string"],
                enum=[None, "counts", "log_global"],
                description="The mechanism; empty: the program's default.",
            ),
            "length": Param(
                3, type="integer", minimum=1, maximum=5, description="Words in an n-gram."
            ),
            "vocabulary_size": Param(
                50_000,
                type="integer",
                minimum=1,
                description="Public n-grams that are kept, the most frequent ones.",
            ),
            "max_contributions": Param(
                None,
                type=["null", "integer"],
                minimum=1,
                description="Distinct public n-grams that one user adds; empty: the program's default.",
            ),
        },
    ),
)


def release_params(program: Program, **others: Param) -> dict[str, Param]:
    """Returns the parameters of a launch, and further ones of a DAG."""
    return {
        "input": Param(
            type="array",
            items={"type": "string"},
            minItems=1,
            description="Paths or globs of the files to read, one in a line.",
        ),
        "output": Param(
            type="string",
            minLength=1,
            description="Directory of the releases of all runs; this run's is made inside, under its "
            "run id.",
        ),
        "epsilon": Param(
            type="number",
            exclusiveMinimum=0,
            description="Privacy budget ε of this run, per user; 1 to 4 is common for text. Every run "
            "spends it anew.",
        ),
        "delta": Param(
            type="number",
            exclusiveMinimum=0,
            exclusiveMaximum=1,
            description="Privacy budget δ of this run, per user; well below one over the number of "
            "users, e.g. 1e-7 for a million users.",
        ),
        # A parameter holds its value, so that each DAG needs its own.
        **copy.deepcopy(dict(program.params)),
        "run_key_file": Param(
            None,
            type=["null", "string"],
            description="File with the run key, readable by every worker; only for input that never "
            "changes. Empty: a fresh key for each try.",
        ),
        "options": Param(
            {},
            type="object",
            description='Other options of the program, e.g. {"strict": true}; none may come from the '
            "private data.",
        ),
        **others,
    }


def release_directory(context: Any) -> str:
    """Returns the directory of this run's release."""
    return f"{context['params']['output'].rstrip('/')}/{context['run_id']}"


def program_options(program: Program, context: Any) -> dict[str, Any]:
    """Returns the options of the program for this run, by name; lists are repeated options."""
    params = context["params"]
    names = (*_COMMON, *program.params)
    values = {name: params[name] for name in names} | dict(params["options"])
    if "output" in params["options"] or "overwrite" in params["options"]:
        raise AirflowFailException(
            "options must not have output or overwrite: a run's directory is its own, and a second "
            "release in it would be a second expense of the budget."
        )
    return {name: value for name, value in values.items() if value is not None} | {
        "output": release_directory(context)
    }


def skip_if_released(context: Any) -> None:
    """Ends a try before it starts anything, if an earlier one has published; for `pre_execute`."""
    if read_ledger(release_directory(context)) is not None:
        raise AirflowSkipException("An earlier try has published the release of this run.")


@task(trigger_rule="none_failed")
def ledger(**context: Any) -> str:
    """Checks that the release is whole, and returns the path of its ledger."""
    directory = release_directory(context)
    found = read_ledger(directory)
    if found is None:
        raise AirflowFailException(f"{directory} has no ledger.json: nothing was published there.")
    for part in found["parts"]:
        path = ObjectStoragePath(directory) / part["name"]
        if not path.exists() or _sha256(path) != part["sha256"]:
            raise AirflowFailException(f"{path} is missing or damaged; the ledger lists it.")
    return f"{directory}/ledger.json"


def read_ledger(directory: str) -> dict[str, Any] | None:
    """Returns the ledger of a release, None if there is none.

    Raises:
      AirflowFailException: if there is a ledger.json that beam_dpne did not write whole: no try may
        go on beside it.
    """
    path = ObjectStoragePath(directory) / "ledger.json"
    if not path.exists():
        return None
    try:
        found = json.loads(path.read_bytes())
        if found["schema"].startswith(_SCHEMA_FAMILY) and found["parts"]:
            return found
    except (ValueError, TypeError, KeyError, AttributeError):
        pass
    raise AirflowFailException(f"{path} is not a ledger of beam_dpne; look at it before going on.")


def _sha256(path: ObjectStoragePath) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
