"""The commands of `beam-dpne`, each with its groups of parameters and the function that runs it."""

import dataclasses
import importlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from beam_dpne.cli import parsing
from beam_dpne.validation import Parameters

_BEAM_OPTIONS = "Options of Apache Beam (--runner, …) may follow."


@dataclasses.dataclass(frozen=True, kw_only=True)
class Command:
    """One command. Names are imported when it runs, since Beam takes two seconds to load.

    Attributes:
      name: its name on the command line.
      summary: its line in the list of commands.
      description: the first lines of its help.
      groups: its groups of parameters, classes or "module:Class" below `beam_dpne`, by the title under
        which they are shown.
      run: the function that runs it, or "module:function" below `beam_dpne.cli`; it takes the groups
        with their values, and the options of Beam.
      prog: its name in its help, by default behind that of the program.
      positional: name of the parameter whose values come without its name, or "".
      takes_beam: whether options of Beam may follow.
    """

    name: str
    summary: str
    description: str
    groups: Mapping[str, Sequence[str | type[Parameters]]]
    run: str | Callable[[parsing.Made, list[str]], object]
    positional: str = ""
    takes_beam: bool = False
    prog: str = ""

    def load_groups(self) -> parsing.Groups:
        """Returns the classes of its groups; they are loaded without Beam."""
        return {
            title: tuple(_imported("beam_dpne", name) for name in names)
            for title, names in self.groups.items()
        }

    @property
    def function(self) -> Callable[[parsing.Made, list[str]], object]:
        """The function that runs it."""
        return _imported("beam_dpne.cli", self.run)


def _imported(package: str, name: Any) -> Any:
    if not isinstance(name, str):
        return name
    module, _, attribute = name.partition(":")
    return getattr(importlib.import_module(f"{package}.{module}"), attribute)


_FILES = ("reading.options:ReadOptions", "cli.parameters:Tokenizing")
_READING = ("cli.parameters:Input", *_FILES, "cli.parameters:Rejecting")
_WRITING = ("cli.parameters:Writing", "release.schema:ReleaseNotes")
_RUNNING = (
    "cli.parameters:Running",
    "cli.parameters:Budgeting",
    "cli.parameters:FailureLogging",
    "cli.parameters:Quiet",
)
_PLAN_FILE = "cli.parameters:PlanFile"


def _releasing(name: str, plan: str, summary: str, description: str, *more: str) -> Command:
    """Returns a command that publishes a release."""
    return Command(
        name=name,
        summary=summary,
        description=f"{description} {_BEAM_OPTIONS}",
        groups={
            "reading": (*_READING, *more),
            "privacy": (plan, _PLAN_FILE),
            "writing": _WRITING,
            "running": _RUNNING,
        },
        run="programs:run",
        takes_beam=True,
    )


COMMANDS = (
    _releasing(
        "ngrams",
        "ngrams.plan:PrivacyPlan",
        "release the n-grams that many users share",
        "Releases the n-grams that many users share, with user-level (ε, δ)-differential privacy.",
    ),
    _releasing(
        "set-union",
        "set_union.plan:SetUnionPlan",
        "release the items that many users share",
        "Releases the items that many users share (words, names, queries, whole records), with "
        "user-level (ε, δ)-differential privacy.",
    ),
    _releasing(
        "bayesian",
        "bayesian.plan:BayesianPlan",
        "estimate the probability of every n-gram of a public vocabulary",
        "Estimates a probability for every n-gram of a public vocabulary from users' texts, with "
        "user-level (ε, δ)-differential privacy.",
        "cli.parameters:PublicCounting",
    ),
    Command(
        name="plan",
        summary="show before a run how many users an n-gram needs, and write the plan to a file",
        description="Prints how many users an n-gram needs to be released, and writes the plan as "
        "JSON. With a number of users and public text it forecasts a release: n-grams of each length, "
        "users that an n-gram needs, and the width of counts. It never reads private data.",
        groups={
            "privacy": ("ngrams.plan:PrivacyPlan", _PLAN_FILE),
            "planning": ("cli.settings:Planning",),
            "forecasting": ("cli.settings:Forecasting", "cli.parameters:Quiet"),
            "reading the public text": _FILES,
        },
        run="planning:run",
    ),
    Command(
        name="evaluate",
        summary="compare a release with the private data it came from; for the operator",
        description="Compares a release with the private data it came from: how much of it is real, "
        "how much of the data it covers, and how good its numbers of users are. Its output is NOT "
        "private: it is as secret as the data, and for the operator only. The data must fit in memory: "
        "10 million words and 9 lengths take 2 GB.",
        groups={
            "reading": ("cli.parameters:Input", *_FILES, _PLAN_FILE),
            "evaluating": (
                "cli.settings:Evaluating",
                "cli.parameters:FailureLogging",
                "cli.parameters:Quiet",
            ),
        },
        run="evaluating:run",
    ),
    Command(
        name="account",
        summary="add up what several releases of the same users have spent, and keep a budget",
        description="Adds up the (ε, δ) of several releases about the same users, from their ledgers "
        "alone, and keeps a budget that runs must not exceed.",
        groups={
            "adding up": ("cli.release_settings:Adding",),
            "keeping a budget": ("cli.release_settings:Keeping",),
        },
        run="releases:account",
        positional="ledgers",
    ),
    Command(
        name="export",
        summary="write a release in the format of another system",
        description="Writes a release in the format of another system: a tokenizer, a language model, "
        "a keyboard's word list, suggestions, tables, or a data card. It reads the release alone and "
        "costs no budget. The release must fit in memory.",
        groups={"exporting": ("cli.release_settings:Exporting",)},
        run="releases:export",
        positional="release",
    ),
    Command(
        name="report",
        summary="describe a release and its guarantee in one HTML or Markdown file",
        description="Writes a report of a release as one file: what was released, the guarantee in "
        "plain words, its limits, tables, plots, a search box, and how to cite and verify it. It is "
        "made from the release alone and never opens the input, so it costs no privacy.",
        groups={"report": ("cli.release_settings:Reporting",)},
        run="releases:report",
        positional="release",
    ),
    Command(
        name="audit",
        summary="attack the mechanism of a plan with made-up data, and bound its ε from below",
        description="Attacks the mechanism of a plan by the kernels of the product, with made-up data: "
        "it prints lower bounds on ε beside the claim, and beside planted mistakes that the attacks "
        "should notice. It never reads data. The exit status is 3 if a bound is above its claim, and 4 "
        "if a planted mistake went unnoticed, so that there were too few runs.",
        groups={"audit": ("cli.settings:Auditing",)},
        run="auditing:run",
        positional="mechanism",
    ),
)
