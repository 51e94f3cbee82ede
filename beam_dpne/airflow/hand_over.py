"""`python -m beam_dpne.airflow.hand_over REPORT PROGRAM OPTIONS` starts a job on Flink and leaves it.

A deferred task has no process that could wait for its job. So this program starts the job as
`beam-dpne PROGRAM` does, waits until a worker has done the first step, and ends. If it is stopped or
fails, it cancels the job. Before it sends the job it writes the file REPORT, JSON with the temporary
folder of the run. The task deletes this folder after the job, or to stop the job: without it the job
does not publish, even if this program was killed. This program does not import Airflow.
"""

import argparse
import json
import pathlib
import sys
import time
from collections.abc import Sequence
from typing import Any

import apache_beam as beam
from apache_beam.io.filesystems import FileSystems
from apache_beam.options.pipeline_options import PipelineOptions, PortableOptions
from apache_beam.runners.runner import PipelineResult, PipelineState

from beam_dpne.airflow.options import ENDS_BEFORE_JOB, TABLES, check_program
from beam_dpne.cli import jobs, run_folders, runners
from beam_dpne.cli.failures import printable_reason
from beam_dpne.cli.main import OneLineParser, run_program
from beam_dpne.cli.options import add_program
from beam_dpne.cli.plan_checks import warn_of_large_delta
from beam_dpne.cli.programs import program_of
from beam_dpne.elements import progress
from beam_dpne.engines import cancelled_on_failure, send, state_of
from beam_dpne.engines.flink import failures_at_flink
from beam_dpne.errors import RunError, UsageError
from beam_dpne.storage.run_files import Markers, make_marker

_POLL_SECONDS = 0.5


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the program with these arguments; returns its exit status, as `beam-dpne` does."""
    report, program, *arguments = sys.argv[1:] if argv is None else argv
    check_program(program)
    parser = OneLineParser(prog=f"hand_over {program}", allow_abbrev=False)
    add_program(parser, TABLES[program])
    parser.set_defaults(program=program, report=report, command=_hand_over)
    return run_program(parser, arguments)


def _hand_over(parsed: argparse.Namespace, beam_arguments: list[str]) -> None:
    options = runners.beam_options(beam_arguments)
    kind = options.pipeline_options.view_as(PortableOptions).environment_type
    if not options.can_hang or kind != "EXTERNAL":
        raise UsageError(
            "environment_type must be EXTERNAL with runner=PortableRunner here, since the workers of "
            "the job must not end with this program."
        )
    for name, why in ENDS_BEFORE_JOB.items():
        if getattr(parsed, name, None):
            raise UsageError(f"{name} must be left out here: {why}.")
    job = jobs.job_from_options(program_of(parsed.program), parsed, options)
    warn_of_large_delta(job.plan)
    _start(job, options, pathlib.Path(parsed.report))


def _start(job: jobs.Job[Any, Any], options: runners.BeamOptions, report: pathlib.Path) -> None:
    """Starts a job, and returns once a worker has done the first step."""
    folder = FileSystems.join(*jobs.run_folder_of(job, options))
    report.write_text(json.dumps({"folder": folder}), encoding="utf-8")
    canary = runners.Canary(marks=Markers(folder), timeout=job.harness_timeout)
    try:
        make_marker(canary.marks.wanted)
        progress.enter("engine")
        pipeline = beam.Pipeline(runner=options.runner, options=options.pipeline_options)
        jobs.build(pipeline, job, folder, canary)
        result = send(pipeline)
        with cancelled_on_failure(result, pipeline.options):
            _wait_for_workers(result, canary, pipeline.options)
    except BaseException as error:
        # The job does not publish without the marker in this folder.
        run_folders.delete_and_report(folder)
        if isinstance(error, Exception):
            raise RunError(printable_reason(error)) from None
        raise


def _wait_for_workers(
    result: PipelineResult, canary: runners.Canary, options: PipelineOptions
) -> None:
    """Returns when a worker has done the first step.

    Raises:
      RunError: The job failed, or no worker did that in time.
    """
    running_since = None
    while not runners.is_made(canary.marks.started):
        state = state_of(result)
        if state is not None and PipelineState.is_terminal(state):
            recorded = failures_at_flink(result, options)
            raise RunError(f"the job {state.lower()}: {printable_reason(RuntimeError(recorded))}")
        if running_since is None and state == PipelineState.RUNNING:
            running_since = time.monotonic()
        late = running_since is not None and time.monotonic() - running_since > canary.timeout
        if canary.timeout and late:
            raise RunError(runners.no_start(canary, options))
        time.sleep(_POLL_SECONDS)


if __name__ == "__main__":
    sys.exit(main())
