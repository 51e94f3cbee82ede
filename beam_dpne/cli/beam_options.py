"""The options of Beam, which decide where a pipeline runs."""

import argparse
import dataclasses
import difflib
import re
from collections.abc import Collection, Sequence
from typing import NoReturn

from apache_beam.options.pipeline_options import (
    GoogleCloudOptions,
    PipelineOptions,
    PortableOptions,
    SetupOptions,
)
from apache_beam.runners.runner import PipelineRunner, create_runner

from beam_dpne.cli.embedded import EmbeddedRunner
from beam_dpne.cli.options import options_of
from beam_dpne.cli.tables import BAYESIAN, NGRAMS, SET_UNION
from beam_dpne.engines.run import HARNESS_KEPT_MILLIS
from beam_dpne.errors import UsageError

EMBEDDED = ("fnapirunner", "embedded")
# The path to which Dataflow's Flex launcher has the job written; it is observed, not documented.
_FLEX_LAUNCH = re.compile(r"gs://.+/template_launches/\d{4}(?:[-_]\d\d){5}-\d+/job_object")


@dataclasses.dataclass(frozen=True, kw_only=True)
class BeamOptions:
    """The runner of a pipeline, and its options.

    Attributes:
      runner: Beam's runner; it is always named, since Beam's default may download one.
      pipeline_options: Beam's options.
      embedded: whether the runner is the embedded one, in this process.
      is_template: whether a classic template is made instead of a run.
    """

    runner: PipelineRunner
    pipeline_options: PipelineOptions
    embedded: bool
    is_template: bool = False

    @property
    def temp_location(self) -> str | None:
        """Beam's temporary location, or None."""
        return self.pipeline_options.view_as(GoogleCloudOptions).temp_location

    @property
    def on_dataflow(self) -> bool:
        """Whether the pipeline goes to Dataflow."""
        return type(self.runner).__name__ == "DataflowRunner"

    @property
    def can_hang(self) -> bool:
        """Whether the engine keeps a job whose workers cannot start; Dataflow ends such a job."""
        return not (self.embedded or self.on_dataflow)

    @property
    def hands_over(self) -> bool:
        """Whether the launcher ends before the job runs, as with both kinds of templates."""
        return bool(self.pipeline_options.view_as(GoogleCloudOptions).template_location)

    @property
    def writes_template(self) -> bool:
        """Whether a template is written; other runners than Dataflow's ignore that option and run."""
        return self.is_template and self.on_dataflow


class CachedOptions(PipelineOptions):
    """Beam's options with one view for each class; Beam asks for thousands while it builds."""

    def view_as(self, cls):
        """Returns the same view each time; views share their values."""
        views = self.__dict__.setdefault("_views", {})
        if cls not in views:
            views[cls] = super().view_as(cls)
        return views[cls]


def beam_options(arguments: Sequence[str]) -> BeamOptions:
    """Returns Beam's options; the runner is the embedded one unless another one is named.

    Raises:
      UsageError: on an option that neither this package nor Beam has, or a wrong value.
    """
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    parser.error = _refuse
    parser.add_argument("--runner", default=EMBEDDED[0])
    given, others = parser.parse_known_args(list(arguments))
    embedded = given.runner.lower() in EMBEDDED
    unknown = _unknown(others)
    if embedded and unknown:
        _refuse_unknown(unknown[0])
    pipeline_options = CachedOptions(others)
    _set_defaults(pipeline_options, {other.partition("=")[0] for other in others})
    return BeamOptions(
        runner=EmbeddedRunner() if embedded else _runner(given.runner),
        pipeline_options=pipeline_options,
        embedded=embedded,
        is_template=_is_classic_template(pipeline_options),
    )


def _set_defaults(options: PipelineOptions, given: Collection[str]) -> None:
    """Replaces defaults of Beam that do not suit these pipelines, unless an option was given."""
    if "--save_main_session" not in given:
        # No code of this package is in the main module, and the data there may be private.
        options.view_as(SetupOptions).save_main_session = False
    if "--environment_cache_millis" not in given:
        # Otherwise Flink starts a new Python for each short stage, which takes 3 s instead of 0.1 s,
        # and hangs on one that is just being stopped.
        options.view_as(PortableOptions).environment_cache_millis = HARNESS_KEPT_MILLIS


def _is_classic_template(options: PipelineOptions) -> bool:
    """Whether the job is only written; the launcher of a Flex Template writes one at every launch."""
    location = options.view_as(GoogleCloudOptions).template_location
    return bool(location) and not _FLEX_LAUNCH.fullmatch(location)


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
    """Replaces the function of argparse, which prints all of Beam's options and exits."""
    raise UsageError(f"{message}.")


def _refuse_unknown(argument: str) -> NoReturn:
    if not argument.startswith("-"):
        raise UsageError(f"there is no argument {argument!r}; name input files with --input.")
    flag = argument.partition("=")[0]
    tables = (NGRAMS, SET_UNION, BAYESIAN)
    ours = [option.name for table in tables for option in options_of(table)]
    near = difflib.get_close_matches(
        flag.lstrip("-"), [*ours, *PipelineOptions([]).get_all_options()], n=1
    )
    hint = f"; did you mean --{near[0]}?" if near else "."
    if flag.lstrip("-") in ours:
        hint = " here; it is of another command, see beam-dpne --help."
    raise UsageError(f"there is no option {argument.split('=', maxsplit=1)[0]}{hint}")
