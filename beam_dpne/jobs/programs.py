"""The programs that publish a release, each with its groups of parameters."""

import dataclasses
from collections.abc import Mapping, Sequence

from beam_dpne.jobs.made import Groups, load_groups, parameters_in
from beam_dpne.validation import Parameter

# How texts are read, also those that no program releases.
FILES = ("reading.options:ReadOptions", "jobs.parameters:Tokenizing")
PLAN_FILE = "jobs.parameters:PlanFile"
# What the face shows of a run.
SHOWING = ("jobs.parameters:FailureLogging", "jobs.parameters:Quiet")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Program:
    """One program. Its groups are imported when they are needed, since that takes time.

    Attributes:
      name: its name on every face.
      plan: the group of its privacy parameters, "module:Class" below `beam_dpne`.
      more: further groups about the input.
    """

    name: str
    plan: str
    more: Sequence[str]

    @property
    def groups(self) -> Mapping[str, Sequence[str]]:
        """Its groups of parameters, by the title under which they are shown."""
        return {
            "reading": ("jobs.parameters:Input", *FILES, "jobs.parameters:Rejecting", *self.more),
            "privacy": (self.plan, PLAN_FILE),
            "writing": ("jobs.parameters:Writing", "release.schema:ReleaseNotes"),
            "running": ("jobs.parameters:Running", *SHOWING),
        }

    def load_groups(self) -> Groups:
        """Returns the classes of its groups; they are loaded without Beam."""
        return load_groups(self.groups)

    @property
    def parameters(self) -> dict[str, Parameter]:
        """All its parameters by name."""
        return parameters_in(self.load_groups())


_PROGRAMS = (
    Program(
        name="ngrams",
        plan="ngrams.plan:NgramsPlan",
        more=("reading.options:Grouping", "lists.parameters:KnownLists"),
    ),
    Program(
        name="set-union",
        plan="set_union.plan:SetUnionPlan",
        more=("lists.parameters:KnownLists",),
    ),
    Program(
        name="bayesian",
        plan="bayesian.plan:ProbabilitiesPlan",
        more=("lists.parameters:PublicCounting",),
    ),
    Program(
        name="count",
        plan="phrase_counts.plan:PhraseCountsPlan",
        more=(
            *("reading.options:Grouping", "lists.parameters:ListedPhrases"),
            "lists.parameters:CountedPhrases",
        ),
    ),
)
PROGRAMS: Mapping[str, Program] = {program.name: program for program in _PROGRAMS}
