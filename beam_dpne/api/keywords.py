"""The keywords of a call: the parameters of its program, some of them under shorter names."""

import dataclasses
import inspect
import json
import os
from collections.abc import Mapping
from typing import Any

from beam_dpne.errors import UsageError
from beam_dpne.jobs.made import Groups, Made, fields_in, parameters_in, typed_values, with_file
from beam_dpne.jobs.parameters import FailureLogging, Input, PlanFile, Quiet, Writing
from beam_dpne.jobs.programs import PROGRAMS
from beam_dpne.mechanism.plan import GaussianPlan
from beam_dpne.validation import Parameter, did_you_mean

# Parameters whose keywords have shorter names.
SHORTER = {
    "user_field": "user",
    "text_field": "text",
    "group_field": "group",
    "run_key_file": "run_key",
}
_PARAMETERS = {keyword: name for name, keyword in SHORTER.items()}
# Groups of what a call has as its first argument, does itself, or has no use for.
_NO_KEYWORDS = (Input, PlanFile, Writing, FailureLogging, Quiet)
# Parameters of runs on an engine.
_OF_ENGINES = {"side_input_limit", "harness_timeout"}
_PLAN = Parameter(
    "The plan: an object, or the path of a JSON file with any of the parameters by their names.",
    name="plan",
    optional=True,
)
_PROGRESS = Parameter(
    "Whether progress and advice are shown; warnings and errors always are.",
    name="progress",
    kind=bool,
    default=True,
)
# Types of paths.
PATHS = (str, os.PathLike)


def keywords_of(program: str) -> dict[str, Parameter]:
    """Returns the parameters of the keywords of a program's call, in their order."""
    groups = {
        title: [kind for kind in kinds if kind not in _NO_KEYWORDS]
        for title, kinds in PROGRAMS[program].load_groups().items()
    }
    found = {
        SHORTER.get(name, name): each
        for name, each in parameters_in(groups).items()
        if name not in _OF_ENGINES
    }
    first = ("user", "text", "epsilon", "delta")
    whole = {**{name: found[name] for name in first}, "plan": _PLAN, **found}
    return {**whole, "progress": _PROGRESS}


def signature_of(program: str) -> inspect.Signature:
    """Returns the signature of a program's call, with the defaults of its parameters."""
    frame = inspect.Parameter("frame", inspect.Parameter.POSITIONAL_ONLY)
    keywords = [
        inspect.Parameter(
            name,
            inspect.Parameter.KEYWORD_ONLY,
            default=inspect.Parameter.empty if is_required(name, each) else each.default,
        )
        for name, each in keywords_of(program).items()
    ]
    return inspect.Signature([frame, *keywords])


def is_required(keyword: str, each: Parameter) -> bool:
    """Whether a call needs a keyword; what a plan needs may be in `plan`."""
    return each.required and keyword not in ("epsilon", "delta", "length")


def documentation_of(program: str) -> str:
    """Returns the part of a docstring that says what each keyword means."""
    lines = [
        f"  {name}: {each.help}" + ("" if each.required else f" Default: {each.shown_default}.")
        for name, each in keywords_of(program).items()
    ]
    return "\n".join(["Keywords:", *lines])


@dataclasses.dataclass(frozen=True, eq=False)
class Asked:
    """What a call asks for.

    Attributes:
      made: the groups of parameters of the program.
      objects: the values that are objects and no parameters: a tokenizer, a run key.
      progress: whether progress is shown.
    """

    made: Made
    objects: Mapping[str, Any]
    progress: bool


def asked_of(call: str, program: str, paths: object, given: Mapping[str, Any]) -> Asked:
    """Makes the groups of a call's parameters.

    Args:
      call: name of the call, for messages.
      program: its program.
      paths: the paths of the input; None of a frame.
      given: the keywords by name.

    Raises:
      TypeError: there is no such keyword.
      ValueError: a value is wrong.
    """
    known = keywords_of(program)
    for name in given:
        if name not in known:
            shorter = SHORTER.get(name)
            hint = f" Here it is {shorter}." if shorter in known else did_you_mean(name, known)
            raise TypeError(f"{call}() got an unexpected keyword argument {name!r}.{hint}")
    # What is no path and no name is an object: a function, a run key.
    objects = {
        name: given[name]
        for name in ("tokenizer", "run_key")
        if given.get(name) is not None and not isinstance(given[name], PATHS)
    }
    values = {
        _PARAMETERS.get(name, name): _plain(value)
        for name, value in given.items()
        if name not in ("plan", "progress", *objects)
    }
    groups = _groups_of(program, has_paths=paths is not None)
    parameters = parameters_in(PROGRAMS[program].load_groups())
    values = typed_values(values, parameters)
    if paths is not None:
        values["input"] = _plain(paths)
    values = _with_plan(values, given.get("plan"), groups)
    progress = given.get("progress", True)
    return Asked(Made(groups, values), objects, bool(progress))


def _groups_of(program: str, *, has_paths: bool) -> Groups:
    """Returns the groups of a run whose release stays in memory."""
    left_out = (Writing,) if has_paths else (Writing, Input)
    return {
        title: [kind for kind in kinds if kind not in left_out]
        for title, kinds in PROGRAMS[program].load_groups().items()
    }


def _with_plan(values: dict[str, Any], plan: object, groups: Groups) -> dict[str, Any]:
    """Returns values with those of a plan, which is an object or the path of a file."""
    if plan is None or isinstance(plan, PATHS):
        path = {} if plan is None else {"plan": os.fspath(plan)}
        return with_file({**values, **path}, fields_in(groups))
    kind = next(
        kind for kinds in groups.values() for kind in kinds if issubclass(kind, GaussianPlan)
    )
    if not isinstance(plan, kind):
        raise UsageError(f"plan must be a {kind.__name__} or a path, got {type(plan).__name__}.")
    in_plan = json.loads(plan.to_json())
    if both := sorted(in_plan.keys() & values.keys()):
        raise UsageError(f"{both[0]} is in the plan already; leave it out beside the plan.")
    return {**values, **in_plan}


def _plain(value: object) -> object:
    """Returns paths as texts, and lists as tuples."""
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    return tuple(map(_plain, value)) if isinstance(value, list | tuple) else value
