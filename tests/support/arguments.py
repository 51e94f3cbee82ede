"""Arguments of tests: rare options go into a file of parameters; tables of what must be refused."""

import argparse
import json
import pathlib
import re
import tempfile
from collections.abc import Callable, Iterable, Sequence

from beam_dpne.cli.commands import COMMANDS


def with_plan_file(arguments: Sequence[object]) -> list[str]:
    """Returns arguments of `beam-dpne` in which rare parameters are in a file named by `--plan`."""
    texts = [str(argument) for argument in arguments]
    command = next((each for each in COMMANDS if texts[:1] == [each.name]), None)
    if command is None:
        return texts
    rare = {f"--{n}": p for n, p in command.parameters.items() if p.rare}
    kept: list[str] = []
    values: dict[str, object] = {}
    while texts:
        text = texts.pop(0)
        flag, _, value = text.partition("=")
        if flag not in rare:
            kept.append(text)
            continue
        parameter = rare[flag]
        if not value:
            bare = parameter.kind is bool and (not texts or texts[0] not in ("true", "false"))
            value = "true" if bare else texts.pop(0)
        if parameter.several and parameter.kind is str:
            values[parameter.name] = value.split(",")
        else:
            values[parameter.name] = parameter.parse(value)
    if not values:
        return kept
    if "--plan" in kept:
        path = pathlib.Path(kept[kept.index("--plan") + 1])
        values = json.loads(path.read_text()) | values
        del kept[kept.index("--plan") : kept.index("--plan") + 2]
    with tempfile.NamedTemporaryFile("w", suffix=".json", delete=False) as file:
        json.dump(values, file)
    return [*kept, "--plan", file.name]


def parsed(arguments: Sequence[str]) -> tuple[argparse.Namespace, list[str]]:
    """Returns the texts of the options of a command, and the arguments that are Beam's."""
    command = next(each for each in COMMANDS if each.name == arguments[0])
    return command.parser().parse_known_args(list(arguments[1:]))


def refusal(
    make: Callable, *arguments, error: type[Exception] = ValueError, **parameters
) -> str | None:
    """Returns the message of the error that a call raises; None if it raises none."""
    try:
        make(*arguments, **parameters)
    except error as refused:
        return str(refused)
    return None


def not_refused(
    make: Callable, cases: Iterable[tuple[dict, str]], error: type[Exception] = ValueError
) -> list[tuple[dict, str, str | None]]:
    """Returns the cases, parameters and a pattern of the message, that fail, with what was said."""
    said = [(wrong, words, refusal(make, error=error, **wrong)) for wrong, words in cases]
    return [case for case in said if case[2] is None or not re.search(case[1], case[2])]
