"""Running a pipeline from a program: Beam's options, the embedded runner, errors without data."""

import argparse
import dataclasses
import difflib
import os
import re
from collections.abc import Sequence
from typing import NoReturn

import apache_beam as beam
from apache_beam.metrics.metric import MetricsFilter
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.runners.runner import PipelineResult, PipelineRunner, create_runner

from beam_dpne.cli.embedded import EmbeddedRunner
from beam_dpne.cli.errors import RunError, UsageError
from beam_dpne.cli.options import PRIVACY, READING, RUNNING, WRITING

EMBEDDED = ("fnapirunner", "embedded")
_OURS = re.compile(r"^beam_dpne[\w.]*\.(\w+): (.*)$")
_ERRNO = re.compile(r"^(?:\w+Error: )?\[Errno (\d+)\]", re.MULTILINE)
_WHILE_RUNNING = re.compile(r"(?: \[while running '[^']*'\])+$")


@dataclasses.dataclass(frozen=True, kw_only=True)
class BeamOptions:
    """Where a pipeline runs.

    Attributes:
      runner: Beam's runner; named, since Beam's own default may download one.
      pipeline_options: Beam's options.
      waits: whether the run is over when `run_pipeline` returns.
      is_template: whether a template is made instead of a run.
    """

    runner: PipelineRunner
    pipeline_options: PipelineOptions
    waits: bool
    is_template: bool = False


class CachedOptions(PipelineOptions):
    """Beam's options with one view for each class; Beam asks for thousands while it builds."""

    def view_as(self, cls):
        """Returns the same view each time; views share their values."""
        views = self.__dict__.setdefault("_views", {})
        if cls not in views:
            views[cls] = super().view_as(cls)
        return views[cls]


def beam_options(arguments: Sequence[str]) -> BeamOptions:
    """Returns Beam's options; the embedded runner unless another one is named.

    Raises:
      UsageError: on an option that neither we nor Beam have, or a wrong value.
    """
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    parser.error = _refuse
    parser.add_argument("--runner", default=EMBEDDED[0])
    given, others = parser.parse_known_args(list(arguments))
    embedded = given.runner.lower() in EMBEDDED
    unknown = _unknown(others)
    if embedded and unknown:
        _refuse_unknown(unknown[0])
    return BeamOptions(
        runner=EmbeddedRunner() if embedded else _runner(given.runner),
        pipeline_options=CachedOptions(others),
        waits=embedded,
        is_template=any(argument.startswith("--template_location") for argument in others),
    )


def run_pipeline(pipeline: beam.Pipeline) -> PipelineResult:
    """Runs to the end.

    Raises:
      RunError: if the run failed, with our own message, or else only the type of the error: the
        messages of libraries may quote data.
    """
    try:
        result = pipeline.run()
        result.wait_until_finish()
    except Exception as error:
        raise RunError(reason(error)) from None
    return result


def reason(error: BaseException) -> str:
    """Returns what may be said of a failure: our own words, or the type of the error."""
    if type(error).__module__.startswith("beam_dpne."):
        return _WHILE_RUNNING.sub("", str(error))
    lines = [line for line in str(error).splitlines() if line.strip()]
    for line in reversed(lines):
        if match := _OURS.match(line.strip()):
            return _WHILE_RUNNING.sub("", match.group(2))
    if match := _ERRNO.search(str(error)):
        return f"{os.strerror(int(match.group(1)))}."
    found = re.findall(r"^(?:\w+\.)*(\w*(?:Error|Exception|Interrupt))\b", str(error), re.MULTILINE)
    kind = found[-1] if found else type(error).__name__
    return f"{kind}; its message is withheld, since it may quote the data."


def counter(result: PipelineResult, name: str) -> int:
    """Returns the value of one of our counters."""
    query = result.metrics().query(MetricsFilter().with_namespace("beam_dpne").with_name(name))
    return sum(metric.committed or 0 for metric in query["counters"])


def _runner(name: str) -> PipelineRunner:
    try:
        return create_runner(name)
    except (ValueError, ImportError, AttributeError) as error:
        raise UsageError(f"runner cannot be used, got runner={name}: {error}") from None


def _unknown(arguments: Sequence[str]) -> list[str]:
    """Returns the arguments that Beam does not have; Beam itself would drop them silently."""
    parsers: list[argparse.ArgumentParser] = []
    PipelineOptions([]).get_all_options(add_extra_args_fn=parsers.append)
    parsers[0].error = _refuse
    return parsers[0].parse_known_args(list(arguments))[1]


def _refuse(message: str) -> NoReturn:
    """Stands in for argparse's own, which prints all of Beam's options and exits."""
    raise UsageError(f"{message}.")


def _refuse_unknown(argument: str) -> NoReturn:
    if not argument.startswith("-"):
        raise UsageError(f"there is no argument {argument!r}; name input files with --input.")
    flag = argument.partition("=")[0]
    ours = [option.name for option in (*READING, *PRIVACY, *WRITING, *RUNNING)]
    near = difflib.get_close_matches(
        flag.lstrip("-"), [*ours, *PipelineOptions([]).get_all_options()], n=1
    )
    hint = f"; did you mean --{near[0]}?" if near else "."
    raise UsageError(f"there is no option {argument.split('=', maxsplit=1)[0]}{hint}")
