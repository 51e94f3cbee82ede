"""What the DAGs beside this file share: programs, parameters of a launch, and fields of the task."""

import copy
import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

from airflow.sdk import Param

from beam_dpne.airflow.options import TABLES
from beam_dpne.cli.options import options_of

# A check of the budget before each start: None, or for instance
# beam_dpne.airflow.budget.Budget(releases="gs://bucket/releases", max_epsilon=10, max_delta=1e-5).
# The parameter `output` of each launch must then be in that folder.
BUDGET = None
RETRIES = 2


@dataclasses.dataclass(frozen=True, kw_only=True)
class Program:
    """A program that has a DAG for each engine.

    Attributes:
      name: of its template.
      suffix: of the ids of its DAGs.
      noun: what it releases.
      params: the parameters that the other programs do not have.
    """

    name: str
    suffix: str
    noun: str
    params: Mapping[str, Param]


def choices(program: str, name: str) -> list[str | None]:
    """Returns the values that an option takes, and None for its default."""
    (option,) = (option for option in options_of(TABLES[program]) if option.name == name)
    return [None, *option.choices]


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
                enum=choices("ngrams", "strategy"),
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
                enum=choices("set-union", "policy"),
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
                enum=choices("bayesian", "mode"),
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
            description="Directory of the releases of all runs; this run's is made inside, in "
            "folders named after DAG, task and run.",
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


def release_fields(program: Program) -> dict[str, Any]:
    """Returns the fields of the task that the operators of all engines share."""
    return {
        "task_id": "release",
        "program": program.name.replace("_", "-"),
        "releases": param("output"),
        **{name: param(name) for name in ("input", "epsilon", "delta", "run_key_file")},
        "options": lambda context, jinja_env: {
            **{name: context["params"][name] for name in program.params},
            **context["params"]["options"],
        },
        "budget": BUDGET,
        "retries": RETRIES,
    }


def param(name: str) -> Callable[..., Any]:
    """Returns a function that renders a field to the value of a parameter, whatever its type."""
    return lambda context, jinja_env: context["params"][name]
