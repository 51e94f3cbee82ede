"""The keywords of calls: parameters of the groups of a call, some of them under shorter names."""

import dataclasses
import glob
import inspect
import json
import os
import re
import types
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from typing import Any

import numpy as np
import pyarrow as pa

from beam_dpne.errors import UsageError
from beam_dpne.forecast.profiles import PROFILES
from beam_dpne.jobs.made import (
    Groups,
    Made,
    load_groups,
    parameters_in,
    typed_values,
    with_file,
)
from beam_dpne.jobs.parameters import Running
from beam_dpne.jobs.programs import FILES, PROGRAMS
from beam_dpne.lists.files import names_ngrams
from beam_dpne.mechanism.plan import GaussianPlan
from beam_dpne.mechanism.randomness import RunKey
from beam_dpne.reading.frames import columns_of, leads, name_within
from beam_dpne.release.whole import Release
from beam_dpne.storage.paths import is_local
from beam_dpne.validation import (
    Parameter,
    did_you_mean,
    holds_data,
    parameters_of,
    told_name,
    told_value,
)

# Parameters whose keywords have shorter names.
SHORTER = {
    "user_field": "user",
    "text_field": "text",
    "group_field": "group",
    "run_key_file": "run_key",
}
# What stands in messages, and in the calls of those who know the command line, and is no keyword here.
_ELSEWHERE = {
    "quiet": " Here it is progress=False.",
    "input": " The input is the first argument.",
    "ledgers": " The releases are the first arguments.",
    "output": " What a call returns is in memory; `write` of a release writes it.",
}
_ELSEWHERE |= dict.fromkeys(("overwrite", "output_format"), _ELSEWHERE["output"])
_PARAMETERS = {keyword: name for name, keyword in SHORTER.items()}
# Keywords that come first in help.
_FIRST = ("user", "text", "epsilon", "delta")
_PLAN = Parameter(
    "The plan: an object, or the path of a JSON file with any of the parameters by their names.",
    name="plan",
    optional=True,
    requirement="a plan, or the path of a file",
)
_PROGRESS = Parameter(
    "Whether progress and advice are shown; warnings and errors always are.",
    name="progress",
    kind=bool,
    default=True,
)
_OF_COLUMNS = (
    " Give the name of the column; of a data frame whose index has no name, frame.reset_index() makes "
    "the index the column index."
)
# What texts have, and paths seldom.
_OF_TEXT = re.compile(r"[\s\"{}@]")
# What paths have, and words and numbers do not.
_OF_PATHS = re.compile(r"[./\\]")
# Types of values.
_PLAIN = (str, int, float, bool, types.NoneType)
# Types of paths.
PATHS = (str, os.PathLike)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Call:
    """One call.

    Attributes:
      name: its name.
      groups: its groups of parameters, "module:Class" below `beam_dpne`, by any title.
      hidden: names of parameters without a keyword.
      objects: keywords whose values may be objects: a function, a key, the phrases themselves.
      is_run: whether a plan may be given as an object or a file, beside or instead of its keywords.
      is_quiet: whether the call shows nothing, so that it has no keyword for it.
    """

    name: str
    groups: Mapping[str, Sequence[str]]
    hidden: Sequence[str] = ()
    objects: Sequence[str] = ()
    is_run: bool = False
    is_quiet: bool = False

    def load_groups(self) -> Groups:
        """Returns the classes of its groups."""
        return load_groups(self.groups)

    @property
    def keywords(self) -> dict[str, Parameter]:
        """The parameters of its keywords, in their order."""
        found = {
            SHORTER.get(name, name): each
            for name, each in parameters_in(self.load_groups()).items()
            if name not in self.hidden
        }
        whole = {name: found[name] for name in _FIRST if name in found}
        if self.is_run:
            whole["plan"] = _PLAN
        whole |= found
        if not self.is_quiet:
            whole["progress"] = _PROGRESS
        return whole

    def needs(self, keyword: str) -> bool:
        """Whether a keyword must be given; what a plan needs may be in `plan`."""
        each = self.keywords[keyword]
        return each.required and not (self.is_run and keyword in ("epsilon", "delta", "length"))


# What a call does itself, or has no use for: paths, a file of parameters, engines, the display.
_HIDDEN = (
    *("input", "plan", "output", "output_format", "overwrite", "side_input_limit"),
    *("harness_timeout", "quiet"),
)


def _releasing(name: str, program: str) -> Call:
    return Call(
        name=name,
        groups=PROGRAMS[program].groups,
        hidden=_HIDDEN,
        objects=("tokenizer", "run_key", "phrases"),
        is_run=True,
    )


CALLS = {
    "release_ngrams": _releasing("release_ngrams", "ngrams"),
    "release_items": _releasing("release_items", "set-union"),
    "estimate_probabilities": _releasing("estimate_probabilities", "bayesian"),
    "count_phrases": _releasing("count_phrases", "count"),
    "check": Call(
        name="check",
        groups={
            "reading": (
                *("jobs.parameters:Input", *FILES, "jobs.parameters:Rejecting"),
                "reading.options:Grouping",
            ),
            "running": ("jobs.parameters:Running", "jobs.parameters:FailureLogging"),
        },
        hidden=("input", *(each.name for each in parameters_of(Running))),
        objects=("tokenizer",),
    ),
    "evaluate": Call(
        name="evaluate",
        groups={
            "reading": ("jobs.parameters:Input", *FILES),
            "evaluating": ("jobs.asking:Evaluating",),
        },
        hidden=("input", "release", "output"),
    ),
    "plan": Call(
        name="plan",
        groups={"planning": ("jobs.asking:Planning",), "reading": FILES},
        hidden=("program", "output", "overwrite"),
    ),
    "account": Call(
        name="account",
        groups={"account": ("jobs.asking:Accounting",)},
        hidden=("ledgers", "json"),
        is_quiet=True,
    ),
}


def document(function: Callable[..., Any], call: Call, sections: str) -> None:
    """Gives a function the signature of a call, and the meaning of its keywords to its docstring."""
    positional = [
        each
        for each in inspect.signature(function).parameters.values()
        if each.kind is not inspect.Parameter.VAR_KEYWORD
    ]
    found = call.keywords
    keywords = [
        inspect.Parameter(
            name,
            inspect.Parameter.KEYWORD_ONLY,
            default=inspect.Parameter.empty if call.needs(name) else each.default,
        )
        for name, each in found.items()
    ]
    lines = [f"  {name}: {each.help} {_default_of(each)}".rstrip() for name, each in found.items()]
    whole = "\n".join(["Keyword Args:", *lines])
    vars(function).update(__signature__=inspect.Signature([*positional, *keywords]))
    function.__doc__ = f"{inspect.cleandoc(function.__doc__ or '')}\n\n{whole}\n{sections}"


def _default_of(each: Parameter) -> str:
    return "" if each.required else f"Default: {each.shown_default}."


@dataclasses.dataclass(frozen=True, eq=False)
class Asked:
    """What a call asks for.

    Attributes:
      made: the groups of parameters.
      objects: the values that are objects and no parameters: a tokenizer, a run key, phrases.
      progress: whether progress is shown.
    """

    made: Made
    objects: Mapping[str, Any]
    progress: bool


def asked_of(
    call: Call,
    given: Mapping[str, Any],
    fixed: Mapping[str, Any],
    without: Sequence[type] = (),
    frame: object = None,
) -> Asked:
    """Makes the groups of a call's parameters.

    Args:
      call: the call.
      given: its keywords by name.
      fixed: values of parameters that are no keywords, by name.
      without: groups that are not made.
      frame: the input, of which a column may be given where its name is meant.

    Raises:
      TypeError: there is no such keyword.
      ValueError: a value is wrong.
    """
    known = call.keywords
    for name in given:
        if name not in known:
            raise TypeError(
                f"{call.name}() got an unexpected keyword argument, {told_name(name)}."
                f"{_hint(name, known)}"
            )
    _check_paths(given, known)
    _check_values(call, given, frame)
    objects = {
        name: given[name]
        for name in call.objects
        if given.get(name) is not None and not isinstance(given[name], PATHS)
    }
    values = {
        _PARAMETERS.get(name, name): plain(value)
        for name, value in given.items()
        if name not in ("plan", "progress", *objects)
    }
    groups = {
        title: [kind for kind in kinds if kind not in without]
        for title, kinds in call.load_groups().items()
    }
    values = typed_values(values, parameters_in(groups))
    values = {**with_plan(values, given.get("plan"), groups), **fixed}
    progress = given.get("progress")
    is_shown = _PROGRESS.checked(True if progress is None else progress)
    return Asked(Made(groups, values), objects, is_shown)


def _check_values(call: Call, given: Mapping[str, Any], frame: object) -> None:
    """Raises UsageError if data are given for a value: a column, or a list of users or of texts."""
    known = call.keywords
    for name, value in given.items():
        if name == "phrases":
            # They are public, and may be a column.
            continue
        if holds_data(value):
            remedy = f" It is {known[name].must_be}."
            if name in ("user", "text", "group"):
                column = name_within(frame, value)
                remedy = f' Write {name}="{column}".' if column else _OF_COLUMNS
                if isinstance(value, Mapping | Set):
                    remedy = f' Give the name of a column: {name}="NAME".'
            raise UsageError(
                f"`{name}` must be a value of its own and no data, got {type(value).__name__}.{remedy}"
            )
        if isinstance(value, list | tuple):
            _check_list(name, value, known[name], frame)
        several = value if isinstance(value, list | tuple) else (value,)
        is_object = name == "plan" or name in call.objects
        if not is_object and any(type(plain(each)) not in _PLAIN for each in several):
            raise UsageError(f"`{name}` must be {known[name].must_be}, got {told_value(value)}.")
        if name == "run_key" and not isinstance(value, (*PATHS, RunKey, type(None))):
            raise UsageError(
                f"`run_key` must be the path of a key file or a RunKey, got {type(value).__name__}."
            )


def _check_list(name: str, value: Sequence[Any], known: Parameter, frame: object) -> None:
    """Raises UsageError if there is no list of such values, or one that may be data for names."""
    must_be = known.must_be
    remedy = ""
    columns = columns_of(frame)
    if name in ("user", "text"):
        must_be = "the name of a column, or names of several"
        texts = [each for each in value if isinstance(each, str)]
        are_right = not columns or any(leads(column, texts) for column in columns)
    elif name == "where":
        must_be = "conditions such as 'role=user'"
        are_right = all(isinstance(each, str) and "=" in each for each in value)
    else:
        unknown = known.choices and {*map(str, value)} - {*known.choices}
        are_right = known.several and len(value) and not unknown
        remedy = next(filter(None, (did_you_mean(str(each), known.choices) for each in value)), "")
        if not known.several:
            remedy = " Give the value itself, without a list."
    if not are_right:
        raise UsageError(f"`{name}` must be {must_be}, got a list of {len(value):,}.{remedy}")


def _check_paths(given: Mapping[str, Any], known: Mapping[str, Parameter]) -> None:
    """Raises UsageError if a release is given for its path, or people's texts for paths to read."""
    for name, value in given.items():
        are_several = isinstance(value, list | tuple)
        several = plain(value if are_several else (value,))
        if any(isinstance(each, Release) for each in several):
            raise UsageError(
                f"`{name}` must be the path of a release, got the release itself: write it first."
            )
        is_read = known[name].path.startswith("file")
        is_list = are_several and not known[name].several and name != "phrases"
        if is_read and is_list and not holds_data(value):
            raise UsageError(
                f"`{name}` must be the path of a file, got a list of {len(value):,}: write what it has "
                "into a file."
            )
        is_folder = name in ("series", "participants", "budget")
        if (is_read or is_folder or name == "plan") and isinstance(value, PATHS):
            path = os.fspath(value)
            is_new = name == "budget" and given.get("create") and not _OF_TEXT.search(path)
            if path not in PROFILES and not is_new:
                _require_path(name, path, "folder" if is_folder else "file")
        texts = [each for each in several if isinstance(each, str) and is_local(each)]
        if name == "known" and texts and are_several and not any(map(os.path.exists, texts)):
            raise UsageError(
                "`known` must be paths of files and directories, got texts that are none: write them "
                "into a table with a column ngram."
            )


def _require_path(name: str, text: str, kind: str) -> None:
    is_missing = name == "phrases" and is_local(text) and not os.path.exists(text)
    if is_missing or _is_a_text(text):
        what = f"the path of a {kind}"
        remedy = ""
        if name == "phrases":
            what = "the path of a file or of a release, or a list of phrases"
            remedy = " One phrase is a list, too, of one."
        if kind == "folder":
            remedy = " Begin the name of a folder with ./, or make the folder first."
        raise UsageError(
            f"`{name}` must be {what}, got a text of {len(text)} characters, which is no path of this "
            f"machine.{remedy}"
        )


def _hint(name: str, known: Mapping[str, Parameter]) -> str:
    if name in _ELSEWHERE:
        return _ELSEWHERE[name]
    shorter = SHORTER.get(name)
    return f" Here it is {shorter}." if shorter in known else did_you_mean(name, known)


def with_plan(values: dict[str, Any], plan: object, groups: Groups) -> dict[str, Any]:
    """Returns values with those of a plan, which is an object or the path of a file.

    Raises:
      UsageError: it is neither, or a value is in it already.
    """
    if plan is None:
        return values
    if isinstance(plan, PATHS):
        return with_file({**values, "plan": os.fspath(plan)}, groups)
    kind = next(
        kind for kinds in groups.values() for kind in kinds if issubclass(kind, GaussianPlan)
    )
    if not isinstance(plan, kind):
        raise UsageError(f"`plan` must be a {kind.__name__} or a path, got {type(plan).__name__}.")
    in_plan = json.loads(plan.to_json())
    if both := sorted(in_plan.keys() & values.keys()):
        raise UsageError(f"`{both[0]}` is in the plan already; leave it out beside the plan.")
    return {**values, **in_plan}


def plain(value: Any) -> Any:
    """Returns paths as texts, lists as tuples, and numbers of numpy as those of Python."""
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    if isinstance(value, np.generic):
        return value.item()
    return tuple(map(plain, value)) if isinstance(value, list | tuple) else value


def phrases_of(given: Any) -> list[str] | pa.Table | None:
    """Returns phrases in memory, or a table of them, or None if a path, or nothing, is given.

    Raises:
      UsageError: they are no texts, or a table that does not name n-grams.
    """
    if given is None or isinstance(given, (*PATHS, Release)):
        return None
    streams = hasattr(given, "__arrow_c_stream__") and not isinstance(given, Iterable)
    if hasattr(given, "columns") or isinstance(given, Mapping | pa.RecordBatchReader) or streams:
        return _table_of_phrases(given)
    phrases = list(given) if isinstance(given, Iterable) else [given]
    # Arrow's own values hold texts.
    phrases = [each.as_py() if isinstance(each, pa.Scalar) else each for each in phrases]
    texts = [each for each in phrases if isinstance(each, str)]
    if len(texts) < len(phrases):
        raise UsageError(
            "`phrases` must be a path, or texts with a phrase each, such as a column of a table, or a "
            "table with a column ngram."
        )
    if any("\ud800" <= sign <= "\udfff" for text in texts for sign in text):
        raise UsageError(
            "`phrases` must be texts of whole characters, got half of one (a lone surrogate), which no "
            "text of an input has: take such phrases out."
        )
    if any(os.path.exists(text) for text in texts[:1]):
        raise UsageError("`phrases` must be one path, or phrases, and no list of paths.")
    return texts


def _table_of_phrases(given: Any) -> pa.Table:
    """Returns a table of phrases as one of Arrow; raises UsageError if it does not name n-grams."""
    must_be = (
        "`phrases` must be a path, or texts with a phrase each, or a table with a column ngram, and "
        "with a column group if each phrase has its own"
    )
    # The letters of a text would be phrases.
    is_table = not isinstance(given, Mapping) or not any(isinstance(x, str) for x in given.values())
    try:
        table = pa.table(given) if is_table else None
    except Exception:
        # Its message quotes values.
        table = None
    if table is None:
        raise UsageError(
            f"{must_be}, got a table that Arrow cannot read. Give its columns ngram and group alone, "
            "as texts."
        )
    names = table.column_names
    if not names_ngrams(table) or len({*names}) < len(names):
        which = "with two columns of one name" if names_ngrams(table) else "without a column ngram"
        raise UsageError(f"{must_be}, got a table {which}.")
    return table


def are_paths(given: object) -> bool:
    """Whether an input is given by paths, and not as a frame.

    Raises:
      UsageError: a text is no path, but looks like one of people's texts.
    """
    several = given if isinstance(given, list | tuple) else (given,)
    if not several or not all(isinstance(each, PATHS) for each in several):
        return False
    if any(isinstance(each, str) and _is_a_text(each) for each in several):
        raise UsageError(
            "the input must be a frame, record batches or paths, got a text that is no path of this "
            "machine. Texts alone have no users: give a frame with a column of users."
        )
    return True


def _is_a_text(path: str) -> bool:
    """Whether what is given for a path looks like a text or an id, and there is no file."""
    is_like_one = bool(_OF_TEXT.search(path)) or not _OF_PATHS.search(path)
    return is_like_one and is_local(path) and not glob.glob(os.path.expanduser(path))
