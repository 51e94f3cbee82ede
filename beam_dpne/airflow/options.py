"""The arguments of a program, from the fields of an operator.

An operator checks its fields against the option tables twice: when the DAG is parsed, as far as they
are not templates, and before its task starts anything, when all of them are rendered. This module
imports neither Airflow nor Beam.
"""

import difflib
import posixpath
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from beam_dpne.cli.options import Option, Table, addresses, integers, names, numbers, options_of
from beam_dpne.cli.options_by_command import BAYESIAN, NGRAMS, SET_UNION

TABLES: Mapping[str, Table] = {"ngrams": NGRAMS, "set-union": SET_UNION, "bayesian": BAYESIAN}
# Options that operators have as fields; the others are in the field `options`.
FIELDS = ("input", "epsilon", "delta", "run_key_file")
# Options that make no sense where the launcher ends before the job does.
ENDS_BEFORE_JOB: Mapping[str, str] = dict.fromkeys(
    ("arpa", "failure_log", "failure_log_remote"),
    "the program that starts the job ends before the job does",
)
_REFUSED = {
    "output": "the operator makes one directory for each run",
    "budget": "the operators have a check of the budget as a field",
    "overwrite": "a second release of a run would be a second expense of its budget",
}
# Files that are written, whose options have no `path`.
_FILES = ("failure_log", "arpa")
_TEMPLATE = re.compile(r"\{\{|\{%|\{#")
_ADDRESS = re.compile(r"[A-Za-z][-+.A-Za-z0-9]*://")
_LISTS: tuple[Callable[[str], Any], ...] = (integers, numbers, names)


def is_template(value: object) -> bool:
    """Returns whether a value is known only when its task runs.

    Such a value is a text with Jinja's brackets, or an object of Airflow: an output of another task, a
    parameter of the DAG, or a function that renders the value.

    Example:
      >>> is_template("{{ params.input }}"), is_template(["a", "{{ ds }}"]), is_template("a.csv")
      (True, True, False)
    """
    if isinstance(value, str):
        return bool(_TEMPLATE.search(value))
    if isinstance(value, Mapping):
        return any(is_template(part) for part in (*value.keys(), *value.values()))
    if isinstance(value, list | tuple):
        return any(is_template(part) for part in value)
    return not isinstance(value, bool | int | float | None)


def check_program(program: object) -> None:
    """Raises ValueError unless this is the name of a program.

    Example:
      >>> check_program("set_union")
      Traceback (most recent call last):
      ValueError: program must be one of ngrams, set-union, bayesian, got program='set_union'; did you \
mean 'set-union'?
    """
    if program not in TABLES:
        raise ValueError(
            f"program must be one of {', '.join(TABLES)}, got program={program!r}"
            f"{_near(str(program), TABLES)}"
        )


def arguments(
    program: str,
    *,
    fields: Mapping[str, Any],
    options: Any,
    releases: Any,
    without: Mapping[str, str] | None = None,
    remote: bool = False,
) -> list[str]:
    """Returns a program's arguments, after checking all that are not templates.

    Args:
      program: `ngrams`, `set-union` or `bayesian`.
      fields: The values of `FIELDS`; None leaves one out.
      options: Other options by name.
      releases: Directory of the releases of all runs, in which no other path may be.
      without: Options that make no sense on the engine, each with the reason.
      remote: Whether paths must be addresses on Google Cloud Storage.

    Returns:
      The arguments without `--output`. Those of templates are missing, so the result is complete only
      if nothing is a template.

    Raises:
      ValueError: An option is unknown, missing or wrong.

    Example:
      >>> fields = {"input": "/data/a.csv", "epsilon": 1, "delta": 1e-7}
      >>> arguments("ngrams", fields=fields, options={"strict": True}, releases="/releases")
      ['--input=/data/a.csv', '--epsilon=1', '--delta=1e-07', '--strict=true']
      >>> arguments("ngrams", fields=fields, options={"max_lenght": 3}, releases="/releases")
      Traceback (most recent call last):
      ValueError: options must be options of beam-dpne ngrams, got 'max_lenght'; did you mean \
'max_length'?
    """
    check_program(program)
    check_path("releases", releases, remote=remote)
    known = isinstance(options, Mapping | None)
    if not known and not is_template(options):
        raise ValueError(f"options must be a dict of options, got {type(options).__name__}.")
    options = options or {} if known else {}
    table = {option.name: option for option in options_of(TABLES[program])}
    refused = {**_REFUSED, **(without or {})}
    for name in options:
        _check_name(program, name, table, refused)
    given = {**fields, **options}
    if known:
        _check_required(program, given)
    found = []
    for name, value in given.items():
        if value is None or is_template(value):
            continue
        texts = texts_of(table[name], value)
        if table[name].path or name in _FILES:
            _check_paths(name, texts, releases, remote=remote)
        found += [f"--{name}={text}" for text in texts]
    return found


def texts_of(option: Option, value: Any) -> list[str]:
    """Returns the texts of an option's value, one for each time that the option is given.

    Raises:
      ValueError: The value is not one that the option takes.
    """
    several = isinstance(value, list | tuple)
    if several and option.parse in _LISTS:
        texts = [",".join(map(_text, value))]
    elif several and not (option.repeatable and value):
        raise ValueError(f"{option.name} must have one value, got {len(value)} values.")
    else:
        texts = [_text(part) for part in (value if several else [value])]
    for text in texts:
        if option.choices and text not in option.choices:
            choices = ", ".join(option.choices)
            raise ValueError(
                f"{option.name} must be one of {choices}, got {option.name}={text!r}"
                f"{_near(text, option.choices)}"
            )
        if not option.choices and not re.fullmatch(option.pattern, text):
            raise ValueError(
                f"{option.name} must match {option.pattern}, got {option.name}={text!r}. {option.help}"
            )
    return texts


def paths_of(program: str, given: Iterable[str]) -> list[tuple[str, str]]:
    """Returns the names and paths of the arguments that are paths, without `public`.

    `public` may be a release: then each of its rows is public already.
    """
    table = {option.name: option for option in options_of(TABLES[program])}
    pairs = [argument[2:].partition("=")[::2] for argument in given]
    return [
        (name, path)
        for name, text in pairs
        if name != "public" and (table[name].path or name in _FILES)
        for path in addresses(text)
    ]


def is_inside(path: str, folder: str) -> bool:
    """Returns whether a path is a directory, or somewhere in it; by their texts alone.

    Example:
      >>> is_inside("/releases/../releases/a", "/releases/"), is_inside("/releases-2", "/releases")
      (True, False)
    """
    return f"{_tidy(path)}/".startswith(f"{_tidy(folder)}/")


def _tidy(path: str) -> str:
    scheme, separator, rest = path.rpartition("://")
    return f"{scheme}{separator}{posixpath.normpath(rest)}".rstrip("/")


def _text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _check_name(
    program: str, name: object, table: Mapping[str, Option], refused: Mapping[str, str]
) -> None:
    if is_template(name):
        raise ValueError("options must have names that are no templates.")
    if name in FIELDS:
        raise ValueError(f"options must not have {name}, which is a field of the operator.")
    if name not in table:
        raise ValueError(
            f"options must be options of beam-dpne {program}, got {name!r}{_near(str(name), table)}"
        )
    if name in refused:
        raise ValueError(f"options must not have {name} here: {refused[str(name)]}.")


def _check_required(program: str, given: Mapping[str, Any]) -> None:
    budget = () if given.get("plan") is not None else ("epsilon", "delta")
    public = ("public",) if program == "bayesian" else ()
    for name in ("input", *budget, *public):
        if given.get(name) in (None, "", [], ()):
            raise ValueError(f"{name} must be given.")


def _check_paths(name: str, texts: Sequence[str], releases: Any, *, remote: bool) -> None:
    for path in (path for text in texts for path in addresses(text)):
        check_path(name, path, remote=remote)
        if name != "public" and not is_template(releases) and is_inside(path, releases):
            raise ValueError(
                f"{name} must be outside {releases}, which holds releases, got {name}={path}."
            )


def check_path(name: str, path: Any, *, remote: bool = False) -> None:
    """Raises ValueError unless a path means the same in every process, or is a template.

    Args:
      name: Name of the field, for the message.
      path: Path or address.
      remote: Whether it must be an address on Google Cloud Storage.
    """
    if is_template(path):
        return
    if remote and not str(path).startswith("gs://"):
        raise ValueError(
            f"{name} must be an address on Google Cloud Storage, gs://…, got {name}={path!r}."
        )
    if not isinstance(path, str) or not (path.startswith("/") or _ADDRESS.match(path)):
        raise ValueError(
            f"{name} must be an absolute path or an address such as gs://bucket/folder, got "
            f"{name}={path!r}: a task has no working directory that stays."
        )


def _near(name: str, known: Iterable[str]) -> str:
    near = difflib.get_close_matches(name, list(known), n=1)
    return f"; did you mean {near[0]!r}?" if near else "."
