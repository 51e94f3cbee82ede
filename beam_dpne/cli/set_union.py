"""`beam-dpne set-union`: from options to a pipeline, run and reported."""

import argparse
import dataclasses
import time
from collections.abc import Mapping
from typing import Any

import apache_beam as beam

from beam_dpne.cli import display, jobs, launching, running
from beam_dpne.cli.budget import require_budget, warn_of_large_delta
from beam_dpne.cli.options import with_defaults
from beam_dpne.cli.set_union_options import SET_UNION
from beam_dpne.release.publishing import PublishRelease
from beam_dpne.set_union.plan import SetUnionPlan
from beam_dpne.set_union.transform import PrivateSetUnion


@dataclasses.dataclass(frozen=True, kw_only=True)
class SetUnionJob(jobs.Job):
    """Everything that `beam-dpne set-union` was asked to do, checked.

    Attributes:
      plan: the privacy parameters.
    """

    plan: SetUnionPlan


def run_command(given: argparse.Namespace, beam_arguments: list[str]) -> None:
    """Runs `beam-dpne set-union` and prints the release."""
    options = running.beam_options(beam_arguments)
    job = job_from_options(given, options)
    warn_of_large_delta(job.plan)
    started = time.monotonic()
    ledger = run_job(job, options)
    if ledger is not None:
        with display.published(job.output):
            display.print_items(ledger, job.output, time.monotonic() - started)


def job_from_options(given: argparse.Namespace, options: running.BeamOptions) -> SetUnionJob:
    """Checks all options and returns the job; reads no data beyond the heads of the input files.

    Args:
      given: parsed options.
      options: where the job will run.

    Raises:
      UsageError, ValueError, FileNotFoundError: if a parameter is wrong.
    """
    values = with_defaults(given, SET_UNION)
    require_budget(values)
    plan = SetUnionPlan(**values)
    return SetUnionJob(plan=plan, **jobs.settings_from_options(given, options))


def run_job(job: SetUnionJob, options: running.BeamOptions) -> Mapping[str, Any] | None:
    """Runs the job; returns the ledger of the release, None if only a template was made.

    Raises:
      RunError: if it failed; nothing has been published then.
    """
    return jobs.run_job(job, options, build)


def build(
    pipeline: beam.Pipeline,
    job: SetUnionJob,
    folder: str,
    canary: launching.Canary | None = None,
) -> None:
    """Wires reading, the union and publishing.

    Args:
      pipeline: an empty one.
      job: what to do.
      folder: the run's temporary location.
      canary: what the first step leaves for the launcher; None: nothing.
    """
    read = jobs.read_documents(pipeline, job, canary)
    union = read.documents | "PrivateSetUnion" >> PrivateSetUnion(
        plan=job.plan,
        tokenizer=job.tokenizer,
        partitions=job.partitions,
        run_key=job.run_key,
        described=job.described,
    )
    _ = union | "Publish" >> PublishRelease(plan=job.plan, **jobs.publishing(job, canary, read))
