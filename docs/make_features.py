"""The page of what goes with what, which the build of the site makes from the code and its tests."""

import dataclasses
import pathlib
from collections.abc import Iterable

from beam_dpne import BayesianCounts, CountPhrases, PrivateNgrams, PrivateSetUnion, yaml
from beam_dpne.accounting.expense import PLANS
from beam_dpne.api.keywords import CALLS
from beam_dpne.cli.commands import COMMANDS
from beam_dpne.exports.writing import KINDS
from beam_dpne.jobs.programs import PROGRAMS
from beam_dpne.set_union.plan import POLICIES
from beam_dpne.validation import parameters_of

PAGE = pathlib.Path(__file__).with_name("features.md")
_TESTS = PAGE.parents[1] / "tests" / "engines"
_TRANSFORMS = {
    "ngrams": PrivateNgrams,
    "set-union": PrivateSetUnion,
    "bayesian": BayesianCounts,
    "count": CountPhrases,
}
_ENGINES = {"Prism": "prism", "Flink": "flink", "Spark": "spark", "Dataflow": "dataflow"}
_CALLED = [call.groups for call in CALLS.values()]
_BEGINNING = """# What goes with what

The build of the site makes this page from the code. *Strategy* stands for the strategies of
n-grams, the policies of set union, probabilities (`counts`), and numbers of a list (`list`).

"""
_ABOUT_ENGINES = """
## Engines

Every strategy runs on every engine, because all are pipelines of Beam. This table says what the tests
run there: *same bytes* means that under one run key the release is that of the embedded runner. For
Dataflow they build the job and check its graph, and never reach the service.

"""


def strategies() -> dict[str, str]:
    """Returns the program of each strategy."""
    chosen = next(each for each in parameters_of(PLANS["ngrams"]) if each.name == "strategy")
    return {
        **dict.fromkeys(chosen.choices, "ngrams"),
        **dict.fromkeys(POLICIES, "set-union"),
        "counts": "bayesian",
        "list": "count",
    }


def features(strategy: str, program: str) -> dict[str, bool]:
    """Returns whether a strategy has each feature."""
    kind = PLANS[program]
    given = {"policy" if program == "set-union" else "strategy": strategy}
    fields = {field.name for field in dataclasses.fields(kind)}
    plan = kind(epsilon=1, delta=1e-6, **{k: v for k, v in given.items() if k in fields})
    transform = {field.name for field in dataclasses.fields(_TRANSFORMS[program])}
    commands = {command.name: command for command in COMMANDS}
    judged = {
        each.name: each.parameters["program"].choices
        for each in COMMANDS
        if "program" in each.parameters
    }
    return {
        "numbers of users": plan.count_noise is not None or program == "count",
        "`--group_field`": "group_field" in transform,
        "`--known`": "known" in transform and getattr(plan, "is_adaptive", True),
        "`--public`": "public" in transform,
        "masks": "mask" in commands[program].parameters,
        "`--workers`": "workers" in commands[program].parameters,
        "`--budget`": "budget" in commands[program].parameters,
        "[a call from Python](from-python.md)": PROGRAMS[program].groups in _CALLED,
        "Beam YAML": hasattr(yaml, _TRANSFORMS[program].__name__),
        **{f"`beam-dpne {name}`": program in programs for name, programs in judged.items()},
        "`beam-dpne evaluate`": program != "bayesian",
        "exports": any(program in each.programs for each in KINDS.values()),
    }


def tested(strategy: str) -> Iterable[str]:
    """Yields what the tests of each engine do with a strategy."""
    for name, module in _ENGINES.items():
        text = (_TESTS / f"test_{module}.py").read_text(encoding="utf-8")
        default = (
            strategy in ("screened_gaussian", "counts") and f'("{strategies()[strategy]}"' in text
        )
        found = default or f'"{strategy}"' in text
        yield ("the job's graph" if name == "Dataflow" else "same bytes") if found else ""


def table(header: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    """Returns a table of Markdown."""
    lines = [list(header), ["---"] * len(list(header)), *map(list, rows)]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def page() -> str:
    """Returns the page."""
    found = {name: features(name, program) for name, program in strategies().items()}
    every = [name for name in found["adaptive"] if all(row[name] for row in found.values())]
    names = [name for name in found["adaptive"] if name not in every]
    marks = {True: "yes", False: "–"}
    rows = [[f"`{name}`", *(marks[row[key]] for key in names)] for name, row in found.items()]
    exports = [[f"`{name}`", kind.holds, ", ".join(kind.programs)] for name, kind in KINDS.items()]
    return "".join(
        [
            f"{_BEGINNING}Every one of them has {', '.join(every[:-1])} and {every[-1]}.\n\n",
            table(["strategy", *names], rows),
            "\n## Exports\n\n",
            table(["export", "file", "programs"], exports),
            _ABOUT_ENGINES,
            table(
                ["strategy", "program", *_ENGINES],
                [[f"`{name}`", program, *tested(name)] for name, program in strategies().items()],
            ),
        ]
    )


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
